//! `tidings worker`: fans out events, closes batches, and sends emails when they are due.
//!
//! On SIGTERM and Ctrl-C, it finishes its current work within `server.grace` and releases its
//! leases of fan-outs and emails. Another worker can then continue them at once.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use clap::Args as Arguments;
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::sync::watch;

use super::digest::{exit_of, paused, sent};
use super::exit::explain_failure;
use super::remaining_work::{FanOutEnd, backlog_lines, emails, read_waits, show_rest};
use super::session::{Access, App, Exit, Screen, Session, Stop};
use super::session::{last_write, phrases, within_grace};
use crate::domain::Pause;
use crate::engine;
use crate::engine::worker::{BEAT, Part};
use crate::http::api::Watched;
use crate::wire::run_report::{Round, Tally};
use crate::wire::status::DigestActivity;

/// Fan out events, and send batches and digests when they are due
///
/// Several workers share the work. Ctrl-C or SIGTERM finishes the current work and exits.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// Do all work that is due now, and exit
    #[arg(long)]
    once: bool,
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let (app, stop) = session.open_to_send(Access::Write).await?;
        session.screen.warnings(&app.config.warnings)?;
        if self.once {
            return once(&app, session.screen, &stop).await;
        }
        tracing::info!("worker: started; Ctrl-C or SIGTERM finishes what is in hand and ends");
        run_together(&app, &stop, |halted| vec![run(&app, halted).boxed_local()]).await?;
        tracing::info!("worker: stopped");
        Ok(Exit::Done)
    }
}

async fn once(app: &App, screen: &mut Screen, stop: &Stop) -> anyhow::Result<Exit> {
    let worker = app.worker();
    let round = within_grace(app, stop, worker.round(&mut None, stop)).await;
    let stops = *stop.borrow();
    let Some(round) = round else {
        screen.warning("server.grace ended the run, so its counts are missing here")?;
        last_write(stops, record(app, None, true)).await?;
        return stopped(screen);
    };
    let released = last_write(stops, worker.release()).await;
    let (mut round, now) = (round?, app.context.clock.now());
    let digests = round.digests.as_ref().map(|of| DigestActivity::of(of, now));
    let recorded = last_write(stops, record(app, digests, true)).await;
    let fanned_out = FanOutEnd {
        done: round.fanouts.clone(),
        failure: round.not_fanned_out.take().map(anyhow::Error::from),
        left: 0,
    };
    let mut tally = tally(&round);
    tally.bad_stacks += fanned_out.done.bad_stacks.clone();
    if !screen.answer(&round)? {
        let done = sentence(&round, app.identities.outbox());
        let done = done.unwrap_or_else(|| "nothing to do".into());
        screen.line(format!("worker: {done}"))?;
    }
    let waits = read_waits(app, None, stops).await;
    let is_whole = show_rest(app, (&tally, &fanned_out, &waits), screen)?;
    let pause = round.paused.as_ref().map(paused);
    screen.warnings(pause.map(|paused| format!("no email is sent: {paused}")))?;
    released?;
    recorded?;
    if stops {
        return stopped(screen);
    }
    let exit = exit_of(&tally, u64::from(round.paused.is_some()));
    Ok(exit.if_whole(is_whole))
}

fn stopped(screen: &mut Screen) -> anyhow::Result<Exit> {
    let next = "the next run or a worker goes on from there";
    screen.warning(format!("stopped before everything was done; {next}"))?;
    Ok(Exit::Partly)
}

/// Runs these tasks, and serves metrics if the configuration has an address for them. When one of
/// them ends, or `stop` turns true, the others end too, within `server.grace`.
pub(super) async fn run_together<'a>(
    app: &App,
    stop: &Stop,
    tasks: impl FnOnce(Stop) -> Vec<Task<'a>>,
) -> anyhow::Result<()> {
    let (halt, halted) = watch::channel(false);
    let mut tasks = tasks(halted.clone());
    if let Some(watched) = Watched::bind(app)? {
        tracing::info!("metrics: http://{}/metrics", watched.addr);
        tasks.push(watched.run(halted.clone()).boxed_local());
    }
    #[cfg(target_os = "linux")]
    tasks.push(super::systemd_notify::report(halt.subscribe()).boxed_local());
    let mut result = Ok(());
    let all = async {
        let mut running = FuturesUnordered::from_iter(tasks);
        let mut signal = stop.clone();
        loop {
            tokio::select! {
                _ = signal.wait_for(|stop| *stop), if !*halt.borrow() => {}
                ended = running.next() => match ended {
                    Some(ended) if result.is_ok() => result = ended,
                    Some(_) => {}
                    None => return,
                },
            }
            halt.send_replace(true);
        }
    };
    within_grace(app, &halted, all).await;
    result
}

/// A part of the work of a long-running command.
pub(super) type Task<'a> = LocalBoxFuture<'a, anyhow::Result<()>>;

/// Records for `status` that a worker is active or has stopped, and a digest run if there was one.
async fn record(app: &App, run: Option<DigestActivity>, stopped: bool) -> engine::Result<()> {
    let activity = app.activity();
    if let Some(run) = &run {
        activity.record_digests(run).await?;
    }
    activity.beat(stopped).await
}

/// Records heartbeats and digest runs until `stop` becomes true.
async fn beat(app: &App, mut stop: Stop, seen: &Mutex<Seen>) {
    let (mut is_failing, mut stopping) = (false, false);
    let every = BEAT.to_std().unwrap_or_default();
    loop {
        let run = lock(seen).digests.take();
        let recorded = record(app, run, stopping).await;
        if let (Err(error), false) = (&recorded, is_failing) {
            tracing::warn!("worker: `tidings status` does not see this worker: {error}");
        }
        is_failing = recorded.is_err();
        if stopping {
            return;
        }
        // An error means that the sender is gone. That is a reason to stop as well.
        let stopped = tokio::time::timeout(every, stop.wait_for(|stop| *stop));
        stopping = stopped.await.is_ok();
    }
}

/// What the rounds of this process have shown.
#[derive(Default)]
struct Seen {
    /// The failure of each part that fails now.
    failing: HashMap<Part, String>,
    paused: Option<Pause>,
    /// The last digest run, until it is recorded.
    digests: Option<DigestActivity>,
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs rounds until `stop` becomes true. Logs each round that did something, and each new kind of
/// failure.
pub(super) async fn run(app: &App, stop: Stop) -> anyhow::Result<()> {
    let seen = Mutex::<Seen>::default();
    let worker = app.worker();
    let working = worker.run(stop.clone(), |part, round| {
        let now = app.context.clock.now();
        app.metrics.worked(part.as_str(), round.is_ok(), now);
        lock(&seen).log(app, part, round);
    });
    let (worked, ()) = tokio::join!(working, beat(app, stop, &seen));
    Ok(worked?)
}

impl Seen {
    /// Logs a round.
    fn log(&mut self, app: &App, part: Part, round: engine::Result<Round>) {
        let round = match round {
            Ok(round) => round,
            Err(error) => {
                let failure = explain_failure(&error.into());
                // Failing parts retry again and again, and one cause often stops all parts. Log an
                // error only if it is new.
                if !self.failing.values().any(|known| *known == failure) {
                    tracing::error!("worker: {}", failure.lines().next().unwrap_or_default());
                }
                self.failing.insert(part, failure);
                return;
            }
        };
        if self.failing.remove(&part).is_some() {
            tracing::info!("worker: works again");
        }
        // Only rounds of `Part::Mailing` show reliably whether a pause is in effect.
        if part == Part::Mailing && self.paused != round.paused {
            match &round.paused {
                Some(pause) => tracing::error!("worker: no email is sent: {}", paused(pause)),
                None => tracing::info!("worker: sending has resumed"),
            }
            self.paused.clone_from(&round.paused);
        }
        if let Some(done) = sentence(&round, app.identities.outbox()) {
            tracing::info!("worker: {done}");
        }
        if let Some(report) = &round.digests {
            self.digests = Some(DigestActivity::of(report, app.context.clock.now()));
            for line in backlog_lines(&report.backlog) {
                tracing::warn!("worker: {line}");
            }
        }
        for (reason, times) in tally(&round).reasons {
            tracing::warn!("worker: {}: {reason}", emails(times));
        }
    }
}

/// Returns the outcomes of the emails of all parts of a round.
fn tally(round: &Round) -> Tally {
    let mut tally = round.emails.clone();
    let digests = round.digests.iter();
    digests.for_each(|report| tally += report.emails.clone());
    tally
}

/// Summarizes a round. Returns `None` if it did nothing.
fn sentence(round: &Round, outbox: Option<&Path>) -> Option<String> {
    let (fanouts, forgotten) = (&round.fanouts, &round.forgotten);
    // A user who gets several entries counts several times.
    let fanned_out = (fanouts.done > 0).then(|| {
        let done = phrases::count(fanouts.done, "fan-out", "fan-outs");
        let stored = phrases::count(fanouts.counts.pushed, "entry", "entries");
        let stored = format!("{done} done, {stored} added to stacks");
        let capped = "entries did not fit into full days";
        phrases::list([Some(stored), phrases::some(fanouts.counts.capped, capped)])
    });
    let ended = phrases::list([
        phrases::some(round.batches.ended, "ended"),
        phrases::some(round.batches.canceled, "canceled"),
    ]);
    let count = |n, one, many| (n > 0).then(|| phrases::count(n, one, many));
    let settled = phrases::list([
        count(forgotten.deliveries, "email", "emails"),
        count(forgotten.batches, "batch", "batches"),
    ]);
    let about = |head: &str, what: String, tail: &str| match what.as_str() {
        "" => what,
        what => format!("{head}{what}{tail}"),
    };
    let done = phrases::clauses([
        fanned_out.unwrap_or_default(),
        about("batches: ", ended, ""),
        about("emails: ", sent(&tally(round), outbox), ""),
        about("forgot ", settled, " settled long ago"),
    ]);
    (!done.is_empty()).then_some(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::TemplateUse;
    use crate::config::Config;
    use crate::wire::run_report::{EndedBatches, Forgotten};

    #[tokio::test]
    async fn no_call_starts_after_a_task_fails_without_a_signal() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tidings.db");
        let config = Config::parse(&format!("store = \"sqlite:{}\"", file.display())).unwrap();
        let app = App::open(config, Access::Create, TemplateUse::BuiltIn).await;
        let app = app.unwrap();
        let (_signal, stop) = watch::channel(false);
        let failing = std::future::ready(Err(anyhow::anyhow!("it fails")));

        let result = run_together(&app, &stop, |_| vec![failing.boxed_local()]).await;

        assert_eq!(result.unwrap_err().to_string(), "it fails");
        assert!(app.identities.default.account.is_ending());
    }

    #[test]
    fn a_round_reports_ended_batches_and_deleted_records_without_zeros() {
        let round = |batches, forgotten| Round { batches, forgotten, ..Round::default() };
        let some = round(
            EndedBatches { ended: 1_200, canceled: 1 },
            Forgotten { deliveries: 1_000, batches: 1 },
        );

        assert_eq!(
            sentence(&some, None).unwrap(),
            "batches: 1,200 ended, 1 canceled; forgot 1,000 emails, 1 batch settled long ago"
        );
        assert_eq!(sentence(&Round::default(), None), None);
    }
}
