//! Mail in a program built without the feature `mail`: the configuration rejects mail channels, and no sender exists.

use ralph_types::failure::Failure;
use secrecy::SecretString;
use url::Url;

use super::{Channel, MailSettings, NoticeDelivery, SendOutcome};
use crate::domain::model::ids::Timestamp;

const ABSENT: &str = "this program was built without mail; build it with `--features mail`, or use a released package";

pub(super) use NoMail as Mail;

/// No sender.
pub(super) enum NoMail {}

impl NoMail {
    pub(super) fn new(_: MailSettings, _: &Url, _: Option<&SecretString>) -> Result<Self, Failure> {
        Err(Failure::new(ABSENT))
    }
}

impl Channel {
    pub(super) async fn post_mail(&self, _: NoticeDelivery<'_>, _: Timestamp) -> Result<SendOutcome, SendOutcome> {
        Err(SendOutcome::Rejected { why: ABSENT.to_owned() })
    }

    pub(super) async fn probe_mail(&self) -> Result<String, SendOutcome> {
        Err(SendOutcome::Rejected { why: ABSENT.to_owned() })
    }
}
