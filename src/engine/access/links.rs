//! Creates and verifies the links in emails: to unsubscribe, to mute and to the preferences.
//!
//! A link contains a [`token`] that names its user and its effect. It is valid for a year and needs
//! no login (P7). The unsubscribe link of an email stops emails of its kind; the preferences link
//! alone changes nothing. Without a public URL, emails have no links.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::sync::OnceCell;

use crate::config::Config;
use crate::domain::{Address, BrandName, Stop, User, UserId};
use crate::email::Personal;
use crate::engine::Result;
use crate::store::{Error, Notes};

pub mod token;

use token::Keys;
pub use token::{Opened, Refused};

/// The note that stores the generated secret.
const NOTE: &str = "link_secret";

/// Creates and opens links. A process has one, because it caches the keys.
pub struct Links {
    pub(crate) notes: Arc<dyn Notes>,
    /// The URL of the public pages, without a slash at the end.
    pub public_url: Option<String>,
    /// The brand of the emails; `None` for the default.
    pub brand: Option<BrandName>,
    /// The configured secret. Without it, a secret is generated and stored.
    pub secret: Option<String>,
    keys: OnceCell<Keys>,
}

/// Two links that test the public pages. They belong to no user, so using them changes nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Probe {
    /// A valid link for a user that cannot exist.
    pub genuine: String,
    /// A link with a wrong proof.
    pub forged: String,
}

/// The id of no user, because ids are not empty.
const NOBODY: &str = "";

/// Creates the links of emails.
#[derive(Debug)]
pub struct Maker<'a> {
    public_url: &'a str,
    brand: Option<&'a BrandName>,
    /// The address of the email, which its links to unsubscribe and to mute contain.
    address: Option<&'a Address>,
    keys: &'a Keys,
}

impl Links {
    /// Creates an instance without keys. The first call that needs them loads or generates the
    /// secret.
    pub fn new(notes: Arc<dyn Notes>, public_url: Option<String>, secret: Option<String>) -> Self {
        Self {
            notes,
            public_url,
            brand: None,
            secret,
            keys: OnceCell::new(),
        }
    }

    /// Builds the configured links of a brand; `None` for the default.
    pub fn of(config: &Config, notes: Arc<dyn Notes>, brand: Option<&BrandName>) -> Self {
        let server = config.server.clone();
        Self {
            brand: brand.cloned(),
            ..Self::new(notes, server.public_url, server.link_secret)
        }
    }

    /// Sets the brand of the emails.
    pub fn of_brand(self, brand: BrandName) -> Self {
        let brand = Some(brand);
        Self { brand, ..self }
    }

    /// Returns the maker of links, or `None` without a public URL.
    pub async fn maker(&self) -> Result<Option<Maker<'_>>> {
        let Some(public_url) = &self.public_url else {
            return Ok(None);
        };
        let keys = self.keys().await?;
        let brand = self.brand.as_ref();
        Ok(Some(Maker {
            public_url,
            brand,
            address: None,
            keys,
        }))
    }

    /// Returns links that test the public pages from outside, or `None` without a public URL.
    pub async fn probe(&self, now: DateTime<Utc>) -> Result<Option<Probe>> {
        let Some(maker) = self.maker().await? else {
            return Ok(None);
        };
        let nobody = UserId::stored(NOBODY);
        let genuine = page(maker.public_url, &maker.keys.seal(&nobody, &Stop::All, now));
        // Only the proof is wrong, because it comes from another secret.
        let other = Keys::new(&made_up()?).seal(&nobody, &Stop::All, now);
        let forged = page(maker.public_url, &other);
        Ok(Some(Probe { genuine, forged }))
    }

    /// Returns placeholders for a user's links, to measure an email. They have the length of real
    /// links but open nothing. Needs no secret, so none is generated.
    pub fn stand_in(
        &self,
        user: &User,
        stop: Option<&Stop>,
        mute: Option<&Stop>,
    ) -> Option<Personal> {
        let public_url = self.public_url.as_deref()?;
        let brand = self.brand.as_ref();
        let token = |stop: &Stop, address: Option<&Address>| {
            token::stand_in(brand, &user.id, stop, address)
        };
        let address = user.email.as_ref();
        Some(personal(public_url, stop, mute, address, token))
    }

    /// Verifies a token and returns its user and effect.
    pub async fn open(
        &self,
        token: &str,
        now: DateTime<Utc>,
    ) -> Result<std::result::Result<Opened, Refused>> {
        Ok(self.keys().await?.open(token, now))
    }

    /// Returns a token of the same email with another effect.
    pub async fn instead(&self, opened: &Opened, stop: &Stop) -> Result<String> {
        let (brand, keys) = (opened.brand.as_ref(), self.keys().await?);
        let address = opened.address.as_ref();
        Ok(keys.seal_to(address, brand, &opened.user, stop, opened.issued))
    }

    /// Returns a token with another effect that a page creates now. It contains no address.
    pub async fn now(&self, opened: &Opened, stop: &Stop, now: DateTime<Utc>) -> Result<String> {
        let (brand, keys) = (opened.brand.as_ref(), self.keys().await?);
        Ok(keys.seal_in(brand, &opened.user, stop, now))
    }

    async fn keys(&self) -> Result<&Keys> {
        let read = async || match &self.secret {
            Some(secret) => Ok(Keys::new(secret)),
            // The first stored secret wins, for all processes.
            None => loop {
                if let Some(kept) = self.notes.note(NOTE).await? {
                    break Ok(Keys::new(&kept));
                }
                let secret = made_up()?;
                self.notes.swap_note(NOTE, None, Some(&secret)).await?;
            },
        };
        self.keys.get_or_try_init(read).await
    }
}

impl Maker<'_> {
    /// Returns the links of an email to this user that was begun at `begun`. `stop` and `mute` are
    /// the effects of the links to unsubscribe and to mute; `None` leaves a link out.
    pub fn personal(
        &self,
        user: &UserId,
        stop: Option<&Stop>,
        mute: Option<&Stop>,
        begun: DateTime<Utc>,
    ) -> Personal {
        let token = |stop: &Stop, address: Option<&Address>| {
            self.keys.seal_to(address, self.brand, user, stop, begun)
        };
        personal(self.public_url, stop, mute, self.address, token)
    }

    /// Creates links for an email to this address. The links to unsubscribe and to mute contain it,
    /// so their page can offer other records. An unsubscribe link also works after the user was
    /// deleted.
    pub fn to<'b>(&'b self, address: &'b Address) -> Maker<'b> {
        Maker {
            address: Some(address),
            ..*self
        }
    }
}

fn page(public_url: &str, token: &str) -> String {
    format!("{public_url}/u/{token}")
}

fn personal(
    public_url: &str,
    stop: Option<&Stop>,
    mute: Option<&Stop>,
    address: Option<&Address>,
    token: impl Fn(&Stop, Option<&Address>) -> String,
) -> Personal {
    let link = |stop: &Stop| page(public_url, &token(stop, address));
    // The preferences page offers all choices, so its token does not depend on the email.
    let choices = page(public_url, &token(&Stop::All, None));
    Personal {
        unsubscribe: stop.map(link),
        preferences: format!("{choices}/preferences"),
        mute: mute.map(link),
    }
}

/// Generates a secret from 32 random bytes of the operating system.
fn made_up() -> Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::database("making up the secret of links", error.to_string()))?;
    Ok(hex::encode(bytes))
}
