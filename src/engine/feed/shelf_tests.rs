//! Tests what the feed cache stores, and when its entries become invalid.

use chrono::TimeDelta;

use super::*;
use crate::clock::{Clock, ManualClock};
use crate::domain::{
    ChangeNotice, Day, EventType, Mailed, ObjectId, ObjectKey, Stack, StackId, Subject,
};

struct Case {
    clock: Arc<ManualClock>,
    polls: Arc<Polls>,
    cache: Shelf,
}

fn event(o: &str) -> Event {
    Event {
        t: EventType::stored("Loan"),
        o: ObjectId::stored(o),
        i: None,
    }
}

fn key(o: &str) -> NoticeKey {
    NoticeKey::of(&format!("Artwork:{o}"))
}

impl Case {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at("2014-04-22T12:00:00Z".parse().unwrap()));
        let polls = Arc::new(Polls::new(clock.clone(), TimeDelta::seconds(30)));
        polls.hear(&ChangeNotice::All);
        let cache = Shelf::new(polls.clone());
        Self {
            clock,
            polls,
            cache,
        }
    }

    fn keep(&self, o: &str) {
        let version = self
            .cache
            .glance_of_object(key(o), self.clock.now())
            .unwrap();
        let object = Object::bare(ObjectKey::stored(format!("Artwork:{o}")));
        let loaded = Looked {
            object: Some(Arc::new(object)),
            retracted: None,
        };
        self.cache.keep_object(&event(o), key(o), loaded, version);
    }

    fn has_object(&self, o: &str) -> bool {
        self.cache.object(&event(o), self.clock.now()).is_some()
    }

    fn window(&self) -> Window {
        Window::ending(Day::of(self.clock.now()), 7)
    }

    fn keep_window(&self, name: &str, entries: usize) {
        self.keep_reading(name, vec![Entry::Other; entries], Mutes::default());
    }

    fn keep_muting(&self, name: &str, mutes: Mutes) {
        self.keep_reading(name, Vec::new(), mutes);
    }

    fn keep_reading(&self, name: &str, entries: Vec<Entry>, mutes: Mutes) {
        let (user, day) = (UserId::stored(name), Day::of(self.clock.now()));
        let version = self.cache.glance_of_person(&user).unwrap();
        let stack = Stack::new(StackId::of(day), entries);
        let reading = Reading {
            window: self.window(),
            mutes,
            inbox: Inbox::empty(user.clone()),
            person: PersonStacks {
                user,
                stacks: vec![stack],
            },
            digests: OnceCell::new(),
        };
        self.cache.keep_reading(Arc::new(reading), version);
    }

    fn has_window(&self, name: &str) -> bool {
        let user = UserId::stored(name);
        self.cache.reading(&user, &self.window()).is_some()
    }
}

#[test]
fn a_change_notice_invalidates_the_entries_of_its_users_and_objects() {
    let notices = [
        (ChangeNotice::objects(["Artwork:1"]), (false, true)),
        (ChangeNotice::objects(["Artwork:2"]), (true, true)),
        (ChangeNotice::people(["ada"]), (true, false)),
        (ChangeNotice::people(["ben"]), (true, true)),
        (ChangeNotice::All, (false, false)),
    ];
    for (notice, known) in notices {
        let case = Case::new();
        case.keep("1");
        case.keep_window("ada", 3);

        case.polls.hear(&notice);

        assert_eq!(
            (case.has_object("1"), case.has_window("ada")),
            known,
            "{notice:?}"
        );
    }
}

#[test]
fn a_notice_that_arrives_during_the_read_prevents_caching() {
    let case = Case::new();
    let version = case
        .cache
        .glance_of_object(key("1"), case.clock.now())
        .unwrap();
    case.polls.hear(&ChangeNotice::objects(["Artwork:1"]));
    let loaded = Looked {
        object: None,
        retracted: None,
    };

    case.cache
        .keep_object(&event("1"), key("1"), loaded, version);

    assert!(!case.has_object("1"));
}

#[test]
fn entries_expire_after_feed_fresh_and_if_the_clock_goes_back() {
    for (passes, known) in [(0, true), (29, true), (30, false), (-1, false)] {
        let case = Case::new();
        case.keep("1");
        case.keep_window("ada", 3);

        case.clock.advance(TimeDelta::seconds(passes));

        let now = (case.has_object("1"), case.has_window("ada"));
        assert_eq!(now, (known, known), "{passes}");
    }
}

#[test]
fn a_cached_window_is_valid_for_its_user_and_day_only() {
    let case = Case::new();
    case.keep_window("ada", 3);
    let ada = UserId::stored("ada");
    let next = Day::of(case.clock.now() + TimeDelta::days(1));

    assert!(!case.has_window("ben"));
    assert!(case.cache.reading(&ada, &Window::ending(next, 7)).is_none());
    assert!(case.has_window("ada"));
}

#[test]
fn nothing_is_cached_while_change_notices_do_not_arrive() {
    let clock = Arc::new(ManualClock::at("2014-04-22T12:00:00Z".parse().unwrap()));
    let polls = Arc::new(Polls::new(clock.clone(), TimeDelta::seconds(30)));
    let cache = Shelf::new(polls);

    assert!(cache.glance_of_object(key("1"), clock.now()).is_none());
    assert!(cache.glance_of_person(&UserId::stored("ada")).is_none());
}

#[test]
fn cached_windows_and_objects_stay_within_their_byte_limits() {
    let case = Case::new();
    for n in 0..40_000 {
        case.keep(&n.to_string());
    }
    for n in 0..1_000 {
        case.keep_window(&format!("p{n}"), 500);
    }

    let (objects, bytes) = case.cache.objects.size();
    assert!(objects > 0 && bytes <= OBJECTS, "{objects} in {bytes}");
    let (people, bytes) = case.cache.people.size();
    assert!(bytes <= WINDOWS, "{people} in {bytes}");
    let entries = people * 500 * size_of::<Entry>();
    assert!((1..=WINDOWS).contains(&entries), "{people}");
}

#[test]
fn ids_of_emailed_entries_count_toward_the_limit() {
    const IDS: usize = 1_000;
    let case = Case::new();
    let id = Id::at(case.clock.now(), [0; 8]);
    for n in 0..2_000 {
        let fanouts = vec![id; IDS];
        let entries = vec![Entry::Mailed(Mailed { id, fanouts })];
        case.keep_reading(&format!("p{n}"), entries, Mutes::default());
    }

    let (people, _) = case.cache.people.size();
    let room = WINDOWS / (IDS * size_of::<Id>());
    assert!((1..=room).contains(&people), "{people}");
}

#[test]
fn muted_subjects_count_toward_the_limit() {
    const EACH: usize = 100;
    let case = Case::new();
    for n in 0..2_000 {
        case.keep_muting(&format!("p{n}"), muted(EACH));
    }

    let (people, _) = case.cache.people.size();
    let room = WINDOWS / (EACH * MUTE);
    assert!((1..=room).contains(&people), "{people}");
}

#[test]
fn a_user_with_a_large_entry_evicts_no_other_user() {
    let case = Case::new();
    let few = 256;
    for n in 0..few {
        case.keep_window(&format!("p{n}"), 5);
    }
    for n in 0..few {
        case.keep_muting(&format!("much{n}"), muted(Mutes::MOST));
    }

    let (people, _) = case.cache.people.size();
    assert_eq!(people, few);
}

fn muted(subjects: usize) -> Mutes {
    let at = "2014-04-22T12:00:00Z".parse().unwrap();
    let mut mutes = Mutes::default();
    for n in 0..subjects {
        mutes.mute(Subject::stored(format!("Thread:{n}")), None, None, at);
    }
    mutes
}
