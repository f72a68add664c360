//! SIGTERM while 64 emails are in flight at a provider that does not answer yet.
//!
//! The processes start no further call. They wait for answers within `server.grace`, release their
//! leases and exit with 0. Only calls that outlast the grace have an unknown outcome (P2, P5).

use std::collections::BTreeSet;
use std::iter::repeat_n;
use std::time::Duration;

use mail_parser::MessageParser;
use tidings::domain::{ChosenKey, DeliveryState};
use tidings::email::{PROVIDERS, Resolution};
use tidings::engine::NoProgress;
use tokio::net::UnixDatagram;
use tokio::time::{Instant, interval};

use super::stage::{Kind, LONG, PEOPLE, Process, Stage, WINDOW};
use crate::mail::provider::{Dialect, Next};
use crate::mail::server::{Say, Server};
use crate::mail::{ALL, mailer};
use crate::support::town::mostly_on_sqlite;
use crate::support::{Fresh, Shorthand, assert_contains};

mostly_on_sqlite! {
    calls_in_flight_are_finished_and_no_others_start
    only_calls_that_outlast_the_grace_are_in_doubt
    a_digest_run_ends_with_its_grace_reports_and_releases_its_leases
    a_worker_round_ends_with_its_grace_reports_and_releases_its_leases
}

/// Several processes, so that each soon has its share in flight: calls start within a second after
/// the checks of their emails.
const PROCESSES: usize = 4;
/// The calls of a process at a time, by default.
const IN_FLIGHT: usize = 16;
/// The calls of a process that are answered at once. Calls run one at a time until the provider has
/// answered. The two loops of a process that send make at most three such calls.
const ANSWERED: usize = 3;
/// The calls of a process before SIGTERM.
const CALLS: usize = ANSWERED + IN_FLIGHT;
/// The number of emails to each user.
const EVENTS: usize = 3;
const EMAILS: usize = EVENTS * PEOPLE;
/// A grace that is enough for the calls in flight, also on slow machines.
const AMPLE: &str = "4m";
/// A grace that ends before the calls in flight.
const BRIEF: &str = "1s";
/// A process ends within this time after its last call or its [`BRIEF`] grace. It is shorter than
/// an [`AMPLE`] grace and `mail.timeout`.
const SOON: Duration = Duration::from_secs(60);

/// Returns the options of all processes, as variables.
fn variables(grace: &str) -> Vec<(&str, &str)> {
    vec![
        ("TIDINGS_SERVER_GRACE", grace),
        ("TIDINGS_MAIL_TIMEOUT", "5m"),
        ("TIDINGS_MAIL_PER_CALL", "1"),
        ("TIDINGS_DELIVERY_LEASE", "1h"),
        ("TIDINGS_DELIVERY_CHUNK", "20"),
    ]
}

async fn calls_in_flight_are_finished_and_no_others_start(fresh: Fresh) {
    for dialect in dialects() {
        let doubtful = stop_and_finish(&fresh, dialect, AMPLE).await;
        assert_eq!(doubtful, 0, "{dialect:?}");
    }
}

async fn only_calls_that_outlast_the_grace_are_in_doubt(fresh: Fresh) {
    for dialect in dialects() {
        let doubtful = stop_and_finish(&fresh, dialect, BRIEF).await;
        // All other providers accept a repeated call, or can be asked.
        let is_final = dialect.is_none_or(|dialect| {
            let mailer = mailer(dialect, "http://127.0.0.1:1", LONG);
            mailer.resolution() == Resolution::Impossible
        });
        let expected = if is_final { PROCESSES * IN_FLIGHT } else { 0 };
        assert_eq!(doubtful, expected, "{dialect:?}");
    }
}

async fn a_digest_run_ends_with_its_grace_reports_and_releases_its_leases(fresh: Fresh) {
    let mut stage = Stage::set(&fresh, Dialect::Ses, 1).await;
    stage.add_day().await;
    stage.provider.then([Next::Hold]);

    assert_cut_off(&stage, stage.digest(&variables(BRIEF))).await;

    let recorded = stage.app().0.activity().digests().await.unwrap();
    assert!(recorded.is_some(), "status shows the run");
}

async fn a_worker_round_ends_with_its_grace_reports_and_releases_its_leases(fresh: Fresh) {
    let mut stage = Stage::set(&fresh, Dialect::Ses, 1).await;
    prepare(&mut stage).await;
    stage.provider.then([Next::Hold]);

    assert_cut_off(&stage, stage.start(&["worker", "--once"], &variables(BRIEF))).await;

    assert_contains!(stage.log(), "worker: emails: ");
}

/// Stops a run whose first call is not answered, and checks what it reports and leaves.
async fn assert_cut_off(stage: &Stage<'_>, mut run: Process) {
    let receiver = Receiver { stage, server: None };
    receiver.wait_for(1, "cut off").await;

    run.signal("TERM");
    let ended = run.ended(SOON).await.expect("it ends");

    let log = stage.log();
    assert_eq!(ended.code(), Some(3), "{log}");
    assert_contains!(log, "not settled yet");
    assert_contains!(log, "stopped before everything was done");
    let [sent, _, sending, unknown] = counts(stage.fresh).await;
    assert_eq!((sent, sending, unknown), (0, 1, 0));
    assert_unleased(stage.fresh, "cut off").await;
}

/// Returns all providers with an API, and `None` for SMTP.
fn dialects() -> Vec<Option<Dialect>> {
    let known = |name: &str| ALL.into_iter().find(|dialect| dialect.name() == name);
    let dialects = PROVIDERS.iter().map(|provider| {
        let dialect = known(provider.name);
        assert!(dialect.is_some(), "no test speaks as {}", provider.name);
        dialect
    });
    dialects.chain([None]).collect()
}

/// Stops processes with 64 emails in flight, and lets a worker finish the rest. The provider
/// answers the calls in flight after SIGTERM, unless the grace is [`BRIEF`]. Returns the number of
/// emails whose outcome stays unknown.
async fn stop_and_finish(fresh: &Fresh, dialect: Option<Dialect>, grace: &str) -> usize {
    let (when, are_answered) = (format!("{dialect:?}"), grace == AMPLE);
    fresh.clear().await;
    let mut stage = Stage::set(fresh, dialect.unwrap_or(Dialect::SendGrid), 1).await;
    prepare(&mut stage).await;
    assert_eq!(counts(fresh).await, [0, EMAILS, 0, 0], "{when}");
    let receiver = Receiver {
        stage: &stage,
        server: match dialect {
            Some(_) => None,
            None => Some(Server::start().await),
        },
    };
    let port = receiver.server.as_ref().map(|server| server.port);
    let port = port.map(|port| port.to_string());
    let mut variables = variables(grace);
    if let Some(port) = port.as_deref() {
        variables.extend([
            ("TIDINGS_MAIL_PROVIDER", "smtp"),
            ("TIDINGS_MAIL_SMTP_HOST", "127.0.0.1"),
            ("TIDINGS_MAIL_SMTP_PORT", port),
            ("TIDINGS_MAIL_SMTP_TLS", "none"),
        ]);
    }

    let mut processes: Vec<(Process, UnixDatagram)> = Vec::new();
    for n in 0..PROCESSES {
        receiver.hold();
        let path = stage.folder.path().join(format!("notify-{n}"));
        let socket = UnixDatagram::bind(&path).unwrap();
        let arguments: &[&str] = match n {
            0 => &["serve", "--listen", "127.0.0.1:0"],
            _ => &["worker"],
        };
        let notify = [("NOTIFY_SOCKET", path.to_str().unwrap())];
        let process = stage.start(arguments, &[&variables[..], &notify].concat());
        processes.push((process, socket));
        receiver.wait_for(CALLS * (n + 1), &when).await;
    }
    for (process, _) in &processes {
        process.signal("TERM");
    }
    for (_, socket) in &processes {
        wait_until_stopping(socket).await;
    }
    if are_answered {
        receiver.release();
    }
    for (process, _) in &mut processes {
        let ended = process.ended(SOON).await;
        let code = ended.map(|status| status.code());
        assert_eq!(code, Some(Some(0)), "{when}");
    }

    let (answered, held) = (PROCESSES * ANSWERED, PROCESSES * IN_FLIGHT);
    let pending = EMAILS - answered - held;
    let expected = match are_answered {
        true => [answered + held, pending, 0, 0],
        false => [answered, pending, held, 0],
    };
    assert_eq!(counts(fresh).await, expected, "{when}");
    assert_eq!(receiver.received().len(), answered + held, "{when}");
    assert_unleased(fresh, &when).await;

    let mut worker = stage.start(&["worker"], &variables);
    stage.wait_until_settled(&when).await;
    worker.signal("TERM");
    let ended = worker.ended(SOON).await.expect("it ends");
    assert_eq!(ended.code(), Some(0), "{when}");
    let received = receiver.received();
    let distinct: BTreeSet<&String> = received.iter().collect();
    assert_eq!((received.len(), distinct.len()), (EMAILS, EMAILS), "{when}");
    let [sent, pending, sending, doubtful] = counts(fresh).await;
    assert_eq!((sent + doubtful, pending, sending), (EMAILS, 0, 0), "{when}");
    doubtful
}

/// Adds the events, fans them out, and ends their batches, so that all emails are pending.
async fn prepare(stage: &mut Stage<'_>) {
    for n in 0..EVENTS {
        let key = ChosenKey::new(n.to_string()).ok();
        let people = (0..PEOPLE).collect();
        stage.add_event(Kind::Immediate, people, true, key).await;
    }
    let (app, clock) = stage.app();
    app.fanouts().drain(&NoProgress).await.unwrap();
    clock.advance(WINDOW);
    app.batches().drain(&NoProgress).await.unwrap();
}

/// Returns the numbers of sent, pending, sending and unknown deliveries.
async fn counts(fresh: &Fresh) -> [usize; 4] {
    let states = [
        DeliveryState::Sent,
        DeliveryState::Pending,
        DeliveryState::Sending,
        DeliveryState::Unknown,
    ];
    let counts = fresh.delivery_counts(&states).await.into_iter();
    let counts: Vec<usize> = counts.map(|(_, count)| count as usize).collect();
    counts.try_into().unwrap()
}

async fn assert_unleased(fresh: &Fresh, when: &str) {
    for state in [DeliveryState::Pending, DeliveryState::Sending] {
        let rows = fresh.deliveries_in(state, EMAILS).await;
        let leased = rows.iter().find(|row| row.lease.is_some());
        assert!(leased.is_none(), "{when}: {leased:?}");
    }
}

/// Waits until the process reports that it stops. From then on it starts no call.
async fn wait_until_stopping(socket: &UnixDatagram) {
    let mut message = [0; 64];
    loop {
        let length = socket.recv(&mut message).await.unwrap();
        if message[..length].starts_with(b"STOPPING=1") {
            return;
        }
    }
}

/// Receives the emails: the API of the stage, or an SMTP server.
struct Receiver<'a> {
    stage: &'a Stage<'a>,
    server: Option<Server>,
}

impl Receiver<'_> {
    /// Answers the next [`ANSWERED`] calls, and holds the [`IN_FLIGHT`] calls after them.
    fn hold(&self) {
        match &self.server {
            Some(server) => {
                let replies = repeat_n(Say::Take, ANSWERED);
                let replies = replies.chain(repeat_n(Say::Hold, IN_FLIGHT));
                replies.for_each(|reply| server.then(".", reply));
            }
            None => {
                let next = repeat_n(Next::Take, ANSWERED);
                let next = next.chain(repeat_n(Next::Hold, IN_FLIGHT));
                self.stage.provider.then(next);
            }
        }
    }

    /// Answers the calls that it holds.
    fn release(&self) {
        match &self.server {
            Some(server) => server.release(),
            None => self.stage.provider.release(),
        }
    }

    /// Returns an id of each accepted email, answered or not.
    fn received(&self) -> Vec<String> {
        let id = |email: &String| {
            let email = MessageParser::default().parse(email.as_bytes()).unwrap();
            email.message_id().unwrap().to_owned()
        };
        match &self.server {
            Some(server) => server.emails().iter().map(id).collect(),
            None => {
                let emails = self.stage.provider.emails().into_iter();
                emails.map(|email| email.delivery).collect()
            }
        }
    }

    /// Waits until it has this number of emails.
    async fn wait_for(&self, count: usize, when: &str) {
        let end = Instant::now() + LONG;
        let mut ticks = interval(Duration::from_millis(10));
        loop {
            ticks.tick().await;
            let received = self.received().len();
            if received >= count {
                return;
            }
            assert!(Instant::now() < end, "{when}: {received} of {count} emails");
        }
    }
}
