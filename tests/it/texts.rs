//! An operator's own texts, in place of the built-in ones.

use std::path::Path;

use fake_forge::Dialect;
use ralph_bot::domain::loops::LoopState;

use crate::harness::{Setup, on_one_forge, story};

on_one_forge!(operator_templates_replace_built_in_ones,);

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
        let status: Vec<_> = world.bot_comments().into_iter().filter(|said| said.contains("HOUSE-RULE")).collect();
        assert_eq!(status.len(), 1, "one status comment, edited in place: {status:#?}");
        assert!(!status[0].contains("<b>"), "what a template holds as a value is made harmless: {}", status[0]);
        assert!(world.the_pull().await.body.contains("HOUSE-RULE"));
        assert!(world.prompt(1).await.contains("HOUSE-RULE"));
        assert!(!world.bot_commented("SLIP") && world.bot_comments().len() == 4, "{:#?}", world.bot_comments());
    })
    .await;
}
