//! One configuration in every format.

use super::*;

const CONFIG: &str = r#"{"mcpServers": {
    "memory": {"command": "/bin/m", "args": ["serve", "a\"b"], "env": {"KEY": "secret"}},
    "far": {"type": "http", "url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "Bearer t"}},
    "old": {"type": "sse", "url": "http://127.0.0.1:2/sse"}
}}"#;

#[test]
fn all_formats_contain_all_servers() {
    let servers = parse(CONFIG).unwrap();
    let gemini = for_gemini(&servers);
    assert_eq!(gemini["memory"]["args"], json!(["serve", "a\"b"]));
    assert_eq!(
        (&gemini["far"]["httpUrl"], &gemini["old"]["url"]),
        (&json!("http://127.0.0.1:1/mcp"), &json!("http://127.0.0.1:2/sse"))
    );
    let opencode = for_opencode(&servers);
    assert_eq!(opencode["memory"]["command"], json!(["/bin/m", "serve", "a\"b"]));
    assert_eq!(opencode["far"]["headers"]["Authorization"], "Bearer t");
    let (settings, environment) = for_codex(&servers);
    assert_eq!(
        settings,
        [
            r#"mcp_servers.memory.command="/bin/m""#,
            r#"mcp_servers.memory.args=["serve","a\"b"]"#,
            r#"mcp_servers.memory.env_vars=["KEY"]"#,
            r#"mcp_servers.far.url="http://127.0.0.1:1/mcp""#,
            r#"mcp_servers.far.env_http_headers={"Authorization"="RALPH_MCP_HEADER_1"}"#,
            r#"mcp_servers.old.url="http://127.0.0.1:2/sse""#,
        ]
    );
    let expected = [("KEY", "secret"), ("RALPH_MCP_HEADER_1", "Bearer t")];
    assert_eq!(environment, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert!(!settings.concat().contains("secret") && !settings.concat().contains("Bearer"), "no secret in arguments");
}

#[test]
fn invalid_configuration_is_reported_in_a_sentence() {
    for (text, words) in [
        ("", "not JSON"),
        ("[]", "no object `mcpServers`"),
        (r#"{"mcpServers": {"a.b": {"command": "x"}}}"#, "letters, digits"),
        (r#"{"mcpServers": {"a": {}}}"#, "neither `command` nor `url`"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
    let missing = format!("{:#}", read(Path::new("/nowhere/mcp.json")).unwrap_err());
    assert!(missing.contains("/nowhere/mcp.json") && missing.contains("cannot be read"), "{missing}");
    assert!(parse(&" ".repeat(MAX_BYTES + 1)).unwrap_err().to_string().contains("256 KiB"));
}
