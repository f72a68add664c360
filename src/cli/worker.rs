//! `tidings worker`: fans out events, closes batches, and sends emails when they are due.
//!
//! On SIGTERM and Ctrl-C, it finishes its current work and releases every lease. Another worker can
//! then continue at once.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use clap::Args as Arguments;
use tokio::sync::watch;

use super::digest::{exit_of, paused, sent};
use super::exit::{Exit, explain_failure};
use super::screen::Screen;
use super::session::{Session, Stop};
use super::words;
use super::work::{FanOutEnd, Waits, backlog_lines};
use crate::app::{Access, App};
use crate::domain::Pause;
use crate::engine;
use crate::engine::worker::activity::BEAT;
use crate::engine::worker::{Part, UntilStopped};
use crate::http::api::Watched;
use crate::wire::digest::Round;
use crate::wire::digest::{Report, Tally};
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
        beside_metrics(&app, async { Ok(run(&app, stop).await?) }).await?;
        tracing::info!("worker: stopped");
        Ok(Exit::Done)
    }
}

async fn once(app: &App, screen: &mut Screen, stop: &Stop) -> anyhow::Result<Exit> {
    let worker = app.worker();
    let round = worker.round(&mut None, &UntilStopped(stop)).await;
    let released = worker.release().await;
    let mut round = round?;
    let recorded = record(app, round.digests.as_ref()).await;
    let fanned_out = FanOutEnd {
        done: round.fanouts.clone(),
        failure: round.not_fanned_out.take().map(anyhow::Error::from),
        left: 0,
    };
    let mut mails = mails(&round);
    mails.bad_stacks += fanned_out.done.bad_stacks.clone();
    if !screen.answer(&round)? {
        let done = sentence(&round, app.identities.outbox());
        let done = done.unwrap_or_else(|| "nothing to do".into());
        screen.line(format!("worker: {done}"))?;
    }
    let waits = Waits::of(app, None).await;
    waits.show(&mails, &fanned_out, screen)?;
    let pause = round.paused.as_ref().map(paused);
    screen.warnings(pause.map(|paused| format!("no mail leaves: {paused}")))?;
    released?;
    recorded?;
    if *stop.borrow() {
        screen.warning(
            "stopped before everything was done; the next run or a worker goes on from there",
        )?;
        return Ok(Exit::Partly);
    }
    let exit = exit_of(&mails, u64::from(round.paused.is_some()));
    Ok(waits.exit(fanned_out.exit(exit)))
}

/// Runs `work`, and serves metrics until it ends if the configuration has an address for them.
pub(super) async fn beside_metrics<T>(
    app: &App,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let Some(watched) = Watched::bind(app)? else {
        return work.await;
    };
    tracing::info!("metrics: http://{}/metrics", watched.addr);
    let (halt, halted) = watch::channel(false);
    let working = async {
        let worked = work.await;
        halt.send_replace(true);
        worked
    };
    let (worked, watched) = tokio::join!(working, watched.run(halted));
    watched.and(worked)
}

/// Records for `status` that a worker was active, and its digest run if it made one.
async fn record(app: &App, digests: Option<&Report>) -> engine::Result<()> {
    if let Some(report) = digests {
        let run = DigestActivity::of(report, app.context.clock.now());
        app.activity().record_digests(&run).await?;
    }
    app.activity().beat(true).await
}

/// Records heartbeats and digest runs until `stop` becomes true.
async fn beat(app: &App, mut stop: Stop, digests: &Mutex<Option<DigestActivity>>) {
    let (activity, mut is_failing) = (app.activity(), false);
    let every = BEAT.to_std().unwrap_or_default();
    let mut stopping = false;
    loop {
        let run = lock(digests).take();
        let written = async {
            if let Some(run) = &run {
                activity.record_digests(run).await?;
            }
            activity.beat(stopping).await
        };
        let written = written.await;
        if let (Err(error), false) = (&written, is_failing) {
            tracing::warn!("worker: `tidings status` does not see this worker: {error}");
        }
        is_failing = written.is_err();
        if stopping {
            return;
        }
        // An error means that the sender is gone. That is a reason to stop as well.
        stopping = tokio::time::timeout(every, stop.wait_for(|stop| *stop))
            .await
            .is_ok();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs rounds until `stop` becomes true. Logs each round that did something, and each new kind of
/// failure.
pub(super) async fn run(app: &App, stop: Stop) -> engine::Result<()> {
    let failing: Mutex<HashMap<Part, String>> = Mutex::default();
    let current: Mutex<Option<Pause>> = Mutex::new(None);
    let digests: Mutex<Option<DigestActivity>> = Mutex::new(None);
    let worker = app.worker();
    let working = worker.run(stop.clone(), |part, round| {
        let now = app.context.clock.now();
        app.metrics.worked(part.name(), round.is_ok(), now);
        let mut failing = lock(&failing);
        match round {
            Ok(round) => {
                if failing.remove(&part).is_some() {
                    tracing::info!("worker: works again");
                }
                let mut current = lock(&current);
                // Only rounds of the mailing part show reliably whether a pause is in effect.
                if part == Part::Mailing && *current != round.paused {
                    match &round.paused {
                        Some(pause) => tracing::error!("worker: no mail leaves: {}", paused(pause)),
                        None => tracing::info!("worker: mails leave again"),
                    }
                    current.clone_from(&round.paused);
                }
                if let Some(done) = sentence(&round, app.identities.outbox()) {
                    tracing::info!("worker: {done}");
                }
                if let Some(report) = &round.digests {
                    *lock(&digests) = Some(DigestActivity::of(report, app.context.clock.now()));
                }
                let backlogs = round.digests.iter().map(|report| &report.backlog);
                for line in backlogs.flat_map(backlog_lines) {
                    tracing::warn!("worker: {line}");
                }
                for (reason, times) in mails(&round).reasons {
                    let emails = words::count(times, "email", "emails");
                    tracing::warn!("worker: {emails}: {reason}");
                }
            }
            Err(error) => {
                let failure = explain_failure(&error.into());
                // Failing parts retry again and again, and one cause often stops all parts. Log an
                // error only if it is new.
                if !failing.values().any(|known| *known == failure) {
                    tracing::error!("worker: {}", failure.lines().next().unwrap_or_default());
                }
                failing.insert(part, failure);
            }
        }
    });
    let (worked, ()) = tokio::join!(working, beat(app, stop, &digests));
    worked
}

fn mails(round: &Round) -> Tally {
    let mut mails = round.mails.clone();
    if let Some(report) = &round.digests {
        mails += report.mails.clone();
    }
    mails
}

/// Summarizes a round. Returns `None` if it did nothing.
fn sentence(round: &Round, outbox: Option<&Path>) -> Option<String> {
    let (fanouts, forgotten) = (&round.fanouts, &round.forgotten);
    let fanned_out = words::list([
        // A user who gets several entries counts several times.
        (fanouts.done > 0).then(|| {
            let done = words::count(fanouts.done, "fan-out", "fan-outs");
            let stored = words::count(fanouts.counts.pushed, "entry", "entries");
            format!("{done} done, {stored} added to stacks")
        }),
        words::some(fanouts.counts.capped, "entries did not fit into full days")
            .filter(|_| fanouts.done > 0),
    ]);
    let ended = words::list([
        words::some(round.batches.ended, "ended"),
        words::some(round.batches.canceled, "canceled"),
    ]);
    let count = |n, one, many| (n > 0).then(|| words::count(n, one, many));
    let settled = words::list([
        count(forgotten.deliveries, "mail", "mails"),
        count(forgotten.batches, "batch", "batches"),
    ]);
    let mailed = sent(&mails(round), outbox).unwrap_or_default();
    let parts = [
        ("", fanned_out, ""),
        ("batches: ", ended, ""),
        ("mails: ", mailed, ""),
        ("forgot ", settled, " settled long ago"),
    ];
    let parts = parts.into_iter().filter(|(_, what, _)| !what.is_empty());
    let parts = parts.map(|(head, what, tail)| format!("{head}{what}{tail}"));
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::digest::{EndedBatches, Forgotten};

    #[test]
    fn a_round_reports_ended_batches_and_deleted_records_without_zeros() {
        let round = |batches, forgotten| Round {
            batches,
            forgotten,
            ..Round::default()
        };
        let some = round(
            EndedBatches {
                ended: 1_200,
                canceled: 1,
            },
            Forgotten {
                deliveries: 1_000,
                batches: 1,
            },
        );

        assert_eq!(
            sentence(&some, None).unwrap(),
            "batches: 1,200 ended, 1 canceled; forgot 1,000 mails, 1 batch settled long ago"
        );
        assert_eq!(sentence(&Round::default(), None), None);
    }
}
