//! Addresses of files that people upload to issues. Decides which addresses are attachments of a forge, and from which servers
//! the service may fetch them.

use ralph_types::failure::Failure;
use url::{Host, Url};
use uuid::Uuid;

/// Length of a UUID with hyphens.
const UUID_LENGTH: usize = 36;
/// Hosts of attachments on github.com. A leading dot matches all subdomains.
const GITHUB_COM_HOSTS: [&str; 1] = [".githubusercontent.com"];
/// Start and end of the names of storage hosts for attachments on github.com.
const GITHUB_COM_STORAGE: (&str, &str) = ("github-production-user-asset-", ".s3.amazonaws.com");

/// Rules for the addresses of attachments on one forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttachmentAddresses {
    /// GitHub, with the URL of its web interface.
    GitHub(Url),
    /// Gitea or Forgejo, with the URL of its web interface.
    Gitea(Url),
}

/// Conditions under which the service fetches an attachment from a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerAccess {
    /// The forge itself: the request carries the forge's credential.
    Forge,
    /// A server that the operator configured. The request carries no credential, and the server may have a private address.
    Operator,
    /// A server on the internet. The request carries no credential, and only public addresses are allowed.
    Public,
}

impl AttachmentAddresses {
    fn web(&self) -> &Url {
        match self {
            Self::GitHub(web) | Self::Gitea(web) => web,
        }
    }

    /// Returns the id of the attachment that an address refers to; the address is in a text of this forge.
    ///
    /// # Errors
    /// The address refers to no attachment. The error is the reason, as the last part of a sentence.
    pub fn attachment(&self, address: &str) -> Result<String, Failure> {
        if address.is_empty() {
            return Err(Failure::new("it has no address"));
        }
        let found = self.web().join(address).map_err(|_| "its address is not valid".to_owned())?;
        if !matches!(found.scheme(), "http" | "https") {
            return Err(Failure::new("its address is not a web address; upload the image to the issue"));
        }
        let host = found.host_str().unwrap_or_default();
        let parts: Vec<&str> = found.path_segments().into_iter().flatten().collect();
        let named = match self {
            Self::GitHub(web) if is_same_server(web, &found) => match parts[..] {
                ["user-attachments", "assets", id] | [_, _, "assets", _, id] => uuid(id),
                ["storage", "user", _, "files", id] => uuid(id),
                ["private-user-images", _, name] => uuid_in(name),
                _ => None,
            },
            Self::GitHub(_) if self.is_of_github_com(host) => parts.last().and_then(|name| uuid_in(name)),
            Self::Gitea(web) if is_same_server(web, &found) => match parts[..] {
                [.., "attachments", id] => uuid(id),
                _ => None,
            },
            _ => return Err(Failure::new(format!("it is on another server ({host}); upload the image to the issue"))),
        };
        named.ok_or_else(|| {
            Failure::new("its address does not belong to an uploaded file; upload the image to the issue")
        })
    }

    /// Returns the id of the attachment that an address refers to; the address is in a response of the forge, and may be on any
    /// server. `None` if it refers to no attachment.
    pub fn answered(&self, address: &Url) -> Option<String> {
        address.path_segments()?.next_back().and_then(uuid_in)
    }

    /// Returns the conditions for fetching an attachment from a server. `hosts` are the servers that the operator configured,
    /// with a port if it is not the usual one.
    ///
    /// # Errors
    /// The server must not be contacted. The error is the reason, as the last part of a sentence.
    pub fn access(&self, address: &Url, hosts: &[String]) -> Result<ServerAccess, Failure> {
        let web = self.web();
        if is_same_server(web, address) {
            return Ok(ServerAccess::Forge);
        }
        let host = address.host_str().unwrap_or_default();
        let secure = address.scheme() == "https" || (address.scheme() == "http" && web.scheme() == "http");
        let port = address.port().map_or_else(String::new, |port| format!(":{port}"));
        let named = hosts.iter().any(|known| known.eq_ignore_ascii_case(&format!("{host}{port}")));
        let below = matches!((web.host(), address.host()), (Some(Host::Domain(of)), Some(Host::Domain(name)))
            if name.strip_suffix(of).is_some_and(|rest| rest.ends_with('.')));
        let usual = address.port().is_none();
        match () {
            () if !matches!(address.scheme(), "http" | "https") || address.has_authority_credentials() => {
                Err(Failure::new("it leads to an address that is not a plain web address"))
            }
            () if !secure => Err(Failure::new(format!("it leads to `{host}` without encryption"))),
            () if named => Ok(ServerAccess::Operator),
            () if below && usual => {
                Ok(if self.is_github_com() { ServerAccess::Public } else { ServerAccess::Operator })
            }
            () if self.is_of_github_com(host) && usual => Ok(ServerAccess::Public),
            () => Err(Failure::new(format!(
                "it leads to `{host}{port}`, which is not known as a server of the forge; `images.hosts` allows it"
            ))),
        }
    }

    fn is_github_com(&self) -> bool {
        matches!(self, Self::GitHub(web) if web.host_str() == Some("github.com"))
    }

    /// Whether a host stores attachments of github.com.
    fn is_of_github_com(&self, host: &str) -> bool {
        let (start, end) = GITHUB_COM_STORAGE;
        // One label of letters, digits and hyphens in between.
        let storage = host.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
        let is_storage = storage.is_some_and(|name| !name.is_empty() && !name.contains('.'));
        self.is_github_com() && (is_storage || GITHUB_COM_HOSTS.iter().any(|end| host.ends_with(end)))
    }
}

/// Whether two URLs have the same scheme, host and port.
fn is_same_server(one: &Url, other: &Url) -> bool {
    one.origin().is_tuple() && one.origin() == other.origin() && !other.has_authority_credentials()
}

trait HasCredentials {
    fn has_authority_credentials(&self) -> bool;
}

impl HasCredentials for Url {
    fn has_authority_credentials(&self) -> bool {
        !self.username().is_empty() || self.password().is_some()
    }
}

/// Returns a UUID in lower case; `None` if the text is no UUID.
fn uuid(text: &str) -> Option<String> {
    let valid = text.len() == UUID_LENGTH && Uuid::try_parse(text).is_ok();
    valid.then(|| text.to_ascii_lowercase())
}

/// Returns the last UUID in a name such as `12-a1b2….png`, in lower case.
fn uuid_in(name: &str) -> Option<String> {
    let starts = 0..=name.len().checked_sub(UUID_LENGTH)?;
    starts.rev().find_map(|at| uuid(name.get(at..at + UUID_LENGTH)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0bec7adc-52c5-432f-bca7-c9a3186649b4";

    fn at(address: &str) -> Url {
        Url::parse(address).expect("an address")
    }

    fn github() -> AttachmentAddresses {
        AttachmentAddresses::GitHub(at("https://github.com"))
    }

    #[test]
    fn attachments_are_recognized_by_their_addresses() {
        let enterprise = AttachmentAddresses::GitHub(at("https://ghe.example"));
        let gitea = AttachmentAddresses::Gitea(at("https://git.example/forge/"));
        let cases = [
            (&github(), format!("https://github.com/user-attachments/assets/{ID}")),
            (&github(), format!("https://github.com/o/r/assets/123/{ID}")),
            (&github(), format!("https://user-images.githubusercontent.com/1/2-{ID}.png")),
            (&github(), format!("https://private-user-images.githubusercontent.com/1/2-{ID}.png?jwt=x")),
            (&github(), format!("/user-attachments/assets/{}", ID.to_uppercase())),
            (&enterprise, format!("https://ghe.example/storage/user/5/files/{ID}")),
            (&gitea, format!("/attachments/{ID}")),
            (&gitea, format!("attachments/{ID}")),
            (&gitea, format!("https://git.example/forge/o/r/attachments/{ID}")),
        ];
        for (forge, address) in cases {
            assert_eq!(forge.attachment(&address).ok().as_deref(), Some(ID), "{address}");
        }
    }

    #[test]
    fn other_addresses_are_refused_with_a_reason() {
        let gitea = AttachmentAddresses::Gitea(at("https://git.example"));
        let cases = [
            (&github(), "".to_owned(), "no address"),
            (&github(), "data:image/png;base64,AAAA".to_owned(), "not a web address"),
            (&github(), "file:///etc/passwd".to_owned(), "not a web address"),
            (&github(), format!("https://evil.example/user-attachments/assets/{ID}"), "another server (evil.example)"),
            (&github(), format!("https://github.com.evil.example/assets/{ID}"), "another server"),
            (&github(), format!("https://githubusercontent.com/{ID}"), "another server"),
            (&github(), format!("https://me@github.com/user-attachments/assets/{ID}"), "another server"),
            (&github(), format!("http://169.254.169.254/{ID}"), "another server"),
            (&github(), "https://github.com/o/r/raw/main/a.png".to_owned(), "does not belong to an uploaded file"),
            (
                &github(),
                "https://raw.githubusercontent.com/o/r/main/a.png".to_owned(),
                "does not belong to an uploaded file",
            ),
            (&gitea, format!("http://git.example/attachments/{ID}"), "another server"),
            (&gitea, format!("https://git.example:3000/attachments/{ID}"), "another server"),
            (&gitea, "/attachments/1".to_owned(), "does not belong to an uploaded file"),
            (&gitea, format!("/attachments/{ID}/x"), "does not belong to an uploaded file"),
        ];
        for (forge, address, why) in cases {
            let refused = forge.attachment(&address).expect_err(&address).to_string();
            assert!(refused.contains(why), "{address}: {refused}");
        }
    }

    /// See docs/research/threats.md#i6.
    #[test]
    fn only_servers_of_the_forge_are_contacted() {
        let gitea = AttachmentAddresses::Gitea(at("http://127.0.0.1:3000/"));
        let enterprise = AttachmentAddresses::GitHub(at("https://ghe.example"));
        let hosts = ["minio.internal:9000".to_owned()];
        let cases = [
            (&github(), "https://github.com/user-attachments/assets/x", Some(ServerAccess::Forge)),
            (&github(), "https://private-user-images.githubusercontent.com/x?jwt=y", Some(ServerAccess::Public)),
            (&github(), "https://github-production-user-asset-6210df.s3.amazonaws.com/x", Some(ServerAccess::Public)),
            (&github(), "https://github-production-user-asset-.evil.example/.s3.amazonaws.com", None),
            (&github(), "https://github-production-user-asset-a.b.s3.amazonaws.com/x", None),
            (&github(), "https://other-bucket.s3.amazonaws.com/x", None),
            (&github(), "https://evilgithub.com/x", None),
            (&github(), "https://github.com:8443/x", None),
            (&github(), "http://github.com/x", None),
            (&github(), "https://me:secret@github.com/x", None),
            (&github(), "ftp://github.com/x", None),
            (&enterprise, "https://media.ghe.example/x", Some(ServerAccess::Operator)),
            (&enterprise, "https://user-images.githubusercontent.com/x", None),
            (&enterprise, "https://media-ghe.example/x", None),
            (&gitea, "http://127.0.0.1:3000/attachments/x", Some(ServerAccess::Forge)),
            (&gitea, "http://127.0.0.1:3001/x", None),
            (&gitea, "http://169.254.169.254/latest/meta-data", None),
            (&gitea, "http://minio.internal:9000/bucket/x", Some(ServerAccess::Operator)),
            (&gitea, "http://minio.internal/bucket/x", None),
        ];
        for (forge, address, access) in cases {
            assert_eq!(forge.access(&at(address), &hosts).ok(), access, "{address}");
        }
        let insecure = AttachmentAddresses::Gitea(at("https://git.example"));
        assert!(insecure.access(&at("http://minio.internal:9000/x"), &hosts).is_err(), "not without encryption");
    }
}
