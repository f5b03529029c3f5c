//! An operator's own templates instead of the built-in ones.

use std::path::Path;

use fake_forge::Dialect;
use ralph_bot::domain::loops::LoopState;

use crate::harness::{Setup, on_both_forges, on_one_forge, story};

on_one_forge!(operator_templates_replace_built_in_ones,);
on_both_forges!(two_iterations_write_four_comments,);

async fn two_iterations_write_four_comments(dialect: Dialect) {
    let agent = "if [ $RALPH_ITERATION -ge 2 ]; then echo 42 >answer.txt; else echo 41 >answer.txt; fi\n";
    story(Setup::new(dialect).agent(agent), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
        insta::assert_snapshot!("two_iterations", world.conversation());
        // The first iteration's comment is folded: minimized, or edited to one line with the rest in a fold.
        let [_, first, _, _] = &world.comments(world.issue)[..] else { panic!("four comments") };
        let folded = "<details>\n<summary>Iteration 1 of 10: 0 of 1 check passed, 0 %</summary>\n";
        match dialect {
            Dialect::GitHub => assert!(first.minimized.is_some() && first.body.starts_with("### Iteration 1 of")),
            Dialect::Gitea => assert!(first.body.starts_with(folded), "{}", first.body),
        }
    })
    .await;
}

async fn operator_templates_replace_built_in_ones(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let texts = world.folder.path().join("texts");
        let write = |name: &str, text: &str| {
            let path = texts.join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        for name in ["comment/status.md", "pull/body.md", "prompt/iteration.md"] {
            let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates").join(name);
            let built_in = std::fs::read_to_string(built_in).expect("a template");
            write(name, &format!("{built_in}\n\nHOUSE-RULE of {{{{ \"<b>us</b>\" }}}}\n"));
        }
        // One that cannot be filled gives way to the built-in one, and stops nothing.
        write("comment/completion.md", "SLIP {{ there_is_no_such_name }}\n");
        world.setup.config = "templates: texts\n".to_owned();
        world.restart().await;
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        insta::assert_snapshot!("templates_of_the_operator", world.conversation());
        assert!(world.prompt(1).await.contains("HOUSE-RULE"));
    })
    .await;
}

#[test]
fn every_snapshot_belongs_to_a_story() {
    for target in ["it", "slow"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(target);
        for entry in std::fs::read_dir(folder.join("snapshots")).expect("the snapshots").flatten() {
            let name = entry.file_name().into_string().expect("a name");
            let stem = name.strip_prefix(&format!("{target}__")).and_then(|rest| rest.strip_suffix(".snap"));
            let (module, snapshot) = stem.and_then(|stem| stem.split_once("__")).expect("the name of a snapshot");
            let source = std::fs::read_to_string(folder.join(format!("{module}.rs"))).unwrap_or_default();
            assert!(
                source.contains(&format!("assert_snapshot!(\"{snapshot}\"")),
                "{target}/{name} belongs to no story"
            );
        }
    }
}
