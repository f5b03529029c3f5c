//! Resolves names and removes addresses to which connections are not permitted.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::domain::trust::address::not_public;

/// Error for an address that is not permitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused(pub String);

impl Refused {
    /// Creates the error for an address of the given kind. `hint` is appended to the sentence.
    pub fn of(address: IpAddr, what: &str, hint: &str) -> Self {
        Self(format!("refused: {address} is not public ({what}){hint}"))
    }

    /// Whether this error caused the failure of a request.
    pub fn caused(error: &reqwest::Error) -> bool {
        let mut cause: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(inner) = cause {
            if inner.is::<Self>() {
                return true;
            }
            cause = inner.source();
        }
        false
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Refused {}

type BoxError = Box<dyn Error + Send + Sync>;

/// DNS resolver for HTTP clients that returns only permitted addresses.
pub struct Resolver {
    /// Whether addresses that are not public are permitted.
    pub allow_private: bool,
    /// Hint appended to the error for a refused address.
    pub hint: &'static str,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let Self { allow_private, hint } = *self;
        Box::pin(async move {
            let found = resolve(name.as_str(), allow_private, hint).await?;
            let addresses: Addrs = Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}

/// Returns the permitted addresses of a name, at least one.
///
/// # Errors
/// The name has no permitted address.
pub async fn resolve(name: &str, allow_private: bool, hint: &str) -> Result<Vec<IpAddr>, BoxError> {
    let all: Vec<IpAddr> = tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect();
    if all.is_empty() {
        return Err("the name has no address".into());
    }
    permitted(&all, allow_private, hint).map_err(BoxError::from)
}

fn permitted(all: &[IpAddr], allow_private: bool, hint: &str) -> Result<Vec<IpAddr>, Refused> {
    let good: Vec<IpAddr> = all.iter().copied().filter(|a| allow_private || not_public(*a).is_none()).collect();
    match all.first() {
        Some(first) if good.is_empty() => Err(Refused::of(*first, not_public(*first).unwrap_or("private"), hint)),
        _ => Ok(good),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HINT: &str = "; a setting allows it";

    #[test]
    fn only_public_addresses_of_mixed_answer_are_used() {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let mixed = [address("10.0.0.1"), address("1.1.1.1"), address("::ffff:127.0.0.1")];
        assert_eq!(permitted(&mixed, false, HINT), Ok(vec![address("1.1.1.1")]));
        assert_eq!(permitted(&mixed, true, HINT).map(|all| all.len()), Ok(3));
        let refused = permitted(&mixed[..1], false, HINT).expect_err("refused");
        assert!(refused.to_string().contains("10.0.0.1") && refused.to_string().ends_with(HINT), "{refused}");
    }

    #[tokio::test]
    async fn loopback_name_is_refused() {
        assert!(resolve("localhost", false, HINT).await.expect_err("refused").is::<Refused>());
        assert!(resolve("localhost", true, HINT).await.is_ok_and(|found| !found.is_empty()));
    }
}
