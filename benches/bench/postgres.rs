//! Measures what most teams would build: one row per user and event in PostgreSQL, in one table
//! that is partitioned by day, with an index on (user, time) and a unique one on (user, event,
//! object).
//!
//! `scripts/with-postgres` starts the server. Statements go through `psql`, which reports their
//! time, and concurrent reads through `pgbench`. Both contestants write durably, keep ten events
//! of today for every user, and take turns.

use std::process::Command;
use std::time::Duration;

use futures::StreamExt;
use tidings::domain::{Audience, Day, Details, EventType, FollowKey, ObjectId, UserId};
use tidings::engine::NoProgress;
use tidings::engine::digest::DigestRequest;
use tidings::engine::feed::FeedRequest;
use tidings::engine::ingest;

use crate::measure::{Table, number, rounds, scaled, timed};
use crate::world::{World, now, people};

/// Events of today that every user has at first.
const EVENTS: usize = 10;
/// Connections and tasks that read at the same time.
const READERS: usize = 64;
/// Items of a page.
const PAGE: usize = 20;

const TABLES: &str = "
    DROP TABLE IF EXISTS follows, items;
    CREATE TABLE follows (key text, user_id text, PRIMARY KEY (key, user_id));
    CREATE TABLE items (
        user_id text NOT NULL, day date NOT NULL, at timestamptz NOT NULL DEFAULT now(), type text NOT NULL,
        event bigint NOT NULL, object text NOT NULL,
        emailed boolean NOT NULL DEFAULT false, seen boolean NOT NULL DEFAULT false
    ) PARTITION BY RANGE (day);
    CREATE TABLE items_today PARTITION OF items FOR VALUES FROM ('2014-04-22') TO ('2014-04-23');
    CREATE INDEX ON items (user_id, at);
    CREATE UNIQUE INDEX ON items (user_id, event, object, day);";

/// The values of one piece of work, one per round: milliseconds, or reads per second.
#[derive(Default)]
struct Figures {
    rows: Vec<f64>,
    tidings: Vec<f64>,
}

pub async fn rows() {
    let ids = people(scaled(100_000));
    let work = [
        "one event to all users, ms",
        "one event with 20 objects to all users, ms",
        "first pages of 20 items by 64 readers, per second",
        "unread counts by 64 readers, per second",
        "pending events of all users, ms (tidings: with the emails)",
        "marking them as emailed, ms (tidings: in the line above)",
        "dropping the day, ms",
    ];
    let mut figures = work.map(|_| Figures::default());
    for _ in 0..rounds(3) {
        for (figures, value) in figures.iter_mut().zip(rival(&ids)) {
            figures.rows.push(value);
        }
        for (figures, value) in figures.iter_mut().zip(ours(&ids).await) {
            figures.tidings.push(value);
        }
    }
    let title = format!(
        "Rows in PostgreSQL against tidings: {} users with {EVENTS} events of the day",
        number(ids.len() as f64)
    );
    let table = Table::begin(&title, &["work", "rows in PostgreSQL", "tidings"]);
    for (what, figures) in work.iter().zip(figures) {
        let [rows, ours] = [figures.rows, figures.tidings].map(|mut values| {
            values.sort_by(f64::total_cmp);
            number(values[values.len() / 2])
        });
        table.row(&[(*what).to_owned(), rows, ours]);
    }
}

/// Returns the figures of PostgreSQL, in the order of the table.
fn rival(ids: &[String]) -> [f64; 7] {
    sql(TABLES);
    let list = ids.iter().map(|id| format!("{id}\n")).collect::<String>();
    let file = std::env::temp_dir().join(format!("tidings-bench-{}", std::process::id()));
    std::fs::write(&file, list).expect("a list of users");
    sql(&format!(
        "CREATE TEMP TABLE ids (id text);
         \\copy ids FROM '{}'
         INSERT INTO follows SELECT 'artist:1', id FROM ids;
         INSERT INTO items SELECT id, '2014-04-22', now(), 'ArtworkPublished', event, 'B' || event
             FROM ids, generate_series(1, {EVENTS}) event;
         VACUUM ANALYZE follows; VACUUM ANALYZE items; CHECKPOINT;",
        file.display()
    ));
    std::fs::remove_file(&file).expect("removed");
    let insert = |event: u32, objects: u32| {
        sql(&format!(
            "INSERT INTO items
                 SELECT user_id, '2014-04-22', now(), 'ArtworkPublished', {event}, 'A' || object
                 FROM follows, generate_series(1, {objects}) object WHERE key = 'artist:1'
                 ON CONFLICT DO NOTHING"
        ))
    };
    let one = insert(100, 1);
    let page = format!(
        "SELECT type, event, object, at, emailed, seen FROM items
             WHERE user_id = :'id' AND day BETWEEN '2014-04-15' AND '2014-04-22' ORDER BY at DESC LIMIT {PAGE};"
    );
    let pages = pgbench(&page, ids);
    let unread = "SELECT count(*) FROM items
             WHERE user_id = :'id' AND day BETWEEN '2014-04-15' AND '2014-04-22' AND NOT seen;";
    let counts = pgbench(unread, ids);
    let pending = sql(
        "SELECT count(*) FROM (SELECT user_id, array_agg(object) FROM items
             WHERE day BETWEEN '2014-04-15' AND '2014-04-22' AND NOT emailed GROUP BY user_id) pending",
    );
    let marking = sql("UPDATE items SET emailed = true WHERE day = '2014-04-22' AND NOT emailed");
    let many = insert(101, 20);
    let dropping = sql("DROP TABLE items_today");
    [one, many, pages, counts, pending, marking, dropping]
}

/// Returns the figures of tidings, in the order of the table.
async fn ours(ids: &[String]) -> [f64; 7] {
    let world = World::fresh("bench_postgres").await;
    world.users(ids).await;
    world.follows("artist:1", ids).await;
    world.fill_alike(ids, 1, EVENTS).await;
    let one = fan_out(&world, 1).await;

    let feeds = world.app.feeds();
    let users: Vec<UserId> = ids.iter().step_by(10).map(UserId::stored).collect();
    let reading = timed(async {
        let read = |user: &UserId| {
            let (feeds, user) = (world.app.feeds(), user.clone());
            let request =
                FeedRequest { user, query: Default::default(), limit: PAGE, accepts_cached: false };
            tokio::spawn(async move { feeds.page(&request).await.expect("a page") })
        };
        let reads = futures::stream::iter(users.iter().map(read));
        reads.buffer_unordered(READERS).for_each(|_| async {}).await;
    });
    let pages = users.len() as f64 / reading.await.1.as_secs_f64();
    let counting = timed(async {
        let counts = users.iter().map(|user| feeds.counts(user, false));
        let counts = futures::stream::iter(counts).buffer_unordered(READERS);
        counts.for_each(|counts| async { drop(counts.expect("counts")) }).await;
    });
    let counts = users.len() as f64 / counting.await.1.as_secs_f64();

    let request = DigestRequest { ignore_hours: true, ..DigestRequest::default() };
    let (report, digests) = timed(world.app.digests().run(&request, &NoProgress)).await;
    assert!(report.expect("a run").emails.events > 0);
    let many = fan_out(&world, 20).await;
    let today = world.db.collection::<bson::Document>(&Day::of(now()).collection_name());
    let (dropped, dropping) = timed(today.drop().into_future()).await;
    dropped.expect("dropped");
    world.end().await;
    [one, many, pages, counts, millis(digests), 0.0, millis(dropping)]
}

/// Sends one event with `objects` objects to all followers, and returns how long that took, in
/// milliseconds.
async fn fan_out(world: &World, objects: usize) -> f64 {
    let event = ingest::NewEvent {
        kind: EventType::stored("ArtworkPublished"),
        objects: (0..objects).map(|n| ObjectId::stored(format!("A{objects:02}{n:04}"))).collect(),
        audience: Audience::followers_of([FollowKey::stored("artist:1")]).expect("an audience"),
        key: None,
        batch_key: None,
        details: Details::default(),
        at: None,
    };
    let (notify, fanouts) = (world.app.notify(), world.app.fanouts());
    let ((), took) = timed(async {
        notify.accept(vec![event]).await.expect("accepted");
        let report = fanouts.drain(&NoProgress).await.expect("fanned out");
        assert_eq!(report.completed, 1);
    })
    .await;
    millis(took)
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

/// Runs SQL and returns the time of its last statement, in milliseconds.
fn sql(text: &str) -> f64 {
    let input = std::env::temp_dir().join(format!("tidings-bench-{}.sql", std::process::id()));
    std::fs::write(&input, format!("\\timing on\n{text};\n")).expect("the SQL");
    let answer = run(Command::new("psql").args(["-q", "-v", "ON_ERROR_STOP=1", "-f"]).arg(&input));
    std::fs::remove_file(&input).expect("removed");
    let last = answer.lines().rev().find_map(|line| line.strip_prefix("Time: "));
    let last = last.expect("psql prints times");
    let millis = last.split(' ').next().expect("a number");
    millis.parse().expect("milliseconds")
}

/// Runs a statement for random users on [`READERS`] connections for three seconds, and returns how
/// many ran per second.
fn pgbench(statement: &str, ids: &[String]) -> f64 {
    // The ids of users are `mixed` and `n` in hexadecimal; see `world::people`. SQL computes one.
    let file = std::env::temp_dir().join(format!("tidings-bench-{}.pgb", std::process::id()));
    let statement = statement.split_whitespace().collect::<Vec<_>>().join(" ");
    let script = format!(
        "\\set n random(0, {})\n{}\n",
        ids.len() - 1,
        statement.replace(":'id'", "(SELECT id FROM numbered WHERE n = :n)")
    );
    std::fs::write(&file, script).expect("the script");
    sql("DROP TABLE IF EXISTS numbered;
         CREATE TABLE numbered AS SELECT (row_number() OVER () - 1)::int n, user_id id FROM follows;
         CREATE UNIQUE INDEX ON numbered (n); VACUUM ANALYZE numbered");
    let readers = READERS.to_string();
    let answer = run(Command::new("pgbench")
        .args(["-n", "-M", "prepared", "-T", "3", "-c", &readers, "-j", "2", "-f"])
        .arg(&file));
    std::fs::remove_file(&file).expect("removed");
    let tps = answer.lines().find_map(|line| line.strip_prefix("tps = "));
    let tps = tps.expect("pgbench prints its rate").split(' ').next();
    tps.expect("a number").parse().expect("a rate")
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("run this through scripts/bench: it starts PostgreSQL");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}
