//! A store is exported and imported into another: nothing is lost, nothing is emailed twice, and
//! every question has the same answer as before.
//!
//! Each test runs from SQLite to MongoDB and from MongoDB to SQLite. The tests compare the content
//! of the two stores line by line.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bson::doc;
use chrono::TimeDelta;
use tempfile::TempDir;
use tidings::clock::{Clock, ManualClock};
use tidings::domain::user::TypePreference;
use tidings::domain::{
    Address, Day, DeliveryState, ObjectId, Route, StopAction, Suppression, SuppressionReason, User,
};
use tidings::email::Resolution;
use tidings::engine::{Error, NoProgress, Progress};
use tidings::operate::transfer::{Transfer, VerifiedExport, reopen};
use tidings::store::{MergePolicy, RecordKind, TransferMark};
use tidings::wire::transfer::{BadRecords, ImportedStore};

use crate::support::town::{Town, WORKS, followers_of, lost, monday, request, saturday, to};
use crate::support::{
    Fresh, Shorthand, assert_contains, feed_of, kind, lease, mongo, poison, sqlite, user,
};

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
    work_in_progress_continues_in_the_new_store
    a_store_that_is_not_empty_is_refused_and_nothing_changes
    there_and_back_everything_is_the_same
    an_export_with_a_former_file_name_is_imported
    a_damaged_file_is_refused_and_nothing_changes
    a_store_that_was_closed_opens_again
}

fn transfer(store: &Fresh, folder: &Path) -> Transfer {
    Transfer {
        store: store.whole(),
        folder: folder.to_owned(),
        clock: Arc::new(ManualClock::at(saturday())),
    }
}

/// A new folder that holds an export of this store.
async fn exported(store: &Fresh) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let transfer = transfer(store, folder.path());
    let manifest = transfer.export(&NoProgress).await.unwrap();
    assert_eq!(manifest.unreadable.count, 0);
    folder
}

async fn import(
    store: &Fresh,
    folder: &Path,
    watcher: &dyn Progress,
) -> Result<ImportedStore, Error> {
    let export = VerifiedExport::read(folder)?;
    transfer(store, folder).import(&export, watcher).await
}

async fn imported(store: &Fresh, folder: &Path) -> ImportedStore {
    import(store, folder, &NoProgress).await.unwrap()
}

async fn moved(source: &Fresh, target: &Fresh) -> ImportedStore {
    imported(target, exported(source).await.path()).await
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

async fn work_in_progress_continues_in_the_new_store(source: Fresh, target: Fresh) {
    let safe = Resolution::Repeat { within: None };
    let mut town = Town::with(&source, safe, CONFIG).await;
    let old: Vec<String> = OLD.map(str::to_owned).to_vec();
    let friday = Day::of(saturday()).days_before(1);
    source.restore_day(friday, &old, MergePolicy::MustBeEqual).await.unwrap();
    town.happens(&["a1", "a2"], followers_of("artist:1")).await;
    town.change("cem", |cem| {
        let never = TypePreference::new(Route::Never, saturday());
        cem.types.insert(kind("ArtworkPublished"), never);
    })
    .await;
    town.happens(&["a3"], to(&["cem", "ben"])).await;
    let suppressed = Suppression {
        address: Address::new("ben@example.org").unwrap(),
        reason: SuppressionReason::ALL[0],
        at: saturday(),
        source: "operator".into(),
        detail: None,
        lifted: None,
    };
    source.suppress(&[suppressed]).await;
    // The provider accepted ada's digest, and its response was lost.
    town.answer([lost()]);
    town.digests_at(monday(0)).await;
    assert_eq!(town.deliveries_of("ada").await[0].state, DeliveryState::Sending);
    let retracted = [ObjectId::stored("a2")];
    let app = town.process();
    app.objects().retract(&kind("ArtworkPublished"), &retracted).await.unwrap();
    let comment = |objects: &[&str], name: &str| {
        let mut comment = request(objects, to(&["ada", "cem"]), Some(name));
        comment.kind = kind("CommentAdded");
        comment
    };
    // One comment waits in open batches; another was accepted, and is half fanned out.
    app.notify().accept(vec![comment(&["a4"], "one")]).await.unwrap();
    app.fanouts().drain(&NoProgress).await.unwrap();
    app.notify().accept(vec![comment(&["a5"], "two")]).await.unwrap();
    source
        .claim_fanouts(
            &lease("died", town.clock.now() + TimeDelta::minutes(1)),
            town.clock.now(),
            9.into(),
        )
        .await
        .unwrap();
    let issued = town.clock.now();
    let link = {
        let links = &app.identities.default.links;
        let maker = links.link_maker().await.unwrap().unwrap();
        let personal =
            maker.recipient_links(&user("ada"), None, Some(&StopAction::Digest), None, issued);
        personal.unsubscribe.unwrap()
    };
    let before = answers(&town).await;
    let lines = source.lines().await;

    let imported = moved(&source, &target).await;

    assert!(imported.is_same, "{imported:?}");
    assert_eq!(target.lines().await, lines);
    assert_eq!(source.lines().await, lines);
    town.store = target.handle();
    assert_eq!(answers(&town).await, before);
    let token = link.rsplit('/').next().unwrap();
    let opened = town.process().identities.default.links.open(token, town.clock.now()).await;
    let opened = opened.unwrap().unwrap();
    assert_eq!((opened.user, opened.stop), (user("ada"), StopAction::Digest));
    let again = town.process().notify().accept(vec![comment(&["a5"], "two")]).await;
    assert!(again.unwrap()[0].duplicate, "its key is known");
    // Its lease is over, and it is still worth asking.
    town.digests_at(issued + TimeDelta::minutes(6)).await;
    town.clock.advance(TimeDelta::hours(3));
    let app = town.process();
    app.fanouts().drain(&NoProgress).await.unwrap();
    town.clock.advance(TimeDelta::hours(3));
    app.batches().drain(&NoProgress).await.unwrap();
    town.digests_at(monday(1)).await;
    let mut emailed: BTreeMap<(String, &str), usize> = BTreeMap::new();
    for email in town.emails() {
        let text = email.fill_links().text;
        for work in WORKS {
            if text.contains(&format!("Work {work}.")) {
                *emailed.entry((email.to.reveal().to_owned(), work)).or_default() += 1;
            }
        }
    }
    let (ada, cem) = ("ada@example.org".to_owned(), "cem@example.org".to_owned());
    let to_ada = ["a1", "a2", "a4", "a5"].map(|work| ((ada.clone(), work), 1));
    let to_cem = ["a4", "a5"].map(|work| ((cem.clone(), work), 1));
    assert_eq!(emailed, to_ada.into_iter().chain(to_cem).collect());
    let row = town.deliveries_of("ada").await.pop().unwrap();
    assert_eq!((row.state, row.open), (DeliveryState::Sent, false));
}

/// The feeds of all users, and what operators see of them.
async fn answers(town: &Town) -> Vec<String> {
    let app = town.process();
    let mut answers = Vec::new();
    for person in ["ada", "ben", "cem", "dee", "533998b1c9dc24c371000044"] {
        let page = app.feeds().page(&feed_of(&user(person))).await.unwrap().answer;
        let explained = app.explain().user(&user(person), None).await.unwrap();
        answers.push(serde_json::to_string(&page.items).unwrap());
        answers.push(serde_json::to_string(&explained).unwrap());
    }
    answers
}

/// A file of an export.
fn file(folder: &TempDir, name: &str) -> std::path::PathBuf {
    folder.path().join(format!("{name}.ndjson.zst"))
}

async fn a_store_that_is_not_empty_is_refused_and_nothing_changes(source: Fresh, target: Fresh) {
    Town::of(&source).await;
    let folder = exported(&source).await;
    let another = [User::new(user("somebody"))];
    target.put_users(&another).await.unwrap();
    let lines = target.lines().await;

    let refused = import(&target, folder.path(), &NoProgress).await;

    let why = "the store is not empty, it holds users: import into an empty database";
    assert_eq!(refusal(refused.unwrap_err()), why);
    assert_eq!(target.lines().await, lines);
    target.clear().await;
    let old: Vec<String> = OLD.map(str::to_owned).to_vec();
    let day = Day::of(saturday());
    target.restore_day(day, &old, MergePolicy::MustBeEqual).await.unwrap();
    let refused = import(&target, folder.path(), &NoProgress).await;
    assert!(refusal(refused.unwrap_err()).contains(&day.collection_name()));
    target.clear().await;
    assert!(imported(&target, folder.path()).await.is_same);
    let again = transfer(&source, folder.path());
    let refused = again.export(&NoProgress).await;
    let why = refusal(refused.unwrap_err());
    assert!(why.contains("holds a complete export"), "{why}");
}

async fn there_and_back_everything_is_the_same(source: Fresh, target: Fresh) {
    let town = Town::of(&source).await;
    town.happens(&["a1"], followers_of("artist:1")).await;
    let old: Vec<String> = OLD.map(str::to_owned).to_vec();
    let friday = Day::of(saturday()).days_before(1);
    source.restore_day(friday, &old, MergePolicy::MustBeEqual).await.unwrap();
    let lines = source.lines().await;

    assert!(moved(&source, &target).await.is_same);
    assert_eq!(target.lines().await, lines);
    source.clear().await;
    assert!(moved(&target, &source).await.is_same);

    assert_eq!(source.lines().await, lines);
    assert_eq!(source.whole().transfer_mark().await.unwrap(), None);
}

/// Earlier versions named the file of the webhook receipts `sightings`.
async fn an_export_with_a_former_file_name_is_imported(source: Fresh, target: Fresh) {
    let receipt = [("key".to_owned(), "mark".to_owned())];
    source.record_receipts(&receipt, saturday(), monday(0)).await;
    let folder = exported(&source).await;
    std::fs::rename(file(&folder, "webhook_receipts"), file(&folder, "sightings")).unwrap();
    let manifest = folder.path().join("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace("webhook_receipts", "sightings")).unwrap();

    assert!(imported(&target, folder.path()).await.is_same);

    let found = target.find_receipts(&["key".to_owned()], saturday()).await;
    assert_eq!(found, [Some("mark".to_owned())]);
}

async fn a_damaged_file_is_refused_and_nothing_changes(source: Fresh, target: Fresh) {
    let town = Town::of(&source).await;
    town.happens(&["a1"], followers_of("artist:1")).await;
    for name in ["users", &Day::of(saturday()).collection_name()] {
        let folder = exported(&source).await;
        let whole = std::fs::read(file(&folder, name)).unwrap();
        let other = zstd::encode_all(&b""[..], 3).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 0x10;
        for damage in [&whole[..whole.len() - 9], &flipped, &other] {
            std::fs::write(file(&folder, name), damage).unwrap();

            let refused = import(&target, folder.path(), &NoProgress).await;

            match refused.unwrap_err() {
                Error::Damaged(what) => assert!(what.contains(name), "{what}"),
                other => panic!("{other:?}"),
            }
            assert_eq!(target.lines().await, [""; 0]);
            assert_eq!(target.whole().transfer_mark().await.unwrap(), None);
        }
        std::fs::remove_file(file(&folder, name)).unwrap();
        let refused = import(&target, folder.path(), &NoProgress).await;
        assert!(matches!(refused.unwrap_err(), Error::File(..)));
    }
}

async fn a_store_that_was_closed_opens_again(source: Fresh, target: Fresh) {
    Town::of(&source).await;
    let folder = tempfile::tempdir().unwrap();
    let closing = transfer(&source, folder.path());
    closing.close().await.unwrap();
    closing.export(&NoProgress).await.unwrap();

    let mark = source.whole().transfer_mark().await.unwrap();
    assert!(matches!(mark, Some(TransferMark::Closed { .. })), "{mark:?}");
    assert!(imported(&target, folder.path()).await.is_same);
    assert_eq!(target.whole().transfer_mark().await.unwrap(), None);
    let again = import(&source, folder.path(), &NoProgress).await;
    let why = refusal(again.unwrap_err());
    assert!(why.contains("the store is closed"), "{why}");
    let refused = reopen(&*source.whole(), false).await;
    let why = refusal(refused.unwrap_err());
    assert!(why.contains("is complete"), "{why}");
    assert!(reopen(&*source.whole(), true).await.unwrap());
    assert!(!reopen(&*source.whole(), true).await.unwrap());
    assert_eq!(source.lines().await, target.lines().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_records_are_named_and_all_others_are_copied() {
    sqlite::run(|source| async move {
        mongo::run(|target| async move {
            let town = Town::of(&source).await;
            town.happens(&["a1"], followers_of("artist:1")).await;
            let day = Day::of(saturday());
            let database = poison::file(&source);
            let odd = format!("INSERT INTO {} VALUES (x'0102', 0, '')", day.collection_name());
            database.execute(&odd, []).unwrap();
            let odd = "UPDATE users SET types = '[' WHERE id = 'cem'";
            database.execute(odd, []).unwrap();
            let folder = tempfile::tempdir().unwrap();

            let export = transfer(&source, folder.path());
            let manifest = export.export(&NoProgress).await.unwrap();
            let unreadable = &manifest.unreadable;
            assert_eq!(unreadable.count, 2, "{unreadable:?}");
            let named = unreadable.first.join("\n");
            assert_contains!(named, "user cem");
            assert_contains!(named, &format!("a stack of {day}"));
            let imported = imported(&target, folder.path()).await;

            assert!(imported.is_same && imported.rejected.count == 0);
            assert_eq!(imported.unreadable, *unreadable);
            assert_eq!(target.exported(day).await.len(), 3);
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_documents_are_named_and_all_others_are_copied() {
    mongo::run(|source| async move {
        sqlite::run(|target| async move {
            let town = Town::of(&source).await;
            town.happens(&["a1"], followers_of("artist:1")).await;
            let day = Day::of(saturday());
            let database = poison::database(&source).await.unwrap();
            // SQLite has no place for other fields of a stack.
            poison::put(&database, day, doc! {"_id": "zoe", "events": [], "x": 1}).await;
            let folder = exported(&source).await;

            for _ in 0..2 {
                let imported = imported(&target, folder.path()).await;

                assert!(!imported.is_same);
                let rejected = &imported.rejected.first;
                assert_eq!(rejected.len(), 1, "{rejected:?}");
                assert_contains!(rejected[0], &day.to_string());
                let differ = imported.files.iter().filter(|file| !file.is_same);
                let differ: Vec<_> = differ.map(|file| file.name.clone()).collect();
                assert_eq!(differ, [day.collection_name()]);
                assert_eq!(target.exported(day).await.len(), 3);
                let mark = target.whole().transfer_mark().await.unwrap();
                assert!(matches!(mark, Some(TransferMark::Importing(_))), "{mark:?}");
            }
        })
        .await;
    })
    .await;
}

#[test]
fn a_hundred_bad_records_are_named_and_all_are_counted() {
    let mut bad = BadRecords::default();
    bad.add((0..250).map(|n| n.to_string()));
    assert_eq!((bad.count, bad.first.len()), (250, 100));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_names_the_line_that_the_store_rejects() {
    sqlite::run(|source| async move {
        sqlite::run(|target| async move {
            Town::of(&source).await;
            let folder = exported(&source).await;
            let users = source.lines_of(RecordKind::Users).await;
            let line = 1 + users.iter().position(|line| line.contains("cem")).unwrap();
            let rejects = "CREATE TRIGGER rejects BEFORE INSERT ON users WHEN NEW.id = 'cem'
                           BEGIN SELECT RAISE(ABORT, 'not him'); END";
            poison::file(&target).execute_batch(rejects).unwrap();

            let failed = import(&target, folder.path(), &NoProgress).await;

            let error = failed.unwrap_err().to_string();
            assert_eq!(error, format!("importing users, line {line}"));
        })
        .await;
    })
    .await;
}
