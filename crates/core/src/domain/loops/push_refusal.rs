//! Reasons why a forge refuses a push, recognized from the output of git.

use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};

/// Maximum number of places, rules or files that are stored per refusal.
const MAX_NAMED: usize = 10;

/// Location of a secret that the forge found in the commits of a push.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretLocation {
    /// Kind of the secret, as named by the forge; empty if unknown.
    pub kind: String,
    /// Commit, as abbreviated by the forge.
    pub commit: String,
    /// Path and line as `path:line`. Only the path if the forge reports no line.
    pub path: String,
}

/// Reason why a forge refused a push.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum PushRefusal {
    /// A ruleset of the repository (GitHub's GH013), with the violated rules.
    Ruleset { rules: Vec<String> },
    /// Protection of the branch (GitHub's GH006).
    ProtectedBranch,
    /// Push protection, because the commits contain secrets.
    Secrets { places: Vec<SecretLocation> },
    /// The credential may not change workflow files.
    WorkflowFiles { path: String },
    /// Files are too large (GitHub's GH001).
    TooLarge { files: Vec<String> },
    /// The repository or its owner has no space left.
    Quota,
    /// The forge had an error. The same push may succeed later.
    ServerError,
    /// Another reason.
    #[default]
    Other,
}

impl PushRefusal {
    /// Recognizes the reason in the output of git, which includes the forge's messages.
    pub fn of(text: &str) -> Self {
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        if has(&["Push cannot contain secrets", "GITHUB PUSH PROTECTION"]) {
            return Self::Secrets { places: places(text) };
        }
        if let Some(found) = WORKFLOW.captures(text) {
            return Self::WorkflowFiles { path: found[1].to_owned() };
        }
        if has(&["GH001", "exceeds GitHub's file size limit", "exceeds the maximum file size"]) {
            let files = LARGE_FILE.captures_iter(text).map(|found| found[1].to_owned());
            return Self::TooLarge { files: files.take(MAX_NAMED).collect() };
        }
        if has(&[
            "pack exceeds maximum allowed size",
            "quota exceeded",
            "Quota exceeded",
            "exceeds the quota",
            "over its data quota",
        ]) {
            return Self::Quota;
        }
        if has(&["GH013", "repository rule violations"]) {
            let rules = text.lines().filter_map(|line| line.trim().strip_prefix("- "));
            let rules = rules.map(|rule| rule.trim().trim_end_matches('.').to_owned()).filter(|rule| !rule.is_empty());
            return Self::Ruleset { rules: rules.take(MAX_NAMED).collect() };
        }
        if has(&["GH006", "protected branch"]) {
            return Self::ProtectedBranch;
        }
        if has(&["Internal Server Error", "internal server error"]) {
            return Self::ServerError;
        }
        Self::Other
    }

    /// Whether the same push may succeed without intervention.
    pub fn is_transient(&self) -> bool {
        *self == Self::ServerError
    }

    /// Returns the reason as a sentence without a full stop; `None` if only the forge's own message explains the reason.
    pub fn sentence(&self, branch: &str) -> Option<String> {
        let listed =
            |items: &[String]| if items.is_empty() { String::new() } else { format!(" ({})", items.join("; ")) };
        Some(match self {
            Self::Ruleset { rules } => {
                format!("a ruleset of the repository refuses pushes to `{branch}`{}", listed(rules))
            }
            Self::ProtectedBranch => format!("`{branch}` is a protected branch that the bot may not push to"),
            Self::Secrets { places } => format!("the forge's push protection found {}", secrets(places)),
            Self::WorkflowFiles { path } => format!("the bot may not change the workflow file `{path}`"),
            Self::TooLarge { files } => format!("the forge does not accept files of this size{}", listed(files)),
            Self::Quota => "the repository has no space left for the push".to_owned(),
            Self::ServerError => "the forge failed during the push".to_owned(),
            Self::Other => return None,
        })
    }

    /// Returns advice for people, as an instruction without a full stop.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Ruleset { .. } => {
                "let the bot bypass the ruleset, or exclude its branches from it (Settings, Rules), then `/ralph resume`"
            }
            Self::ProtectedBranch => "let the bot push to its branches, then `/ralph resume`",
            Self::Secrets { .. } => {
                "`/ralph retry` discards the commits of the last iteration; if it is no secret, allow it on the forge, then \
                 `/ralph resume`"
            }
            Self::WorkflowFiles { .. } => {
                "give the App the permission Workflows: write (a token the scope `workflow`), then `/ralph resume`; \
                 `/ralph retry` discards the commits of the last iteration"
            }
            Self::TooLarge { .. } => {
                "`/ralph retry` discards the commits of the last iteration and gives the agent the reason"
            }
            Self::Quota => "make space on the forge, then `/ralph resume`",
            Self::ServerError | Self::Other => "let the bot push to its branches, then `/ralph resume`",
        }
    }

    /// Returns the information that the next agent run needs to avoid the refusal; `None` if the agent cannot avoid it.
    pub fn for_agent(&self) -> Option<String> {
        match self {
            Self::Secrets { places } => Some(format!(
                "The forge refused the last change, because it contains a secret: {}. The change was taken back. Do the task again \
                 without such a value in any file; read it from the environment, or use an obviously invalid example.",
                secrets(places)
            )),
            Self::TooLarge { files } => {
                let files = if files.is_empty() { String::new() } else { format!(": {}", files.join(", ")) };
                Some(format!(
                    "The forge refused the last change, because files are too large{files}. Do the task without them."
                ))
            }
            _ => None,
        }
    }
}

fn secrets(places: &[SecretLocation]) -> String {
    let one = |place: &SecretLocation| {
        let kind = if place.kind.is_empty() { "a secret".to_owned() } else { format!("a secret ({})", place.kind) };
        format!("{kind} in `{}` of commit {}", place.path, place.commit)
    };
    if places.is_empty() {
        "a secret in the commits".to_owned()
    } else {
        places.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// Returns the locations of secrets that push protection lists. GitHub prints the kind between dashes, followed by commits and
/// paths.
fn places(text: &str) -> Vec<SecretLocation> {
    let mut found = Vec::new();
    let (mut kind, mut commit) = (String::new(), String::new());
    for line in text.lines().map(str::trim) {
        let bare = line.trim_start_matches("- ");
        if let Some(id) = bare.strip_prefix("commit:") {
            commit = id.trim().chars().filter(char::is_ascii_hexdigit).take(40).collect();
        } else if let Some(path) = bare.strip_prefix("path:") {
            let path: String = path.trim().chars().filter(|c| !c.is_control() && *c != '`').take(300).collect();
            found.push(SecretLocation { kind: kind.clone(), commit: commit.clone(), path });
        } else if line.starts_with('—') {
            let words = line.trim_matches(['—', ' ']);
            if !words.is_empty() {
                kind = words.chars().take(100).collect();
            }
        }
    }
    found.truncate(MAX_NAMED);
    found
}

/// Message about a refused change to a workflow file, with the path.
static WORKFLOW: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"refusing to allow .{0,60} to create or update workflow `([^`\n]{1,300})`").expect("pattern")
});
/// Message about a file that is too large, with the path.
static LARGE_FILE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?:File|file) (\S{1,300}) is [0-9.]+ [KMG]B").expect("pattern"));

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines as git prints them, without `remote:`.
    const RULESET: &str = "push declined due to repository rule violations
error: GH013: Repository rule violations found for refs/heads/ralph/1-x.
Review all repository rules at https://github.com/acme/app/rules?ref=refs%2Fheads%2Fralph%2F1-x

- Commits must have verified signatures.
  Found 1 violation:

- Changes must be made through a pull request.";

    const SECRETS: &str = "push declined due to repository rule violations
error: GH013: Repository rule violations found for refs/heads/ralph/1-x.

- GITHUB PUSH PROTECTION
  —————————————————————————————————————————
    Resolve the following violations before pushing again

    - Push cannot contain secrets

     (?) Learn how to resolve a blocked push
     https://docs.github.com/code-security/secret-scanning

      —— Amazon AWS Access Key ID ——————————————————————————
       locations:
         - commit: 8728dbe67
           path: src/key store.py:4
         - commit: 8728dbe67
           path: README.md:12

       (?) To push, remove secret from commit(s) or follow this URL to allow the secret.
       https://github.com/acme/app/security/secret-scanning/unblock-secret/2abc

      —— GitHub Personal Access Token ——————————————————————
       locations:
         - commit: aa11bb22c
           path: .env:1";

    #[test]
    fn push_refusals_are_classified_by_git_output() {
        let workflow = "refusing to allow a GitHub App to create or update workflow `.github/workflows/ci.yml` without `workflows` permission";
        let large = "pre-receive hook declined\nerror: Trace: 1f\nerror: See https://gh.io/lfs for more information.\nerror: File data/big.bin is 123.00 MB; this exceeds GitHub's file size limit of 100.00 MB\nerror: GH001: Large files detected. You may want to try Git Large File Storage - https://git-lfs.github.com.";
        let of = PushRefusal::of;
        let rules = ["Commits must have verified signatures", "Changes must be made through a pull request"];
        assert_eq!(of(RULESET), PushRefusal::Ruleset { rules: rules.map(str::to_owned).to_vec() });
        assert_eq!(of(workflow), PushRefusal::WorkflowFiles { path: ".github/workflows/ci.yml".into() });
        assert_eq!(of(large), PushRefusal::TooLarge { files: vec!["data/big.bin".into()] });
        for text in [
            "protected branch hook declined\nerror: GH006: Protected branch update failed for refs/heads/main.",
            "pre-receive hook declined\nGitea: Not allowed to push to protected branch main",
        ] {
            assert_eq!(of(text), PushRefusal::ProtectedBranch, "{text}");
        }
        assert_eq!(of("fatal: pack exceeds maximum allowed size (4.88 GiB)"), PushRefusal::Quota);
        assert_eq!(of("Internal Server Error"), PushRefusal::ServerError);
        assert_eq!(of("pre-receive hook declined\nour own rule"), PushRefusal::Other);
        let refused = [of(RULESET), of(workflow), of(large), PushRefusal::ProtectedBranch, PushRefusal::Quota];
        for refusal in refused {
            assert!(!refusal.is_transient() && refusal.advice().contains("/ralph"), "{refusal:?}");
            let sentence = refusal.sentence("ralph/1-x").expect("a sentence");
            assert!(!sentence.ends_with('.') && !sentence.contains('\n'), "{sentence}");
        }
        assert!(PushRefusal::ServerError.is_transient() && !PushRefusal::Other.is_transient());
        assert_eq!(PushRefusal::Other.sentence("x"), None);
    }

    #[test]
    fn secret_locations_are_parsed_with_kind_commit_and_line() {
        let refusal = PushRefusal::of(SECRETS);
        let PushRefusal::Secrets { places } = &refusal else { panic!("{refusal:?}") };
        let read: Vec<_> = places.iter().map(|p| (p.kind.as_str(), p.commit.as_str(), p.path.as_str())).collect();
        assert_eq!(
            read,
            [
                ("Amazon AWS Access Key ID", "8728dbe67", "src/key store.py:4"),
                ("Amazon AWS Access Key ID", "8728dbe67", "README.md:12"),
                ("GitHub Personal Access Token", "aa11bb22c", ".env:1"),
            ]
        );
        let sentence = refusal.sentence("ralph/1-x").expect("a sentence");
        assert!(
            sentence.contains("a secret (Amazon AWS Access Key ID) in `README.md:12` of commit 8728dbe67"),
            "{sentence}"
        );
        let message = refusal.for_agent().expect("something to tell");
        assert!(message.contains("`.env:1`") && message.contains("from the environment"), "{message}");
        let unnamed = PushRefusal::of("GH013\n- Push cannot contain secrets");
        assert_eq!(unnamed, PushRefusal::Secrets { places: Vec::new() });
        assert!(unnamed.sentence("x").is_some_and(|text| text.ends_with("a secret in the commits")));
    }

    #[test]
    fn refusals_are_stored_and_read_back() {
        let all = [PushRefusal::of(SECRETS), PushRefusal::of(RULESET), PushRefusal::Quota, PushRefusal::Other];
        for refusal in all {
            let stored = serde_json::to_string(&refusal).unwrap();
            assert_eq!(serde_json::from_str::<PushRefusal>(&stored).unwrap(), refusal, "{stored}");
        }
    }
}
