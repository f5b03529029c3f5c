//! Secrets and instructions to the forge in what leaves the machine.
//!
//! Each test looks for a canary at the far end: in the repository and the texts of the forge, in the bytes that a channel received, in the
//! answer of the session memory. `leaks` recognizes the canary independently of the service.
//!
//! Each class was seen to fail with its defence switched off by hand:
//! - objects: `ObjectScan::finish` that always clears;
//! - range of a push (deleted again, foreign author or message): `Workspaces::is_remembered` that is always true;
//! - texts, titles, commits' messages, channels, session memory: `OutboundFilter::masked` that returns its text;
//! - effects in commits and titles: `plain_line` that returns its text;
//! - bounds over the loop: `ChangeSize::exceeded` that finds nothing.
//!
//! Commits, tags and notes of agents are not pushed by construction: nothing was switched off for them.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER};
use fake_forge::Dialect;
use ralph_bot::clock::Clock;
use ralph_bot::domain::loops::LoopState;
use ralph_bot::domain::model::ids::{ForgeName, LoopId, RepoId, RepoRef, Sha};
use ralph_bot::domain::trust::outbound::{Masker, OutboundFilter, Trailer};
use ralph_bot::workspace::{
    ClearRequest, CommitInfo, CommitRequest, GitUrl, PrepareTree, PushOutcome, PushRequest, WorkspaceSettings,
    Workspaces,
};
use regex::Regex;
use serde_json::json;
use tokio::task::JoinSet;

use crate::harness::session_memory::Served;
use crate::harness::{Setup, World, on_both_forges, on_one_forge, story};

on_both_forges!(
    /// See docs/research/threats.md#i7, docs/research/threats.md#s8.
    texts_with_secrets_reach_neither_forge_nor_channel,
    /// See docs/research/threats.md#i6, docs/research/threats.md#i8, docs/research/threats.md#i9, docs/research/threats.md#g16.
    texts_of_agents_have_no_effects_on_the_forge,
);
on_one_forge!(
    /// See docs/research/threats.md#g14.
    limits_count_over_the_loop,
    /// See docs/research/threats.md#g16, docs/research/threats.md#g11.
    commits_of_agents_are_not_pushed,
);

/// Secret of the service.
const CANARY: &str = "Kq7vZ2mX9pLw4RtY8bNc3Hd6Fs5Jg1Tw0E";

/// The canary as a program or a person writes it without hiding it, with the name of each way.
fn encodings() -> Vec<(&'static str, String)> {
    let bytes = CANARY.as_bytes();
    let with = |before: &str| format!("{before}{CANARY}tail");
    let hex = HEXLOWER.encode(bytes);
    let each = |form: &dyn Fn(u8) -> String| bytes.iter().map(|byte| form(*byte)).collect::<String>();
    let wide: Vec<u8> = bytes.iter().flat_map(|byte| [*byte, 0]).collect();
    let wrapped: Vec<String> =
        BASE64.encode(bytes).as_bytes().chunks(12).map(|c| String::from_utf8_lossy(c).into_owned()).collect();
    let mixed: Vec<String> = hex
        .as_bytes()
        .chunks(2)
        .enumerate()
        .map(|(n, pair)| {
            let pair = String::from_utf8_lossy(pair).into_owned();
            if n % 2 == 0 { pair.to_uppercase() } else { pair }
        })
        .collect();
    vec![
        ("plain", CANARY.to_owned()),
        ("base64", BASE64.encode(bytes)),
        ("base64 at the second offset", BASE64.encode(with("u").as_bytes())),
        ("base64 for addresses at the third offset", BASE64URL_NOPAD.encode(with("u:").as_bytes())),
        ("wrapped base64", wrapped.join("\n")),
        ("hexadecimal", hex),
        ("hexadecimal with colons in both cases", mixed.join(":")),
        ("percent-encoded", each(&|byte| format!("%{byte:02X}"))),
        ("UTF-16 in base64", BASE64.encode(&wide)),
        ("escaped as in JSON", each(&|byte| format!("\\u{byte:04x}"))),
        ("split strings", format!("\"{}\" + '{}' + \"{}\"", &CANARY[..7], &CANARY[7..15], &CANARY[15..])),
        ("truncated", CANARY[..CANARY.len() - 7].to_owned()),
    ]
}

/// Whether bytes contain most of the canary in any of these forms.
fn leaks(bytes: &[u8]) -> bool {
    const PIECE: usize = 16;
    let letters = |bytes: &[u8]| -> String {
        let kept = bytes.iter().filter(|byte| byte.is_ascii_alphanumeric());
        kept.map(|byte| char::from(byte.to_ascii_lowercase())).collect()
    };
    let text = letters(bytes);
    // What escapes leave: hexadecimal digits.
    let unmarked = text.replace("u00", "");
    CANARY.as_bytes().windows(PIECE).any(|piece| {
        let wide: Vec<u8> = piece.iter().flat_map(|byte| [*byte, 0]).collect();
        let mut forms = vec![letters(piece), HEXLOWER.encode(piece)];
        for content in [piece, &wide] {
            for offset in 0..3 {
                let encoded = BASE64.encode(&[&vec![0; offset], content].concat());
                let inner = &encoded.as_bytes()[(offset * 8).div_ceil(6)..(offset + content.len()) * 8 / 6];
                forms.push(letters(inner));
            }
        }
        forms.iter().any(|form| text.contains(form) || unmarked.contains(form))
    })
}

#[test]
fn canary_is_recognized_in_every_form() {
    for (name, text) in encodings() {
        assert!(leaks(text.as_bytes()), "{name}: {text}");
    }
    assert!(!leaks(b"some ordinary text with base64 c29tZSBvcmRpbmFyeSB0ZXh0"));
}

fn outbound() -> OutboundFilter {
    OutboundFilter::new(Masker::named([("the canary", CANARY)]))
}

/// A repository on disk and a loop's tree of it.
struct AttackTree {
    folder: tempfile::TempDir,
    workspaces: Workspaces,
    repo: RepoRef,
    access: GitUrl,
    id: LoopId,
    base: Sha,
}

impl AttackTree {
    const BRANCH: &str = "ralph/1-canary";

    async fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("ralph-attack-").tempdir().expect("a folder");
        let origin = folder.path().join("forge.git");
        sh(
            folder.path(),
            "git init -q --bare -b main forge.git; git init -q -b main seed; cd seed; echo one >file
            git add -A; git -c user.name=m -c user.email=m@x commit -qm first; git push -q ../forge.git main",
        );
        let repo = RepoRef { forge: ForgeName::new("forge"), id: RepoId(1), owner: "mira".into(), name: "app".into() };
        let access =
            GitUrl { url: format!("file://{}", origin.display()), credential: None, settling: Default::default() };
        let (workspaces, id) = (Self::service(folder.path()), LoopId::new("r-1-aaaaaa"));
        let request = PrepareTree {
            fork: None,
            loop_id: &id,
            repo: &repo,
            access: &access,
            base_branch: "main",
            branch: Self::BRANCH,
            resume_at: None,
            partial: false,
        };
        let base = workspaces.prepare(request).await.expect("a tree").head;
        Self { folder, workspaces, repo, access, id, base }
    }

    fn service(folder: &std::path::Path) -> Workspaces {
        let settings = WorkspaceSettings {
            root: folder.join("data"),
            pool: 0,
            committer_name: "bot".into(),
            committer_email: "bot@x".into(),
            authors: Default::default(),
            signing: None,
            protected: Vec::new(),
            outbound: outbound(),
            submodule_hosts: Vec::new(),
        };
        Workspaces::open(settings, Clock::System).expect("a service")
    }

    /// Forgets the scanned objects, as after a crash.
    fn restart(&mut self) {
        self.workspaces = Self::service(self.folder.path());
    }

    fn path(&self, name: impl AsRef<std::path::Path>) -> std::path::PathBuf {
        self.workspaces.tree_dir(&self.id, &self.repo).join(name)
    }

    fn write(&self, name: impl AsRef<std::path::Path>, content: &[u8]) {
        let mut file = std::fs::File::create(self.path(name)).expect("a file");
        file.write_all(content).expect("written");
    }

    async fn commit(&self, parent: &Sha, subject: &str) -> CommitInfo {
        let message = outbound().message(subject, &[], &[Trailer::Loop("r-1".into())]);
        let request = CommitRequest {
            loop_id: &self.id,
            repo: &self.repo,
            parent,
            merge_parent: None,
            message: &message,
            base: &self.base,
            protected_base: &self.base,
            extra_protected: &[],
            named: None,
            set_aside: None,
        };
        self.workspaces.commit(request).await.expect("a commit")
    }

    /// Attempts a push; returns whether the forge has the commit then.
    async fn push(&self, commit: &Sha) -> bool {
        let request = ClearRequest {
            loop_id: &self.id,
            repo: &self.repo,
            branch: Self::BRANCH,
            commit,
            base: Some(&self.base),
            pushed: None,
        };
        let Ok(cleared) = self.workspaces.clear(request).await.expect("a scan") else { return false };
        let request = PushRequest {
            loop_id: &self.id,
            repo: &self.repo,
            access: &self.access,
            branch: Self::BRANCH,
            commit: &cleared,
            expected: None,
        };
        self.workspaces.push(request).await.expect("a push") == PushOutcome::Pushed
    }

    async fn reset(&self) {
        self.workspaces.reset(&self.id, &self.repo, &self.base).await.expect("a reset");
    }

    /// Creates a commit in the service's repository that no agent can create, with `git` as its author.
    fn foreign_commit(&self, author: &str, message: &str) -> Sha {
        let mut find = std::process::Command::new("find");
        let found = find.arg(self.folder.path().join("data/mirrors")).args(["-name", "objects"]).output();
        let found = String::from_utf8_lossy(&found.expect("find runs").stdout).trim().to_owned();
        let mirror = std::path::PathBuf::from(found).parent().expect("a mirror").to_owned();
        let mut git = std::process::Command::new("git");
        git.arg("--git-dir").arg(mirror).env("GIT_AUTHOR_NAME", author).env("GIT_AUTHOR_EMAIL", "a@x");
        git.env("GIT_COMMITTER_NAME", "c").env("GIT_COMMITTER_EMAIL", "c@x");
        let tree = format!("{}^{{tree}}", self.base);
        git.args(["commit-tree", &tree, "-p", self.base.as_str(), "-m", message]);
        let output = git.output().expect("git runs");
        let id = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Sha::parse(&id).unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Everything in the forge's repository: names, messages and contents of all objects.
    fn forge(&self) -> Vec<u8> {
        everything(&self.folder.path().join("forge.git"))
    }
}

fn sh(folder: &std::path::Path, script: &str) {
    let mut sh = std::process::Command::new("sh");
    assert!(sh.args(["-ec", script]).current_dir(folder).status().expect("sh runs").success(), "{script}");
}

/// Names and contents of all objects and refs of a repository.
fn everything(repository: &std::path::Path) -> Vec<u8> {
    let mut sh = std::process::Command::new("sh");
    let script = "git cat-file --batch-all-objects --batch; git for-each-ref; git log --all --name-only --format=%n";
    sh.args(["-ec", script]).current_dir(repository).output().expect("git runs").stdout
}

/// See docs/research/threats.md#i7.
#[tokio::test]
async fn contents_and_names_with_secrets_are_not_pushed() {
    let mut tree = AttackTree::new().await;
    for (name, text) in encodings() {
        let binary = [b"\x7fELF\0\x01\0\0", text.as_bytes(), b"\0\0\xff"].concat();
        tree.write("new.txt", format!("line\n{text}\n").as_bytes());
        let whole = tree.commit(&tree.base, "a file").await;
        assert!(whole.leak.is_some(), "{name} in a file");
        assert!(!tree.push(whole.commit.as_ref().expect("a commit")).await, "{name} in a file");
        // A later commit takes it away again; the first one would still be pushed.
        std::fs::remove_file(tree.path("new.txt")).expect("removed");
        tree.write("other.txt", name.as_bytes());
        let after = tree.commit(whole.commit.as_ref().expect("a commit"), "without it").await.commit.expect("a commit");
        assert!(!tree.push(&after).await, "{name} in a file that was deleted again");
        tree.restart();
        assert!(!tree.push(&after).await, "{name} in a file that was deleted again, after a restart");
        tree.reset().await;

        tree.write("new.bin", &binary);
        let made = tree.commit(&tree.base, "a binary").await;
        assert!(made.leak.is_some() && !tree.push(&made.commit.expect("a commit")).await, "{name} in a binary");
        tree.reset().await;

        let path = format!("d/{}", text.replace('\n', " "));
        if let Some(parent) = tree.path(&path).parent() {
            std::fs::create_dir_all(parent).expect("a folder");
        }
        tree.write(&path, b"nothing");
        let made = tree.commit(&tree.base, "a name").await;
        assert!(made.leak.is_some() && !tree.push(&made.commit.expect("a commit")).await, "{name} in a name");
        tree.reset().await;

        std::os::unix::fs::symlink(&text, tree.path("link")).expect("a link");
        let made = tree.commit(&tree.base, "a link").await;
        assert!(made.leak.is_some() && !tree.push(&made.commit.expect("a commit")).await, "{name} as a link's target");
        tree.reset().await;

        for (author, message) in [("mira", text.as_str()), (&*text.replace('\n', ""), "nothing")] {
            let commit = tree.foreign_commit(author, message);
            assert!(!tree.push(&commit).await, "{name} in the message or author of a commit");
        }
    }
    assert!(!leaks(&tree.forge()), "the forge has it");
}

/// See docs/research/threats.md#i7, docs/research/threats.md#g11.
#[tokio::test]
async fn other_contents_and_names_with_secrets_are_not_pushed() {
    let tree = AttackTree::new().await;
    let wide = |low: bool| CANARY.bytes().flat_map(|b| if low { [b, 0] } else { [0, b] }).collect::<Vec<u8>>();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(format!("{}{CANARY}{}", "a".repeat(500), "b".repeat(500)).as_bytes()).expect("packed");
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let key = format!("-----BEGIN OPENSSH {} KEY-----\n{}\n", "PRIVATE", "b3BlbnNzaC1rZXktdjEA".repeat(4));
    let files = [
        ("UTF-16", wide(true)),
        ("UTF-16, big-endian", wide(false)),
        ("gzip", packed.finish().expect("packed")),
        ("beyond the first mebibyte", [&vec![b'x'; 2 << 20][..], CANARY.as_bytes()].concat()),
        ("a token", token.clone().into_bytes()),
        ("a token in base64", BASE64.encode(token.as_bytes()).into_bytes()),
        ("a token in hexadecimal", HEXLOWER.encode(token.as_bytes()).into_bytes()),
        ("a token in a binary", [b"\0\0", token.as_bytes(), b"\0"].concat()),
        ("a private key", key.into_bytes()),
        (
            "address of a submodule",
            format!("[submodule \"x\"]\n\tpath = x\n\turl = https://x/{}\n", BASE64URL_NOPAD.encode(CANARY.as_bytes()))
                .into_bytes(),
        ),
        (
            "pointer of LFS",
            format!(
                "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 34\n",
                &HEXLOWER.encode(CANARY.as_bytes())[..64]
            )
            .into_bytes(),
        ),
    ];
    for (name, content) in files {
        tree.write("new", &content);
        let made = tree.commit(&tree.base, "a file").await;
        assert!(made.leak.is_some() && !tree.push(&made.commit.expect("a commit")).await, "{name}");
        tree.reset().await;
    }
    for name in ["a\u{202e}txt.exe", "a\u{200b}b", "a\u{1b}[31mb", "a\tb"] {
        tree.write(name, b"nothing");
        let made = tree.commit(&tree.base, "a name").await;
        assert!(made.leak.is_some(), "{name:?}");
        tree.reset().await;
    }
    // Contents without secrets are pushed.
    tree.write("täxt-✔️.md", "# Title ⚠️\nhttps://example.org/a@b\n".as_bytes());
    let made = tree.commit(&tree.base, "fixes #1 of @mira [skip ci]").await;
    assert_eq!(made.leak, None);
    assert!(tree.push(&made.commit.expect("a commit")).await);
    let all = String::from_utf8_lossy(&tree.forge()).into_owned();
    assert!(all.contains("fixes no. 1 of (at)mira (skip ci)") && !leaks(all.as_bytes()), "{all}");
}

/// See docs/research/threats.md#i7.
#[tokio::test]
async fn existing_secrets_in_a_file_do_not_block_a_push() {
    let mut tree = AttackTree::new().await;
    let example = format!("AKIA{}", "IOSFODNN7EXAMPLE");
    // As a person: the forge has it.
    sh(
        tree.folder.path(),
        &format!(
            "cd seed; echo {example} >known; git add -A; git -c user.name=m -c user.email=m@x commit -qm two; git push -q ../forge.git main"
        ),
    );
    let request = PrepareTree {
        fork: None,
        loop_id: &LoopId::new("r-2-bbbbbb"),
        repo: &tree.repo,
        access: &tree.access,
        base_branch: "main",
        branch: AttackTree::BRANCH,
        resume_at: None,
        partial: false,
    };
    tree.base = tree.workspaces.prepare(request).await.expect("a tree").head;
    tree.id = LoopId::new("r-2-bbbbbb");
    tree.write("known", format!("more\n{example}\n").as_bytes());
    let made = tree.commit(&tree.base, "more").await;
    assert_eq!(made.leak, None);
    let commit = made.commit.expect("a commit");
    tree.restart();
    assert!(tree.push(&commit).await, "also without memory");
}

/// Bytes that a channel received.
type Received = Arc<Mutex<Vec<u8>>>;

async fn receiver() -> (Received, SocketAddr, JoinSet<()>) {
    async fn hear(State(all): State<Received>, body: Bytes) {
        all.lock().expect("no panic in here").extend_from_slice(&body);
    }
    let received = Received::default();
    let router = Router::new().fallback(hear).with_state(received.clone());
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut task = JoinSet::new();
    task.spawn(async move { axum::serve(listener, router).await.expect("it serves") });
    (received, address, task)
}

/// Everything that people and machines see on the forge.
fn seen_on_forge(world: &World) -> Vec<u8> {
    let mut all = everything(&world.forge.repo_path(world.repo));
    let ops = world.forge.ops();
    all.extend(ops.iter().filter(|op| op.actor.id == world.bot.id).flat_map(|op| format!("{op:?}\n").into_bytes()));
    all
}

async fn texts_with_secrets_reach_neither_forge_nor_channel(dialect: Dialect) {
    for (name, text) in encodings() {
        let (received, address, _task) = receiver().await;
        let agent = "echo $RALPH_ITERATION >answer.txt; git add -A; git commit -qm \"$(sed -n 1p FOLDER/said)\"
            [ $RALPH_ITERATION -ge 2 ] || cp FOLDER/report.json \"$RALPH_REPORT\"
            if [ $RALPH_ITERATION -ge 3 ]; then echo 42 >answer.txt; fi";
        let channel = format!(
            "{{ name: one, kind: generic, url: 'http://{address}/x', secret_env: CANARY, allow_private: true }}"
        );
        let mut setup = Setup::new(dialect)
            .config("limits: { iterations: 2, comments_per_hour: 1000, comments_per_day: 1000 }")
            .config(&format!("escalation: {{ channels: [{channel}] }}"));
        let line = text.replace('\n', " ");
        (setup.title, setup.body) = (
            format!("A title whose words fill the name of its branch {line}"),
            format!("The text {text} stands here."),
        );
        setup.env.push(("CANARY", CANARY.to_owned()));
        story(setup, async |world| {
            let folder = world.folder.path().to_owned();
            std::fs::write(folder.join("said"), format!("say {line}\n")).expect("written");
            let report = json!({ "summary": text, "approach": text, "learnings": [text], "blockers": [text], "next_steps": [text] });
            std::fs::write(folder.join("report.json"), report.to_string()).expect("written");
            world.write_agent(&agent.replace("FOLDER", &folder.display().to_string()));
            world.label().await;
            world.settle().await;
            let paused = world.the_loop().await;
            assert_eq!(paused.state, LoopState::LimitReached, "{name}: {}", paused.why);
            world.comment("/ralph resume --max-iterations 5").await;
            world.settle().await;
            let done = world.the_loop().await;
            assert_eq!(done.state, LoopState::Review, "{name}: {}", done.why);
            let mut texts = seen_on_forge(world);
            for number in world.escalations().into_iter().chain(done.pull.opened.as_ref().map(|pull| pull.number)) {
                let issue = world.issue_of(number);
                texts.extend(format!("{}\n{}\n", issue.title, issue.body).into_bytes());
            }
            texts.extend(world.bot_comments().join("\n").into_bytes());
            let shown = String::from_utf8_lossy(&texts).into_owned();
            assert!(!leaks(&texts), "{name}: {}", around(&shown));
            let told = received.lock().expect("no panic in here").clone();
            assert!(!told.is_empty() && !leaks(&told), "{name}: {}", String::from_utf8_lossy(&told));
        })
        .await;
    }
}

/// Lines with a part of the canary.
fn around(text: &str) -> String {
    text.lines().filter(|line| leaks(line.as_bytes())).take(5).collect::<Vec<_>>().join("\n")
}

/// Text that acts on forges, CI systems and bots.
const EFFECTS: &[&str] = &[
    "fixes #1",
    "Closes: mira/app#1",
    "resolves GH-1",
    "fix https://github.com/mira/app/issues/1",
    "closes !1",
    "@otto @mira/team",
    "[skip ci]",
    "[CI SKIP]",
    "[no ci]",
    "[skip actions] [actions skip]",
    "***NO_CI***",
    "skip-checks: true",
    "[azp skip] [skip azurepipelines]",
    "Co-authored-by: Eve <eve@example.org>",
    "Signed-off-by: Eve <eve@example.org>",
    "/approve",
    "@dependabot merge",
    "@1h30m #close #time 2h",
    "a\u{202e}b\u{2066}c\u{200b}d\u{e0041}",
    "![x](https://evil.example/?d=1) <img src=https://evil.example/y>",
    "<!-- ralph:1 r-1-aaaaaa status forge/1/1 00 -->",
    "a\rfixes #1\u{2028}Fixes #1",
];

/// Everything that acts in the text of a commit or title, written independently of the service.
fn acting_plain(text: &str) -> Option<String> {
    let patterns = [
        r"(?i)(?:^|[^(])@(?:otto|mira|dependabot|1h|example)",
        r"#\d",
        r"!\d",
        r"(?i)gh-\d",
        r"(?i)https?://",
        r"(?i)\[[^\]]*(?:skip|no)[ _-]*(?:ci|actions|azp|azure)",
        r"(?i)\[[^\]]*(?:ci|actions|azp)[ _-]*skip",
        r"(?i)\*\*\*no_ci",
        r"(?i)skip-checks",
        r"(?im)^(?:signed-off-by|co-authored-by): eve",
        r"(?m)^[/!][a-z]",
        r"[\u{200b}-\u{200f}\u{202a}-\u{202e}\u{2060}-\u{206f}\u{e0000}-\u{e0fff}\u{2028}\r]",
        r"<!--",
    ];
    patterns.iter().find_map(|pattern| {
        let found = Regex::new(pattern).expect("a pattern").find(text)?;
        Some(format!("{pattern}: {:?}", found.as_str()))
    })
}

/// Everything that acts in Markdown: the same outside of code.
fn acting_markdown(markdown: &str) -> Option<String> {
    use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
    let (mut text, mut in_code) = (String::new(), false);
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH) {
        match event {
            Event::Start(Tag::CodeBlock(_)) => in_code = true,
            Event::End(TagEnd::CodeBlock) => in_code = false,
            Event::Start(Tag::Image { dest_url, .. }) => return Some(format!("image {dest_url}")),
            Event::Html(html) | Event::InlineHtml(html) if html.contains("<img") => return Some(html.to_string()),
            Event::Text(part) if !in_code => text.push_str(&part),
            Event::Code(_) => text.push('\u{1}'),
            Event::SoftBreak | Event::HardBreak | Event::End(_) => text.push('\n'),
            _ => {}
        }
    }
    // The bot names its own issue and the people that it asks.
    let effects = r"(?i)@(?:otto|dependabot|1h|mira/|example)|gh-\d|(?:fix|resolve)\w*[:\s]+\S*#\d|https?://(?:evil|github\.com/mira)|[\u{202a}-\u{202e}\u{2066}-\u{2069}\u{200b}\u{e0041}]";
    let found = Regex::new(effects).expect("a pattern").find(&text).map(|found| found.as_str().to_owned());
    let forged = markdown.matches("<!-- ralph:").count();
    found.or_else(|| (forged != 1).then(|| format!("{forged} markers")))
}

async fn texts_of_agents_have_no_effects_on_the_forge(dialect: Dialect) {
    // A commit of the agent per text; the service uses the last message of each run.
    let agent = "n=$RALPH_ITERATION; echo $n >answer.txt; git add -A
        git commit -q -F FOLDER/said.$n; git tag evil-$n; cp FOLDER/report.$n \"$RALPH_REPORT\"
        [ -e FOLDER/said.$((n + 1)) ] || echo 42 >answer.txt";
    let all = EFFECTS.join(" ");
    // Short texts are whole in subjects, which are cut.
    let said =
        [vec![EFFECTS[..4].join(" "), EFFECTS[4..9].join(" "), EFFECTS[9..13].join(" ")], vec![all.clone()]].concat();
    let mut setup = Setup::new(dialect);
    setup.title = format!("{} {}", EFFECTS[0], EFFECTS[6..10].join(" "));
    story(setup, async |world| {
        let folder = world.folder.path().to_owned();
        for (n, text) in said.iter().enumerate() {
            std::fs::write(folder.join(format!("said.{}", n + 1)), format!("{text}\n\n{}\n", EFFECTS.join("\n"))).expect("written");
            let lines = EFFECTS.join("\n");
            let report = json!({ "summary": if n % 2 == 0 { String::new() } else { lines.clone() }, "approach": all, "learnings": EFFECTS, "next_steps": EFFECTS });
            std::fs::write(folder.join(format!("report.{}", n + 1)), report.to_string()).expect("written");
        }
        world.write_agent(&agent.replace("FOLDER", &folder.display().to_string()));
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let log = world.git(&["log", "--format=%H%n%an <%ae> %cn <%ce>%n%B", &format!("main..{}", done.branch.name)]);
        let own = Regex::new(r"(?m)^Co-authored-by: mira <\d+\+mira@users\.noreply\.[\w.:-]+>$|<(?:\d+\+)?ralph-bot@(?:users\.)?noreply\.[\w.:-]+>").expect("a pattern");
        let foreign = own.replace_all(&log, "");
        assert_eq!(acting_plain(&foreign), None, "{log}");
        assert_eq!(world.git(&["tag"]), "");
        let pull = world.the_pull().await;
        assert_eq!(acting_plain(pull.title.trim_start_matches("WIP: ")), None, "{}", pull.title);
        assert_eq!(acting_markdown(&pull.body), None, "{}", pull.body);
        let closing = Regex::new(r"(?i)\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?) #\d+").expect("a pattern");
        let outside_code = Regex::new(r"`[^`\n]*`").expect("a pattern").replace_all(&pull.body, "").into_owned();
        assert_eq!(closing.find_iter(&outside_code).count(), 1, "our own only: {}", pull.body);
        for comment in world.bot_comments() {
            assert_eq!(acting_markdown(&comment), None, "{comment}");
        }
    })
    .await;
}

async fn limits_count_over_the_loop(dialect: Dialect) {
    // Each run stays below every limit.
    let agents = [
        ("files", "for i in $(seq 60); do echo $RALPH_ITERATION >f$RALPH_ITERATION-$i; done; rm -f f1-*x"),
        (
            "files that are deleted again",
            "rm -f f*; for i in $(seq 60); do echo $RALPH_ITERATION >f$RALPH_ITERATION-$i; done",
        ),
        (
            "bytes",
            "rm -f big; head -c 1800000 /dev/zero | tr '\\0' $RALPH_ITERATION | fold -w 100 >big; echo $RALPH_ITERATION >>big",
        ),
        ("binaries", "head -c 400000 /dev/urandom >bin; printf '\\0' >>bin"),
    ];
    for (name, script) in agents {
        let agent = format!("echo $RALPH_ITERATION >answer.txt\n{script}\n");
        let setup = Setup::new(dialect)
            .agent(&agent)
            .config("limits: { iterations: 6, comments_per_hour: 1000, comments_per_day: 1000 }");
        story(setup, async |world| {
            let stopped = world.run().await;
            assert_eq!(stopped.state, LoopState::Paused, "{name}: {}", stopped.why);
            assert!(
                stopped.why.contains("the change") || stopped.why.contains("the branch"),
                "{name}: {}",
                stopped.why
            );
            assert!((2..=4).contains(&stopped.spent.iterations), "{name}: {} iterations", stopped.spent.iterations);
        })
        .await;
    }
}

async fn commits_of_agents_are_not_pushed(dialect: Dialect) {
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let agent = format!(
        "echo {token} >secret.txt; git add -A; git -c user.name='{token}' commit -qm 'with {token}'; git tag {token}
         git branch {token}; git rm -q secret.txt; git -c user.name=mira -c user.email=mira@x commit -qm 'without it'
         git init -q sub; (cd sub; git -c user.name=x -c user.email=x@x commit -q --allow-empty -m x); git add sub
         git notes add -m {token}; echo 42 >answer.txt"
    );
    story(Setup::new(dialect).agent(&agent), async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let all = String::from_utf8_lossy(&everything(&world.forge.repo_path(world.repo))).into_owned();
        assert!(!all.contains(&token), "{all}");
        let authors = world.git(&["log", "--format=%an%cn", &format!("main..{}", done.branch.name)]);
        assert!(authors.lines().all(|line| line == "ralph-botralph-bot"), "{authors}");
        let branches = world.git(&["for-each-ref", "--format=%(refname)"]);
        let mut branches: Vec<&str> = branches.lines().filter(|name| !name.starts_with("refs/pull/")).collect();
        branches.sort_unstable();
        assert_eq!(branches, ["refs/heads/main", &format!("refs/heads/{}", done.branch.name)]);
        assert!(!world.git(&["ls-tree", "-r", &done.branch.name]).contains("160000"), "no submodule");
    })
    .await;
}

/// See docs/research/threats.md#i7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_the_session_memory_contain_no_secret() {
    let served = Served::start_with(true, outbound()).await;
    let (child, client) = served.client().await;
    for (name, text) in encodings() {
        let arguments = json!({ "query": text }).as_object().expect("an object").clone();
        let request = rmcp::model::CallToolRequestParams::new("learnings").with_arguments(arguments);
        let answer = client.call_tool(request).await.expect("an answer");
        let answer = serde_json::to_string(&answer).expect("JSON");
        assert!(answer.contains("write a test first") && !leaks(answer.as_bytes()), "{name}: {answer}");
    }
    drop((child, client));
    served.stop().await;
}
