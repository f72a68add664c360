//! Verifies user tokens: JWTs that an application signs, each for one user and a limited time.
//!
//! The configured key determines the algorithm, not the token's header (P8), and only HS256 and
//! Ed25519 are implemented. The claims `sub`, `aud` and `exp` are required, and `exp` is at most 24
//! hours ahead. Times are compared with the clock that the caller passes. Error messages do not
//! quote the token. Start with [`UserTokens::open`].

use std::sync::Arc;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use chrono::{DateTime, TimeDelta, Utc};
use ring::hmac;
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::domain::secrets::KeyMaterial;
use crate::domain::{InvalidValue, Secret, TokenKey, UserId};

/// The longest validity of a token.
pub const MAX_LIFETIME: TimeDelta = TimeDelta::hours(24);
/// The tolerated difference between the application's clock and ours.
const LEEWAY: TimeDelta = TimeDelta::seconds(30);

/// Verifies user tokens. Can also create them, for trials.
#[derive(Clone)]
pub struct UserTokens {
    audience: String,
    keys: Arc<[TokenKey]>,
}

/// A verified token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserToken {
    /// The value of `sub`.
    pub user: UserId,
    /// The expiry time.
    pub expires_at: DateTime<Utc>,
    /// When the token was issued. Without `iat`, it is the earliest possible time.
    pub issued_at: DateTime<Utc>,
}

/// The reasons why a token is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
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
    MissingClaim(String),
    /// The token has another audience.
    #[error("the token's audience (aud) is not {0:?}")]
    Audience(String),
    /// The token has expired.
    #[error("the token has expired; ask the application for a new one")]
    Expired,
    /// The token is not valid yet.
    #[error("the token is not valid yet (nbf, iat): compare the clocks")]
    NotYetValid,
    /// The token is valid for longer than [`MAX_LIFETIME`].
    #[error("the token lasts for more than {} hours (exp)", MAX_LIFETIME.num_hours())]
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

/// The header of a token. Other fields have no effect.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// The claims of a token. Times are seconds since 1970 and may have fractions (RFC 7519, 2).
#[derive(Deserialize)]
struct Claims {
    sub: Option<String>,
    aud: Option<TokenAudience>,
    exp: Option<f64>,
    nbf: Option<f64>,
    iat: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TokenAudience {
    One(String),
    Several(Vec<String>),
}

impl UserTokens {
    /// Accepts tokens for this audience that are signed with one of these keys.
    pub fn new(audience: impl Into<String>, keys: Vec<TokenKey>) -> Self {
        Self { audience: audience.into(), keys: keys.into() }
    }

    /// Returns whether a text has the form of a token, not that of a server key: three parts,
    /// separated by dots.
    pub fn is_token_like(text: &str) -> bool {
        text.split('.').count() == 3
    }

    /// Verifies a token at the time `now`.
    pub fn open(&self, token: &str, now: DateTime<Utc>) -> Result<UserToken, TokenError> {
        if self.keys.is_empty() {
            return Err(TokenError::Unconfigured);
        }
        let (message, signature) = token.rsplit_once('.').ok_or(TokenError::Unreadable)?;
        let (header, claims) = message.split_once('.').ok_or(TokenError::Unreadable)?;
        let header: Header = parse(header)?;
        // Critical header parameters that are not understood make a token invalid (RFC 7515,
        // 4.1.11).
        if header.crit.is_some() {
            return Err(TokenError::Unreadable);
        }
        let key = match (&header.kid, &*self.keys) {
            (None, [only]) => only,
            (None, _) => return Err(TokenError::WithoutKey),
            (Some(id), keys) => {
                let found = keys.iter().find(|key| key.id == *id);
                found.ok_or(TokenError::UnknownKey)?
            }
        };
        verify(&key.material, &header.alg, message, signature)?;
        let claims: Claims = parse(claims)?;
        let is_ours = match claims.aud.as_ref() {
            Some(TokenAudience::One(audience)) => *audience == self.audience,
            Some(TokenAudience::Several(audiences)) => audiences.contains(&self.audience),
            None => return Err(TokenError::MissingClaim("aud".into())),
        };
        if !is_ours {
            return Err(TokenError::Audience(self.audience.clone()));
        }
        let expires_at = check_times(&claims, now)?;
        let subject = claims.sub.ok_or_else(|| TokenError::MissingClaim("sub".into()))?;
        let user = UserId::new(subject).map_err(|invalid| TokenError::Subject(invalid.why))?;
        let issued_at = claims.iat.and_then(time_of).unwrap_or(expires_at - MAX_LIFETIME);
        Ok(UserToken { user, expires_at, issued_at })
    }

    /// Creates a token for a trial, signed with the first HS256 secret. It is valid from `now` for
    /// `lifetime`. Returns `None` if no secret is configured.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if `lifetime` is not positive or exceeds [`MAX_LIFETIME`].
    pub fn issue(
        &self,
        user: &UserId,
        now: DateTime<Utc>,
        lifetime: TimeDelta,
    ) -> Result<Option<Secret>, InvalidValue> {
        if lifetime <= TimeDelta::zero() || lifetime > MAX_LIFETIME {
            let why = format!("is not from 1 to {}", MAX_LIFETIME.num_hours());
            return Err(InvalidValue::new("hours", lifetime.num_hours(), why));
        }
        let hmac_key = |key: &TokenKey| match &key.material {
            KeyMaterial::Hs256(secret) => Some((key.id.clone(), hs256(secret))),
            KeyMaterial::EdDsa(_) => None,
        };
        let Some((id, key)) = self.keys.iter().find_map(hmac_key) else {
            return Ok(None);
        };
        let encode = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let header = encode(json!({"alg": "HS256", "kid": id, "typ": "JWT"}));
        let (iat, exp) = (now.timestamp(), (now + lifetime).timestamp());
        let claims = encode(json!({
            "sub": user.as_str(), "aud": self.audience, "iat": iat, "exp": exp
        }));
        let message = format!("{header}.{claims}");
        let signature = BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&key, message.as_bytes()));
        Ok(Some(Secret::new(format!("{message}.{signature}"))))
    }
}

fn decode(part: &str) -> Result<Vec<u8>, TokenError> {
    BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Unreadable)
}

/// Parses the header or the claims.
fn parse<T: DeserializeOwned>(part: &str) -> Result<T, TokenError> {
    serde_json::from_slice(&decode(part)?).map_err(|_| TokenError::Unreadable)
}

fn hs256(secret: &Secret) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes())
}

/// Verifies a signature. `algorithm` is that of the header, and must be that of the key.
fn verify(
    material: &KeyMaterial,
    algorithm: &str,
    message: &str,
    signature: &str,
) -> Result<(), TokenError> {
    let expected = match material {
        KeyMaterial::Hs256(_) => "HS256",
        KeyMaterial::EdDsa(_) => "EdDSA",
    };
    if algorithm != expected {
        return Err(TokenError::Algorithm(expected));
    }
    let (message, signature) = (message.as_bytes(), decode(signature)?);
    let verified = match material {
        KeyMaterial::Hs256(secret) => hmac::verify(&hs256(secret), message, &signature),
        KeyMaterial::EdDsa(public) => {
            UnparsedPublicKey::new(&ED25519, public).verify(message, &signature)
        }
    };
    verified.map_err(|_| TokenError::Signature)
}

/// Checks that a token is valid at the time `now`. Returns its expiry time.
fn check_times(claims: &Claims, now: DateTime<Utc>) -> Result<DateTime<Utc>, TokenError> {
    let now = now.timestamp_millis() as f64 / 1_000.0;
    let (leeway, max_lifetime) = (LEEWAY.as_seconds_f64(), MAX_LIFETIME.as_seconds_f64());
    let is_ahead = |time: f64| time > now + leeway;
    let exp = claims.exp.ok_or_else(|| TokenError::MissingClaim("exp".into()))?;
    if exp + leeway <= now {
        return Err(TokenError::Expired);
    }
    if claims.nbf.is_some_and(is_ahead) || claims.iat.is_some_and(is_ahead) {
        return Err(TokenError::NotYetValid);
    }
    if exp - now > max_lifetime + leeway || claims.iat.is_some_and(|iat| exp - iat > max_lifetime) {
        return Err(TokenError::TooLong);
    }
    time_of(exp).ok_or(TokenError::Unreadable)
}

/// Returns the time of a claim in seconds.
fn time_of(seconds: f64) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp_millis((seconds * 1_000.0) as i64)
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
