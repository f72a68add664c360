//! Builds emails from delivery rows: reads their events again, checks them, and renders the rest.
//!
//! It only reads. An email includes the events that its row covers and no earlier email included
//! (P3). They must still apply (P6), and the user must be allowed to get them (P7). All of that is
//! checked just before sending. A repeated call is built as of its first time, so that it has the
//! same content. Start with [`Compose::build`].

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use self::renderings::{Contents, Reasons};
use super::brand_identities::{Identities, Identity};
use crate::context::Context;
use crate::domain::batch::BatchItem;
use crate::domain::day_stack::EventAt;
use crate::domain::delivery::{Cause, Deferral, Settlement};
use crate::domain::digest_content::{assemble, showable, wanted_by};
use crate::domain::email_content::{Caps, gather};
use crate::domain::{
    BatchKey, BrandName, Cadence, DaySet, Delivery, DeliveryState, EmailContent, EmailScope, Event,
    Id, Occasion, Stack, User, UserId, UserStacks,
};
use crate::email::Message;
use crate::engine::Result;
use crate::engine::eligibility;
use crate::engine::eligibility::event_facts::{Catalog, StackEvents};
use crate::engine::feedback::suppressions::Suppressed;

mod batch_events;
mod message;
mod preview;
mod renderings;

pub(super) use batch_events::stacks_of;
pub(crate) use preview::{Selected, SentEmail};

/// How soon rows of an unconfigured brand are tried again.
const CHECK_BRAND: TimeDelta = TimeDelta::minutes(10);

/// Builds emails from delivery rows.
#[derive(Clone)]
pub struct Compose {
    pub(crate) context: Arc<Context>,
    /// The brand of the emails that it builds; `None` for the default.
    pub brand: Option<BrandName>,
    /// The theme, links and headers of this brand.
    pub(crate) identity: Identity,
    /// The identities of all brands.
    pub identities: Arc<Identities>,
}

/// An email that is ready to be sent.
pub(super) struct BuiltEmail {
    pub row: Delivery,
    pub items: u32,
    /// Whether its markers are written: the provider once accepted it.
    pub has_markers: bool,
    pub message: Message,
}

/// The result of building some rows.
#[derive(Default)]
pub(super) struct BuiltRows {
    pub emails: Vec<BuiltEmail>,
    /// Rows that ended without an email.
    pub settlements: Vec<Settlement>,
    /// The number of these that do not count as failures of the provider.
    pub excused: u64,
    /// Rows of another brand, which are not built, so that no email appears under a wrong name.
    pub deferrals: Vec<Deferral>,
    /// The number of processed rows, counted from the first. At least one, if there were any.
    pub rows: usize,
}

/// The events that an email includes, of those that its row covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Selection {
    /// Events of types that the user gets within this scope, unless muted.
    Wanted(EmailScope),
    /// All events, regardless of the user's choices.
    All,
}

const WANTED: Selection = Selection::Wanted(EmailScope::All);
const MANDATORY: Selection = Selection::Wanted(EmailScope::MandatoryOnly);

/// The events of a batch that its email may include.
#[derive(Debug)]
struct CandidateEvents {
    key: BatchKey,
    /// In the order in which they joined.
    items: Vec<BatchItem>,
    /// The number of further events, which were counted but not kept.
    omitted: u64,
    /// Whether its markers are written: the provider once accepted its email.
    has_markers: bool,
}

/// The events that the emails of some rows may include.
struct Chosen<'a> {
    /// The events of digests, in the order of the rows.
    digests: Vec<Vec<EventAt<'a>>>,
    batches: HashMap<Id, CandidateEvents>,
    reasons: Reasons,
}

/// A user who may get a row's email, and the reason why they get mandatory types only, if they do.
type Allowed<'a> = (&'a User, Option<String>);

/// Checks that the stacks of the row accept markers. Otherwise each later email would repeat the
/// events. The next email excludes such a stack.
fn takes_markers(row: &Delivery, stacks: &UserStacks) -> Result<(), String> {
    let covered = |stack: &&Stack| row.watermarks.iter().any(|(id, _)| *id == stack.id);
    let mut covered = stacks.stacks.iter().filter(covered);
    match covered.find_map(|stack| Some((stack.id.day, stack.defect?))) {
        Some((day, defect)) => Err(format!("the stack of {day} takes no marker: {defect}")),
        None => Ok(()),
    }
}

impl Compose {
    /// Builds the emails of these rows from current data. `at` is their date. Stops when the
    /// contents are full, so that memory does not grow with the number of rows.
    ///
    /// If the rows are `sending`, they are those of a call to repeat. Its first build was within
    /// the bounds, so all of them are built.
    pub(super) async fn build(&self, rows: &[Delivery], at: DateTime<Utc>) -> Result<BuiltRows> {
        let mut catalog = Catalog::of_emails(&self.context);
        let mut stacks = self.read(rows).await?;
        let readers = eligibility::load_readers(&stacks, &catalog);
        let (people, mut inboxes) = readers.await?;
        // A digest that is built again after its markers were written includes the same events.
        for ((row, person), inbox) in rows.iter().zip(&stacks).zip(&mut inboxes) {
            inbox.take_if(|_| person.has_digest_marker(row.marker));
        }
        let which = StackEvents::All;
        eligibility::exclude(&mut stacks, &people, &inboxes, which, &mut catalog).await?;
        let suppressed = Suppressed::among(&*self.context.store, people.iter().flatten()).await?;
        let with_people = rows.iter().zip(&people);
        let allowed: Vec<_> = with_people
            .map(|(row, person)| self.allowed(row, person.as_ref(), &suppressed))
            .collect();
        let selection = |allowed: &Result<Allowed<'_>, String>| match allowed {
            Ok((_, Some(_))) => MANDATORY,
            _ => WANTED,
        };
        let selections: Vec<Selection> = allowed.iter().map(selection).collect();
        let chosen = self.choose(rows, &people, &stacks, &selections, &mut catalog);
        let chosen = chosen.await?;
        let maker = self.identity.links.maker().await?;
        let (mut built, mut contents) = (BuiltRows::default(), Contents::default());
        for (place, ((row, allowed), stacks)) in rows.iter().zip(allowed).zip(&stacks).enumerate() {
            let is_repeated = row.state == DeliveryState::Sending;
            if !is_repeated && contents.is_full() {
                break;
            }
            built.rows += 1;
            let batch = row.occasion.batch();
            let events = batch.and_then(|batch| chosen.batches.get(&batch));
            let has_markers = match batch {
                None => stacks.has_digest_marker(row.marker),
                Some(_) => events.is_some_and(|of| of.has_markers),
            };
            let takes = |allowed| takes_markers(row, stacks).map(|()| allowed);
            let (user, barred) = match allowed.and_then(takes) {
                Ok(allowed) => allowed,
                Err(reason) => {
                    let canceled = Settlement::of(row, DeliveryState::Canceled, 0, Some(&reason));
                    built.settlements.push(canceled);
                    continue;
                }
            };
            let Some(content) = self.content(row, &chosen, place, &catalog) else {
                let why = barred.as_deref().unwrap_or("nothing is left that applies");
                let cause = match barred {
                    Some(_) => Cause::Barred,
                    None => Cause::NothingLeft,
                };
                built.settlements.push(Settlement {
                    cause: Some(cause),
                    ..Settlement::of(row, DeliveryState::Canceled, 0, Some(why))
                });
                continue;
            };
            // Only a repeated call keeps the brand that it had.
            let brand = Self::brand_of(Some(user), events.map(|of| &of.key));
            let row = row.clone();
            if !is_repeated && brand != self.brand {
                match self.of_another_brand(&row, brand.as_ref(), has_markers) {
                    Ok(deferral) => built.deferrals.push(deferral),
                    Err(given_up) => {
                        built.settlements.push(given_up);
                        // Reopened rows are excused by the ledger.
                        built.excused += u64::from(row.attempts.reopened == 0);
                    }
                }
                continue;
            }
            let items = u32::try_from(content.total).unwrap_or(u32::MAX);
            match self.message(&row, user, content, maker.as_ref(), at, &mut contents) {
                Ok(message) => built.emails.push(BuiltEmail { row, items, has_markers, message }),
                Err(reason) => {
                    let state = DeliveryState::not_accepted(has_markers);
                    let ended = Settlement::of(&row, state, 0, Some(&reason));
                    built.settlements.push(ended);
                }
            }
        }
        Ok(built)
    }

    /// Defers a row that belongs to another brand than it is built for. If that brand is
    /// configured, the row can be claimed at once. Otherwise it is retried until it is, or until it
    /// expires.
    fn of_another_brand(
        &self,
        row: &Delivery,
        brand: Option<&BrandName>,
        has_markers: bool,
    ) -> Result<Deferral, Settlement> {
        let now = self.context.clock.now();
        let is_absent = |brand: &&BrandName| !self.identities.brands.contains_key(*brand);
        let defer = |at, why: &str| Deferral::of(row, DeliveryState::Pending, at, why);
        let Some(absent) = brand.filter(is_absent).map(BrandName::absent) else {
            return Ok(defer(now, "its brand has changed"));
        };
        if now - row.created < self.context.config.delivery.give_up_after {
            return Ok(defer(now + CHECK_BRAND, &absent));
        }
        let state = DeliveryState::not_accepted(has_markers);
        let why = format!("given up: {absent}");
        Err(Settlement::of(row, state, 0, Some(&why)).given_up())
    }

    /// Chooses the events of these rows, which are in the order of `people`, `stacks` and
    /// `selections`, and loads their details.
    async fn choose<'a>(
        &self,
        rows: &[Delivery],
        people: &[Option<User>],
        stacks: &'a [UserStacks],
        selections: &[Selection],
        catalog: &mut Catalog,
    ) -> Result<Chosen<'a>> {
        let with_people = rows.iter().zip(people).zip(stacks.iter().zip(selections));
        let digests: Vec<Vec<EventAt<'a>>> = with_people
            .map(|((row, person), (stacks, selection))| match person {
                Some(user) => self.wanted(row, stacks, user, *selection),
                None => Vec::new(),
            })
            .collect();
        let wanted = digests.iter().flatten().map(|pending| pending.event);
        catalog.load(wanted).await?;
        let batches = self.batch_events(rows, people, selections, catalog).await?;
        let newest = newest_first(&batches);
        let applies = |event: &Event| catalog.applies(event).is_some();
        let shown = rows.iter().zip(&digests).map(|(row, wanted)| match row.occasion.batch() {
            None => (&row.user, showable(wanted, self.caps(), applies)),
            Some(batch) => {
                let events = newest.get(&batch).into_iter().flatten();
                (&row.user, events.collect())
            }
        });
        let shown: Vec<(&UserId, Vec<&Event>)> = shown.collect();
        let reasons = self.reasons(&shown, catalog).await?;
        Ok(Chosen { digests, batches, reasons })
    }

    /// Loads the details of these events, and finds out why they concern their users.
    pub(crate) async fn reasons(
        &self,
        shown: &[(&UserId, Vec<&Event>)],
        catalog: &mut Catalog,
    ) -> Result<Reasons> {
        let events = shown.iter().flat_map(|(_, events)| events);
        let events: Vec<&Event> = events.copied().collect();
        catalog.load_details(events.into_iter()).await?;
        Reasons::of(shown, catalog).await
    }

    /// Reads the stacks of each row's user, in the order of the rows. Rows that cover nothing get
    /// none.
    async fn read(&self, rows: &[Delivery]) -> Result<Vec<UserStacks>> {
        let with_stacks = || rows.iter().filter(|row| !row.watermarks.is_empty());
        let covered = with_stacks().flat_map(|row| &row.watermarks);
        let users: Vec<UserId> = with_stacks().map(|row| row.user.clone()).collect();
        let mut read = Vec::new().into_iter();
        if let Some(window) = DaySet::of(covered.map(|(stack, _)| stack.day)) {
            let stacks = self.context.store.windows(window, &users).await?;
            read = stacks.into_iter();
        }
        let stacks = rows.iter().map(|row| {
            let own = (!row.watermarks.is_empty()).then(|| read.next()).flatten();
            own.unwrap_or_else(|| UserStacks { user: row.user.clone(), stacks: Vec::new() })
        });
        Ok(stacks.collect())
    }

    /// Returns the most items in a section and in a digest.
    fn caps(&self) -> Caps {
        self.context.config.digest.caps
    }

    /// Returns the content of an email: of the row at this place. `None` if no event applies any
    /// more.
    fn content(
        &self,
        row: &Delivery,
        chosen: &Chosen<'_>,
        place: usize,
        catalog: &Catalog,
    ) -> Option<EmailContent> {
        let content = match row.occasion.batch() {
            None => {
                let applies = |event: &Event| catalog.event_data(event);
                let wanted = &chosen.digests[place];
                assemble(wanted, &self.context.policies, self.caps(), applies)
            }
            Some(batch) => self.batch_content(chosen.batches.get(&batch)?, catalog),
        };
        let mut content = content?;
        content.because = chosen.reasons.because(&row.user, &content);
        Some(content)
    }

    /// Returns the content of a batch's email; `None` if no event applies.
    fn batch_content(&self, events: &CandidateEvents, catalog: &Catalog) -> Option<EmailContent> {
        let applies = |event: &Event| catalog.event_data(event);
        let (key, policies) = (&events.key, &self.context.policies);
        gather(key, &events.items, events.omitted, policies, applies)
    }

    /// Returns the events that a digest's row may include.
    fn wanted<'a>(
        &self,
        row: &Delivery,
        stacks: &'a UserStacks,
        user: &User,
        selection: Selection,
    ) -> Vec<EventAt<'a>> {
        match selection {
            Selection::Wanted(scope) => wanted_by(row, stacks, user, scope, &self.context.policies),
            Selection::All => stacks.pending_within(&row.watermarks, row.marker, |_, _| true),
        }
    }

    /// Checks whether this user may still get the row's email. The error is the reason why not.
    ///
    /// Users who unsubscribed here or at the provider, or want no digests, get mandatory types only
    /// (P7). An email of those alone has no unsubscribe link, which would not stop the next one.
    /// Its link to the preferences page remains, which explains this.
    fn allowed<'a>(
        &self,
        row: &Delivery,
        person: Option<&'a User>,
        suppressed: &Suppressed,
    ) -> Result<Allowed<'a>, String> {
        let user = person.ok_or("the person's record is gone")?;
        if user.start.is_some_and(|start| start.is_after(row.marker)) {
            return Err("the user of this id was deleted since".into());
        }
        let barred = suppressed.mailable(user).err();
        let mut barred = barred.map(|why| format!("the person is {}", why.as_str()));
        if let (Err(_), Some(why)) = (suppressed.scope(user), &barred) {
            return Err(why.clone());
        }
        if matches!(row.occasion, Occasion::Digest(..)) {
            let (schedule, scope) = user.digests(&self.context.config.digest.schedule);
            if scope == EmailScope::MandatoryOnly {
                barred.get_or_insert_with(|| "the person wants no digest any more".into());
            }
            match (schedule.cadence, &barred) {
                (Cadence::Never, Some(why)) => return Err(why.clone()),
                _ if row.watermarks.is_empty() => return Err("the row covers nothing".into()),
                _ => {}
            }
        }
        Ok((user, barred))
    }

    /// Returns a composer for emails of this brand; `None` if the brand is not configured.
    pub fn of_brand(&self, brand: Option<&BrandName>) -> Option<Self> {
        let Some(brand) = brand.filter(|brand| self.brand.as_ref() != Some(*brand)) else {
            return Some(self.clone());
        };
        Some(Self {
            brand: Some(brand.clone()),
            identity: self.identities.brands.get(brand)?.clone(),
            ..self.clone()
        })
    }

    /// Returns the brand of an email to this user: of a batch with this key, or of a digest without
    /// one. The brand of a batch takes precedence over that of its user.
    pub(crate) fn brand_of(user: Option<&User>, key: Option<&BatchKey>) -> Option<BrandName> {
        let of_batch = key.and_then(BatchKey::brand);
        let brand = of_batch.or_else(|| user.and_then(|user| user.brand.as_ref()));
        brand.cloned()
    }

    /// Returns the brands of these rows' emails, in the same order.
    pub(super) async fn brands_of(&self, rows: &[Delivery]) -> Result<Vec<Option<BrandName>>> {
        let users: Vec<UserId> = rows.iter().map(|row| row.user.clone()).collect();
        let people = self.context.store.users(&users).await?;
        let ids: Vec<Id> = rows.iter().filter_map(|row| row.occasion.batch()).collect();
        let filed = self.context.store.filed(&ids).await?.into_iter().flatten();
        let keys: HashMap<Id, BatchKey> = filed.map(|batch| (batch.id, batch.key)).collect();
        let of = |(row, user): (&Delivery, Option<User>)| {
            let key = row.occasion.batch().and_then(|id| keys.get(&id));
            Self::brand_of(user.as_ref(), key)
        };
        Ok(rows.iter().zip(people).map(of).collect())
    }
}

/// Returns the events of each batch, newest first.
fn newest_first(batches: &HashMap<Id, CandidateEvents>) -> HashMap<Id, Vec<Event>> {
    let newest = |of: &CandidateEvents| of.items.iter().rev().cloned().map(Event::from).collect();
    batches.iter().map(|(id, of)| (*id, newest(of))).collect()
}
