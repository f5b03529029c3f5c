//! JSON Web Tokens of GitHub Apps, signed and verified with ring.
//!
//! The crate `jsonwebtoken` has two cryptography backends. One needs the crate `rsa`, which leaks private keys by its timing
//! (RUSTSEC-2023-0071, no fixed version). The other compiles a second TLS library. The program already contains ring.

use std::sync::Once;

use jsonwebtoken::crypto::{CryptoProvider, JwkUtils, JwtSigner, JwtVerifier};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, EncodingKey, Header, Validation};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey};
use serde::Serialize;
use serde::de::DeserializeOwned;
use signature::{Error, Signer, Verifier};

/// Returns a token with the claims, signed with RS256.
///
/// # Errors
/// The key is not an RSA key of 2048 to 4096 bits, or the claims are not a JSON object.
pub fn encode<T: Serialize>(claims: &T, key: &EncodingKey) -> Result<String> {
    install();
    jsonwebtoken::encode(&Header::new(Algorithm::RS256), claims, key)
}

/// Returns the claims of a token signed with RS256.
///
/// # Errors
/// The token is malformed, has another signature or algorithm, or fails validation.
pub fn decode<T: DeserializeOwned>(token: &str, key: &DecodingKey, validation: &Validation) -> Result<T> {
    install();
    jsonwebtoken::decode(token, key, validation).map(|token| token.claims)
}

/// Makes ring the process-wide cryptography backend of `jsonwebtoken`.
fn install() {
    static INSTALLED: Once = Once::new();
    static RING: CryptoProvider =
        CryptoProvider { signer_factory: signer, verifier_factory: verifier, jwk_utils: JwkUtils::new_unimplemented() };
    INSTALLED.call_once(|| {
        let _ = RING.install_default();
    });
}

struct RingSigner(RsaKeyPair);

struct RingVerifier(DecodingKey);

fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    supported(algorithm, key.family())?;
    let pair = RsaKeyPair::from_der(key.inner()).map_err(|error| ErrorKind::InvalidRsaKey(error.to_string()))?;
    Ok(Box::new(RingSigner(pair)))
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    supported(algorithm, key.family())?;
    Ok(Box::new(RingVerifier(key.clone())))
}

fn supported(algorithm: &Algorithm, family: AlgorithmFamily) -> Result<()> {
    if *algorithm != Algorithm::RS256 {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    if family != AlgorithmFamily::Rsa {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    Ok(())
}

impl Signer<Vec<u8>> for RingSigner {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, Error> {
        let mut signature = vec![0; self.0.public().modulus_len()];
        self.0.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).map_err(|_| Error::new())?;
        Ok(signature)
    }
}

impl JwtSigner for RingSigner {
    fn algorithm(&self) -> Algorithm {
        Algorithm::RS256
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, self.0.as_bytes())
            .verify(message, signature)
            .map_err(|_| Error::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        Algorithm::RS256
    }
}

#[cfg(test)]
mod tests;
