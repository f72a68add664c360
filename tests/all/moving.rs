//! A store is moved into another: nothing is lost, nothing is mailed twice, and nobody is told
//! anything else than before.
//!
//! The rule: each test runs both ways, from SQLite to MongoDB and back. What the two stores hold is
//! compared by the tests themselves, line by line.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chrono::TimeDelta;
use tidings::clock::{Clock, Ids};
use tidings::domain::user::TypePreference;
use tidings::domain::{
    Address, Day, DeliveryState, ObjectId, Reason, Route, Stop, Suppression, User,
};
use tidings::email::Certainty;
use tidings::engine::moving::{Mover, Names, Reopening, rehearse, reopen};
use tidings::engine::{Error, Silent, Watcher};
use tidings::store::Meeting;
use tidings::wire::moving::{Account, MoveOutcome};

use crate::support::town::{Town, WORKS, followers_of, lost, monday, request, saturday, to};
use crate::support::{Fresh, feed_of, kind, mongo, poison, sqlite, user};

/// Expands tests for both ways: each is an `async fn(Fresh, Fresh)`.
macro_rules! both_ways {
    ($($test:ident)*) => {
        both_ways!(@ to_mongo, sqlite, mongo: $($test)*);
        both_ways!(@ to_sqlite, mongo, sqlite: $($test)*);
    };
    (@ $way:ident, $from:ident, $to:ident: $($test:ident)*) => {
        mod $way {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$from::run(|source| async move {
                        super::$to::run(|target| super::$test(source, target)).await;
                    })
                    .await;
                }
            )*
        }
    };
}

mod meanwhile;

both_ways! {
    what_was_under_way_goes_on_in_the_new_store
    a_target_that_is_not_empty_is_refused_and_nothing_is_closed
    what_changed_in_the_source_meanwhile_is_told
    a_move_that_was_stopped_goes_on_where_it_was
    a_source_that_is_opened_again_begins_another_move
    a_rehearsal_counts_and_changes_nothing
}

fn mover(source: &Fresh, target: &Fresh) -> Mover {
    Mover {
        source: source.movable(),
        target: target.movable(),
        names: names(),
        clock: Arc::new(tidings::clock::ManualClock::at(saturday())),
        ids: Arc::new(Ids::random()),
    }
}

fn names() -> Names {
    Names {
        from: "old".into(),
        to: "new".into(),
    }
}

async fn moved(source: &Fresh, target: &Fresh) -> Account {
    mover(source, target).run(&Silent).await.unwrap()
}

fn refusal(error: Error) -> String {
    match error {
        Error::Conflict(why) => why,
        other => panic!("{other:?}"),
    }
}

const CONFIG: &str = r#"
server.public_url = "https://news.example.org"
types.CommentAdded.route = "batch"
types.CommentAdded.window = "1h"
"#;

/// Documents as older writers left them, of both forms of an id.
const OLD: [&str; 3] = [
    r#"{"_id":"ben","events":[{"t":"NearbyShow","o":"a4"},{"flushed":{"$oid":"533998b1c9dc24c371000041"}},{"t":"ArtworkPublished","o":{"$oid":"533998b1c9dc24c371000042"},"i":{"$oid":"533998b1c9dc24c371000043"}}]}"#,
    r#"{"_id":"zed","events":[{"what":"nobody knows"}]}"#,
    r#"{"_id":{"$oid":"533998b1c9dc24c371000044"},"events":[{"t":"NearbyShow","o":"a5"}]}"#,
];

async fn what_was_under_way_goes_on_in_the_new_store(source: Fresh, target: Fresh) {
    let safe = Certainty::Repeat { within: None };
    let mut town = Town::with(&source, safe, CONFIG).await;
    let old: Vec<String> = OLD.map(str::to_owned).to_vec();
    let friday = Day::of(saturday()).back(1);
    source
        .restore_day(friday, &old, Meeting::Same)
        .await
        .unwrap();
    town.happens(&["a1", "a2"], followers_of("artist:1")).await;
    town.change("cem", |cem| {
        let never = TypePreference::new(Route::Never, saturday());
        cem.types.insert(kind("ArtworkPublished"), never);
    })
    .await;
    town.happens(&["a3"], to(&["cem", "ben"])).await;
    let suppressed = Suppression {
        address: Address::new("ben@example.org").unwrap(),
        reason: Reason::ALL[0],
        at: saturday(),
        source: "operator".into(),
        detail: None,
        lifted: None,
    };
    source.suppress(&[suppressed]).await.unwrap();
    // ada's digest was taken, and nobody saw the answer.
    town.answer([lost()]);
    town.digests_at(monday(0)).await;
    assert_eq!(
        town.deliveries_of("ada").await[0].state,
        DeliveryState::Sending
    );
    let retracted = [ObjectId::stored("a2")];
    let app = town.process();
    app.retract()
        .events(&kind("ArtworkPublished"), &retracted)
        .await
        .unwrap();
    let comment = |objects: &[&str], name: &str| {
        let mut comment = request(objects, to(&["ada", "cem"]), Some(name));
        comment.kind = kind("CommentAdded");
        comment
    };
    // One comment waits in open batches; another was accepted, and is half fanned out.
    app.notify()
        .accept(vec![comment(&["a4"], "one")])
        .await
        .unwrap();
    app.fanouts().drain(&Silent).await.unwrap();
    app.notify()
        .accept(vec![comment(&["a5"], "two")])
        .await
        .unwrap();
    source
        .claim_fanouts(
            "died",
            town.clock.now(),
            town.clock.now() + TimeDelta::minutes(1),
            9.into(),
        )
        .await
        .unwrap();
    let issued = town.clock.now();
    let link = {
        let links = &app.identities.default.links;
        let maker = links.maker().await.unwrap().unwrap();
        let personal = maker.personal(&user("ada"), Some(&Stop::Digest), None, issued);
        personal.unsubscribe.unwrap()
    };
    let before = answers(&town).await;
    let lines = source.lines().await;

    let account = moved(&source, &target).await;

    assert_eq!(account.outcome, MoveOutcome::Moved, "{account:?}");
    assert_eq!(target.lines().await, lines);
    assert_eq!(source.lines().await, lines);
    town.store = target.handle();
    assert_eq!(answers(&town).await, before);
    let token = link.rsplit('/').next().unwrap();
    let opened = town
        .process()
        .identities
        .default
        .links
        .open(token, town.clock.now())
        .await;
    let opened = opened.unwrap().unwrap();
    assert_eq!((opened.user, opened.stop), (user("ada"), Stop::Digest));
    let again = town
        .process()
        .notify()
        .accept(vec![comment(&["a5"], "two")])
        .await;
    assert!(again.unwrap()[0].known, "its key is known");
    // Its lease is over, and it is still worth asking.
    town.digests_at(issued + TimeDelta::minutes(6)).await;
    town.clock.advance(TimeDelta::hours(3));
    let app = town.process();
    app.fanouts().drain(&Silent).await.unwrap();
    town.clock.advance(TimeDelta::hours(3));
    app.closer().drain(&Silent).await.unwrap();
    town.digests_at(monday(1)).await;
    let mut told: BTreeMap<(String, &str), usize> = BTreeMap::new();
    for mail in town.mails() {
        let text = mail.filled().text;
        for work in WORKS {
            if text.contains(&format!("Work {work}.")) {
                *told.entry((mail.to.reveal().to_owned(), work)).or_default() += 1;
            }
        }
    }
    let (ada, cem) = ("ada@example.org".to_owned(), "cem@example.org".to_owned());
    let to_ada = ["a1", "a2", "a4", "a5"].map(|work| ((ada.clone(), work), 1));
    let to_cem = ["a4", "a5"].map(|work| ((cem.clone(), work), 1));
    assert_eq!(told, to_ada.into_iter().chain(to_cem).collect());
    let row = town.deliveries_of("ada").await.pop().unwrap();
    assert_eq!((row.state, row.open), (DeliveryState::Sent, false));
}

/// What everybody is told of their feeds, and operators of everybody.
async fn answers(town: &Town) -> Vec<String> {
    let app = town.process();
    let mut answers = Vec::new();
    for person in ["ada", "ben", "cem", "dee", "533998b1c9dc24c371000044"] {
        let page = app
            .feeds()
            .page(&feed_of(&user(person)))
            .await
            .unwrap()
            .answer;
        let explained = app.explain().user(&user(person), None).await.unwrap();
        answers.push(serde_json::to_string(&page.items).unwrap());
        answers.push(serde_json::to_string(&explained).unwrap());
    }
    answers
}

async fn a_target_that_is_not_empty_is_refused_and_nothing_is_closed(source: Fresh, target: Fresh) {
    Town::of(&source).await;
    target
        .put_users(&[User::new(user("somebody"))])
        .await
        .unwrap();
    let lines = (source.lines().await, target.lines().await);

    let rehearsed = rehearse(&*source.movable(), Some(&*target.movable()), &names()).await;
    let run = mover(&source, &target).run(&Silent).await;

    let refused = "new is not empty: it holds 1 users";
    assert_eq!(refusal(rehearsed.unwrap_err()), refused);
    assert_eq!(refusal(run.unwrap_err()), refused);
    assert_eq!((source.lines().await, target.lines().await), lines);
    source.put_users(&[User::new(user("else"))]).await.unwrap();

    target.clear().await;
    let old: Vec<String> = OLD.map(str::to_owned).to_vec();
    let day = Day::of(saturday());
    target.restore_day(day, &old, Meeting::Same).await.unwrap();
    let run = mover(&source, &target).run(&Silent).await;
    let refused = format!("new is not empty: it holds {}", day.collection());
    assert_eq!(refusal(run.unwrap_err()), refused);
    target.clear().await;
    assert_eq!(moved(&source, &target).await.outcome, MoveOutcome::Moved);
    assert_eq!(moved(&source, &target).await.outcome, MoveOutcome::Known);
}

async fn what_changed_in_the_source_meanwhile_is_told(source: Fresh, target: Fresh) {
    let town = Town::of(&source).await;
    town.happens(&["a1"], followers_of("artist:1")).await;
    let stopped = mover(&source, &target).run(&StopsAfter::records(12)).await;
    assert_eq!(stopped.unwrap().outcome, MoveOutcome::Stopped);
    // Somebody who wrote all the same, as nothing but SQLite would keep them from it.
    source.movable().unseal().await.unwrap();
    source
        .second()
        .put_users(&[User::new(user("a-late-one"))])
        .await
        .unwrap();

    let account = moved(&source, &target).await;
    let differ: Vec<_> = account
        .parts
        .iter()
        .filter(|part| part.same != Some(true))
        .map(|part| (part.name.as_str(), part.records, part.moved))
        .collect();

    assert_eq!(account.outcome, MoveOutcome::Differs);
    assert_eq!(differ, [("users", 5, Some(4))]);
    assert!(!target.movable().move_note().await.unwrap().unwrap().done);
    assert_eq!(moved(&source, &target).await.outcome, MoveOutcome::Moved);
    assert_eq!(target.lines().await, source.lines().await);
}

/// Somebody who wants the work to end after so many records.
struct StopsAfter(u64, AtomicU64);

impl StopsAfter {
    fn records(records: u64) -> Self {
        Self(records, AtomicU64::new(0))
    }
}

impl Watcher for StopsAfter {
    fn advance(&self, by: u64) {
        self.1.fetch_add(by, Ordering::Relaxed);
    }

    fn total(&self, _: u64) {}

    fn stopping(&self) -> bool {
        self.1.load(Ordering::Relaxed) >= self.0
    }
}

async fn a_move_that_was_stopped_goes_on_where_it_was(source: Fresh, target: Fresh) {
    let town = Town::of(&source).await;
    town.happens(&["a1"], followers_of("artist:1")).await;
    let lines = source.lines().await;
    let (mut stopped, mut reached) = (0, Vec::new());

    let account = loop {
        // A record or two a run, and all of the comparison in the last.
        let after = if stopped < 9 { 1 } else { 1_000 };
        let run = mover(&source, &target)
            .run(&StopsAfter::records(after))
            .await
            .unwrap();
        let note = target.movable().move_note().await.unwrap().unwrap();
        match run.outcome {
            MoveOutcome::Stopped => reached.push(note.reached),
            _ => break run,
        }
        assert!(!note.done);
        stopped += 1;
    };

    assert_eq!((account.outcome, stopped), (MoveOutcome::Moved, 9));
    reached.dedup();
    assert!(reached.len() > 4, "{reached:?}");
    assert_eq!(target.lines().await, lines);
}

async fn a_source_that_is_opened_again_begins_another_move(source: Fresh, target: Fresh) {
    Town::of(&source).await;
    let run = mover(&source, &target).run(&StopsAfter::records(1)).await;
    assert_eq!(run.unwrap().outcome, MoveOutcome::Stopped);

    let movable = source.movable();
    assert!(reopen(&*movable, Reopening::Unmoved).await.unwrap());
    assert!(!reopen(&*movable, Reopening::Unmoved).await.unwrap());

    source.put_users(&[User::new(user("else"))]).await.unwrap();
    let run = mover(&source, &target).run(&Silent).await;
    let refused = "new is not empty: it is of another move, from old to new";
    assert_eq!(refusal(run.unwrap_err()), refused);
    target.clear().await;
    assert_eq!(moved(&source, &target).await.outcome, MoveOutcome::Moved);
    let refused = reopen(&*movable, Reopening::Unmoved).await.unwrap_err();
    assert_eq!(
        refusal(refused),
        "old was moved to new, which may have mailed people since"
    );
    assert!(reopen(&*movable, Reopening::Moved).await.unwrap());
    source.put_users(&[User::new(user("later"))]).await.unwrap();
}

async fn a_rehearsal_counts_and_changes_nothing(source: Fresh, target: Fresh) {
    let town = Town::of(&source).await;
    town.happens(&["a1"], followers_of("artist:1")).await;

    let account = rehearse(&*source.movable(), Some(&*target.movable()), &names())
        .await
        .unwrap();

    let counted: Vec<_> = account
        .parts
        .iter()
        .filter(|part| part.records > 0)
        .map(|part| (part.name.as_str(), part.records))
        .collect();
    let all = [
        ("users", 4),
        ("follows", 5),
        ("objects", 7),
        ("fanouts", 1),
        ("20140419", 3),
    ];
    assert_eq!(counted, all);
    assert_eq!(account.outcome, MoveOutcome::Counted);
    for store in [&source, &target] {
        assert_eq!(store.movable().move_note().await.unwrap(), None);
    }
    assert_eq!(target.lines().await, [""; 0]);
    source.put_users(&[User::new(user("else"))]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_target_cannot_hold_is_told_and_all_else_is_copied() {
    sqlite::run(|source| async move {
        mongo::run(|target| async move {
            let town = Town::of(&source).await;
            town.happens(&["a1"], followers_of("artist:1")).await;
            let day = Day::of(saturday());
            let file = poison::file(&source);
            let odd = format!("INSERT INTO {} VALUES (x'0102', 0, '')", day.collection());
            file.execute(&odd, []).unwrap();
            let odd = "UPDATE users SET types = '[' WHERE id = 'cem'";
            file.execute(odd, []).unwrap();

            for _ in 0..2 {
                let account = moved(&source, &target).await;

                assert_eq!(account.outcome, MoveOutcome::Differs);
                let told = &account.unmoved;
                assert_eq!((told.len(), account.unmoved_count), (2, 2), "{told:?}");
                assert!(told[0].contains(&day.to_string()), "{told:?}");
                assert!(told[1].contains("user cem"), "{told:?}");
                let differ = account.parts.iter().filter(|part| part.same != Some(true));
                let differ: Vec<_> = differ.map(|part| part.name.clone()).collect();
                assert_eq!(differ, [day.to_string()]);
                assert_eq!(target.exported(day).await.len(), 3);
            }
            assert!(!target.movable().move_note().await.unwrap().unwrap().done);
        })
        .await;
    })
    .await;
}
