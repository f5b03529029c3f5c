//! Texts and labels that a maintainer has to confirm before a loop uses them.

use std::time::Duration;

use fake_forge::Dialect;
use ralph_bot::domain::loops::LoopState;

use crate::harness::{Setup, World, on_both_forges, on_one_forge, story};

on_both_forges!(
    edit_shortly_before_label_needs_confirmation,
    hidden_parts_of_outsiders_need_confirmation,
    comments_of_issue_templates_need_no_confirmation,
    label_set_again_counts_despite_missed_removal,
);

on_one_forge!(edit_after_label_needs_confirmation, missed_label_after_the_end_needs_confirmation,);

/// Hash in the newest comment of the bot that asks for confirmation.
fn shown_hash(world: &World) -> String {
    let question = world.bot_comments().into_iter().rfind(|b| b.contains("--confirm ")).expect("a question");
    let after = question.split("--confirm ").nth(1).expect("a hash");
    after.chars().take_while(char::is_ascii_hexdigit).collect()
}

/// Issue opened by the outsider.
async fn outsiders_issue(world: &mut World, body: &str) {
    let title = "The answer is wrong here, too";
    world.issue = world.forge.open_issue(&world.outsider, world.repo, title, body, &[]).await.expect("an issue");
    world.settle().await;
}

async fn edit(world: &World, body: &str) {
    let who = &world.outsider;
    world.forge.edit_issue(who, world.repo, world.issue, None, Some(body)).await.expect("edited");
    world.settle().await;
}

/// Sets the label without a delivery, and edits the text afterwards: even a forge that records labels does not record the text
/// then.
async fn miss_label_and_edit(world: &World) {
    world.forge.hooks().drop_next(1);
    world.label().await;
    world.forge.flush().await;
    world.advance(Duration::from_secs(10)).await;
    let edited = world.forge.edit_issue(&world.maintainer, world.repo, world.issue, None, Some("Mend it, please"));
    edited.await.expect("edited");
    world.settle().await;
    world.advance(Duration::from_secs(600)).await;
}

/// See docs/research/threats.md#p11.
async fn edit_shortly_before_label_needs_confirmation(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        outsiders_issue(world, "It should be 42.").await;
        world.advance(Duration::from_secs(3600)).await;
        edit(world, "It should be 42. AND-THE-TRAP").await;
        world.advance(Duration::from_secs(10)).await;
        let waiting = world.run().await;
        assert_eq!(waiting.state, LoopState::NeedsConfirm, "{}", waiting.why);
        assert_eq!(world.state_labels(), ["needs-confirm"]);
        insta::assert_snapshot!("edited_before_the_label", world.conversation());
        let hash = shown_hash(world);
        assert_eq!(hash.len(), 8);
        let wrong = if hash.starts_with('0') { "1111aaaa" } else { "0000aaaa" };
        for line in [format!("/ralph run --confirm {wrong}"), "/ralph run".into(), "/ralph resume".into()] {
            let id = world.comment(&line).await;
            world.settle().await;
            assert_eq!(world.the_loop().await.state, LoopState::NeedsConfirm, "{line}");
            assert_eq!(world.reactions(id), ["eyes", "confused"], "{line}");
        }
        // Removing and setting the label again confirms nothing.
        world.forge.unlabel(&world.maintainer, world.repo, world.issue, "ralph:run").await.expect("unlabeled");
        world.settle().await;
        assert!(matches!(world.run().await.state, LoopState::NeedsConfirm));
        // The confirmed text is the displayed one, not the current one.
        edit(world, "ANOTHER-TRAP").await;
        world.comment(&format!("/ralph run --confirm {hash}")).await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let prompt = world.prompts().await.remove(0);
        assert!(prompt.contains("AND-THE-TRAP") && !prompt.contains("ANOTHER-TRAP"), "{prompt}");

        // An edit long before the label needs no confirmation.
        outsiders_issue(world, "It should be 42.").await;
        edit(world, "It should be 42, as ever.").await;
        world.advance(Duration::from_secs(300)).await;
        let open = world.run().await;
        assert_ne!(open.state, LoopState::NeedsConfirm, "{}", open.why);
    })
    .await;
}

/// See docs/research/threats.md#i2.
async fn hidden_parts_of_outsiders_need_confirmation(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        outsiders_issue(
            world,
            "It should be 42.\n\n<!-- THE-TRAP -->\n\n```mermaid\ngraph TD\n  A --> THE-DRAWING\n```",
        )
        .await;
        world.advance(Duration::from_secs(3600)).await;
        let held = world.run().await;
        assert_eq!(held.state, LoopState::NeedsConfirm, "{}", held.why);
        insta::assert_snapshot!("hidden_parts", world.conversation());
        let hash = shown_hash(world);
        world.comment(&format!("/ralph run --confirm {hash}")).await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let prompt = world.prompts().await.remove(0);
        assert!(prompt.contains("THE-DRAWING") && !prompt.contains("THE-TRAP"), "{prompt}");

        // The same text by a maintainer needs no confirmation; the status comment shows the agent's input.
        let (who, title) = (world.maintainer.clone(), "The answer is wrong once more");
        let body = "It should be 43. <!-- A-NOTE -->";
        // Loops are distinguished by the time of their start.
        world.advance(Duration::from_secs(1)).await;
        world.issue = world.forge.open_issue(&who, world.repo, title, body, &[]).await.expect("an issue");
        world.settle().await;
        let open = world.run().await;
        assert_ne!(open.state, LoopState::NeedsConfirm, "{}", open.why);
        let status = world.bot_comments().join("\n");
        assert!(status.contains("It should be 43.") && !status.contains("A-NOTE"), "{status}");
        // It shows exactly that, byte by byte.
        let between = |text: &str, begin: &str, end: &str| {
            let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("no {begin:?} in {text}"));
            rest.split_once(end).unwrap_or_else(|| panic!("no {end:?} in {rest}")).0.to_owned()
        };
        let comments = world.bot_comments();
        let summary = "<summary>Text of the issue as the agent receives it</summary>";
        let status = comments.iter().rfind(|comment| comment.contains(summary)).expect("a status");
        let shown = between(&between(status, summary, "</details>"), "```text\n", "\n```");
        let prompts = world.prompts().await;
        let prompt = prompts
            .iter()
            .rfind(|prompt| prompt.contains("It should be 43."))
            .unwrap_or_else(|| panic!("{}: {prompts:#?}", open.why));
        assert_eq!(shown, between(prompt, " issue\n", "\nEND "));
    })
    .await;
}

/// See docs/research/threats.md#i2.
async fn comments_of_issue_templates_need_no_confirmation(dialect: Dialect) {
    let (folder, product) = match dialect {
        Dialect::GitHub => (".github/ISSUE_TEMPLATE/bug.yml", "docs/ISSUE_TEMPLATE.md"),
        Dialect::Gitea => (".gitea/ISSUE_TEMPLATE/bug.yml", "ISSUE_TEMPLATE.md"),
    };
    let form = "name: Bug\nbody:\n  - type: textarea\n    attributes:\n      label: What\n      value: |\n        <!-- OF-THE-FORM,\n        in two lines -->\n";
    let setup =
        Setup::new(dialect).file(folder, form).file(product, "<!-- OF-THE-TEMPLATE -->\n\n### What happened?\n");
    let body =
        "### What happened?\n\n<!-- OF-THE-TEMPLATE -->\nIt should be 42.\n<!-- OF-THE-FORM,\nin two lines -->\n";
    story(setup, async |world| {
        outsiders_issue(world, body).await;
        world.advance(Duration::from_secs(3600)).await;
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let prompts = world.prompts().await.join("\n");
        assert!(prompts.contains("It should be 42.") && !prompts.contains("OF-THE-"), "{prompts}");

        // A comment that differs in one letter is the outsider's; the question names it and none of the templates.
        outsiders_issue(world, &body.replace("OF-THE-TEMPLATE", "OF-THE-TEMPLATe")).await;
        world.advance(Duration::from_secs(3600)).await;
        let held = world.run().await;
        assert_eq!(held.state, LoopState::NeedsConfirm, "{}", held.why);
        let comments = world.bot_comments();
        let question = comments.iter().find(|comment| comment.contains("Hidden in the text")).expect("a question");
        for part in
            ["1 × HTML comments\n", "1 × HTML comments of the repository's issue templates", "`OF-THE-TEMPLATe`"]
        {
            assert!(question.contains(part), "{part}: {question}");
        }
        assert!(!question.contains("OF-THE-FORM"), "{question}");
        world.comment("/ralph abort").await;
        world.settle().await;
    })
    .await;
}

/// See docs/research/threats.md#p10.
async fn edit_after_label_needs_confirmation(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        outsiders_issue(world, "OLD-TEXT").await;
        world.advance(Duration::from_secs(3600)).await;
        world.forge.hooks().hold();
        world.label().await;
        world.clock.advance_ms(1000);
        edit(world, "NEW-TEXT").await;
        world.forge.hooks().release(|_| {});
        world.clock.advance_ms(4000);
        world.settle().await;
        // The forge no longer has the text of the delivery, so neither text is used before a maintainer has seen it.
        let waiting = world.the_loop().await;
        assert_eq!(waiting.state, LoopState::NeedsConfirm, "{}", waiting.why);
        assert!(world.prompts().await.is_empty());
        world.comment(&format!("/ralph run --confirm {}", shown_hash(world))).await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let prompts = world.prompts().await.join("\n");
        assert!(prompts.contains("NEW-TEXT") && !prompts.contains("OLD-TEXT"), "{prompts}");
    })
    .await;
}

/// See docs/research/faults.md#f10 and docs/research/faults.md#f14.
async fn label_set_again_counts_despite_missed_removal(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.run().await;
        world.comment("/ralph abort").await;
        world.forge.flush().await;
        world.forge.hooks().hold();
        world.settle().await;
        world.forge.hooks().release(Vec::clear);
        assert_eq!(world.the_loop().await.state, LoopState::Aborted);
        world.clock.advance_ms(5000);
        world.run().await;
        assert_eq!(world.all_loops().await.len(), 2);
    })
    .await;
}

/// See docs/research/threats.md#p12.
async fn missed_label_after_the_end_needs_confirmation(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.run().await;
        world.comment("/ralph abort").await;
        world.settle().await;
        world.reconcile().await;
        let before = world.bot_comments().len();
        miss_label_and_edit(world).await;
        world.reconcile().await;
        world.reconcile().await;
        assert_eq!(world.bot_comments().len(), before + 1, "{:?}", world.bot_comments());
        let hash = shown_hash(world);
        world.comment(&format!("/ralph run --confirm {hash}")).await;
        world.settle().await;
        assert_eq!(world.all_loops().await.len(), 2);
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
}
