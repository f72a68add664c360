//! Compares item states with a plain model while 32 tasks mark, read and extend one feed.
//!
//! Marks only add state, so their order does not matter and the model is exact. The one exception
//! is a repeated item whose oldest entry leaves the window at midnight. The model then has only the
//! highest possible state.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use chrono::TimeDelta;
use tidings::app::App;
use tidings::clock::Clock;
use tidings::domain::feed_marks::{ItemState, Mark, StateFilter};
use tidings::domain::feed_page::{FeedCursor, FeedQuery};
use tidings::domain::{Day, DaySet, ObjectId, Position, StackId};
use tidings::engine::NoProgress;
use tidings::engine::feed::FeedRequest;
use tidings::wire::feed::FeedPage;
use tokio::sync::watch;

use crate::support::town::{Town, on_both_stores, request, to};
use crate::support::{Fresh, Shorthand, marks, user};

on_both_stores! {
    states_equal_the_model_under_concurrent_marks_and_writes
}

/// A user with documents of older writers, whose `_id` is an ObjectId.
const MARA: &str = "533998b1c9dc24c371000041";
const NIGHTS: u32 = 10;
const TASKS: usize = 32;
const FRESH: &str = "feed.fresh = \"30s\"";

/// The marks of an item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ItemMarks {
    seen: bool,
    read: bool,
    archived: bool,
}

impl ItemMarks {
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

/// A mark that a task applied.
enum AppliedMark {
    UpTo(Mark, String),
    Items(Mark, Vec<ObjectId>),
}

/// Loads the whole feed, and checks that its counts agree with its items.
async fn page(app: &App) -> FeedPage {
    let request = FeedRequest {
        user: user(MARA),
        query: FeedQuery { state: StateFilter::All, ..FeedQuery::default() },
        limit: 200,
        accepts_cached: false,
    };
    let page = app.feeds().page(&request).await.unwrap().answer;
    assert_eq!(page.next, None, "all is on one page");
    let are = |wanted: fn(ItemState) -> bool| {
        let states = page.items.iter().map(|item| item.state);
        states.filter(|state| wanted(*state)).count() as u64
    };
    let counted = (page.counts.unseen, page.counts.unread);
    let listed = (are(|state| state == ItemState::Unseen), are(ItemState::is_unread));
    assert_eq!(counted, listed, "counts agree with the feed");
    page
}

async fn mark(app: &App, mark: Mark, to: Option<FeedCursor>, ids: Option<Vec<Position>>) {
    let input = marks(mark, to, ids);
    app.feeds().mark(&user(MARA), input).await.unwrap();
}

/// Runs the nth task of a night, and returns the mark that it applied.
async fn run_task(app: App, town: Arc<Town>, night: u32, n: usize) -> Option<AppliedMark> {
    match n {
        // Midnight passes.
        0 => {
            page(&app).await;
            town.clock.advance(TimeDelta::hours(1));
            None
        }
        // Marks all items of a page.
        1..=10 => {
            let shown = page(&app).await.counts.cursor;
            let what = if night.is_multiple_of(2) { Mark::Seen } else { Mark::Read };
            // Not every night, so that some items stay unseen.
            if !(n as u32 + night).is_multiple_of(5) {
                return None;
            }
            mark(&app, what, Some(shown.clone()), None).await;
            Some(AppliedMark::UpTo(what, shown.to_string()))
        }
        // Marks a few items of a page.
        11..=18 => {
            let shown = page(&app).await;
            let few: Vec<_> = shown.items.iter().skip(n).step_by(17).take(3).collect();
            if few.is_empty() {
                return None;
            }
            let what = if n.is_multiple_of(4) { Mark::Archive } else { Mark::Read };
            let ids = few.iter().map(|item| item.id).collect();
            mark(&app, what, None, Some(ids)).await;
            let objects = few.iter().map(|item| item.object_id.clone());
            Some(AppliedMark::Items(what, objects.collect()))
        }
        19..=24 => {
            page(&app).await;
            None
        }
        // Fans out a new event and repeats one of three nights ago.
        _ => {
            let (new, again) =
                (format!("o{night}-{n}"), format!("o{}-{n}", night.saturating_sub(3)));
            let happened = request(&[&new, &again], to(&[MARA]), None);
            app.notify().accept(vec![happened]).await.unwrap();
            app.fanouts().drain(&NoProgress).await.unwrap();
            None
        }
    }
}

/// Returns the positions of each object in the window, oldest first.
async fn positions(fresh: &Fresh, window: &DaySet) -> BTreeMap<ObjectId, Vec<Position>> {
    let mara = [user(MARA)];
    let found = fresh.windows(window.clone(), &mara).await;
    let mut positions: BTreeMap<ObjectId, Vec<Position>> = BTreeMap::new();
    for stack in found.unwrap().into_iter().flat_map(|person| person.stacks) {
        for (place, event) in stack.events() {
            positions.entry(event.object.clone()).or_default().push(place);
        }
    }
    for positions in positions.values_mut() {
        positions.sort_unstable();
    }
    positions
}

/// Returns whether the cursor covers the position. Parses the text of the cursor, to be independent
/// of the code under test.
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

async fn states_equal_the_model_under_concurrent_marks_and_writes(fresh: Fresh) {
    let town = Arc::new(Town::found(&fresh, true, FRESH).await);
    let (stop, stopped) = watch::channel(false);
    // Three processes receive change notices, as `serve` does. The fourth relies on `feed.fresh`.
    let apps: Vec<App> = (0..4).map(|_| town.process()).collect();
    let listeners = apps[..3].iter().cloned().map(|app| {
        let stopped = stopped.clone();
        tokio::spawn(async move { app.feed_cache.listen(&*app.context.store, stopped).await })
    });
    let listeners: Vec<_> = listeners.collect();
    let mut model: BTreeMap<ObjectId, ItemMarks> = BTreeMap::new();
    let mut states = HashSet::new();

    for night in 0..NIGHTS {
        let evening = Day::of(town.clock.now()).start() + TimeDelta::minutes(23 * 60 + 30);
        town.clock.set(evening);
        let day = Day::of(evening);
        let bare = (0..6).map(|n| format!(r#"{{"t":"ArtworkPublished","o":"b{night}-{n}"}}"#));
        let events: Vec<String> = bare.collect();
        let document = format!(r#"{{"_id":{{"$oid":"{MARA}"}},"events":[{}]}}"#, events.join(","));
        town.store.restore_stacks(day, &[document]).await;
        let before = positions(&fresh, &DaySet::ending(day, 7)).await;

        let tasks = (0..TASKS).map(|n| {
            let (app, town) = (apps[n % apps.len()].clone(), town.clone());
            tokio::spawn(run_task(app, town, night, n))
        });
        let applied = futures::future::join_all(tasks.collect::<Vec<_>>()).await;
        let applied: Vec<AppliedMark> = applied.into_iter().filter_map(Result::unwrap).collect();

        let next = Day::of(day.start() + TimeDelta::days(1));
        let window = DaySet::ending(next, 7);
        let after = positions(&fresh, &window).await;
        let with_evening = positions(&fresh, &DaySet::between(day.days_before(7), next)).await;
        // Pages can show the positions of the evening's window and of the morning's.
        for (object, positions) in &with_evening {
            let done = model.entry(object.clone()).or_default();
            for applied in &applied {
                match applied {
                    AppliedMark::UpTo(mark, cursor) if was_shown(cursor, positions[0]) => {
                        done.add(*mark)
                    }
                    AppliedMark::Items(mark, objects) if objects.contains(object) => {
                        done.add(*mark)
                    }
                    _ => {}
                }
            }
        }
        let judge = town.process();
        // Matches no item. But every mark also copies the state of items to their newest positions.
        let nothing = vec!["20140101.0".parse().unwrap()];
        mark(&judge, Mark::Seen, None, Some(nothing)).await;
        let found = page(&judge).await;
        let found: BTreeMap<ObjectId, ItemState> =
            found.items.iter().map(|item| (item.object_id.clone(), item.state)).collect();
        assert_eq!(
            found.keys().collect::<Vec<_>>(),
            after.keys().collect::<Vec<_>>(),
            "night {night}"
        );
        model.retain(|object, _| after.contains_key(object));
        for (object, state) in &found {
            let oldest_leaves = before
                .get(object)
                .is_some_and(|positions| positions[0].stack.day == day.days_before(7));
            let expected = model[object].state();
            if oldest_leaves {
                assert!(*state <= expected, "night {night}: {object} is {state:?} of {expected:?}");
                model.insert(object.clone(), marks_of(*state));
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

/// Returns the fewest marks that result in this state.
fn marks_of(state: ItemState) -> ItemMarks {
    ItemMarks {
        seen: state >= ItemState::Seen,
        read: state == ItemState::Read,
        archived: state == ItemState::Archived,
    }
}
