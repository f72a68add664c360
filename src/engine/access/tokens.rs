//! Verifies user tokens: JWTs that an application signs, each for one user and a limited time.
//!
//! The configured key determines the algorithm, not the token's header (P8). The claims `sub`,
//! `aud` and `exp` are required, and `exp` is at most 24 hours ahead. Times are compared with the
//! clock that the caller passes. Error messages do not quote the token. Start with
//! [`Tokens::open`].

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{self, ErrorKind};
use jsonwebtoken::signature::{self, Signer, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, EncodingKey, Header, Validation};
use ring::{hmac, signature as asymmetric};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::domain::keys::Material;
use crate::domain::{Invalid, Secret, TokenKey, UserId};

/// The longest validity of a token.
pub const LONGEST: TimeDelta = TimeDelta::hours(24);
/// The tolerated difference between the application's clock and ours.
const LEEWAY: TimeDelta = TimeDelta::seconds(30);

/// Verifies user tokens. Can also create them, for trials.
#[derive(Clone)]
pub struct Tokens {
    audience: String,
    keys: Arc<[TokenKey]>,
}

/// A verified token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The value of `sub`.
    pub user: UserId,
    /// The expiry time.
    pub until: DateTime<Utc>,
    /// When the token was issued. Without `iat`, it is the earliest possible time.
    pub issued: DateTime<Utc>,
}

/// The reasons why a token is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No key is configured.
    #[error("user tokens are not configured here (tokens.keys), and this is not a server key")]
    Unconfigured,
    /// The token does not have three parts, or its header or claims cannot be parsed.
    #[error("the token cannot be read: it must be a JWT with text as sub and numbers as times")]
    Unreadable,
    /// The header names no key, and several are configured.
    #[error("the token's header names no key (kid), and several are configured")]
    WithoutKey,
    /// The header names a key that is not configured.
    #[error("the token's header names a key (kid) that is not configured")]
    UnknownKey,
    /// The algorithm in the header is not that of the key.
    #[error("the token's algorithm (alg) is not its key's: use {0}")]
    Algorithm(&'static str),
    /// The signature is wrong.
    #[error("the token's signature is not its key's")]
    Signature,
    /// A required claim is missing.
    #[error("the token lacks the claim {0:?}")]
    Lacks(String),
    /// The token has another audience.
    #[error("the token's audience (aud) is not {0:?}")]
    Audience(String),
    /// The token has expired.
    #[error("the token has expired; ask the application for a new one")]
    Expired,
    /// The token is not valid yet.
    #[error("the token is of the future (nbf, iat): compare the clocks")]
    Early,
    /// The token is valid for longer than [`LONGEST`].
    #[error("the token lasts for more than {} hours (exp)", LONGEST.num_hours())]
    TooLong,
    /// The token was issued to an earlier user with the same id.
    #[error(
        "the token was issued to an earlier user of this id; ask the application for a new one"
    )]
    EarlierUser,
    /// The subject is not a valid user id.
    #[error("the token's subject (sub) is no user id: {0}")]
    Subject(String),
}

/// The claims of a token. Times are seconds since 1970 and may have fractions (RFC 7519, 2).
#[derive(Debug, Deserialize)]
struct Claims {
    sub: Option<String>,
    exp: Option<f64>,
    nbf: Option<f64>,
    iat: Option<f64>,
}

impl Tokens {
    /// Accepts tokens for this audience that are signed with one of these keys.
    pub fn new(audience: impl Into<String>, keys: Vec<TokenKey>) -> Self {
        install();
        Self {
            audience: audience.into(),
            keys: keys.into(),
        }
    }

    /// Returns whether a text has the form of a token, not that of a server key: three parts,
    /// separated by dots.
    pub fn is_like_one(text: &str) -> bool {
        text.split('.').count() == 3
    }

    /// Verifies a token at the time `now`.
    pub fn open(&self, token: &str, now: DateTime<Utc>) -> Result<Opened, Refused> {
        if self.keys.is_empty() {
            return Err(Refused::Unconfigured);
        }
        let header = jsonwebtoken::decode_header(token).map_err(|_| Refused::Unreadable)?;
        // Critical header parameters that are not understood make a token invalid (RFC 7515,
        // 4.1.11).
        if header.crit.is_some() {
            return Err(Refused::Unreadable);
        }
        let key = match (&header.kid, &*self.keys) {
            (None, [only]) => only,
            (None, _) => return Err(Refused::WithoutKey),
            (Some(id), keys) => {
                let found = keys.iter().find(|key| key.id == *id);
                found.ok_or(Refused::UnknownKey)?
            }
        };
        let (algorithm, decoding) = match &key.material {
            Material::Hs256(secret) => (
                Algorithm::HS256,
                DecodingKey::from_secret(secret.expose().as_bytes()),
            ),
            Material::EdDsa(public) => (Algorithm::EdDSA, DecodingKey::from_ed_der(public)),
        };
        let mut validation = Validation::new(algorithm);
        validation.set_required_spec_claims(&["exp", "sub", "aud"]);
        validation.set_audience(&[&self.audience]);
        // The library would compare with the system clock; `until` uses `now`.
        (validation.validate_exp, validation.validate_nbf) = (false, false);
        let decoded = jsonwebtoken::decode::<Claims>(token, &decoding, &validation);
        let claims = decoded
            .map_err(|error| match error.into_kind() {
                ErrorKind::InvalidAlgorithm => Refused::Algorithm(name(&key.material)),
                ErrorKind::InvalidSignature => Refused::Signature,
                ErrorKind::InvalidAudience => Refused::Audience(self.audience.clone()),
                ErrorKind::MissingRequiredClaim(claim) => Refused::Lacks(claim),
                _ => Refused::Unreadable,
            })?
            .claims;
        let until = until(&claims, now)?;
        let subject = claims.sub.ok_or_else(|| Refused::Lacks("sub".into()))?;
        let user = UserId::new(subject).map_err(|invalid| Refused::Subject(invalid.why))?;
        let issued = claims.iat.map(|iat| (iat * 1_000.0) as i64);
        let issued = issued.and_then(DateTime::from_timestamp_millis);
        Ok(Opened {
            user,
            until,
            issued: issued.unwrap_or(until - LONGEST),
        })
    }

    /// Creates a token for a trial, signed with the first HS256 secret. It is valid from `now` for
    /// `lasts`. Returns `None` if no secret is configured.
    ///
    /// # Errors
    ///
    /// [`Invalid`] if `lasts` is not positive or exceeds [`LONGEST`].
    pub fn make(
        &self,
        user: &UserId,
        now: DateTime<Utc>,
        lasts: TimeDelta,
    ) -> Result<Option<Secret>, Invalid> {
        if lasts <= TimeDelta::zero() || lasts > LONGEST {
            let why = format!("is not from 1 to {}", LONGEST.num_hours());
            return Err(Invalid::new("hours", lasts.num_hours(), why));
        }
        let secret = |key: &TokenKey| match &key.material {
            Material::Hs256(secret) => Some((key.id.clone(), secret.clone())),
            Material::EdDsa(_) => None,
        };
        let Some((id, secret)) = self.keys.iter().find_map(secret) else {
            return Ok(None);
        };
        let header = Header {
            kid: Some(id),
            ..Header::new(Algorithm::HS256)
        };
        let claims: Map<String, Value> = [
            ("sub", user.as_str().into()),
            ("aud", self.audience.as_str().into()),
            ("iat", now.timestamp().into()),
            ("exp", (now + lasts).timestamp().into()),
        ]
        .map(|(claim, value): (_, Value)| (claim.to_owned(), value))
        .into_iter()
        .collect();
        let key = EncodingKey::from_secret(secret.expose().as_bytes());
        let token = jsonwebtoken::encode(&header, &claims, &key);
        Ok(Some(Secret::new(token.expect(
            "text, numbers and a secret can always be signed",
        ))))
    }
}

fn name(material: &Material) -> &'static str {
    match material {
        Material::Hs256(_) => "HS256",
        Material::EdDsa(_) => "EdDSA",
    }
}

/// Returns the expiry time of a token that is valid now.
fn until(claims: &Claims, now: DateTime<Utc>) -> Result<DateTime<Utc>, Refused> {
    let seconds = |time: TimeDelta| time.as_seconds_f64();
    let (now, leeway, longest) = (
        now.timestamp_millis() as f64 / 1_000.0,
        seconds(LEEWAY),
        seconds(LONGEST),
    );
    let is_ahead = |time: Option<f64>| time.is_some_and(|time| time > now + leeway);
    let exp = claims.exp.ok_or_else(|| Refused::Lacks("exp".into()))?;
    if exp + leeway <= now {
        return Err(Refused::Expired);
    }
    if is_ahead(claims.nbf) || is_ahead(claims.iat) {
        return Err(Refused::Early);
    }
    let lasts_from = |time: f64| exp - time;
    if lasts_from(now) > longest + leeway || claims.iat.is_some_and(|iat| lasts_from(iat) > longest)
    {
        return Err(Refused::TooLong);
    }
    DateTime::from_timestamp_millis((exp * 1_000.0) as i64).ok_or(Refused::Unreadable)
}

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: signer,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes `jsonwebtoken` use this provider. Can be called repeatedly.
fn install() {
    // An error means that a provider was installed before.
    let _installed = PROVIDER.install_default();
}

struct Hs256(hmac::Key);

struct EdDsa(asymmetric::UnparsedPublicKey<Vec<u8>>);

fn hs256(key: &[u8]) -> Hs256 {
    Hs256(hmac::Key::new(hmac::HMAC_SHA256, key))
}

fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>, errors::Error> {
    match (algorithm, key.family()) {
        (Algorithm::HS256, AlgorithmFamily::Hmac) => Ok(Box::new(hs256(key.as_bytes()))),
        _ => Err(ErrorKind::InvalidAlgorithm.into()),
    }
}

fn verifier(
    algorithm: &Algorithm,
    key: &DecodingKey,
) -> Result<Box<dyn JwtVerifier>, errors::Error> {
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

#[cfg(test)]
mod tests;
