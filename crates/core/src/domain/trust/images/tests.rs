//! Tests of the selection of images.

use url::Url;

use super::*;
use crate::domain::model::image::{ImageFormat, ImageHeader};
use crate::domain::trust::sanitize::document::tests::read_markdown;

fn id(n: u32) -> String {
    format!("0bec7adc-52c5-432f-bca7-{n:012x}")
}

fn upload(n: u32) -> String {
    format!("https://github.com/user-attachments/assets/{}", id(n))
}

fn issue(text: &str) -> ImageText {
    ImageText { commenter: String::new(), trusted: true, images: read_markdown(text).images(), attached: Vec::new() }
}

fn comment(login: &str, trusted: bool, text: &str) -> ImageText {
    ImageText { commenter: login.into(), trusted, ..issue(text) }
}

fn planned(texts: &[ImageText], known: &TaskImages, settings: &ImageSettings) -> ImagePlan {
    let forge = AttachmentAddresses::GitHub(Url::parse("https://github.com").expect("an address"));
    plan(texts, &forge, known, settings)
}

/// Formats the decision as lines: `+` for images that are fetched, `-` for others.
fn lines(plan: &ImagePlan) -> String {
    let wanted = plan.wanted.iter().map(|image| {
        let (number, description) = (image.number, &image.description);
        format!("+ {number} {} \"{description}\" {}", image.attachment.rsplit('-').next().unwrap_or(""), image.source())
    });
    let refused = plan.refused.words().into_iter().map(|words| format!("- {words}"));
    wanted.chain(refused).collect::<Vec<_>>().join("\n")
}

#[test]
fn visible_uploads_of_writers_are_fetched_once_and_in_order() {
    let body = format!(
        "![before]({})\n\n<img width=\"600\" alt=\"after\" src=\"{}\">\n\n![twice]({})\n\n`![code]({})`\n\n<!-- ![hidden]({}) -->",
        upload(1),
        upload(2),
        upload(1),
        upload(3),
        upload(4)
    );
    let texts = [issue(&body), comment("mira", true, &format!("[![linked]({})](https://x.example)", upload(5)))];
    let plan = planned(&texts, &TaskImages::default(), &ImageSettings::default());
    insta::assert_snapshot!(lines(&plan), @r#"
    + 1 000000000001 "" in the issue
    + 2 000000000002 "" in the issue
    + 3 000000000005 "" in a comment by mira
    "#);
}

/// See docs/research/threats.md#i6.
#[test]
fn images_of_others_and_on_other_servers_are_refused() {
    let outsider = ImageText { trusted: false, ..issue(&format!("![a]({})", upload(1))) };
    let texts = [
        outsider,
        comment("otto", false, &format!("![b]({}) ![c](https://evil.example/c.png)", upload(2))),
        comment("mira", true, "![d](http://169.254.169.254/latest/meta-data) ![e](data:image/png;base64,AAAA)"),
    ];
    let plan = planned(&texts, &TaskImages::default(), &ImageSettings::default());
    insta::assert_snapshot!(lines(&plan), @r"
    - image 1 in the issue was not used: its author has no write access
    - image 2 in a comment by mira was not used: it is on another server (169.254.169.254); upload the image to the issue
    - image 3 in a comment by mira was not used: its address is not a web address; upload the image to the issue
    - not used: 2 images in comments by people without write access
    ");
}

#[test]
fn number_of_images_is_limited_across_texts() {
    let body = |range: std::ops::Range<u32>| range.map(|n| format!("![]({})\n", upload(n))).collect::<String>();
    let settings = ImageSettings { max_images: 2, ..ImageSettings::default() };
    let plan = planned(&[issue(&body(0..4))], &TaskImages::default(), &settings);
    assert_eq!(
        (plan.wanted.len(), &plan.refused.notes[..]),
        (2, &["not used: 2 more images, because a loop uses at most 2".to_owned()][..])
    );
    let header = ImageHeader { format: ImageFormat::Png, width: 1, height: 1 };
    let used = |image: &TaskImage| TaskImage { outcome: ImageOutcome::Kept { header, bytes: 70 }, ..image.clone() };
    let known = TaskImages { images: plan.wanted.iter().map(used).collect(), ..TaskImages::default() };
    assert_eq!(planned(&[issue(&body(1..3))], &known, &settings).wanted, []);
    let others = format!("![](https://evil.example/{}.png)\n", 1).repeat(2)
        + &(0..90).map(|n| format!("![](https://evil.example/x{n})\n")).collect::<String>();
    let plan = planned(&[issue(&others)], &TaskImages::default(), &settings);
    assert_eq!(plan.refused.images.len(), MOST_LOOKED_AT as usize);
    assert_eq!(plan.refused.notes, ["not used: 41 images, because at most 50 are looked at"]);
    let off = ImageSettings { enabled: false, ..settings };
    assert_eq!(planned(&[issue(&body(0..4))], &TaskImages::default(), &off), ImagePlan::default());
}

#[test]
fn attached_files_that_the_text_does_not_show_are_fetched_if_they_may_be_images() {
    let attached = [(id(1), "shown.png"), (id(2), "screen shot.JPG"), (id(3), "trace.log"), (id(4), "png")];
    let attached = attached.into_iter().map(|(id, name)| (id, name.to_owned())).collect();
    let text = ImageText { attached, ..issue(&format!("![shown]({})", upload(1))) };
    let plan = planned(&[text], &TaskImages::default(), &ImageSettings::default());
    insta::assert_snapshot!(lines(&plan), @r#"
    + 1 000000000001 "" in the issue
    + 2 000000000002 "screen shot.JPG" in the issue
    "#);
}

#[test]
fn settings_are_checked() {
    assert_eq!(ImageSettings::default().max_bytes(), 5 * 1024 * 1024);
    assert_eq!(ImageSettings::default().max_total_bytes(), 20 * 1024 * 1024);
    let hosts = ["minio.internal:9000", "s3.example", "https://x", "", "a b", "x:99999"].map(str::to_owned).to_vec();
    let problems = ImageSettings { hosts, ..ImageSettings::default() }.validate();
    assert_eq!(problems.len(), 4, "{problems:?}");
}
