//! Effects on channels outside of the forge. Each channel has a queue and a worker of its own, so that one that hangs
//! delays no other; of one loop a channel hears in order. A message that does not get through is tried again for a day.

use std::time::Duration;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use super::Engine;
use crate::domain::lifecycle::effect::{Effect, channel_queue};
use crate::domain::report::notice::{Audience, Notice, Occasion};
use crate::escalate::{Channel, Outcome};
use crate::forge::http::jitter;
use crate::store::outbox::{self, ClaimedEffect, EffectOutcome};
use crate::store::{StoreError, StoreResult};

/// How messages to channels are tried.
#[derive(Debug, Clone)]
pub struct NotifySettings {
    /// Time of one try.
    pub patience: Duration,
    /// Wait after the first try that failed; doubles up to `most`, half of it at random.
    pub first: Duration,
    /// Longest wait between two tries, unless the channel asks for more.
    pub most: Duration,
    /// How long a message is tried.
    pub give_up: Duration,
    /// How long a message waits for the escalation issue that it is to link to.
    pub issue: Duration,
}

impl Default for NotifySettings {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(10),
            first: Duration::from_secs(5),
            most: Duration::from_secs(15 * 60),
            give_up: Duration::from_secs(24 * 3_600),
            issue: Duration::from_secs(30),
        }
    }
}

impl NotifySettings {
    /// Wait after a try that failed, where `before` others had failed.
    fn backoff_ms(&self, before: u32) -> i64 {
        let ceiling = self.first.saturating_mul(1 << before.min(20)).min(self.most);
        let half = u64::try_from(ceiling.as_millis() / 2).unwrap_or(u64::MAX);
        i64::try_from(half.saturating_add(jitter(half))).unwrap_or(i64::MAX)
    }
}

/// Milliseconds of a duration.
fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Engine {
    /// What the channels want to hear of.
    pub(super) fn audiences(&self) -> Vec<Audience> {
        self.channels.iter().map(|channel| channel.audience().clone()).collect()
    }

    /// Sends one message a channel, all at the same time; `true` where there was any.
    pub async fn notify_step(&self) -> Result<bool, StoreError> {
        let all = futures::future::join_all(self.channels.iter().map(|channel| self.notify_channel(channel))).await;
        all.into_iter().try_fold(false, |any, one| Ok(any | one?))
    }

    /// Sends one message to a channel; `true` where there was one.
    pub(super) async fn notify_channel(&self, channel: &Channel) -> Result<bool, StoreError> {
        let now = self.clock.now();
        if channel.is_paused(now) {
            return Ok(false);
        }
        let claimed = self.claim(channel_queue(channel.name()), |_| true).await?;
        let Some(claimed) = claimed else { return Ok(false) };
        let Effect::Notify { notice, .. } = &claimed.effect else {
            self.end_notice(claimed, EffectOutcome::Rejected, "no message".to_owned()).await?;
            return Ok(true);
        };
        let age = now.since(claimed.created_at);
        if age >= ms(self.settings.notify.give_up) {
            let why = format!("nobody took it within {} h", self.settings.notify.give_up.as_secs() / 3_600);
            return self.give_up(channel, claimed, why).await;
        }
        let answer = match self.escalation_issue(&claimed, notice).await? {
            Ok(address) => address,
            Err(()) if age < ms(self.settings.notify.issue) => {
                let owner = self.owner.name();
                let at = now.plus_ms(ms(self.settings.poll).max(1));
                let why = "waits for the escalation issue";
                self.fenced(move |c| outbox::reschedule(c, &claimed, &owner, at, false, why)).await?;
                return Ok(false);
            }
            Err(()) => None,
        };
        let delivery = self.delivery_id(&claimed);
        let sending = channel.send(notice, &delivery, answer.as_deref(), self.settings.notify.patience, now);
        let outcome = tokio::select! {
            outcome = sending => outcome,
            () = self.stopping.cancelled() => {
                let owner = self.owner.name();
                let why = "the service stopped; whether it arrived is not known";
                self.fenced(move |c| outbox::reschedule(c, &claimed, &owner, now, true, why)).await?;
                return Ok(false);
            }
        };
        self.settle_notice(channel, claimed, &delivery, outcome).await?;
        Ok(true)
    }

    async fn settle_notice(
        &self,
        channel: &Channel,
        claimed: ClaimedEffect,
        delivery: &str,
        outcome: Outcome,
    ) -> Result<(), StoreError> {
        match outcome {
            Outcome::Delivered { status } => {
                tracing::info!(channel = channel.name(), subject = claimed.subject, delivery, status, "delivered");
                self.metrics.effect("notify", "done");
                self.end_notice(claimed, EffectOutcome::Done, format!("HTTP {status}, delivery {delivery}")).await
            }
            Outcome::Never { why } => self.give_up(channel, claimed, why).await.map(drop),
            Outcome::Later { after_ms, why } => {
                let (owner, now) = (self.owner.name(), self.clock.now());
                let wait = self.settings.notify.backoff_ms(claimed.attempts).max(after_ms.unwrap_or(0));
                let last = claimed.created_at.plus_ms(ms(self.settings.notify.give_up));
                let at = now.plus_ms(wait).min(last);
                let (channel, tries) = (channel.name(), claimed.attempts + 1);
                tracing::warn!(
                    channel,
                    subject = claimed.subject,
                    delivery,
                    tries,
                    why,
                    "a message did not get through"
                );
                self.metrics.effect("notify", "retried");
                self.fenced(move |c| outbox::reschedule(c, &claimed, &owner, at, true, &why)).await
            }
        }
    }

    async fn give_up(&self, channel: &Channel, claimed: ClaimedEffect, why: String) -> Result<bool, StoreError> {
        let (name, subject, key) = (channel.name(), &claimed.subject, &claimed.key);
        tracing::error!(channel = name, subject, key, why, "a message could not be delivered and is given up");
        self.metrics.effect("notify", "rejected");
        self.end_notice(claimed, EffectOutcome::Rejected, format!("given up: {why}")).await?;
        Ok(true)
    }

    async fn end_notice(
        &self,
        claimed: ClaimedEffect,
        ended: EffectOutcome,
        receipt: String,
    ) -> Result<(), StoreError> {
        let (owner, now) = (self.owner.name(), self.clock.now());
        self.fenced(move |c| outbox::finish(c, &claimed, &owner, ended, &receipt, now)).await
    }

    /// Writes under the fence of our lease; where somebody else has taken over there is nothing to write.
    async fn fenced(
        &self,
        write: impl FnOnce(&rusqlite::Connection) -> StoreResult<()> + Send + 'static,
    ) -> Result<(), StoreError> {
        match self.store.write(write).await {
            Err(StoreError::Fenced { name }) => {
                tracing::warn!(name, "an outcome came under an old lease and is dropped");
                Ok(())
            }
            other => other,
        }
    }

    /// Address of the escalation issue that the notice is about, where it has one; an error while it is being opened.
    async fn escalation_issue(
        &self,
        claimed: &ClaimedEffect,
        notice: &Notice,
    ) -> Result<Result<Option<String>, ()>, StoreError> {
        if notice.occasion == Occasion::Resolved {
            return Ok(Ok(None));
        }
        let (subject, key) = (claimed.subject.clone(), format!("escalation/{}", notice.cause));
        let (opening, address) = self.store.read(move |c| outbox::opened(c, &subject, &key)).await?;
        Ok(if opening && address.is_none() { Err(()) } else { Ok(address) })
    }

    /// The same for every try of a message, and for no other message.
    fn delivery_id(&self, claimed: &ClaimedEffect) -> String {
        let name = format!("{}/{}/{}/{}", self.instance, claimed.subject, claimed.id, claimed.created_at.0);
        HEXLOWER.encode(&Sha256::digest(name)[..16])
    }

    /// Takes back what waits for channels that are not configured any more.
    pub(super) async fn forget_channels(&self) -> Result<(), StoreError> {
        let configured: Vec<String> = self.channels.iter().map(|channel| channel.name().to_owned()).collect();
        let now = self.clock.now();
        let count = self.store.write(move |c| outbox::forget_channels(c, &configured, now)).await?;
        if count > 0 {
            tracing::warn!(count, "messages waited for channels that are not configured any more; they are dropped");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_vary() {
        let settings = NotifySettings::default();
        for before in 0..40 {
            let ceiling = (5_000i64 << before.min(20)).min(900_000);
            let wait = settings.backoff_ms(before);
            assert!((ceiling / 2..=ceiling).contains(&wait), "{before}: {wait}");
        }
        // Tries in a day: enough, and not many.
        let day: i64 = (0..)
            .scan(0, |at, n| {
                *at += settings.backoff_ms(n);
                Some(*at)
            })
            .take_while(|at| *at < 86_400_000)
            .count() as i64;
        assert!((90..250).contains(&day), "{day}");
    }
}
