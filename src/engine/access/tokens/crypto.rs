//! The cryptography of user tokens: HMAC-SHA256 and Ed25519, with `ring`.
//!
//! TLS uses `ring` too; the backends of `jsonwebtoken` would add a second cryptography library. No
//! other algorithm is implemented, so a token cannot choose a weaker one.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Signer, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, EncodingKey};
use ring::{hmac, signature as asymmetric};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: signer,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes `jsonwebtoken` use this provider. Can be called repeatedly.
pub(super) fn install() {
    // An error means that a provider was installed before.
    let _installed = PROVIDER.install_default();
}

struct Hs256(hmac::Key);

struct EdDsa(asymmetric::UnparsedPublicKey<Vec<u8>>);

fn hs256(key: &[u8]) -> Hs256 {
    Hs256(hmac::Key::new(hmac::HMAC_SHA256, key))
}

fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    match (algorithm, key.family()) {
        (Algorithm::HS256, AlgorithmFamily::Hmac) => Ok(Box::new(hs256(key.as_bytes()))),
        _ => Err(ErrorKind::InvalidAlgorithm.into()),
    }
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let bytes = key.try_get_as_bytes()?;
    match (algorithm, key.family()) {
        (Algorithm::HS256, AlgorithmFamily::Hmac) => Ok(Box::new(hs256(bytes))),
        (Algorithm::EdDSA, AlgorithmFamily::Ed) => {
            let key = asymmetric::UnparsedPublicKey::new(&asymmetric::ED25519, bytes.to_vec());
            Ok(Box::new(EdDsa(key)))
        }
        _ => Err(ErrorKind::InvalidAlgorithm.into()),
    }
}

impl Signer<Vec<u8>> for Hs256 {
    fn try_sign(&self, message: &[u8]) -> Result<Vec<u8>, signature::Error> {
        Ok(hmac::sign(&self.0, message).as_ref().to_vec())
    }
}

impl JwtSigner for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

impl Verifier<Vec<u8>> for Hs256 {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        hmac::verify(&self.0, message, signature).map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

impl Verifier<Vec<u8>> for EdDsa {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = self.0.verify(message, signature);
        verified.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for EdDsa {
    fn algorithm(&self) -> Algorithm {
        Algorithm::EdDSA
    }
}
