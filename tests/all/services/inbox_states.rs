//! Thirty-two hands at one feed, ten nights long: what each item comes to is what a plain model of
//! sets says, whoever marks, reads and writes at the same time, also as older writers wrote, while
//! midnight passes and the oldest day leaves.
//!
//! Only marks are made that add something, so their order does not matter and the model is exact.
//! Of an item whose oldest place leaves in the night and that was told again, the model only knows
//! the most it can have come to.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use chrono::TimeDelta;
use tidings::app::App;
use tidings::clock::Clock;
use tidings::domain::feed::{Cursor, Query};
use tidings::domain::inbox::{ItemState, Mark, StateFilter};
use tidings::domain::{Day, ObjectId, Position, StackId, Window};
use tidings::engine::Silent;
use tidings::engine::feed::{MarksInput, Request};
use tidings::store::{Meeting, People};
use tidings::wire::feed::Page;
use tokio::sync::watch;

use crate::support::town::{Town, on_both_stores, request, to};
use crate::support::{Fresh, user};

on_both_stores! {
    states_are_those_of_a_model_whoever_marks_reads_and_writes_at_once
}

/// Somebody with documents of older writers: their id is an ObjectId.
const MARA: &str = "533998b1c9dc24c371000041";
const NIGHTS: u32 = 10;
const HANDS: usize = 32;
const FRESH: &str = "feed.fresh = \"30s\"";

/// What was done to an item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Done {
    seen: bool,
    read: bool,
    archived: bool,
}

impl Done {
    fn add(&mut self, mark: Mark) {
        self.seen = true;
        self.read |= mark == Mark::Read;
        self.archived |= mark == Mark::Archive;
    }

    fn state(self) -> ItemState {
        match self {
            Self { archived: true, .. } => ItemState::Archived,
            Self { read: true, .. } => ItemState::Read,
            Self { seen: true, .. } => ItemState::Seen,
            _ => ItemState::Unseen,
        }
    }
}

/// A mark as it was made.
enum Made {
    To(Mark, String),
    Items(Mark, Vec<ObjectId>),
}

async fn page(app: &App) -> Page {
    let request = Request {
        user: user(MARA),
        query: Query {
            state: StateFilter::All,
            ..Query::default()
        },
        limit: 200,
        days: None,
        lately: false,
    };
    let page = app.feeds().page(&request).await.unwrap().answer;
    assert_eq!(page.next, None, "all is on one page");
    let are = |wanted: fn(ItemState) -> bool| {
        let states = page.items.iter().map(|item| item.state);
        states.filter(|state| wanted(*state)).count() as u64
    };
    let counted = (page.counts.unseen, page.counts.unread);
    let listed = (
        are(|state| state == ItemState::Unseen),
        are(ItemState::is_unread),
    );
    assert_eq!(counted, listed, "counts agree with the feed");
    page
}

async fn mark(app: &App, mark: Mark, to: Option<Cursor>, ids: Option<Vec<Position>>) {
    let input = MarksInput {
        mark,
        to,
        kind: None,
        category: None,
        day: None,
        about: None,
        ids,
    };
    app.feeds().mark(&user(MARA), input).await.unwrap();
}

/// What the nth hand does in a night; the mark that it made, if it made one.
async fn hand(app: App, town: Arc<Town>, night: u32, n: usize) -> Option<Made> {
    match n {
        // Midnight passes.
        0 => {
            page(&app).await;
            town.clock.advance(TimeDelta::hours(1));
            None
        }
        // Somebody shown a page marks all of it.
        1..=10 => {
            let shown = page(&app).await.counts.cursor;
            let what = if night.is_multiple_of(2) {
                Mark::Seen
            } else {
                Mark::Read
            };
            // Not every night, or nothing would be left that is new.
            if !(n as u32 + night).is_multiple_of(5) {
                return None;
            }
            mark(&app, what, Some(shown.clone()), None).await;
            Some(Made::To(what, shown.to_string()))
        }
        // Somebody marks a few of what they see.
        11..=18 => {
            let shown = page(&app).await;
            let few: Vec<_> = shown.items.iter().skip(n).step_by(17).take(3).collect();
            if few.is_empty() {
                return None;
            }
            let what = if n.is_multiple_of(4) {
                Mark::Archive
            } else {
                Mark::Read
            };
            let ids = few.iter().map(|item| item.id).collect();
            mark(&app, what, None, Some(ids)).await;
            let objects = few.iter().map(|item| item.object.clone());
            Some(Made::Items(what, objects.collect()))
        }
        19..=24 => {
            page(&app).await;
            None
        }
        // Something happens, and something that happened before happens again.
        _ => {
            let (new, again) = (
                format!("o{night}-{n}"),
                format!("o{}-{n}", night.saturating_sub(3)),
            );
            let happened = request(&[&new, &again], to(&[MARA]), None);
            app.notify().accept(vec![happened]).await.unwrap();
            app.fanouts().drain(&Silent).await.unwrap();
            None
        }
    }
}

/// Where each object stands in the window, oldest place first.
async fn places(fresh: &Fresh, window: &Window) -> BTreeMap<ObjectId, Vec<Position>> {
    let mara = [user(MARA)];
    let found = fresh.windows(window.clone(), People::Each(&mara)).await;
    let mut places: BTreeMap<ObjectId, Vec<Position>> = BTreeMap::new();
    for stack in found.unwrap().into_iter().flat_map(|person| person.stacks) {
        for (place, event) in stack.events() {
            places.entry(event.o.clone()).or_default().push(place);
        }
    }
    for places in places.values_mut() {
        places.sort_unstable();
    }
    places
}

/// Whether a reader with this cursor had been shown what stands there: read off its text.
fn was_shown(cursor: &str, place: Position) -> bool {
    let reach = |part: &str| {
        let (stack, n) = part.split_once('.').unwrap();
        (stack.parse::<StackId>().unwrap(), n.parse::<u32>().unwrap())
    };
    let parts = cursor.strip_prefix('c').unwrap().split('-');
    let parts = parts.filter(|part| !part.is_empty());
    let reach: HashMap<StackId, u32> = parts.map(reach).collect();
    place.index < reach.get(&place.stack).copied().unwrap_or(0)
}

async fn states_are_those_of_a_model_whoever_marks_reads_and_writes_at_once(fresh: Fresh) {
    let town = Arc::new(Town::found(&fresh, true, FRESH).await);
    let (stop, stopped) = watch::channel(false);
    // Three that listen, as those that serve do, and one that only looks now and then.
    let apps: Vec<App> = (0..4).map(|_| town.process()).collect();
    let listeners = apps[..3].iter().cloned().map(|app| {
        let stopped = stopped.clone();
        tokio::spawn(async move { app.polls.listen(&*app.context.store, stopped).await })
    });
    let listeners: Vec<_> = listeners.collect();
    let mut model: BTreeMap<ObjectId, Done> = BTreeMap::new();
    let mut states = HashSet::new();

    for night in 0..NIGHTS {
        let evening = Day::of(town.clock.now()).start() + TimeDelta::minutes(23 * 60 + 30);
        town.clock.set(evening);
        let day = Day::of(evening);
        let bare = (0..6).map(|n| format!(r#"{{"t":"ArtworkPublished","o":"b{night}-{n}"}}"#));
        let events: Vec<String> = bare.collect();
        let document = format!(
            r#"{{"_id":{{"$oid":"{MARA}"}},"events":[{}]}}"#,
            events.join(",")
        );
        town.store
            .restore_day(day, &[document], Meeting::Same)
            .await
            .unwrap();
        let before = places(&fresh, &Window::ending(day, 7)).await;

        let hands = (0..HANDS).map(|n| {
            let (app, town) = (apps[n % apps.len()].clone(), town.clone());
            tokio::spawn(hand(app, town, night, n))
        });
        let made = futures::future::join_all(hands.collect::<Vec<_>>()).await;
        let made: Vec<Made> = made.into_iter().filter_map(Result::unwrap).collect();

        let window = Window::ending(day.ahead(1), 7);
        let after = places(&fresh, &window).await;
        let with_evening = places(&fresh, &Window::between(day.back(7), day.ahead(1))).await;
        // What anybody can have been shown: the places of the evening's window and the morning's.
        for (object, places) in &with_evening {
            let done = model.entry(object.clone()).or_default();
            for made in &made {
                match made {
                    Made::To(mark, cursor) if was_shown(cursor, places[0]) => done.add(*mark),
                    Made::Items(mark, objects) if objects.contains(object) => done.add(*mark),
                    _ => {}
                }
            }
        }
        let judge = town.process();
        // What was told again since the last mark is as its oldest place is.
        let nothing = vec!["20140101.0".parse().unwrap()];
        mark(&judge, Mark::Seen, None, Some(nothing)).await;
        let found = page(&judge).await;
        let found: BTreeMap<ObjectId, ItemState> = found
            .items
            .iter()
            .map(|item| (item.object.clone(), item.state))
            .collect();
        assert_eq!(
            found.keys().collect::<Vec<_>>(),
            after.keys().collect::<Vec<_>>(),
            "night {night}"
        );
        model.retain(|object, _| after.contains_key(object));
        for (object, state) in &found {
            let leaves = before
                .get(object)
                .is_some_and(|places| places[0].stack.day == day.back(7));
            let expected = model[object].state();
            if leaves {
                assert!(
                    *state <= expected,
                    "night {night}: {object} is {state:?} of {expected:?}"
                );
                model.insert(object.clone(), done_of(*state));
            } else {
                assert_eq!(*state, expected, "night {night}: {object}");
            }
            states.insert(*state);
        }
    }

    assert_eq!(states.len(), 4, "every state was met: {states:?}");
    stop.send_replace(true);
    for listener in listeners {
        listener.await.unwrap();
    }
}

/// The least that makes this state.
fn done_of(state: ItemState) -> Done {
    Done {
        seen: state >= ItemState::Seen,
        read: state == ItemState::Read,
        archived: state == ItemState::Archived,
    }
}
