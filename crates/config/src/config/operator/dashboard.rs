//! Keys of the dashboard and logins.

use std::path::PathBuf;

use super::AccountEntry;
use crate::domain::model::settings::config_section;

config_section! {
    /// Dashboard and API. With a login, people have their rights on the forge. Without one, the dashboard is only on this
    /// machine, for anybody who has the address that `serve` prints. See `docs/guides/dashboard.md`.
    pub struct DashboardSection {
        /// Whether there are a dashboard and an API.
        pub enabled: bool = true;
        /// Accounts that see all repositories, backends and deliveries: numeric ids, or `forge:id` with several forges. Their
        /// commands need the same permission as everybody's.
        pub operators: Vec<AccountEntry>;
        /// Address and port to listen on. By default those that receive webhooks; without a login, if that is not only on this
        /// machine or has a `public_url`, at the next port of 127.0.0.1. Without a login it must be a loopback address.
        pub listen: Option<String>;
    }
}

config_section! {
    /// Client of logins with a forge: a GitHub App's own client, an OAuth app, or an application of Gitea or Forgejo. Its redirect
    /// address is `/login/callback/NAME` below `server.public_url`. `ralph-bot init --login` makes one on Gitea and Forgejo and keeps
    /// it in `data_dir`. See `docs/guides/dashboard.md`.
    pub struct LoginSection {
        /// Client id. Required.
        pub client_id: Option<String>;
        /// Environment variable with the client secret.
        pub client_secret_env: Option<String>;
        /// File with the client secret.
        pub client_secret_file: Option<PathBuf>;
    }
}
