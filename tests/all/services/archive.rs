//! Tests of archiving (P9): which days are dropped, and that exports are verified and restored
//! exactly.

use std::path::Path;
use std::sync::Arc;

use chrono::TimeDelta;
use tidings::app::App;
use tidings::clock::Clock;
use tidings::context::Context;
use tidings::domain::{Day, Entry};
use tidings::engine::NoProgress;
use tidings::engine::archive::ArchiveRequest;
use tidings::engine::ingest;
use tidings::store::{Checksum, ChecksumBuilder, MergePolicy};
use tidings::wire::archive::{DayFate, DayReport};

use crate::support::town::{Town, monday, on_both_stores, saturday, to};
use crate::support::{Fresh, event, id, lease, new_marker, push_to, user};

on_both_stores! {
    young_days_and_days_in_the_window_are_kept_despite_force
    a_day_with_pending_events_is_not_dropped_without_force
    a_day_whose_events_were_emailed_is_dropped
    a_day_with_an_unfinished_fan_out_is_not_dropped_without_force
    a_dry_run_drops_nothing
    an_exported_day_is_restored_exactly
    a_damaged_export_restores_nothing
    an_interrupted_restore_resumes_after_other_writers
    an_invalid_stack_does_not_prevent_restoring_the_others
}

pub fn request(export: Option<&Path>) -> ArchiveRequest {
    ArchiveRequest {
        keep: TimeDelta::days(30),
        export: export.map(Path::to_owned),
        dry_run: false,
        force: false,
    }
}

async fn archive(town: &Town, request: &ArchiveRequest) -> Vec<DayReport> {
    let mut reports = Vec::new();
    let app = town.process();
    app.archive().run(request, &NoProgress, &mut reports).await.unwrap();
    reports
}

pub async fn days(town: &Town) -> Vec<Day> {
    town.store.days().await.unwrap()
}

/// Accepts an event of a day before the window, as if it had been accepted in time. Does not fan it
/// out.
pub async fn accept_late(app: &App, event: ingest::NewEvent) {
    let mut config = (*app.config).clone();
    config.window_days_back = 60;
    let context = Context { config: Arc::new(config), ..(*app.context).clone() };
    let then = ingest::EventService { context: Arc::new(context), ..app.notify() };
    then.accept(vec![event]).await.unwrap();
}

pub fn first_day() -> Day {
    Day::of(saturday())
}

/// Fans out two events on Saturday, emails them on Monday, and advances the clock by five weeks.
pub async fn with_an_old_day(town: &Town) {
    town.happens(&["a1", "a2"], to(&["ada", "ben"])).await;
    town.digests_at(monday(0)).await;
    town.clock.set(monday(5));
}

async fn young_days_and_days_in_the_window_are_kept_despite_force(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    with_an_old_day(&town).await;
    town.happens(&["a3"], to(&["ada"])).await;
    let force = ArchiveRequest { keep: TimeDelta::days(1), force: true, ..request(None) };
    let young = ArchiveRequest { keep: TimeDelta::days(300), ..force.clone() };

    assert_eq!(archive(&town, &young).await[0].fate, DayFate::TooYoung);
    let fates = archive(&town, &force).await;

    assert_eq!(fates[0].fate, DayFate::Dropped { file: None });
    assert_eq!(fates[1].fate, DayFate::InWindow);
    assert_eq!(days(&town).await, [Day::of(monday(5))]);
}

async fn a_day_with_pending_events_is_not_dropped_without_force(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "a2"], to(&["ada", "ben", "dee"])).await;
    town.clock.set(monday(5));

    let kept = archive(&town, &request(None)).await;
    assert_eq!(kept[0].fate, DayFate::NotEmailed { users: 3, events: 6 });
    assert_eq!(days(&town).await, [first_day()]);

    let forced = archive(&town, &ArchiveRequest { force: true, ..request(None) }).await;
    assert_eq!(forced[0].fate, DayFate::Dropped { file: None });
    assert!(days(&town).await.is_empty());
}

async fn a_day_whose_events_were_emailed_is_dropped(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    with_an_old_day(&town).await;

    let dropped = archive(&town, &request(None)).await;

    assert_eq!(
        dropped,
        [DayReport { day: first_day(), stacks: 2, fate: DayFate::Dropped { file: None } }]
    );
    assert!(days(&town).await.is_empty());
}

async fn a_day_with_an_unfinished_fan_out_is_not_dropped_without_force(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    with_an_old_day(&town).await;
    let mut old = crate::support::town::request(&["a3"], to(&["ada"]), None);
    old.at = Some(saturday());
    accept_late(&town.process(), old).await;

    let mut request = request(None);
    assert_eq!(archive(&town, &request).await[0].fate, DayFate::Busy);
    assert_eq!(days(&town).await, [first_day()]);
    request.force = true;
    let forced = archive(&town, &request).await;
    assert_eq!(forced[0].fate, DayFate::Dropped { file: None });
    assert!(days(&town).await.is_empty());
}

async fn a_dry_run_drops_nothing(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    with_an_old_day(&town).await;
    let folder = tempfile::tempdir().unwrap();
    let dry_run = ArchiveRequest { dry_run: true, ..request(Some(folder.path())) };

    let report = archive(&town, &dry_run).await;

    assert!(matches!(report[0].fate, DayFate::Dropped { file: Some(_) }));
    assert_eq!(days(&town).await, [first_day()]);
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

/// Archives into this folder and returns the export of the first day.
pub async fn exported(town: &Town, folder: &Path) -> std::path::PathBuf {
    match archive(town, &request(Some(folder))).await.remove(0).fate {
        DayFate::Dropped { file: Some(file) } => file,
        other => panic!("{other:?}"),
    }
}

async fn an_exported_day_is_restored_exactly(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    with_an_old_day(&town).await;
    let before = fresh.exported(first_day()).await;
    let folder = tempfile::tempdir().unwrap();
    let file = exported(&town, folder.path()).await;
    assert!(days(&town).await.is_empty());

    let summary = town.process().archive().restore(&file, &NoProgress).await.unwrap();

    assert_eq!((summary.day, summary.stacks), (first_day(), 2));
    assert_eq!(fresh.exported(first_day()).await, before);
    // Exporting the day again finds an identical file and keeps it.
    assert_eq!(exported(&town, folder.path()).await, file);
}

async fn a_damaged_export_restores_nothing(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    with_an_old_day(&town).await;
    let folder = tempfile::tempdir().unwrap();
    let file = exported(&town, folder.path()).await;
    let whole = std::fs::read(&file).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    let other = zstd::encode_all(&b"{\"_id\":\"ada\",\"events\":[]}\n"[..], 1).unwrap();

    for damaged in [&flipped[..], &whole[..whole.len() - 9], &other, b"", b"not an export"] {
        std::fs::write(&file, damaged).unwrap();
        let error = town.process().archive().restore(&file, &NoProgress).await.unwrap_err();
        assert!(error.to_string().contains("notifications_20140419.ndjson.zst"), "{error}");
        assert!(days(&town).await.is_empty());
    }
}

async fn an_interrupted_restore_resumes_after_other_writers(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    with_an_old_day(&town).await;
    let day = first_day();
    let before = fresh.exported(day).await;
    let (ada, ben) = (user("ada"), user("ben"));
    let [ada_before, ben_before] =
        [fresh.entries_of(&ada, day).await, fresh.entries_of(&ben, day).await];
    let folder = tempfile::tempdir().unwrap();
    let file = exported(&town, folder.path()).await;
    // A process restored one stack and crashed while it held the lease. Then a digest and a fan-out
    // wrote to the day.
    let now = town.clock.now();
    let dead = lease("dead", now + TimeDelta::minutes(1));
    assert!(fresh.lease("day:20140419", &dead, now).await.unwrap());
    fresh.restore_day(day, &before[..1], MergePolicy::Append { is_expired: false }).await.unwrap();
    let marker = new_marker(&ada, day, id(90), ada_before.len() as u32);
    fresh.write_markers(std::slice::from_ref(&marker)).await.unwrap();
    fresh.push(day, 1_000, &push_to(&ben, vec![event("a9", 7)])).await.unwrap();

    let leased = town.process().archive().restore(&file, &NoProgress).await;
    town.clock.advance(TimeDelta::minutes(1));
    for _ in 0..2 {
        town.process().archive().restore(&file, &NoProgress).await.unwrap();
    }

    let leased = leased.unwrap_err().to_string();
    assert!(leased.contains("its lease ends at 2014-05-26T"), "{leased}");
    let ada_after = fresh.entries_of(&ada, day).await;
    assert_eq!(ada_after[..ada_before.len()], ada_before);
    assert_eq!(ada_after.len(), ada_before.len() + 1);
    let ben_after = fresh.entries_of(&ben, day).await;
    assert_eq!(ben_after[0], Entry::Event(event("a9", 7)));
    assert_eq!(ben_after.len(), ben_before.len() + 1);
    assert_eq!(ben_after[1], ben_before[0]);
}

/// Writes a valid export of the first day with these lines.
fn write_export(file: &Path, lines: &[String]) {
    let mut summing = ChecksumBuilder::default();
    lines.iter().for_each(|line| summing.add(line));
    let Checksum { records, sha256 } = summing.finish();
    let trailer =
        format!(r#"{{"tidings":{{"day":"20140419","stacks":{records},"sha256":"{sha256}"}}}}"#);
    let text: String =
        lines.iter().chain([&trailer]).flat_map(|line| [line.as_str(), "\n"]).collect();
    std::fs::write(file, zstd::encode_all(text.as_bytes(), 1).unwrap()).unwrap();
}

async fn an_invalid_stack_does_not_prevent_restoring_the_others(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    with_an_old_day(&town).await;
    let day = first_day();
    let before = fresh.exported(day).await;
    let folder = tempfile::tempdir().unwrap();
    let file = exported(&town, folder.path()).await;
    let mut lines = before.clone();
    lines.insert(0, r#"{"events":[]}"#.into());
    write_export(&file, &lines);

    let restored = town.process().archive().restore(&file, &NoProgress).await;

    let error = restored.unwrap_err();

    assert!(error.to_string().contains("a line of 20140419"), "{error}");
    assert_eq!(fresh.exported(day).await, before);
}
