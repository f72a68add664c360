//! Simulates a year of five readers on a manual clock, with random failures and changed choices.
//!
//! Each event that its reader wanted is in one email, has expired, or is in an `unknown` delivery.
//! The final check reads the emails and its own list of events, not the ledger. The gate runs 75
//! days; `scripts/chaos --years N` runs N years with one seed each. Start with [`Year::day`].
//! Long because one model records all that happens to these readers and checks it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc, Weekday};
use chrono_tz::Tz;
use tidings::app::App;
use tidings::clock::Clock;
use tidings::domain::{
    Address, BatchState, Cadence, Day, Delivery, DeliverySource, DeliveryState, Id, PendingCounts,
    QuietHours, SuppressionReason, User,
};
use tidings::email::Outcome;
use tidings::engine::digest::DigestRequest as Run;
use tidings::engine::feedback::suppressions::SuppressionInput;
use tidings::engine::ingest::NewEvent;
use tidings::engine::users::input::{DigestChange, PreferencesChange, UserInput};
use tidings::engine::{Error, NoProgress};
use tidings::store::{BatchFilter, Store};

use crate::support::town::{Town, mostly_on_sqlite, request, to};
use crate::support::{
    Dice, FailingStore, Fault, Fresh, Shorthand, Then, feed_of, keep_days, kind, number, user,
};

mostly_on_sqlite! {
    every_wanted_event_of_a_year_is_in_one_email_or_expires
}

/// Ada, Ben and Cem are blocked at times. Dee has quiet hours and gets batches. Fay is deleted, and
/// her id is created again for another user.
const READERS: [&str; 5] = ["ada", "ben", "cem", "dee", "fay"];
/// Readers who are suppressed or unconfirmed at times.
const BLOCKED: [&str; 3] = ["ada", "ben", "cem"];
const CONFIG: &str = r#"
[digest]
items = 1000
section_items = 200
max_age = "21d"
[types.ArtworkPublished]
[types.Alarm]
route = "immediate"
[types.Talk]
route = "batch"
window = "2h"
close_at = 5
"#;
/// The number of days without failures at the end. All but the latest events are settled by then.
const CALM: i64 = 24;

async fn every_wanted_event_of_a_year_is_in_one_email_or_expires(fresh: Fresh) {
    let first = number("TIDINGS_TEST_SEED", 1);
    let (seeds, days) = match number("TIDINGS_TEST_YEARS", 0) {
        0 => (first..first + 1, 75),
        years => (first..first + years, 365),
    };
    for seed in seeds {
        fresh.clear().await;
        let mut year = Year::new(&fresh, seed).await;
        for day in 0..days + CALM {
            year.day(day >= days).await;
        }
        let summary = year.check_events().await;
        println!("TIDINGS_TEST_SEED={seed}: {days} days, {summary}");
    }
}

/// An event, with the information for the final check.
struct Event {
    reader: &'static str,
    /// The number of the user among those with the reader's id; 0 if there is only one.
    owner: u32,
    day: Day,
    work: String,
    id: Id,
    /// Whether it is emailed in a batch.
    batched: bool,
    emailed: u32,
    expired: bool,
    /// Its reader turned digests off, or was deleted, before it was emailed.
    excused: bool,
}

/// A temporary reason not to email a reader.
#[derive(Clone, Copy)]
enum Block {
    Suppressed,
    Unconfirmed,
    SoftBounced,
}

struct Year {
    town: Town,
    /// The process whose store never fails.
    app: App,
    dice: Dice,
    now: DateTime<Utc>,
    events: Vec<Event>,
    off: BTreeSet<&'static str>,
    blocked: BTreeMap<&'static str, (Block, DateTime<Utc>)>,
    /// The number of the latest user with Fay's id, and whether that user exists.
    fay: (u32, bool),
    /// Dee's batches that have ended.
    ended: BTreeSet<Id>,
    lifts: u32,
    scheduler_down: DateTime<Utc>,
    provider_down: DateTime<Utc>,
    emails_read: usize,
    expired: BTreeMap<Day, PendingCounts>,
    runs: u32,
    failed_runs: u32,
}

/// Dee's quiet hours, in Tokyo.
fn quiet_hours() -> QuietHours {
    QuietHours::new("22:00".parse().unwrap(), "07:00".parse().unwrap()).unwrap()
}

/// Returns the address of a reader. Each user with Fay's id has another one.
fn address(reader: &str, owner: u32) -> Address {
    let number = if owner > 0 { owner.to_string() } else { String::new() };
    Address::new(format!("{reader}{number}@example.org")).unwrap()
}

enum Act {
    Event(&'static str),
    Change(&'static str),
    Block(&'static str),
    DeleteOrCreate,
    Run,
    Archive,
}

impl Year {
    async fn new(fresh: &Fresh, seed: u64) -> Self {
        let town = Town::found(fresh, true, CONFIG).await;
        for reader in ["ben", "cem"] {
            let daily = |user: &mut User| user.digest.cadence = Some(Cadence::Daily);
            town.change(reader, daily).await;
        }
        town.change("dee", |dee| {
            dee.confirmed = true;
            dee.tz = Some(Tz::Asia__Tokyo);
            dee.quiet = Some(quiet_hours());
        })
        .await;
        let now = "2014-04-21T00:00:00Z".parse().unwrap();
        let mut year = Self {
            app: town.process(),
            town,
            dice: Dice(seed),
            now,
            events: Vec::new(),
            off: BTreeSet::new(),
            blocked: BTreeMap::new(),
            fay: (0, false),
            ended: BTreeSet::new(),
            lifts: 0,
            scheduler_down: now,
            provider_down: now,
            emails_read: 0,
            expired: BTreeMap::new(),
            runs: 0,
            failed_runs: 0,
        };
        year.delete_or_create().await;
        year
    }

    /// Plays one day. Acts happen at random minutes; in calm days nothing fails.
    async fn day(&mut self, calm: bool) {
        let start = self.now;
        if !calm {
            self.troubles();
        }
        self.lift(calm).await;
        let mut acts: Vec<(u64, Act)> = Vec::new();
        for reader in READERS {
            for _ in 0..self.dice.below(3) {
                acts.push((self.dice.below(1_440), Act::Event(reader)));
            }
            let chooses = !["dee", "fay"].contains(&reader);
            if !calm && chooses && self.dice.happens(30) {
                acts.push((self.dice.below(1_440), Act::Change(reader)));
            }
            if !calm && BLOCKED.contains(&reader) && self.dice.happens(20) {
                acts.push((self.dice.below(1_440), Act::Block(reader)));
            }
        }
        let creates = calm && !self.fay.1;
        if creates || (!calm && self.dice.happens(if self.fay.1 { 30 } else { 300 })) {
            acts.push((self.dice.below(1_440), Act::DeleteOrCreate));
        }
        acts.push((9 * 60 + self.dice.below(15), Act::Run));
        for _ in 0..3 {
            acts.push((self.dice.below(1_440), Act::Run));
        }
        if self.dice.happens(900) {
            acts.push((4 * 60 + self.dice.below(60), Act::Archive));
        }
        acts.sort_by_key(|(minute, _)| *minute);
        for (minute, act) in acts {
            self.now = start + TimeDelta::minutes(minute as i64);
            self.town.clock.set(self.now.max(self.town.clock.now()));
            match act {
                Act::Event(reader) => self.event(reader).await,
                Act::Change(reader) => self.change(reader).await,
                Act::Block(reader) => self.block(reader).await,
                Act::DeleteOrCreate => self.delete_or_create().await,
                Act::Run if calm || self.now >= self.scheduler_down => self.run(calm).await,
                Act::Archive if calm || self.now >= self.scheduler_down => self.archive(calm).await,
                Act::Run | Act::Archive => {}
            }
            self.check_quiet_hours().await;
        }
        self.now = start + TimeDelta::days(1);
    }

    /// Stops the scheduler or the provider at random, for an hour to ten days. Rarely the scheduler
    /// stops for 30 days, longer than `max_age`.
    fn troubles(&mut self) {
        let hours = |dice: &mut Dice| TimeDelta::hours(1 + dice.below(240) as i64);
        if self.dice.happens(25) {
            self.scheduler_down = self.now + hours(&mut self.dice);
        }
        if self.dice.happens(4) {
            self.scheduler_down = self.now + TimeDelta::days(30);
        }
        if self.dice.happens(25) {
            self.provider_down = self.now + hours(&mut self.dice);
        }
    }

    async fn event(&mut self, reader: &'static str) {
        let work = format!("e{}", self.events.len());
        self.town.put_works(&[&work], |_| true).await;
        let batched = reader == "dee";
        let name = match batched {
            true => self.dice.of(&["Alarm", "Talk"]),
            false => "ArtworkPublished",
        };
        let (owner, exists) = if reader == "fay" { self.fay } else { (0, true) };
        let happened = NewEvent { kind: kind(name), ..request(&[&work], to(&[reader]), None) };
        let accepted = self.app.notify().accept(vec![happened]).await.unwrap();
        self.app.fanouts().drain(&NoProgress).await.unwrap();
        self.events.push(Event {
            reader,
            owner,
            day: Day::of(self.town.clock.now()),
            work,
            id: accepted[0].id,
            batched,
            emailed: 0,
            expired: false,
            excused: !exists || self.off.contains(reader),
        });
    }

    /// Blocks email to a reader for up to 30 days. Their events stay wanted.
    async fn block(&mut self, reader: &'static str) {
        if self.blocked.contains_key(reader) {
            return;
        }
        let blocks = [Block::Suppressed, Block::Unconfirmed, Block::SoftBounced];
        let block = self.dice.of(&blocks);
        let until = self.now + TimeDelta::days(1 + self.dice.below(30) as i64);
        self.blocked.insert(reader, (block, until));
        let since = self.now;
        match block {
            Block::Suppressed => {
                let suppress = |user: &mut User| user.suppressed = Some(since);
                self.town.change(reader, suppress).await;
            }
            Block::Unconfirmed => {
                self.town.change(reader, |user| user.confirmed = false).await;
            }
            Block::SoftBounced => {
                let reason = SuppressionReason::SoftBounces;
                let input = SuppressionInput::new(address(reader, 0), reason);
                self.app.suppressions().add(vec![input]).await.unwrap();
            }
        }
    }

    /// Lifts the blocks that have ended; in calm days, all blocks.
    async fn lift(&mut self, calm: bool) {
        let over = |(_, until): &(Block, DateTime<Utc>)| calm || *until <= self.now;
        let over: Vec<&str> =
            self.blocked.iter().filter(|(_, of)| over(of)).map(|(r, _)| *r).collect();
        for reader in over {
            let (block, _) = self.blocked.remove(reader).unwrap();
            self.lifts += 1;
            match block {
                Block::Suppressed => {
                    self.town.change(reader, |user| user.suppressed = None).await;
                }
                Block::Unconfirmed => {
                    self.town.change(reader, |user| user.confirmed = true).await;
                }
                Block::SoftBounced => {
                    let suppressions = self.app.suppressions();
                    assert!(suppressions.lift(&address(reader, 0)).await.unwrap());
                }
            }
        }
    }

    /// Deletes Fay, or creates another user with her id and another address.
    async fn delete_or_create(&mut self) {
        let people = self.app.users();
        if self.fay.1 {
            let id = user("fay");
            assert!(people.erase(&id).await.unwrap());
            self.fay.1 = false;
            let hers = self.events.iter_mut().filter(|event| event.reader == "fay");
            hers.for_each(|event| event.excused |= event.emailed == 0 && !event.expired);
            return;
        }
        self.fay = (self.fay.0 + 1, true);
        let id = user("fay");
        let input = serde_json::json!({
            "id": id.as_str(),
            "email": address("fay", self.fay.0).reveal(),
            "confirmed": true,
            "digest": {"cadence": "daily"},
        });
        let input: UserInput = serde_json::from_value(input).unwrap();
        people.put_users(vec![input]).await.unwrap();
        let page = self.app.feeds().page(&feed_of(&id)).await.unwrap();
        assert!(page.answer.items.is_empty(), "a new user sees {:?}", page.answer.items);
    }

    /// Checks that no batch of Dee ends in quiet hours. The exception is a batch that was deferred
    /// to the end of earlier quiet hours, if no run followed before the next ones.
    async fn check_quiet_hours(&mut self) {
        let hers = BatchFilter { user: Some(user("dee")), ..BatchFilter::default() };
        let batches = self.town.store.find_batches(&hers, 50).await.unwrap();
        let now = self.town.clock.now();
        let is_quiet = quiet_hours().end_at(now, Tz::Asia__Tokyo).is_some();
        for batch in batches.iter().filter(|of| of.state != BatchState::Open) {
            let is_new = self.ended.insert(batch.id);
            let is_late = batch.deferred && batch.closes_at <= now;
            assert!(!(is_new && is_quiet) || is_late, "{batch:?} ended in quiet hours, at {now}");
        }
    }

    /// Gives a reader another weekday, hour, time zone or cadence.
    async fn change(&mut self, reader: &'static str) {
        const ZONES: [Tz; 5] = [
            Tz::UTC,
            Tz::Asia__Tokyo,
            Tz::Pacific__Kiritimati,
            Tz::Pacific__Honolulu,
            Tz::Europe__Paris,
        ];
        const WEEKDAYS: [Weekday; 4] = [Weekday::Mon, Weekday::Wed, Weekday::Sat, Weekday::Sun];
        let mut digest = DigestChange::default();
        let mut tz = None;
        match self.dice.below(4) {
            0 => digest.weekday = Some(Some(self.dice.of(&WEEKDAYS))),
            1 => digest.hour = Some(Some(self.dice.below(24) as u8)),
            2 => tz = Some(Some(self.dice.of(&ZONES))),
            _ => {
                let cadences = [Cadence::Weekly, Cadence::Daily, Cadence::Never];
                let cadence = self.dice.of(&cadences);
                digest.cadence = Some(Some(cadence));
                self.choose(reader, cadence);
            }
        }
        let change = PreferencesChange { digest: Some(digest), tz, ..PreferencesChange::default() };
        let people = self.app.users();
        people.change_preferences(&user(reader), change).await.unwrap();
    }

    fn choose(&mut self, reader: &'static str, cadence: Cadence) {
        if cadence != Cadence::Never {
            self.off.remove(reader);
            return;
        }
        self.off.insert(reader);
        let theirs = self.events.iter_mut().filter(|event| event.reader == reader);
        for event in theirs.filter(|event| event.emailed == 0 && !event.expired) {
            event.excused = true;
        }
    }

    /// Returns the reliable process or, with a probability of 6 %, one whose store fails for good
    /// within 40 calls.
    fn process(&mut self, calm: bool) -> App {
        if calm || !self.dice.happens(60) {
            return self.app.clone();
        }
        let nth = self.dice.below(40) as usize;
        let fault = self.dice.of(&[Fault::Refused, Fault::Unheard]);
        let store: Arc<dyn Store> =
            FailingStore::new(self.town.store.clone(), nth, fault, Then::StaysDown);
        self.town.process_on(&store)
    }

    async fn run(&mut self, calm: bool) {
        self.town.postbox.takes_everything();
        if !calm && self.now < self.provider_down {
            let reason = "away".to_owned();
            let kinds = [
                Outcome::Unreachable(reason.clone()),
                Outcome::TryLater(reason.clone(), None),
                Outcome::Refused(reason),
            ];
            let outcome = self.dice.of(&[0, 1, 2]);
            self.town.answer(vec![kinds[outcome].clone(); 50]);
        } else if !calm && self.dice.happens(50) {
            let reason = "550 not this one".to_owned();
            self.town.answer([Outcome::Refused(reason)]);
        }
        // The operator ends a pause.
        self.app.deliveries().resume().await.unwrap();
        let process = self.process(calm);
        let ended: Result<(), Error> = async {
            process.batches().drain(&NoProgress).await?;
            process.digests().run(&Run::default(), &NoProgress).await?;
            Ok(())
        }
        .await;
        self.runs += 1;
        self.failed_runs += u32::from(ended.is_err());
        self.read_results().await;
    }

    async fn archive(&mut self, calm: bool) {
        let request = keep_days(9);
        let archive = self.process(calm).archive();
        let ended = archive.run(&request, &NoProgress, &mut Vec::new()).await;
        self.failed_runs += u32::from(ended.is_err());
        self.read_results().await;
    }

    /// Reads the new emails and the counts of expired events.
    async fn read_results(&mut self) {
        let emails = self.town.emails();
        for email in &emails[self.emails_read..] {
            let text = email.fill_links().text;
            for event in &mut self.events {
                if !text.contains(&format!("Work {}.", event.work)) {
                    continue;
                }
                let of_event = address(event.reader, event.owner);
                assert_eq!(email.to, of_event, "{} was shown to another user", event.work);
                let is_owner = event.reader != "fay" || self.fay == (event.owner, true);
                assert!(is_owner, "{} was emailed to a deleted user", event.work);
                event.emailed += 1;
            }
        }
        self.emails_read = emails.len();
        let expired = self.app.backlog().summary().await.unwrap().expired;
        for (day, total) in &expired {
            let before = self.expired.get(day).copied().unwrap_or_default();
            let mut left = 0;
            let of_day = self.events.iter_mut().filter(|event| event.day == *day);
            for event in of_day.filter(|e| e.emailed == 0 && !e.batched && !e.excused && !e.expired)
            {
                if total.events > before.events {
                    event.expired = true;
                    left += 1;
                }
            }
            assert_eq!(total.events - before.events, left, "given up of {day}, at {}", self.now);
        }
        self.expired = expired;
    }

    async fn check_events(&self) -> String {
        // If a worker crashes during a call and the provider stays unreachable, the delivery
        // becomes `unknown` (P5).
        let unknown = DeliveryState::Unknown;
        let unknown = self.town.store.deliveries_in(unknown, 1_000).await;
        let unnamed = self.unnamed_batch_events().await;
        let mut ids = BTreeSet::new();
        for email in self.town.emails() {
            assert!(ids.insert(email.delivery.clone()), "{} was emailed twice", email.delivery);
        }
        let (mut emailed, mut expired, mut excused, mut in_doubt) = (0, 0, 0, 0);
        let mut refused = 0;
        // Later events may still wait for their digest.
        let settled = Day::of(self.now - TimeDelta::days(9));
        for event in &self.events {
            let what = format!("{} of {} for {}", event.work, event.day, event.reader);
            assert!(event.emailed <= 1, "{what} was emailed {} times", event.emailed);
            assert!(event.emailed == 0 || !event.expired, "{what} was given up and emailed");
            let watermarks = |row: &Delivery| {
                let mut watermarks = row.watermarks.iter();
                row.user.as_str() == event.reader
                    && watermarks.any(|(stack, _)| stack.day == event.day)
            };
            let known = event.emailed == 1 || event.expired || event.excused;
            if event.batched {
                let ended = known || unnamed.contains(&event.id);
                assert!(ended || event.day > settled, "{what} is lost");
                emailed += event.emailed;
                refused += u32::from(!known);
                continue;
            }
            let doubted = !known && unknown.iter().any(watermarks);
            in_doubt += u32::from(doubted);
            let ended = known || doubted;
            assert!(ended || event.day > settled, "{what} is lost");
            emailed += event.emailed;
            expired += u32::from(event.expired);
            excused += u32::from(event.excused && event.emailed == 0);
        }
        let of_digest = |row: &&Delivery| matches!(row.source, DeliverySource::Digest(..));
        let items = unknown.iter().filter(of_digest).map(|row| row.outcome.items);
        let unknown_events: u32 = items.sum();
        assert!(
            in_doubt <= unknown_events,
            "{in_doubt} events are in doubt, and unknown emails contain {unknown_events}"
        );
        let all = self.events.len();
        let (runs, failed) = (self.runs, self.failed_runs);
        format!(
            "{all} events, {emailed} emailed in {} emails, {expired} expired, {excused} turned off or deleted, \
             {in_doubt} in doubt, {refused} in refused batches; {runs} runs, {failed} broken off, {} lifts, \
             {} users with one id, {} batches",
            ids.len(),
            self.lifts,
            self.fay.0,
            self.ended.len(),
        )
    }

    /// Returns the events of Dee's batches that no email names. The provider refused the batch for
    /// good, its outcome is unknown, or the email only counts them.
    async fn unnamed_batch_events(&self) -> BTreeSet<Id> {
        let mut unnamed = BTreeSet::new();
        for state in [DeliveryState::Failed, DeliveryState::Unknown, DeliveryState::Sent] {
            let rows = self.town.store.deliveries_in(state, 5_000).await;
            let ids: Vec<Id> = rows
                .iter()
                .filter_map(|row| match row.source {
                    DeliverySource::Batch(batch, _) => Some(batch),
                    DeliverySource::Digest(..) => None,
                })
                .collect();
            for batch in self.town.store.filed_batches(&ids).await.unwrap() {
                let Some(batch) = batch else { continue };
                let items = batch.events.items.iter();
                let named: BTreeSet<Id> = items.map(|item| item.fanout_id).collect();
                let joined = batch.joined.iter().copied();
                let is_unnamed = |id: &Id| state != DeliveryState::Sent || !named.contains(id);
                unnamed.extend(joined.filter(is_unnamed));
            }
        }
        unnamed
    }
}
