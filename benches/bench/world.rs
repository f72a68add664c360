//! The setting of the benchmarks: a separate database, users, follows, and filled days.

use std::sync::Arc;

use bson::oid::ObjectId;
use bson::raw::{RawArrayBuf, RawBson, RawDocumentBuf};
use bson::{Document, doc, rawdoc};
use chrono::{DateTime, TimeDelta, Utc};
use futures::TryStreamExt;
use mongodb::options::{ClientOptions, WriteConcern};
use mongodb::{Client, Database};

use tidings::app::App;
use tidings::clock::ManualClock;
use tidings::config::Config;
use tidings::domain::{Address, Day, FollowKey, User, UserId};
use tidings::email::{CheckResult, Mailer, Message, Outcome, Resolution, SendPermit};
use tidings::ids::Ids;
use tidings::store::mongo::{Mongo, MongoOptions};
use tidings::store::{ChecksumBuilder, Directory, FollowChange, Store};

/// Returns the connection string of the throw-away server.
pub fn url() -> String {
    std::env::var("TIDINGS_TEST_MONGO")
        .expect("run this through scripts/bench: it starts a MongoDB")
}

/// A fresh database, with an instance of tidings on it.
pub struct World {
    pub app: App,
    pub store: Arc<dyn Store>,
    pub clock: Arc<ManualClock>,
    /// The same database through the bare driver, with majority write concern.
    pub db: Database,
}

/// Returns the fixed time at which every benchmark starts.
pub fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_398_171_600, 0).expect("a moment in 2014")
}

/// Configuration that emails events about unknown objects, because the benchmarks store no objects.
pub const UNKNOWN: &str = "types.ArtworkPublished.unknown_objects = \"mail\"";

impl World {
    pub async fn fresh(name: &str) -> Self {
        Self::configured(name, UNKNOWN).await
    }

    pub async fn configured(name: &str, config: &str) -> Self {
        let url = url().replacen("/?", &format!("/{name}?"), 1);
        let db = driver(&url, Some("majority")).await.database(name);
        db.drop().await.expect("a fresh database");
        let mongo = Mongo::connect(&url, MongoOptions::default()).await.expect("MongoDB answers");
        mongo.prepare().await.expect("indexes");
        let store: Arc<dyn Store> = Arc::new(mongo);
        let clock = Arc::new(ManualClock::at(now()));
        let turns = clock.clone();
        let app = App::assemble(
            Config::parse(config).expect("a configuration"),
            store.clone(),
            Arc::new(Nowhere),
            clock,
            Arc::new(Ids::random()),
        )
        .expect("an app");
        Self { app, store, clock: turns, db }
    }

    pub async fn end(self) {
        self.db.drop().await.expect("the database goes away");
    }

    /// Gives every user `events` events on each of `days` days, in clustered collections like those
    /// of tidings. Users have different events.
    pub async fn fill(&self, people: &[String], days: u32, events: usize) {
        for back in (0..days).rev() {
            let day = Day::of(now()).days_before(back);
            fill_day(&self.db, day, people, events, 4_000).await;
        }
    }

    /// Fills days like [`World::fill`], but all users have the same events.
    pub async fn fill_alike(&self, people: &[String], days: u32, events: usize) {
        for back in (0..days).rev() {
            let day = Day::of(now()).days_before(back);
            fill_day(&self.db, day, people, events, 1).await;
        }
    }

    /// Drops a day, so that no user has a stack on it.
    pub async fn drop_day(&self, day: Day) {
        let (mut sum, mut chunks) = (ChecksumBuilder::default(), self.store.export_day(day));
        while let Some(lines) = chunks.try_next().await.expect("the day") {
            lines.iter().for_each(|line| sum.add(line));
        }
        drop(chunks);
        let dropped = self.store.drop_day(day, &sum.finish()).await;
        assert!(dropped.expect("a fresh day"));
    }

    pub async fn users(&self, ids: &[String]) {
        for chunk in ids.chunks(5_000) {
            let users: Vec<User> = chunk
                .iter()
                .map(|id| User {
                    email: Address::new(format!("{id}@example.org")).ok(),
                    confirmed: true,
                    ..User::new(UserId::stored(id))
                })
                .collect();
            self.store.put_users(&users).await.expect("users");
        }
    }

    pub async fn follows(&self, key: &str, ids: &[String]) {
        let key = FollowKey::stored(key);
        for chunk in ids.chunks(20_000) {
            let pairs: Vec<_> = chunk.iter().map(|id| (key.clone(), UserId::stored(id))).collect();
            Directory::change_follows(self.store.as_ref(), FollowChange::Follow, &pairs)
                .await
                .expect("follows");
        }
    }
}

/// Returns a separate client with the write concern `majority`, or else w:1.
pub async fn driver(url: &str, write_concern: Option<&str>) -> Client {
    let mut options = ClientOptions::parse(url).await.expect("a connection string");
    options.write_concern = Some(match write_concern {
        Some("majority") => WriteConcern::majority(),
        _ => WriteConcern::nodes(1),
    });
    Client::with_options(options).expect("a client")
}

/// Returns user ids like those of applications: 24 hexadecimal digits, in an unsorted order.
pub fn people(count: usize) -> Vec<String> {
    (0..count as u64)
        .map(|n| {
            let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            format!("{mixed:016x}{n:08x}")
        })
        .collect()
}

/// Inserts a clustered day on which every user has one of `lists` different lists of `events`
/// events.
async fn fill_day(db: &Database, day: Day, people: &[String], events: usize, lists: usize) {
    let name = day.collection_name();
    let create = doc! {"create": &name, "clusteredIndex": {"key": {"_id": 1}, "unique": true}};
    db.run_command(create).await.expect("a clustered collection");
    let collection = db.collection::<RawDocumentBuf>(&name);
    let fanout = fanout_id(day);
    let mut sorted: Vec<&String> = people.iter().collect();
    sorted.sort_unstable();
    for (number, chunk) in sorted.chunks(5_000).enumerate() {
        let documents = chunk.iter().enumerate().map(|(index, user)| {
            let mut array = RawArrayBuf::new();
            for event in 0..events {
                // Lists share objects, like those of users who follow the same artists.
                let list = (number * 31 + index * 7) % lists;
                let o = format!("5334647b139b2165{:08x}", (list + event * 13) % 4_000);
                array.push(rawdoc! {"t": "ArtworkPublished", "o": o, "i": fanout});
            }
            let mut document = rawdoc! {"_id": user.as_str()};
            document.append(bson::raw::cstr!("events"), RawBson::Array(array));
            document
        });
        collection.insert_many(documents).ordered(false).await.expect("documents");
    }
}

fn fanout_id(day: Day) -> ObjectId {
    let id = tidings::domain::Id::at(day.start() + TimeDelta::hours(1), [7; 8]);
    ObjectId::from_bytes(id.bytes())
}

/// Returns the names of the day collections of the window, oldest first.
pub fn day_names(days: u32) -> Vec<String> {
    (0..days).rev().map(|back| Day::of(now()).days_before(back).collection_name()).collect()
}

/// A provider that accepts every email and sends none.
pub struct Nowhere;

#[async_trait::async_trait]
impl Mailer for Nowhere {
    fn split_into_calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        vec![(0..messages.len()).collect()]
    }

    async fn send(
        &self,
        _reference: &str,
        messages: &[Message],
        _leave: &SendPermit,
    ) -> Vec<Outcome> {
        messages.iter().map(|message| Outcome::Accepted(message.delivery.to_string())).collect()
    }

    fn resolution(&self) -> Resolution {
        Resolution::Repeat { within: None }
    }

    async fn check(&self) -> CheckResult {
        CheckResult::ready("accepts every email")
    }

    fn name(&self) -> &str {
        "nowhere"
    }
}

/// Returns a collection through the bare driver.
pub fn bare(db: &Database, name: &str) -> mongodb::Collection<Document> {
    db.collection(name)
}
