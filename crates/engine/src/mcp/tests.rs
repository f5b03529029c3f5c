//! Tests of tokens, sockets and the file for agents. The tools over a real connection are in `tests/it/memory.rs`.

use super::*;

#[test]
fn token_is_valid_for_its_run_only() {
    let id = LoopId::new("r-7-abcdef");
    let token = Token::new(b"key", &id, "3-1");
    // Computed with `printf 'ralph session memory 1
    // r-7-abcdef
    // 3-1' | openssl dgst -sha256 -hmac key`.
    assert_eq!(token.as_str(), "32677d880a00ceb02f5c74c8d7c7e58c61d88f68528b37456185fcacd536a831");
    assert!(token.is(token.as_str()));
    let others = [
        Token::new(b"key", &id, "3-2"),
        Token::new(b"key", &LoopId::new("r-8-abcdef"), "3-1"),
        Token::new(b"other", &id, "3-1"),
    ];
    for other in others.iter().map(Token::as_str).chain(["", "x", &token.as_str()[1..]]) {
        assert!(!token.is(other), "{other}");
    }
    assert_eq!(format!("{token:?}"), "Token", "it is not printed by mistake");
}

#[tokio::test]
async fn socket_at_any_depth_is_private_and_accepts_connections() {
    let folder = tempfile::tempdir().expect("a folder");
    for depth in [1, 5] {
        let place = folder.path().join(["a-rather-long-name-of-a-folder"; 5][..depth].join("/"));
        std::fs::create_dir_all(&place).expect("a folder");
        for again in [false, true] {
            let (listener, path) = listen(&place).expect("it listens");
            assert_eq!(path, place.join("memory.sock"), "again: {again}");
            let mode = std::fs::metadata(&path).expect("the socket").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let (taken, made) = tokio::join!(listener.accept(), connect(&path));
            assert!(taken.is_ok() && made.is_ok(), "{path:?}");
        }
    }
}

#[test]
fn agent_file_names_bridge_without_token_in_arguments() {
    let token = Token::new(b"key", &LoopId::new("r-7-abcdef"), "3-1");
    let config = config(Path::new("/run/x/memory.sock"), &token, Path::new("/usr/bin/ralph-bot"));
    let server = &config["mcpServers"]["session_memory"];
    assert_eq!(server["command"], "/usr/bin/ralph-bot");
    assert_eq!(server["args"], serde_json::json!(["mcp", "--socket", "/run/x/memory.sock"]));
    assert_eq!(server["env"]["RALPH_MCP_TOKEN"], token.as_str());
}
