//! Simulates users and events, starts and kills processes, and finishes the remaining work.
//!
//! Events have times in April 2014, but processes run on the real clock, so batches collect events
//! in real time. Only [`Stage::settle`] uses a manual clock, which it sets ahead.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tidings::app::App;
use tidings::clock::{Clock, ManualClock, SystemClock};
use tidings::config::{Config, Sources};
use tidings::domain::{
    Address, Audience, Cadence, ChosenKey, Day, DeliveryState, Object, ObjectId, User,
};
use tidings::engine::NoProgress;
use tidings::engine::crash::EMAIL_POINTS;
use tidings::engine::delivery::brand_identities::new_mailer;
use tidings::engine::digest::DigestRequest;
use tidings::engine::ingest::{self, EventService};
use tidings::ids::Ids;
use tokio::time::{Instant, interval};

pub use super::work::{Kind, Work};
use crate::mail::provider::{Dialect, Provider};
use crate::support::{BatchCounts, Dice, Fresh, Shorthand, context, kind, user};

/// A generous timeout for slow machines. Lost calls are queried at growing intervals.
pub const LONG: Duration = Duration::from_secs(600);
pub const PEOPLE: usize = 40;
/// The environment variable that names the point at which a process aborts.
const CRASH: &str = "TIDINGS_CRASH";
/// The number of deliveries that a process claims at once. A dead process leaves up to two such
/// chunks leased, and three processes die before [`Stage::settle`].
const CHUNK: usize = 5;
/// How long a batch collects events.
pub const WINDOW: TimeDelta = TimeDelta::seconds(1);

/// Simulated users and events, and the configuration of the processes.
pub struct Stage<'a> {
    pub fresh: &'a Fresh,
    pub folder: tempfile::TempDir,
    pub dialect: Dialect,
    pub provider: Provider,
    config: Config,
    dice: Dice,
    /// The last day with events, in days since 1 April 2014.
    day: i64,
    /// How far the clock of [`Stage::settle`] is ahead of real time.
    ahead: TimeDelta,
    pub works: BTreeMap<String, Work>,
}

impl<'a> Stage<'a> {
    pub async fn set(fresh: &'a Fresh, dialect: Dialect, seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let provider = Provider::start(dialect).await;
        let (name, more, links) = match dialect {
            Dialect::Resend => ("resend", "", ""),
            Dialect::SendGrid => ("sendgrid", "", ""),
            Dialect::Postmark => ("postmark", "", ""),
            Dialect::Ses => {
                ("ses", "access_key_id = \"AKIAIOSFODNN7EXAMPLE\"\nregion = \"eu-west-1\"\n", "")
            }
            Dialect::Mailgun => (
                "mailgun",
                "domain = \"mg.art.example\"\n",
                "[server]\npublic_url = \"https://art.example\"\n",
            ),
        };
        let file = folder.path().join("tidings.toml");
        let text = format!(
            "store = {:?}\n\
             [mail]\nfrom = \"digest@art.example\"\nprovider = {name:?}\nurl = {:?}\nkey = \"k\"\nper_call = 4\n\
             calls_per_second = 1000\ntimeout = \"5s\"\n{more}\
             [fanout]\npage = 100\nmerge = 2\nlease = \"5s\"\n\
             [delivery]\nchunk = {CHUNK}\nlease = \"10s\"\nretry_after = \"1s\"\nask_after = \"1s\"\nask_until = \"1s\"\n\
             [digest]\ncadence = \"daily\"\nhour = 0\n\
             [worker]\nidle = \"50ms\"\n\
             [types.{batched}]\nroute = \"batch\"\nwindow = \"{}s\"\nkeep = \"last 100\"\n\
             [types.{immediate}]\nroute = \"immediate\"\n{links}",
            fresh.url(),
            provider.url,
            WINDOW.num_seconds(),
            batched = Kind::Batch.name(),
            immediate = Kind::Immediate.name(),
        );
        std::fs::write(&file, text).unwrap();
        let config = Config::load(&Sources { file: Some(file), ..Sources::default() }).unwrap();
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

    /// Returns a time half an hour after the digests of the current day fall due, in the next
    /// night.
    fn digest_time(&self) -> DateTime<Utc> {
        self.midnight() + TimeDelta::minutes(24 * 60 + 30)
    }

    /// Creates an application in this process, with a manual clock.
    pub fn app(&self) -> (App, Arc<ManualClock>) {
        let mailer = new_mailer(&self.config).unwrap();
        let clock = self.clock();
        let (store, ids) = (self.fresh.handle(), Arc::new(Ids::random()));
        let app = App::assemble(self.config.clone(), store, mailer, clock.clone(), ids);
        (app.unwrap(), clock)
    }

    /// A clock that is as far ahead as the last [`Stage::settle`].
    fn clock(&self) -> Arc<ManualClock> {
        Arc::new(ManualClock::at(SystemClock.now() + self.ahead))
    }

    /// Starts a new day with an event for all users, and further events for random users.
    pub async fn add_day(&mut self) {
        self.day += 1;
        self.add_event_for_all(Kind::Digest).await;
        self.add_random_event(Kind::Digest).await;
        self.add_random_event(Kind::Batch).await;
    }

    async fn add_event_for_all(&mut self, kind: Kind) {
        self.add_event(kind, (0..PEOPLE).collect(), true, None).await;
    }

    /// Adds a batched event and an immediate one for more users than one claim takes. The immediate
    /// event has its own batch key, because dead workers may hold leases on other accumulators.
    pub async fn add_batch_events(&mut self) {
        let some = || (0..CHUNK + 2).collect();
        self.add_event(Kind::Batch, some(), true, None).await;
        let key = ChosenKey::new(self.works.len().to_string()).ok();
        self.add_event(Kind::Immediate, some(), true, key).await;
    }

    /// Adds an event for random users. One of eight works is withdrawn in advance.
    async fn add_random_event(&mut self, kind: Kind) {
        let share = 1 + self.dice.below(6);
        let some: Vec<usize> = (0..PEOPLE).filter(|_| self.dice.below(share) == 0).collect();
        if !some.is_empty() {
            let applies = self.dice.below(8) != 0;
            self.add_event(kind, some, applies, None).await;
        }
    }

    /// Adds an event about a new work for these users.
    pub async fn add_event(
        &mut self,
        route: Kind,
        people: Vec<usize>,
        applies: bool,
        batch_key: Option<ChosenKey>,
    ) {
        let number = self.works.len();
        let work = format!("w{number}");
        let object = Object {
            title: Some(format!("Work {number}.")),
            notifiable: applies,
            ..Object::without_data(work.parse().unwrap())
        };
        self.fresh.put_objects(&[object]).await.unwrap();
        let people: BTreeSet<String> = people.into_iter().map(|n| format!("p{n:02}")).collect();
        let at = self.midnight() + TimeDelta::hours(12);
        let request = ingest::NewEvent {
            kind: kind(route.name()),
            objects: vec![ObjectId::stored(&work)],
            audience: Audience::users(people.iter().map(|person| user(person))).unwrap(),
            key: None,
            batch_key,
            details: tidings::domain::Details::default(),
            at: Some(at),
        };
        let notify = EventService {
            context: context(self.fresh.handle(), Arc::new(ManualClock::at(at)), "test"),
            coalescer: Arc::default(),
        };
        let receipts = notify.accept(vec![request]).await.unwrap();
        let record =
            Work { kind: route, people, fanout: receipts[0].id, day: Day::of(at), applies };
        self.works.insert(work, record);
    }

    /// Starts the real binary with this environment.
    pub fn start(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Process {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"))
            .unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        Process(command.spawn().unwrap())
    }

    /// Starts a digest run that aborts at this point.
    pub async fn digest_dies_at(&self, point: &str) {
        let at = self.digest_time().to_rfc3339();
        self.dies_at(&["digest", "--at", &at], point).await;
    }

    /// Returns whether other processes can write. On SQLite, they cannot if a process is suspended
    /// inside a transaction.
    pub fn can_others_write(&self) -> bool {
        let Some(file) = self.fresh.url().strip_prefix("sqlite:") else {
            return true;
        };
        let connection = rusqlite::Connection::open(file).unwrap();
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok()
    }

    /// Starts a worker that aborts at this point.
    pub async fn worker_dies_at(&self, point: &str) {
        self.dies_at(&["worker", "--once"], point).await;
    }

    /// Runs a process to its successful end.
    pub async fn succeeds(&self, arguments: &[&str]) {
        let mut run = self.start(arguments, &[]);
        let status = run.ended(LONG).await.expect("it ends by itself");
        assert!(status.success(), "{status}: {}", self.log());
    }

    /// Returns what the started processes have printed.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Kills a process after this time, unless it succeeds before.
    pub async fn killed_after(&self, time: Duration, arguments: &[&str]) {
        let mut run = self.start(arguments, &[]);
        if let Some(status) = run.ended(time).await {
            assert!(status.success(), "{status}: {}", self.log());
        }
    }

    /// Whether a file exists in the folder of the processes.
    pub fn holds(&self, file: &str) -> bool {
        self.folder.path().join(file).exists()
    }

    /// Uses this store from now on.
    pub fn use_store(&mut self, store: &'a Fresh) {
        let file = self.folder.path().join("tidings.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        let (old, new) = (format!("{:?}", self.fresh.url()), format!("{:?}", store.url()));
        std::fs::write(&file, text.replace(&old, &new)).unwrap();
        let sources = Sources { file: Some(file), ..Sources::default() };
        self.config = Config::load(&sources).unwrap();
        self.fresh = store;
    }

    /// Runs a worker until no work is left.
    pub async fn run_worker(&self) {
        let mut worker = self.start(&["worker", "--once"], &[]);
        let status = worker.ended(LONG).await.expect("it ends by itself");
        assert!(status.success(), "{status}");
    }

    /// Starts a process that aborts at this point, and waits for its end.
    pub async fn dies_at(&self, arguments: &[&str], point: &str) {
        let mut dying = self.start(arguments, &[(CRASH, point)]);
        let status = dying.ended(LONG).await.expect("it ends by itself");
        let aborted = Some(6);
        assert_eq!(status.signal(), aborted, "{point} was not reached: {status}");
    }

    /// Starts a worker. One of three workers aborts at a random point.
    fn start_worker(&mut self) -> Process {
        let point = EMAIL_POINTS[self.dice.below(EMAIL_POINTS.len() as u64) as usize];
        let armed = format!("{point}:{}", 1 + self.dice.below(4));
        let armed = (self.dice.below(3) == 0).then_some(armed);
        let armed = armed.as_deref().map(|point| (CRASH, point));
        self.start(&["worker"], armed.as_slice())
    }

    /// Kills one of two workers or a digest run at random moments, `kills` times, while events
    /// arrive.
    pub async fn kill_at_random(&mut self, kills: u64) {
        let mut workers = [self.start_worker(), self.start_worker()];
        let mut digest: Option<Process> = None;
        // The events must stay inside the window.
        let last = self.day + 5;
        for _ in 0..kills {
            if digest.is_none() {
                if self.day < last {
                    self.add_day().await;
                }
                let at = self.digest_time().to_rfc3339();
                digest = Some(self.start(&["digest", "--at", &at], &[]));
            }
            let kind = [Kind::Digest, Kind::Batch, Kind::Immediate][self.dice.below(3) as usize];
            self.add_random_event(kind).await;
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

    /// Starts a digest run for the current day.
    pub fn digest(&self, environment: &[(&str, &str)]) -> Process {
        let at = self.digest_time().to_rfc3339();
        self.start(&["digest", "--at", &at], environment)
    }

    /// Waits until any process has fanned out all events and settled all batches and deliveries.
    pub async fn wait_until_settled(&self, when: &str) {
        let end = Instant::now() + LONG;
        let mut ticks = interval(Duration::from_millis(50));
        loop {
            ticks.tick().await;
            let fanned_out = self.fresh.backlog().await.pending == 0;
            let batched = self.fresh.batch_counts().await == BatchCounts::default();
            let counts = self.fresh.delivery_counts(&DeliveryState::ALL).await;
            let waits = |state| matches!(state, DeliveryState::Pending | DeliveryState::Sending);
            let mut waiting = counts.iter().filter(|(state, n)| waits(*state) && *n > 0);
            if fanned_out && batched && waiting.next().is_none() {
                return;
            }
            assert!(Instant::now() < end, "{when}: stuck: {counts:?}");
        }
    }

    pub fn no_panic(&self, status: ExitStatus) {
        let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap();
        assert_ne!(status.code(), Some(101), "{}", log());
    }

    /// Lets all leases and windows expire, finishes the work in this process, and checks the
    /// result.
    pub async fn settle(&mut self, when: &str) {
        self.ahead += TimeDelta::hours(1);
        let (app, clock) = self.app();
        app.fanouts().drain(&NoProgress).await.unwrap();
        clock.advance(WINDOW);
        self.ahead += WINDOW;
        app.batches().drain(&NoProgress).await.unwrap();
        self.day += 1;
        let request = DigestRequest {
            at: Some(self.digest_time()),
            patience: Some(TimeDelta::hours(2)),
            ..DigestRequest::default()
        };
        let report = app.digests().run(&request, &NoProgress).await.unwrap();
        assert_eq!(
            (report.due.busy, report.emails.deferred, &report.ended),
            (0, 0, &None),
            "{when}: {report:?}"
        );
        self.assert_consistent(when).await;
    }
}

/// A process that is killed when the test ends.
pub struct Process(Child);

impl Process {
    /// Sends SIGKILL, unless the process has already ended.
    fn kill(&mut self) {
        drop(self.0.kill());
        self.0.wait().unwrap();
    }

    /// Sends a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let (signal, id) = (format!("-{name}"), self.0.id().to_string());
        let sent = Command::new("kill").args([&signal, &id]).status();
        assert!(sent.unwrap().success(), "{name}");
    }

    /// Waits until the process has suspended itself.
    pub async fn wait_until_stopped(&self, within: Duration) {
        let end = Instant::now() + within;
        let mut ticks = interval(Duration::from_millis(5));
        let stat = format!("/proc/{}/stat", self.0.id());
        loop {
            ticks.tick().await;
            let stat = std::fs::read_to_string(&stat).unwrap();
            if stat.rsplit(')').next().unwrap().trim_start().starts_with('T') {
                return;
            }
            assert!(Instant::now() < end, "it does not stand still: {stat}");
        }
    }

    /// Returns the exit status if the process ends within this time.
    pub async fn ended(&mut self, within: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + within;
        let mut ticks = interval(Duration::from_millis(5));
        loop {
            ticks.tick().await;
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
