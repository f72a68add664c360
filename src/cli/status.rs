//! `tidings status`: pending work, the outcomes of emails, and the stored days.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use clap::Args as Arguments;

use super::deliveries;
use super::digest;
use super::exit::Exit;
use super::screen::{Screen, Table};
use super::session::Session;
use super::words;
use super::work_report::{expired, waits};
use crate::app::{Access, App, TemplateUse};
use crate::domain::{BatchState, Day, FanoutState, ReportCounts};
use crate::operate::open::upgrade_ahead;
use crate::store::Schema;
use crate::wire::status::{DayView, DigestActivity, OlderDays, Status, Unopened, WorkerActivity};

/// Show pending work with reasons, email outcomes, and stored days
///
/// Exits with 3 while sending is paused, an outcome is unknown, or an email failed within the last
/// seven days.
#[derive(Debug, Arguments)]
pub(super) struct Args {}

/// Shows only the pending upgrade.
fn show_upgrade(
    screen: &mut Screen,
    store: &str,
    schema: &Schema,
    advice: &str,
) -> anyhow::Result<Exit> {
    let store = store.to_owned();
    let (from, to) = (schema.version, schema.known);
    let next = "the next command that works with the store upgrades it to";
    let mut table = Table::facts();
    table.fact("store", store.clone());
    table.fact("schema", format!("{from}; {next} {to}"));
    if !screen.answer(&Unopened { store, schema })? {
        screen.table(&table)?;
        screen.line(advice)?;
    }
    Ok(Exit::Done)
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let config = session.load()?;
        let screen = &mut *session.screen;
        if let Some(schema) = upgrade_ahead(&config).await? {
            // Opening the store would upgrade it.
            let store = format!("{:?}", config.store);
            let advice = "  Copy the file first if you may want to go back.";
            return show_upgrade(screen, &store, &schema, advice);
        }
        let app = App::open(config, Access::Inspect, TemplateUse::BuiltIn).await?;
        let now = app.context.clock.now();
        let status = app.status().now().await?;
        if status.schema.is_old() {
            // The counts lack records in collections that have to be renamed.
            let advice = "  Stop all processes of earlier versions first.";
            return show_upgrade(screen, &status.store, &status.schema, advice);
        }
        let exit = Exit::Done.if_whole(!status.has_failures());
        if screen.answer(&status)? {
            return Ok(exit);
        }
        screen.table(&facts(&status, now))?;
        let retry = "tidings deliveries retry ID|--all, once the cause is fixed";
        let settle = "tidings deliveries settle ID sent|failed, once you know what became of one";
        for (rows, next) in [(&status.failed, retry), (&status.unknown, settle)] {
            if !rows.is_empty() {
                screen.line("")?;
                screen.table(&deliveries::table(rows.iter().map(|row| (row, None))))?;
                screen.line(format!("  {next}"))?;
            }
        }
        if !status.unreadable.is_empty() {
            screen.warning(status.unreadable.sentence())?;
        }
        screen.warnings(status.not_known.warnings(&app.config.policies))?;
        Ok(exit)
    }
}

/// Returns the table of the work, the emails and the reports.
fn facts(status: &Status, now: DateTime<Utc>) -> Table {
    let mut table = Table::facts();
    table.fact("store", status.store.clone());
    let oldest = status.oldest_pending_day;
    table.fact("fan-outs", fanouts(&status.fanouts, oldest));
    let open = words::some(status.batches[&BatchState::Open], "open");
    let batches = words::list([
        open,
        words::some(status.batches[&BatchState::Closing], "closing"),
    ]);
    table.fact("batches", or_none(batches, "none open"));
    let states = status.deliveries.iter();
    let states = states.map(|(state, count)| words::some(*count, state.as_str()));
    table.fact("mails", or_none(words::list(states), "none yet"));
    let some_events = |n: u64| (n > 0).then(|| words::events(n));
    let failed = some_events(status.not_emailed)
        .map(|events| format!("{events} whose batch email failed within the last 7 days"));
    table.fact("not emailed", failed);
    table.fact("sending", status.paused.as_ref().map(digest::paused));
    let mut name = "waiting";
    for line in waits(&status.waiting, now) {
        table.fact(std::mem::take(&mut name), line);
    }
    table.fact("worker", worker(status.worker, now));
    table.fact("digest", last_digest(status.digest));
    let reported = (status.reports.sent > 0).then(|| reports(&status.reports));
    table.fact("last 7 days", reported);
    if status.unreported > 0 {
        let emails = words::count(status.unreported, "email", "emails");
        let silent = format!("none since {emails} left more than a day ago; see `tidings doctor`");
        table.fact("reports", silent);
    }
    add_older(&status.older, &mut table);
    let suppressed = status.suppressed.iter();
    let suppressed = suppressed.map(|(reason, count)| words::some(*count, reason.as_str()));
    table.fact("suppressed", words::list(suppressed));
    let is_older = |day: &&DayView| !day.in_window && day.day < Day::of(now);
    let (older, current): (Vec<_>, Vec<_>) = status.days.iter().partition(is_older);
    table.fact("days", stored(&current).unwrap_or_else(|| "none".into()));
    table.fact("older days", stored(&older));
    table
}

fn or_none(text: String, none: &str) -> String {
    match text.as_str() {
        "" => none.to_owned(),
        _ => text,
    }
}

/// Describes the latest worker, such as `running, last heartbeat 09:00:12 UTC`.
fn worker(worker: Option<WorkerActivity>, now: DateTime<Utc>) -> String {
    match worker {
        None => "none has run yet".into(),
        Some(WorkerActivity { running, seen }) => {
            let seen = words::moment(seen, now);
            match running {
                true => format!("running, last heartbeat {seen}"),
                false => format!("not running; last active {seen}"),
            }
        }
    }
}

/// Describes the latest digest run, such as `last run 2014-04-21 09:30 UTC: 12 due, 12 sent`.
fn last_digest(run: Option<DigestActivity>) -> String {
    let Some(run) = run else {
        return "none has run yet".into();
    };
    let counts = words::list([
        Some(format!("{} due", words::number(run.due))),
        words::some(run.sent, "sent"),
        words::some(run.failed, "failed"),
    ]);
    format!("last run {} UTC: {counts}", words::minute(run.at))
}

fn fanouts(counts: &BTreeMap<FanoutState, u64>, oldest: Option<Day>) -> String {
    let is_none = counts[&FanoutState::Pending] == 0;
    let [pending, done] =
        [FanoutState::Pending, FanoutState::Done].map(|state| words::number(counts[&state]));
    match (is_none, oldest) {
        (true, _) => format!("none pending, {done} done"),
        (_, None) => format!("{pending} pending, {done} done"),
        (_, Some(day)) => {
            let day = day.start().date_naive();
            format!("{pending} pending (oldest of {day}), {done} done")
        }
    }
}

/// Adds rows for days before the window: the backlog, blocked events, and expired events. Blocked
/// events wait for users who cannot be emailed.
fn add_older(older: &OlderDays, table: &mut Table) {
    if older.events > 0 {
        let events = words::events(older.events);
        table.fact("backlog", format!("{events} of days before the window"));
    }
    if older.blocked_events > 0 {
        let events = words::events(older.blocked_events);
        let until = "they expire after digest.max_age";
        let what = format!("{events} for people who cannot be emailed; {until}");
        table.fact("blocked", what);
    }
    let blocked = older.given_up_blocked.events;
    table.fact("expired", expired(&older.given_up, blocked));
}

/// Describes provider reports on recent emails, such as `1,234 sent, 1,200 delivered, 3 bounced
/// (0.24 %)`.
fn reports(counts: &ReportCounts) -> String {
    let of_sent = |count: u64, what: &str| {
        let percent = 100.0 * counts.share(count);
        words::some(count, what).map(|some| format!("{some} ({percent:.2} %)"))
    };
    words::list([
        words::some(counts.sent, "sent"),
        words::some(counts.delivered, "delivered"),
        words::some(counts.delayed, "delayed"),
        words::some(counts.unsubscribed, "unsubscribed"),
        of_sent(counts.refused, "refused"),
        of_sent(counts.bounced, "bounced"),
        of_sent(counts.complained, "complained"),
    ])
}

/// Summarizes stored days: `8 days, 2014-04-14 to 2014-04-21, 12,345 stacks`.
fn stored(days: &[&DayView]) -> Option<String> {
    let date = |day: &&DayView| day.day.start().date_naive();
    let (first, last) = (days.first().map(date)?, days.last().map(date)?);
    let count = words::count(days.len() as u64, "day", "days");
    let stacks = words::count(days.iter().map(|day| day.stacks).sum(), "stack", "stacks");
    Some(format!("{count}, {first} to {last}, {stacks}"))
}
