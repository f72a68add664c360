//! The town whose processes die: what happens in it, how they are started and killed, and how the
//! dust settles.
//!
//! The rule: everything happens in April 2014 and is fanned out and mailed by processes of today,
//! so what is gathered gathers by the real clock. Only whoever settles the dust has a clock that is
//! turned.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tidings::app::{App, mailer};
use tidings::clock::{Clock, Ids, ManualClock, SystemClock};
use tidings::config::{Config, Sources};
use tidings::domain::{
    Address, Audience, Cadence, ChosenKey, Day, DeliveryState, Object, ObjectId, User,
};
use tidings::engine::Silent;
use tidings::engine::crash::POINTS;
use tidings::engine::digest::Request;
use tidings::engine::ingest::notify::{self, Notify};
use tokio::time::{Instant, interval};

use super::dice::Dice;
pub use super::work::{Kind, Work};
use crate::mail::provider::{Dialect, Provider};
use crate::support::{BatchCounts, Fresh, Shorthand, context, kind, user};

/// Longer than anything takes, on however slow a machine: calls that are lost again and again are
/// looked for later each time.
pub const LONG: Duration = Duration::from_secs(600);
const PEOPLE: usize = 40;
/// Where a process is told to die.
const CRASH: &str = "TIDINGS_CRASH";
/// How many deliveries are taken up together. Whoever dies leaves up to two such chunks in hand,
/// and three die before the dust settles.
const CHUNK: usize = 5;
/// How long a batch gathers.
const WINDOW: TimeDelta = TimeDelta::seconds(1);

/// A town whose processes die.
pub struct Stage<'a> {
    pub fresh: &'a Fresh,
    folder: tempfile::TempDir,
    pub dialect: Dialect,
    pub provider: Provider,
    config: Config,
    dice: Dice,
    /// The last day on which anything happened, in days since the first of April 2014.
    day: i64,
    /// How far ahead of the real time the dust has settled.
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
            Dialect::Ses => (
                "ses",
                "access_key_id = \"AKIAIOSFODNN7EXAMPLE\"\nregion = \"eu-west-1\"\n",
                "",
            ),
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
             [types.{gathered}]\nroute = \"batch\"\nwindow = \"{}s\"\nkeep = \"last 100\"\n\
             [types.{immediate}]\nroute = \"immediate\"\n{links}",
            fresh.url(),
            provider.url,
            WINDOW.num_seconds(),
            gathered = Kind::Gathered.name(),
            immediate = Kind::Immediate.name(),
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
    fn digest_time(&self) -> DateTime<Utc> {
        self.midnight() + TimeDelta::minutes(24 * 60 + 30)
    }

    /// A process of our own on the store, and its clock.
    fn app(&self) -> (App, Arc<ManualClock>) {
        let mailer = mailer(&self.config).unwrap();
        let clock = self.clock();
        let (store, ids) = (self.fresh.handle(), Arc::new(Ids::random()));
        let app = App::assemble(self.config.clone(), store, mailer, clock.clone(), ids);
        (app.unwrap(), clock)
    }

    /// As late as the dust has settled.
    fn clock(&self) -> Arc<ManualClock> {
        Arc::new(ManualClock::at(SystemClock.now() + self.ahead))
    }

    /// A new day, on which everybody hears of something.
    pub async fn a_day_passes(&mut self) {
        self.day += 1;
        self.everybody_hears(Kind::Digest).await;
        self.something_happens(Kind::Digest).await;
        self.something_happens(Kind::Gathered).await;
    }

    async fn everybody_hears(&mut self, kind: Kind) {
        self.happens(kind, (0..PEOPLE).collect(), true, None).await;
    }

    /// Somebody is to be mailed at once, and others have something gathered; more than are taken up
    /// together. What is mailed at once is of a key of its own, as workers who died hold the
    /// accumulators of others.
    pub async fn word_gets_round(&mut self) {
        let some = || (0..CHUNK + 2).collect();
        self.happens(Kind::Gathered, some(), true, None).await;
        let key = ChosenKey::new(self.works.len().to_string()).ok();
        self.happens(Kind::Immediate, some(), true, key).await;
    }

    /// Something of which some hear; one of eight works is withdrawn before anybody does.
    async fn something_happens(&mut self, kind: Kind) {
        let share = 1 + self.dice.below(6);
        let some: Vec<usize> = (0..PEOPLE)
            .filter(|_| self.dice.below(share) == 0)
            .collect();
        if !some.is_empty() {
            let applies = self.dice.below(8) != 0;
            self.happens(kind, some, applies, None).await;
        }
    }

    /// A work that concerns these people.
    async fn happens(
        &mut self,
        told: Kind,
        people: Vec<usize>,
        applies: bool,
        batch_key: Option<ChosenKey>,
    ) {
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
        let request = notify::Request {
            kind: kind(told.name()),
            objects: vec![ObjectId::stored(&work)],
            audience: Audience::users(people.iter().map(|person| user(person))).unwrap(),
            key: None,
            batch_key,
            details: tidings::domain::Details::default(),
            at: Some(at),
        };
        let notify = Notify {
            context: context(self.fresh.handle(), Arc::new(ManualClock::at(at)), "test"),
            joint: Arc::default(),
            window_back: 0,
            brands: Default::default(),
        };
        let receipts = notify.accept(vec![request]).await.unwrap();
        let happened = Work {
            kind: told,
            people,
            fanout: receipts[0].id,
            day: Day::of(at),
            applies,
        };
        self.works.insert(work, happened);
    }

    /// The real binary; it dies where it is told to.
    pub fn start(&self, arguments: &[&str], told: &[(&str, &str)]) -> Process {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .envs(told.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap());
        Process(command.spawn().unwrap())
    }

    /// A digest run that is to die there, and does.
    pub async fn digest_dies_at(&self, point: &str) {
        let at = self.digest_time().to_rfc3339();
        self.dies_at(&["digest", "--at", &at], point).await;
    }

    /// Whether no process stands still inside a transaction, where that would stop all others.
    pub fn others_may_write(&self) -> bool {
        let Some(file) = self.fresh.url().strip_prefix("sqlite:") else {
            return true;
        };
        let connection = rusqlite::Connection::open(file).unwrap();
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        connection
            .execute_batch("BEGIN IMMEDIATE; ROLLBACK")
            .is_ok()
    }

    /// A worker that is to die there, and does.
    pub async fn worker_dies_at(&self, point: &str) {
        self.dies_at(&["worker", "--once"], point).await;
    }

    /// Everything is moved to another store, or an earlier run has.
    pub async fn moves(&self, target: &Fresh) {
        let mut run = self.start(&["move", "--to", target.url()], &[]);
        let status = run.ended(LONG).await.expect("it ends by itself");
        let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap();
        assert!(status.success(), "{status}: {}", log());
    }

    /// From now on everything happens in this store.
    pub fn goes_on_at(&mut self, store: &'a Fresh) {
        let file = self.folder.path().join("tidings.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        let (old, new) = (
            format!("{:?}", self.fresh.url()),
            format!("{:?}", store.url()),
        );
        std::fs::write(&file, text.replace(&old, &new)).unwrap();
        let sources = Sources {
            file: Some(file),
            ..Sources::default()
        };
        self.config = Config::load(&sources).unwrap();
        self.fresh = store;
    }

    /// A worker that does what is to be done.
    pub async fn worker_runs(&self) {
        let mut worker = self.start(&["worker", "--once"], &[]);
        let status = worker.ended(LONG).await.expect("it ends by itself");
        assert!(status.success(), "{status}");
    }

    /// A process that is to die there, and does.
    pub async fn dies_at(&self, arguments: &[&str], point: &str) {
        let mut dying = self.start(arguments, &[(CRASH, point)]);
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
        let armed = armed.as_deref().map(|point| (CRASH, point));
        self.start(&["worker"], armed.as_slice())
    }

    /// Two workers and one digest run after the other, killed so often at any moment, while things
    /// happen.
    pub async fn kill_at_random(&mut self, kills: u64) {
        let mut workers = [self.start_worker(), self.start_worker()];
        let mut digest: Option<Process> = None;
        // No longer than the window lets events wait.
        let last = self.day + 5;
        for _ in 0..kills {
            if digest.is_none() {
                if self.day < last {
                    self.a_day_passes().await;
                }
                let at = self.digest_time().to_rfc3339();
                digest = Some(self.start(&["digest", "--at", &at], &[]));
            }
            let kind = [Kind::Digest, Kind::Gathered, Kind::Immediate][self.dice.below(3) as usize];
            self.something_happens(kind).await;
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

    /// A digest run of the last day.
    pub fn digest(&self, told: &[(&str, &str)]) -> Process {
        let at = self.digest_time().to_rfc3339();
        self.start(&["digest", "--at", &at], told)
    }

    /// Until everything that was accepted is fanned out and every mail is settled, by whoever
    /// works.
    pub async fn nothing_waits(&self, when: &str) {
        let end = Instant::now() + LONG;
        let mut looks = interval(Duration::from_millis(50));
        loop {
            looks.tick().await;
            let fanned_out = self.fresh.backlog().await.unwrap().pending == 0;
            let gathered = self.fresh.batch_counts().await.unwrap() == BatchCounts::default();
            let counts = self
                .fresh
                .delivery_counts(&DeliveryState::ALL)
                .await
                .unwrap();
            let waits = |state| matches!(state, DeliveryState::Pending | DeliveryState::Sending);
            let mut waiting = counts.iter().filter(|(state, n)| waits(*state) && *n > 0);
            if fanned_out && gathered && waiting.next().is_none() {
                return;
            }
            assert!(Instant::now() < end, "{when}: stuck: {counts:?}");
        }
    }

    pub fn no_panic(&self, status: ExitStatus) {
        let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap();
        assert_ne!(status.code(), Some(101), "{}", log());
    }

    /// All leases and windows run out; somebody finishes what was left and mails what is pending.
    /// Then it must all add up.
    pub async fn settle(&mut self, when: &str) {
        self.ahead += TimeDelta::hours(1);
        let (app, clock) = self.app();
        app.fanouts().drain(&Silent).await.unwrap();
        clock.advance(WINDOW);
        self.ahead += WINDOW;
        app.closer().drain(&Silent).await.unwrap();
        self.day += 1;
        let request = Request {
            at: Some(self.digest_time()),
            patience: Some(TimeDelta::hours(2)),
            ..Request::default()
        };
        let report = app.digests().run(&request, &Silent).await.unwrap();
        assert_eq!(
            (report.due.busy, report.mails.deferred, &report.ended),
            (0, 0, &None),
            "{when}: {report:?}"
        );
        self.judge(when).await;
    }
}

/// A process that does not outlive its test.
pub struct Process(Child);

impl Process {
    /// SIGKILL, unless it has died by itself.
    fn kill(&mut self) {
        drop(self.0.kill());
        self.0.wait().unwrap();
    }

    /// Sends it a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let (signal, id) = (format!("-{name}"), self.0.id().to_string());
        let sent = Command::new("kill").args([&signal, &id]).status();
        assert!(sent.unwrap().success(), "{name}");
    }

    /// Waits until it has stopped itself.
    pub async fn stands_still(&self, within: Duration) {
        let end = Instant::now() + within;
        let mut looks = interval(Duration::from_millis(5));
        let stat = format!("/proc/{}/stat", self.0.id());
        loop {
            looks.tick().await;
            let stat = std::fs::read_to_string(&stat).unwrap();
            if stat
                .rsplit(')')
                .next()
                .unwrap()
                .trim_start()
                .starts_with('T')
            {
                return;
            }
            assert!(Instant::now() < end, "it does not stand still: {stat}");
        }
    }

    /// How it ended, if it does within this time.
    pub async fn ended(&mut self, within: Duration) -> Option<ExitStatus> {
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
