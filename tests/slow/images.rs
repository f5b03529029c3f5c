//! Images in issues: images of people with write access reach the agent as files, others are reported.

use std::time::Duration;

use fake_forge::{Access, Dialect, FakeFault, ReviewDraft};
use ralph_bot::config::Config;
use ralph_bot::domain::loops::{Loop, LoopState};
use ralph_bot::domain::model::event::ReviewVerdict;
use ralph_bot::domain::model::quantity;
use ralph_bot::store::audit;

use crate::harness::service::{Service, stop, was_killed};
use crate::harness::{Setup, World, on_both_forges, on_one_forge, story};

on_both_forges!(
    images_of_writers_reach_the_agent,
    images_of_outsiders_and_unsupported_files_are_reported,
    image_in_guidance_reaches_the_next_run,
    image_in_a_comment_on_a_line_reaches_the_next_run,
    image_in_a_repository_with_a_reused_name_is_not_used,
);

on_one_forge!(
    failed_fetch_does_not_stop_the_loop,
    image_that_could_not_be_fetched_is_fetched_before_the_next_run,
    kill_before_an_image_is_recorded_loses_nothing,
    images_are_read_only_in_the_sandbox,
    file_attached_beside_the_issue_text_is_used,
    switched_off_images_are_not_fetched,
);

/// An image of 800 x 600 pixels, as far as its header says.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x03\x20\0\0\x02\x58\x08\x06\0\0\0 pixels";
const GIF: &[u8] = b"GIF89a\x20\x03\x58\x02 pixels";
const SVG: &[u8] = b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>";

/// Agent that notes the size and name of each image that its prompt names, and fixes the check.
const LOOKING: &str = "sed -n 's/^- image .*: \\(\\/.*\\)$/\\1/p' >paths.tmp\n\
    while read -r path; do echo \"$(wc -c <\"$path\") ${path##*/}\" >>seen.txt; done <paths.tmp\n\
    rm paths.tmp; touch seen.txt; echo 42 >answer.txt\n";

/// The issue as the maintainer wrote it.
fn of_maintainer(dialect: Dialect) -> Setup {
    Setup::new(dialect).agent(LOOKING)
}

/// Replaces the issue's text.
async fn write(world: &World, body: &str) {
    world.forge.edit_issue(&world.maintainer, world.repo, world.issue, None, Some(body)).await.expect("edited");
    world.settle().await;
}

async fn upload(world: &World, name: &str, content: &[u8]) -> String {
    world.forge.upload(&world.maintainer, world.repo, name, content).await.expect("uploaded")
}

/// Runs the loop to its review and returns it with the agent's input.
async fn seen(world: &World) -> (Loop, String) {
    let done = world.run().await;
    assert_eq!(done.state, LoopState::Review, "{}", done.why);
    let seen = world.file(&done.branch.name, "seen.txt").await.expect("the agent's notes");
    (done, seen)
}

/// Sentences about images in the audit trail.
async fn trail(world: &World) -> Vec<String> {
    let id = world.the_loop().await.id;
    let lines = world.engine().store.read(move |c| audit::trail(c, &id)).await.expect("the trail");
    let reasons = lines.into_iter().map(|line| line.entry.reason);
    reasons.filter(|reason| reason.contains("image")).collect()
}

fn kept(world: &World, id: &str) -> Vec<String> {
    let folder = world.folder.path().join("data/images").join(id);
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

async fn images_of_writers_reach_the_agent(dialect: Dialect) {
    story(of_maintainer(dialect), async |world| {
        let (first, second) = (upload(world, "a.png", PNG).await, upload(world, "b.gif", GIF).await);
        write(world, &format!("It should look so: ![a mock-up]({first})")).await;
        world.comment(&format!("And then <img width=\"600\" alt=\"after\" src=\"{second}\">")).await;
        let (done, seen) = seen(world).await;
        assert_eq!(seen, format!("{} image-1.png\n{} image-2.gif\n", PNG.len(), GIF.len()));
        let prompt = world.prompt(1).await;
        assert!(prompt.contains("image 1 in the issue: /"), "{prompt}");
        assert!(prompt.contains("image 2 in a comment by mira: /"), "{prompt}");
        let words = [
            "image 1 in the issue is used (PNG, 800 x 600 pixels, 1 KiB)",
            "image 2 in a comment by mira is used (GIF, 800 x 600 pixels, 1 KiB)",
        ];
        for words in words {
            assert!(world.bot_commented(&format!("- Image: {words}.")), "{words}: {:#?}", world.bot_comments());
        }
        assert_eq!(trail(world).await, words);
        // They are not part of the work, and are deleted with the loop.
        assert_eq!(world.file(&done.branch.name, "image-1.png").await, None);
        assert_eq!(kept(world, done.id.as_str()), ["image-1.png", "image-2.gif"]);
        world.forge.close_issue(&world.maintainer, world.repo, world.issue).await.expect("closed");
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Closed);
        assert_eq!(kept(world, done.id.as_str()), [""; 0]);
    })
    .await;
}

/// See docs/research/threats.md#i6, docs/research/threats.md#i12.
async fn images_of_outsiders_and_unsupported_files_are_reported(dialect: Dialect) {
    story(of_maintainer(dialect), async |world| {
        let bomb = [&PNG[..16], &30_000_u32.to_be_bytes(), &30_000_u32.to_be_bytes(), &PNG[24..]].concat();
        let mut body = String::new();
        for (name, content) in [("a.svg", SVG), ("b.png", &bomb), ("c.png", PNG), ("d.png", &vec![0; 2 << 20])] {
            body.push_str(&format!("![{name}]({})\n", upload(world, name, content).await));
        }
        body.push_str("![e](http://169.254.169.254/latest/meta-data)\n");
        write(world, &body).await;
        let theirs = world.forge.upload(&world.outsider, world.repo, "x.png", PNG).await.expect("uploaded");
        let comment = format!("![otto's picture]({theirs})");
        world.forge.comment(&world.outsider, world.repo, world.issue, &comment).await.expect("commented");
        let (_, seen) = seen(world).await;
        assert_eq!(seen, format!("{} image-3.png\n", PNG.len()));
        assert!(!world.prompt(1).await.contains("otto's picture"), "comments of outsiders are not told");
        let trail = trail(world).await;
        let expected = [
            "image 1 in the issue was not used: SVG is not supported; use PNG, JPEG, GIF or WebP",
            "image 2 in the issue was not used: it has 30000 x 30000 pixels, at most 8000 x 8000 are allowed",
            "image 3 in the issue is used (PNG, 800 x 600 pixels, 1 KiB)",
            "image 4 in the issue was not used: its content is not a PNG, JPEG, GIF or WebP image",
            "image 5 in the issue was not used: it is on another server (169.254.169.254); upload the image to the issue",
            "not used: 1 image in comments by people without write access",
        ];
        assert_eq!(trail.iter().collect::<std::collections::BTreeSet<_>>().len(), 6, "{trail:#?}");
        for words in expected {
            assert!(trail.iter().any(|line| line == words), "{words}: {trail:#?}");
        }
        assert!(world.bot_commented("- Image: image 1 in the issue was not used: SVG is not supported"));
    })
    .await;
    // The issue of an outsider that a maintainer approved: the text is used, its images are not.
    story(of_maintainer(dialect), async |world| {
        let theirs = world.forge.upload(&world.outsider, world.repo, "x.png", PNG).await.expect("uploaded");
        let body = format!("It should be 42. ![look]({theirs})");
        let opened = world.forge.open_issue(&world.outsider, world.repo, "Wrong answer", &body, &[]).await;
        world.issue = opened.expect("opened");
        world.advance(Duration::from_secs(300)).await;
        let (done, seen) = seen(world).await;
        assert_eq!((seen.as_str(), kept(world, done.id.as_str())), ("", Vec::new()));
        assert_eq!(trail(world).await, ["image 1 in the issue was not used: its author has no write access"]);
        // The maintainer may show it.
        world.comment(&format!("/ralph guide Look at this one: ![it]({theirs})")).await;
        world.settle().await;
        assert_eq!(kept(world, done.id.as_str()), ["image-2.png"]);
    })
    .await;
}

async fn image_in_guidance_reaches_the_next_run(dialect: Dialect) {
    // It fixes the check only if its prompt has the guidance.
    let waits = LOOKING
        .replacen("sed ", "tee prompt.tmp | sed ", 1)
        .replace("; echo 42 ", "; grep -q 'that way' prompt.tmp && echo 42 ");
    let waits = format!("{waits}rm prompt.tmp\n");
    let config = "limits: { iterations: 1, comments_per_hour: 1000, comments_per_day: 1000 }";
    story(of_maintainer(dialect).agent(&waits).config(config), async |world| {
        let stopped = world.run().await;
        assert_eq!(stopped.state, LoopState::LimitReached, "{}", stopped.why);
        let address = upload(world, "way.png", PNG).await;
        world.comment("/ralph iterations 3").await;
        world.settle().await;
        world.comment(&format!("/ralph resume Go that way: ![the way]({address})")).await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert_eq!(world.file(&done.branch.name, "seen.txt").await, Some(format!("{} image-1.png\n", PNG.len())));
        assert!(world.prompt(2).await.contains("image 1 in a comment by mira: /"));
        assert_eq!(trail(world).await, ["image 1 in a comment by mira is used (PNG, 800 x 600 pixels, 1 KiB)"]);
    })
    .await;
}

async fn failed_fetch_does_not_stop_the_loop(dialect: Dialect) {
    let adjust: fn(&mut Config) = |config| config.images.timeout = quantity::Duration::seconds(1);
    let files = "^/(attachments|private-user-images)/";
    let cases = [
        (FakeFault::status(404), " yet: the forge answered 404 Not Found"),
        (FakeFault::status(503), " yet: the forge answered 503 Service Unavailable"),
        (
            FakeFault::with_header(302, "location", "http://169.254.169.254/x"),
            ": it leads to `169.254.169.254`, which is not",
        ),
        (FakeFault::Reset { apply: false }, " yet: `127.0.0.1` cannot be reached: "),
        (FakeFault::Hang, " yet: it was not received within 1 s"),
    ];
    for (fault, why) in cases {
        story(Setup { adjust, ..of_maintainer(dialect) }, async |world| {
            let address = upload(world, "a.png", PNG).await;
            write(world, &format!("![a]({address})")).await;
            world.forge.faults().next(10, "GET", files, fault.clone()).expect("a pattern");
            let (done, seen) = seen(world).await;
            assert_eq!((seen.as_str(), kept(world, done.id.as_str())), ("", Vec::new()));
            let told = trail(world).await;
            assert!(
                told.len() == 1 && told[0].starts_with(&format!("image 1 in the issue was not used{why}")),
                "{told:?}"
            );
            assert!(world.bot_commented(&format!("- Image: image 1 in the issue was not used{}", &why[..5])));
            world.forge.faults().clear();
        })
        .await;
    }
}

async fn image_that_could_not_be_fetched_is_fetched_before_the_next_run(dialect: Dialect) {
    let files = "^/(attachments|private-user-images)/";
    let used = "image 1 in the issue is used (PNG, 800 x 600 pixels, 1 KiB)";
    story(of_maintainer(dialect), async |world| {
        let address = upload(world, "a.png", PNG).await;
        write(world, &format!("![a]({address})")).await;
        // Both attempts of the first fetch.
        world.forge.faults().next(2, "GET", files, FakeFault::status(503)).expect("a pattern");
        let (_, seen) = seen(world).await;
        assert_eq!(seen, format!("{} image-1.png\n", PNG.len()));
        let yet = "image 1 in the issue was not used yet: the forge answered 503 Service Unavailable; \
                   it is fetched again before the next run";
        assert_eq!(trail(world).await, [yet, used]);
        assert!(world.bot_commented(&format!("- Image: {used}.")), "{:#?}", world.bot_comments());
    })
    .await;
    // The list of the files, too.
    story(of_maintainer(dialect), async |world| {
        let address = upload(world, "a.png", PNG).await;
        write(world, &format!("![a]({address})")).await;
        world.forge.faults().next(1, "GET", "/issues/1/comments$", FakeFault::status(404)).expect("a pattern");
        let (done, seen) = seen(world).await;
        assert_eq!((seen, world.forge.faults().remaining()), (format!("{} image-1.png\n", PNG.len()), 0));
        let trail = trail(world).await;
        assert!(trail[0].starts_with("could not look up the images of the issue and its comments: "), "{trail:?}");
        assert_eq!((trail[1].as_str(), done.knowledge.images.unlisted), (used, 0), "{trail:?}");
    })
    .await;
}

/// The repository's current name cannot be read before the run.
/// See docs/research/faults.md#f12.
async fn image_in_a_repository_with_a_reused_name_is_not_used(dialect: Dialect) {
    story(of_maintainer(dialect), async |world| {
        let address = upload(world, "a.png", PNG).await;
        write(world, &format!("![a]({address})")).await;
        world.forge.faults().next(1, "GET", "/issues/1/comments$", FakeFault::status(404)).expect("a pattern");
        world.label().await;
        world.settle_until("the list of files fails", |l| l.knowledge.images.unlisted == 1).await;
        world.forge.hooks().drop_next(10_000);
        world.forge.with(|state| state.rename_repo(world.maintainer.id, world.repo, "renamed")).expect("renamed");
        let other = world.forge.create_repo("mira", "app", &[("a", "b", false)]).await.expect("another repository");
        for user in [&world.bot, &world.outsider] {
            world.forge.grant(other, user, Access::Admin).expect("granted");
        }
        let theirs = world.forge.open_issue(&world.outsider, other, "Another", "", &[]).await.expect("an issue");
        assert_eq!(theirs, world.issue, "a request under the former name finds it");
        let image = world.forge.upload(&world.outsider, other, "x.gif", GIF).await.expect("uploaded");
        let text = format!("![x]({image})");
        world.forge.comment(&world.outsider, other, theirs, &text).await.expect("commented");
        let repository = "/(repos/[^/]+/[^/]+|repositories/[0-9]+)$";
        world.forge.faults().next(10_000, "GET", repository, FakeFault::status(503)).expect("a pattern");
        world.settle().await;
        world.forge.faults().clear();
        world.recover().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert!(!world.prompt(1).await.contains("image 1"), "{}", world.prompt(1).await);
        let told = trail(world).await;
        assert!(told.iter().all(|line| !line.contains("is used")), "{told:?}");
    })
    .await;
}

async fn image_in_a_comment_on_a_line_reaches_the_next_run(dialect: Dialect) {
    story(of_maintainer(dialect), async |world| {
        let (first, none) = seen(world).await;
        assert_eq!((none.as_str(), first.spent.iterations), ("", 1));
        let address = upload(world, "line.png", PNG).await;
        let theirs = world.forge.upload(&world.outsider, world.repo, "x.png", PNG).await.expect("uploaded");
        let pull = world.the_pull().await.number;
        for (by, text) in
            [(&world.outsider, format!("![x]({theirs})")), (&world.maintainer, format!("So: ![so]({address})"))]
        {
            let remarks = vec![("answer.txt".to_owned(), 1, text)];
            let draft = ReviewDraft { verdict: ReviewVerdict::Commented, body: String::new(), remarks };
            world.forge.review(by, world.repo, pull, &draft).await.expect("reviewed");
            world.settle().await;
        }
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
        assert_eq!(world.file(&done.branch.name, "seen.txt").await, Some(format!("{} image-1.png\n", PNG.len())));
        assert!(world.prompt(2).await.contains("image 1 in a comment by mira: /"));
        assert_eq!(trail(world).await, ["image 1 in a comment by mira is used (PNG, 800 x 600 pixels, 1 KiB)"]);
    })
    .await;
}

/// After a kill between an image's file and its record, the image is fetched again, without partial files.
async fn kill_before_an_image_is_recorded_loses_nothing(dialect: Dialect) {
    let service = Service::new(of_maintainer(dialect), false).await;
    let world = &service.world;
    let (first, second) = (upload(world, "a.png", PNG).await, upload(world, "b.gif", GIF).await);
    let body = format!("![a]({first}) ![b]({second})");
    world.forge.edit_issue(&world.maintainer, world.repo, world.issue, None, Some(&body)).await.expect("edited");
    for kill in ["K45", "K45:2"] {
        let mut child = service.spawn("all", Some(kill));
        service.until("the service to listen", async || service.listens().await).await;
        if kill == "K45" {
            world.label().await;
        }
        assert!(was_killed(child.wait().await.expect("it ends")), "{}", service.log());
    }
    let mut child = service.spawn("all", None);
    let done = service.until_loop("the review", |l| l.state == LoopState::Review && l.pull.opened.is_some()).await;
    assert_eq!(done.knowledge.images.images.len(), 2, "{:?}", done.knowledge.images);
    let seen = world.file(&done.branch.name, "seen.txt").await;
    assert_eq!(seen, Some(format!("{} image-1.png\n{} image-2.gif\n", PNG.len(), GIF.len())));
    assert_eq!(kept(world, done.id.as_str()), ["image-1.png", "image-2.gif"]);
    service.wait_until_idle().await;
    stop(&mut child).await;
    service.finish().await;
}

async fn images_are_read_only_in_the_sandbox(dialect: Dialect) {
    let agent = LOOKING.replace("do echo", "do { echo x >>\"$path\"; rm -f \"$path\"; } 2>/dev/null; echo");
    story(of_maintainer(dialect).agent(&agent).isolated(), async |world| {
        let address = upload(world, "a.png", PNG).await;
        write(world, &format!("![a]({address})")).await;
        let (_, seen) = seen(world).await;
        assert_eq!(seen, format!("{} image-1.png\n", PNG.len()));
    })
    .await;
}

/// Gitea shows files that are not in the text below it.
async fn file_attached_beside_the_issue_text_is_used(_: Dialect) {
    story(of_maintainer(Dialect::Gitea), async |world| {
        for (name, content) in [("screen.png", PNG), ("trace.log", b"text")] {
            let address = upload(world, name, content).await;
            let id = address.rsplit('/').next().expect("an id").to_owned();
            world.forge.with(|state| state.attach(&id, world.issue));
        }
        let (_, seen) = seen(world).await;
        assert_eq!(seen, format!("{} image-1.png\n", PNG.len()));
        assert!(world.prompt(1).await.contains("described as \"screen.png\""));
    })
    .await;
}

async fn switched_off_images_are_not_fetched(dialect: Dialect) {
    story(of_maintainer(dialect).config("images: { enabled: false }"), async |world| {
        let address = upload(world, "a.png", PNG).await;
        write(world, &format!("![a]({address})")).await;
        let (done, seen) = seen(world).await;
        assert!(seen.is_empty() && done.knowledge.images.is_empty(), "{seen}");
        assert!(!world.prompt(1).await.contains("# Images"));
        let asked = world.forge.faults().requests();
        assert!(
            !asked.iter().any(|request| request.path.contains("attachments") || request.path.contains("user-images"))
        );
    })
    .await;
}
