//! Selection of the images that agents get: which images of an issue and its comments are used depends on their authors and
//! addresses.

mod addresses;

use std::collections::BTreeSet;

use ralph_types::failure::Failure;

pub use addresses::{AttachmentAddresses, ServerAccess};

use crate::domain::model::image::{ImageOutcome, TaskImage, TaskImages};
use crate::domain::model::quantity::Duration;
use crate::domain::model::settings::{SectionProblems, Settings, config_section};

/// Maximum number of images of a loop that are considered one by one; further images are only counted.
const MOST_LOOKED_AT: u32 = 50;
/// Number of bytes of a MiB.
const MIB: u64 = 1024 * 1024;

config_section! {
    /// Images in issues and comments, which agents get as files. Only images that people with write access uploaded to the
    /// issue are used: PNG, JPEG, GIF and WebP.
    pub struct ImageSettings {
        /// Whether agents get images.
        pub enabled: bool = true;
        /// Maximum number of images of a loop.
        #[schemars(skip)]
        pub max_images: u32 = 10, in 1..=100;
        /// Maximum size of an image, in MiB.
        #[schemars(skip)]
        pub max_mib: u32 = 5, in 1..=100, at_most max_total_mib;
        /// Maximum size of all images of a loop, in MiB.
        #[schemars(skip)]
        pub max_total_mib: u32 = 20, in 1..=1_000;
        /// Maximum width and height of an image, in pixels, as its header states them.
        #[schemars(skip)]
        pub max_pixels: u32 = 8_000, in 1..=65_535;
        /// Time limit for fetching an image.
        #[schemars(skip)]
        pub timeout: Duration = Duration::seconds(30), in Duration::seconds(1)..=Duration::minutes(10);
        /// Further servers on which the forges keep uploaded files, as `host` or `host:port`, such as the object storage that
        /// Gitea redirects to. They may have private addresses.
        pub hosts: Vec<String>;
    }
}

impl ImageSettings {
    /// Returns the maximum size of an image, in bytes.
    pub fn max_bytes(&self) -> u64 {
        u64::from(self.max_mib) * MIB
    }

    /// Returns the maximum total size of a loop's images, in bytes.
    pub fn max_total_bytes(&self) -> u64 {
        u64::from(self.max_total_mib) * MIB
    }
}

impl Settings for ImageSettings {
    const GROUP: &'static str = "images";

    fn check_further(&self, problems: &mut SectionProblems) {
        let is_host = |host: &str| {
            let (name, port) = host.rsplit_once(':').unwrap_or((host, "443"));
            let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
            !name.is_empty() && name.chars().all(valid) && port.parse::<u16>().is_ok()
        };
        for host in self.hosts.iter().filter(|host| !is_host(host)) {
            problems.add("hosts", format!("`{host}` is not `host` or `host:port`"));
        }
    }
}

/// Text of an issue or comment, with its attachments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageText {
    /// Login of the comment's author; empty for the text.
    pub commenter: String,
    /// Whether a person with write access wrote or confirmed the text.
    pub trusted: bool,
    /// Addresses of the images that the text displays, in reading order.
    pub images: Vec<String>,
    /// Attached files as pairs of id and name. The text need not refer to them.
    pub attached: Vec<(String, String)>,
}

/// Decision which images of some texts are fetched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImagePlan {
    /// Images to fetch. Each has the outcome that is stored if the forge does not list its attachment.
    pub wanted: Vec<TaskImage>,
    /// Images that are not used, and notes about images that were only counted.
    pub refused: TaskImages,
}

/// File name extensions that an image can have.
const EXTENSIONS: [&str; 6] = ["png", "jpg", "jpeg", "gif", "webp", "svg"];

/// Image that a text displays.
struct ShownImage {
    address: String,
    /// Name of the file if the forge shows it beside the text; otherwise empty.
    name: String,
}

/// Decides which images of some texts are fetched. Images in `known` that need no further attempt are skipped. Images in
/// untrusted texts are not used: those in the text are refused one by one, those in comments are only counted.
pub fn plan(
    texts: &[ImageText],
    addresses: &AttachmentAddresses,
    known: &TaskImages,
    settings: &ImageSettings,
) -> ImagePlan {
    let mut plan = ImagePlan::default();
    if !settings.enabled {
        return plan;
    }
    let max = settings.max_images as usize;
    let (mut next, mut used) = (known.next_number(), known.kept().count());
    let (mut untrusted, mut too_many, mut not_looked_at) = (0_usize, 0_usize, 0_usize);
    let mut seen = BTreeSet::new();
    for text in texts {
        let mut found: Vec<(Result<String, Failure>, ShownImage)> = text
            .images
            .iter()
            .map(|address| {
                (addresses.attachment(address), ShownImage { address: address.clone(), name: String::new() })
            })
            .collect();
        let is_shown = |id: &str| found.iter().any(|(named, _)| named.as_deref().is_ok_and(|named| named == id));
        let may_be_image = |name: &str| {
            let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
            EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known))
        };
        let more: Vec<_> = text.attached.iter().filter(|(id, name)| !is_shown(id) && may_be_image(name)).collect();
        found.extend(more.into_iter().map(|(id, name)| {
            let name = super::sanitize::visible(name).chars().take(100).collect();
            (Ok(id.clone()), ShownImage { address: String::new(), name })
        }));
        if !text.trusted && !text.commenter.is_empty() {
            untrusted += found.len();
            continue;
        }
        for (named, image) in found {
            let attachment = named.clone().unwrap_or_else(|_| shortened(&image.address));
            if known.knows(&attachment, &text.commenter) || !seen.insert(attachment.clone()) {
                continue;
            }
            let earlier = known.failed(&attachment, &text.commenter);
            if earlier.is_none() && next > MOST_LOOKED_AT {
                not_looked_at += 1;
                continue;
            }
            let refusal = match named {
                _ if !text.trusted => Some("its author has no write access".to_owned()),
                Err(why) => Some(why.to_string()),
                Ok(_) if used >= max => {
                    too_many += 1;
                    continue;
                }
                Ok(_) => None,
            };
            let why =
                refusal.clone().unwrap_or_else(|| "the forge does not list it among the files of the issue".into());
            let image = TaskImage {
                number: earlier.map_or(next, |earlier| earlier.number),
                attachment,
                description: image.name,
                commenter: text.commenter.clone(),
                outcome: ImageOutcome::not_used(why),
            };
            if earlier.is_none() {
                next = next.saturating_add(1);
            }
            match refusal {
                Some(_) => plan.refused.images.push(image),
                None => {
                    used += 1;
                    plan.wanted.push(image);
                }
            }
        }
    }
    let counted = |count: usize, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    };
    let notes = [
        (untrusted, format!("{} in comments by people without write access", counted(untrusted, "image", "images"))),
        (too_many, format!("{}, because a loop uses at most {max}", counted(too_many, "more image", "more images"))),
        (
            not_looked_at,
            format!("{}, because at most {MOST_LOOKED_AT} are looked at", counted(not_looked_at, "image", "images")),
        ),
    ];
    let needed = notes.into_iter().filter(|(count, _)| *count > 0);
    plan.refused.notes = needed.map(|(_, note)| format!("not used: {note}")).collect();
    plan
}

/// Returns the start of an address, for messages.
fn shortened(address: &str) -> String {
    address.chars().take(200).collect()
}

#[cfg(test)]
mod tests;
