//! Tests of tokens: signed, verified, forged, and signed with unusable keys.

use std::collections::BTreeMap;

use super::*;

const PRIVATE: &[u8] = include_bytes!("../../fake-forge/src/github/app-key.pem");
const PUBLIC: &[u8] = include_bytes!("../../fake-forge/src/github/app-key.pub.pem");
const OTHER_PRIVATE: &[u8] = include_bytes!("../../fake-forge/src/github/second-app-key.pem");

type Claims = BTreeMap<String, u64>;

fn claims() -> Claims {
    BTreeMap::from([("exp".to_owned(), 4_000_000_000), ("iat".to_owned(), 5)])
}

fn decoded(token: &str) -> Result<Claims> {
    decode(token, &DecodingKey::from_rsa_pem(PUBLIC).unwrap(), &Validation::new(Algorithm::RS256))
}

#[test]
fn signed_token_is_verified_by_the_public_key() {
    let token = encode(&claims(), &EncodingKey::from_rsa_pem(PRIVATE).unwrap()).unwrap();
    assert_eq!(decoded(&token).unwrap(), claims());
}

#[test]
fn token_of_another_key_or_with_changed_claims_is_rejected() {
    let token = encode(&claims(), &EncodingKey::from_rsa_pem(OTHER_PRIVATE).unwrap()).unwrap();
    assert!(matches!(decoded(&token).unwrap_err().kind(), ErrorKind::InvalidSignature));

    let token = encode(&claims(), &EncodingKey::from_rsa_pem(PRIVATE).unwrap()).unwrap();
    let [header, _, signature] = token.split('.').collect::<Vec<_>>()[..] else { panic!("three parts") };
    // `{"exp":4000000000}`
    let changed = format!("{header}.eyJleHAiOjQwMDAwMDAwMDB9.{signature}");
    assert!(matches!(decoded(&changed).unwrap_err().kind(), ErrorKind::InvalidSignature));
}

#[test]
fn symmetric_keys_and_other_algorithms_are_rejected() {
    let error = encode(&claims(), &EncodingKey::from_secret(b"secret")).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidAlgorithm), "{error}");
    install();
    let token = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims(), &EncodingKey::from_secret(b"secret"));
    assert!(token.is_err());
}

#[test]
fn damaged_key_is_an_error() {
    let error = encode(&claims(), &EncodingKey::from_rsa_der(b"not a key")).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidRsaKey(_)), "{error}");
}
