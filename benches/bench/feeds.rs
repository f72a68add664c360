//! Measures polls of unchanged feeds over HTTP, and pages and marks without HTTP, all in turns.
//!
//! The ceiling of a poll is `/healthz`: the same client, connections and middleware, but no key
//! check. The rival of a page is the original scheme, one find per day. The rival of a mark is one
//! row per item, updated by an index. The median round reads its objects from the feed cache.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bson::{Document, doc};
use futures::TryStreamExt;
use futures::future::join_all;
use tidings::domain::feed_marks::Mark;
use tidings::domain::feed_page::FeedCursor;
use tidings::domain::{Day, DaySet, UserId};
use tidings::engine::feed::{FeedRequest, MarksInput};
use tidings::engine::{NoProgress, digest};
use tidings::http::api;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::measure::{Rounds, Table, against, number, rounds, scaled, spread};
use crate::standing::processor;
use crate::world::{UNKNOWN, World, now, people};

pub const KEY: &str = "the-key-of-the-benchmarks-and-of-nobody-else";
const CONFIG: &str = "server.listen = \"127.0.0.1:0\"\nfeed.fresh = \"5m\"";
/// Users whose feeds are polled. Each has eight days of [`EVENTS`] events.
const PEOPLE: usize = 2_000;
const EVENTS: usize = 5;

/// Events per day in a busy user's feed.
const BUSY: usize = 40;

pub async fn feeds() {
    polls().await;
    digested_pages().await;
    let table = Table::begin(
        "Feeds: pages and marks, per second",
        &["events a day", "measured", "rival", "tidings", "ratio"],
    );
    for (events, people) in [(EVENTS, 500), (BUSY, 60)] {
        pages_and_marks(&table, events, people).await;
    }
}

async fn polls() {
    let world = World::configured("bench_feeds", CONFIG).await;
    let ids = people(scaled(PEOPLE));
    world.fill(&ids, 8, EVENTS).await;
    let (stop, stopped) = watch::channel(false);
    let bound = api::bind(world.app.clone(), KEY).expect("an address");
    let addr = bound.addr;
    let server = tokio::spawn(bound.run(stopped));
    let head = |path: &str, more: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {KEY}\r\n{more}\r\n")
    };
    let mut tagged = Vec::new();
    for id in &ids {
        let path = format!("/v1/users/{id}/feed");
        let answer = Connection::to(addr).await.ask(&head(&path, "")).await;
        let tag = answer.split("etag: ").nth(1).and_then(|rest| rest.lines().next());
        // `ask` returns the head in lower case, and entity tags are case-sensitive.
        let tag = tag.expect("an entity tag").replace("w/", "W/");
        tagged.push(head(&path, &format!("If-None-Match: {tag}\r\n")));
    }
    let bare = vec![head("/healthz", "")];
    let table = Table::begin(
        "Feeds: polls of unchanged feeds, per second",
        &["connections", "bare handler", "polls", "ratio", "poll p99, ms"],
    );
    for connections in [64, 200] {
        let (mut ceiling, mut ours, mut p99) = (Rounds::default(), Rounds::default(), Vec::new());
        for _ in 0..rounds(5) {
            ceiling.note(1, load(addr, connections, &bare, 200).await.0);
            let (each, slow) = load(addr, connections, &tagged, 304).await;
            ours.note(1, each);
            p99.push(slow);
        }
        p99.sort();
        table.row(&[
            connections.to_string(),
            spread(&ceiling),
            spread(&ours),
            against(ours.median() / ceiling.median(), 0.6),
            number(p99[p99.len() / 2].as_secs_f64() * 1e3),
        ]);
    }
    stop.send_replace(true);
    server.await.expect("it ends").expect("it ends well");
    world.end().await;
}

/// Measures first pages of users who were emailed digests, over HTTP with a server key: 40 items
/// on eight days, over 64 connections.
async fn digested_pages() {
    let config = format!("{CONFIG}\n{UNKNOWN}");
    let world = World::configured("bench_pages", &config).await;
    let ids = people(scaled(PEOPLE));
    world.users(&ids).await;
    world.fill(&ids, 8, EVENTS).await;
    let request = digest::DigestRequest { ignore_hours: true, ..Default::default() };
    let run = world.app.digests().run(&request, &NoProgress).await;
    assert_eq!(run.expect("a run").emails.sent, ids.len() as u64);
    let (stop, stopped) = watch::channel(false);
    let bound = api::bind(world.app.clone(), KEY).expect("an address");
    let addr = bound.addr;
    let server = tokio::spawn(bound.run(stopped));
    let page = |id: &String| {
        format!(
            "GET /v1/users/{id}/feed?limit=40 HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {KEY}\r\n\r\n"
        )
    };
    let pages: Vec<String> = ids.iter().map(page).collect();
    let (mut ours, mut server_time) = (Rounds::default(), Vec::new());
    for _ in 0..rounds(5) {
        let before = processor(&world).await;
        ours.note(1, load(addr, 64, &pages, 200).await.0);
        let each = scaled(20_000) / 64 * 64;
        server_time.push((processor(&world).await - before) / each as f64);
    }
    server_time.sort_by(f64::total_cmp);
    let table = Table::begin(
        "Feeds: first pages of 40 items after digests, 64 connections",
        &["pages per second", "server processor time per page, ms"],
    );
    table.row(&[spread(&ours), number(server_time[server_time.len() / 2])]);
    stop.send_replace(true);
    server.await.expect("it ends").expect("it ends well");
    world.end().await;
}

/// Sends requests over many connections without a pause. Returns the time per response (total time
/// by number of responses) and the 99th percentile of the latencies.
async fn load(
    addr: SocketAddr,
    connections: usize,
    requests: &[String],
    status: u16,
) -> (Duration, Duration) {
    let each = scaled(20_000) / connections;
    let begin = Instant::now();
    let asking = (0..connections).map(|first| {
        let requests = requests.to_vec();
        tokio::spawn(async move {
            let mut connection = Connection::to(addr).await;
            let mut took = Vec::with_capacity(each);
            for n in 0..each {
                let begin = Instant::now();
                let request = &requests[(first + n * connections) % requests.len()];
                let answer = connection.ask(request).await;
                took.push(begin.elapsed());
                let said = answer.split(' ').nth(1).expect("a status");
                assert_eq!(said, status.to_string());
            }
            took
        })
    });
    let all = join_all(asking).await.into_iter();
    let mut took: Vec<Duration> = all.flat_map(|took| took.expect("answers")).collect();
    let whole = begin.elapsed();
    took.sort();
    let count = took.len();
    (whole / count as u32, took[count * 99 / 100])
}

/// One connection of a minimal HTTP client, which leaves the processor to the server.
pub struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    pub async fn to(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        let read = Vec::with_capacity(64 << 10);
        Self { stream, read }
    }

    /// Sends a request, reads the whole response, and returns its head in lower case.
    pub async fn ask(&mut self, request: &str) -> String {
        self.stream.write_all(request.as_bytes()).await.expect("asked");
        self.read.clear();
        loop {
            let n = self.stream.read_buf(&mut self.read).await.expect("an answer");
            assert!(n > 0, "the connection ended");
            let Some(end) = self.read.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
                continue;
            };
            let head = String::from_utf8_lossy(&self.read[..end]).to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1);
            let length = length.and_then(|rest| rest.lines().next()?.trim().parse().ok());
            if self.read.len() >= end + 4 + length.unwrap_or(0_usize) {
                return head;
            }
        }
    }
}

async fn pages_and_marks(table: &Table, events: usize, count: usize) {
    let world = World::configured("bench_feeds", CONFIG).await;
    let names = people(scaled(count));
    world.fill(&names, 8, events).await;
    let (stop, stopped) = watch::channel(false);
    let listener = world.app.clone();
    let listening =
        tokio::spawn(
            async move { listener.feed_cache.listen(&*listener.context.store, stopped).await },
        );
    let ids: Vec<UserId> = names.iter().map(UserId::stored).collect();
    let rows = world.db.collection::<Document>("rows");
    for id in &ids {
        let row = |n: usize| doc! {"user": id.as_str(), "day": (n % 8) as i32, "o": n as i32, "read": false};
        rows.insert_many((0..8 * events).map(row)).await.expect("rows");
    }
    let index = mongodb::IndexModel::builder().keys(doc! {"user": 1, "read": 1}).build();
    rows.create_index(index).await.expect("an index");
    let feeds = world.app.feeds();
    let request = |id: &UserId| FeedRequest {
        user: id.clone(),
        query: Default::default(),
        limit: 20,
        accepts_cached: false,
    };
    let (mut finds, mut pages) = (Rounds::default(), Rounds::default());
    let mut again = Rounds::default();
    let (mut further, mut has_more) = (Rounds::default(), false);
    // Users that mark at the same time, and the server's processor time: the rival's, and ours.
    let mut costs = [1, 32].map(|at_once| (at_once, Vec::new(), Vec::new()));
    for _ in 0..rounds(5) {
        let begin = Instant::now();
        for id in &ids {
            for day in DaySet::ending(Day::of(now()), 7).days() {
                let stack = world.db.collection::<Document>(&day.collection_name());
                let found = stack.find(doc! {"_id": id.as_str()}).await.expect("a find");
                let _all: Vec<Document> = found.try_collect().await.expect("the stack");
            }
        }
        finds.note(ids.len() as u64, begin.elapsed());
        let begin = Instant::now();
        for id in &ids {
            feeds.page(&request(id)).await.expect("a page");
        }
        pages.note(ids.len() as u64, begin.elapsed());
        let begin = Instant::now();
        for id in &ids {
            let mut request = request(id);
            request.accepts_cached = true;
            feeds.page(&request).await.expect("a page");
        }
        again.note(ids.len() as u64, begin.elapsed());
        let mut took = Duration::ZERO;
        for id in &ids {
            let page = feeds.page(&request(id)).await.expect("a page").answer;
            let mut next = request(id);
            next.query.before = page.next;
            let begin = Instant::now();
            feeds.page(&next).await.expect("a page");
            took += begin.elapsed();
            has_more = page.next.is_some();
        }
        further.note(ids.len() as u64, took);

        for (at_once, updates, marks) in &mut costs {
            let before = processor(&world).await;
            for people in ids.chunks(*at_once) {
                let mark = |id: &UserId| {
                    let unread = doc! {"user": id.as_str(), "read": false};
                    let read = doc! {"$set": {"read": true}};
                    rows.update_many(unread, read).into_future()
                };
                for marked in join_all(people.iter().map(mark)).await {
                    marked.expect("marked");
                }
            }
            updates.push(processor(&world).await - before);
            let all = doc! {"$set": {"read": false}};
            rows.update_many(doc! {}, all).await.expect("unmarked");
            let cursors = join_all(ids.iter().map(|id| feeds.counts(id, false))).await;
            let cursors = cursors.into_iter().map(|of| of.expect("counts").answer.cursor);
            let cursors: Vec<_> = ids.iter().zip(cursors).collect();
            let before = processor(&world).await;
            for people in cursors.chunks(*at_once) {
                let marking = people.iter().map(|(id, to)| feeds.mark(id, all_read(to)));
                for marked in join_all(marking).await {
                    marked.expect("marked");
                }
            }
            marks.push(processor(&world).await - before);
            let inboxes = world.db.collection::<Document>("inboxes");
            inboxes.delete_many(doc! {}).await.expect("unmarked");
        }
    }
    let pages = [
        ("first pages", &pages),
        ("first pages, reloaded by a browser", &again),
        ("later pages", &further),
    ];
    for (what, pages) in &pages[..if has_more { 3 } else { 2 }] {
        table.row(&[
            events.to_string(),
            format!("{what}, against eight finds"),
            spread(&finds),
            spread(pages),
            against(pages.median() / finds.median(), 3.0),
        ]);
    }
    let each = |costs: &mut Vec<f64>| {
        costs.sort_by(f64::total_cmp);
        costs[costs.len() / 2] / ids.len() as f64
    };
    for (at_once, mut updates, mut marks) in costs {
        let (rival, ours) = (each(&mut updates), each(&mut marks));
        let who = match at_once {
            1 => "one user".to_owned(),
            many => format!("{many} users at once"),
        };
        table.row(&[
            events.to_string(),
            format!(
                "\"all read\" by {who}, against one row per item: server processor time each, ms"
            ),
            number(rival),
            number(ours),
            against(rival / ours, 10.0),
        ]);
    }
    stop.send_replace(true);
    listening.await.expect("it ends");
    world.end().await;
}

fn all_read(to: &FeedCursor) -> MarksInput {
    MarksInput {
        mark: Mark::Read,
        to: Some(to.clone()),
        kind: None,
        category: None,
        day: None,
        about: None,
        ids: None,
    }
}
