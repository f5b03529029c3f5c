//! Validates the keys of the dashboard and logins.

use std::net::SocketAddr;
use std::path::Path;

use super::Validator;
use crate::config::operator::{DashboardSection, LoginSection};
use crate::config::{ConfigScope, DashboardConfig, ForgeConfig, LoginClientConfig, login_clients};

impl Validator<'_> {
    /// Returns the settings of the dashboard.
    pub(super) fn dashboard(
        &mut self,
        section: &DashboardSection,
        forges: &[ForgeConfig],
        public_url: Option<&url::Url>,
        names: &[&str],
    ) -> DashboardConfig {
        let listen = section.listen.as_deref().and_then(|text| {
            let address: Option<SocketAddr> = text.parse().ok();
            if address.is_none() {
                let wanted = "expected an address and a port such as 127.0.0.1:8081 or [::1]:8081";
                self.wrong("dashboard.listen", wanted);
            }
            address
        });
        let has_login = forges.iter().any(|forge| forge.login.is_some());
        let service = self.reach == ConfigScope::Service;
        if listen.is_some_and(|address| !address.ip().is_loopback()) && service && section.enabled && !has_login {
            let why = "without a login the dashboard must be at a loopback address such as 127.0.0.1:8081; set `login` of a \
                       forge first, see docs/guides/dashboard.md";
            self.wrong("dashboard.listen", why);
        }
        let below = public_url.is_some_and(|url| !matches!(url.path(), "" | "/"));
        if has_login && below {
            let why = "the dashboard with its login needs an address without a path, such as https://ralph.example.org";
            self.wrong("server.public_url", why);
        }
        let operators = self.accounts("dashboard.operators", &section.operators, names);
        DashboardConfig { enabled: section.enabled, operators, listen }
    }

    /// Returns the OAuth client for logins with a forge from the configuration file; `None` if the file has none.
    pub(super) fn login(&mut self, key: &str, section: Option<&LoginSection>) -> Option<LoginClientConfig> {
        let (section, key) = (section?, format!("{key}.login"));
        let id = section.client_id.as_deref().map(str::trim).filter(|id| !id.is_empty());
        if id.is_none() {
            self.wrong(&key, "`client_id` is missing; the forge shows it in the settings of the App or application");
        }
        let source = self.one_of(&key, "client_secret", &section.client_secret_env, &section.client_secret_file);
        let Some((field, source)) = source else {
            self.wrong(&key, "no client secret; set `client_secret_env` or `client_secret_file`");
            return None;
        };
        let secret = self.secret(&field, &source)?;
        Some(LoginClientConfig { id: id?.to_owned(), secret })
    }

    /// Reads the clients created by `init --login` for forges without a client in the file.
    pub(super) fn login_clients(&mut self, forges: &mut [ForgeConfig], data: &Path) {
        for forge in forges.iter_mut().filter(|forge| forge.login.is_none()) {
            match login_clients::read(data, &forge.name) {
                Ok(found) => forge.login = found,
                Err(why) => self.wrong("data_dir", why),
            }
        }
    }
}
