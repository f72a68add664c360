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

use crate::domain::secrets::Material;
use crate::domain::{Invalid, Secret, TokenKey, UserId};

/// The longest validity of a token.
pub const LONGEST: TimeDelta = TimeDelta::hours(24);
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
    pub until: DateTime<Utc>,
    /// When the token was issued. Without `iat`, it is the earliest possible time.
    pub issued: DateTime<Utc>,
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
    pub fn is_like_one(text: &str) -> bool {
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
            None => return Err(TokenError::Lacks("aud".into())),
        };
        if !is_ours {
            return Err(TokenError::Audience(self.audience.clone()));
        }
        let until = until(&claims, now)?;
        let subject = claims.sub.ok_or_else(|| TokenError::Lacks("sub".into()))?;
        let user = UserId::new(subject).map_err(|invalid| TokenError::Subject(invalid.why))?;
        let issued = claims.iat.map(|iat| (iat * 1_000.0) as i64);
        let issued = issued.and_then(DateTime::from_timestamp_millis);
        Ok(UserToken { user, until, issued: issued.unwrap_or(until - LONGEST) })
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
            Material::Hs256(secret) => Some((key.id.clone(), hs256(secret))),
            Material::EdDsa(_) => None,
        };
        let Some((id, key)) = self.keys.iter().find_map(secret) else {
            return Ok(None);
        };
        let part = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let header = part(json!({"alg": "HS256", "kid": id, "typ": "JWT"}));
        let (issued, until) = (now.timestamp(), (now + lasts).timestamp());
        let claims = part(json!({
            "sub": user.as_str(), "aud": self.audience, "iat": issued, "exp": until
        }));
        let message = format!("{header}.{claims}");
        let signature = BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&key, message.as_bytes()));
        Ok(Some(Secret::new(format!("{message}.{signature}"))))
    }
}

fn decode(part: &str) -> Result<Vec<u8>, TokenError> {
    let decoded = BASE64_URL_SAFE_NO_PAD.decode(part);
    decoded.map_err(|_| TokenError::Unreadable)
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
    material: &Material,
    algorithm: &str,
    message: &str,
    signature: &str,
) -> Result<(), TokenError> {
    let expected = match material {
        Material::Hs256(_) => "HS256",
        Material::EdDsa(_) => "EdDSA",
    };
    if algorithm != expected {
        return Err(TokenError::Algorithm(expected));
    }
    let (message, signature) = (message.as_bytes(), decode(signature)?);
    let verified = match material {
        Material::Hs256(secret) => hmac::verify(&hs256(secret), message, &signature),
        Material::EdDsa(public) => {
            UnparsedPublicKey::new(&ED25519, public).verify(message, &signature)
        }
    };
    verified.map_err(|_| TokenError::Signature)
}

/// Returns the expiry time of a token that is valid now.
fn until(claims: &Claims, now: DateTime<Utc>) -> Result<DateTime<Utc>, TokenError> {
    let seconds = |time: TimeDelta| time.as_seconds_f64();
    let now = now.timestamp_millis() as f64 / 1_000.0;
    let (leeway, longest) = (seconds(LEEWAY), seconds(LONGEST));
    let is_ahead = |time: Option<f64>| time.is_some_and(|time| time > now + leeway);
    let exp = claims.exp.ok_or_else(|| TokenError::Lacks("exp".into()))?;
    if exp + leeway <= now {
        return Err(TokenError::Expired);
    }
    if is_ahead(claims.nbf) || is_ahead(claims.iat) {
        return Err(TokenError::Early);
    }
    let lasts_from = |time: f64| exp - time;
    if lasts_from(now) > longest + leeway || claims.iat.is_some_and(|iat| lasts_from(iat) > longest)
    {
        return Err(TokenError::TooLong);
    }
    DateTime::from_timestamp_millis((exp * 1_000.0) as i64).ok_or(TokenError::Unreadable)
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
