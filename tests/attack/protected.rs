//! Files that tools run or that steer other bots, in a pushed branch; and the same with the protection switched off.

use fake_forge::Dialect;
use ralph_bot::domain::loops::LoopState;

use crate::harness::{Setup, on_both_forges, story};

on_both_forges!(
    files_that_configure_tools_are_not_pushed,
    files_that_configure_tools_are_pushed_without_the_protection,
);

const FILES: [&str; 9] = [
    ".vs/tasks.vs.json",
    "app.code-workspace",
    ".yarnrc.yml",
    ".npmrc",
    ".mvn/extensions.xml",
    ".cargo/config.toml",
    "mise.toml",
    "CLAUDE.local.md",
    ".coderabbit.yaml",
];

/// Runs an agent that writes all files, and returns those that the pushed branch contains.
async fn pushed_files(setup: Setup) -> Vec<&'static str> {
    let write = |path: &str| format!("mkdir -p \"$(dirname {path})\" && echo obey >{path}\n");
    let agent = format!("echo 42 >answer.txt\n{}", FILES.map(write).concat());
    let mut pushed = Vec::new();
    story(setup.agent(&agent), async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        for path in FILES {
            if world.file(&done.branch.name, path).await.is_some() {
                pushed.push(path);
            }
        }
    })
    .await;
    pushed
}

/// See docs/research/threats.md#g13.
async fn files_that_configure_tools_are_not_pushed(dialect: Dialect) {
    assert_eq!(pushed_files(Setup::new(dialect)).await, [""; 0]);
}

async fn files_that_configure_tools_are_pushed_without_the_protection(dialect: Dialect) {
    assert_eq!(pushed_files(Setup::new(dialect).config("protected: { policy: allow }")).await, FILES);
}
