//! Missed deliveries of a GitHub App's webhook. They are found in the forge's list of deliveries and requested again,
//! so the service receives the original events.

use std::collections::HashSet;

use crate::engine::forges::account::ForgeAccount;
use crate::engine::reconcile::Reconciler;
use crate::forge::{AttemptedDelivery, ForgeErrorKind, Webhooks};
use crate::store::{StoreError, inbox, installation};

/// Overlap with the previously listed period of deliveries, in milliseconds.
const LOOK_BACK_MS: i64 = 600_000;
/// Maximum age of a delivery that a forge can send again, in milliseconds.
const KEPT_MS: i64 = 3 * 24 * 3_600_000;
/// Maximum number of deliveries that are requested per round.
const MAX_ASKED: usize = 100;
/// Number of attempts after which a delivery is no longer requested.
const MAX_ATTEMPTS: usize = 5;

/// Returns the deliveries that never arrived, oldest first: of each, the newest attempt, if no attempt succeeded and
/// the service has not stored the delivery.
pub(super) fn missed<'a>(attempts: &'a [AttemptedDelivery], stored: &HashSet<String>) -> Vec<&'a AttemptedDelivery> {
    let mut found: Vec<&AttemptedDelivery> = Vec::new();
    for one in attempts {
        let of_same = || attempts.iter().filter(|other| other.delivery == one.delivery);
        let newest = of_same().all(|other| (other.at, other.id) <= (one.at, one.id));
        let arrived = stored.contains(&one.delivery) || of_same().any(|other| other.succeeded);
        if newest && !arrived && of_same().count() < MAX_ATTEMPTS {
            found.push(one);
        }
    }
    found.sort_by_key(|one| (one.at, one.id));
    found
}

impl Reconciler {
    /// Requests the deliveries of an account's webhook that were missed since the last call.
    pub(super) async fn ask_for_missed(&self, account: &ForgeAccount) -> Result<(), StoreError> {
        let Some(webhooks) = account.forge.webhooks() else { return Ok(()) };
        let (name, now) = (account.forge.name().clone(), self.context.clock.now());
        let key = format!("deliveries_looked_at/{name}");
        let looked = key.clone();
        let last = self.context.store.read(move |c| installation::get(c, &looked)).await?;
        // Before its first start, the service missed nothing.
        if let Some(last) = last.and_then(|text| text.parse::<i64>().ok()) {
            let since = now.plus_ms(-KEPT_MS).max(crate::domain::model::ids::Timestamp(last).plus_ms(-LOOK_BACK_MS));
            match webhooks.attempted_deliveries(since).await {
                Ok(Some(attempts)) => self.ask_again(account, webhooks, &attempts).await?,
                Ok(None) => return Ok(()),
                Err(error) => {
                    tracing::warn!(forge = %name, %error, "could not list the App's deliveries");
                    return Ok(());
                }
            }
        }
        self.context.store.write(move |c| installation::set(c, &key, &now.0.to_string())).await
    }

    async fn ask_again(
        &self,
        account: &ForgeAccount,
        webhooks: &dyn Webhooks,
        attempts: &[AttemptedDelivery],
    ) -> Result<(), StoreError> {
        let name = account.forge.name().clone();
        let ids: Vec<String> = attempts.iter().map(|one| one.delivery.clone()).collect();
        let stored = self.context.store.read(move |c| inbox::stored(c, &name, &ids)).await?;
        let forge = account.forge.name();
        for one in missed(attempts, &stored).into_iter().take(MAX_ASKED) {
            match webhooks.redeliver(one.id).await {
                Ok(()) => {
                    tracing::info!(%forge, delivery = one.delivery, event = one.event, "requested a missed delivery again")
                }
                Err(error) if matches!(error.kind, ForgeErrorKind::RateLimited { .. }) => return Ok(()),
                Err(error) => {
                    tracing::warn!(%forge, delivery = one.delivery, %error, "could not request a missed delivery again")
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::ids::Timestamp;

    #[test]
    fn only_missed_deliveries_are_requested() {
        let attempt = |id: i64, delivery: &str, at: i64, succeeded: bool| AttemptedDelivery {
            id,
            delivery: delivery.to_owned(),
            at: Timestamp(at),
            succeeded,
            event: "issues".to_owned(),
            status: String::new(),
        };
        let mut attempts = vec![
            attempt(1, "arrived", 1, true),
            attempt(2, "late", 5, false),
            attempt(3, "retried", 2, false),
            attempt(4, "retried", 6, true),
            attempt(5, "twice", 3, false),
            attempt(6, "twice", 4, false),
            // Its answer was lost, but it is stored.
            attempt(7, "stored", 1, false),
        ];
        attempts.extend((0..5).map(|n| attempt(20 + n, "hopeless", n, false)));
        let stored = HashSet::from(["stored".to_owned()]);
        let asked: Vec<i64> = missed(&attempts, &stored).iter().map(|one| one.id).collect();
        assert_eq!(asked, [6, 2]);
    }
}
