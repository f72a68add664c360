//! Measures a worker's tick: finding the few users, among a million, whose digest is due.

use chrono::{DateTime, Datelike, TimeDelta, Timelike, Utc, Weekday};
use chrono_tz::Tz;
use tidings::domain::schedule::DigestDefaults;
use tidings::domain::user::DigestPreference;
use tidings::domain::{Address, Cadence, Day, Id, StackId, User, UserId};
use tidings::engine::NoProgress;
use tidings::engine::digest::DigestRequest;
use tidings::store::NewMarker;

use crate::measure::{Rounds, Table, number, rounds, scaled, spread, timed};
use crate::world::{World, now, people};

const DAYS: u32 = 8;
const EVENTS: usize = 2;
/// One user in this many is due.
const ONE_IN: usize = 100;

/// Returns the start of the hour in which the benchmark runs.
fn hour() -> DateTime<Utc> {
    now().with_minute(0).and_then(|at| at.with_second(0)).expect("an hour")
}

/// Stores users with weekly digests, in two time zones. One in `one_in` falls due in [`hour`], all
/// others on the next weekday.
async fn choosers(world: &World, ids: &[String], one_in: usize) {
    for (chunk, ids) in ids.chunks(5_000).enumerate() {
        let user = |(n, id): (usize, &String)| {
            let n = chunk * 5_000 + n;
            let hour = hour().hour() as u8;
            let digest = match n % one_in {
                0 => DigestPreference {
                    cadence: Some(Cadence::Weekly),
                    weekday: Some(hour_day()),
                    hour: Some(hour),
                    since: None,
                },
                other => DigestPreference {
                    cadence: Some(Cadence::Weekly),
                    weekday: Some(hour_day().succ()),
                    hour: Some((other % 24) as u8),
                    since: None,
                },
            };
            let tz = if n % one_in == 0 || n % 2 == 0 { Tz::UTC } else { Tz::Europe__Berlin };
            User {
                email: Address::new(format!("{id}@example.org")).ok(),
                confirmed: true,
                tz: Some(tz),
                digest,
                ..User::new(UserId::stored(id))
            }
        };
        let users: Vec<User> = ids.iter().enumerate().map(user).collect();
        world.store.put_users(&users).await.expect("users");
    }
}

/// Marks the two oldest days of all users who are not due, as their last digest would have done.
async fn emailed(world: &World, ids: &[String], one_in: usize) {
    let days: Vec<Day> = (DAYS - 2..DAYS).map(|back| Day::of(now()).days_before(back)).collect();
    let mut markers: Vec<NewMarker> = Vec::new();
    let mut ids: Vec<(usize, &String)> = ids.iter().enumerate().collect();
    ids.sort_unstable_by_key(|(_, id)| *id);
    for (n, id) in ids.into_iter().filter(|(n, _)| n % one_in != 0) {
        let [a, b, c, d] = (n as u32).to_be_bytes();
        markers.push(NewMarker::Flushed(
            UserId::stored(id),
            Id::at(now(), [0, 0, 0, 0, a, b, c, d]),
            days.iter().map(|day| (StackId::for_day(*day), EVENTS as u32)).collect(),
        ));
    }
    for markers in markers.chunks(10_000) {
        world.store.write_markers(markers).await.expect("marked");
    }
}

fn hour_day() -> Weekday {
    hour().weekday()
}

/// Finds due users as a tick does, up to the point where it would open deliveries. Returns how many
/// are due.
async fn tick(world: &World) -> u64 {
    let digests = world.app.digests();
    let common =
        DigestDefaults { schedule: world.app.config.digest.schedule, sends_mandatory: false };
    let since = hour() - TimeDelta::minutes(15);
    let found = digests.users_due_between(&common, since, now()).await;
    look(world, found.expect("the index")).await
}

/// Scans all users, or only `users`, in a dry run. Returns how many are due.
async fn look(world: &World, users: Option<Vec<UserId>>) -> u64 {
    let request = DigestRequest { users, dry_run: true, ..DigestRequest::default() };
    let report = world.app.digests().run(&request, &NoProgress).await;
    report.expect("a rehearsal").due.users
}

/// Compares ticks with full scans. All users have pending events and no recent digest.
pub async fn ticks() {
    let all = scaled(1_000_000);
    let few = World::fresh("bench_ticks_few").await;
    let many = World::fresh("bench_ticks").await;
    for (world, count, one_in) in [(&few, all / ONE_IN, 1), (&many, all, ONE_IN)] {
        let ids = people(count);
        choosers(world, &ids, one_in).await;
        world.fill(&ids, DAYS, EVENTS).await;
        emailed(world, &ids, one_in).await;
    }
    let due = (all / ONE_IN) as u64;
    let [mut nobody, mut ours, mut full, mut dense] = [(); 4].map(|()| Rounds::default());
    for _ in 0..rounds(5) {
        let digests = many.app.digests();
        let common =
            DigestDefaults { schedule: many.app.config.digest.schedule, sends_mandatory: false };
        let quiet = hour() + TimeDelta::minutes(15);
        let (found, took) = timed(digests.users_due_between(&common, quiet, now())).await;
        assert_eq!(found.expect("the index"), Some(Vec::new()));
        nobody.note(1, took);
        let (found, took) = timed(tick(&many)).await;
        assert_eq!(found, due);
        ours.note(1, took);
        let (found, took) = timed(look(&many, None)).await;
        assert_eq!(found, due);
        full.note(1, took);
        let (found, took) = timed(look(&few, None)).await;
        assert_eq!(found, due);
        dense.note(1, took);
    }
    let title = format!(
        "Scans for due digests: {} users, {DAYS} collections, one in {ONE_IN} due",
        number(all as f64)
    );
    let table = Table::begin(&title, &["way", "scans/s (slowest–fastest)", "time, ms", "ratio"]);
    let row = |way: &str, rounds: &Rounds| {
        let time = number(1e3 / rounds.median());
        let ratio = format!("{:.2}", full.median() / rounds.median());
        table.row(&[way.into(), spread(rounds), time, ratio]);
    };
    row("full scan of all users (the earlier behavior of every tick)", &full);
    row("a tick, one in a hundred due", &ours);
    row("a tick, no user due", &nobody);
    row("full scan of a store that has only as many users as are due", &dense);
    few.end().await;
    many.end().await;
}
