//! The links in mails by which people slow or stop them: what each mail carries, and whose a link
//! is that comes back.
//!
//! The rule (P7): a link names one person and what it ends by a [`token`], works for a year, and
//! needs no login. A mail's link ends what the mail is about; the one to the preferences ends
//! nothing by itself. Where no public address is configured mails carry none, as there is nowhere
//! for them to lead.

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

/// Under which name the store keeps the secret that was made up.
const NOTE: &str = "link_secret";

/// Makes and opens links. One for all of a process: it remembers its keys.
pub struct Links {
    pub(crate) notes: Arc<dyn Notes>,
    /// Where the pages are, without a slash at its end.
    pub public_url: Option<String>,
    /// Of which brand their mails are; `None` for the default.
    pub brand: Option<BrandName>,
    /// What the configuration signs with; without it the store keeps a secret.
    pub secret: Option<String>,
    keys: OnceCell<Keys>,
}

/// Two links to try the pages with: nobody's, so whatever is done with them changes nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Probe {
    /// One as a mail has it, for a person who cannot exist.
    pub genuine: String,
    /// One that we did not make.
    pub forged: String,
}

/// No person has this name: names are not empty.
const NOBODY: &str = "";

/// Makes links for one mail after the other.
#[derive(Debug)]
pub struct Maker<'a> {
    public_url: &'a str,
    brand: Option<&'a BrandName>,
    /// The address that the email goes to, for its one-click link.
    address: Option<&'a Address>,
    keys: &'a Keys,
}

impl Links {
    /// Links that have not read their secret yet: whoever first needs it reads or makes it.
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

    /// The same for mails of this brand.
    pub fn of_brand(self, brand: BrandName) -> Self {
        let brand = Some(brand);
        Self { brand, ..self }
    }

    /// What makes links, if they have somewhere to lead.
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

    /// What the pages can be tried with from outside, if they have somewhere to be.
    pub async fn probe(&self, now: DateTime<Utc>) -> Result<Option<Probe>> {
        let Some(maker) = self.maker().await? else {
            return Ok(None);
        };
        let nobody = UserId::stored(NOBODY);
        let genuine = page(maker.public_url, &maker.keys.seal(&nobody, &Stop::All, now));
        // Of another secret: it looks alike, and its first proof fails.
        let other = Keys::new(&made_up()?).seal(&nobody, &Stop::All, now);
        let forged = page(maker.public_url, &other);
        Ok(Some(Probe { genuine, forged }))
    }

    /// What stands in for somebody's links in a mail that is only measured: as long as theirs, and
    /// it opens nothing. Needs no secret, so none is made up for it.
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

    /// Whose link it is, and what it ends.
    pub async fn open(
        &self,
        token: &str,
        now: DateTime<Utc>,
    ) -> Result<std::result::Result<Opened, Refused>> {
        Ok(self.keys().await?.open(token, now))
    }

    /// The token of the same mail of the same person that ends something else.
    pub async fn instead(&self, opened: &Opened, stop: &Stop) -> Result<String> {
        let (brand, keys) = (opened.brand.as_ref(), self.keys().await?);
        let address = opened.address.as_ref();
        Ok(keys.seal_to(address, brand, &opened.user, stop, opened.issued))
    }

    /// The same of a link that is made at this moment, on a page.
    pub async fn now(&self, opened: &Opened, stop: &Stop, now: DateTime<Utc>) -> Result<String> {
        let (brand, keys) = (opened.brand.as_ref(), self.keys().await?);
        Ok(keys.seal_in(brand, &opened.user, stop, now))
    }

    async fn keys(&self) -> Result<&Keys> {
        let read = async || match &self.secret {
            Some(secret) => Ok(Keys::new(secret)),
            // The first secret that is noted is everybody's.
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
    /// The links of somebody's mail that was begun at that moment and can be stopped so, if it can,
    /// or muted so.
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

    /// Makes links for an email to this address. Links to unsubscribe and to mute name it, so their
    /// page can offer other records. An unsubscribe link also works after the user was deleted.
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
    // The page has all that can be chosen, whatever the mail was about.
    let choices = page(public_url, &token(&Stop::All, None));
    Personal {
        unsubscribe: stop.map(link),
        preferences: format!("{choices}/preferences"),
        mute: mute.map(link),
    }
}

/// A secret nobody can guess: 32 bytes of the operating system's randomness.
fn made_up() -> Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::database("making up the secret of links", error.to_string()))?;
    Ok(hex::encode(bytes))
}
