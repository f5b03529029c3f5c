//! Cost limits that a running call shares with other calls. They are checked before each request of the agent to a
//! model.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use ralph_types::failure::Failure;

use crate::agent::CostGuard;
use crate::clock::Clock;
use crate::domain::model::ids::Money;
use crate::engine::context::ServiceContext;
use crate::store::Store;
use crate::store::calls::{self, CallContext};

/// Cost guard of one call.
pub(super) struct CallGuard {
    store: Store,
    clock: Clock,
    caller: CallContext,
}

impl fmt::Debug for CallGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallGuard")
    }
}

impl CallGuard {
    /// Creates the guard of a call that has started.
    pub(super) fn of(context: &ServiceContext, caller: &CallContext) -> Arc<dyn CostGuard> {
        Arc::new(Self { store: context.store.clone(), clock: context.clock.clone(), caller: caller.clone() })
    }
}

#[async_trait]
impl CostGuard for CallGuard {
    async fn admit(&self, committed: Money) -> Result<(), Failure> {
        let (caller, now) = (self.caller.clone(), self.clock.now());
        match self.store.write(move |c| calls::commit_cost(c, &caller, committed, now)).await {
            Ok(None) => Ok(()),
            Ok(Some(reached)) => Err(Failure::new(reached.to_string())),
            Err(error) => Err(Failure::new("cannot record the cost of the request").caused_by(error)),
        }
    }

    async fn note(&self, committed: Money) {
        let (caller, now) = (self.caller.clone(), self.clock.now());
        // The next request that has to be admitted reports the limit that this may reach.
        if let Err(error) = self.store.write(move |c| calls::record_cost(c, &caller, committed, now)).await {
            tracing::warn!(%error, "could not record the additional cost of a request before the end of its run");
        }
    }
}
