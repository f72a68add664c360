//! Tests what the feed cache stores, and when its entries become invalid.

use chrono::TimeDelta;

use super::*;
use crate::clock::{Clock, ManualClock};
use crate::domain::{Day, EventType, Mailed, ObjectId, ObjectKey, Poke, Stack, StackId, Subject};

struct Case {
    clock: Arc<ManualClock>,
    polls: Arc<Polls>,
    shelf: Shelf,
}

fn event(o: &str) -> Event {
    Event {
        t: EventType::stored("Loan"),
        o: ObjectId::stored(o),
        i: None,
    }
}

fn key(o: &str) -> PokeKey {
    PokeKey::of(&format!("Artwork:{o}"))
}

impl Case {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at("2014-04-22T12:00:00Z".parse().unwrap()));
        let polls = Arc::new(Polls::new(clock.clone(), TimeDelta::seconds(30)));
        polls.hear(&Poke::All);
        let shelf = Shelf::new(polls.clone());
        Self {
            clock,
            polls,
            shelf,
        }
    }

    fn keep(&self, o: &str) {
        let glance = self
            .shelf
            .glance_of_object(key(o), self.clock.now())
            .unwrap();
        let object = Object::bare(ObjectKey::stored(format!("Artwork:{o}")));
        let looked = Looked {
            object: Some(Arc::new(object)),
            retracted: None,
        };
        self.shelf.keep_object(&event(o), key(o), looked, glance);
    }

    fn knows(&self, o: &str) -> bool {
        self.shelf.object(&event(o), self.clock.now()).is_some()
    }

    fn window(&self) -> Window {
        Window::ending(Day::of(self.clock.now()), 7)
    }

    fn keep_person(&self, name: &str, entries: usize) {
        self.keep_reading(name, vec![Entry::Other; entries], Mutes::default());
    }

    fn keep_muting(&self, name: &str, mutes: Mutes) {
        self.keep_reading(name, Vec::new(), mutes);
    }

    fn keep_reading(&self, name: &str, entries: Vec<Entry>, mutes: Mutes) {
        let (user, day) = (UserId::stored(name), Day::of(self.clock.now()));
        let glance = self.shelf.glance_of_person(&user).unwrap();
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
        self.shelf.keep_reading(Arc::new(reading), glance);
    }

    fn knows_person(&self, name: &str) -> bool {
        let user = UserId::stored(name);
        self.shelf.reading(&user, &self.window()).is_some()
    }
}

#[test]
fn whoever_is_poked_is_not_believed_any_more() {
    let pokes = [
        (Poke::objects(["Artwork:1"]), (false, true)),
        (Poke::objects(["Artwork:2"]), (true, true)),
        (Poke::people(["ada"]), (true, false)),
        (Poke::people(["ben"]), (true, true)),
        (Poke::All, (false, false)),
    ];
    for (poke, known) in pokes {
        let case = Case::new();
        case.keep("1");
        case.keep_person("ada", 3);

        case.polls.hear(&poke);

        assert_eq!(
            (case.knows("1"), case.knows_person("ada")),
            known,
            "{poke:?}"
        );
    }
}

#[test]
fn what_is_poked_while_it_is_read_is_not_believed() {
    let case = Case::new();
    let glance = case
        .shelf
        .glance_of_object(key("1"), case.clock.now())
        .unwrap();
    case.polls.hear(&Poke::objects(["Artwork:1"]));
    let looked = Looked {
        object: None,
        retracted: None,
    };

    case.shelf
        .keep_object(&event("1"), key("1"), looked, glance);

    assert!(!case.knows("1"));
}

#[test]
fn nothing_is_believed_for_longer_than_it_is_fresh_nor_from_a_clock_ahead() {
    for (passes, known) in [(0, true), (29, true), (30, false), (-1, false)] {
        let case = Case::new();
        case.keep("1");
        case.keep_person("ada", 3);

        case.clock.advance(TimeDelta::seconds(passes));

        let now = (case.knows("1"), case.knows_person("ada"));
        assert_eq!(now, (known, known), "{passes}");
    }
}

#[test]
fn a_window_is_not_taken_for_that_of_another_day_or_person() {
    let case = Case::new();
    case.keep_person("ada", 3);
    let ada = UserId::stored("ada");
    let next = Day::of(case.clock.now() + TimeDelta::days(1));

    assert!(!case.knows_person("ben"));
    assert!(case.shelf.reading(&ada, &Window::ending(next, 7)).is_none());
    assert!(case.knows_person("ada"));
}

#[test]
fn while_pokes_are_not_heard_nothing_is_kept() {
    let clock = Arc::new(ManualClock::at("2014-04-22T12:00:00Z".parse().unwrap()));
    let polls = Arc::new(Polls::new(clock.clone(), TimeDelta::seconds(30)));
    let shelf = Shelf::new(polls);

    assert!(shelf.glance_of_object(key("1"), clock.now()).is_none());
    assert!(shelf.glance_of_person(&UserId::stored("ada")).is_none());
}

#[test]
fn windows_and_objects_have_a_bounded_number_of_bytes() {
    let case = Case::new();
    for n in 0..40_000 {
        case.keep(&n.to_string());
    }
    for n in 0..1_000 {
        case.keep_person(&format!("p{n}"), 500);
    }

    let (objects, bytes) = case.shelf.objects.size();
    assert!(objects > 0 && bytes <= OBJECTS, "{objects} in {bytes}");
    let (people, bytes) = case.shelf.people.size();
    assert!(bytes <= WINDOWS, "{people} in {bytes}");
    let entries = people * 500 * size_of::<Entry>();
    assert!((1..=WINDOWS).contains(&entries), "{people}");
}

#[test]
fn ids_of_mailed_entries_count_toward_the_limit() {
    const IDS: usize = 1_000;
    let case = Case::new();
    let id = Id::at(case.clock.now(), [0; 8]);
    for n in 0..2_000 {
        let fanouts = vec![id; IDS];
        let entries = vec![Entry::Mailed(Mailed { id, fanouts })];
        case.keep_reading(&format!("p{n}"), entries, Mutes::default());
    }

    let (people, _) = case.shelf.people.size();
    let room = WINDOWS / (IDS * size_of::<Id>());
    assert!((1..=room).contains(&people), "{people}");
}

#[test]
fn muted_subjects_take_their_part_of_the_room() {
    const EACH: usize = 100;
    let case = Case::new();
    for n in 0..2_000 {
        case.keep_muting(&format!("p{n}"), muted(EACH));
    }

    let (people, _) = case.shelf.people.size();
    let room = WINDOWS / (EACH * MUTE);
    assert!((1..=room).contains(&people), "{people}");
}

#[test]
fn a_user_who_takes_the_room_of_many_puts_no_other_out() {
    let case = Case::new();
    let few = 256;
    for n in 0..few {
        case.keep_person(&format!("p{n}"), 5);
    }
    for n in 0..few {
        case.keep_muting(&format!("much{n}"), muted(Mutes::MOST));
    }

    let (people, _) = case.shelf.people.size();
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
