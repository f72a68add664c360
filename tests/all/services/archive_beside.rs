//! Tests of archiving next to other archive runs, restores, writers and crashed processes (P9).

use std::path::{Path, PathBuf};

use chrono::TimeDelta;
use tidings::domain::Entry;
use tidings::engine::NoProgress;
use tidings::engine::archive::ArchiveRequest;
use tidings::wire::archive::DayFate;

use super::archive::{accept_late, days, exported, first_day, request, with_an_old_day};
use crate::support::poison::database;
use crate::support::town::{Town, monday, on_both_stores, saturday, to};
use crate::support::{FailingStore, Fresh, Shorthand, id, new_marker, user};

on_both_stores! {
    a_day_that_exists_again_is_exported_to_a_second_file
    entries_in_both_exports_of_a_day_are_restored_once
    a_marker_between_two_restores_does_not_duplicate_events
    a_day_that_fails_does_not_stop_the_archive_run
    writes_to_a_day_that_is_being_archived_are_not_lost
    a_day_leased_by_another_process_is_not_touched_even_with_force
    two_concurrent_archive_runs_leave_one_valid_export
}

/// Accepts an event of Saturday and fans it out now.
async fn fan_out_late(town: &Town, works: &[&str], people: &[&str]) {
    let mut old = crate::support::town::request(works, to(people), None);
    old.at = Some(saturday());
    let app = town.process();
    accept_late(&app, old).await;
    app.fanouts().drain(&NoProgress).await.unwrap();
}

fn forced(folder: &Path) -> ArchiveRequest {
    ArchiveRequest { force: true, ..request(Some(folder)) }
}

async fn entries(fresh: &Fresh, person: &str) -> Vec<Entry> {
    fresh.entries_of(&user(person), first_day()).await
}

/// Archives the first day again and returns the second export.
async fn archive_again(town: &Town, folder: &Path) -> PathBuf {
    let (archive, mut reports) = (town.process().archive(), Vec::new());
    let request = forced(folder);
    archive.run(&request, &NoProgress, &mut reports).await.unwrap();
    let second = folder.join("notifications_20140419.2.ndjson.zst");
    let file = Some(second.clone());
    assert_eq!(reports[0].fate, DayFate::Dropped { file });
    second
}

/// Returns the sorted names of the files in a folder.
fn file_names(folder: &Path) -> Vec<String> {
    let files = folder.read_dir().unwrap();
    let mut all: Vec<String> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    all.sort();
    all
}

async fn a_day_that_exists_again_is_exported_to_a_second_file(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    with_an_old_day(&town).await;
    let folder = tempfile::tempdir().unwrap();
    let first = exported(&town, folder.path()).await;
    fan_out_late(&town, &["a3"], &["ada", "cem"]).await;
    let app = town.process();
    let late = entries(&fresh, "ada").await;
    let watermarks = vec![(tidings::domain::StackId::for_day(first_day()), 1)];
    let marker = tidings::domain::Id::from_bytes([9; 12]);
    let mark = tidings::store::NewMarker::Flushed(user("ada"), marker, watermarks);
    fresh.write_markers(&[mark]).await.unwrap();

    let second = archive_again(&town, folder.path()).await;

    assert!(first.exists() && days(&town).await.is_empty());
    let archive = app.archive();
    for file in [&first, &second, &second] {
        archive.restore(file, &NoProgress).await.unwrap();
    }
    // The first export holds two events and Monday's marker. The entries of the second follow them,
    // so its marker now covers the first four entries.
    let moved = Entry::DigestMarker(tidings::domain::DigestMarker { id: Some(marker), n: Some(4) });
    let ada = entries(&fresh, "ada").await;
    assert_eq!(ada[3..], [late[0].clone(), moved]);
    assert_eq!(entries(&fresh, "cem").await.len(), 1);
}

async fn entries_in_both_exports_of_a_day_are_restored_once(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    with_an_old_day(&town).await;
    let folder = tempfile::tempdir().unwrap();
    let first = exported(&town, folder.path()).await;
    let archive = town.process().archive();
    // The day is restored, gets another event, and is archived again.
    archive.restore(&first, &NoProgress).await.unwrap();
    fan_out_late(&town, &["a3"], &["ada"]).await;
    let before = fresh.exported(first_day()).await;
    let second = archive_again(&town, folder.path()).await;

    for file in [&first, &second, &second] {
        archive.restore(file, &NoProgress).await.unwrap();
    }

    assert_eq!(fresh.exported(first_day()).await, before);
}

async fn a_marker_between_two_restores_does_not_duplicate_events(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    with_an_old_day(&town).await;
    let folder = tempfile::tempdir().unwrap();
    let first = exported(&town, folder.path()).await;
    let archive = town.process().archive();
    // The second export contains the first, as after a crash between export and drop.
    archive.restore(&first, &NoProgress).await.unwrap();
    fan_out_late(&town, &["a3"], &["ada"]).await;
    let expected = entries(&fresh, "ada").await;
    let second = archive_again(&town, folder.path()).await;

    archive.restore(&first, &NoProgress).await.unwrap();
    // A digest emails the events before the second export is restored.
    let marker = new_marker(&user("ada"), first_day(), id(90), 3);
    fresh.write_markers(&[marker]).await.unwrap();
    archive.restore(&second, &NoProgress).await.unwrap();

    let events = |all: &[Entry]| -> Vec<Entry> {
        let events = all.iter().filter(|entry| matches!(entry, Entry::Event(_)));
        events.cloned().collect()
    };
    let restored = entries(&fresh, "ada").await;
    assert_eq!(events(&restored), events(&expected), "{restored:#?}");
}

async fn a_day_that_fails_does_not_stop_the_archive_run(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    with_an_old_day(&town).await;
    let mut later = crate::support::town::request(&["a3"], to(&["ada"]), None);
    later.at = Some(saturday() + TimeDelta::days(3));
    let app = town.process();
    accept_late(&app, later).await;
    app.fanouts().drain(&NoProgress).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = FailingStore::of_verb(town.store.clone(), "export_day", 0);
    let archive = town.process_on(&(store as _)).archive();

    let mut reports = Vec::new();
    archive.run(&forced(folder.path()), &NoProgress, &mut reports).await.unwrap();

    let is_ours = |why: &str| why.contains("the test wanted it to fail");
    assert!(matches!(&reports[0].fate, DayFate::Failed { why } if is_ours(why)), "{reports:?}");
    assert!(matches!(reports[1].fate, DayFate::Dropped { .. }), "{reports:?}");
    assert_eq!(days(&town).await, [first_day()]);
    assert_eq!(file_names(folder.path()), ["notifications_20140422.ndjson.zst"]);
}

async fn writes_to_a_day_that_is_being_archived_are_not_lost(fresh: Fresh) {
    for export in [true, false] {
        fresh.clear().await;
        let town = Town::of(&fresh).await;
        with_an_old_day(&town).await;
        let folder = tempfile::tempdir().unwrap();
        let late = crate::support::push_to(&user("ada"), crate::support::events(1, 1));
        let store = town.store.clone();
        let push = async move { drop(store.push(first_day(), 1_000, &late).await.unwrap()) };
        let store = FailingStore::before(town.store.clone(), "drop_day", Box::pin(push));
        let archive = town.process_on(&(store as _)).archive();
        let request = ArchiveRequest { force: true, ..request(export.then(|| folder.path())) };

        let mut reports = Vec::new();
        archive.run(&request, &NoProgress, &mut reports).await.unwrap();
        assert_eq!(reports[0].fate, DayFate::Changed);
        assert_eq!(file_names(folder.path()), Vec::<String>::new());
        assert_eq!(days(&town).await, [first_day()]);
        assert_eq!(entries(&fresh, "ada").await.len(), 4);
        archive.run(&request, &NoProgress, &mut reports).await.unwrap();

        assert!(matches!(reports[1].fate, DayFate::Dropped { .. }), "{reports:?}");
        assert!(days(&town).await.is_empty());
    }
}

async fn a_day_leased_by_another_process_is_not_touched_even_with_force(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    with_an_old_day(&town).await;
    let folder = tempfile::tempdir().unwrap();
    let file = exported(&town, folder.path()).await;
    let (name, now) = ("day:20140419", monday(5));
    let other_lease = tidings::domain::Lease {
        owner: "somebody else".into(),
        until: now + TimeDelta::minutes(5),
    };
    let leased = fresh.lease(name, &other_lease, now).await.unwrap();
    let archive = town.process().archive();

    let refused = archive.restore(&file, &NoProgress).await.unwrap_err();
    assert!(leased && refused.to_string().contains("by another process"), "{refused}");
    assert!(days(&town).await.is_empty());
    fresh.unlease(name, &other_lease.owner).await;
    archive.restore(&file, &NoProgress).await.unwrap();
    fresh.lease(name, &other_lease, now).await.unwrap();
    let mut reports = Vec::new();
    let request = forced(folder.path());
    archive.run(&request, &NoProgress, &mut reports).await.unwrap();

    assert_eq!(reports[0].fate, DayFate::Leased);
    assert_eq!(days(&town).await, [first_day()]);
}

async fn two_concurrent_archive_runs_leave_one_valid_export(fresh: Fresh) {
    for _ in 0..5 {
        fresh.clear().await;
        let town = Town::of(&fresh).await;
        with_an_old_day(&town).await;
        let before = fresh.exported(first_day()).await;
        let folder = tempfile::tempdir().unwrap();
        let (first_archive, second_archive) = (town.process().archive(), town.process().archive());
        let request = request(Some(folder.path()));
        let (mut first, mut second) = (Vec::new(), Vec::new());

        let (a, b) = tokio::join!(
            first_archive.run(&request, &NoProgress, &mut first),
            second_archive.run(&request, &NoProgress, &mut second)
        );

        a.unwrap();
        b.unwrap();
        let fates: Vec<_> = first.iter().chain(&second).map(|day| &day.fate).collect();
        let dropped = fates.iter().filter(|fate| matches!(fate, DayFate::Dropped { .. }));
        assert_eq!(dropped.count(), 1, "{fates:?}");
        assert_eq!(file_names(folder.path()), ["notifications_20140419.ndjson.zst"]);
        assert!(days(&town).await.is_empty(), "{first:?} {second:?}");
        let file = folder.path().join("notifications_20140419.ndjson.zst");
        first_archive.restore(&file, &NoProgress).await.unwrap();
        assert_eq!(fresh.exported(first_day()).await, before);
    }
}

/// Only MongoDB renames a day's collection before the drop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_that_a_crashed_drop_left_renamed_is_restored() {
    crate::support::mongo::run(async |fresh: Fresh| {
        let town = Town::of(&fresh).await;
        with_an_old_day(&town).await;
        let database = database(&fresh).await.unwrap();
        let before = (entries(&fresh, "ada").await, entries(&fresh, "ben").await);
        let rename_day = async || {
            let name = database.name();
            let attempt = bson::oid::ObjectId::new();
            let command = bson::doc! {
                "renameCollection": format!("{name}.notifications_20140419"),
                "to": format!("{name}.leaving_notifications_20140419_{attempt}"),
            };
            let admin = database.client().database("admin");
            admin.run_command(command).await.unwrap();
        };

        rename_day().await;
        assert_eq!(days(&town).await, [first_day()], "it is not forgotten");
        fresh.fix_day(first_day()).await.unwrap();
        let after = (entries(&fresh, "ada").await, entries(&fresh, "ben").await);
        assert_eq!(after, before);

        // A late event creates the day again while the renamed collection exists.
        rename_day().await;
        fan_out_late(&town, &["a3"], &["ada", "cem"]).await;
        let late = entries(&fresh, "ada").await;
        let folder = tempfile::tempdir().unwrap();
        let mut reports = Vec::new();
        let archive = town.process().archive();
        let kept = request(Some(folder.path()));
        archive.run(&kept, &NoProgress, &mut reports).await.unwrap();

        assert!(matches!(reports[0].fate, DayFate::NotEmailed { .. }), "{reports:?}");
        assert_eq!(entries(&fresh, "ada").await, [before.0, late].concat());
        assert_eq!(entries(&fresh, "ben").await, before.1);
        assert_eq!(entries(&fresh, "cem").await.len(), 1);
        let collections = database.list_collection_names().await.unwrap();
        assert!(!collections.iter().any(|name| name.starts_with("leaving_")), "{collections:?}");
    })
    .await;
}
