//! User tokens: JWTs that an application signs, and that open one person's own things for a while.
//!
//! The rule (P8): the key says the algorithm, never the token's header; who it is for (`sub`), for
//! whom it was made (`aud`) and until when (`exp`, at most a day ahead) must be said; and time is
//! the clock's that everybody asks. What is told of a token that is refused repeats nothing of it.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::domain::user_token::Material;
use crate::domain::{Invalid, Secret, TokenKey, UserId};

mod crypto;

/// How long a token may last.
pub const LONGEST: TimeDelta = TimeDelta::hours(24);
/// How far clocks may be apart.
const LEEWAY: TimeDelta = TimeDelta::seconds(30);

/// Verifies user tokens, and makes some for trying out.
#[derive(Clone)]
pub struct Tokens {
    audience: String,
    keys: Arc<[TokenKey]>,
}

/// What a token opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// Whose it is.
    pub user: UserId,
    /// Until when.
    pub until: DateTime<Utc>,
    /// When it was issued; if it does not say, as early as it can have been.
    pub issued: DateTime<Utc>,
}

/// Why a token opens nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is nothing that it could be verified by.
    #[error("user tokens are not configured here (tokens.keys), and this is not a server key")]
    Unconfigured,
    /// Not one of three parts, with a header and claims that can be read.
    #[error("the token cannot be read: it must be a JWT with text as sub and numbers as times")]
    Unreadable,
    /// It names no key of several.
    #[error("the token's header names no key (kid), and several are configured")]
    WithoutKey,
    /// It names a key that is not configured.
    #[error("the token's header names a key (kid) that is not configured")]
    UnknownKey,
    /// Its header says another algorithm than the key's.
    #[error("the token's algorithm (alg) is not its key's: use {0}")]
    Algorithm(&'static str),
    /// The signature is not the key's.
    #[error("the token's signature is not its key's")]
    Signature,
    /// A claim is left out.
    #[error("the token lacks the claim {0:?}")]
    Lacks(String),
    /// It was made for somebody else.
    #[error("the token's audience (aud) is not {0:?}")]
    Audience(String),
    /// Its time is over.
    #[error("the token has expired; ask the application for a new one")]
    Expired,
    /// Its time has not come.
    #[error("the token is of the future (nbf, iat): compare the clocks")]
    Early,
    /// It lasts too long.
    #[error("the token lasts for more than {} hours (exp)", LONGEST.num_hours())]
    TooLong,
    /// An earlier user had the id.
    #[error(
        "the token was issued to an earlier user of this id; ask the application for a new one"
    )]
    EarlierUser,
    /// No person can be called so.
    #[error("the token's subject (sub) is no user id: {0}")]
    Subject(String),
}

/// What a token claims. Times are seconds since 1970, and may have fractions (RFC 7519, 2).
#[derive(Debug, Deserialize)]
struct Claims {
    sub: Option<String>,
    exp: Option<f64>,
    nbf: Option<f64>,
    iat: Option<f64>,
}

impl Tokens {
    /// Tokens for this audience, signed with one of these keys.
    pub fn new(audience: impl Into<String>, keys: Vec<TokenKey>) -> Self {
        crypto::install();
        Self {
            audience: audience.into(),
            keys: keys.into(),
        }
    }

    /// Whether this looks like a token, and not like a key: three parts with dots between.
    pub fn is_like_one(text: &str) -> bool {
        text.split('.').count() == 3
    }

    /// Whose token it is, and until when.
    pub fn open(&self, token: &str, now: DateTime<Utc>) -> Result<Opened, Refused> {
        if self.keys.is_empty() {
            return Err(Refused::Unconfigured);
        }
        let header = jsonwebtoken::decode_header(token).map_err(|_| Refused::Unreadable)?;
        // What must be understood and is not makes a token invalid (RFC 7515, 4.1.11).
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
        // The library asks the machine's clock.
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

    /// A token of this person's, signed with the first secret: for trying out. Valid for so long
    /// from `now`, at most [`LONGEST`]. `None` where there is no secret to sign with.
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

/// Until when it is valid, if it is now.
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

#[cfg(test)]
mod tests;
