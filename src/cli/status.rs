//! `tidings status`: pending work, the outcomes of emails, and the stored days.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use clap::Args as Arguments;

use super::deliveries;
use super::digest;
use super::remaining_work::{expired_events, waiting_lines};
use super::session::{Access, App, Exit, Session, Table, TemplateUse, phrases};
use crate::domain::{BatchState, Day, DeliveryState, FanoutState, ReportCounts, SuppressionReason};
use crate::operate::open::pending_upgrade;
use crate::store::Schema;
use crate::wire::status::{DayView, DigestActivity, Status, UnopenedStore, WorkerActivity};

/// Show pending work with reasons, email outcomes, and stored days
///
/// Exits with 3 while sending is paused, an outcome is unknown, or an email failed within the last
/// seven days.
#[derive(Debug, Arguments)]
pub(super) struct Args {}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let config = session.load()?;
        let screen = &mut *session.screen;
        if let Some(schema) = pending_upgrade(&config).await? {
            // Opening the file would upgrade it.
            let (store, schema) = (&format!("{:?}", config.store), &schema);
            if !screen.answer(&UnopenedStore { store, schema })? {
                let mut table = Table::facts();
                table.add("store", store.clone());
                table.add("schema", upgrade_text(schema));
                screen.table(&table)?;
                screen.line("  Copy the file first if you may want to go back.")?;
            }
            return Ok(Exit::Done);
        }
        let app = App::open(config, Access::Inspect, TemplateUse::BuiltIn).await?;
        let now = app.context.clock.now();
        let status = app.status().current_status().await?;
        let exit = Exit::Done.partly_unless(!status.has_failures());
        if screen.answer(&status)? {
            return Ok(exit);
        }
        screen.table(&facts(&status, now))?;
        let retry = "tidings deliveries retry ID|--all, once the cause is fixed";
        let settle = "tidings deliveries settle ID sent|failed, once you know its outcome";
        for (rows, next) in [(&status.failed, retry), (&status.unknown, settle)] {
            if !rows.is_empty() {
                screen.section(&deliveries::table(rows.iter().map(|row| (row, None))))?;
                screen.line(format!("  {next}"))?;
            }
        }
        if status.schema.is_old() {
            screen.warning(
                "stop all processes of earlier versions before the upgrade; until then, the counts \
                 lack records in collections that it renames",
            )?;
        }
        if !status.unreadable.is_empty() {
            screen.warning(status.unreadable.sentence())?;
        }
        screen.warnings(status.unknown_names.warnings(&app.config.policies))?;
        Ok(exit)
    }
}

/// Describes the upgrade that is ahead, if there is one.
fn upgrade_text(schema: &Schema) -> Option<String> {
    let (from, to) = (schema.version, schema.known);
    schema
        .is_old()
        .then(|| format!("{from}; the next command that uses the store upgrades it to {to}"))
}

/// Returns the table of the work, the emails and the reports.
fn facts(status: &Status, now: DateTime<Utc>) -> Table {
    let mut table = Table::facts();
    table.add("store", status.store.clone());
    table.add("schema", upgrade_text(&status.schema));
    table.add("fan-outs", fanouts_text(&status.fanouts, status.oldest_pending_day));
    let batches = by_name(&status.batches, BatchState::as_str);
    table.add("batches", or_default(batches, "none open"));
    let deliveries = by_name(&status.deliveries, DeliveryState::as_str);
    table.add("emails", or_default(deliveries, "none yet"));
    let events = |n: u64, what: &str| (n > 0).then(|| format!("{} {what}", phrases::events(n)));
    let failed = "whose batch email failed within the last 7 days";
    table.add("not emailed", events(status.not_emailed, failed));
    table.add("sending", status.paused.as_ref().map(digest::pause_text));
    for (index, line) in waiting_lines(&status.waiting, now).into_iter().enumerate() {
        table.add(if index == 0 { "waiting" } else { "" }, line);
    }
    let none = || "none has run yet".to_owned();
    table.add("worker", status.worker.map_or_else(none, |worker| worker_text(worker, now)));
    table.add("digest", status.digest.map_or_else(none, digest_text));
    let reported = (status.reports.sent > 0).then(|| reports_text(&status.reports));
    table.add("last 7 days", reported);
    let unreported = phrases::nonzero_count(status.unreported, "email", "emails")
        .map(|emails| format!("none on {emails} sent more than a day ago; see `tidings doctor`"));
    table.add("reports", unreported);
    let backlog = &status.backlog;
    table.add("backlog", events(backlog.events, "of days before the window"));
    let blocked = "for users who cannot be emailed; they expire after digest.max_age";
    table.add("blocked", events(backlog.blocked_events, blocked));
    let expired = expired_events(&backlog.expired, backlog.expired_blocked.events);
    table.add("expired", expired);
    table.add("suppressed", by_name(&status.suppressed, SuppressionReason::as_str));
    let is_older = |day: &&DayView| !day.in_window && day.day < Day::of(now);
    let (older, current): (Vec<_>, Vec<_>) = status.days.iter().partition(is_older);
    table.add("days", days_text(&current).unwrap_or_else(|| "none".into()));
    table.add("older days", days_text(&older));
    table
}

/// Lists counts with their names, without zeros: `3 open, 1 closing`.
fn by_name<K: Copy>(counts: &BTreeMap<K, u64>, name: impl Fn(K) -> &'static str) -> String {
    phrases::list(counts.iter().map(|(key, count)| phrases::nonzero(*count, name(*key))))
}

fn or_default(text: String, default: &str) -> String {
    if text.is_empty() { default.to_owned() } else { text }
}

/// Describes the latest worker, such as `running, last heartbeat 09:00:12 UTC`.
fn worker_text(worker: WorkerActivity, now: DateTime<Utc>) -> String {
    let seen = phrases::second(worker.last_heartbeat, now);
    let is_running = worker.is_running;
    let state = if is_running { "running, last heartbeat" } else { "not running; last active" };
    format!("{state} {seen}")
}

/// Describes the latest digest run, such as `last run 2014-04-21 09:30 UTC: 12 due, 12 sent`.
fn digest_text(run: DigestActivity) -> String {
    let counts = phrases::list([
        Some(format!("{} due", phrases::number(run.due))),
        phrases::nonzero(run.sent, "sent"),
        phrases::nonzero(run.failed, "failed"),
    ]);
    format!("last run {} UTC: {counts}", phrases::minute(run.at))
}

fn fanouts_text(counts: &BTreeMap<FanoutState, u64>, oldest: Option<Day>) -> String {
    let done = phrases::number(counts[&FanoutState::Done]);
    let oldest = oldest.map(|day| format!(" (oldest of {})", day.start().date_naive()));
    let pending = match counts[&FanoutState::Pending] {
        0 => "none pending".to_owned(),
        n => format!("{} pending{}", phrases::number(n), oldest.unwrap_or_default()),
    };
    format!("{pending}, {done} done")
}

/// Describes provider reports on recent emails, such as `1,234 sent, 1,200 delivered, 3 bounced
/// (0.24 %)`.
fn reports_text(counts: &ReportCounts) -> String {
    let with_percentage = |count: u64, what: &str| {
        let percent = 100.0 * counts.share(count);
        phrases::nonzero(count, what).map(|text| format!("{text} ({percent:.2} %)"))
    };
    phrases::list([
        phrases::nonzero(counts.sent, "sent"),
        phrases::nonzero(counts.delivered, "delivered"),
        phrases::nonzero(counts.delayed, "delayed"),
        phrases::nonzero(counts.unsubscribed, "unsubscribed"),
        with_percentage(counts.refused, "refused"),
        with_percentage(counts.bounced, "bounced"),
        with_percentage(counts.complained, "complained"),
    ])
}

/// Summarizes stored days: `8 days, 2014-04-14 to 2014-04-21, 12,345 stacks`.
fn days_text(days: &[&DayView]) -> Option<String> {
    let date = |day: &&DayView| day.day.start().date_naive();
    let (first, last) = (days.first().map(date)?, days.last().map(date)?);
    let count = phrases::count(days.len() as u64, "day", "days");
    let stacks = phrases::stacks(days.iter().map(|day| day.stacks).sum());
    Some(format!("{count}, {first} to {last}, {stacks}"))
}
