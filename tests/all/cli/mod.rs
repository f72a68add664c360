//! Tests of the command line. Each runs the real binary in its own folder, with an empty
//! environment, usually on SQLite.
//!
//! The tests check what scripts rely on: exit codes, JSON, and the stream of each line. They check
//! text for people only where people rely on it. Start with [`Desk`].

mod batches;
mod brands;
mod codes;
mod damage;
mod days;
mod demo;
mod digests;
mod doctor;
mod events;
mod first_steps;
mod folders;
mod help;
mod hostile;
mod imports;
mod keys;
#[cfg(unix)]
mod previews;
#[cfg(unix)]
mod private;
mod readme;
mod secrets;
#[cfg(unix)]
mod serve_demo;
mod serving;
mod simulate;
mod stories;
mod suppressions;
mod transfer;
mod trouble;
#[cfg(unix)]
mod tutorial;
mod users;

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use tempfile::TempDir;
use tidings::clock::{Clock, SystemClock};

/// A temporary working directory for commands.
struct Desk {
    folder: TempDir,
}

/// The result of a command.
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Desk {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// Creates a folder whose store has users, follows and objects.
    ///
    /// The users are ada (confirmed, weekly), ben (unconfirmed) and cem (confirmed, daily). All of
    /// them follow `artist:1`. The objects are `a1` to `a9`, `c1` to `c9` and `o1` to `o9`.
    fn with_people() -> Self {
        // Three imports take longer than most commands, so they are done once.
        static FILES: LazyLock<Vec<(OsString, Vec<u8>)>> = LazyLock::new(|| {
            let desk = Desk::new();
            desk.fill();
            let files = std::fs::read_dir(desk.path()).unwrap().map(Result::unwrap);
            files.map(|file| (file.file_name(), std::fs::read(file.path()).unwrap())).collect()
        });
        let desk = Self::new();
        for (name, content) in FILES.iter() {
            let mut options = OpenOptions::new();
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            let mut file = options.create_new(true).write(true).open(desk.path().join(name));
            file.as_mut().unwrap().write_all(content).unwrap();
        }
        desk
    }

    /// Imports the users, follows and objects of [`Self::with_people`] into the configured store.
    fn fill(&self) {
        self.write(
            "users",
            r#"{"id": "ada", "email": "ada@example.org", "confirmed": true, "loc": [-9.14, 38.72]}
               {"id": "ben", "email": "ben@example.org"}
               {"id": "cem", "email": "cem@example.org", "confirmed": true, "digest": {"cadence": "daily"}}"#,
        );
        self.write(
            "follows",
            r#"{"user": "ada", "key": "artist:1"}
               {"user": "ben", "key": "artist:1"}
               {"user": "cem", "key": "artist:1"}"#,
        );
        // Objects without titles are shown by their ids.
        let objects = (1..10)
            .flat_map(|n| ["a", "c", "o"].map(|letter| format!("{{\"id\": \"{letter}{n}\"}}\n")));
        self.write("objects", &objects.collect::<String>());
        for what in ["users", "follows", "objects"] {
            self.run(&["import", what, what]).done();
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
        command.args(arguments).current_dir(self.path()).env_clear().stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        self.command(arguments).output().unwrap().into()
    }

    /// Returns the standard output of a command that must succeed without messages.
    fn done(&self, arguments: &[&str]) -> String {
        self.run(arguments).done()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ran {
    /// Returns standard output. Panics unless the command exited with 0 and an empty stderr.
    fn done(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{}", self.out);
        self.out
    }

    /// Parses the only line of standard output as JSON.
    fn json(&self) -> Value {
        assert_eq!(self.out.lines().count(), 1, "{}{}", self.out, self.err);
        serde_json::from_str(&self.out).unwrap()
    }
}

fn now() -> DateTime<Utc> {
    SystemClock.now()
}

/// Returns the UTC date `days` days ago.
fn days_ago(days: i64) -> String {
    (now() - TimeDelta::days(days)).date_naive().to_string()
}
