//! `tidings worker`: fans out events, closes batches, and sends emails when they are due.
//!
//! On SIGTERM and Ctrl-C, it finishes its current work within `server.grace` and releases its
//! leases of fan-outs and emails. Another worker can then continue them at once.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;

use clap::Args as Arguments;
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::sync::watch;

use super::digest::{email_outcomes, exit_of_tally, pause_text};
use super::failure_text::explain_failure;
use super::fan_out::FanOutResult;
use super::remaining_work::{backlog_lines, read_waiting_emails, show_unfinished};
use super::session::{Access, App, Exit, Screen, Session, phrases};
use super::stop::{Stop, last_write, within_grace};
use crate::domain::Pause;
use crate::engine;
use crate::engine::worker::{HEARTBEAT_INTERVAL, WorkerPart};
use crate::http::api::MetricsServer;
use crate::mutex::lock;
use crate::wire::run_report::{EarlyEnd, Round, Tally};
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
            return run_once(&app, session.screen, &stop).await;
        }
        tracing::info!("worker: started; Ctrl-C or SIGTERM finishes the current work and ends");
        run_together(&app, &stop, |halted| vec![run(&app, halted).boxed_local()]).await?;
        tracing::info!("worker: stopped");
        Ok(Exit::Done)
    }
}

async fn run_once(app: &App, screen: &mut Screen, stop: &Stop) -> anyhow::Result<Exit> {
    let (worker, mut round) = (app.worker(), Round::default());
    let result = within_grace(app, stop, worker.round_into(&mut round, &mut None, stop)).await;
    let is_stopping = *stop.borrow();
    // At the end of the grace, `within_grace` has released the leases.
    let is_cut_off = result.is_none();
    let released =
        if is_cut_off { Ok(()) } else { last_write(is_stopping, worker.release_leases()).await };
    if is_cut_off && let Some(report) = &mut round.digests {
        report.ended.get_or_insert(EarlyEnd::Stopped);
    }
    result.transpose()?;
    let now = app.context.clock.now();
    let digests = round.digests.as_ref().map(|report| DigestActivity::from_report(report, now));
    let recorded = last_write(is_stopping, record_activity(app, digests, true)).await;
    let fanned_out = FanOutResult {
        done: round.fanouts.clone(),
        failure: round.fan_out_error.take().map(anyhow::Error::from),
        unfinished: 0,
    };
    let mut tally = email_tally(&round);
    tally.bad_stacks += fanned_out.done.bad_stacks.clone();
    if !screen.answer(&round)? {
        let summary = summarize_round(&round, app.identities.outbox());
        let nothing = if is_stopping { "no email was sent" } else { "nothing to do" };
        screen.line(format!("worker: {}", summary.as_deref().unwrap_or(nothing)))?;
    }
    let waiting = read_waiting_emails(app, None, is_stopping).await;
    let is_complete = show_unfinished(app, &tally, &fanned_out, &waiting, screen)?;
    let pause = round.paused.as_ref().map(pause_text);
    screen.warnings(pause.map(|pause| format!("no email is sent: {pause}")))?;
    released?;
    recorded?;
    if is_stopping {
        let next = "the next run or a worker continues the work";
        screen.warning(format!("stopped before everything was done; {next}"))?;
        return Ok(Exit::Partly);
    }
    let exit = exit_of_tally(&tally, u64::from(round.paused.is_some()));
    Ok(exit.partly_unless(is_complete))
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
    if let Some(watched) = MetricsServer::bind(app)? {
        tracing::info!("metrics: http://{}/metrics", watched.addr);
        tasks.push(watched.run(halted.clone()).boxed_local());
    }
    #[cfg(target_os = "linux")]
    tasks.push(super::systemd_notify::report(halt.subscribe()).boxed_local());
    let mut result = Ok(());
    let run_all = async {
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
    within_grace(app, &halted, run_all).await;
    result
}

/// A part of the work of a long-running command.
pub(super) type Task<'a> = LocalBoxFuture<'a, anyhow::Result<()>>;

/// Records for `status` that a worker is active or has stopped, and a digest run if there was one.
async fn record_activity(
    app: &App,
    run: Option<DigestActivity>,
    has_stopped: bool,
) -> engine::Result<()> {
    let activity = app.activity();
    if let Some(run) = &run {
        activity.record_digests(run).await?;
    }
    activity.record_heartbeat(has_stopped).await
}

/// Records heartbeats and digest runs until `stop` becomes true.
async fn record_heartbeats(app: &App, mut stop: Stop, state: &Mutex<WorkerState>) {
    let (mut is_failing, mut is_stopping) = (false, false);
    let interval = HEARTBEAT_INTERVAL.to_std().unwrap_or_default();
    loop {
        let run = lock(state).digests.take();
        let recorded = record_activity(app, run, is_stopping).await;
        if let (Err(error), false) = (&recorded, is_failing) {
            tracing::warn!("worker: `tidings status` does not see this worker: {error}");
        }
        is_failing = recorded.is_err();
        if is_stopping {
            return;
        }
        // An error means that the sender is gone. That is a reason to stop as well.
        let stopped = tokio::time::timeout(interval, stop.wait_for(|stop| *stop));
        is_stopping = stopped.await.is_ok();
    }
}

/// The state of a worker, as its rounds have shown it.
#[derive(Default)]
struct WorkerState {
    /// The failure of each part that fails now.
    failures: HashMap<WorkerPart, String>,
    paused: Option<Pause>,
    /// The last digest run, until it is recorded.
    digests: Option<DigestActivity>,
}

/// Runs rounds until `stop` becomes true. Logs each round that did something, and each new kind of
/// failure.
pub(super) async fn run(app: &App, stop: Stop) -> anyhow::Result<()> {
    let state = Mutex::<WorkerState>::default();
    let worker = app.worker();
    let rounds = worker.run(stop.clone(), |part, round| {
        let now = app.context.clock.now();
        app.metrics.record_round(part.as_str(), round.is_ok(), now);
        lock(&state).log(app, part, round);
    });
    let (result, ()) = tokio::join!(rounds, record_heartbeats(app, stop, &state));
    Ok(result?)
}

impl WorkerState {
    /// Logs a round.
    fn log(&mut self, app: &App, part: WorkerPart, round: engine::Result<Round>) {
        let round = match round {
            Ok(round) => round,
            Err(error) => {
                let failure = explain_failure(&error.into());
                // Failing parts retry again and again, and one cause often stops all parts. Log an
                // error only if it is new.
                if !self.failures.values().any(|known| *known == failure) {
                    tracing::error!("worker: {}", failure.lines().next().unwrap_or_default());
                }
                self.failures.insert(part, failure);
                return;
            }
        };
        if self.failures.remove(&part).is_some() {
            tracing::info!("worker: works again");
        }
        // Only rounds that send emails show reliably whether a pause is in effect.
        if part == WorkerPart::SendingEmails && self.paused != round.paused {
            match &round.paused {
                Some(pause) => tracing::error!("worker: no email is sent: {}", pause_text(pause)),
                None => tracing::info!("worker: sending has resumed"),
            }
            self.paused.clone_from(&round.paused);
        }
        if let Some(summary) = summarize_round(&round, app.identities.outbox()) {
            tracing::info!("worker: {summary}");
        }
        if let Some(report) = &round.digests {
            self.digests = Some(DigestActivity::from_report(report, app.context.clock.now()));
            for line in backlog_lines(&report.backlog) {
                tracing::warn!("worker: {line}");
            }
        }
        for (reason, count) in email_tally(&round).reasons {
            tracing::warn!("worker: {}: {reason}", phrases::emails(count));
        }
    }
}

/// Returns the outcomes of the emails of all parts of a round.
fn email_tally(round: &Round) -> Tally {
    let mut tally = round.emails.clone();
    if let Some(report) = &round.digests {
        tally += report.emails.clone();
    }
    tally
}

/// Summarizes a round. Returns `None` if it did nothing.
fn summarize_round(round: &Round, outbox: Option<&Path>) -> Option<String> {
    let (fanouts, forgotten) = (&round.fanouts, &round.deleted);
    let fanned_out = phrases::nonzero_count(fanouts.completed, "fan-out", "fan-outs").map(|done| {
        // A user who gets several entries counts several times.
        let entries = phrases::count(fanouts.counts.pushed, "entry", "entries");
        let capped = "entries did not fit into full days";
        phrases::list([
            Some(format!("{done} done, {entries} added to stacks")),
            phrases::nonzero(fanouts.counts.capped, capped),
        ])
    });
    let batches = phrases::list([
        phrases::nonzero(round.batches.ended, "ended"),
        phrases::nonzero(round.batches.canceled, "canceled"),
    ]);
    let deleted = phrases::list([
        phrases::nonzero_count(forgotten.deliveries, "email", "emails"),
        phrases::nonzero_count(forgotten.batches, "batch", "batches"),
    ]);
    let enclose = |prefix: &str, text: String, suffix: &str| match text.as_str() {
        "" => text,
        text => format!("{prefix}{text}{suffix}"),
    };
    let summary = phrases::clauses([
        fanned_out.unwrap_or_default(),
        enclose("batches: ", batches, ""),
        enclose("emails: ", email_outcomes(&email_tally(round), outbox), ""),
        enclose("deleted the records of ", deleted, " settled long ago"),
    ]);
    (!summary.is_empty()).then_some(summary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::TemplateUse;
    use crate::config::Config;
    use crate::wire::run_report::{DeletedRecords, EndedBatches};

    #[tokio::test]
    async fn no_call_starts_after_a_task_fails_without_a_signal() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tidings.db");
        let config = Config::parse(&format!("store = \"sqlite:{}\"", file.display())).unwrap();
        let app = App::open(config, Access::Create, TemplateUse::BuiltIn).await.unwrap();
        let (_signal, stop) = watch::channel(false);
        let failing = std::future::ready(Err(anyhow::anyhow!("it fails")));

        let result = run_together(&app, &stop, |_| vec![failing.boxed_local()]).await;

        assert_eq!(result.unwrap_err().to_string(), "it fails");
        assert!(app.identities.default.account.is_shutting_down());
    }

    #[test]
    fn a_round_reports_ended_batches_and_deleted_records_without_zeros() {
        let round = |batches, forgotten| Round { batches, deleted: forgotten, ..Round::default() };
        let some = round(
            EndedBatches { ended: 1_200, canceled: 1 },
            DeletedRecords { deliveries: 1_000, batches: 1 },
        );

        assert_eq!(
            summarize_round(&some, None).unwrap(),
            "batches: 1,200 ended, 1 canceled; deleted the records of 1,000 emails, 1 batch settled long ago"
        );
        assert_eq!(summarize_round(&Round::default(), None), None);
    }
}
