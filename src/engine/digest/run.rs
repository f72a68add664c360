//! The options, the dependencies and the state of a digest run.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use super::backlog::{BacklogDays, Older};
use crate::context::Context;
use crate::domain::stack::EventAt;
use crate::domain::{
    BrandName, Cadence, Content, Delivery, DeliveryId, Due, Period, PersonStacks, Share, User,
    UserId,
};
use crate::engine::Watcher;
use crate::engine::delivery::{Compose, Sender};
use crate::engine::eligibility::catalog::Catalog;
use crate::render::Catalogs;
use crate::wire::digest::{DryRunReport, OTHER_LOCALES, Report};

/// The options of a digest run.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The time of the run, now by default.
    pub at: Option<DateTime<Utc>>,
    /// Only users with this cadence.
    pub cadence: Option<Cadence>,
    /// Only these users.
    pub users: Option<Vec<UserId>>,
    /// The most emails.
    pub limit: Option<u64>,
    /// Only this share of all users, the same ones each time.
    pub sample: Option<Share>,
    /// How long the run waits for deferred emails while none of them makes progress. Without it,
    /// the next run sends them.
    pub patience: Option<TimeDelta>,
    /// Whether digests wait for their user's hour; they do by default.
    pub timing: Timing,
    /// Whether emails are sent; they are by default.
    pub effect: Effect,
}

/// Whether digests wait for their user's hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Timing {
    /// Only users who had pending events when their hour came.
    #[default]
    WhenDue,
    /// All users with pending events who got no email in their current period.
    Now,
}

/// Whether a run sends emails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Effect {
    /// Opens rows in the ledger and sends due digests.
    #[default]
    Send,
    /// A dry run: reports what would be sent and writes nothing.
    Rehearse,
}

impl Request {
    /// Returns whether a run reads all users, so that it may store their backlog.
    pub(super) fn reads_all(&self) -> bool {
        self.effect == Effect::Send && self.users.is_none()
    }
}

/// Receives the digests that a dry run finds.
pub trait Onlooker: Send {
    /// Called for each digest, in the order of user ids.
    fn mail(&mut self, mail: &Found<'_>);
}

/// A digest that is due.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// The recipient.
    pub user: &'a User,
    /// The user's cadence, never `never`.
    pub cadence: Cadence,
    /// The local date or ISO week of the digest.
    pub period: Period,
    /// The wanted events that still apply.
    pub content: &'a Content,
}

/// Runs digests: finds the due ones and sends or only shows them. Start with [`Digests::run`].
pub struct Digests {
    /// Sends the due digests.
    pub sender: Sender,
    pub(crate) context: Arc<Context>,
    /// Knows which days before the window have a backlog, and stores its counts.
    pub backlog: BacklogDays,
}

pub(super) struct DuePerson<'a> {
    pub user: User,
    pub stacks: &'a PersonStacks,
    pub cadence: Cadence,
    pub due: Due,
    /// The id of the digest's row.
    pub id: DeliveryId,
    /// The failed row that is retried, if the digest has one.
    pub failed: Option<Delivery>,
    pub wanted: Vec<EventAt<'a>>,
}

impl DuePerson<'_> {
    pub(super) fn found<'a>(&'a self, content: &'a Content) -> Found<'a> {
        Found {
            user: &self.user,
            cadence: self.cadence,
            period: self.due.period,
            content,
        }
    }
}

/// A run, with its options and its results so far.
pub(super) struct Run<'a> {
    pub digests: &'a Digests,
    pub request: &'a Request,
    /// The caller's receiver of the digests of a dry run; `None` for a run that sends.
    pub onlooker: Option<&'a mut dyn Onlooker>,
    pub progress: &'a dyn Watcher,
    /// The time of the run.
    pub at: DateTime<Utc>,
    /// Its tally counts the outcomes of the run's emails.
    pub sender: Sender,
    pub report: Report,
    /// Whether a due user was skipped because of an open email. It is an earlier digest, or this
    /// one, opened by another process.
    pub passed_over: bool,
    pub catalog: Catalog,
    pub older: Older,
}

/// The most locales that are named.
const NAMED: usize = 20;

/// Counts an email to this user, of this brand.
pub(crate) fn count_email(
    report: &mut DryRunReport,
    compose: &Compose,
    user: &User,
    brand: Option<&BrandName>,
) {
    let catalogs = compose.identity.renderer.catalogs();
    ask(&mut report.locales, catalogs, user);
    if let Some(brand) = brand {
        let counts = match compose.identities.brands.contains_key(brand) {
            true => &mut report.brands,
            false => &mut report.unknown_brands,
        };
        *counts.entry(brand.clone()).or_default() += 1;
    }
}

/// Counts an email to a user whose locale has no catalog. Such an email is in English.
fn ask(locales: &mut BTreeMap<String, u64>, catalogs: &Catalogs, user: &User) {
    let locale = user.locale.as_deref().unwrap_or_default().trim();
    if locale.is_empty() || catalogs.nearest(locale).is_some() {
        return;
    }
    let is_named = locales.len() < NAMED || locales.contains_key(locale);
    let name = if is_named { locale } else { OTHER_LOCALES };
    *locales.entry(name.to_owned()).or_default() += 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::UserId;

    #[test]
    fn all_locales_are_counted_and_a_few_are_listed() {
        let catalogs = Catalogs::load(None).unwrap();
        let mut report = DryRunReport::default();
        let mut asks = |locale: &str| {
            let user = User {
                locale: Some(locale.into()),
                ..User::new(UserId::stored("ada"))
            };
            ask(&mut report.locales, &catalogs, &user);
        };
        let unknown: Vec<String> = (b'a'..=b'v').map(|c| format!("x{}", c as char)).collect();
        unknown.iter().for_each(|locale| asks(locale));
        for locale in ["xa", "de-AT", " ", "others"] {
            asks(locale);
        }

        let lines = report.other_locales();

        assert_eq!(report.locales.len(), NAMED + 1);
        let begins = [
            "emails in English for lack of a catalog of other locales: 3",
            "emails in English for lack of a catalog of locale xa: 2",
            "emails in English for lack of a catalog of locale xb: 1",
        ];
        for (line, begins) in lines.iter().zip(begins) {
            assert!(line.starts_with(begins), "{line}");
        }
    }
}
