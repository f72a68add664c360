//! Addresses that must not be written to: asked about whole pages of people, and kept by operators.
//!
//! The rule (P7): who may be mailed is asked of the person's record *and* of the list, in one read
//! for everybody at hand ([`Suppressed::among`]). What providers report is added by
//! [`super`].

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Deserialize;

use crate::context::Context;
use crate::domain::EmailScope;
use crate::domain::suppression::OPERATOR;
use crate::domain::user::Unmailable;
use crate::domain::{Address, Cadence, Reason, Schedule, Suppression, User, moment};
use crate::engine::Result;
use crate::store::Suppressions;

/// What is known of the addresses of some people.
#[derive(Debug, Default)]
pub struct Suppressed(HashMap<Address, Suppression>);

impl Suppressed {
    /// Looks up the addresses of all these people at once.
    pub async fn among<'a>(
        suppressions: &dyn Suppressions,
        people: impl IntoIterator<Item = &'a User>,
    ) -> Result<Self> {
        let people = people.into_iter();
        let addresses = people.filter_map(|user| user.email.as_ref().map(Address::folded));
        let mut addresses: Vec<Address> = addresses.collect();
        addresses.sort_unstable();
        addresses.dedup();
        let found = suppressions.suppressed(&addresses).await?;
        // By what was asked for: an older program may have written the address in another form.
        let found = addresses.into_iter().zip(found);
        Ok(Self(
            found
                .filter_map(|(address, one)| Some((address, one?)))
                .collect(),
        ))
    }

    /// Why this person's address must not be written to, if so.
    pub fn of(&self, user: &User) -> Option<&Suppression> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&user.email.as_ref()?.folded())
    }

    /// Where to write to, if anybody may: by the person's record and by the list.
    pub fn mailable<'a>(&self, user: &'a User) -> std::result::Result<&'a Address, Unmailable> {
        let address = user.mailable()?;
        match self.of(user) {
            Some(suppression) => Err(Unmailable::Address(suppression.reason)),
            None => Ok(address),
        }
    }

    /// When digests fall due for this person, and how much they tell, if any may be mailed to them.
    pub fn digests(&self, user: &User, default: &Schedule) -> Option<(Schedule, EmailScope)> {
        let (schedule, wanted) = user.digests(default);
        let allowed = self.scope(user).ok()?;
        (schedule.cadence != Cadence::Never).then_some((schedule, allowed.min(wanted)))
    }

    /// How much may be mailed to this person, if anything: where nothing but their own wish is
    /// against it, what is mandatory.
    pub fn scope(&self, user: &User) -> std::result::Result<EmailScope, Unmailable> {
        let Err(why) = self.mailable(user) else {
            return Ok(EmailScope::All);
        };
        let only_wish = user.reachable().is_ok()
            && self
                .of(user)
                .is_none_or(|suppression| suppression.reason == Reason::Unsubscribe);
        match why.is_own_wish() && only_wish {
            true => Ok(EmailScope::MandatoryOnly),
            false => Err(why),
        }
    }
}

/// An address that somebody wants suppressed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuppressionInput {
    /// Kept and compared folded, so capitals do not matter.
    pub address: Address,
    /// By hand, if nothing is said.
    #[serde(default = "by_hand")]
    pub reason: Reason,
    /// Since when, if not now; never later than now.
    #[serde(default, deserialize_with = "moment::read_if_any")]
    pub at: Option<DateTime<Utc>>,
    /// Who said so first, such as the provider whose list this is; the operator, if nothing is
    /// said.
    pub source: Option<String>,
    /// What the provider called it, such as `550 5.1.1`; 80 characters of it are kept.
    pub detail: Option<String>,
}

fn by_hand() -> Reason {
    Reason::Manual
}

impl SuppressionInput {
    /// Suppressed from now on, by the operator's word.
    pub fn new(address: Address, reason: Reason) -> Self {
        Self {
            address,
            reason,
            at: None,
            source: None,
            detail: None,
        }
    }
}

/// How long a lift is stored. Providers retry a report for at most a day or so.
const REMEMBERED_LIFTS: TimeDelta = TimeDelta::days(90);

/// Keeps the list of addresses that must not be written to.
pub struct SuppressionService {
    pub(crate) context: Arc<Context>,
}

impl SuppressionService {
    /// Suppresses these addresses. Graver news stays, and so does a lift later than `at`.
    pub async fn add(&self, inputs: Vec<SuppressionInput>) -> Result<()> {
        let now = self.context.clock.now();
        let news = |input: SuppressionInput| {
            let at = input.at.map_or(now, |at| at.min(now));
            let source = input.source.as_deref().map(source);
            let source = source.filter(|source| !source.is_empty());
            let source = source.unwrap_or_else(|| OPERATOR.to_owned());
            Suppression::new(&input.address, input.reason, at, source)
                .detailed(input.detail.as_deref())
        };
        let news: Vec<Suppression> = inputs.into_iter().map(news).collect();
        Ok(self.context.store.suppress(&news).await?)
    }

    /// What is known of an address.
    pub async fn get(&self, address: &Address) -> Result<Option<Suppression>> {
        let asked = std::slice::from_ref(address);
        Ok(self.context.store.suppressed(asked).await?.pop().flatten())
    }

    /// A page of the list, ascending by address, after this one.
    pub async fn page(&self, after: Option<&Address>, limit: usize) -> Result<Vec<Suppression>> {
        Ok(self.context.store.suppressions(after, limit).await?)
    }

    /// Lets an address receive emails again, and returns whether it was suppressed. Reports of
    /// earlier events change nothing from now on.
    pub async fn lift(&self, address: &Address) -> Result<bool> {
        let now = self.context.clock.now();
        let expired = now - REMEMBERED_LIFTS;
        Ok(self.context.store.lift(address, now, expired).await?)
    }
}

/// A name such as `mailgun`, whatever was given.
fn source(text: &str) -> String {
    let word = text.chars().filter(|c| c.is_ascii_alphanumeric());
    word.take(32).collect::<String>().to_lowercase()
}
