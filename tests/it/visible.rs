//! Files that sandboxes show, an allow list without the service's own; and machines that cannot build one, with the reason.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use ralph_bot::app::{Application, Options};
use ralph_bot::config::{Config, ConfigScope, Env};
use ralph_bot::process::sandbox::{SandboxView, tools};
use ralph_bot::process::{self, ProcessSpec, Sandbox, SandboxTier};
use tokio_util::sync::CancellationToken;

use crate::harness::parts::{command, output};
use crate::harness::sandbox;

fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
}

/// Programs on the `PATH` run through links and prefixes; files beside their prefixes are hidden.
///
/// See docs/research/threats.md#s1.
#[tokio::test]
async fn tool_chains_on_the_path_run_and_neighboring_folders_are_hidden() {
    if sandbox().await.tier != SandboxTier::A {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().canonicalize().expect("a path");
    program(&root.join("opt/node-22/bin/node"), "#!/bin/sh\ncat \"$(dirname \"$0\")/../lib/part\"\n");
    fs::create_dir_all(root.join("opt/node-22/lib")).expect("made");
    fs::write(root.join("opt/node-22/lib/part"), "node ran\n").expect("written");
    program(&root.join("opt/secret/bin/other"), "#!/bin/sh\necho secret\n");
    symlink("node-22", root.join("opt/node")).expect("a link");
    fs::create_dir_all(root.join("tree")).expect("made");
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", root.join("opt/node/bin").display());
    let script = format!("node; git --version | head -c 11; ls {}; ls /usr/local", root.join("opt").display());
    let mut spec = ProcessSpec::new("/bin/sh", root.join("tree")).args(["-c", &script]).env("PATH", &path);
    spec.sandbox = Sandbox::of(SandboxView {
        writable: vec![root.join("tree")],
        read_only: tools(path.as_ref(), Path::new("/nonexistent")),
        ..SandboxView::default()
    });
    let done = process::run(spec, &CancellationToken::new(), None).await.expect("it runs");
    let text = done.stdout.text();
    assert!(text.starts_with("node ran\ngit version"), "{text} {}", done.stderr.text());
    assert!(text.contains("node-22") && !text.contains("secret"), "{text}");
    assert!(!text.lines().any(|line| ["etc", "src", "var"].contains(&line)), "{text}");
}

/// See docs/research/threats.md#s1.
#[tokio::test]
async fn start_fails_if_own_paths_cannot_be_hidden() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().canonicalize().expect("a path");
    program(&root.join("opt/tool/bin/tool"), "#!/bin/sh\n");
    for path in ["home", "opt/tool/lib"] {
        fs::create_dir_all(root.join(path)).expect("made");
    }
    for (name, file, data, words) in [
        ("data folder is a prefix", "etc/ralph.yaml", "opt/tool", "`data_dir`"),
        ("file in a folder of the PATH", "opt/tool/bin/ralph.yaml", "data", "`--config`"),
        ("file in a prefix", "opt/tool/ralph.yaml", "data", "`--config`"),
    ] {
        let file = root.join(file);
        fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        let text = format!(
            "data_dir: {}\nbackends: {{ mine: {{ type: script, command: [/bin/true] }} }}\n",
            root.join(data).display()
        );
        fs::write(&file, text).expect("written");
        let path = format!("{}:/usr/bin:/bin", root.join("opt/tool/bin").display());
        let home = root.join("home").display().to_string();
        let env = Env::of([("PATH", path.as_str()), ("HOME", home.as_str())]);
        let config = Config::load_for(ConfigScope::Local, &file, &env).expect("valid");
        let options = Options { listen: false, ..Options::of(&config) };
        let Err(error) = Application::start(&config, &env, options).await else { panic!("{name}: it started") };
        let error = format!("{error:#}");
        assert!(error.contains(words) && error.contains("move one of them"), "{name}: {error}");
        fs::remove_file(file).expect("removed");
    }
}

/// `LD_PRELOAD` in a program's environment has an effect only inside, where no process is root.
///
/// See docs/research/threats.md#s16.
#[tokio::test]
async fn libraries_are_loaded_by_programs_only_and_not_as_root() {
    if sandbox().await.tier != SandboxTier::A {
        return;
    }
    if which::which("cc").is_err() {
        return skipped_tests::skip("there is no C compiler");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().canonicalize().expect("a path");
    let source = r#"
        #include <stdio.h>
        #include <unistd.h>
        __attribute__((constructor)) static void load(void) {
            char name[4096];
            snprintf(name, sizeof name, "PLACE/loaded-by-%d", (int)geteuid());
            FILE *file = fopen(name, "w");
            if (file) fclose(file);
        }
    "#;
    fs::create_dir(root.join("tree")).expect("made");
    let place = root.join("tree").display().to_string();
    fs::write(root.join("tree/load.c"), source.replace("PLACE", &place)).expect("written");
    output(command("cc").args(["-shared", "-fPIC", "-o", "load.so", "load.c"]).current_dir(root.join("tree"))).await;
    for variable in ["LD_PRELOAD", "LD_AUDIT"] {
        let mut spec = ProcessSpec::new("/bin/sh", root.join("tree")).args(["-c", "/bin/true; echo fine"]);
        spec = spec.env("PATH", "/usr/bin:/bin").env(variable, root.join("tree/load.so"));
        spec.sandbox = Sandbox::of(SandboxView { writable: vec![root.join("tree")], ..SandboxView::default() });
        let done = process::run(spec, &CancellationToken::new(), None).await.expect("it runs");
        assert_eq!(done.stdout.text(), "fine\n", "{}", done.stderr.text());
    }
    let loaded: Vec<String> = fs::read_dir(root.join("tree"))
        .expect("listed")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("loaded-by-").map(str::to_owned))
        .collect();
    assert!(!loaded.is_empty(), "programs inside load it");
    if rustix::process::geteuid().is_root() {
        assert!(!loaded.contains(&"0".to_owned()), "{loaded:?}");
    }
}

/// Machines on which bubblewrap fails, simulated by separate namespaces, and words of the one fix.
///
/// See docs/research/threats.md#s16.
#[tokio::test]
async fn machines_without_sandbox_are_recognized() {
    if sandbox().await.tier != SandboxTier::A {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().canonicalize().expect("a path");
    fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).expect("open");
    let config = "data_dir: ./data\nbackends: { mine: { type: script, command: [/bin/true] } }\nforges: [{ name: forge, kind: gitea, \
                  url: 'http://127.0.0.1:9', token_env: TOKEN, webhook_secret_env: SECRET }]\n";
    fs::write(root.join("ralph.yaml"), config).expect("written");
    // Other users may not reach the folder of the build.
    fs::copy(env!("CARGO_BIN_EXE_ralph-bot"), root.join("ralph-bot")).expect("copied");
    let check = format!("{0}/ralph-bot --config {0}/ralph.yaml check", root.display());
    let hide = "for d in acpi scsi bus irq; do mount -t tmpfs none /proc/$d 2>/dev/null && break; done";
    let limit = "echo 0 >/proc/sys/user/max_user_namespaces";
    for (name, before, words) in [
        ("hidden parts of /proc", hide, "partly hidden"),
        ("no further user namespaces", limit, "user.max_user_namespaces="),
    ] {
        // A service that is root needs no user namespace for bubblewrap.
        let mut words_of_machine: Vec<&str> = Vec::new();
        if rustix::process::geteuid().is_root() {
            words_of_machine.extend(["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"]);
        }
        words_of_machine.extend(["unshare", "-U", "-r", "-m", "-p", "-f", "--mount-proc", "/bin/sh", "-c"]);
        let script = format!("{{ {before}; }} && {check}");
        let mut machine = command(words_of_machine[0]);
        machine.args(&words_of_machine[1..]).arg(&script).env_clear().current_dir(&root);
        machine.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", &root);
        machine.env("TOKEN", "token").env("SECRET", crate::harness::SECRET);
        let done = tokio::time::timeout(Duration::from_secs(60), machine.output()).await;
        let done = done.expect("in time").expect("it runs");
        let text = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert!(text.contains(words), "{name}: {text}");
    }
}
