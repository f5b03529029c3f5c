//! Signature of generic messages: HMAC-SHA256 over the timestamp, a full stop and the raw body.

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

/// Header with the signature, `sha256=<hex>`.
pub const SIGNATURE_HEADER: &str = "x-ralph-signature-256";
/// Header with the time of sending, in seconds since the Unix epoch.
pub const TIMESTAMP_HEADER: &str = "x-ralph-timestamp";

const PREFIX: &str = "sha256=";

/// Returns the signature header's value.
pub(super) fn sign(key: &SecretString, timestamp: &str, body: &[u8]) -> String {
    keyed(key, timestamp, body)
        .map_or_else(String::new, |mac| format!("{PREFIX}{}", HEXLOWER.encode(&mac.finalize().into_bytes())))
}

/// Whether a signature is valid. Receivers must also check the age of the timestamp.
pub fn verify(key: &SecretString, timestamp: &str, body: &[u8], signature: &str) -> bool {
    let digest = signature.strip_prefix(PREFIX).and_then(|hex| HEXLOWER.decode(hex.as_bytes()).ok());
    let (Some(digest), Some(mac)) = (digest, keyed(key, timestamp, body)) else { return false };
    mac.verify_slice(&digest).is_ok()
}

/// Returns the keyed HMAC; always `Some`, because HMAC accepts keys of any length.
fn keyed(key: &SecretString, timestamp: &str, body: &[u8]) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.expose_secret().as_bytes()).ok()?;
    mac.update(timestamp.as_bytes());
    mac.update(b".");
    mac.update(body);
    Some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_covers_key_time_and_body() {
        let key = SecretString::from("a-key-of-at-least-thirty-two-bytes");
        let good = sign(&key, "1790000000", b"{}");
        // Computed with `printf '1790000000.{}' | openssl dgst -sha256 -hmac a-key-of-at-least-thirty-two-bytes`.
        assert_eq!(good, "sha256=f96600c47819a3e315be84137f6a1a2fec08a6e81fb73f439aeb24437c1ea14b");
        assert!(verify(&key, "1790000000", b"{}", &good));
        assert!(!verify(&key, "1790000001", b"{}", &good) && !verify(&key, "1790000000", b"{ }", &good));
        assert!(!verify(&SecretString::from("another"), "1790000000", b"{}", &good));
        assert!(!verify(&key, "1790000000", b"{}", good.trim_start_matches("sha256=")));
    }
}
