//! Verifies the signatures of deliveries: HMAC-SHA256 over the raw body, compared in constant time.

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

/// Length of a digest in hexadecimal characters.
const HEX_CHARS: usize = 64;

/// Style of a forge's signature headers. The route determines it, never a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureStyle {
    /// `X-Hub-Signature-256: sha256=<hex>`.
    GitHub,
    /// `X-Gitea-Signature: <hex>`, or another header that Gitea and Forgejo send.
    Gitea,
}

impl SignatureStyle {
    /// Returns the names of the signature headers in lower case; the first one present is used.
    pub fn header_names(self) -> &'static [&'static str] {
        match self {
            Self::GitHub => &["x-hub-signature-256"],
            Self::Gitea => &["x-gitea-signature", "x-forgejo-signature", "x-hub-signature-256"],
        }
    }
}

/// Whether a body was signed with one of the secrets; there are several during a rotation. `header` is the lower-case
/// name of the header with `values`. There must be exactly one value: a digest in lower-case hexadecimal, with the
/// prefix `sha256=` in `x-hub-signature-256` and without a prefix in others. Empty secrets never match.
pub fn verify(secrets: &[SecretString], header: &str, values: &[&str], body: &[u8]) -> bool {
    let [value] = values else { return false };
    let digest = if header == "x-hub-signature-256" { value.strip_prefix("sha256=") } else { Some(*value) };
    let Some(digest) = digest.filter(|digest| digest.len() == HEX_CHARS) else { return false };
    let Ok(digest) = HEXLOWER.decode(digest.as_bytes()) else { return false };
    // All secrets are tried, so that the time does not reveal which one matched.
    secrets.iter().fold(false, |found, secret| found | matches(secret, &digest, body))
}

/// Verifies the signature in the headers of a request. `values` returns all values of a header by its lower-case name.
pub fn verify_headers<'a>(
    style: SignatureStyle,
    secrets: &[SecretString],
    values: impl Fn(&str) -> Vec<&'a str>,
    body: &[u8],
) -> bool {
    style
        .header_names()
        .iter()
        .map(|name| (name, values(name)))
        .find(|(_, found)| !found.is_empty())
        .is_some_and(|(name, found)| verify(secrets, name, &found, body))
}

/// Returns the signature of a body in lower-case hexadecimal, without `sha256=`.
pub fn sign(secret: &SecretString, body: &[u8]) -> String {
    keyed(secret).map_or_else(String::new, |mut mac| {
        mac.update(body);
        HEXLOWER.encode(&mac.finalize().into_bytes())
    })
}

fn matches(secret: &SecretString, digest: &[u8], body: &[u8]) -> bool {
    if secret.expose_secret().is_empty() {
        return false;
    }
    keyed(secret).is_some_and(|mut mac| {
        mac.update(body);
        mac.verify_slice(digest).is_ok()
    })
}

/// Returns the HMAC of a secret; always `Some`, because HMAC accepts keys of any length.
fn keyed(secret: &SecretString) -> Option<Hmac<Sha256>> {
    Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = b"Hello, World!";
    const DIGEST: &str = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    const HUB: &str = "x-hub-signature-256";
    const GITEA: &str = "x-gitea-signature";

    fn secret() -> SecretString {
        SecretString::from("It's a Secret to Everybody")
    }

    fn hub(value: &str) -> bool {
        verify(&[secret()], HUB, &[value], BODY)
    }

    #[test]
    fn test_vector_is_accepted_in_every_header() {
        assert_eq!(sign(&secret(), BODY), DIGEST);
        assert!(hub(&format!("sha256={DIGEST}")));
        for name in ["x-gitea-signature", "x-forgejo-signature"] {
            assert!(verify(&[secret()], name, &[DIGEST], BODY), "{name}");
            assert!(!verify(&[secret()], name, &[&format!("sha256={DIGEST}")], BODY), "{name}");
        }
    }

    /// See docs/research/threats.md#w1.
    #[test]
    fn flipped_bits_are_refused() {
        let digest = HEXLOWER.decode(DIGEST.as_bytes()).unwrap();
        for bit in 0..256 {
            let mut flipped = digest.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!hub(&format!("sha256={}", HEXLOWER.encode(&flipped))), "bit {bit} of the digest");
        }
        for bit in 0..BODY.len() * 8 {
            let mut body = BODY.to_vec();
            body[bit / 8] ^= 1 << (bit % 8);
            assert!(!verify(&[secret()], GITEA, &[DIGEST], &body), "bit {bit} of the body");
        }
    }

    /// See docs/research/threats.md#w1.
    #[test]
    fn malformed_values_are_refused() {
        for value in [
            "",
            "sha256=",
            DIGEST,
            &format!("sha256={}", DIGEST.to_uppercase()),
            &format!("SHA256={DIGEST}"),
            &format!("sha1={}", &DIGEST[..40]),
            &format!("sha1={DIGEST}"),
            &format!("sha256={}", &DIGEST[..62]),
            &format!("sha256={}", &DIGEST[..63]),
            &format!("sha256={DIGEST}00"),
            &format!("sha256= {DIGEST}"),
            &format!(" sha256={DIGEST}"),
            &format!("sha256={DIGEST} "),
            &format!("sha256={}zz", &DIGEST[..62]),
            &format!("sha256={DIGEST},sha256={DIGEST}"),
            &format!("sha256={}é", &DIGEST[..62]),
        ] {
            assert!(!hub(value), "{value:?}");
        }
        let good = format!("sha256={DIGEST}");
        assert!(!verify(&[secret()], HUB, &[], BODY));
        assert!(!verify(&[secret()], HUB, &[&good, &good], BODY));
    }

    /// See docs/research/threats.md#w2.
    #[test]
    fn any_nonempty_secret_is_accepted() {
        let other = SecretString::from("next");
        assert!(verify(&[other.clone(), secret()], GITEA, &[DIGEST], BODY));
        assert!(verify(&[secret(), other.clone()], GITEA, &[DIGEST], BODY));
        assert!(!verify(&[other], GITEA, &[DIGEST], BODY));
        assert!(!verify(&[], GITEA, &[DIGEST], BODY));
        let empty = SecretString::from("");
        assert!(!verify(std::slice::from_ref(&empty), GITEA, &[&sign(&empty, BODY)], BODY));
    }

    #[test]
    fn empty_body_is_verified() {
        let signature = sign(&secret(), b"");
        assert!(verify(&[secret()], GITEA, &[&signature], b""));
        assert!(!verify(&[secret()], GITEA, &[&signature], b" "));
    }

    #[test]
    fn first_present_header_is_used() {
        let hub_value = format!("sha256={DIGEST}");
        let check = |style, headers: &[(&str, &str)]| {
            let values = |name: &str| {
                headers.iter().filter(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()).collect::<Vec<_>>()
            };
            let owned: Vec<(String, Vec<String>)> =
                SignatureStyle::Gitea.header_names().iter().map(|n| ((*n).to_owned(), values(n))).collect();
            verify_headers(
                style,
                &[secret()],
                |name| {
                    owned.iter().filter(|(n, _)| n == name).flat_map(|(_, v)| v.iter().map(String::as_str)).collect()
                },
                BODY,
            )
        };
        use SignatureStyle::{GitHub, Gitea};
        assert!(check(GitHub, &[(HUB, &hub_value)]));
        assert!(check(Gitea, &[(HUB, &hub_value)]));
        assert!(check(Gitea, &[(GITEA, DIGEST)]));
        assert!(!check(GitHub, &[(GITEA, DIGEST)]), "a Gitea signature is not accepted for GitHub");
        assert!(!check(Gitea, &[(GITEA, ""), (HUB, &hub_value)]), "an empty digest is not skipped");
        assert!(!check(Gitea, &[(GITEA, DIGEST), (GITEA, DIGEST)]));
        assert!(!check(Gitea, &[]));
        assert!(!check(GitHub, &[("x-hub-signature", "sha1=abc")]));
    }
}
