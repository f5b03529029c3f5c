//! Files that people upload to issues and comments.

use super::{Access, FakeAttachment, FakeRefusal, FakeState};
use ralph_types::ids::{Number, RepoId, UserId};

impl FakeState {
    /// Uploads a file and returns its id, which texts can reference.
    pub fn upload(
        &mut self,
        uploader: UserId,
        repo: RepoId,
        name: &str,
        content: Vec<u8>,
    ) -> Result<String, FakeRefusal> {
        self.require_change(repo, uploader, Access::Read)?;
        let (id, at) = (uuid::Uuid::now_v7().to_string(), self.clock.now());
        let file = FakeAttachment { id: id.clone(), name: name.to_owned(), uploader, repo, issue: None, content, at };
        self.attachments.insert(id.clone(), file);
        Ok(id)
    }

    /// Returns a file if the account has read access to its repository.
    pub fn attachment(&self, viewer: Option<UserId>, id: &str) -> Result<&FakeAttachment, FakeRefusal> {
        let missing = || FakeRefusal::NotFound(format!("attachment {id}"));
        let file = self.attachments.get(id).ok_or_else(missing)?;
        let repo = self.repo(file.repo)?;
        match !repo.private || self.access(repo, viewer) >= Access::Read {
            true => Ok(file),
            false => Err(missing()),
        }
    }

    /// Lists a file beside the text of an issue.
    pub fn attach(&mut self, id: &str, issue: Number) {
        if let Some(file) = self.attachments.get_mut(id) {
            file.issue = Some(issue);
        }
    }

    /// Returns a repository's files that a text references or that an issue lists beside its text, in upload order.
    pub fn attachments_of(&self, repo: RepoId, text: &str, issue: Option<Number>) -> Vec<&FakeAttachment> {
        let belongs = |file: &&FakeAttachment| text.contains(&file.id) || (issue.is_some() && file.issue == issue);
        self.attachments.values().filter(|file| file.repo == repo).filter(belongs).collect()
    }
}
