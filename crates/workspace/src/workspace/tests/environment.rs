//! Tests of environments: kept files of setup commands, and independent copies.

use super::*;
use crate::domain::trust::policy::Policy;

fn policy(commands: &[&str]) -> Policy {
    Policy { setup: commands.iter().map(|command| (*command).to_owned()).collect(), ..Policy::default() }
}

impl WorkspaceWorld {
    async fn key(&self, commit: &Sha, commands: &[&str]) -> EnvironmentKey {
        let of = (&self.loop_id, &self.repo);
        self.workspaces.environment_key(of, commit, &policy(commands), "node 20").await.unwrap()
    }

    /// Runs scripts in a checkout of a commit, as setup commands, and keeps their result.
    async fn kept(&self, commit: &Sha, scripts: &[&str], cache: &[String]) -> Environment {
        let key = self.key(commit, scripts).await;
        let checkout = self.workspaces.clean_checkout(&self.loop_id, &self.repo, commit).await.unwrap();
        let home = self.path("state/scratch-home");
        std::fs::create_dir_all(&home).unwrap();
        let mut before = self.workspaces.setup_effects(&checkout, cache).await.unwrap();
        let mut repeated = Vec::new();
        for (position, script) in scripts.iter().enumerate() {
            sh(&checkout.dir, &format!("H={}; {script}", home.display()));
            let after = self.workspaces.setup_effects(&checkout, cache).await.unwrap();
            if before.differ_elsewhere(&after) {
                repeated.push(position);
            }
            before = after;
        }
        let kept = self.workspaces.keep_environment(&key, (&checkout, &home), before, repeated).await.unwrap();
        self.workspaces.release_checkout(checkout).await.unwrap();
        kept
    }
}

const IGNORE: &str = "printf 'node_modules\\n.venv\\ndist\\nout\\n' >.gitignore; echo 1 >package-lock.json; mkdir -p pkg/a; echo x >pkg/a/f";

/// See docs/research/threats.md#g21.
#[tokio::test]
async fn trees_get_independent_copies_of_the_setup_results() {
    let world = WorkspaceWorld::new();
    let base = world.human("main", IGNORE);
    let info = world.prepare().await;
    let made = "mkdir -p node_modules/.bin pkg/a/node_modules .venv/bin node_modules/p $H/.cargo/registry $H/.npm $H/.claude
        echo tool >node_modules/p/tool; ln -s ../p/tool node_modules/.bin/tool; chmod 4755 node_modules/p/tool; mkfifo node_modules/pipe
        echo b >pkg/a/node_modules/b; touch -d 2020-01-01 pkg/a/node_modules/b
        printf '#!%s/.venv/bin/python\\n' $(pwd) >.venv/bin/pip; ln -s $(pwd)/.venv/bin/pip .venv/bin/pip3
        echo crate >$H/.cargo/registry/c; echo tar >$H/.npm/t; echo hook >$H/.claude/settings.json";
    let environment = world.kept(&base, &[made], &[]).await;
    assert_eq!(environment.repeated(), [0_usize; 0]);
    let (tree, home) = (&info.dir, world.path("state/home"));
    sh(tree, "mkdir node_modules; echo evil >node_modules/evil");
    environment.copy_to_tree(tree, &home).await.unwrap();
    environment.copy_to_home(tree, &home, false).await.unwrap();
    assert_eq!(
        sh(
            tree,
            "cat node_modules/.bin/tool pkg/a/node_modules/b; ls -A node_modules; stat -c %a node_modules/p/tool; stat -c %y pkg/a/node_modules/b | cut -c1-10"
        ),
        "tool\nb\n.bin\np\n755\n2020-01-01"
    );
    assert_eq!(sh(tree, "cat .venv/bin/pip3"), format!("#!{}/.venv/bin/python", tree.display()));
    assert_eq!(sh(&home, "find . -type f"), "./.cargo/registry/c", "downloads and settings are left out");
    // Changes in one tree are not in the next.
    sh(tree, "echo changed >node_modules/p/tool; echo changed >.venv/bin/pip");
    let second = world.path("state/second");
    std::fs::create_dir_all(second.join("pkg/a")).unwrap();
    environment.copy_to_tree(&second, &home).await.unwrap();
    assert_eq!(sh(&second, "cat node_modules/.bin/tool"), "tool");
    let found = world.workspaces.environment(&world.key(&base, &[made]).await).unwrap();
    assert_eq!(found.repeated(), environment.repeated());
    assert!(world.workspaces.environment(&world.key(&base, &["other"]).await).is_none());
}

/// See docs/research/threats.md#g21.
#[tokio::test]
async fn copies_are_not_written_through_links_of_the_branch() {
    let world = WorkspaceWorld::new();
    let base = world.human("main", IGNORE);
    let info = world.prepare().await;
    let environment = world
        .kept(
            &base,
            &["mkdir -p node_modules pkg/a/node_modules; echo a >node_modules/a; echo a >pkg/a/node_modules/a"],
            &[],
        )
        .await;
    let outside = world.path("outside");
    std::fs::create_dir_all(outside.join("a")).unwrap();
    sh(&info.dir, &format!("rm -r pkg; ln -s {} pkg; ln -s {} node_modules", outside.display(), outside.display()));
    environment.copy_to_tree(&info.dir, &world.path("state/home")).await.unwrap();
    assert_eq!(sh(&outside, "find . -type f"), "");
    assert_eq!(sh(&info.dir, "test ! -L node_modules; cat node_modules/a"), "a");
}

#[tokio::test]
async fn commands_that_write_other_files_are_repeated() {
    let world = WorkspaceWorld::new();
    let base = world.human("main", IGNORE);
    world.prepare().await;
    let scripts = [
        "mkdir node_modules; echo a >node_modules/a",
        "mkdir dist; echo 1 >dist/x",
        "true",
        "echo 2 >dist/x",
        "echo 1 >>README.md",
    ];
    let environment = world.kept(&base, &scripts, &[]).await;
    assert_eq!(environment.repeated(), [1, 3, 4]);
    let environment = world.kept(&base, &["mkdir dist; echo 1 >dist/x"], &["dist".to_owned()]).await;
    assert_eq!(environment.repeated(), [0_usize; 0]);
    let second = world.path("state/second");
    std::fs::create_dir_all(&second).unwrap();
    environment.copy_to_tree(&second, &second).await.unwrap();
    assert_eq!(sh(&second, "cat dist/x"), "1");
}

#[tokio::test]
async fn environment_key_depends_on_lock_files() {
    let world = WorkspaceWorld::new();
    let base = world.human("main", IGNORE);
    let info = world.prepare().await;
    let key = world.key(&base, &["npm ci"]).await;
    let change = async |script: &str| {
        sh(&info.dir, script);
        let made = world.commit(&info.head).await.commit.unwrap();
        world.workspaces.reset(&world.loop_id, &world.repo, &info.head).await.unwrap();
        world.key(&made, &["npm ci"]).await
    };
    assert_eq!(change("echo 2 >src/main.rs").await, key);
    assert_ne!(change("echo 2 >package-lock.json").await, key);
    assert_ne!(change("echo 2 >pkg/a/yarn.lock").await, key);
    assert_ne!(world.key(&base, &["npm i"]).await, key);
}

#[tokio::test]
async fn unused_environments_are_deleted() {
    let mut world = WorkspaceWorld::new();
    let clock = Clock::manual(Timestamp(1_700_000_000_000));
    world.workspaces = Workspaces::open(settings(&world.path("state"), 1), clock.clone()).unwrap();
    let base = world.human("main", IGNORE);
    world.prepare().await;
    for number in 0..5 {
        world.kept(&base, &[&format!("mkdir node_modules; echo {number} >node_modules/a")], &[]).await;
    }
    let folder = world.path("state/environments/gh.7");
    let count = || std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(count(), 5, "all may be in use");
    clock.advance_ms(2 * 3_600_000);
    let used = world.workspaces.environment(&world.key(&base, &["mkdir node_modules; echo 2 >node_modules/a"]).await);
    assert!(used.is_some());
    let report = world.workspaces.reap(Vec::new(), &Default::default()).await.unwrap();
    assert_eq!((report.environments, count()), (2, 3));
    clock.advance_ms(31 * 86_400_000);
    world.workspaces.reap(Vec::new(), &Default::default()).await.unwrap();
    assert_eq!(count(), 0);
}
