//! Builds emails from delivery rows: reads their events again, checks them, and renders the rest.
//!
//! It only reads. An email includes the events that its row covers and no earlier email included
//! (P3). They must still apply (P6), and the user must be allowed to get them (P7). All of that is
//! checked just before sending. A repeated call is built as of its first time, so that it has the
//! same content. Start with [`Compose::build`].

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use self::reasons::Reasons;
use self::renderings::Contents;
use super::brand_identities::{Identities, Identity};
use crate::context::Context;
use crate::domain::batch::BatchItem;
use crate::domain::day_stack::StackEvent;
use crate::domain::delivery::{Deferral, Settlement, SettlementCause};
use crate::domain::digest_content::{build_digest_content, delivery_events, events_to_show};
use crate::domain::email_sections::{ItemLimits, build_batch_content};
use crate::domain::user::UnmailableReason;
use crate::domain::{
    BatchKey, BrandName, Cadence, DaySet, Delivery, DeliverySource, DeliveryState, EmailContent,
    EmailScope, Event, Id, Stack, User, UserId, UserStacks,
};
use crate::email::Message;
use crate::engine::Result;
use crate::engine::eligibility;
use crate::engine::eligibility::event_facts::{EventFacts, StackEvents};
use crate::engine::feedback::suppressions::SuppressedAddresses;

mod batch_events;
mod message;
mod preview;
mod reasons;
mod renderings;

pub(super) use batch_events::stacks_of;
pub(crate) use preview::{ReconstructedEmail, SelectedEvents};

const NO_RECORD: &str = "the person's record is gone";
/// How soon rows of an unconfigured brand are tried again.
const BRAND_CHECK_INTERVAL: TimeDelta = TimeDelta::minutes(10);

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
    /// Whether its markers exist, because its row once was `sent` or `unknown`.
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
    /// Whether its markers exist, because its row once was `sent` or `unknown`.
    has_markers: bool,
}

impl CandidateEvents {
    fn new(key: BatchKey, items: Vec<BatchItem>, omitted: u64) -> Self {
        Self { key, items, omitted, has_markers: false }
    }
}

/// The events that the emails of some rows may include.
struct Chosen<'a> {
    /// The events of digests, in the order of the rows.
    digests: Vec<Vec<StackEvent<'a>>>,
    batches: HashMap<Id, CandidateEvents>,
    reasons: Reasons,
}

/// A user who may get a row's email, and the reason why they get mandatory types only, if they do.
type Allowed<'a> = (&'a User, Option<String>);

/// Checks that the stacks of the row accept markers. Otherwise each later email would repeat the
/// events. The next email excludes such a stack.
fn check_takes_markers(row: &Delivery, stacks: &UserStacks) -> Result<(), String> {
    let is_covered = |stack: &&Stack| row.watermarks.iter().any(|(id, _)| *id == stack.id);
    let mut covered = stacks.stacks.iter().filter(is_covered);
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
        let mut event_facts = EventFacts::for_emails(&self.context);
        let mut stacks = self.load_stacks(rows).await?;
        let (users, mut inboxes) =
            eligibility::load_users_and_inboxes(&stacks, &event_facts).await?;
        // A digest that is built again after its markers were written includes the same events.
        for ((row, stacks), inbox) in rows.iter().zip(&stacks).zip(&mut inboxes) {
            inbox.take_if(|_| stacks.has_digest_marker(row.marker));
        }
        let which = StackEvents::All;
        eligibility::exclude_events(&mut stacks, &users, &inboxes, which, &mut event_facts).await?;
        let suppressed =
            SuppressedAddresses::load_for(&*self.context.store, users.iter().flatten()).await?;
        let with_users = rows.iter().zip(&users);
        let allowed: Vec<_> = with_users
            .map(|(row, user)| self.check_allowed(row, user.as_ref(), &suppressed))
            .collect();
        let selection = |allowed: &Result<Allowed<'_>, String>| match allowed {
            Ok((_, Some(_))) => MANDATORY,
            _ => WANTED,
        };
        let selections: Vec<Selection> = allowed.iter().map(selection).collect();
        let chosen = self.choose(rows, &users, &stacks, &selections, &mut event_facts).await?;
        let maker = self.identity.links.link_maker().await?;
        let (mut built, mut contents) = (BuiltRows::default(), Contents::default());
        for (index, ((row, allowed), stacks)) in rows.iter().zip(allowed).zip(&stacks).enumerate() {
            let is_repeated = row.state == DeliveryState::Sending;
            if !is_repeated && contents.is_full() {
                break;
            }
            built.rows += 1;
            let batch = row.source.batch().and_then(|batch| chosen.batches.get(&batch));
            let has_markers = match row.source {
                DeliverySource::Digest(..) => stacks.has_digest_marker(row.marker),
                DeliverySource::Batch(..) => batch.is_some_and(|batch| batch.has_markers),
            };
            let checked = self.checked_content(row, allowed, stacks, &chosen, index, &event_facts);
            let (user, content) = match checked {
                Ok(checked) => checked,
                Err(canceled) => {
                    built.settlements.push(canceled);
                    continue;
                }
            };
            // Only a repeated call keeps the brand that it had.
            let brand = Self::brand_of(Some(user), batch.map(|batch| &batch.key));
            if !is_repeated && brand != self.brand {
                self.defer_to_brand(row, brand.as_ref(), has_markers, &mut built);
                continue;
            }
            let items = u32::try_from(content.total).unwrap_or(u32::MAX);
            match self.message(row, user, content, maker.as_ref(), at, &mut contents) {
                Ok(message) => {
                    let row = row.clone();
                    built.emails.push(BuiltEmail { row, items, has_markers, message });
                }
                Err(reason) => {
                    let state = DeliveryState::for_rejected(has_markers);
                    built.settlements.push(Settlement::for_row(row, state, 0, Some(&reason)));
                }
            }
        }
        Ok(built)
    }

    /// Returns the user and the content of a row's email. The error cancels the row.
    fn checked_content<'a>(
        &self,
        row: &Delivery,
        allowed: Result<Allowed<'a>, String>,
        stacks: &UserStacks,
        chosen: &Chosen<'_>,
        index: usize,
        event_facts: &EventFacts,
    ) -> Result<(&'a User, EmailContent), Settlement> {
        let cancel = |cause, reason: &str| Settlement {
            cause: Some(cause),
            ..Settlement::for_row(row, DeliveryState::Canceled, 0, Some(reason))
        };
        let (user, restriction) =
            allowed.map_err(|why| cancel(SettlementCause::NotMailable, &why))?;
        check_takes_markers(row, stacks)
            .map_err(|why| cancel(SettlementCause::NotMailable, &why))?;
        let content =
            self.content(row, chosen, index, event_facts).ok_or_else(|| match &restriction {
                Some(why) => cancel(SettlementCause::NotMailable, why),
                None => cancel(SettlementCause::NothingLeft, "nothing is left that applies"),
            });
        Ok((user, content?))
    }

    /// Defers a row whose email belongs to another brand than this composer's. If that brand is
    /// configured, a worker can claim the row at once. Otherwise the row waits for it, until it
    /// expires.
    fn defer_to_brand(
        &self,
        row: &Delivery,
        brand: Option<&BrandName>,
        has_markers: bool,
        built: &mut BuiltRows,
    ) {
        let now = self.context.clock.now();
        let is_absent = |brand: &&BrandName| !self.identities.brands.contains_key(*brand);
        let mut defer = |at, why: &str| {
            built.deferrals.push(Deferral::for_row(row, DeliveryState::Pending, at, why));
        };
        let Some(reason) = brand.filter(is_absent).map(BrandName::unconfigured_reason) else {
            return defer(now, "its brand has changed");
        };
        if now - row.created < self.context.config.delivery.give_up_after {
            return defer(now + BRAND_CHECK_INTERVAL, &reason);
        }
        let state = DeliveryState::for_rejected(has_markers);
        let why = format!("given up: {reason}");
        built.settlements.push(Settlement::for_row(row, state, 0, Some(&why)).into_given_up());
        // The ledger excuses reopened rows.
        built.excused += u64::from(row.attempts.reopened == 0);
    }

    /// Chooses the events of these rows, which are in the order of `users`, `stacks` and
    /// `selections`, and loads their details.
    async fn choose<'a>(
        &self,
        rows: &[Delivery],
        users: &[Option<User>],
        stacks: &'a [UserStacks],
        selections: &[Selection],
        event_facts: &mut EventFacts,
    ) -> Result<Chosen<'a>> {
        let with_users = rows.iter().zip(users).zip(stacks.iter().zip(selections));
        let digests: Vec<Vec<StackEvent<'a>>> = with_users
            .map(|((row, user), (stacks, selection))| match user {
                Some(user) => self.select_pending(row, stacks, user, *selection),
                None => Vec::new(),
            })
            .collect();
        event_facts
            .load_objects_and_retractions(digests.iter().flatten().map(|pending| pending.event))
            .await?;
        let batches = self.batch_events(rows, users, selections, event_facts).await?;
        let newest = newest_first(&batches);
        let applies = |event: &Event| event_facts.applicable_object(event).is_some();
        let shown = rows.iter().zip(&digests).map(|(row, pending)| match row.source.batch() {
            None => (&row.user, events_to_show(pending, self.caps(), applies)),
            Some(batch) => (&row.user, newest.get(&batch).into_iter().flatten().collect()),
        });
        let shown: Vec<(&UserId, Vec<&Event>)> = shown.collect();
        let reasons = self.load_reasons(&shown, event_facts).await?;
        Ok(Chosen { digests, batches, reasons })
    }

    /// Loads the details of these events, and finds out why they concern their users.
    pub(crate) async fn load_reasons(
        &self,
        shown: &[(&UserId, Vec<&Event>)],
        event_facts: &mut EventFacts,
    ) -> Result<Reasons> {
        let events: Vec<&Event> = shown.iter().flat_map(|(_, events)| events).copied().collect();
        event_facts.load_details(events.into_iter()).await?;
        Reasons::of(shown, event_facts).await
    }

    /// Loads the stacks of each row's user, in the order of the rows. Rows that cover nothing get
    /// none.
    async fn load_stacks(&self, rows: &[Delivery]) -> Result<Vec<UserStacks>> {
        let covering = || rows.iter().filter(|row| !row.watermarks.is_empty());
        let covered = covering().flat_map(|row| &row.watermarks);
        let users: Vec<UserId> = covering().map(|row| row.user.clone()).collect();
        let loaded = match DaySet::from_days(covered.map(|(stack, _)| stack.day)) {
            Some(window) => self.context.store.windows(window, &users).await?,
            None => Vec::new(),
        };
        let mut loaded = loaded.into_iter();
        let stacks = rows.iter().map(|row| {
            let own = if row.watermarks.is_empty() { None } else { loaded.next() };
            own.unwrap_or_else(|| UserStacks { user: row.user.clone(), stacks: Vec::new() })
        });
        Ok(stacks.collect())
    }

    /// Returns the most items in a section and in a digest.
    fn caps(&self) -> ItemLimits {
        self.context.config.digest.caps
    }

    /// Returns the content of the email of the row at this index. `None` if no event applies any
    /// more.
    fn content(
        &self,
        row: &Delivery,
        chosen: &Chosen<'_>,
        index: usize,
        event_facts: &EventFacts,
    ) -> Option<EmailContent> {
        let content = match row.source.batch() {
            None => {
                let event_data = |event: &Event| event_facts.event_data(event);
                build_digest_content(
                    &chosen.digests[index],
                    &self.context.policies,
                    self.caps(),
                    event_data,
                )
            }
            Some(batch) => self.batch_content(chosen.batches.get(&batch)?, event_facts),
        };
        let mut content = content?;
        content.follow_reasons = chosen.reasons.followed_things(&row.user, &content);
        Some(content)
    }

    /// Returns the content of a batch's email; `None` if no event applies.
    fn batch_content(
        &self,
        events: &CandidateEvents,
        event_facts: &EventFacts,
    ) -> Option<EmailContent> {
        let event_data = |event: &Event| event_facts.event_data(event);
        let (key, policies) = (&events.key, &self.context.policies);
        build_batch_content(key, &events.items, events.omitted, policies, event_data)
    }

    /// Returns the events that a digest's row may include.
    fn select_pending<'a>(
        &self,
        row: &Delivery,
        stacks: &'a UserStacks,
        user: &User,
        selection: Selection,
    ) -> Vec<StackEvent<'a>> {
        match selection {
            Selection::Wanted(scope) => {
                delivery_events(row, stacks, user, scope, &self.context.policies)
            }
            Selection::All => stacks.pending_below(&row.watermarks, row.marker, |_, _| true),
        }
    }

    /// Checks whether this user may still get the row's email. The error is the reason why not.
    ///
    /// Users who unsubscribed here or at the provider, or want no digests, get mandatory types only
    /// (P7). An email with only these has no unsubscribe link, because unsubscribing would not stop
    /// the next one. Its link to the preferences page remains, which explains this.
    fn check_allowed<'a>(
        &self,
        row: &Delivery,
        user: Option<&'a User>,
        suppressed: &SuppressedAddresses,
    ) -> Result<Allowed<'a>, String> {
        let user = user.ok_or(NO_RECORD)?;
        if user.start.is_some_and(|start| start.is_after(row.marker)) {
            return Err("the user of this id was deleted since".into());
        }
        let describe = |why: UnmailableReason| format!("the person is {}", why.as_str());
        suppressed.email_scope(user).map_err(describe)?;
        let mut restriction = suppressed.check_mailable(user).err().map(describe);
        if matches!(row.source, DeliverySource::Digest(..)) {
            let (schedule, scope) = user.digest_schedule(&self.context.config.digest.schedule);
            if scope == EmailScope::MandatoryOnly {
                let why =
                    restriction.get_or_insert_with(|| "the person wants no digest any more".into());
                if schedule.cadence == Cadence::Never {
                    return Err(why.clone());
                }
            }
            if row.watermarks.is_empty() {
                return Err("the row covers nothing".into());
            }
        }
        Ok((user, restriction))
    }

    /// Returns a composer for emails of this brand; `None` if the brand is not configured. Without
    /// a brand, returns a copy of this composer.
    pub fn for_brand(&self, brand: Option<&BrandName>) -> Option<Self> {
        let Some(brand) = brand.filter(|brand| self.brand.as_ref() != Some(*brand)) else {
            return Some(self.clone());
        };
        Some(Self {
            brand: Some(brand.clone()),
            identity: self.identities.brands.get(brand)?.clone(),
            ..self.clone()
        })
    }

    /// Returns the brand of an email to this user. `key` is the key of its batch; `None` for a
    /// digest. The brand of a batch takes precedence over that of its user.
    fn brand_of(user: Option<&User>, key: Option<&BatchKey>) -> Option<BrandName> {
        let of_batch = key.and_then(BatchKey::brand);
        of_batch.or_else(|| user.and_then(|user| user.brand.as_ref())).cloned()
    }

    /// Returns the brands of these rows' emails, in the same order.
    pub(super) async fn brands_of(&self, rows: &[Delivery]) -> Result<Vec<Option<BrandName>>> {
        let user_ids: Vec<UserId> = rows.iter().map(|row| row.user.clone()).collect();
        let users = self.context.store.users(&user_ids).await?;
        let batch_ids: Vec<Id> = rows.iter().filter_map(|row| row.source.batch()).collect();
        let batches = self.context.store.filed_batches(&batch_ids).await?.into_iter().flatten();
        let keys: HashMap<Id, BatchKey> = batches.map(|batch| (batch.id, batch.key)).collect();
        let brand = |(row, user): (&Delivery, Option<User>)| {
            let key = row.source.batch().and_then(|batch| keys.get(&batch));
            Self::brand_of(user.as_ref(), key)
        };
        Ok(rows.iter().zip(users).map(brand).collect())
    }
}

/// Returns the events of each batch, newest first.
fn newest_first(batches: &HashMap<Id, CandidateEvents>) -> HashMap<Id, Vec<Event>> {
    let newest =
        |batch: &CandidateEvents| batch.items.iter().rev().cloned().map(Event::from).collect();
    batches.iter().map(|(id, batch)| (*id, newest(batch))).collect()
}
