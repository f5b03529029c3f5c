//! Messages to notification channels. Each channel has its own queue and worker, so a channel that hangs delays no
//! other; messages of one loop are delivered in order. Failed messages are retried for a day.

use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use failpoint::kill_point;
use sha2::{Digest, Sha256};

use crate::channels::{Channel, NoticeDelivery, SendOutcome};
use crate::domain::lifecycle::effect::{ChannelEffect, Effect, channel_queue};
use crate::domain::report::dashboard_links::DashboardPages;
use crate::domain::report::notice::{ChannelKind, Notice, Occasion, PostedMessage};
use crate::engine::claim::HeldClaim;
use crate::engine::context::ServiceContext;
use crate::engine::leases::Leases;
use crate::engine::settings::ChannelRetrySettings;
use crate::store::outbox::{self, ClaimedEffect, EffectOutcome};
use crate::store::sql::Connection;
use crate::store::{StoreError, StoreResult, channel_messages};

/// Returns a duration in milliseconds, saturating.
fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Sends notices to channels such as Slack or PagerDuty.
pub struct Channels {
    pub(super) context: ServiceContext,
    pub(super) leases: Arc<Leases>,
    pub(super) channels: Vec<Channel>,
    pub(super) retry: ChannelRetrySettings,
    /// Pages of the dashboard that notices link to; `None` if only this machine can reach the dashboard.
    pub(super) dashboard: Option<DashboardPages>,
    /// Random name of this installation, which makes ids of deliveries unique.
    pub(super) instance: String,
}

impl Channels {
    /// Sends one message per channel, concurrently; returns `true` if there was any.
    pub async fn channel_step(&self) -> Result<bool, StoreError> {
        let all = futures::future::join_all(self.channels.iter().map(|channel| self.send_next_notice(channel))).await;
        all.into_iter().try_fold(false, |any, one| Ok(any | one?))
    }

    /// Sends the next message to a channel; returns `true` if there was one.
    pub(super) async fn send_next_notice(&self, channel: &Channel) -> Result<bool, StoreError> {
        let now = self.context.clock.now();
        if channel.is_paused(now) {
            return Ok(false);
        }
        let claimed = self.leases.claim(channel_queue(channel.name()), |_| true).await?;
        let Some(claimed) = claimed else { return Ok(false) };
        let Effect::Channel(ChannelEffect::Notify { notice, .. }) = &claimed.effect else {
            self.finish_notice(claimed, EffectOutcome::Rejected, "not a message".to_owned(), None).await?;
            return Ok(true);
        };
        let age = now.since(claimed.created_at);
        if age >= ms(self.retry.give_up_after) {
            let why = format!("not accepted within {} h", self.retry.give_up_after.as_secs() / 3_600);
            return self.give_up(channel, claimed, why).await;
        }
        let answer = match self.escalation_issue(&claimed, notice).await? {
            Ok(address) => address,
            Err(()) if age < ms(self.retry.issue_wait) => {
                let owner = self.leases.owner.name();
                let at = now.plus_ms(ms(self.leases.pace.poll).max(1));
                let why = "waiting for the escalation issue";
                self.fenced(move |c| outbox::reschedule(c, &claimed, &owner, at, false, why)).await?;
                return Ok(false);
            }
            Err(()) => None,
        };
        let delivery = self.delivery_id(&claimed);
        let dashboard_url = self.dashboard.as_ref().map(|pages| pages.of_loop(&notice.loop_id));
        let notice = &Notice { dashboard_url, ..(**notice).clone() };
        let (subject, name) = (claimed.subject.clone(), channel.name().to_owned());
        let posted = self.context.store.read(move |c| channel_messages::get(c, &subject, &name)).await?;
        let sending = NoticeDelivery {
            notice,
            delivery: &delivery,
            answer: answer.as_deref(),
            posted: posted.as_ref(),
            again: claimed.attempts > 0,
        };
        let sending = claimed.while_held(channel.send(sending, self.retry.request_timeout, now));
        let stopped = async {
            self.context.stopping.cancelled().await;
            tokio::time::sleep(self.retry.stop_wait).await;
        };
        let outcome = tokio::select! {
            outcome = sending => outcome,
            () = stopped => None,
        };
        let Some(outcome) = outcome else {
            let owner = self.leases.owner.name();
            let why = "the delivery was interrupted; the message may have arrived";
            self.fenced(move |c| outbox::reschedule(c, &claimed, &owner, now, true, why)).await?;
            return Ok(false);
        };
        self.record_delivery(channel, claimed, &delivery, outcome).await?;
        Ok(true)
    }

    async fn record_delivery(
        &self,
        channel: &Channel,
        claimed: HeldClaim,
        delivery: &str,
        outcome: SendOutcome,
    ) -> Result<(), StoreError> {
        match outcome {
            SendOutcome::Delivered { status, how, posted } => {
                kill_point("notice-sent");
                tracing::info!(channel = channel.name(), subject = claimed.subject, delivery, status, how, "delivered");
                self.context.metrics.effect("notify", "done");
                let protocol = if channel.audience().kind == ChannelKind::Mail { "SMTP" } else { "HTTP" };
                let how = if how.is_empty() { how } else { format!(", {how}") };
                let receipt = format!("{protocol} {status}{how}, delivery {delivery}");
                let message = posted.map(|posted| (channel.name().to_owned(), posted));
                self.finish_notice(claimed, EffectOutcome::Done, receipt, message).await
            }
            SendOutcome::Nothing { why } => {
                self.finish_notice(claimed, EffectOutcome::Done, format!("nothing sent: {why}"), None).await
            }
            SendOutcome::Rejected { why } => self.give_up(channel, claimed, why).await.map(drop),
            SendOutcome::Retry { after_ms, why } => {
                let (owner, now) = (self.leases.owner.name(), self.context.clock.now());
                let wait = self.retry.backoff_ms(claimed.attempts).max(after_ms.unwrap_or(0));
                let last = claimed.created_at.plus_ms(ms(self.retry.give_up_after));
                let at = now.plus_ms(wait).min(last);
                let (channel, tries) = (channel.name(), claimed.attempts + 1);
                tracing::warn!(
                    channel,
                    subject = claimed.subject,
                    delivery,
                    tries,
                    why,
                    "could not deliver a message to a channel; the service retries"
                );
                self.context.metrics.effect("notify", "retried");
                self.fenced(move |c| outbox::reschedule(c, &claimed, &owner, at, true, &why)).await
            }
        }
    }

    async fn give_up(&self, channel: &Channel, claimed: HeldClaim, why: String) -> Result<bool, StoreError> {
        let (name, subject, key) = (channel.name(), &claimed.subject, &claimed.key);
        tracing::error!(channel = name, subject, key, why, "could not deliver a message to a channel; dropped it");
        self.context.metrics.effect("notify", "rejected");
        self.finish_notice(claimed, EffectOutcome::Rejected, format!("given up: {why}"), None).await?;
        Ok(true)
    }

    /// Stores the receipt of a message, together with the message about the loop that the channel shows now.
    async fn finish_notice(
        &self,
        claimed: HeldClaim,
        ended: EffectOutcome,
        receipt: String,
        message: Option<(String, PostedMessage)>,
    ) -> Result<(), StoreError> {
        let (owner, now) = (self.leases.owner.name(), self.context.clock.now());
        self.fenced(move |c| {
            outbox::finish(c, &claimed, &owner, ended, &receipt, now)?;
            match &message {
                Some((channel, message)) => channel_messages::put(c, &claimed.subject, channel, message, now),
                None => Ok(()),
            }
        })
        .await
    }

    /// Stores an outcome while the lease is held, and keeps it while the disk is full; does nothing if another process has taken
    /// over the lease.
    async fn fenced(
        &self,
        write: impl FnMut(&Connection) -> StoreResult<()> + Send + 'static,
    ) -> Result<(), StoreError> {
        match self.context.store.write_kept(write).await {
            Err(StoreError::Fenced { name }) => {
                tracing::warn!(name, "discarded the outcome of an expired lease; another process has taken over");
                Ok(())
            }
            other => other,
        }
    }

    /// Returns the URL of the notice's escalation issue, if any; `Err(())` while the issue is being opened.
    async fn escalation_issue(
        &self,
        claimed: &ClaimedEffect,
        notice: &Notice,
    ) -> Result<Result<Option<String>, ()>, StoreError> {
        if notice.occasion == Occasion::Resolved {
            return Ok(Ok(None));
        }
        let (subject, key) = (claimed.subject.clone(), format!("escalation/{}", notice.cause));
        let (opening, address) = self.context.store.read(move |c| outbox::opened(c, &subject, &key)).await?;
        Ok(if opening && address.is_none() { Err(()) } else { Ok(address) })
    }

    /// Returns the id of a message. It is unique to the message and the same for all attempts to send it.
    fn delivery_id(&self, claimed: &ClaimedEffect) -> String {
        let name = format!("{}/{}/{}/{}", self.instance, claimed.subject, claimed.id, claimed.created_at.0);
        HEXLOWER.encode(&Sha256::digest(name)[..16])
    }

    /// Drops pending messages of channels that are no longer configured.
    pub(super) async fn forget_channels(&self) -> Result<(), StoreError> {
        let configured: Vec<String> = self.channels.iter().map(|channel| channel.name().to_owned()).collect();
        let now = self.context.clock.now();
        let count = self.context.store.write(move |c| outbox::forget_channels(c, &configured, now)).await?;
        if count > 0 {
            tracing::warn!(count, "dropped pending messages of channels that are no longer configured");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_with_jitter_up_to_the_maximum() {
        let settings = ChannelRetrySettings::default();
        for before in 0..40 {
            let ceiling = (5_000i64 << before.min(20)).min(900_000);
            let wait = settings.backoff_ms(before);
            assert!((ceiling / 2..=ceiling).contains(&wait), "{before}: {wait}");
        }
        // The number of attempts per day is bounded.
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
