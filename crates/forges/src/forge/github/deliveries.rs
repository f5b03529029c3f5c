//! Deliveries of the App's webhook: lists attempts and requests redelivery.

use http::Method;
use serde::Deserialize;

use super::auth::Scope;
use super::client::ApiCall;
use super::{GitHub, parsed, wire};
use crate::domain::model::ids::Timestamp;
use crate::forge::{AttemptedDelivery, ForgeResult};

#[derive(Deserialize)]
struct HookDelivery {
    id: i64,
    guid: String,
    delivered_at: String,
    status: String,
    status_code: i64,
    event: String,
}

impl GitHub {
    /// Returns the attempts of the App's deliveries since a time, newest first.
    pub(super) async fn attempts_since(&self, since: Timestamp) -> ForgeResult<Vec<AttemptedDelivery>> {
        let what = "list the deliveries of the App";
        let call = ApiCall::new(Scope::Own, Method::GET, &["app", "hook", "deliveries"], what);
        let call = call.query(&[("per_page", "100")]).background();
        let mut all = Vec::new();
        // The list goes back for days, and is as long as the App is busy.
        let page = |page: Vec<HookDelivery>| page;
        let listed = self
            .client
            .pages_while(&call, page, |one: &HookDelivery| wire::moment(&one.delivered_at).is_ok_and(|at| at >= since));
        for one in listed.await? {
            all.push(AttemptedDelivery {
                id: one.id,
                delivery: one.guid,
                at: parsed(what, wire::moment(&one.delivered_at))?,
                succeeded: (200..300).contains(&one.status_code),
                event: one.event,
                status: format!("{} ({})", one.status, one.status_code),
            });
        }
        all.retain(|one| one.at >= since);
        Ok(all)
    }

    /// Requests the redelivery of an attempt.
    pub(super) async fn send_again(&self, attempt: i64) -> ForgeResult<()> {
        let path = ["app", "hook", "deliveries", &attempt.to_string(), "attempts"];
        let call = ApiCall::new(Scope::Own, Method::POST, &path, format!("send delivery {attempt} again"));
        self.client.send(&call.decoration()).await.map(drop)
    }
}
