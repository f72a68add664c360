//! Reads and manages the addresses that must not be emailed.
//!
//! A user may be emailed if both their record and the suppressions permit it (P7). One read checks
//! a page of users ([`SuppressedAddresses::load_for`]). [`super`] adds the suppressions that
//! providers report.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Deserialize;

use crate::context::Context;
use crate::domain::EmailScope;
use crate::domain::feedback::OPERATOR;
use crate::domain::user::UnmailableReason;
use crate::domain::{
    Address, Cadence, Schedule, Suppression, SuppressionReason, User, distinct, durations_and_times,
};
use crate::engine::Result;
use crate::store::{self, Feedbacks, Suppressions};

/// The suppressed addresses of a set of users.
#[derive(Debug, Default)]
pub struct SuppressedAddresses(HashMap<Address, Suppression>);

impl SuppressedAddresses {
    /// Looks up the addresses of all these users in one read.
    pub async fn load_for<'a>(
        suppressions: &dyn Suppressions,
        users: impl IntoIterator<Item = &'a User>,
    ) -> Result<Self> {
        let addresses = users.into_iter().filter_map(|user| user.email.as_ref());
        let addresses = distinct(addresses.map(Address::folded));
        let states = suppressions.address_states(&addresses).await?;
        // Results are in the order of the request. Their address may have an older spelling.
        let states = addresses.into_iter().zip(states);
        let suppressed = states.filter_map(|(address, state)| Some((address, state.suppression?)));
        Ok(Self(suppressed.collect()))
    }

    /// Returns the suppression of this user's address, if it has one.
    pub fn suppression_of(&self, user: &User) -> Option<&Suppression> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&user.email.as_ref()?.folded())
    }

    /// Returns the address of a user who may be emailed, by their record and the suppressions.
    pub fn check_mailable<'a>(&self, user: &'a User) -> Result<&'a Address, UnmailableReason> {
        let address = user.mailable_address()?;
        match self.suppression_of(user) {
            Some(suppression) => Err(UnmailableReason::Address(suppression.reason)),
            None => Ok(address),
        }
    }

    /// Returns the schedule and the scope of this user's digests; `None` if they get none.
    pub fn digest_schedule(
        &self,
        user: &User,
        default: &Schedule,
    ) -> Option<(Schedule, EmailScope)> {
        let (schedule, wanted) = user.digest_schedule(default);
        let allowed = self.email_scope(user).ok()?;
        (schedule.cadence != Cadence::Never).then_some((schedule, allowed.min(wanted)))
    }

    /// Returns the scope of the emails that this user may get. If only the user's own choice
    /// forbids emails, mandatory types remain.
    ///
    /// # Errors
    ///
    /// The reason why the user may get no email at all.
    pub fn email_scope(&self, user: &User) -> Result<EmailScope, UnmailableReason> {
        let Err(why) = self.check_mailable(user) else {
            return Ok(EmailScope::All);
        };
        let is_own_choice = why.is_own_choice()
            && user.reachable_address().is_ok()
            && self
                .suppression_of(user)
                .is_none_or(|suppression| suppression.reason == SuppressionReason::Unsubscribe);
        if is_own_choice { Ok(EmailScope::MandatoryOnly) } else { Err(why) }
    }
}

/// A request to suppress an address.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuppressionInput {
    /// The address. It is stored and compared in folded form.
    pub address: Address,
    /// The reason; [`SuppressionReason::Manual`] by default.
    #[serde(default = "manual")]
    pub reason: SuppressionReason,
    /// The start of the suppression. It is now by default, and never later.
    #[serde(default, deserialize_with = "durations_and_times::deserialize_optional_time")]
    pub at: Option<DateTime<Utc>>,
    /// The origin, such as the name of the provider whose list is imported. The default is the
    /// operator.
    pub source: Option<String>,
    /// The provider's description, such as `550 5.1.1`. At most 80 characters are stored.
    pub detail: Option<String>,
}

fn manual() -> SuppressionReason {
    SuppressionReason::Manual
}

impl SuppressionInput {
    /// A suppression by the operator, from now on.
    pub fn new(address: Address, reason: SuppressionReason) -> Self {
        Self { address, reason, at: None, source: None, detail: None }
    }
}

/// How long a lift is stored. Providers retry a report for about a day.
const LIFTS_EXPIRE_AFTER: TimeDelta = TimeDelta::days(90);

/// Manages the suppressed addresses.
pub struct SuppressionService {
    pub(crate) context: Arc<Context>,
}

impl SuppressionService {
    /// Suppresses these addresses. More severe reasons remain. A lift after `at` remains too.
    pub async fn add(&self, inputs: Vec<SuppressionInput>) -> Result<()> {
        let now = self.context.clock.now();
        let suppression = |input: SuppressionInput| {
            let at = input.at.map_or(now, |at| at.min(now));
            let source = input.source.as_deref().map(short_name).filter(|name| !name.is_empty());
            let source = source.unwrap_or_else(|| OPERATOR.to_owned());
            Suppression::new(&input.address, input.reason, at, source)
                .with_detail(input.detail.as_deref())
        };
        let suppressions: Vec<Suppression> = inputs.into_iter().map(suppression).collect();
        self.context.store.add_suppressions(&suppressions).await?;
        Ok(())
    }

    /// Returns the suppression of an address.
    pub async fn get(&self, address: &Address) -> Result<Option<Suppression>> {
        let addresses = std::slice::from_ref(address);
        let state = self.context.store.address_states(addresses).await?.pop();
        Ok(state.and_then(|state| state.suppression))
    }

    /// Returns a page of suppressions after this address, in ascending order.
    pub async fn page(&self, after: Option<&Address>, limit: usize) -> Result<Vec<Suppression>> {
        Ok(self.context.store.suppressions(after, limit).await?)
    }

    /// Allows emails to an address again. Returns whether it was suppressed. Reports of earlier
    /// events no longer have an effect.
    pub async fn lift(&self, address: &Address) -> Result<bool> {
        let now = self.context.clock.now();
        let expired = now - LIFTS_EXPIRE_AFTER;
        Ok(self.context.store.lift_suppression(address, now, expired).await?)
    }
}

/// Reduces a text to a short name such as `mailgun`.
fn short_name(text: &str) -> String {
    let letters = text.chars().filter(|c| c.is_ascii_alphanumeric());
    letters.take(32).collect::<String>().to_lowercase()
}

/// Returns how many emails were sent more than a day ago without any report; 0 if reports arrive.
///
/// Checks the emails of the last two days, then those of a week, because some users get only weekly
/// digests. One report of an email in that time is enough.
pub(crate) async fn count_unreported<F: Feedbacks + ?Sized>(
    feedbacks: &F,
    now: DateTime<Utc>,
) -> store::Result<u64> {
    let last_day = feedbacks.report_counts(now - TimeDelta::days(1)).await?;
    if last_day.reported() > 0 {
        return Ok(0);
    }
    for days in [2, 7] {
        let counts = feedbacks.report_counts(now - TimeDelta::days(days)).await?;
        if counts.reported() == 0 && counts.sent > last_day.sent {
            return Ok(counts.sent - last_day.sent);
        }
    }
    Ok(0)
}
