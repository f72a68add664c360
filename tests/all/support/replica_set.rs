//! A replica set of three real servers, for tests that change the primary. Each test starts its
//! own, which ends with the test.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use bson::doc;
use mongodb::Client;
use mongodb::options::{ClientOptions, ReadPreference, SelectionCriteria};

/// Three servers of one test.
pub struct ReplicaSet {
    supervisor: Child,
    url: String,
}

impl ReplicaSet {
    /// Starts three nodes. They end when the value is dropped.
    pub fn start() -> Self {
        let mut supervisor = Command::new("scripts/with-mongo")
            .args(["bash", "-c", "echo \"$TIDINGS_TEST_MONGO\"; exec cat"])
            .env_remove("TIDINGS_TEST_MONGO")
            .env("TIDINGS_MONGO_NODES", "3")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("scripts/with-mongo can be run from the root of the repository");
        let mut url = String::new();
        BufReader::new(supervisor.stdout.take().unwrap()).read_line(&mut url).unwrap();
        assert!(url.starts_with("mongodb://"), "no replica set could be started: {url:?}");
        Self { supervisor, url: url.trim().replacen("/?", "/failover?", 1) }
    }

    /// The connection string with this database.
    pub fn url(&self, database: &str) -> String {
        self.url.replacen("/failover?", &format!("/{database}?"), 1)
    }

    /// A client of one server, in any state of that server.
    pub async fn only(&self, host: &str) -> Client {
        let url = format!("mongodb://{host}/?directConnection=true");
        Client::with_uri_str(url).await.unwrap()
    }

    /// Returns a server that is not the primary.
    pub async fn secondary(&self) -> String {
        let admin = self.client().await.database("admin");
        let hello = admin.run_command(doc! {"hello": 1}).await.unwrap();
        let primary = hello.get_str("primary").unwrap();
        let hosts = hello.get_array("hosts").unwrap().iter();
        let other = hosts.filter_map(|host| host.as_str()).find(|host| *host != primary);
        other.unwrap().to_owned()
    }

    /// Freezes the snapshot from which this server answers majority reads, or unfreezes it.
    pub async fn freeze(&self, host: &str, how: Freeze) {
        let mode = match how {
            Freeze::On => "alwaysOn",
            Freeze::Off => "off",
        };
        let point = doc! {"configureFailPoint": "disableSnapshotting", "mode": mode};
        let admin = self.only(host).await.database("admin");
        admin.run_command(point).await.unwrap();
    }

    /// Waits until this server's majority snapshot contains all earlier writes.
    pub async fn knows_all(&self, host: &str) {
        let database = self.client().await.database("sentinel");
        let marks = database.collection::<bson::Document>("marks");
        let mark = doc! {"_id": bson::oid::ObjectId::new()};
        marks.insert_one(mark.clone()).await.unwrap();
        let there = self.only(host).await.database("sentinel");
        let there = there.collection::<bson::Document>("marks");
        loop {
            let find = there.find_one(mark.clone());
            let majority = find.read_concern(mongodb::options::ReadConcern::majority());
            if majority.await.unwrap().is_some() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Makes this server the primary.
    pub async fn step_up(&self, host: &str) {
        let admin = self.only(host).await.database("admin");
        loop {
            match admin.run_command(doc! {"replSetStepUp": 1}).await {
                Ok(_) => break,
                // The other members may not be ready for another election yet.
                Err(error) if failed_election(&error) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
        let leads = || async {
            let hello = admin.run_command(doc! {"hello": 1}).await.unwrap();
            hello.get_bool("isWritablePrimary").unwrap()
        };
        while !leads().await {
            tokio::task::yield_now().await;
        }
    }

    /// A client that always uses the current primary.
    pub async fn client(&self) -> Client {
        let mut options = ClientOptions::parse(&self.url).await.unwrap();
        options.selection_criteria =
            Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
        Client::with_options(options).unwrap()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freeze {
    On,
    Off,
}

impl Drop for ReplicaSet {
    fn drop(&mut self) {
        // Closing its standard input ends the command, which stops the servers.
        drop(self.supervisor.stdin.take());
        let _ = self.supervisor.wait();
    }
}

/// Returns the primary's process id, and the command line that restarts it.
pub async fn primary(client: &Client) -> (i64, Vec<String>) {
    let status = client.database("admin").run_command(doc! {"serverStatus": 1}).await.unwrap();
    let pid = status.get_i64("pid").unwrap();
    let line =
        std::fs::read(format!("/proc/{pid}/cmdline")).expect("the servers run on this machine");
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    (pid, words.map(|word| String::from_utf8(word.to_vec()).unwrap()).collect())
}

/// Waits until all three nodes are a primary or secondary.
pub async fn wait_for_three(client: &Client) {
    loop {
        let status =
            client.database("admin").run_command(doc! {"replSetGetStatus": 1}).await.unwrap();
        let members = status.get_array("members").unwrap();
        let serving = members.iter().filter(|member| {
            let state = member.as_document().and_then(|member| member.get_i32("state").ok());
            matches!(state, Some(1 | 2))
        });
        if serving.count() == 3 {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Kills the primary. Returns the command line that restarts it.
pub async fn kill_primary(client: &Client) -> Vec<String> {
    let (pid, line) = primary(client).await;
    let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.unwrap().success());
    line
}

fn failed_election(error: &mongodb::error::Error) -> bool {
    const COMMAND_FAILED: i32 = 125;
    let kind = error.kind.as_ref();
    matches!(kind, mongodb::error::ErrorKind::Command(why) if why.code == COMMAND_FAILED)
}
