//! Discord: posts webhook messages with `wait=true`, which returns their ids, and edits them with `PATCH`.
//!
//! A webhook cannot list its messages, and its posts do not support `nonce`. A message whose response was lost is therefore
//! posted again, with a note about it.

use serde::Deserialize;
use url::Url;

use super::{Channel, HttpAnswer, NoticeDelivery, SendOutcome, json_header};
use crate::domain::model::ids::Timestamp;
use crate::domain::report::notice::{Notice, PostedMessage};

/// Discord's error code for a message that does not exist.
const UNKNOWN_MESSAGE: u64 = 10_008;

/// Response that contains a message, a webhook or an error.
#[derive(Deserialize, Default)]
#[serde(default)]
struct DiscordAnswer {
    id: String,
    code: u64,
    name: String,
}

impl DiscordAnswer {
    fn of(answer: &HttpAnswer) -> Self {
        serde_json::from_slice(&answer.said).unwrap_or_default()
    }
}

/// Returns the webhook's id, the non-secret part of its address.
pub(super) fn place(url: &Url) -> String {
    let mut segments = url.path_segments().into_iter().flatten().skip_while(|segment| *segment != "webhooks");
    segments.nth(1).unwrap_or_default().to_owned()
}

impl Channel {
    pub(super) async fn post_discord(
        &self,
        sending: NoticeDelivery<'_>,
        now: Timestamp,
    ) -> Result<SendOutcome, SendOutcome> {
        let mut url = self.url.clone();
        url.query_pairs_mut().append_pair("wait", "true");
        let body = self.text(self.message(sending.notice, sending));
        let answer = self.exchange(self.client.post(url).headers(json_header()).body(body), now).await?;
        let status = self.accepted(&answer)?;
        let id = DiscordAnswer::of(&answer).id;
        let posted = (!id.is_empty()).then(|| self.shown(sending.notice, id));
        Ok(SendOutcome::Delivered { status, how: String::new(), posted })
    }

    /// Edits a message; `None` if it does not exist.
    pub(super) async fn change_discord(
        &self,
        notice: &Notice,
        sending: NoticeDelivery<'_>,
        posted: &PostedMessage,
        now: Timestamp,
    ) -> Result<Option<SendOutcome>, SendOutcome> {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["messages", &posted.id]);
        }
        // Repeating an edit does not create a second message.
        let body = self.text(self.message(notice, NoticeDelivery { again: false, ..sending }));
        let answer = self.exchange(self.client.patch(url).headers(json_header()).body(body), now).await?;
        if answer.status == 404 && DiscordAnswer::of(&answer).code == UNKNOWN_MESSAGE {
            return Ok(None);
        }
        let status = self.accepted(&answer)?;
        let shown = self.shown(notice, posted.id.clone());
        Ok(Some(SendOutcome::Delivered { status, how: format!("changed message {}", posted.id), posted: Some(shown) }))
    }

    /// Queries the webhook and returns its description.
    pub(super) async fn probe_discord(&self, now: Timestamp) -> Result<String, SendOutcome> {
        let answer = self.exchange(self.client.get(self.url.clone()), now).await?;
        self.accepted(&answer)?;
        Ok(format!("webhook `{}`", super::one_line(&DiscordAnswer::of(&answer).name)))
    }
}
