//! P1 to P5 with real processes that die: `tidings worker` and `tidings digest` are killed at every named point and at random, while events
//! keep arriving, in front of a provider that keeps what it takes.
//!
//! The rule: when the dust has settled, nobody was mailed an event twice, and every event was mailed, is withdrawn, or stands in a delivery
//! that is `unknown`. The processes live in real time; whoever settles the dust turns a clock past all leases. The seed decides
//! who is killed and when, as far as the machine lets it: `TIDINGS_TEST_SEED`, and `TIDINGS_TEST_KILLS` for how often (`scripts/chaos`).

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use tidings::app::{App, mailer};
use tidings::clock::{Clock, Ids, ManualClock, SystemClock};
use tidings::config::{Config, Sources};
use tidings::domain::{
    Address, Audience, Cadence, Day, Delivery, DeliveryState, Entry, Object, ObjectId, User,
};
use tidings::services::Silent;
use tidings::services::crash::POINTS;
use tidings::services::digest::Request;
use tokio::time::{Instant, interval};

use crate::mail::provider::{Dialect, Next, Provider};
use crate::support::town::on_both_stores;
use crate::support::{Fresh, kind, user};

on_both_stores! {
    killed_at_every_named_point_nothing_is_lost_or_doubled
    killed_after_a_call_was_refused_nobody_is_in_doubt
    killed_at_random_nothing_is_lost_or_doubled
}

/// One whose calls can be made again, and one that can tell nobody anything.
const DIALECTS: [Dialect; 2] = [Dialect::Resend, Dialect::SendGrid];

async fn killed_at_every_named_point_nothing_is_lost_or_doubled(fresh: Fresh) {
    for dialect in DIALECTS {
        fresh.clear().await;
        let mut stage = Stage::set(&fresh, dialect, 1).await;
        // Neither provider is asked anything.
        let points = POINTS.iter().filter(|point| **point != "after-ask");
        for (n, point) in points.enumerate() {
            stage.a_day_passes().await;
            if point.ends_with("-recall") {
                stage.provider.then([refusal()]);
            }
            stage.digest_dies_at(point).await;
            if n % 3 == 2 {
                stage.settle(point).await;
            }
        }
        stage.settle("the last point").await;
    }
}

/// A whole call is refused, for somebody's fault.
fn refusal() -> Next {
    Next::Answer(400, Vec::new(), r#"{"name": "validation_error"}"#.into())
}

async fn killed_after_a_call_was_refused_nobody_is_in_doubt(fresh: Fresh) {
    let mut stage = Stage::set(&fresh, Dialect::SendGrid, 1).await;
    stage.a_day_passes().await;
    stage.provider.then([refusal()]);

    stage.digest_dies_at("after-recall").await;
    stage.settle("after-recall").await;

    let unknown = fresh.deliveries_in(DeliveryState::Unknown, 9).await;
    assert_eq!(unknown.unwrap(), []);
}

async fn killed_at_random_nothing_is_lost_or_doubled(fresh: Fresh) {
    let number = |name: &str, otherwise: u64| {
        let set = std::env::var(name).ok();
        set.map_or(otherwise, |set| set.parse().unwrap())
    };
    let (seed, kills) = (
        number("TIDINGS_TEST_SEED", 1),
        number("TIDINGS_TEST_KILLS", 12),
    );
    println!("TIDINGS_TEST_SEED={seed} TIDINGS_TEST_KILLS={kills}");
    for dialect in DIALECTS {
        fresh.clear().await;
        let mut stage = Stage::set(&fresh, dialect, seed).await;
        let mut left = kills.div_ceil(DIALECTS.len() as u64);
        while left > 0 {
            let act = left.min(6);
            stage.kill_at_random(act).await;
            stage
                .settle(&format!("{left} kills to go, seed {seed}"))
                .await;
            left -= act;
        }
    }
}

/// Longer than anything takes, on however slow a machine.
const LONG: Duration = Duration::from_secs(120);
const PEOPLE: usize = 40;

/// Numbers that a seed decides.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// A town whose processes die.
struct Stage<'a> {
    fresh: &'a Fresh,
    folder: tempfile::TempDir,
    dialect: Dialect,
    provider: Provider,
    config: Config,
    dice: Dice,
    /// The last day on which anything happened, in days since the first of April 2014.
    day: i64,
    /// How far ahead of the real time the dust has settled.
    ahead: TimeDelta,
    /// Whom each work has to reach, the day it happened, and whether it still applies.
    works: BTreeMap<String, (BTreeSet<String>, Day, bool)>,
}

impl<'a> Stage<'a> {
    async fn set(fresh: &'a Fresh, dialect: Dialect, seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let provider = Provider::start(dialect).await;
        let name = match dialect {
            Dialect::Resend => "resend",
            Dialect::SendGrid => "sendgrid",
            other => panic!("{other:?} is not played here"),
        };
        let file = folder.path().join("tidings.toml");
        let text = format!(
            "store = {:?}\n\
             [mail]\nfrom = \"digest@art.example\"\nprovider = {name:?}\nurl = {:?}\nkey = \"k\"\nper_call = 4\n\
             calls_per_second = 1000\ntimeout = \"5s\"\n\
             [fanout]\npage = 100\nmerge = 2\nlease = \"5s\"\n\
             [delivery]\nchunk = 10\nlease = \"10s\"\n\
             [digest]\ncadence = \"daily\"\nhour = 0\n\
             [worker]\nidle = \"10ms\"\n",
            fresh.url(),
            provider.url
        );
        std::fs::write(&file, text).unwrap();
        let config = Config::load(&Sources {
            file: Some(file),
            ..Sources::default()
        })
        .unwrap();
        let people: Vec<User> = (0..PEOPLE)
            .map(|n| User {
                email: Address::new(format!("p{n:02}@example.org")).ok(),
                confirmed: true,
                ..User::new(user(&format!("p{n:02}")))
            })
            .collect();
        assert_eq!(config.digest.schedule.cadence, Cadence::Daily);
        fresh.put_users(&people).await.unwrap();
        Self {
            fresh,
            folder,
            dialect,
            provider,
            config,
            dice: Dice(seed),
            day: 0,
            ahead: TimeDelta::zero(),
            works: BTreeMap::new(),
        }
    }

    fn midnight(&self) -> DateTime<Utc> {
        "2014-04-01T00:00:00Z".parse::<DateTime<Utc>>().unwrap() + TimeDelta::days(self.day)
    }

    /// Half an hour after the digests of the night fall due in which the day ends.
    fn digest_time(&self) -> String {
        (self.midnight() + TimeDelta::minutes(24 * 60 + 30)).to_rfc3339()
    }

    /// A process of our own on the store, as late as the dust has settled.
    fn app(&self) -> App {
        let now = SystemClock.now() + self.ahead;
        let mailer = mailer(&self.config).unwrap();
        let clock = Arc::new(ManualClock::at(now));
        let ids = Arc::new(Ids::random());
        App::assemble(self.config.clone(), self.fresh.handle(), mailer, clock, ids).unwrap()
    }

    /// A new day, on which everybody hears of something.
    async fn a_day_passes(&mut self) {
        self.day += 1;
        let everybody = (0..PEOPLE).collect();
        self.happens(everybody, true).await;
        self.something_happens().await;
    }

    /// Something of which some hear; one of eight works is withdrawn before anybody does.
    async fn something_happens(&mut self) {
        let share = 1 + self.dice.below(6);
        let some: Vec<usize> = (0..PEOPLE)
            .filter(|_| self.dice.below(share) == 0)
            .collect();
        if !some.is_empty() {
            let applies = self.dice.below(8) != 0;
            self.happens(some, applies).await;
        }
    }

    /// A work that concerns these people.
    async fn happens(&mut self, people: Vec<usize>, applies: bool) {
        let number = self.works.len();
        let work = format!("w{number}");
        let object = Object {
            title: Some(format!("Work {number}.")),
            notifiable: applies,
            ..Object::bare(work.parse().unwrap())
        };
        self.fresh.put_objects(&[object]).await.unwrap();
        let people: BTreeSet<String> = people.into_iter().map(|n| format!("p{n:02}")).collect();
        let at = self.midnight() + TimeDelta::hours(12);
        let request = tidings::services::notify::Request {
            kind: kind("ArtworkPublished"),
            objects: vec![ObjectId::stored(&work)],
            audience: Audience::users(people.iter().map(|person| user(person))).unwrap(),
            key: None,
            batch_key: None,
            at: Some(at),
        };
        self.app().notify().accept(vec![request]).await.unwrap();
        self.works.insert(work, (people, Day::of(at), applies));
    }

    /// The real binary; it dies where it is told to.
    fn start(&self, arguments: &[&str], dies_at: Option<&str>) -> Process {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .envs(dies_at.map(|point| ("TIDINGS_CRASH", point)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap());
        Process(command.spawn().unwrap())
    }

    /// A digest run that is to die there, and does.
    async fn digest_dies_at(&self, point: &str) {
        let at = self.digest_time();
        let mut dying = self.start(&["digest", "--at", &at], Some(point));
        let status = dying.ended(LONG).await.expect("it ends by itself");
        let aborted = Some(6);
        assert_eq!(
            status.signal(),
            aborted,
            "{point} was not reached: {status}"
        );
    }

    /// A worker; one of three is to die at some point by itself.
    fn start_worker(&mut self) -> Process {
        let point = POINTS[self.dice.below(POINTS.len() as u64) as usize];
        let armed = format!("{point}:{}", 1 + self.dice.below(4));
        let armed = (self.dice.below(3) == 0).then_some(armed);
        self.start(&["worker"], armed.as_deref())
    }

    /// Two workers and one digest run after the other, killed so often at any moment, while things happen.
    async fn kill_at_random(&mut self, kills: u64) {
        let mut workers = [self.start_worker(), self.start_worker()];
        let mut digest: Option<Process> = None;
        // No longer than the window lets events wait.
        let last = self.day + 5;
        for _ in 0..kills {
            if digest.is_none() {
                if self.day < last {
                    self.a_day_passes().await;
                }
                let at = self.digest_time();
                digest = Some(self.start(&["digest", "--at", &at], None));
            }
            self.something_happens().await;
            let moment = Duration::from_millis(self.dice.below(900));
            let victim = self.dice.below(4) as usize;
            if let Some(run) = &mut digest
                && let Some(status) = run.ended(moment).await
            {
                self.no_panic(status);
                digest = None;
            }
            match (victim, digest.take()) {
                (0 | 1, running) => {
                    workers[victim].kill();
                    workers[victim] = self.start_worker();
                    digest = running;
                }
                (_, Some(mut run)) => run.kill(),
                (_, None) => workers[0].kill(),
            }
        }
        drop((workers, digest));
    }

    fn no_panic(&self, status: ExitStatus) {
        let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap();
        assert_ne!(status.code(), Some(101), "{}", log());
    }

    /// All leases run out; somebody finishes what was left and mails what is pending. Then it must all add up.
    async fn settle(&mut self, when: &str) {
        self.ahead += TimeDelta::hours(1);
        self.day += 1;
        let app = self.app();
        app.fanouts().drain(&Silent).await.unwrap();
        let request = Request {
            at: Some(self.midnight() + TimeDelta::minutes(24 * 60 + 30)),
            patience: Some(TimeDelta::hours(2)),
            ..Request::default()
        };
        let report = app.digests().run(&request, &Silent).await.unwrap();
        assert_eq!(
            (report.busy, report.mails.deferred, &report.ended),
            (0, 0, &None),
            "{when}: {report:?}"
        );
        self.judge(when).await;
    }

    async fn judge(&self, when: &str) {
        let told = self.told();
        let twice: Vec<_> = told.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "{when}: told twice: {twice:?}");
        let unknown = self
            .fresh
            .deliveries_in(DeliveryState::Unknown, 100_000)
            .await
            .unwrap();
        assert!(
            self.dialect != Dialect::Resend || unknown.is_empty(),
            "{when}: a call that can be made again is never unknown: {unknown:?}"
        );
        for (work, (people, day, applies)) in &self.works {
            for person in people {
                let was_told = told.contains_key(&(person.clone(), work.clone()));
                if !applies {
                    assert!(
                        !was_told,
                        "{when}: {person} heard of {work}, which is withdrawn"
                    );
                } else if !was_told {
                    let excused = self.is_covered(person, work, *day, &unknown).await;
                    assert!(excused, "{when}: {person} never heard of {work} of {day}");
                }
            }
        }
    }

    /// Whether one of these deliveries covers the person's event.
    async fn is_covered(&self, person: &str, work: &str, day: Day, rows: &[Delivery]) -> bool {
        let entries = self.fresh.entries_of(&user(person), day).await;
        let is_it =
            |entry: &Entry| matches!(entry, Entry::Event(event) if event.o.as_str() == work);
        let Some(place) = entries.iter().position(is_it) else {
            return false;
        };
        rows.iter()
            .filter(|row| row.user.as_str() == person)
            .flat_map(|row| &row.covers)
            .any(|(stack, n)| stack.day == day && place < *n as usize)
    }

    /// Which works each person was mailed, and how often, as the provider has it.
    fn told(&self) -> BTreeMap<(String, String), usize> {
        let (mut told, mut keys) = (BTreeMap::new(), BTreeSet::new());
        let requests = self.provider.requests().into_iter();
        for request in requests.filter(|request| request.taken) {
            // A call that is made again under its key mails nothing.
            if self.dialect == Dialect::Resend
                && !keys.insert(request.header("idempotency-key").to_owned())
            {
                continue;
            }
            for (to, text) in mails(self.dialect, &request.json()) {
                let person = to.split('@').next().unwrap().to_owned();
                for work in self.works.keys() {
                    if text.contains(&format!("Work {}.", &work[1..])) {
                        *told.entry((person.clone(), work.clone())).or_default() += 1;
                    }
                }
            }
        }
        told
    }
}

/// The mails of a call: to whom, and the text.
fn mails(dialect: Dialect, body: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    match dialect {
        Dialect::SendGrid => {
            let said = text(&body["content"][0]["value"]);
            let people = body["personalizations"].as_array().unwrap().iter();
            people
                .map(|person| (text(&person["to"][0]["email"]), said.clone()))
                .collect()
        }
        _ => {
            let mails = body.as_array().unwrap().iter();
            mails
                .map(|mail| (text(&mail["to"][0]), text(&mail["text"])))
                .collect()
        }
    }
}

/// A process that does not outlive its test.
struct Process(Child);

impl Process {
    /// SIGKILL, unless it has died by itself.
    fn kill(&mut self) {
        drop(self.0.kill());
        self.0.wait().unwrap();
    }

    /// How it ended, if it does within this time.
    async fn ended(&mut self, within: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + within;
        let mut looks = interval(Duration::from_millis(5));
        loop {
            looks.tick().await;
            match self.0.try_wait().unwrap() {
                None if Instant::now() < end => {}
                status => return status,
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
