//! A weekly and a daily reader for a year, on a clock that is turned by hand: the scheduler, the
//! provider and the database are away for hours or days at random, mails are refused, people change
//! their minds, and old days are archived every night.
//!
//! The rule: judged by the mails and by a list of its own, never by the ledger. Every event that
//! somebody wanted all the time is in exactly one mail, or among those that were given up, day by
//! day, or in a mail that is `unknown`. The gate plays a season; `scripts/chaos --years N` plays N
//! years, one a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc, Weekday};
use chrono_tz::Tz;
use tidings::app::App;
use tidings::clock::Clock;
use tidings::domain::{Cadence, Day, Delivery, DeliveryState, Owed};
use tidings::mail::Outcome;
use tidings::services::Silent;
use tidings::services::archive::{self, Protection};
use tidings::services::digest::Request;
use tidings::services::people::{DigestChange, PreferencesInput};
use tidings::store::Store;

use crate::support::town::{Town, on_both_stores, request, to};
use crate::support::{FailingStore, Fault, Fresh, Shorthand, Then, user};

on_both_stores! {
    every_wanted_event_of_a_year_is_in_one_mail_or_given_up
}

const READERS: [&str; 2] = ["ada", "ben"];
const CONFIG: &str = "digest.items = 1000\ndigest.section_items = 200\ndigest.max_age = \"21d\"\n";
/// How long everything works at the end: whatever is left is mailed or given up.
const CALM: i64 = 24;

async fn every_wanted_event_of_a_year_is_in_one_mail_or_given_up(fresh: Fresh) {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse::<u64>().unwrap());
    let first = number("TIDINGS_TEST_SEED").unwrap_or(1);
    let (seeds, days) = match number("TIDINGS_TEST_YEARS") {
        Some(years) => (first..first + years, 365),
        None => (first..first + 1, 75),
    };
    for seed in seeds {
        fresh.clear().await;
        let mut year = Year::new(&fresh, seed).await;
        for day in 0..days + CALM {
            year.day(day >= days).await;
        }
        let told = year.judge().await;
        println!("TIDINGS_TEST_SEED={seed}: {days} days, {told}");
    }
}

/// Numbers that look drawn and are the same for a seed (SplitMix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }

    /// So many times in a thousand.
    fn happens(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}

/// What the judge knows of an event.
struct Event {
    reader: &'static str,
    day: Day,
    work: String,
    mailed: u32,
    given_up: bool,
    /// Its reader turned digests off before it was mailed, so nobody owes it.
    excused: bool,
}

struct Year {
    town: Town,
    /// The process that does all that does not break off.
    app: App,
    draw: Draw,
    now: DateTime<Utc>,
    events: Vec<Event>,
    off: BTreeSet<&'static str>,
    scheduler_down: DateTime<Utc>,
    provider_down: DateTime<Utc>,
    mails_read: usize,
    given_up: BTreeMap<Day, Owed>,
    runs: u32,
    failed_runs: u32,
}

enum Act {
    Event(&'static str),
    Change(&'static str),
    Run,
    Archive,
}

impl Year {
    async fn new(fresh: &Fresh, seed: u64) -> Self {
        let town = Town::found(fresh, true, CONFIG).await;
        town.change("ben", |ben| ben.digest.cadence = Some(Cadence::Daily))
            .await;
        let now = "2014-04-21T00:00:00Z".parse().unwrap();
        Self {
            app: town.process(),
            town,
            draw: Draw(seed),
            now,
            events: Vec::new(),
            off: BTreeSet::new(),
            scheduler_down: now,
            provider_down: now,
            mails_read: 0,
            given_up: BTreeMap::new(),
            runs: 0,
            failed_runs: 0,
        }
    }

    /// One day, and what happens in it, by the minute.
    async fn day(&mut self, calm: bool) {
        let start = self.now;
        if !calm {
            self.troubles();
        }
        let mut acts: Vec<(u64, Act)> = Vec::new();
        for reader in READERS {
            for _ in 0..self.draw.below(3) {
                acts.push((self.draw.below(1_440), Act::Event(reader)));
            }
            if !calm && self.draw.happens(30) {
                acts.push((self.draw.below(1_440), Act::Change(reader)));
            }
        }
        acts.push((9 * 60 + self.draw.below(15), Act::Run));
        for _ in 0..3 {
            acts.push((self.draw.below(1_440), Act::Run));
        }
        if self.draw.happens(900) {
            acts.push((4 * 60 + self.draw.below(60), Act::Archive));
        }
        acts.sort_by_key(|(minute, _)| *minute);
        for (minute, act) in acts {
            self.now = start + TimeDelta::minutes(minute as i64);
            self.town.clock.set(self.now.max(self.town.clock.now()));
            match act {
                Act::Event(reader) => self.event(reader).await,
                Act::Change(reader) => self.change(reader).await,
                Act::Run if calm || self.now >= self.scheduler_down => self.run(calm).await,
                Act::Archive if calm || self.now >= self.scheduler_down => self.archive(calm).await,
                Act::Run | Act::Archive => {}
            }
        }
        self.now = start + TimeDelta::days(1);
    }

    /// Now and then the scheduler or the provider goes away, for hours or up to ten days, and once
    /// in a long while for longer than anything waits.
    fn troubles(&mut self) {
        let hours = |draw: &mut Draw| TimeDelta::hours(1 + draw.below(240) as i64);
        if self.draw.happens(25) {
            self.scheduler_down = self.now + hours(&mut self.draw);
        }
        if self.draw.happens(4) {
            self.scheduler_down = self.now + TimeDelta::days(30);
        }
        if self.draw.happens(25) {
            self.provider_down = self.now + hours(&mut self.draw);
        }
    }

    async fn event(&mut self, reader: &'static str) {
        let work = format!("e{}", self.events.len());
        self.town.put_works(&[&work], |_| true).await;
        let happened = vec![request(&[&work], to(&[reader]), None)];
        self.app.notify().accept(happened).await.unwrap();
        self.app.fanouts().drain(&Silent).await.unwrap();
        self.events.push(Event {
            reader,
            day: Day::of(self.town.clock.now()),
            work,
            mailed: 0,
            given_up: false,
            excused: self.off.contains(reader),
        });
    }

    /// Somebody chooses another weekday, hour, zone or cadence.
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
        match self.draw.below(4) {
            0 => digest.weekday = Some(Some(self.draw.of(&WEEKDAYS))),
            1 => digest.hour = Some(Some(self.draw.below(24) as u8)),
            2 => tz = Some(Some(self.draw.of(&ZONES))),
            _ => {
                let cadences = [Cadence::Weekly, Cadence::Daily, Cadence::Never];
                let cadence = self.draw.of(&cadences);
                digest.cadence = Some(Some(cadence));
                self.choose(reader, cadence);
            }
        }
        let change = PreferencesInput {
            digest,
            tz,
            ..PreferencesInput::default()
        };
        let people = self.app.people();
        people.prefer(&user(reader), change).await.unwrap();
    }

    fn choose(&mut self, reader: &'static str, cadence: Cadence) {
        if cadence != Cadence::Never {
            self.off.remove(reader);
            return;
        }
        self.off.insert(reader);
        let theirs = self
            .events
            .iter_mut()
            .filter(|event| event.reader == reader);
        for event in theirs.filter(|event| event.mailed == 0 && !event.given_up) {
            event.excused = true;
        }
    }

    /// A process whose store goes away in the middle, now and then.
    fn process(&mut self, calm: bool) -> App {
        if calm || !self.draw.happens(60) {
            return self.app.clone();
        }
        let nth = self.draw.below(40) as usize;
        let fault = self.draw.of(&[Fault::Refused, Fault::Unheard]);
        let store: Arc<dyn Store> =
            FailingStore::new(self.town.store.clone(), nth, fault, Then::StaysDown);
        self.town.process_on(&store)
    }

    async fn run(&mut self, calm: bool) {
        self.town.postbox.takes_everything();
        if !calm && self.now < self.provider_down {
            let reason = "away".to_owned();
            let kinds = [
                Outcome::Unreachable {
                    reason: reason.clone(),
                },
                Outcome::TryLater {
                    reason: reason.clone(),
                    after: None,
                },
                Outcome::Refused { reason },
            ];
            let outcome = self.draw.of(&[0, 1, 2]);
            self.town.answer(vec![kinds[outcome].clone(); 50]);
        } else if !calm && self.draw.happens(50) {
            let reason = "550 not this one".to_owned();
            self.town.answer([Outcome::Refused { reason }]);
        }
        // The operator sees to it that a pause ends.
        self.app.deliveries().resume().await.unwrap();
        let digests = self.process(calm).digests();
        let ended = digests.run(&Request::default(), &Silent).await;
        self.runs += 1;
        self.failed_runs += u32::from(ended.is_err());
        self.look().await;
    }

    async fn archive(&mut self, calm: bool) {
        let request = archive::Request {
            keep: TimeDelta::days(9),
            export: None,
            effect: archive::Effect::Drop,
            protection: Protection::Keep,
        };
        let archive = self.process(calm).archive();
        let ended = archive.run(&request, &Silent, &mut Vec::new()).await;
        self.failed_runs += u32::from(ended.is_err());
        self.look().await;
    }

    /// Reads the mails that came, and what was given up.
    async fn look(&mut self) {
        let mails = self.town.mails();
        for mail in &mails[self.mails_read..] {
            let text = mail.filled().text;
            let reader = mail.delivery.as_str().split(':').nth(1).unwrap();
            for event in self
                .events
                .iter_mut()
                .filter(|event| event.reader == reader)
            {
                event.mailed += u32::from(text.contains(&format!("Work {}.", event.work)));
            }
        }
        self.mails_read = mails.len();
        let told = self.app.owed().told().await.unwrap().given_up;
        for (day, owed) in &told {
            let before = self.given_up.get(day).copied().unwrap_or_default();
            let mut left = 0;
            let of_day = self.events.iter_mut().filter(|event| event.day == *day);
            for event in of_day.filter(|e| e.mailed == 0 && !e.excused && !e.given_up) {
                if owed.events > before.events {
                    event.given_up = true;
                    left += 1;
                }
            }
            assert_eq!(
                owed.events - before.events,
                left,
                "given up of {day}, at {}",
                self.now
            );
        }
        self.given_up = told;
    }

    async fn judge(&self) -> String {
        // A worker that died over a call to a provider that then stays away: nobody can tell, and
        // the ledger says so (P5).
        let unknown = DeliveryState::Unknown;
        let unknown = self.town.store.deliveries_in(unknown, 1_000).await.unwrap();
        let mut ids = BTreeSet::new();
        for mail in self.town.mails() {
            assert!(
                ids.insert(mail.delivery.clone()),
                "{} was mailed twice",
                mail.delivery
            );
        }
        let (mut mailed, mut given_up, mut excused, mut in_doubt) = (0, 0, 0, 0);
        // What happened in the last week may wait for its hour.
        let settled = Day::of(self.now - TimeDelta::days(9));
        for event in &self.events {
            let what = format!("{} of {} for {}", event.work, event.day, event.reader);
            assert!(
                event.mailed <= 1,
                "{what} was mailed {} times",
                event.mailed
            );
            assert!(
                event.mailed == 0 || !event.given_up,
                "{what} was given up and mailed"
            );
            let watermarks = |row: &Delivery| {
                let mut watermarks = row.watermarks.iter();
                row.user.as_str() == event.reader
                    && watermarks.any(|(stack, _)| stack.day == event.day)
            };
            let known = event.mailed == 1 || event.given_up || event.excused;
            let doubted = !known && unknown.iter().any(watermarks);
            in_doubt += u32::from(doubted);
            let ended = known || doubted;
            assert!(ended || event.day > settled, "{what} is lost");
            mailed += event.mailed;
            given_up += u32::from(event.given_up);
            excused += u32::from(event.excused && event.mailed == 0);
        }
        let told: u32 = unknown.iter().map(|row| row.items).sum();
        assert!(
            in_doubt <= told,
            "{in_doubt} events are in doubt, and unknown mails tell {told}"
        );
        let all = self.events.len();
        let (runs, failed) = (self.runs, self.failed_runs);
        format!(
            "{all} events, {mailed} mailed in {} mails, {given_up} given up, {excused} turned off, {in_doubt} in doubt; {runs} runs, {failed} broken off",
            ids.len()
        )
    }
}
