//! `tidings worker`: fans out events, closes batches, and sends emails when they are due.
//!
//! On SIGTERM and Ctrl-C, it finishes its current work and releases every lease. Another worker can
//! then continue at once.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use clap::Args as Arguments;
use tokio::sync::watch;

use super::digest::{of, paused, sent};
use super::exit::{Exit, explain_failure};
use super::fan_out::FanOutEnd;
use super::late::late;
use super::screen::Screen;
use super::stop::Stop;
use super::waits::Waits;
use super::words;
use crate::app::App;
use crate::domain::Pause;
use crate::engine;
use crate::engine::worker::activity::BEAT;
use crate::engine::worker::{Part, UntilStopped};
use crate::http::api::Watched;
use crate::wire::digest::{Report, Round, Tally};
use crate::wire::status::DigestActivity;

/// Fan out events, and send batches and digests when they are due
///
/// Several workers share the work. Ctrl-C or SIGTERM finishes the current work and exits.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// Do all work that is due now, and exit
    #[arg(long)]
    once: bool,
    /// With --once: answer in JSON
    #[arg(long, requires = "once")]
    json: bool,
}

impl Args {
    pub(super) async fn run(
        &self,
        app: &App,
        screen: &mut Screen,
        stop: &Stop,
    ) -> anyhow::Result<Exit> {
        if self.once {
            return self.once(app, screen, stop).await;
        }
        tracing::info!("worker: started; Ctrl-C or SIGTERM finishes what is in hand and ends");
        beside_metrics(app, async { Ok(run(app, stop.clone()).await?) }).await?;
        tracing::info!("worker: stopped");
        Ok(Exit::Done)
    }

    async fn once(&self, app: &App, screen: &mut Screen, stop: &Stop) -> anyhow::Result<Exit> {
        let worker = app.worker();
        let round = worker.round(&mut None, &UntilStopped(stop)).await;
        let released = worker.release().await;
        let mut round = round?;
        let recorded = record(app, round.digests.as_ref()).await;
        let failure = round.not_fanned_out.take().map(anyhow::Error::from);
        let fanned_out = FanOutEnd::of(round.fanouts.clone(), failure);
        let mut mails = mails(&round);
        mails.bad_stacks += fanned_out.done.bad_stacks.clone();
        if self.json {
            screen.json(&round)?;
        } else {
            let done =
                sentence(&round, app.identities.outbox()).unwrap_or_else(|| "nothing to do".into());
            screen.line(format!("worker: {done}"))?;
        }
        let waits = Waits::of(app, None).await;
        waits.show_others(&mails, screen)?;
        fanned_out.tell_of_fanouts(screen)?;
        for line in waits.lines() {
            screen.warning(line)?;
        }
        if let Some(pause) = &round.paused {
            screen.warning(format!("no mail leaves: {}", paused(pause)))?;
        }
        released?;
        recorded?;
        if *stop.borrow() {
            screen.warning(
                "stopped before everything was done; the next run or a worker goes on from there",
            )?;
            return Ok(Exit::Partly);
        }
        let exit = of(&mails, u64::from(round.paused.is_some()));
        Ok(waits.exit(fanned_out.exit(exit)))
    }
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
    let (worked, told) = tokio::join!(working, watched.run(halted));
    told.and(worked)
}

/// Records for `status` that a worker was active, and its digest run if it made one.
async fn record(app: &App, digests: Option<&Report>) -> engine::Result<()> {
    if let Some(report) = digests {
        let run = DigestActivity::of(report, app.context.clock.now());
        app.activity().record_digests(&run).await?;
    }
    app.activity().stop().await
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
            match stopping {
                true => activity.stop().await,
                false => activity.beat().await,
            }
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
    let standing: Mutex<Option<Pause>> = Mutex::new(None);
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
                let mut standing = lock(&standing);
                match (&round.paused, standing.as_ref()) {
                    (Some(pause), before) if Some(pause) != before => {
                        tracing::error!("worker: no mail leaves: {}", paused(pause));
                        *standing = Some(pause.clone());
                    }
                    // Only rounds of the mailing part show reliably that no pause is in effect.
                    (None, Some(_)) if part == Part::Mailing => {
                        tracing::info!("worker: mails leave again");
                        *standing = None;
                    }
                    _ => {}
                }
                if let Some(done) = sentence(&round, app.identities.outbox()) {
                    tracing::info!("worker: {done}");
                }
                if let Some(report) = &round.digests {
                    *lock(&digests) = Some(DigestActivity::of(report, app.context.clock.now()));
                }
                let backlogs = round.digests.iter().map(|report| &report.backlog);
                for line in backlogs.flat_map(late) {
                    tracing::warn!("worker: {line}");
                }
                for (reason, times) in mails(&round).reasons {
                    let emails = words::count(times, "email", "emails");
                    tracing::warn!("worker: {emails}: {reason}");
                }
            }
            Err(error) => {
                let told = explain_failure(&error.into());
                // Failing parts retry again and again, and one cause often stops all parts. Log an
                // error only if it is new.
                if !failing.values().any(|known| *known == told) {
                    tracing::error!("worker: {}", told.lines().next().unwrap_or_default());
                }
                failing.insert(part, told);
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
    let fanouts = &round.fanouts;
    let fanned_out = (fanouts.done > 0).then(|| {
        // A user who gets several entries counts several times.
        let stored = words::count(fanouts.counts.pushed, "entry", "entries");
        let capped = words::some(fanouts.counts.capped, "entries did not fit into full days");
        words::list([
            Some(format!(
                "{} done, {stored} added to stacks",
                words::count(fanouts.done, "fan-out", "fan-outs")
            )),
            capped,
        ])
    });
    let ended = words::list([
        words::some(round.batches.ended, "ended"),
        words::some(round.batches.canceled, "canceled"),
    ]);
    let ended = (!ended.is_empty()).then(|| format!("batches: {ended}"));
    let mailed = sent(&mails(round), outbox).map(|sent| format!("mails: {sent}"));
    let deliveries = round.forgotten.deliveries;
    let forgotten = words::list([
        (deliveries > 0).then(|| words::count(deliveries, "mail", "mails")),
        (round.forgotten.batches > 0)
            .then(|| words::count(round.forgotten.batches, "batch", "batches")),
    ]);
    let forgotten = (!forgotten.is_empty()).then(|| format!("forgot {forgotten} settled long ago"));
    let parts = [fanned_out, ended, mailed, forgotten].into_iter().flatten();
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::digest::{Closed, Forgotten};

    #[test]
    fn a_round_reports_ended_batches_and_deleted_records_without_zeros() {
        let round = |batches, forgotten| Round {
            batches,
            forgotten,
            ..Round::default()
        };
        let some = round(
            Closed {
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
