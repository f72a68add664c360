//! Measures digest assembly and flushing for all users against the original's loops, and how much a
//! small server cache slows reading.

use std::sync::Arc;

use futures::StreamExt;
use tidings::domain::digest_content::{build_digest_content, digest_events};
use tidings::domain::email_sections::ItemLimits;
use tidings::domain::{Address, Day, DaySet, EmailScope, Event, Id, User, UserId};
use tidings::engine::NoProgress;
use tidings::engine::digest::DigestRequest;
use tidings::engine::eligibility;
use tidings::engine::eligibility::event_facts::{EventFacts, StackEvents};
use tidings::store::NewMarker;

use crate::measure::{Rounds, Table, against, number, rounds, scaled, spread, timed};
use crate::rivals;
use crate::world::{World, day_names, now, people};

const DAYS: u32 = 8;
const EVENTS: usize = 5;

/// Does the work of a digest run without rendering. Returns the numbers of users and of included
/// events.
async fn assemble_all(world: &World) -> (u64, usize) {
    let policies = Arc::new(world.app.config.policies.clone());
    let mut catalog = EventFacts::for_emails(&world.app.context);
    let person = User {
        email: Address::new("a@example.org").ok(),
        confirmed: true,
        ..User::new(UserId::stored("a"))
    };
    let mut chunks = world.store.scan(DaySet::ending(Day::of(now()), DAYS - 1), None, 1_000);
    let (mut read, mut told) = (0, 0);
    while let Some(chunk) = chunks.next().await {
        let mut chunk = chunk.expect("a chunk");
        let (users, inboxes) = (vec![None; chunk.len()], vec![None; chunk.len()]);
        let which = StackEvents::Uncovered;
        let excluded =
            eligibility::exclude_events(&mut chunk, &users, &inboxes, which, &mut catalog);
        excluded.await.expect("retractions");
        let wanted = |stacks| digest_events(stacks, &person, EmailScope::All, &policies);
        let wanted: Vec<_> = chunk.iter().map(wanted).collect();
        catalog
            .load_objects_and_retractions(wanted.iter().flatten().map(|pending| pending.event))
            .await
            .expect("objects");
        for wanted in &wanted {
            let applies = |event: &Event| catalog.event_data(event);
            told += build_digest_content(wanted, &policies, ItemLimits::default(), applies)
                .map_or(0, |digest| digest.total as usize);
        }
        read += chunk.len() as u64;
    }
    (read, told)
}

pub async fn assembly_and_flush() {
    let world = World::fresh("bench_digest").await;
    let ids = people(scaled(50_000));
    world.users(&ids).await;
    world.fill(&ids, DAYS, EVENTS).await;
    let days = day_names(DAYS);
    let sample = &ids[..ids.len().min(scaled(1_000))];
    let (mut ours, mut rehearsal, mut original) =
        (Rounds::default(), Rounds::default(), Rounds::default());
    for _ in 0..rounds(5) {
        let ((read, told), took) = timed(assemble_all(&world)).await;
        assert_eq!(read, ids.len() as u64);
        assert!(told > 0);
        ours.note(read, took);
        let request =
            DigestRequest { ignore_hours: true, dry_run: true, ..DigestRequest::default() };
        let digests = world.app.digests();
        let (report, took) = timed(digests.run(&request, &NoProgress)).await;
        assert_eq!(report.expect("a rehearsal").due.users, ids.len() as u64);
        rehearsal.note(read, took);
        original
            .note(sample.len() as u64, timed(rivals::read_loop(&world.db, &days, sample)).await.1);
    }
    let title = format!(
        "Digest assembly: {} users, {DAYS} collections, {} events",
        number(ids.len() as f64),
        number((ids.len() * DAYS as usize * EVENTS) as f64)
    );
    let table = Table::begin(&title, &["way", "users/s (slowest–fastest)", "ratio"]);
    table.row(&["original: eight finds per user".into(), spread(&original), "1×".into()]);
    table.row(&[
        "read, slice, check which events apply, assemble".into(),
        spread(&ours),
        against(ours.median() / original.median(), 100.0),
    ]);
    let whole = number(rehearsal.median() / original.median());
    table.row(&[
        "`tidings digest --dry-run`: with lookups of users and ledger".into(),
        spread(&rehearsal),
        format!("{whole}×"),
    ]);

    flush(&world, &ids, &days).await;
    world.end().await;
}

async fn flush(world: &World, ids: &[String], days: &[String]) {
    let few = &ids[..ids.len().min(scaled(500))];
    let window = DaySet::ending(Day::of(now()), DAYS - 1);
    let (mut ours, mut original) = (Rounds::default(), Rounds::default());
    for round in 0..rounds(3) as u8 {
        let mut sorted: Vec<&String> = ids.iter().collect();
        sorted.sort_unstable();
        let markers: Vec<NewMarker> = sorted
            .iter()
            .enumerate()
            .map(|(n, user)| {
                let watermarks = window
                    .days()
                    .map(|day| (tidings::domain::StackId::for_day(day), EVENTS as u32))
                    .collect();
                let [a, b, c, d] = (n as u32).to_be_bytes();
                NewMarker::Flushed(
                    UserId::stored(user),
                    Id::at(now(), [round, 0, 0, 0, a, b, c, d]),
                    watermarks,
                )
            })
            .collect();
        let mark_all = async {
            for chunk in markers.chunks(10_000) {
                world.store.write_markers(chunk).await.expect("marked");
            }
        };
        ours.note(markers.len() as u64, timed(mark_all).await.1);
        original.note(few.len() as u64, timed(rivals::flush_loop(&world.db, days, few)).await.1);
    }
    let table =
        Table::begin("Flushing these users", &["way", "users/s (slowest–fastest)", "ratio"]);
    table.row(&[
        "original: eight updates per user, majority".into(),
        spread(&original),
        "1×".into(),
    ]);
    table.row(&[
        "markers in bulk".into(),
        spread(&ours),
        against(ours.median() / original.median(), 50.0),
    ]);
}

/// Assembles the digests of 500,000 users.
///
/// `scripts/bench` runs this on two servers. The data fits in the cache of only one of them.
pub async fn cache(label: &str) {
    let world = World::fresh("bench_cache").await;
    let ids = people(scaled(500_000));
    world.fill(&ids, DAYS, EVENTS * 2).await;
    let mut ours = Rounds::default();
    for _ in 0..rounds(3) {
        let ((read, _), took) = timed(assemble_all(&world)).await;
        ours.note(read, took);
    }
    let stats = world.db.run_command(bson::doc! {"dbStats": 1}).await.expect("statistics");
    let bytes = stats
        .get_f64("dataSize")
        .or_else(|_| stats.get_i64("dataSize").map(|n| n as f64))
        .or_else(|_| stats.get_i32("dataSize").map(f64::from))
        .unwrap_or(0.0);
    let table = Table::begin(
        &format!("Digest assembly, {} users, {label}", number(ids.len() as f64)),
        &["data, MB", "users/s (slowest–fastest)"],
    );
    table.row(&[number(bytes / 1e6), spread(&ours)]);
    world.end().await;
}
