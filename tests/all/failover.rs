//! P1, P2 and P3 on three nodes, with the primary killed in the middle of a large fan-out and of a large flush.
//!
//! The rule: the kill waits for a state of the database, not for a time, so it always hits the middle; and afterwards everybody's stack is
//! read and counted.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bson::{Document, doc};
use futures::TryStreamExt;
use mongodb::options::{ClientOptions, ReadPreference, SelectionCriteria};
use mongodb::{Client, Collection};
use tidings::app::App;
use tidings::clock::{Clock, Ids, ManualClock};
use tidings::config::Config;
use tidings::domain::{Audience, Day, Entry, UserId, Window};
use tidings::mail::{Outbox, Sender};
use tidings::services::Silent;
use tidings::store::mongo::{Mongo, MongoOptions};
use tidings::store::{Mark, Stacks};

use crate::support::town::request;
use crate::support::{id, noon, people};

/// How many people each half of the test reaches.
const PEOPLE: usize = 40_000;

/// Three real servers, of their own.
struct ReplicaSet {
    supervisor: Child,
    url: String,
}

impl ReplicaSet {
    /// Starts three nodes; they end when this goes.
    fn start() -> Self {
        let mut supervisor = Command::new("scripts/with-mongo")
            .args(["bash", "-c", "echo \"$TIDINGS_TEST_MONGO\"; exec cat"])
            .env_remove("TIDINGS_TEST_MONGO")
            .env("TIDINGS_MONGO_NODES", "3")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("scripts/with-mongo can be run from the root of the repository");
        let mut url = String::new();
        BufReader::new(supervisor.stdout.take().unwrap())
            .read_line(&mut url)
            .unwrap();
        assert!(
            url.starts_with("mongodb://"),
            "no replica set could be started: {url:?}"
        );
        Self {
            supervisor,
            url: url.trim().replacen("/?", "/failover?", 1),
        }
    }

    /// A client that asks the primary, whoever that is.
    async fn client(&self) -> Client {
        let mut options = ClientOptions::parse(&self.url).await.unwrap();
        options.selection_criteria =
            Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
        Client::with_options(options).unwrap()
    }
}

impl Drop for ReplicaSet {
    fn drop(&mut self) {
        // Its standard input closes, so the command ends and the servers are taken away.
        drop(self.supervisor.stdin.take());
        let _ = self.supervisor.wait();
    }
}

/// The primary's process: its id, and the command line that would start it again.
async fn primary(client: &Client) -> (i64, Vec<String>) {
    let status = client
        .database("admin")
        .run_command(doc! {"serverStatus": 1})
        .await
        .unwrap();
    let pid = status.get_i64("pid").unwrap();
    let line =
        std::fs::read(format!("/proc/{pid}/cmdline")).expect("the servers run on this machine");
    let words = line
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty());
    (
        pid,
        words
            .map(|word| String::from_utf8(word.to_vec()).unwrap())
            .collect(),
    )
}

/// Kills the primary when so many documents match; gives the command line to start it again.
async fn kill_when(
    client: Client,
    day: Collection<Document>,
    filter: Document,
    count: u64,
) -> Vec<String> {
    let (pid, line) = primary(&client).await;
    while day.count_documents(filter.clone()).await.unwrap() < count {
        tokio::task::yield_now().await;
    }
    let killed = Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    line
}

async fn store(set: &ReplicaSet) -> Arc<Mongo> {
    let store = Mongo::connect(&set.url, MongoOptions::default())
        .await
        .unwrap();
    store.prepare().await.unwrap();
    Arc::new(store)
}

/// Everybody's entries of the day.
async fn stacks(store: &Mongo, day: Day) -> Vec<(UserId, Vec<Entry>)> {
    let chunks: Vec<_> = store
        .scan(Window::ending(day, 0), None, 5_000)
        .try_collect()
        .await
        .unwrap();
    chunks
        .into_iter()
        .flatten()
        .map(|mut person| (person.user, person.stacks.remove(0).entries))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_killed_in_the_middle_of_a_fan_out_and_of_a_flush_loses_and_doubles_nothing() {
    let set = ReplicaSet::start();
    let (client, store) = (set.client().await, store(&set).await);
    let folder = tempfile::tempdir().unwrap();
    let sender = Sender {
        from: tidings::domain::Address::new("tidings@example.org").unwrap(),
        from_name: "tidings".into(),
        reply_to: None,
    };
    let clock = Arc::new(ManualClock::at(noon()));
    let mailer = Arc::new(Outbox::new(folder.path(), sender));
    let app = App::assemble(
        Config::standard(),
        store.clone(),
        mailer,
        clock.clone(),
        Arc::new(Ids::random()),
    )
    .unwrap();
    let (day, crowd) = (Day::of(clock.now()), people(PEOPLE));
    let collection = client
        .database("failover")
        .collection::<Document>(&day.collection());

    // A fan-out of two objects to everybody; the primary dies when a third of them have theirs.
    let audience = Audience::users(crowd.clone()).unwrap();
    let receipt = app
        .notify()
        .accept(vec![request(&["a1", "a2"], audience, None)])
        .await
        .unwrap()[0];
    let third = PEOPLE as u64 / 3;
    let fanouts = app.fanouts();
    let killer = tokio::spawn(kill_when(
        client.clone(),
        collection.clone(),
        doc! {},
        third,
    ));
    let done = fanouts.drain(&Silent).await.unwrap();
    let line = killer.await.unwrap();

    assert_eq!(
        (done.fanouts, done.counts.people, done.counts.pushed),
        (1, PEOPLE as u64, 2 * PEOPLE as u64)
    );
    let found = stacks(&store, day).await;
    assert_eq!(
        found.iter().map(|(user, _)| user).collect::<Vec<_>>(),
        crowd.iter().collect::<Vec<_>>()
    );
    for (user, entries) in &found {
        let pushed = |o: &str| {
            entries.iter().filter(|e| matches!(e, Entry::Event(e) if e.o.as_str() == o && e.i == Some(receipt.id))).count()
        };
        assert_eq!(
            (entries.len(), pushed("a1"), pushed("a2")),
            (2, 1, 1),
            "{user}"
        );
    }

    // The dead node comes back, so that another may die.
    let mut revived = Command::new(&line[0])
        .args(&line[1..])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_three(&client).await;

    // A flush of everybody; the primary dies when a third are marked.
    let marks: Vec<Mark> = crowd
        .iter()
        .map(|user| Mark {
            user: user.clone(),
            marker: id(7),
            covers: vec![(tidings::domain::StackId::of(day), 2)],
        })
        .collect();
    let killer = tokio::spawn(kill_when(
        client.clone(),
        collection.clone(),
        doc! {"events.2": {"$exists": true}},
        third,
    ));
    store.mark(&marks).await.unwrap();
    killer.await.unwrap();

    for (user, entries) in stacks(&store, day).await {
        assert_eq!(entries.len(), 3, "{user}");
        assert!(
            matches!(&entries[2], Entry::Marker(marker) if marker.id == Some(id(7)) && marker.n == Some(2)),
            "{user}: {entries:?}"
        );
    }
    let _ = revived.kill();
    let _ = revived.wait();
}

/// Waits until all three nodes serve again.
async fn wait_for_three(client: &Client) {
    loop {
        let status = client
            .database("admin")
            .run_command(doc! {"replSetGetStatus": 1})
            .await
            .unwrap();
        let members = status.get_array("members").unwrap();
        let serving = members.iter().filter(|member| {
            let state = member
                .as_document()
                .and_then(|member| member.get_i32("state").ok());
            matches!(state, Some(1 | 2))
        });
        if serving.count() == 3 {
            return;
        }
        tokio::task::yield_now().await;
    }
}
