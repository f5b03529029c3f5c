//! `ralph-bot local` in repositories and on machines as they are: each environment either lets a run succeed, or a sentence names
//! the cause before the agent starts.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::parts;
use crate::harness::service::with_mounts;

/// Number of environments that are tried at once.
const WORKERS: usize = 3;

const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Environment of `local` that differs in one respect from the repository `app` with one commit on `main`.
struct LocalEnvironment {
    name: &'static str,
    /// Shell script that makes the difference, in the folder that contains `app`.
    prepare: &'static str,
    /// Argument of `--repo`.
    repo: &'static str,
    /// Further variables of the run; `@` stands for the folder.
    env: &'static [(&'static str, &'static str)],
    /// Whether the run is refused before the agent starts.
    refused: bool,
    /// Text that the run has to print.
    says: &'static str,
    /// Shell script that has to succeed after the run, in the repository.
    after: &'static str,
}

impl LocalEnvironment {
    fn repo(self, repo: &'static str) -> Self {
        Self { repo, ..self }
    }

    fn env(self, env: &'static [(&'static str, &'static str)]) -> Self {
        Self { env, ..self }
    }

    fn says(self, says: &'static str) -> Self {
        Self { says, ..self }
    }

    fn after(self, after: &'static str) -> Self {
        Self { after, ..self }
    }
}

fn works(name: &'static str, prepare: &'static str) -> LocalEnvironment {
    let after = "test \"$(git show refs/heads/ralph/1-fix-it:answer.txt)\" = right";
    LocalEnvironment { name, prepare, repo: "app", env: &[], refused: false, says: "", after }
}

fn refused(name: &'static str, prepare: &'static str, says: &'static str) -> LocalEnvironment {
    LocalEnvironment { refused: true, says, after: "true", ..works(name, prepare) }
}

fn environments() -> Vec<LocalEnvironment> {
    let in_hook = "test \"$(git show refs/heads/ralph/1-fix-it:answer.txt)\" = right && test ! -e ../elsewhere/HEAD";
    vec![
        works("plain", ""),
        works("blanks and umlauts in the path", "mv app 'mein Projekt ü'").repo("mein Projekt ü"),
        works("a folder of the repository", "mkdir app/sub").repo("app/sub"),
        works("a link to the repository", "ln -s app link").repo("link"),
        works("a linked work tree", "git -C app worktree add -q -b topic ../tree").repo("tree"),
        works("a shallow clone", "git -C app commit -q --allow-empty -m 2; git clone -q --depth 1 file://$PWD/app shallow")
            .repo("shallow"),
        works("a clone with shared objects", "git clone -q --shared app shared").repo("shared"),
        works("a repository without remotes, with packed refs", "git -C app pack-refs --all; git -C app gc -q"),
        works("ref format reftable", "git init -q -b main --ref-format=reftable app2; cd app2; echo wrong >answer.txt; git add .; git commit -qm 1")
            .repo("app2"),
        works("a submodule as the repository", "git init -q -b main outer; git -C outer -c protocol.file.allow=always submodule --quiet add $PWD/app inner; git -C outer/inner switch -q main")
            .repo("outer/inner"),
        works("a tag named as the branch", "git -C app tag main"),
        works("a file named as the branch", "cd app; echo x >main; git add main; git commit -qm main"),
        works("a branch with a slash and umlauts", "git -C app switch -qc feature/ü-1"),
        works("branches of earlier runs", "git -C app branch ralph/0-earlier"),
        works("a commit without files", "git init -q -b main app2; git -C app2 commit -q --allow-empty -m empty").repo("app2"),
        works("uncommitted changes", "echo more >>app/answer.txt; echo new >app/new.txt").says("2 changed files are not committed"),
        works("a merge with conflicts", "cd app; git switch -qc other; echo a >answer.txt; git commit -qam a; git switch -q main; echo b >answer.txt; git commit -qam b; git merge -q other || true")
            .says("not committed"),
        works("a lock that a killed git left", "touch app/.git/index.lock"),
        works("a hook that refuses commits", "printf '#!/bin/sh\\nexit 1\\n' >app/.git/hooks/pre-commit; chmod +x app/.git/hooks/pre-commit"),
        works("core.hooksPath with hooks that refuse commits", "mkdir hooks; printf '#!/bin/sh\\nexit 1\\n' | tee hooks/pre-commit hooks/commit-msg hooks/pre-push >hooks/post-checkout; chmod +x hooks/*; git -C app config core.hooksPath $PWD/hooks"),
        works("signed commits without a key", "git config --global commit.gpgSign true; git config --global user.signingKey ABCDEF; git config --global push.gpgSign true"),
        works("a commit template and sign-off", "git config --global commit.template $PWD/none; git config --global format.signOff true; git config --global commit.cleanup verbatim"),
        works("line ends of Windows", "git config --global core.autocrlf true; git config --global core.eol crlf"),
        works("a sparse checkout", "cd app; mkdir a b; echo a >a/a; echo b >b/b; git add .; git commit -qm more; git sparse-checkout set a")
            .after("git show refs/heads/ralph/1-fix-it:b/b >/dev/null"),
        works("a file system monitor and an untracked cache", "git -C app config core.fsmonitor true; git -C app config core.untrackedCache true"),
        works("configuration of each work tree", "git -C app config extensions.worktreeConfig true; git -C app config --worktree core.sparseCheckout false"),
        works("file modes that are ignored", "git -C app config core.fileMode false; chmod 600 app/answer.txt"),
        works("checks of all received objects", "git config --global transfer.fsckObjects true; git config --global receive.denyDeletes true"),
        works("local transport forbidden", "git config --global protocol.file.allow never; git config --global protocol.allow never"),
        works("rewritten addresses", "git config --global url.https://example.invalid/.insteadOf file://; git config --global url.https://example.invalid/.insteadOf /"),
        works("replaced commits", "cd app; echo x >x; git add x; git commit -qm x; git replace HEAD HEAD~1"),
        works("a filter whose program is missing", "cd app; echo '*.bin filter=gone' >.gitattributes; echo x >a.bin; git add .; git commit -qm bin; git config filter.gone.required true; git config filter.gone.smudge gone"),
        works("assets of Git LFS without contents", "cd app; echo '*.bin filter=lfs diff=lfs merge=lfs -text' >.gitattributes; printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:%064d\\nsize 3\\n' 7 >a.bin; git add .; git commit -qm bin")
            .says("1 file that Git LFS stores is a pointer"),
        works("a submodule of another host that is checked out", "git init -q -b main lib; echo one >lib/lib.txt; git -C lib add .; git -C lib commit -qm lib; cd app; git -c protocol.file.allow=always submodule --quiet add $PWD/../lib lib; git config -f .gitmodules submodule.lib.url https://example.invalid/lib; printf 'set -e\\ngrep -qx right answer.txt\\ngrep -qx one lib/lib.txt\\n' >test.sh; git add .; git commit -qm lib"),
        works("a submodule that is not checked out", "cd app; git update-index --add --cacheinfo 160000,$(printf '%040d' 1),lib; mkdir lib; printf '[submodule \"lib\"]\\npath = lib\\nurl = https://example.invalid/lib\\n' >.gitmodules; git add .gitmodules; git commit -qm lib")
            .says("The submodule `lib` is empty: the repository has no copy of it"),
        works("a link to a commit without .gitmodules", "cd app; mkdir lib; git update-index --add --cacheinfo 160000,$(printf '%040d' 1),lib; git commit -qm lib"),
        works("another repository inside", "git init -q app/inner; git -C app/inner commit -q --allow-empty -m inner"),
        works("pipes and sockets", "mkfifo app/pipe; cd app; git add answer.txt"),
        works("links in a circle and out of the tree", "cd app; ln -s b a; ln -s a b; ln -s /etc out; ln -s ../../.. up; git add .; git commit -qm links"),
        works("names with line breaks, quotes and other bytes", "cd app; touch \"$(printf 'a\\nb')\" \"q'\\\"q\" \"$(printf 'x\\377y')\" -- '-f' ' '; git add .; git commit -qm names"),
        works("a work tree that the agent adds", "echo 'git worktree add -q ../extra >/dev/null 2>&1; git worktree add -q inside >/dev/null 2>&1; git init -q nested' >agent-extra"),
        works("a file that ignores everything", "cd app; echo '*' >.gitignore; git add -f .gitignore; git commit -qm ignore"),
        works("variables of a git hook", "mkdir elsewhere")
            .env(&[("GIT_DIR", "@/elsewhere"), ("GIT_INDEX_FILE", "@/elsewhere/index"), ("GIT_WORK_TREE", "@/elsewhere")])
            .after(in_hook),
        works("a state folder with `..`", "mkdir -p a/b").env(&[("XDG_STATE_HOME", "@/a/b/../state")]),
        works("no HOME and no state folder", "").env(&[("HOME", ""), ("XDG_STATE_HOME", "")]),
        works("another language", "").env(&[("LC_ALL", "de_DE.UTF-8"), ("LANGUAGE", "de")]),
        works("a temporary folder with blanks", "mkdir 'tmp dir'").env(&[("TMPDIR", "@/tmp dir")]),
        works("identity of a folder", "git config --global --unset user.name; git config --global --unset user.email; printf '[user]\\nname = Own Name\\nemail = own@example.org\\n' >id; git config --global includeIf.gitdir:$PWD/.path $PWD/id")
            .after("test \"$(git log -1 --format=%an refs/heads/ralph/1-fix-it)\" = 'Own Name'"),
        works("no identity", "git config --global --unset user.name; git config --global --unset user.email"),
        works("an identity with other characters", "git config --global user.name 'Dev <\"x\">'; git config --global user.email '<>'"),
        refused("no repository", "", "is not in a git repository").repo("."),
        refused("no commit", "git init -q -b main app2", "has no commit").repo("app2"),
        refused("object format sha256", "git init -q -b main --object-format=sha256 app2; cd app2; echo wrong >answer.txt; git add .; git commit -qm 1", "has another object format than sha1")
            .repo("app2"),
        refused("no branch", "git -C app checkout -q --detach", "has no branch checked out"),
        refused("a rebase", "cd app; git switch -qc other; echo a >answer.txt; git commit -qam a; git switch -q main; echo b >answer.txt; git commit -qam b; git rebase -q other 2>/dev/null || true", "has no branch checked out"),
        refused("a partial clone", "git -C app config uploadpack.allowFilter true; echo two >app/answer.txt; git -C app commit -qam 2; git clone -q --filter=blob:none file://$PWD/app part", "is a partial clone that lacks 1 file of")
            .repo("part"),
        refused("a branch named `ralph`", "git -C app branch ralph", "the branch `ralph` prevents branches such as `ralph/1-…`"),
        refused("a hook that refuses the branch", "printf '#!/bin/sh\\necho no robots; exit 1\\n' >app/.git/hooks/update; chmod +x app/.git/hooks/update", "refuses the branch `ralph/0-test`"),
        refused("core.hooksPath with a hook that refuses the branch", "mkdir hooks; printf '#!/bin/sh\\ntest $1 != prepared\\n' >hooks/reference-transaction; chmod +x hooks/*; git -C app config core.hooksPath $PWD/hooks", "reference-transaction refuses the branch"),
        refused("bytes that are not UTF-8 in the path", "mv app \"$(printf 'a\\377')\"; ln -s \"$(printf 'a\\377')\" app", "is not UTF-8"),
        refused("an owner whom git does not trust", "chown -R 65534 app", "safe.directory"),
        works("an owner whom `safe.directory` trusts", "chown -R 65534 app; git config --global --add safe.directory $PWD/app; git config --global --add safe.directory $PWD/app/.git"),
    ]
}

/// Runs a script in a folder below `root`, whose folder `home` is the home.
fn shell(root: &Path, folder: &str, script: &str) -> Output {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(root.join(folder)).env_clear();
    command.env("PATH", PATH).env("HOME", root.join("home"));
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "Dev").env(format!("GIT_{role}_EMAIL"), "dev@example.org");
    }
    command.output().expect("sh runs")
}

fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Creates a folder with the repository `app`, changes it by a shell script, and writes a configuration. Its agent solves the task and
/// runs the script `agent-extra`.
fn prepared(name: &str, prepare: &str) -> TempDir {
    let folder = tempfile::Builder::new().prefix("ralph-env-").tempdir().expect("a folder");
    let root = folder.path();
    let common = "mkdir home; git config --global user.name Dev; git config --global user.email dev@example.org
        git init -q -b main app; cd app; echo wrong >answer.txt; echo 'grep -qx right answer.txt' >test.sh
        git add .; git commit -qm first; cd ..; touch agent-extra";
    for script in [common, prepare] {
        let prepared = shell(root, "", script);
        assert!(prepared.status.success(), "{name}: {}", printed(&prepared));
    }
    let agent = "cat >/dev/null; echo right >answer.txt; git add -f answer.txt 2>/dev/null; . @/agent-extra; touch @/started; true";
    let agent = agent.replace('@', &root.display().to_string());
    let config = format!(
        "sandbox: {{ required: none }}\nbackends: {{ mine: {{ type: script, command: [sh, -c, {}] }} }}\n",
        serde_json::Value::from(agent)
    );
    std::fs::write(root.join("ralph-control.yaml"), config).expect("written");
    folder
}

/// Returns the fault of the run in an environment; `None` if there is none.
fn fault(environment: &LocalEnvironment) -> Option<String> {
    let folder = prepared(environment.name, environment.prepare);
    let root = folder.path();
    let check = "sh test.sh || { test ! -e test.sh && grep -qx right answer.txt; }";
    let mut command = Command::new(env!("CARGO_BIN_EXE_ralph-bot"));
    command.args(["--config", "ralph-control.yaml", "local", "--repo", environment.repo, "--task", "Fix it"]);
    command.args(["--check", check, "--max-iterations", "2"]).current_dir(root).env_clear().env("PATH", PATH);
    command.env("HOME", root.join("home")).env("XDG_STATE_HOME", root.join("state"));
    for (name, value) in environment.env {
        match *value {
            "" => command.env_remove(name),
            value => command.env(name, value.replace('@', &root.display().to_string())),
        };
    }
    let output = command.output().expect("the program starts");
    let text = printed(&output);
    let after = shell(root, environment.repo, environment.after);
    let wrong = if output.status.code() != Some(if environment.refused { 2 } else { 0 }) {
        format!("{:?}", output.status)
    } else if environment.refused && root.join("started").exists() {
        "the agent started".to_owned()
    } else if !text.contains(environment.says) {
        format!("it does not say \"{}\"", environment.says)
    } else if !after.status.success() {
        format!("`{}` failed: {}", environment.after, printed(&after))
    } else {
        return None;
    };
    Some(format!("{}: {wrong}\n{text}", environment.name))
}

/// See docs/research/faults.md#d12.
#[test]
fn unusable_environments_are_reported_before_the_agent_starts() {
    let is_root = shell(Path::new("/"), "", "test \"$(id -u)\" = 0").status.success();
    let all: Vec<LocalEnvironment> =
        environments().into_iter().filter(|one| is_root || !one.prepare.contains("chown")).collect();
    let (next, faults) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(environment) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    faults.lock().expect("not poisoned").extend(fault(environment));
                }
            });
        }
    });
    let faults = faults.into_inner().expect("not poisoned");
    assert!(faults.is_empty(), "{} of {} environments are wrong:\n{}", faults.len(), all.len(), faults.join("\n"));
}

/// A full disk is reported, loses no work, and the run continues once there is space: before the start, while the agent runs, and while
/// its change is stored.
/// See docs/research/faults.md#d1.
#[tokio::test]
async fn full_disk_is_reported_and_the_loop_continues_with_free_space() {
    let folder =
        prepared("a full disk", "mkdir state; echo 'head -c 100000000 /dev/zero >@/state/ballast; true' >agent-extra");
    let root = folder.path();
    let extra = root.join("agent-extra");
    let filling = std::fs::read_to_string(&extra).expect("read").replace('@', &root.display().to_string());
    std::fs::write(&extra, filling).expect("written");
    let script = r#"
        run() { "$0" --config ralph-control.yaml local --repo app "$@"; echo "exit code $?"; }
        mount -t tmpfs -o size=30m none state
        touch log
        (until grep -q 'cannot write to the database now' log; do sleep 0.1; done; rm state/ballast) &
        run --task 'Fill it' --check 'sh test.sh' 2>>log
        head -c 100000000 /dev/zero >state/ballast 2>/dev/null
        run --task 'Start it' --check 'sh test.sh' 2>&1
        rm state/ballast
        echo 'head -c 24000000 /dev/urandom >large.bin' >agent-extra
        run --task 'Store it' --check 'sh test.sh' 2>&1
        echo 'rm -f large.bin' >agent-extra
        run --resume 2>&1
        git -C app show ralph/1-fill-it:answer.txt"#;
    let Some(mut command) = with_mounts(script, env!("CARGO_BIN_EXE_ralph-bot")).await else { return };
    command.current_dir(root).env_clear().env("PATH", PATH).env("HOME", root.join("home"));
    let output = command.env("XDG_STATE_HOME", root.join("state")).output().await.expect("it starts");
    let text = printed(&output);
    let codes: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("exit code ")).collect();
    assert_eq!(codes, ["0", "1", "1", "0"], "{text}");
    for sentence in [
        "ralph.db is full; free some space, nothing was lost",
        "failed: no space left on the disk while trying to take in the files",
    ] {
        assert!(text.contains(sentence), "`{sentence}` is missing: {text}");
    }
    assert!(text.ends_with("\nright\n"), "{text}");
    assert!(!text.contains("restore a backup"), "{text}");
}

/// A mount makes the repository read-only, because permissions do not bind root.
#[tokio::test]
async fn read_only_repository_is_refused_before_the_agent_starts() {
    let folder = prepared("a read-only repository", "");
    let root = folder.path();
    std::fs::copy(root.join("ralph-control.yaml"), root.join("app/ralph-control.yaml")).expect("copied");
    let script = r#"
        mount --bind app app && mount -o remount,ro,bind app && cd app
        "$0" local --task 'Fix it' --check 'sh test.sh'; echo "local: $?"
        "$0" check; echo "check: $?"
        "$0" init --config other.yaml --forge gitea --url http://127.0.0.1:9 --yes; echo "init: $?""#;
    let Some(mut command) = with_mounts(script, env!("CARGO_BIN_EXE_ralph-bot")).await else { return };
    command.current_dir(root).env_clear().env("PATH", PATH).env("HOME", root.join("home"));
    let output = command.env("XDG_STATE_HOME", root.join("state")).output().await.expect("it starts");
    let text = printed(&output);
    assert!(text.contains(".git to create a branch: Read-only file system"), "{text}");
    assert!(text.contains("local: 2\n") && text.contains("check: 0\n"), "`check` needs no write access: {text}");
    assert!(text.contains("could not write ./gitea-webhook-secret: Read-only file system"), "{text}");
    assert!(text.contains("init: 1\n"), "{text}");
    assert!(!root.join("started").exists(), "the agent started");
}

/// Runs `local` on a terminal, and answers its question by a key. Returns the printed text.
async fn on_terminal(root: &Path, arguments: &str, answer: Option<&str>) -> String {
    let program = env!("CARGO_BIN_EXE_ralph-bot");
    let mut command = parts::command("script");
    command.args([
        "-qefc",
        &format!("{program} --config ralph-control.yaml local --repo app {arguments}"),
        "/dev/null",
    ]);
    command.current_dir(root).env_clear().env("PATH", format!("{}:{PATH}", root.join("bin").display()));
    command.env("HOME", root.join("home")).env("XDG_STATE_HOME", root.join("state")).env("TERM", "xterm");
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let (mut input, mut output) = (process.stdin.take().expect("a pipe"), process.stdout.take().expect("a pipe"));
    let (mut text, mut part, mut answer) = (String::new(), [0; 4096], answer);
    let reading = async {
        loop {
            let length = output.read(&mut part).await.unwrap_or_default();
            if length == 0 {
                return;
            }
            text.push_str(&String::from_utf8_lossy(&part[..length]));
            if text.contains("Add `setup")
                && let Some(answer) = answer.take()
            {
                input.write_all(answer.as_bytes()).await.expect("written");
            }
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(120), reading).await.is_ok(), "it does not end: {text}");
    text
}

/// A new tree lacks ignored dependencies, which the usual command installs. The question whether to keep the command is asked once.
#[tokio::test]
async fn detected_setup_is_offered_once_for_the_repository_file() {
    let prepare = r#"mkdir bin; cat >bin/npm <<'END'
#!/bin/sh
if [ "$1" = ci ]; then mkdir -p node_modules/.bin; cp /bin/true node_modules/.bin/x; exit; fi
PATH="$PWD/node_modules/.bin" x || { echo 'sh: 1: x: not found'; exit 127; }
END
        chmod +x bin/npm; cd app; echo node_modules >.gitignore; echo '{}' >package-lock.json
        echo '{ "devDependencies": { "x": "1" }, "scripts": { "test": "x" } }' >package.json; git add .; git commit -qm files"#;
    let folder = prepared("a fresh tree", prepare);
    let root = folder.path();
    let kept = root.join("app/.ralph.yml");
    let check = "--check 'npm test && sh test.sh'";
    let declined = on_terminal(root, &format!("--task 'Fix it' {check}"), Some("n")).await;
    assert!(declined.contains("Add `setup: [npm ci]` to"), "{declined}");
    let again = on_terminal(root, &format!("--task 'Fix it again' {check}"), None).await;
    assert!(
        again.contains("every check passed in a fresh checkout") && !again.contains("Add `setup"),
        "it asked again: {again}"
    );
    assert!(!kept.exists());
    let agreed = on_terminal(root, &format!("--task 'Fix it' {check} --data data"), Some("y")).await;
    assert_eq!(std::fs::read_to_string(&kept).ok().as_deref(), Some("setup: [npm ci]\n"), "{agreed}");
}
