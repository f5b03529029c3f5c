//! Images of a task. They are fetched, stored with the loop and copied for each run; failed downloads are retried
//! before later runs. No failure stops a loop.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use failpoint::kill_point;
use tempfile::NamedTempFile;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::remove_folder;
use crate::agent::RunImages;
use crate::domain::knowledge::prompt::PromptImage;
use crate::domain::loops::{Guidance, GuidanceSource, Loop};
use crate::domain::model::document::images_of;
use crate::domain::model::ids::{AccountKind, RepoRef, User, UserId};
use crate::domain::model::image::{ImageOutcome, TaskImage, TaskImages};
use crate::domain::trust::images::{ImageSettings, ImageText, plan};
use crate::domain::trust::permit::AccessLevel;
use crate::domain::trust::sanitize::document::image_addresses;
use crate::engine::forges::Forges;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::forges::rights::level;
use crate::engine::intake::page::document_of;
use crate::forge::{AttachedText, Attachment, Attachments, DownloadLimits, ForgeResult, ImageFailure};
use crate::process::private;

/// Maximum number of commenters whose permission is queried.
const MOST_COMMENTERS: usize = 30;

/// Images of a run.
#[derive(Default)]
pub(super) struct PlacedImages {
    /// Files for the agent's program.
    pub run: RunImages,
    /// List of the images for the prompt.
    pub listed: Vec<PromptImage>,
    /// Digests of the images; images whose digests a resumed session has received are not sent to it again.
    pub told: Vec<String>,
}

/// Fetches and keeps the images of tasks.
pub(in crate::engine) struct Images {
    pub(in crate::engine) forges: Arc<Forges>,
    pub(in crate::engine) settings: ImageSettings,
    /// Folder of the images of loops, with one subfolder per loop.
    pub(in crate::engine) folder: PathBuf,
}

impl Images {
    /// Fetches new images of the issue and of comments by people with write access.
    pub(super) async fn images_of_issue(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        current: &Loop,
        cancel: &CancellationToken,
    ) -> TaskImages {
        let Some(forge) = self.attachments_of(account) else { return TaskImages::default() };
        let body = ImageText {
            commenter: String::new(),
            trusted: current.task.author_trusted,
            images: images_of(current.task.text.parts()),
            attached: Vec::new(),
        };
        let has_images = !body.images.is_empty();
        let found =
            async { self.texts_of(account, repo, body, forge.attached(repo, current.issue.issue).await?).await };
        let (texts, attachments) = match found.await {
            Ok(found) => found,
            // Without the forge's list, nothing can be fetched; images of the issue are reported.
            Err(error) => {
                tracing::warn!(loop_id = %current.id, %error, "cannot look up the images of an issue");
                let note = format!("could not look up the images of the issue and its comments: {error}");
                let notes = if has_images { vec![note] } else { Vec::new() };
                return TaskImages { notes, unlisted: 1, ..TaskImages::default() };
            }
        };
        let mut found =
            self.fetch(forge, repo, &current.knowledge.images, (current, &texts, &attachments), cancel).await;
        found.listed_again = current.knowledge.images.unlisted > 0;
        self.unless_renamed(account, repo, found).await
    }

    /// Returns the images if the repository still has the name that was used in the requests. Otherwise returns none,
    /// because another repository may have answered; they are looked up again before the next run.
    async fn unless_renamed(&self, account: &ForgeAccount, repo: &RepoRef, found: TaskImages) -> TaskImages {
        if found == TaskImages::default() || self.forges.is_named(account, repo).await {
            return found;
        }
        let notes = vec!["could not look up the images: the repository was renamed meanwhile".to_owned()];
        TaskImages { notes, unlisted: 1, ..TaskImages::default() }
    }

    /// Fetches missing images before a run: images of the current iteration's guidance, and images whose earlier
    /// download failed.
    pub(super) async fn images_before_run(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        current: &Loop,
        cancel: &CancellationToken,
    ) -> TaskImages {
        let mut found = TaskImages::default();
        let mut known = current.knowledge.images.clone();
        let fails = current.knowledge.images.lacks_some();
        if fails {
            found = self.images_of_issue(account, repo, current, cancel).await;
            known.add(found.clone());
        }
        let given = match fails {
            true => current.iterations.iter().flat_map(|iteration| &iteration.guidance).collect(),
            false => current.current().into_iter().flat_map(|iteration| &iteration.guidance).collect::<Vec<_>>(),
        };
        found.add(self.images_of_guidance(account, repo, (current, &known), &given, cancel).await);
        // An image that no text shows any more is not waited for.
        let is_found = |image: &TaskImage| {
            found.images.iter().any(|one| one.attachment == image.attachment && one.commenter == image.commenter)
        };
        let missed =
            current.knowledge.images.images.iter().filter(|image| image.failed_tries().is_some() && !is_found(image));
        let missed: Vec<_> = missed.cloned().collect();
        for mut image in missed.into_iter().filter(|_| !cancel.is_cancelled() && found.unlisted == 0) {
            image.outcome = ImageOutcome::not_used("no text of people with write access still shows it");
            found.images.push(image);
        }
        found
    }

    /// Fetches the images in guidance that are not in `known`.
    async fn images_of_guidance(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        (current, known): (&Loop, &TaskImages),
        given: &[&Guidance],
        cancel: &CancellationToken,
    ) -> TaskImages {
        let Some(forge) = self.attachments_of(account) else { return TaskImages::default() };
        let people = |source| matches!(source, GuidanceSource::Command | GuidanceSource::Review);
        // The permission of their authors was asked when they were given.
        let texts: Vec<ImageText> = given
            .iter()
            .filter(|guidance| people(guidance.source))
            .map(|guidance| ImageText {
                commenter: guidance.who.clone(),
                trusted: true,
                images: image_addresses(&guidance.text),
                attached: Vec::new(),
            })
            .filter(|text| !text.images.is_empty())
            .collect();
        if plan(&texts, forge.addresses(), known, &self.settings) == Default::default() {
            return TaskImages::default();
        }
        let reviewed = given.iter().any(|guidance| guidance.source == GuidanceSource::Review);
        match listed_files(forge, repo, current, reviewed).await {
            Ok(attachments) => {
                let found = self.fetch(forge, repo, known, (current, &texts, &attachments), cancel).await;
                self.unless_renamed(account, repo, found).await
            }
            Err(error) => {
                let notes = vec![format!("images of guidance were not used: {error}")];
                TaskImages { notes, ..TaskImages::default() }
            }
        }
    }

    fn attachments_of<'a>(&self, account: &'a ForgeAccount) -> Option<&'a dyn Attachments> {
        account.forge.attachments().filter(|_| self.settings.enabled)
    }

    /// Returns the texts whose images may be used, and the addresses of all attached files. The text of the issue is
    /// the approved one.
    async fn texts_of(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        mut body: ImageText,
        found: Vec<AttachedText>,
    ) -> ForgeResult<(Vec<ImageText>, HashMap<String, Url>)> {
        let shown = |attachments: &[Attachment]| {
            let shown = attachments.iter().filter_map(|one| Some((one.id.clone(), one.shown_as.clone()?)));
            shown.collect::<Vec<_>>()
        };
        let (mut comments, mut known) = (Vec::new(), BTreeMap::new());
        for text in &found {
            let attached = shown(&text.attachments);
            if !text.is_comment {
                body.attached = attached;
                continue;
            }
            let Some(author) = text.author.as_ref().filter(|author| Some(author.id) != account.user_id()) else {
                continue;
            };
            let may_show_images = text.body.contains("![") || text.body.to_ascii_lowercase().contains("<img");
            let images = match may_show_images {
                true => document_of(account, repo, &text.body, text.html.clone()).await?.images(),
                false => Vec::new(),
            };
            if attached.is_empty() && images.is_empty() {
                continue;
            }
            let trusted = self.may_show(account, repo, author, &mut known).await;
            comments.push(ImageText { commenter: author.login.clone(), trusted, images, attached });
        }
        let texts = std::iter::once(body).chain(comments).collect();
        Ok((texts, by_id(found.into_iter().flat_map(|text| text.attachments))))
    }

    /// Whether a commenter is a person with write access. `known` caches the answers by account.
    async fn may_show(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        author: &User,
        known: &mut BTreeMap<UserId, bool>,
    ) -> bool {
        if author.kind != AccountKind::User {
            return false;
        }
        if let Some(known) = known.get(&author.id) {
            return *known;
        }
        if known.len() >= MOST_COMMENTERS {
            return false;
        }
        let may = match account.forge.permission(repo, author).await {
            Ok(permission) => level(permission) >= AccessLevel::Write,
            Err(error) => {
                tracing::warn!(repo = %repo, who = author.login, %error, "images of a commenter are not used: the permission is unknown");
                false
            }
        };
        known.insert(author.id, may);
        may
    }

    /// Fetches the images of texts one after another and stores their files.
    async fn fetch(
        &self,
        forge: &dyn Attachments,
        repo: &RepoRef,
        known: &TaskImages,
        (current, texts, attachments): (&Loop, &[ImageText], &HashMap<String, Url>),
        cancel: &CancellationToken,
    ) -> TaskImages {
        let settings = &self.settings;
        let decided = plan(texts, forge.addresses(), known, settings);
        let mut found = decided.refused;
        let mut left = settings.max_total_bytes().saturating_sub(known.bytes());
        let mut failed_servers = 0;
        for mut image in decided.wanted {
            if cancel.is_cancelled() {
                break;
            }
            let of_all = left < settings.max_bytes();
            let limits = DownloadLimits {
                max_bytes: settings.max_bytes().min(left),
                too_large: match of_all {
                    true => format!("the images together are larger than {} MiB", settings.max_total_mib),
                    false => format!("it is larger than {} MiB", settings.max_mib),
                },
                max_pixels: settings.max_pixels,
                timeout: std::time::Duration::from_secs(settings.timeout.as_seconds()),
                hosts: settings.hosts.clone(),
            };
            let Some(address) = attachments.get(&image.attachment) else {
                found.images.push(image);
                continue;
            };
            let earlier = known.failed(&image.attachment, &image.commenter).and_then(TaskImage::failed_tries);
            let tries = earlier.unwrap_or(0) + 1;
            // A forge that hangs takes no more time than this.
            if failed_servers >= MOST_TIMEOUTS {
                let why = "the forge did not answer for other images".to_owned();
                image.outcome = ImageOutcome::NotUsed { why, tries };
                found.images.push(image);
                continue;
            }
            let fetched = tokio::select! {
                fetched = forge.image(repo, address, &limits) => fetched,
                () = cancel.cancelled() => break,
            };
            image.outcome = match fetched {
                Ok(fetched) => {
                    let bytes = fetched.bytes.len() as u64;
                    image.outcome = ImageOutcome::Kept { header: fetched.header, bytes };
                    match self.keep_image(current, &image, &fetched.bytes) {
                        Ok(()) => {
                            left = left.saturating_sub(bytes);
                            image.outcome
                        }
                        Err(error) => {
                            ImageOutcome::NotUsed { why: format!("could not write its file: {error}"), tries }
                        }
                    }
                }
                Err(ImageFailure { why, is_temporary }) => {
                    failed_servers += usize::from(why.starts_with("it was not received"));
                    ImageOutcome::NotUsed { why, tries: if is_temporary { tries } else { 0 } }
                }
            };
            kill_point("K45");
            found.images.push(image);
        }
        found.images.sort_by_key(|image| image.number);
        found
    }

    /// Writes the file of an image completely or not at all.
    fn keep_image(&self, current: &Loop, image: &TaskImage, bytes: &[u8]) -> io::Result<()> {
        let folder = self.images_folder(current);
        private::create_folder(&folder)?;
        let mut file = NamedTempFile::new_in(&folder)?;
        file.write_all(bytes)?;
        file.persist(folder.join(image.file().unwrap_or_default())).map_err(|error| error.error)?;
        Ok(())
    }

    fn images_folder(&self, current: &Loop) -> PathBuf {
        self.folder.join(current.id.as_str())
    }

    /// Deletes the images of a loop.
    pub(super) fn forget_images(&self, current: &Loop) {
        remove_folder(&self.images_folder(current));
    }

    /// Copies the images of the loop and of `more` into a run's folder. `told` has the digests of the images that the
    /// resumed session has received. Missing files are skipped.
    pub(super) fn place_images(
        &self,
        current: &Loop,
        more: &TaskImages,
        scratch: &Path,
        told: &[String],
    ) -> PlacedImages {
        let mut all = current.knowledge.images.clone();
        all.add(more.clone());
        let mut placed = PlacedImages::default();
        let (kept, folder) = (self.images_folder(current), scratch.join("images"));
        for (image, name) in all.kept() {
            let path = folder.join(&name);
            let copied = private::create_folder(&folder).and_then(|()| fs::copy(kept.join(&name), &path));
            if let Err(error) = copied {
                tracing::warn!(loop_id = %current.id, image = name, %error, "cannot pass an image to the agent");
                continue;
            }
            let mark = format!("image/{}", image.number);
            if !told.contains(&mark) {
                placed.run.attached.push(path.clone());
            }
            placed.told.push(mark);
            placed.listed.push(PromptImage {
                number: image.number,
                description: image.description.clone(),
                source: image.source(),
                path: path.display().to_string(),
            });
            placed.run.folder = Some(folder.clone());
        }
        placed
    }
}

/// Number of timed-out images after which the remaining images of a task are not fetched.
const MOST_TIMEOUTS: usize = 2;

/// Returns the attached files of a loop's issue and pull request. With `reviewed`, files in comments on lines are
/// included.
async fn listed_files(
    forge: &dyn Attachments,
    repo: &RepoRef,
    current: &Loop,
    reviewed: bool,
) -> ForgeResult<HashMap<String, Url>> {
    let pull = current.pull.opened.as_ref().map(|pull| pull.number);
    let mut files = HashMap::new();
    for number in std::iter::once(current.issue.issue).chain(pull) {
        let found = forge.attached(repo, number).await?;
        files.extend(by_id(found.into_iter().flat_map(|text| text.attachments)));
    }
    if let Some(pull) = pull.filter(|_| reviewed) {
        files.extend(by_id(forge.attached_to_remarks(repo, pull).await?.into_iter()));
    }
    Ok(files)
}

/// Returns the address of each attached file by its id.
fn by_id(attachments: impl Iterator<Item = Attachment>) -> HashMap<String, Url> {
    attachments.map(|attachment| (attachment.id, attachment.address)).collect()
}
