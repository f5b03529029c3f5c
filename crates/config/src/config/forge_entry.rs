//! Adds a forge's entry to the operator's configuration file, or creates the file.

use std::path::Path;

use ralph_types::failure::Failure;

use super::problem::{ConfigProblems, ProblemCollector};
use super::schema_check::SchemaView;
use super::yaml::YamlNode;
use super::{Env, env, read_limited, renamed, schema};
use crate::agent::presets;
use crate::config::ForgeKind;

/// Forge to add to the operator's configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeEntry {
    /// Short name.
    pub name: String,
    /// Software of the forge.
    pub kind: ForgeKind,
    /// Address of the server; `None` for github.com.
    pub url: Option<String>,
    /// Address of GitHub's REST API; `None` for the default one.
    pub api_url: Option<String>,
    /// Credential.
    pub auth: EntryAuth,
    /// File with the webhook secret; `None` for polling.
    pub webhook_secret_file: Option<String>,
    /// Address at which the forge reaches the service.
    pub public_url: Option<String>,
    /// Backend to use in a new file; a known preset.
    pub backend: String,
    /// Login file of the backend in a new file; `None` if the backend has none.
    pub login_file: Option<String>,
}

/// Credential of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryAuth {
    /// Environment variable with an access token.
    TokenEnv(String),
    /// File with an access token.
    TokenFile(String),
    /// GitHub App with its key file.
    App {
        /// Id of the App.
        id: u64,
        /// Path of the file with the private key.
        key: String,
    },
}

/// Formats a YAML scalar as a JSON string.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl ForgeEntry {
    /// Returns the lines of the entry, with `indent` before the dash.
    fn item(&self, indent: &str) -> String {
        let kind = match self.kind {
            ForgeKind::GitHub => "github",
            ForgeKind::Gitea => "gitea",
        };
        let mut lines = vec![format!("name: {}", quoted(&self.name)), format!("kind: {kind}")];
        lines.extend(self.url.as_ref().map(|url| format!("url: {}", quoted(url))));
        lines.extend(self.api_url.as_ref().map(|url| format!("api_url: {}", quoted(url))));
        lines.extend(match &self.auth {
            EntryAuth::TokenEnv(name) => {
                vec![format!("token_env: {}              # name of the variable, not the token", quoted(name))]
            }
            EntryAuth::TokenFile(file) => vec![format!("token_file: {}", quoted(file))],
            EntryAuth::App { id, key } => vec![format!("app_id: {id}"), format!("private_key_file: {}", quoted(key))],
        });
        lines.push(match &self.webhook_secret_file {
            Some(file) => format!("webhook_secret_file: {}", quoted(file)),
            None => "updates: poll                # no webhook, no public address; see docs/reference/configuration.md"
                .to_owned(),
        });
        let dash = |(index, line): (usize, &String)| match index {
            0 => format!("{indent}- {line}\n"),
            _ => format!("{indent}  {line}\n"),
        };
        lines.iter().enumerate().map(dash).collect()
    }

    fn backends(&self) -> String {
        let variables =
            presets::program(&self.backend).map_or(String::new(), |program| program.login_variables.join(", "));
        let login = self.login_file.as_ref().map(|file| format!(", login_file: {}", quoted(file))).unwrap_or_default();
        format!(
            "# Agents see no login of this account, only the variables and the login file that are listed here.\n\
             backends:\n  {}: {{ enabled: true, env: [{variables}]{login} }}\n",
            self.backend
        )
    }

    /// Returns the text of a new file.
    pub fn file(&self) -> String {
        let public_url = match &self.public_url {
            Some(url) => format!("  public_url: {}\n", quoted(url)),
            None => "  # public_url: \"https://ralph.example.org\"   # address for webhooks\n".to_owned(),
        };
        format!(
            "# Configuration of ralph-bot. All keys: docs/reference/configuration.md, or `ralph-bot schema operator`.\n\
             # Verify changes with `ralph-bot check`.\n\n\
             server:\n  listen: \"127.0.0.1:8080\"\n{public_url}\n\
             data_dir: data                      # database, mirrors, work trees, logs\n\n\
             forges:\n{item}\n\
             # Repositories to watch; default: all that the credential can access.\n\
             # repositories: [\"{name}:owner/*\"]\n\n\
             limits:\n  loops: 4\n  iterations: 10\n  timeout: 2h\n  cost_usd: 10\n  cost_usd_per_day: 50\n\n\
             # Hosts that agents may reach besides their model, such as registry.npmjs.org; `all` for every host.\n\
             sandbox:\n  network: []\n\n{backends}",
            item = self.item("  "),
            name = self.name,
            backends = self.backends(),
        )
    }

    /// Adds the entry after the last forge in an existing file and returns the text. Appends missing sections that the entry
    /// needs; does not change anything else.
    ///
    /// # Errors
    /// The file's format prevents adding lines, or the file already has a forge with this name or another public address.
    /// The message lists the lines to add manually.
    pub fn added_to(&self, text: &str) -> Result<String, Failure> {
        let by_hand =
            |why: &str| Failure::new(why).with_hint(format!("add it by hand:\n\nforges:\n{}", self.item("  ")));
        let before = read(text).ok_or_else(|| by_hand("the file is not valid YAML"))?;
        if names(&before).iter().any(|name| name == &self.name) {
            let problem = Failure::new(format!("there is a forge named `{}` already", self.name));
            return Err(problem.with_hint("choose another name"));
        }
        let public = before.pointer("/server/public_url").and_then(serde_json::Value::as_str);
        let mut more = String::new();
        match (&self.public_url, public) {
            (Some(wanted), Some(known)) if wanted.trim_end_matches('/') != known.trim_end_matches('/') => {
                let problem = Failure::new(format!("`server.public_url` is {known}, not {wanted}"));
                return Err(problem.with_hint("change `server.public_url` in the file, or use its value"));
            }
            (Some(wanted), None) if before.get("server").is_none() => {
                more.push_str(&format!("\nserver:\n  public_url: {}\n", quoted(wanted)));
            }
            (Some(wanted), None) => {
                return Err(Failure::new(format!("set `server.public_url: {}` in the file first", quoted(wanted))));
            }
            _ => {}
        }
        if before.get("backends").is_none() {
            more.push_str(&format!("\n{}", self.backends()));
        }
        let lines =
            with_item(text, self).ok_or_else(|| by_hand("its list `forges` does not have one entry per line"))?;
        let extended = format!("{lines}{more}");
        let after = read(&extended).ok_or_else(|| by_hand("the extended file would not be valid"))?;
        let expected: Vec<String> = names(&before).into_iter().chain([self.name.clone()]).collect();
        let unchanged = before.as_object().into_iter().flatten();
        let same = unchanged.filter(|(key, _)| *key != "forges").all(|(key, value)| after.get(key) == Some(value));
        if names(&after) == expected && same { Ok(extended) } else { Err(by_hand("the entry does not fit in")) }
    }
}

/// Returns the file's text with a default backend if it has none, so that the other settings can be read.
pub fn with_backend(text: &str) -> String {
    match read(text) {
        Some(file) if file.get("backends").is_none() => {
            format!("{text}\nbackends: {{ claude: {{ enabled: true }} }}\n")
        }
        _ => text.to_owned(),
    }
}

/// Returns the text with the entry after the last item of `forges`; `None` if the list is not in YAML block style.
fn with_item(text: &str, entry: &ForgeEntry) -> Option<String> {
    let mut lines: Vec<&str> = text.lines().collect();
    let joined = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let is_key = |line: &str| line.starts_with(|c: char| c.is_alphanumeric() || c == '"' || c == '\'');
    let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    let Some(at) = lines.iter().position(|line| line.starts_with("forges:")) else {
        return Some(format!("{}\nforges:\n{}", joined(&lines), entry.item("  ")));
    };
    let rest = lines[at]["forges:".len()..].split('#').next().unwrap_or_default().trim();
    if rest == "[]" {
        lines[at] = "forges:";
    } else if !rest.is_empty() {
        return None;
    }
    let end = lines[at + 1..].iter().position(|line| is_key(line)).map_or(lines.len(), |next| at + 1 + next);
    let items = &lines[at + 1..end];
    let first = items.iter().find(|line| !is_blank(line));
    let indent = match first {
        Some(line) if line.trim_start().starts_with("- ") => &line[..line.len() - line.trim_start().len()],
        Some(_) => return None,
        None => "  ",
    };
    let last = items.iter().rposition(|line| !is_blank(line)).map_or(at, |last| at + 1 + last);
    let (head, tail) = lines.split_at(last + 1);
    Some(format!("{}{}{}", joined(head), entry.item(indent), joined(tail)))
}

fn read(text: &str) -> Option<serde_json::Value> {
    let mut report = ProblemCollector::new("");
    let value = YamlNode::parse(text, &mut report)?.to_json();
    Some(if value.is_null() { serde_json::json!({}) } else { value }).filter(serde_json::Value::is_object)
}

fn names(file: &serde_json::Value) -> Vec<String> {
    let forges = file.get("forges").and_then(serde_json::Value::as_array).into_iter().flatten();
    forges.map(|forge| forge.get("name").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()).collect()
}

/// Whether the operator's file, including overriding variables, has a forge. A missing file has none.
///
/// # Errors
/// The file cannot be read.
pub fn has_forge(path: &Path, env: &Env) -> Result<bool, ConfigProblems> {
    let text = if path.exists() {
        read_limited(path).map_err(|problem| ConfigProblems::of_file(path, &problem))?
    } else {
        String::new()
    };
    let mut report = ProblemCollector::new(path.display().to_string());
    let Some(mut root) = YamlNode::parse(&text, &mut report) else { return Err(report.into_problems()) };
    let types = schema::operator_types();
    renamed::apply(&mut root, &mut report);
    env::apply(env, &mut root, SchemaView::new(types), &mut report);
    // Loading the file reports a value that is not a list.
    Ok(match root.to_json().get("forges") {
        None | Some(serde_json::Value::Null) => false,
        Some(serde_json::Value::Array(forges)) => !forges.is_empty(),
        Some(_) => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> ForgeEntry {
        ForgeEntry {
            name: "gh".into(),
            kind: ForgeKind::GitHub,
            url: None,
            api_url: None,
            auth: EntryAuth::App { id: 7, key: "gh-app-key.pem".into() },
            webhook_secret_file: Some("gh-webhook-secret".into()),
            public_url: None,
            login_file: None,
            backend: "claude".into(),
        }
    }

    const ITEM: &str = "  - name: \"gh\"\n    kind: github\n    app_id: 7\n    private_key_file: \"gh-app-key.pem\"\n    webhook_secret_file: \"gh-webhook-secret\"\n";

    #[test]
    fn new_entry_follows_the_last_one_and_leaves_the_rest_unchanged() {
        let existing = "# ours\nforges:   # all\n  - name: work   # the first\n    kind: gitea\n\n# below\nlimits: { loops: 2 }\nbackends: { mine: { type: script, command: [sh] } }\n";
        let extended = entry().added_to(existing).unwrap();
        assert_eq!(
            extended,
            format!(
                "# ours\nforges:   # all\n  - name: work   # the first\n    kind: gitea\n{ITEM}\n# below\nlimits: {{ loops: 2 }}\nbackends: {{ mine: {{ type: script, command: [sh] }} }}\n"
            )
        );
        let flush = "forges:\n- name: work\n  kind: gitea\nbackends: { mine: { enabled: true } }\n";
        let extended = entry().added_to(flush).unwrap();
        assert!(extended.contains("  kind: gitea\n- name: \"gh\"\n  kind: github\n"), "{extended}");
    }

    #[test]
    fn file_without_a_forge_gets_the_section() {
        for existing in
            ["", "# nothing yet\n", "forges: []\n", "forges:\nlimits: { loops: 2 }\n", "limits: { loops: 2 }\n"]
        {
            let extended = entry().added_to(existing).unwrap();
            assert!(extended.contains(&format!("forges:\n{ITEM}")), "{existing:?}: {extended}");
            assert!(
                extended.contains(
                    "backends:\n  claude: { enabled: true, env: [ANTHROPIC_API_KEY, CLAUDE_CODE_OAUTH_TOKEN] }\n"
                ),
                "{extended}"
            );
        }
        let public = ForgeEntry { public_url: Some("https://r.example.org".into()), ..entry() };
        assert!(public.added_to("").unwrap().contains("server:\n  public_url: \"https://r.example.org\"\n"));
    }

    #[test]
    fn file_that_cannot_be_extended_stays_unchanged() {
        let public = ForgeEntry { public_url: Some("https://r.example.org".into()), ..entry() };
        for (existing, of, says) in [
            ("forges: [{ name: work, kind: gitea }]\n", entry(), "add it by hand:\n\nforges:\n  - name: \"gh\""),
            ("forges:\n  - name: gh\n    kind: github\n", entry(), "there is a forge named `gh` already"),
            ("a: [\n", entry(), "not valid YAML"),
            ("- a\n", entry(), "not valid YAML"),
            (
                "server: { public_url: 'https://other.example.org' }\n",
                public.clone(),
                "is https://other.example.org, not",
            ),
            (
                "server: { listen: '127.0.0.1:1' }\n",
                public,
                "set `server.public_url: \"https://r.example.org\"` in the file",
            ),
        ] {
            let why = of.added_to(existing).unwrap_err().to_string();
            assert!(why.contains(says), "{existing}: {why}");
        }
    }

    #[test]
    fn default_backend_is_added_to_a_file_without_one() {
        assert!(
            with_backend("server: { listen: '127.0.0.1:1' }\n").ends_with("backends: { claude: { enabled: true } }\n")
        );
        for whole in ["backends: { mine: { type: script, command: [sh] } }\n", "a: [\n"] {
            assert_eq!(with_backend(whole), whole);
        }
    }

    #[test]
    fn forge_of_file_or_variable_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ralph-control.yaml");
        let none = Env::default();
        assert_eq!(has_forge(&file, &none).ok(), Some(false));
        for (text, expected) in [
            ("", false),
            ("forges: []\n", false),
            ("forges:\n", false),
            ("forges: [{ name: x }]\n", true),
            ("forges: 7\n", true),
        ] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(has_forge(&file, &none).ok(), Some(expected), "{text}");
        }
        std::fs::write(&file, "limits: { loops: 2 }\n").unwrap();
        let by_variable = Env::of([("RALPH_FORGES", "[{ name: x, kind: gitea }]")]);
        assert_eq!(has_forge(&file, &by_variable).ok(), Some(true));
        std::fs::write(&file, "a: [").unwrap();
        assert!(has_forge(&file, &none).is_err());
    }
}
