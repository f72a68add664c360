//! P9: archiving against its neighbors: other archives, restores, whoever writes to the day, and
//! whoever died over it.

use std::path::{Path, PathBuf};

use chrono::TimeDelta;
use tidings::domain::Entry;
use tidings::engine::Silent;
use tidings::engine::archive::{Protection, Request};
use tidings::wire::archive::Fate;

use super::archive::{accept_late, days, exported, first_day, request, with_an_old_day};
use crate::support::poison::database;
use crate::support::town::{Town, monday, on_both_stores, saturday, to};
use crate::support::{FailingStore, Fresh, id, new_marker, user};

on_both_stores! {
    a_day_that_stands_again_is_exported_beside_its_first_export
    what_was_exported_with_what_stood_before_is_not_restored_twice
    what_came_between_two_parts_makes_nothing_stand_twice
    one_day_that_fails_keeps_no_other_from_going
    what_is_written_while_a_day_is_archived_is_never_lost
    a_day_that_somebody_else_works_on_is_left_to_them
    two_archives_at_once_leave_one_good_export
}

/// An old event reaches its people, late.
async fn comes_late(town: &Town, works: &[&str], people: &[&str]) {
    let mut old = crate::support::town::request(works, to(people), None);
    old.at = Some(saturday());
    let app = town.process();
    accept_late(&app, old).await;
    app.fanouts().drain(&Silent).await.unwrap();
}

fn forced(folder: &Path) -> Request {
    Request {
        protection: Protection::Force,
        ..request(Some(folder))
    }
}

async fn entries(fresh: &Fresh, person: &str) -> Vec<Entry> {
    fresh.entries_of(&user(person), first_day()).await
}

/// The day goes again, into a second part.
async fn second_part(town: &Town, folder: &Path) -> PathBuf {
    let (archive, mut reports) = (town.process().archive(), Vec::new());
    let request = forced(folder);
    archive.run(&request, &Silent, &mut reports).await.unwrap();
    let second = folder.join("notifications_20140419.2.ndjson.zst");
    let file = Some(second.clone());
    assert_eq!(reports[0].fate, Fate::Dropped { file });
    second
}

/// All names in a folder, in order.
fn names(folder: &Path) -> Vec<String> {
    let files = folder.read_dir().unwrap();
    let mut names: Vec<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

async fn a_day_that_stands_again_is_exported_beside_its_first_export(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    with_an_old_day(&town).await;
    let folder = tempfile::tempdir().unwrap();
    let first = exported(&town, folder.path()).await;
    comes_late(&town, &["a3"], &["ada", "cem"]).await;
    let app = town.process();
    let late = entries(&fresh, "ada").await;
    let watermarks = vec![(tidings::domain::StackId::of(first_day()), 1)];
    let marker = tidings::domain::Id::from_bytes([9; 12]);
    let mark = tidings::store::NewMarker::Flushed {
        user: user("ada"),
        marker,
        watermarks,
    };
    fresh.write_markers(&[mark]).await.unwrap();

    let second = second_part(&town, folder.path()).await;

    assert!(first.exists() && days(&town).await.is_empty());
    let archive = app.archive();
    for file in [&first, &second, &second] {
        archive.restore(file, &Silent).await.unwrap();
    }
    // Two events and the marker of Monday's mail stood there; what the late marker covers moved
    // with it.
    let moved = Entry::Marker(tidings::domain::Marker {
        id: Some(marker),
        n: Some(4),
    });
    let ada = entries(&fresh, "ada").await;
    assert_eq!(ada[3..], [late[0].clone(), moved]);
    assert_eq!(entries(&fresh, "cem").await.len(), 1);
}

async fn what_was_exported_with_what_stood_before_is_not_restored_twice(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    with_an_old_day(&town).await;
    let folder = tempfile::tempdir().unwrap();
    let first = exported(&town, folder.path()).await;
    let archive = town.process().archive();
    // Somebody brings the day back, and it goes again with something new.
    archive.restore(&first, &Silent).await.unwrap();
    comes_late(&town, &["a3"], &["ada"]).await;
    let before = fresh.exported(first_day()).await;
    let second = second_part(&town, folder.path()).await;

    for file in [&first, &second, &second] {
        archive.restore(file, &Silent).await.unwrap();
    }

    assert_eq!(fresh.exported(first_day()).await, before);
}

async fn what_came_between_two_parts_makes_nothing_stand_twice(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    with_an_old_day(&town).await;
    let folder = tempfile::tempdir().unwrap();
    let first = exported(&town, folder.path()).await;
    let archive = town.process().archive();
    // The second part holds all of the first, as where somebody died between export and drop.
    archive.restore(&first, &Silent).await.unwrap();
    comes_late(&town, &["a3"], &["ada"]).await;
    let expected = entries(&fresh, "ada").await;
    let second = second_part(&town, folder.path()).await;

    archive.restore(&first, &Silent).await.unwrap();
    // A digest mails what it holds, before the second part is back.
    let marker = new_marker(&user("ada"), first_day(), id(90), 3);
    fresh.write_markers(&[marker]).await.unwrap();
    archive.restore(&second, &Silent).await.unwrap();

    let events = |all: &[Entry]| -> Vec<Entry> {
        let events = all.iter().filter(|entry| matches!(entry, Entry::Event(_)));
        events.cloned().collect()
    };
    let restored = entries(&fresh, "ada").await;
    assert_eq!(events(&restored), events(&expected), "{restored:#?}");
}

async fn one_day_that_fails_keeps_no_other_from_going(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    with_an_old_day(&town).await;
    let mut later = crate::support::town::request(&["a3"], to(&["ada"]), None);
    later.at = Some(saturday() + TimeDelta::days(3));
    let app = town.process();
    accept_late(&app, later).await;
    app.fanouts().drain(&Silent).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = FailingStore::of_verb(town.store.clone(), "export_day", 0);
    let archive = town.process_on(&(store as _)).archive();

    let mut told = Vec::new();
    archive
        .run(&forced(folder.path()), &Silent, &mut told)
        .await
        .unwrap();

    let is_ours = |why: &str| why.contains("the test wanted it to fail");
    assert!(
        matches!(&told[0].fate, Fate::Failed { why } if is_ours(why)),
        "{told:?}"
    );
    assert!(matches!(told[1].fate, Fate::Dropped { .. }), "{told:?}");
    assert_eq!(days(&town).await, [first_day()]);
    assert_eq!(names(folder.path()), ["notifications_20140422.ndjson.zst"]);
}

async fn what_is_written_while_a_day_is_archived_is_never_lost(fresh: Fresh) {
    for export in [true, false] {
        fresh.clear().await;
        let town = Town::of(&fresh).await;
        with_an_old_day(&town).await;
        let folder = tempfile::tempdir().unwrap();
        let late = crate::support::push_to(&user("ada"), crate::support::events(1, 1));
        let store = town.store.clone();
        let pushed = async move { drop(store.push(first_day(), 1_000, &late).await.unwrap()) };
        let store = FailingStore::before(town.store.clone(), "drop_day", Box::pin(pushed));
        let archive = town.process_on(&(store as _)).archive();
        let request = Request {
            protection: Protection::Force,
            ..request(export.then(|| folder.path()))
        };

        let mut told = Vec::new();
        archive.run(&request, &Silent, &mut told).await.unwrap();
        assert_eq!(told[0].fate, Fate::Changed);
        assert_eq!(names(folder.path()), Vec::<String>::new());
        assert_eq!(days(&town).await, [first_day()]);
        assert_eq!(entries(&fresh, "ada").await.len(), 4);
        archive.run(&request, &Silent, &mut told).await.unwrap();

        assert!(matches!(told[1].fate, Fate::Dropped { .. }), "{told:?}");
        assert!(days(&town).await.is_empty());
    }
}

async fn a_day_that_somebody_else_works_on_is_left_to_them(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    with_an_old_day(&town).await;
    let folder = tempfile::tempdir().unwrap();
    let file = exported(&town, folder.path()).await;
    let (name, now) = ("day:20140419", monday(5));
    let theirs = tidings::domain::Lease {
        owner: "somebody else".into(),
        until: now + TimeDelta::minutes(5),
    };
    let taken = fresh.lease(name, &theirs, now).await.unwrap();
    let archive = town.process().archive();

    let refused = archive.restore(&file, &Silent).await.unwrap_err();
    assert!(
        taken && refused.to_string().contains("by another process"),
        "{refused}"
    );
    assert!(days(&town).await.is_empty());
    fresh.unlease(name, &theirs.owner).await.unwrap();
    archive.restore(&file, &Silent).await.unwrap();
    fresh.lease(name, &theirs, now).await.unwrap();
    let mut told = Vec::new();
    archive
        .run(&request(None), &Silent, &mut told)
        .await
        .unwrap();

    assert_eq!(told[0].fate, Fate::Held);
    assert_eq!(days(&town).await, [first_day()]);
}

async fn two_archives_at_once_leave_one_good_export(fresh: Fresh) {
    for _ in 0..5 {
        fresh.clear().await;
        let town = Town::of(&fresh).await;
        with_an_old_day(&town).await;
        let before = fresh.exported(first_day()).await;
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (town.process().archive(), town.process().archive());
        let request = request(Some(folder.path()));
        let (mut first, mut second) = (Vec::new(), Vec::new());

        let (a, b) = tokio::join!(
            one.run(&request, &Silent, &mut first),
            two.run(&request, &Silent, &mut second)
        );

        a.unwrap();
        b.unwrap();
        let fates: Vec<_> = first.iter().chain(&second).map(|day| &day.fate).collect();
        let dropped = fates
            .iter()
            .filter(|fate| matches!(fate, Fate::Dropped { .. }));
        assert_eq!(dropped.count(), 1, "{fates:?}");
        assert_eq!(names(folder.path()), ["notifications_20140419.ndjson.zst"]);
        assert!(days(&town).await.is_empty(), "{first:?} {second:?}");
        let file = folder.path().join("notifications_20140419.ndjson.zst");
        one.restore(&file, &Silent).await.unwrap();
        assert_eq!(fresh.exported(first_day()).await, before);
    }
}

/// A day that was set aside, by somebody who died then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_dies_over_dropping_a_day_leaves_it_to_be_put_back() {
    crate::support::mongo::run(async |fresh: Fresh| {
        let town = Town::of(&fresh).await;
        with_an_old_day(&town).await;
        let database = database(&fresh).await.unwrap();
        let before = (entries(&fresh, "ada").await, entries(&fresh, "ben").await);
        let set_aside = async || {
            let name = database.name();
            let aside = bson::oid::ObjectId::new();
            let command = bson::doc! {
                "renameCollection": format!("{name}.notifications_20140419"),
                "to": format!("{name}.leaving_notifications_20140419_{aside}"),
            };
            let admin = database.client().database("admin");
            admin.run_command(command).await.unwrap();
        };

        set_aside().await;
        assert_eq!(days(&town).await, [first_day()], "it is not forgotten");
        fresh.fix_day(first_day()).await.unwrap();
        let after = (entries(&fresh, "ada").await, entries(&fresh, "ben").await);
        assert_eq!(after, before);

        // Something came for that day meanwhile; and whoever put it together died as well.
        set_aside().await;
        comes_late(&town, &["a3"], &["ada", "cem"]).await;
        let late = entries(&fresh, "ada").await;
        let folder = tempfile::tempdir().unwrap();
        let mut told = Vec::new();
        let archive = town.process().archive();
        let kept = request(Some(folder.path()));
        archive.run(&kept, &Silent, &mut told).await.unwrap();

        assert!(matches!(told[0].fate, Fate::Unmailed { .. }), "{told:?}");
        assert_eq!(entries(&fresh, "ada").await, [before.0, late].concat());
        assert_eq!(entries(&fresh, "ben").await, before.1);
        assert_eq!(entries(&fresh, "cem").await.len(), 1);
        let names = database.list_collection_names().await.unwrap();
        assert!(
            !names.iter().any(|name| name.starts_with("leaving_")),
            "{names:?}"
        );
    })
    .await;
}
