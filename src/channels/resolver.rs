//! Resolves names and filters addresses that must not be connected to.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::domain::trust::address::not_public;

/// Error: the address of a channel is not permitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused(pub(super) String);

impl Refused {
    /// Creates the error for an address of the given kind.
    pub(super) fn of(address: IpAddr, what: &str) -> Self {
        Self(format!("refused: {address} is not public ({what}); `allow_private: true` allows it"))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// DNS resolver of the HTTP client; returns only permitted addresses.
pub(super) struct Resolver {
    pub(super) allow_private: bool,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allow_private = self.allow_private;
        Box::pin(async move {
            let found = resolve(name.as_str(), allow_private).await?;
            let addresses: Addrs = Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}

/// Returns the permitted addresses of a name; at least one.
pub(super) async fn resolve(name: &str, allow_private: bool) -> Result<Vec<IpAddr>, BoxError> {
    let all: Vec<IpAddr> = tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect();
    if all.is_empty() {
        return Err("the name has no address".into());
    }
    permitted(&all, allow_private).map_err(BoxError::from)
}

fn permitted(all: &[IpAddr], allow_private: bool) -> Result<Vec<IpAddr>, Refused> {
    let good: Vec<IpAddr> = all.iter().copied().filter(|a| allow_private || not_public(*a).is_none()).collect();
    match all.first() {
        Some(first) if good.is_empty() => Err(Refused::of(*first, not_public(*first).unwrap_or("private"))),
        _ => Ok(good),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_of_mixed_answer_are_used() {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let mixed = [address("10.0.0.1"), address("1.1.1.1"), address("::ffff:127.0.0.1")];
        assert_eq!(permitted(&mixed, false), Ok(vec![address("1.1.1.1")]));
        assert_eq!(permitted(&mixed, true).map(|all| all.len()), Ok(3));
        let refused = permitted(&mixed[..1], false).expect_err("refused");
        assert!(refused.to_string().contains("10.0.0.1") && refused.to_string().contains("allow_private"), "{refused}");
    }

    #[tokio::test]
    async fn loopback_name_is_refused() {
        assert!(resolve("localhost", false).await.expect_err("refused").is::<Refused>());
        assert!(resolve("localhost", true).await.is_ok_and(|found| !found.is_empty()));
    }
}
