//! Tests with malicious files in the tree: nothing of an agent is executed, and commits contain the files found.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::domain::trust::protected::NamedPaths;

/// Writes every setting that makes git execute a program; each writes a marker file.
fn traps(git_dir: &Path, markers: &Path) {
    let trap = |name: &str| format!("touch {}/{name}; false", markers.display());
    let script = |name: &str| {
        let path = git_dir.join(format!("trap-{name}"));
        std::fs::write(&path, format!("#!/bin/sh\ntouch {}/{name}\ncat\n", markers.display())).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    };
    let included = git_dir.join("included");
    let hooks = git_dir.join("hooks");
    std::fs::create_dir_all(&hooks).unwrap();
    std::fs::write(&included, format!("[core]\n\tfsmonitor = {}\n", script("included"))).unwrap();
    let config = format!(
        "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = {fsmonitor}\n\thooksPath = {hooks}\n\tsshCommand = {ssh}\n\
         \teditor = {editor}\n\tpager = {pager}\n\tattributesFile = {attributes}\n\
         [include]\n\tpath = {included}\n\
         [filter \"x\"]\n\tclean = {clean}\n\tsmudge = {smudge}\n\trequired = true\n[filter \"p\"]\n\tprocess = {process}\n\trequired = true\n\
         [diff]\n\texternal = {external}\n[diff \"x\"]\n\ttextconv = {textconv}\n\tcommand = {external}\n\
         [merge \"x\"]\n\tdriver = {merge}\n[credential]\n\thelper = \"!{credential}\"\n[gpg]\n\tprogram = {gpg}\n[commit]\n\tgpgsign = true\n\
         [alias]\n\tstatus = \"!{alias}\"\n[uploadpack]\n\tpackObjectsHook = {upload}\n",
        fsmonitor = script("fsmonitor"),
        hooks = hooks.display(),
        ssh = script("ssh"),
        editor = script("editor"),
        pager = script("pager"),
        attributes = git_dir.join("attributes").display(),
        included = included.display(),
        clean = script("clean"),
        smudge = script("smudge"),
        process = script("process"),
        external = script("external"),
        textconv = script("textconv"),
        merge = script("merge"),
        credential = trap("credential"),
        gpg = script("gpg"),
        alias = trap("alias"),
        upload = script("upload"),
    );
    std::fs::write(git_dir.join("config"), config).unwrap();
    std::fs::write(git_dir.join("attributes"), "* filter=x diff=x merge=x\n").unwrap();
    for hook in [
        "pre-commit",
        "post-commit",
        "post-checkout",
        "post-index-change",
        "reference-transaction",
        "pre-push",
        "update",
        "post-update",
    ] {
        std::fs::copy(script(&format!("hook-{hook}")), hooks.join(hook)).unwrap();
    }
}

fn lay_traps(tree: &Path, markers: &Path) {
    traps(&tree.join(".git"), markers);
    // The same as a repository in a folder, with a commit, and as a bare one.
    sh(
        tree,
        "git() { GIT_CONFIG_GLOBAL=/dev/null command git -c core.hooksPath=/dev/null \"$@\"; }
         mkdir nested; cd nested; git init -q; echo 1 >one; git add one; git commit -qm x; cd ..
         mkdir deep src/sub; git init -q deep; echo 2 >deep/two; mkdir deep/er; git init -q deep/er; echo 3 >deep/er/three
         git init -q src; git init -q --bare bare; rm -rf bare/objects bare/refs; mkdir -p bare/objects/info bare/refs/heads; touch bare/objects/info/x bare/refs/heads/x",
    );
    for nested in ["nested/.git", "deep/.git", "deep/er/.git", "src/.git", "bare"] {
        traps(&tree.join(nested), markers);
    }
    std::fs::write(tree.join(".gitattributes"), "*.rs filter=x diff=x merge=x\n*.md filter=p diff=x\n*.txt -diff\n")
        .unwrap();
    std::fs::write(
        tree.join(".gitmodules"),
        "[submodule \"e\"]\n\tpath = nested\n\turl = -u./payload\n\tupdate = !touch x\n",
    )
    .unwrap();
}

/// Runs all operations on a tree, each with the files that `lay` writes.
async fn exercise(world: &WorkspaceWorld, lay: impl Fn(&Path)) -> Vec<Sha> {
    let info = world.prepare().await;
    lay(&info.dir);
    sh(&info.dir, "echo 'fn a() {}' >>src/main.rs; echo more >>README.md; echo hidden >x.txt");
    world.workspaces.agent_messages(&world.loop_id, &world.repo).await;
    let kept = world.workspaces.salvage(&world.loop_id, &world.repo).await.unwrap().unwrap();
    lay_again(&info.dir, &lay);
    let made = world.commit(&info.head).await;
    let commit = made.commit.unwrap();
    assert!(made.diff.contains("+fn a() {}") && made.diff.contains("+hidden"), "{}", made.diff);
    assert_eq!(world.push(&commit, None).await, PushOutcome::Pushed);
    lay_again(&info.dir, &lay);
    let base = world.human("main", "echo theirs >theirs");
    world.workspaces.fetch(&world.repo, &world.access, "main", BRANCH, false).await.unwrap();
    world.workspaces.merge_base_into(&world.loop_id, &world.repo, &commit, &base).await.unwrap();
    lay_again(&info.dir, &lay);
    let merge = world.commit_with(&commit, Some(&base)).await.commit.unwrap();
    let checkout = world.workspaces.clean_checkout(&world.loop_id, &world.repo, &merge).await.unwrap();
    world.workspaces.release_checkout(checkout).await.unwrap();
    lay_again(&info.dir, &lay);
    world.workspaces.reset(&world.loop_id, &world.repo, &info.head).await.unwrap();
    assert_eq!(git(&info.dir, &["status", "--porcelain", "--ignored"]), "");
    lay_again(&info.dir, &lay);
    world.workspaces.release(&world.loop_id, &world.repo).await.unwrap();
    vec![kept, commit, merge]
}

/// Writes the same files again into a tree that has some of them as plain files.
fn lay_again(tree: &Path, lay: &impl Fn(&Path)) {
    sh(tree, "rm -rf nested deep bare src/sub src/.git");
    lay(tree);
}

/// See docs/research/threats.md#g1, docs/research/threats.md#g2, docs/research/threats.md#g3, docs/research/threats.md#g4, docs/research/threats.md#g6, docs/research/threats.md#g7.
#[tokio::test]
async fn malicious_configuration_is_not_executed() {
    let world = WorkspaceWorld::new();
    let markers = world.path("markers");
    std::fs::create_dir(&markers).unwrap();
    // The traps are real: plain git in the tree fires some.
    let info = world.prepare().await;
    lay_traps(&info.dir, &markers);
    let _ = Command::new("git").args(["add", "-A"]).current_dir(&info.dir).output().unwrap();
    let _ = Command::new("git").args(["status"]).current_dir(info.dir.join("src")).output().unwrap();
    assert!(std::fs::read_dir(&markers).unwrap().count() >= 2);
    std::fs::remove_dir_all(&markers).unwrap();
    std::fs::create_dir(&markers).unwrap();

    let commits = exercise(&world, |tree| lay_traps(tree, &markers)).await;
    let fired: Vec<_> = std::fs::read_dir(&markers).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(fired.is_empty(), "{fired:?}");
    for commit in commits {
        let files = world.files_of(&commit);
        assert!(!files.contains("160000") && !files.contains(".git/"), "{files}");
        for file in ["nested/one", "deep/two", "deep/er/three", "src/main.rs", "bare/HEAD"] {
            assert!(files.contains(&format!("100644 {file}")), "{file} of {files}");
        }
        assert_eq!(world.content(&commit, "x.txt"), "hidden");
    }
}

/// See docs/research/threats.md#g5.
#[tokio::test]
async fn git_entries_are_replaced_without_following_links() {
    let world = WorkspaceWorld::new();
    let markers = world.path("markers");
    let evil = world.path("evil");
    std::fs::create_dir(&markers).unwrap();
    git(world.folder.path(), &["init", "-q", "evil"]);
    traps(&evil.join(".git"), &markers);
    let before = sh(&evil, "find . | sort");
    for (name, script) in [
        ("gone", "rm -rf .git".to_owned()),
        ("file", format!("rm -rf .git; echo 'gitdir: {}/.git' >.git", evil.display())),
        ("link", format!("rm -rf .git; ln -s {}/.git .git", evil.display())),
        ("empty", "rm -rf .git; mkdir .git".to_owned()),
        ("fifo", "rm -rf .git; mkfifo .git".to_owned()),
        ("log link", format!("rm -rf .git/logs; ln -s {} .git/logs", evil.display())),
        ("locks", "touch .git/index.lock .git/HEAD.lock .git/config.lock".to_owned()),
        ("merging", "git rev-parse HEAD >.git/MERGE_HEAD; mkdir .git/rebase-merge; echo x >.git/BISECT_LOG".to_owned()),
        (
            "detached",
            "git checkout -q --detach; git branch -D -q ralph; git checkout -q --orphan other; git rm -q --cached -r ."
                .to_owned(),
        ),
        ("replaced", "git commit -q --allow-empty -m x; git replace --graft HEAD; echo 1 >.git/shallow".to_owned()),
    ] {
        let info = world.prepare().await;
        sh(&info.dir, &format!("{script}; echo {} >marker.txt", name.replace(' ', "-")));
        world.workspaces.agent_messages(&world.loop_id, &world.repo).await;
        let commit = world.commit(&info.head).await.commit.unwrap();
        assert_eq!(world.content(&commit, "marker.txt"), name.replace(' ', "-"));
        assert_eq!(git(&info.dir, &["rev-parse", "HEAD"]), commit.as_str(), "{name}");
        assert_eq!(git(&info.dir, &["status", "--porcelain"]), "", "{name}");
    }
    assert_eq!(std::fs::read_dir(&markers).unwrap().count(), 0);
    assert_eq!(sh(&evil, "find . | sort"), before);
}

/// See docs/research/threats.md#g9, docs/research/threats.md#g10.
#[tokio::test]
async fn unusual_files_are_committed() {
    let world = WorkspaceWorld::new();
    let secret = world.path("secret");
    std::fs::write(&secret, "canary").unwrap();
    let info = world.prepare().await;
    sh(
        &info.dir,
        &format!(
            "ln -s {} outside; ln -s .. up; mkfifo fifo; rm README.md; mkfifo README.md
             mkdir .GIT; echo x >.GIT/config; mkdir 'git~1'; echo x >'git~1/x'
             printf x >\"$(printf 'new\\nline')\"; printf y >\"$(printf 'bad\\377name')\"; echo '*' >'-rf'
             rm -r src; ln -s /etc src; truncate -s 1T sparse; truncate -s 2M large.bin; echo a >case; echo A >CASE
             printf '<<<<<<< a\\n=======\\n>>>>>>> b\\n' >conflict.txt; echo l >x.log",
            secret.display()
        ),
    );
    let made = world.commit(&info.head).await;
    let commit = made.commit.unwrap();
    let listed = git(&world.store(), &["ls-tree", "-r", "-z", "--format=%(objectmode) %(path)", commit.as_str()]);
    let files: Vec<&str> = listed.split('\0').filter(|entry| !entry.is_empty()).collect();
    assert_eq!(
        files,
        [
            "100644 -rf",
            "100644 .github/workflows/ci.yml",
            "100644 .gitignore",
            "100644 CASE",
            "100644 \"bad\\377name\"",
            "100644 case",
            "100644 conflict.txt",
            "100644 large.bin",
            "100644 \"new\\nline\"",
            "120000 outside",
            "120000 src",
            "120000 up",
        ]
    );
    assert_eq!(made.oversized, ["large.bin", "sparse"]);
    assert_eq!(made.conflict_markers, ["conflict.txt"]);
    assert!(!made.diff.contains("canary"));
    let objects = sh(&world.store(), "du -sk objects | cut -f1");
    assert!(objects.parse::<u64>().unwrap() < 10_000, "{objects} KiB");
    // The forge takes it, and a reset clears all of it.
    assert_eq!(world.push(&commit, None).await, PushOutcome::Pushed);
    world.workspaces.reset(&world.loop_id, &world.repo, &info.head).await.unwrap();
    assert_eq!(sh(&info.dir, "ls -A; ls -A src"), ".git\n.github\n.gitignore\nREADME.md\nsrc\nmain.rs");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "canary");
}

/// Pipes in place of files that git reads delay git only briefly.
///
/// See docs/research/threats.md#g10.
#[tokio::test]
async fn pipes_that_git_would_read_are_removed() {
    let world = WorkspaceWorld::new();
    let info = world.prepare().await;
    let pipes = "mkdir -p a/b; rm -f .gitignore; for d in . a a/b; do mkfifo $d/.gitignore $d/.gitattributes; done; mkfifo .gitmodules";
    sh(&info.dir, &format!("{pipes}; echo 1 >a/b/new; echo more >>README.md"));
    let made = world.commit(&info.head).await;
    let commit = made.commit.unwrap();
    let listed = git(&world.store(), &["ls-tree", "-r", "--name-only", commit.as_str()]);
    assert!(listed.lines().any(|path| path == "a/b/new") && made.diff.contains("+more"), "{listed}");
    sh(&info.dir, &format!("{pipes} 2>/dev/null; echo even more >>README.md"));
    world.workspaces.reset(&world.loop_id, &world.repo, &commit).await.unwrap();
    assert_eq!(sh(&info.dir, "tail -n 1 README.md"), "more");
}

/// Attributes with a wrong encoding exclude no file from the commit.
///
/// See docs/research/threats.md#g2.
#[tokio::test]
async fn files_with_a_wrong_declared_encoding_are_committed() {
    for claim in ["UTF-16", "UTF-16LE-BOM", "no-encoding", "UTF-32"] {
        let world = WorkspaceWorld::new();
        let info = world.prepare().await;
        let attributes = format!("* working-tree-encoding={claim}");
        sh(&info.dir, &format!("echo '{attributes}' >.gitattributes; printf 'a\\nb\\377\\n' >plain.txt"));
        let made = world.commit(&info.head).await;
        let commit = made.commit.unwrap_or_else(|| panic!("{claim}: nothing is committed"));
        let show = |path: &str| git(&world.store(), &["cat-file", "-s", &format!("{commit}:{path}")]);
        let sizes = (show(".gitattributes"), show("plain.txt"));
        assert_eq!(sizes, ((attributes.len() + 1).to_string(), "5".to_owned()), "{claim}");
        // Once more, with the attributes committed.
        sh(&info.dir, "echo more >>plain.txt");
        assert!(world.commit(&commit).await.commit.is_some(), "{claim}");
        let attributes = std::fs::read_to_string(world.store().join("info/attributes")).unwrap();
        assert_eq!(attributes.matches("working-tree-encoding").count(), 1, "{claim}: {attributes}");
    }
}

/// See docs/research/threats.md#g13 and docs/research/threats.md#g9.
#[tokio::test]
async fn protected_files_are_not_replaced_by_links_aliases_or_hard_links() {
    let attacks = [
        // The folder above, the folder itself, and a file become links to the agent's files.
        "mkdir -p x/workflows; echo evil >x/workflows/ci.yml; rm -r .github; ln -s x .github",
        "mkdir x; echo evil >x/ci.yml; rm -r .github/workflows; ln -s ../x .github/workflows",
        "echo evil >x.yml; ln -sf ../../x.yml .github/workflows/ci.yml",
        "rm -r .github; echo evil >.github",
        "mkdir x; echo evil >x/AGENTS.md; rm -f AGENTS.md; ln -s x/AGENTS.md AGENTS.md",
        // The same names on file systems that ignore case or some characters.
        "mkdir -p .GitHub/Workflows; echo evil >.GitHub/Workflows/ci.yml",
        "echo evil >agents.md; echo evil >codeowners",
        "mkdir -p '.github./workflows'; echo evil >'.github./workflows/ci.yml'",
        // The target of a protected link is protected, also through another link.
        "echo evil >docs/notes.md",
        "rm docs/notes.md; ln -s ../evil.md docs/notes.md; echo evil >evil.md",
        "rm -r docs; mkdir other; echo evil >other/notes.md; ln -s other docs",
        // Another name of the same file.
        "ln .github/workflows/ci.yml plain.yml; echo evil >plain.yml",
    ];
    for attack in attacks {
        let world = WorkspaceWorld::new();
        world.human(
            "main",
            "mkdir docs; echo base >docs/notes.md; ln -s docs/notes.md CLAUDE.md; ln -s CLAUDE.md GEMINI.md",
        );
        let info = world.prepare().await;
        sh(&info.dir, attack);
        sh(&info.dir, "echo fine >fine");
        let request = CommitRequest {
            loop_id: &world.loop_id,
            repo: &world.repo,
            parent: &info.head,
            merge_parent: None,
            message: &Outbound::of_test("m"),
            base: &info.base,
            protected_base: &info.base,
            extra_protected: &[],
            named: None,
            set_aside: None,
        };
        let made = world.workspaces.commit(request).await.unwrap();
        assert!(!made.restored.is_empty(), "{attack}");
        let commit = made.commit.expect("the file `fine`");
        let files = world.files_of(&commit);
        assert!(files.contains("100644 .github/workflows/ci.yml"), "{attack}: {files}");
        assert!(files.contains("120000 CLAUDE.md") && files.contains("100644 docs/notes.md"), "{attack}: {files}");
        assert_eq!(world.content(&commit, ".github/workflows/ci.yml"), "on: push", "{attack}");
        assert_eq!(world.content(&commit, "docs/notes.md"), "base", "{attack}");
        let seen = sh(&info.dir, "cat .github/workflows/ci.yml CLAUDE.md GEMINI.md; find . -type f -o -type l");
        assert!(seen.starts_with("on: push\nbase\nbase\n"), "{attack}: {seen}");
        for name in [".GitHub/", "agents.md", "codeowners", ".github./", "AGENTS.md"] {
            assert!(!seen.contains(&format!("./{name}")) && !files.contains(name), "{attack}: {seen} {files}");
        }
        assert!(files.contains("fine"), "{attack}: {files}");
    }
}

/// See docs/research/threats.md#g13.
#[tokio::test]
async fn protected_paths_are_restored_and_others_committed() {
    let world = WorkspaceWorld::new();
    world.human("main", "mkdir .claude; echo base >.claude/settings.json; echo base >AGENTS.md; ln -s AGENTS.md CLAUDE.md; echo .claude/local >>.gitignore");
    let info = world.prepare().await;
    sh(
        &info.dir,
        "echo evil >.github/workflows/ci.yml; echo evil >.github/workflows/new.yml; rm .claude/settings.json
         rm -r .claude; echo evil >.claude; rm CLAUDE.md; echo evil >CLAUDE.md; mkdir sub; echo evil >sub/AGENTS.md
         git mv AGENTS.md docs.md; echo fine >fine; mkdir -p .gitea; ln -s ../sub .gitea/workflows; echo x >own.cfg",
    );
    let request = CommitRequest {
        loop_id: &world.loop_id,
        repo: &world.repo,
        parent: &info.head,
        merge_parent: None,
        message: &Outbound::of_test("m"),
        base: &info.base,
        protected_base: &info.base,
        extra_protected: &["own.*".to_owned()],
        named: None,
        set_aside: None,
    };
    let made = world.workspaces.commit(request).await.unwrap();
    assert_eq!(
        made.restored,
        [
            ".claude",
            ".claude/settings.json",
            ".gitea/workflows",
            ".github/workflows/ci.yml",
            ".github/workflows/new.yml",
            "AGENTS.md",
            "CLAUDE.md",
            "own.cfg",
            "sub/AGENTS.md"
        ]
    );
    let commit = made.commit.unwrap();
    let changed =
        git(&world.store(), &["diff-tree", "-r", "--no-renames", "--name-status", info.head.as_str(), commit.as_str()]);
    assert_eq!(changed, "A\tdocs.md\nA\tfine");
    assert_eq!(
        sh(&info.dir, "cat .claude/settings.json AGENTS.md CLAUDE.md; readlink CLAUDE.md; ls .github/workflows"),
        "base\nbase\nbase\nAGENTS.md\nci.yml"
    );
    assert_eq!(git(&info.dir, &["status", "--porcelain"]), "");

    // People named two of them. A link is still no file.
    let named = NamedPaths::of(["change AGENTS.md and CLAUDE.md, and .github/workflows"]);
    sh(
        &info.dir,
        "echo new >AGENTS.md; ln -sf fine CLAUDE.md; rm -r .github/workflows; ln -s ../sub .github/workflows",
    );
    let made =
        world.workspaces.commit(CommitRequest { parent: &commit, named: Some(&named), ..request }).await.unwrap();
    assert_eq!(made.restored, [".github/workflows", ".github/workflows/ci.yml", "CLAUDE.md"]);
    assert_eq!(world.content(&made.commit.unwrap(), "AGENTS.md"), "new");
}

#[tokio::test]
async fn changes_with_forged_times_are_found() {
    let world = WorkspaceWorld::new();
    let info = world.prepare().await;
    // Same size and modification time: only the change time differs, and it may be the same second.
    let forge = |text: &str| {
        sh(&info.dir, &format!("printf '{text}\\n' >README.md; touch -d 2001-02-03 README.md"));
    };
    forge("HELLO");
    let commit = world.commit(&info.head).await.commit.unwrap();
    assert_eq!(world.content(&commit, "README.md"), "HELLO");
    forge("hullo");
    world.workspaces.reset(&world.loop_id, &world.repo, &commit).await.unwrap();
    assert_eq!(std::fs::read_to_string(info.dir.join("README.md")).unwrap(), "HELLO\n");
    forge("HALLO");
    let commit = world.commit(&commit).await.commit.unwrap();
    forge("hallo");
    let commit = world.commit(&commit).await.commit.unwrap();
    assert_eq!(world.content(&commit, "README.md"), "hallo");

    // A link, too, is compared by its target and not by its time.
    let link = |to: &str| sh(&info.dir, &format!("ln -sfn {to} link; touch -h -d 2001-02-03 link"));
    link("aaa");
    let commit = world.commit(&commit).await.commit.unwrap();
    link("bbb");
    let commit = world.commit(&commit).await.commit.unwrap();
    assert_eq!(world.content(&commit, "link"), "bbb");
}

/// git compares times by whole seconds: a file that was written in the second of its checkout differs by its contents only.
#[tokio::test]
async fn change_in_the_second_of_the_checkout_is_committed_beside_a_deletion() {
    use std::os::unix::fs::MetadataExt;
    for _ in 0..20 {
        let world = WorkspaceWorld::new();
        let info = world.prepare().await;
        std::fs::write(info.dir.join("other.txt"), "other\n").unwrap();
        let first = world.commit(&info.head).await.commit.unwrap();
        std::fs::remove_file(info.dir.join("README.md")).unwrap();
        world.workspaces.reset(&world.loop_id, &world.repo, &first).await.unwrap();
        let time = || std::fs::metadata(info.dir.join("README.md")).unwrap().mtime();
        let checked_out = time();
        sh(&info.dir, "printf 'HELLO\\n' >README.md; rm other.txt");
        if time() == checked_out {
            tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
            let second = world.commit(&first).await.commit.unwrap();
            assert_eq!(world.content(&second, "README.md"), "HELLO");
            return;
        }
    }
    panic!("no file was written in the second of its checkout in 20 attempts");
}

/// See docs/research/threats.md#g8.
#[tokio::test]
async fn submodules_of_the_base_are_unchanged() {
    let world = WorkspaceWorld::new();
    let markers = world.path("markers");
    std::fs::create_dir(&markers).unwrap();
    let tip = world.forge_tip("main").unwrap();
    let base = world.human("main", &format!("git update-index --add --cacheinfo 160000,{tip},vendor; mkdir vendor; git init -q vendor; cd vendor; git fetch -q ../../forge.git main; git reset -q --hard FETCH_HEAD"));
    let info = world.prepare().await;
    assert_eq!(info.head, base);
    sh(&info.dir, "rm -rf vendor; git init -q vendor; cd vendor; echo 1 >f; git add f; git commit -qm evil; echo 2 >f");
    traps(&info.dir.join("vendor/.git"), &markers);
    sh(&info.dir, "echo 1 >x");
    let commit = world.commit(&info.head).await.commit.unwrap();
    let entry = git(&world.store(), &["ls-tree", commit.as_str(), "vendor"]);
    assert_eq!(entry, format!("160000 commit {tip}\tvendor"));
    world.workspaces.reset(&world.loop_id, &world.repo, &commit).await.unwrap();
    assert_eq!(sh(&info.dir, "ls -A vendor"), "");
    assert_eq!(std::fs::read_dir(&markers).unwrap().count(), 0);
}

/// Contents that only a crafted object can have are refused on arrival and reach no tree.
/// See docs/research/threats.md#g8, docs/research/threats.md#g15.
#[tokio::test]
async fn malicious_objects_are_refused_on_fetch() {
    let world = WorkspaceWorld::new();
    let forge = world.path("forge.git");
    let good = world.prepare().await;
    let file = world.path("object");
    let blob = |text: &str| {
        std::fs::write(&file, text).unwrap();
        git(&forge, &["hash-object", "-w", file.to_str().unwrap()])
    };
    let bytes =
        |name: &str| (0..20).map(|n| u8::from_str_radix(&name[2 * n..2 * n + 2], 16).unwrap()).collect::<Vec<_>>();
    let plain = blob("x\n");
    let modules = |text: &str| blob(&format!("[submodule \"{text}"));
    let option = modules("e\"]\n\tpath = e\n\turl = -u./payload\n");
    let outside = modules("../../../hooks\"]\n\tpath = e\n\turl = https://forge.example/e.git\n");
    let upload = modules("e\"]\n\tpath = e\n\turl = https://forge.example/e.git\n\tupdate = !touch x\n");
    for (mode, name, object) in [
        ("100644", ".git", &plain),
        ("100644", ".GIT", &plain),
        ("100644", "git~1", &plain),
        ("100644", "..", &plain),
        ("100644", "a/b", &plain),
        ("120000", ".gitmodules", &plain),
        ("100644", ".gitmodules", &option),
        ("100644", ".gitmodules", &outside),
        ("100644", ".gitmodules", &upload),
    ] {
        let entry = [format!("{mode} {name}\0").into_bytes(), bytes(object)].concat();
        std::fs::write(&file, entry).unwrap();
        let tree = git(&forge, &["hash-object", "-t", "tree", "-w", "--literally", file.to_str().unwrap()]);
        let commit = git(&forge, &["commit-tree", "-p", good.head.as_str(), "-m", "crafted", &tree]);
        git(&forge, &["update-ref", "refs/heads/main", &commit]);
        let refused = world.workspaces.prepare(world.request()).await;
        assert!(matches!(refused, Err(WorkspaceError::Git { .. })), "{mode} {name}: {refused:?}");
        assert!(!world.workspaces.has_commit(&world.store(), &Sha::parse(&commit).unwrap()).await.unwrap(), "{name}");
        assert!(world.tree().join("README.md").is_file(), "the tree stands as it was");
    }
    git(&forge, &["update-ref", "refs/heads/main", good.head.as_str()]);
    assert_eq!(world.prepare().await.head, good.head, "and all is well once they are gone");
}

/// An agent that works in `git worktree add copy` leaves a copy of all files.
#[tokio::test]
async fn additional_work_tree_of_the_agent_is_not_committed() {
    let world = WorkspaceWorld::new();
    let info = world.prepare().await;
    sh(&info.dir, "echo 1 >new; git worktree add -q copy HEAD; test -f copy/README.md");
    let made = world.commit(&info.head).await.commit.unwrap();
    let files = world.files_of(&made);
    assert!(files.contains("100644 new") && !files.contains("copy/"), "{files}");
    assert!(!info.dir.join("copy").exists());
}
