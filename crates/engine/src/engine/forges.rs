//! Forges: the service's accounts, the repositories that accept changes, and the rights of people.

pub(super) mod account;
pub(super) mod repository_access;
pub(super) mod rights;

use std::collections::HashMap;

use account::ForgeAccount;
use repository_access::ConfirmedRepositories;

use crate::domain::model::ids::ForgeName;
use crate::engine::context::ServiceContext;
use crate::engine::settings::ForgeSettings;

/// Accounts on forges, with the operator's policies.
pub struct Forges {
    pub(super) context: ServiceContext,
    /// Accounts by configured name.
    pub accounts: HashMap<ForgeName, ForgeAccount>,
    /// Watched repositories and policies.
    pub settings: ForgeSettings,
    /// Repositories whose current names the forge confirmed recently.
    pub(super) confirmed: ConfirmedRepositories,
}
