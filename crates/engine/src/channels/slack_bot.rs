//! Slack with a bot token: posts messages with `chat.postMessage` and edits them with `chat.update`. Error responses have
//! status 200.
//!
//! A message carries its delivery's id as metadata. If an earlier attempt's response was lost, the room's newest messages
//! are searched for this id first. Without the required scope, the message is posted again.

use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Channel, NoticeDelivery, SendOutcome, json_header};
use crate::domain::model::ids::Timestamp;
use crate::domain::report::notice::{Notice, PostedMessage};

/// Metadata type of the bot's messages.
const EVENT_TYPE: &str = "ralph_bot_notice";
/// Temporary errors.
const TRANSIENT: [&str; 7] = [
    "ratelimited",
    "rate_limited",
    "internal_error",
    "fatal_error",
    "service_unavailable",
    "request_timeout",
    "team_added_to_org",
];
/// Errors for messages that were deleted or are no longer editable.
const GONE: [&str; 3] = ["message_not_found", "cant_update_message", "edit_window_closed"];
/// Number of messages in a room that are searched for a message with a lost response.
const SEARCHED: &str = "50";

/// Response of a Slack method.
#[derive(Deserialize, Default)]
#[serde(default)]
struct SlackAnswer {
    ok: bool,
    error: String,
    /// Id of the message.
    ts: String,
    team: String,
    user: String,
    messages: Vec<FoundMessage>,
}

/// Message in a room.
#[derive(Deserialize, Default)]
#[serde(default)]
struct FoundMessage {
    ts: String,
    metadata: Value,
}

impl Channel {
    pub(super) async fn post_slack(
        &self,
        sending: NoticeDelivery<'_>,
        now: Timestamp,
    ) -> Result<SendOutcome, SendOutcome> {
        if sending.again
            && let Some(ts) = self.find_slack(sending.delivery, now).await
        {
            let posted = Some(self.shown(sending.notice, ts));
            return Ok(SendOutcome::Delivered { status: 200, how: "it had arrived before".to_owned(), posted });
        }
        let mut body = self.slack_body(sending.notice, sending);
        body["metadata"] = json!({ "event_type": EVENT_TYPE, "event_payload": { "delivery": sending.delivery } });
        let answer = self.call_slack("chat.postMessage", body, now).await?;
        if !answer.ok {
            return Err(refusal(&answer));
        }
        let posted = (!answer.ts.is_empty()).then(|| self.shown(sending.notice, answer.ts));
        Ok(SendOutcome::Delivered { status: 200, how: String::new(), posted })
    }

    /// Edits a message; `None` if it does not exist or is no longer editable.
    pub(super) async fn change_slack(
        &self,
        notice: &Notice,
        sending: NoticeDelivery<'_>,
        posted: &PostedMessage,
        now: Timestamp,
    ) -> Result<Option<SendOutcome>, SendOutcome> {
        let mut body = self.slack_body(notice, sending);
        body["ts"] = json!(posted.id);
        let answer = self.call_slack("chat.update", body, now).await?;
        if !answer.ok && GONE.contains(&answer.error.as_str()) {
            return Ok(None);
        }
        if !answer.ok {
            return Err(refusal(&answer));
        }
        let shown = self.shown(notice, posted.id.clone());
        Ok(Some(SendOutcome::Delivered {
            status: 200,
            how: format!("changed message {}", posted.id),
            posted: Some(shown),
        }))
    }

    fn slack_body(&self, notice: &Notice, sending: NoticeDelivery<'_>) -> Value {
        let mut body = self.message(notice, sending).into_value();
        body["channel"] = json!(self.place);
        body
    }

    /// Searches the room for a delivery's message; `None` if it is not found or the room cannot be searched.
    async fn find_slack(&self, delivery: &str, now: Timestamp) -> Option<String> {
        let mut url = self.slack_url("conversations.history");
        url.query_pairs_mut()
            .append_pair("channel", &self.place)
            .append_pair("include_all_metadata", "true")
            .append_pair("limit", SEARCHED);
        let answer = self.ask_slack(self.client.get(url), now).await.ok()?;
        if !answer.ok {
            tracing::warn!(channel = self.name(), error = answer.error, "Slack does not show the room's messages");
        }
        let ours = |message: &FoundMessage| {
            message.metadata["event_type"] == EVENT_TYPE && message.metadata["event_payload"]["delivery"] == delivery
        };
        answer.messages.into_iter().find(ours).map(|message| message.ts)
    }

    /// Queries the token's account and returns its description.
    pub(super) async fn probe_slack(&self, now: Timestamp) -> Result<String, SendOutcome> {
        let answer = self.call_slack("auth.test", json!({}), now).await?;
        if !answer.ok {
            return Err(refusal(&answer));
        }
        Ok(format!("as `{}` in `{}`", super::one_line(&answer.user), super::one_line(&answer.team)))
    }

    fn slack_url(&self, method: &str) -> url::Url {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push(method);
        }
        url
    }

    async fn call_slack(&self, method: &str, body: Value, now: Timestamp) -> Result<SlackAnswer, SendOutcome> {
        let request = self.client.post(self.slack_url(method)).headers(json_header()).body(body.to_string());
        self.ask_slack(request, now).await
    }

    async fn ask_slack(&self, request: reqwest::RequestBuilder, now: Timestamp) -> Result<SlackAnswer, SendOutcome> {
        let token = self.secret.as_ref().map_or("", |secret| secret.expose_secret());
        let answer = self.exchange(request.bearer_auth(token), now).await?;
        self.accepted(&answer)?;
        serde_json::from_slice(&answer.said).map_err(|_| SendOutcome::Retry {
            after_ms: None,
            why: format!("not an answer of Slack: {}", self.complaint(answer.status, &answer.said)),
        })
    }
}

/// Returns the outcome of a Slack error.
fn refusal(answer: &SlackAnswer) -> SendOutcome {
    let error: String = super::one_line(&answer.error);
    let why = format!("Slack: {error}");
    if TRANSIENT.contains(&answer.error.as_str()) {
        return SendOutcome::Retry { after_ms: None, why };
    }
    let fix = match answer.error.as_str() {
        "not_in_channel" | "channel_not_found" => "; invite the app to the room, and check `room`",
        "missing_scope" => "; give the app the scope `chat:write`",
        "invalid_auth" | "not_authed" | "account_inactive" | "token_revoked" | "token_expired" => {
            "; the bot token is not valid"
        }
        _ => "",
    };
    SendOutcome::Rejected { why: format!("{why}{fix}") }
}
