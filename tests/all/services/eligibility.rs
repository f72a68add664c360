//! Emails, feeds, backlogs and `explain` agree with an independent model of which events a user
//! gets, in random worlds of users, choices, mutes, marks, objects and retractions.
//!
//! Long because the world, the model and the steps belong together.
//!
//! `TIDINGS_TEST_WORLDS` sets the number of worlds for each store; each decides thousands of cases.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use tidings::app::App;
use tidings::clock::Clock;
use tidings::domain::feed_marks::Mark;
use tidings::domain::user::TypePreference;
use tidings::domain::{
    Address, Cadence, Day, Object, Route, Subject, Suppression, SuppressionReason, User,
};
use tidings::engine::NoProgress;
use tidings::engine::ingest::NewEvent;
use tidings::engine::users::input::MuteInput;
use tidings::wire::explanation::EventStatus;
use tidings::wire::feed::FeedPage;

use crate::support::town::{Town, monday, mostly_on_sqlite, request, to};
use crate::support::{Dice, Fresh, Shorthand, feed_of, kind, marks, number, user};

mostly_on_sqlite! {
    random_worlds_agree_with_the_model
}

/// Each type with its objects. Their names start with the type, so an email's text shows which
/// events it includes.
const TYPES: [&str; 7] = ["Work", "Loose", "Hidden", "Rule", "Reply", "Alarm", "Muffled"];
const CONFIG: &str = r#"
types.Work.route = "digest"
types.Loose.route = "digest"
types.Loose.unknown_objects = "mail"
types.Hidden.route = "digest"
types.Hidden.feed = false
types.Rule.route = "digest"
types.Rule.mandatory = true
types.Reply.route = "batch"
types.Reply.window = "5m"
types.Alarm.route = "batch"
types.Alarm.window = "5m"
types.Alarm.mandatory = true
types.Muffled.route = "never"
"#;
const USERS: usize = 10;
const OBJECTS: u64 = 4;
const STEPS: u64 = 40;

/// Why a user may not be emailed, or not everything.
#[derive(Clone, Copy, PartialEq)]
enum Reach {
    Reachable,
    Unconfirmed,
    Bounced,
    Unsubscribed,
    ComplainedByUnsubscribing,
    NoDigests,
}

impl Reach {
    const ALL: [Self; 8] = [
        Self::Reachable,
        Self::Reachable,
        Self::Reachable,
        Self::Unconfirmed,
        Self::Bounced,
        Self::Unsubscribed,
        Self::ComplainedByUnsubscribing,
        Self::NoDigests,
    ];
}

/// What the model remembers of a user.
struct Person {
    reach: Reach,
    /// Whether their brand is no longer configured, so that their emails wait.
    is_of_absent_brand: bool,
    routes: BTreeMap<&'static str, (Route, DateTime<Utc>)>,
    digests_since: Option<DateTime<Utc>>,
    /// Until when events about a subject are muted; `None` for good.
    mutes: BTreeMap<String, Option<DateTime<Utc>>>,
    seen: Option<DateTime<Utc>>,
    /// Type, object and time of each event, oldest first.
    events: Vec<(&'static str, String, DateTime<Utc>)>,
}

/// The state of an object that the application reported last.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Shown,
    Withdrawn,
}

struct World {
    skips_seen: bool,
    people: Vec<Person>,
    objects: BTreeMap<String, State>,
    retracted: BTreeMap<String, DateTime<Utc>>,
}

fn name(person: usize) -> String {
    format!("u{person}")
}

fn is_mandatory(kind: &str) -> bool {
    matches!(kind, "Rule" | "Alarm")
}

fn default_route(kind: &str) -> Route {
    match kind {
        "Reply" | "Alarm" => Route::Batch,
        "Muffled" => Route::Never,
        _ => Route::Digest,
    }
}

impl World {
    fn route(&self, person: &Person, kind: &str, at: DateTime<Utc>) -> Route {
        match person.routes.get(kind) {
            Some(_) if is_mandatory(kind) => default_route(kind),
            Some((_, since)) if at < *since => Route::Never,
            Some((route, _)) => *route,
            None => default_route(kind),
        }
    }

    fn is_retracted(&self, object: &str, at: DateTime<Utc>) -> bool {
        self.retracted.get(object).is_some_and(|to| at <= *to)
    }

    fn is_muted(person: &Person, kind: &str, object: &str, at: DateTime<Utc>) -> bool {
        let until = person.mutes.get(object);
        !is_mandatory(kind) && until.is_some_and(|until| until.is_none_or(|until| at < until))
    }

    fn may_get(person: &Person, kind: &str, in_digest: bool) -> bool {
        match person.reach {
            Reach::Reachable => true,
            Reach::Unconfirmed | Reach::Bounced => false,
            Reach::Unsubscribed | Reach::ComplainedByUnsubscribing => is_mandatory(kind),
            Reach::NoDigests => !in_digest || is_mandatory(kind),
        }
    }

    /// Returns why no email may include the event, before its route is known.
    fn unfit(
        &self,
        person: &Person,
        kind: &str,
        object: &str,
        at: DateTime<Utc>,
    ) -> Option<EventStatus> {
        if self.is_retracted(object, at) {
            return Some(EventStatus::Retracted);
        }
        if Self::is_muted(person, kind, object, at) {
            return Some(EventStatus::Muted);
        }
        match self.objects.get(object) {
            None if kind == "Loose" => None,
            None => Some(EventStatus::UnknownObject),
            Some(State::Withdrawn) => Some(EventStatus::Withdrawn),
            Some(State::Shown) => None,
        }
    }

    fn digest_reason(
        &self,
        person: &Person,
        kind: &str,
        object: &str,
        at: DateTime<Utc>,
    ) -> Option<EventStatus> {
        let is_early = person.digests_since.is_some_and(|since| at < since);
        // Marks are on what the feed showed.
        let is_seen = kind != "Hidden" && person.seen.is_some_and(|seen| at <= seen);
        if let Some(why) = self.unfit(person, kind, object, at) {
            return Some(why);
        }
        if self.route(person, kind, at) != Route::Digest || (is_early && !is_mandatory(kind)) {
            return Some(EventStatus::NotForDigest);
        }
        (is_seen && self.skips_seen).then_some(EventStatus::Seen)
    }

    /// The objects that the user's emails include.
    fn emailed(&self, person: &Person) -> BTreeSet<String> {
        let gets = |(kind, object, at): &&(&'static str, String, DateTime<Utc>)| {
            let alone = matches!(self.route(person, kind, *at), Route::Batch | Route::Immediate);
            match alone {
                true => {
                    self.unfit(person, kind, object, *at).is_none()
                        && Self::may_get(person, kind, false)
                }
                false => {
                    self.digest_reason(person, kind, object, *at).is_none()
                        && Self::may_get(person, kind, true)
                }
            }
        };
        let gets = person.events.iter().filter(gets);
        let gets = gets.filter(|_| !person.is_of_absent_brand);
        gets.map(|(_, object, _)| object.clone()).collect()
    }

    /// The objects that the user's feed shows: unread or not.
    fn shown(&self, person: &Person) -> BTreeMap<String, bool> {
        let mut shown = BTreeMap::new();
        for (kind, object, at) in &person.events {
            let is_withdrawn = self.objects.get(object) == Some(&State::Withdrawn);
            if *kind == "Hidden" || is_withdrawn || self.is_retracted(object, *at) {
                continue;
            }
            let is_unread = !Self::is_muted(person, kind, object, *at);
            shown.entry(object.clone()).or_insert(is_unread);
        }
        shown
    }

    /// The events that wait for a digest on this day: of users who may be emailed, and of others.
    fn backlog(&self, day: Day) -> (u64, u64) {
        let (mut mailable, mut blocked) = (0, 0);
        for person in &self.people {
            let mut waiting = BTreeSet::new();
            for (kind, object, at) in &person.events {
                if Day::of(*at) == day && self.digest_reason(person, kind, object, *at).is_none() {
                    waiting.insert((*kind, object));
                }
            }
            for (kind, _) in waiting {
                let wants = match person.reach {
                    Reach::NoDigests | Reach::Unsubscribed => is_mandatory(kind),
                    _ => true,
                };
                match Self::may_get(person, kind, true) {
                    _ if !wants => {}
                    true => mailable += 1,
                    false => blocked += 1,
                }
            }
        }
        (mailable, blocked)
    }

    /// Why the user gets each event in a digest or not, newest first; `None` for events on other
    /// ways.
    fn reasons(&self, person: &Person) -> Vec<Option<EventStatus>> {
        let mut included = BTreeSet::new();
        let reason = |(kind, object, at): &(&'static str, String, DateTime<Utc>)| {
            let alone = matches!(self.route(person, kind, *at), Route::Batch | Route::Immediate);
            // What once joined a batch is explained by it.
            if alone || default_route(kind) == Route::Batch || person.routes.contains_key(kind) {
                return None;
            }
            if let Some(why) = self.digest_reason(person, kind, object, *at) {
                return Some(why);
            }
            if !included.insert(object.clone()) {
                return Some(EventStatus::Repeated);
            }
            let has_wish = match person.reach {
                Reach::NoDigests | Reach::Unsubscribed => is_mandatory(kind),
                _ => true,
            };
            Some(match Self::may_get(person, kind, true) {
                true => EventStatus::NextDigest,
                false if has_wish => EventStatus::Blocked,
                false => EventStatus::NoDigest,
            })
        };
        let mut reasons: Vec<_> = person.events.iter().map(reason).collect();
        reasons.reverse();
        reasons
    }
}

/// Founds a town with these users and a model of it.
async fn found(fresh: &Fresh, random: &mut Dice) -> (Town, World) {
    let skips_seen = random.below(2) == 0;
    let config = format!("digest.skip_seen = {skips_seen}\n{CONFIG}");
    let town = Town::found(fresh, true, &config).await;
    let (mut people, mut records, mut suppressed) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..USERS {
        let reach = random.of(&Reach::ALL);
        let is_of_absent_brand = random.below(8) == 0;
        let address = Address::new(format!("{}@example.org", name(n))).unwrap();
        let mut record = User {
            email: Some(address.clone()),
            confirmed: reach != Reach::Unconfirmed,
            brand: is_of_absent_brand.then(|| "gone".parse().unwrap()),
            ..User::new(user(&name(n)))
        };
        let mut suppress = |reason| {
            let (at, source) = (town.clock.now(), "test".to_owned());
            suppressed.push(Suppression::new(&address, reason, at, source));
        };
        match reach {
            Reach::Bounced => suppress(SuppressionReason::HardBounce),
            Reach::ComplainedByUnsubscribing => suppress(SuppressionReason::Unsubscribe),
            Reach::Unsubscribed => record.unsubscribed = Some(town.clock.now()),
            Reach::NoDigests => record.digest.cadence = Some(Cadence::Never),
            Reach::Reachable | Reach::Unconfirmed => {}
        }
        records.push(record);
        people.push(Person {
            reach,
            is_of_absent_brand,
            routes: BTreeMap::new(),
            digests_since: None,
            mutes: BTreeMap::new(),
            seen: None,
            events: Vec::new(),
        });
    }
    town.store.put_users(&records).await.unwrap();
    town.store.suppress(&suppressed).await;
    let world = World { skips_seen, people, objects: BTreeMap::new(), retracted: BTreeMap::new() };
    (town, world)
}

async fn page(app: &App, person: usize) -> FeedPage {
    let request = feed_of(&user(&name(person)));
    app.feeds().page(&request).await.unwrap().answer
}

/// Does one random thing to the town and to the model.
async fn step(town: &Town, app: &App, world: &mut World, random: &mut Dice) {
    let minutes = 1 + random.below(50) as i64;
    town.clock.advance(TimeDelta::minutes(minutes));
    let now = town.clock.now();
    let kind_name = random.of(&TYPES);
    let object = format!("{kind_name}{}", random.below(OBJECTS));
    let n = random.below(USERS as u64) as usize;
    let id = user(&name(n));
    match random.below(16) {
        0..6 => {
            let mut objects = BTreeSet::from([object]);
            for _ in 0..random.below(3) {
                objects.insert(format!("{kind_name}{}", random.below(OBJECTS)));
            }
            let chosen = (0..USERS).filter(|_| random.below(2) == 0);
            let chosen: Vec<usize> = chosen.collect();
            if chosen.is_empty() {
                return;
            }
            let ids: Vec<String> = chosen.iter().map(|n| name(*n)).collect();
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            let of_event: Vec<&str> = objects.iter().map(String::as_str).collect();
            let request = NewEvent { kind: kind(kind_name), ..request(&of_event, to(&ids), None) };
            app.notify().accept(vec![request]).await.unwrap();
            app.fanouts().drain(&NoProgress).await.unwrap();
            for n in chosen {
                let events = objects.iter().map(|object| (kind_name, object.clone(), now));
                world.people[n].events.extend(events);
            }
        }
        6 | 7 => {
            let route = random.of(&[Route::Never, Route::Batch, Route::Digest]);
            let preference = TypePreference::new(route, now);
            let chosen = kind(kind_name);
            town.change(&name(n), |user| {
                user.types.insert(chosen, preference);
            })
            .await;
            world.people[n].routes.insert(kind_name, (route, now));
        }
        8 => {
            town.change(&name(n), |user| user.digest.since = Some(now)).await;
            world.people[n].digests_since = Some(now);
        }
        9 | 10 => {
            let until = [None, Some(now + TimeDelta::hours(5))];
            let until = random.of(&until);
            let subject = Subject::new(&object).unwrap();
            let mute = MuteInput { until, title: None };
            app.users().mute(&id, &subject, mute).await.unwrap();
            world.people[n].mutes.insert(object, until);
        }
        11 => {
            let subject = Subject::new(&object).unwrap();
            app.users().unmute(&id, &subject).await.unwrap();
            if let Some(until) = world.people[n].mutes.get_mut(&object)
                && until.is_none_or(|until| now < until)
            {
                *until = Some(now);
            }
        }
        12 => {
            let objects = [object.parse().unwrap()];
            app.objects().retract(&kind(kind_name), &objects).await.unwrap();
            world.retracted.insert(object, now);
        }
        13 => {
            let cursor = page(app, n).await.counts.cursor;
            let seen = marks(Mark::Seen, Some(cursor), None);
            app.feeds().mark(&id, seen).await.unwrap();
            world.people[n].seen = Some(now);
        }
        _ => {
            let state = random.of(&[State::Shown, State::Shown, State::Withdrawn]);
            let record = Object {
                title: Some(format!("{object}.")),
                notifiable: state == State::Shown,
                ..Object::without_data(object.parse().unwrap())
            };
            town.store.put_objects(&[record]).await.unwrap();
            world.objects.insert(object, state);
        }
    }
}

/// The objects that each user's emails show.
fn emailed(town: &Town) -> BTreeMap<String, BTreeSet<String>> {
    let mut emailed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for email in town.emails() {
        let text = email.fill_links().text;
        let to = email.to.reveal().split('@').next().unwrap_or_default();
        let all = TYPES.iter().flat_map(|kind| (0..OBJECTS).map(move |n| format!("{kind}{n}")));
        let shown = all.filter(|object| text.contains(object.as_str()));
        emailed.entry(to.to_owned()).or_default().extend(shown);
    }
    emailed
}

async fn random_worlds_agree_with_the_model(fresh: Fresh) {
    let worlds = number("TIDINGS_TEST_WORLDS", 6);
    let mut cases = 0;
    for seed in 0..worlds {
        fresh.clear().await;
        let mut random = Dice(seed);
        let (town, mut world) = found(&fresh, &mut random).await;
        let app = town.process();
        for _ in 0..STEPS {
            step(&town, &app, &mut world, &mut random).await;
        }
        for (n, person) in world.people.iter().enumerate() {
            let page = page(&app, n).await;
            let items = page.items.iter();
            let shown: BTreeMap<String, bool> =
                items.map(|item| (item.object_id.to_string(), item.state.is_unread())).collect();
            assert_eq!(shown, world.shown(person), "world {seed}, feed of u{n}");
            let explained = app.explain().user(&user(&name(n)), None).await.unwrap();
            let reasons = explained.events.iter().map(|fate| match fate.status {
                EventStatus::WasMuted => EventStatus::Muted,
                why => why,
            });
            let expected = world.reasons(person);
            assert_eq!(reasons.len(), expected.len(), "world {seed}, events of u{n}");
            let reasons: Vec<Option<EventStatus>> =
                reasons.zip(&expected).map(|(why, expected)| expected.map(|_| why)).collect();
            assert_eq!(reasons, expected, "world {seed}, reasons of u{n}");
            cases += 4 * person.events.len();
        }
        for day in [Day::of(monday(0)).days_before(2), Day::of(monday(0)).days_before(1)] {
            let count = app.backlog().count_backlog(day).await.unwrap().backlog;
            let counted = (count.mailable.events, count.blocked.events);
            assert_eq!(counted, world.backlog(day), "world {seed}, backlog of {day}");
        }
        town.clock.set(monday(0));
        app.batches().drain(&NoProgress).await.unwrap();
        app.sender().drain().await.unwrap();
        app.digests().run(&Default::default(), &NoProgress).await.unwrap();
        let mut emailed = emailed(&town);
        for (n, person) in world.people.iter().enumerate() {
            let emailed = emailed.remove(&name(n)).unwrap_or_default();
            assert_eq!(emailed, world.emailed(person), "world {seed}, emails of u{n}");
        }
    }
    println!("{cases} cases");
}
