//! `tidings status`: pending work, the outcomes of emails, and the stored days.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use clap::Args as Arguments;

use super::deliveries;
use super::digest;
use super::exit::Exit;
use super::ink::Ink;
use super::screen::Screen;
use super::table::{Column, Table};
use super::waits::waits;
use super::words;
use crate::app::App;
use crate::config::Config;
use crate::domain::{Day, DeliveryState, Owed, ReportCounts};
use crate::store::Schema;
use crate::wire::status::{
    Backlog, BatchCounts, DayView, DigestActivity, Latency, OlderDays, Unopened, WorkerActivity,
};

/// Show pending work with reasons, email outcomes, and stored days
///
/// Exits with 3 while sending is paused, an outcome is unknown, or an email failed within the last
/// seven days.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// Returns rows with the steps of a pending upgrade, if there is one.
fn upgrade_rows(schema: &Schema) -> Vec<(&'static str, String)> {
    if schema.steps.is_empty() {
        return Vec::new();
    }
    let (from, to) = (schema.version, schema.known);
    let mut rows = vec![(
        "schema",
        format!("{from}; the next command that works with the store upgrades it to {to}:"),
    )];
    rows.extend(schema.steps.iter().map(|step| ("", step.clone())));
    rows
}

impl Args {
    /// Reports that the store needs an upgrade, and leaves it unchanged.
    pub(super) fn ahead(
        &self,
        config: &Config,
        schema: &Schema,
        screen: &mut Screen,
    ) -> anyhow::Result<Exit> {
        let store = format!("{:?}", config.store);
        if self.json {
            screen.json(&Unopened { store, schema })?;
            return Ok(Exit::Done);
        }
        let mut table = Table::new([Column::new("").ink(Ink::Faint), Column::new("")]);
        table.row(["store".into(), store]);
        for (what, said) in upgrade_rows(schema) {
            table.row([what.to_owned(), said]);
        }
        screen.table(&table)?;
        screen.line("  Copy the file first if you may want to go back.")?;
        Ok(Exit::Done)
    }

    pub(super) async fn run(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        let now = app.context.clock.now();
        let status = app.status().now().await?;
        let exit = match status.has_failures() {
            true => Exit::Partly,
            false => Exit::Done,
        };
        if self.json {
            screen.json(&status)?;
            return Ok(exit);
        }
        let mut table = Table::new([Column::new("").ink(Ink::Faint), Column::new("")]);
        table.row(["store".into(), status.store]);
        for (what, said) in upgrade_rows(&status.schema) {
            table.row([what.to_owned(), said]);
        }
        table.row([
            "fan-outs".into(),
            fanouts(status.fanouts, status.oldest_pending_day),
        ]);
        table.row(["batches".into(), gathering(status.batches)]);
        table.row(["mails".into(), mails(&status.deliveries)]);
        if status.not_emailed > 0 {
            let events = words::count(status.not_emailed, "event", "events");
            let why = "whose batch email failed within the last 7 days";
            table.row(["not emailed".into(), format!("{events} {why}")]);
        }
        if let Some(pause) = &status.paused {
            table.row(["sending".into(), digest::paused(pause)]);
        }
        for (index, line) in waits(&status.waiting, now).into_iter().enumerate() {
            let head = if index == 0 { "waiting" } else { "" };
            table.row([head.into(), line]);
        }
        if let Some(latency) = status.provider_latency {
            table.row(["provider".into(), took(latency)]);
        }
        table.row(["worker".into(), worker(status.worker, now)]);
        table.row(["digest".into(), last_digest(status.digest)]);
        if status.heard.sent > 0 {
            table.row(["last 7 days".into(), reported(&status.heard)]);
        }
        if status.unreported > 0 {
            let emails = words::count(status.unreported, "email", "emails");
            let silent =
                format!("none since {emails} left more than a day ago; see `tidings doctor`");
            table.row(["reports".into(), silent]);
        }
        for (what, said) in older_rows(&status.older) {
            table.row([what.to_owned(), said]);
        }
        let listed = status.suppressed.into_iter();
        let listed = listed.map(|(reason, count)| words::some(count, reason.as_str()));
        let listed = words::list(listed);
        if !listed.is_empty() {
            table.row(["suppressed".into(), listed]);
        }
        if status.days.is_empty() {
            table.row(["days".into(), "none".into()]);
        }
        screen.table(&table)?;
        if !status.failed.is_empty() {
            screen.line("")?;
            screen.table(&deliveries::table(&status.failed))?;
            screen.line("  tidings deliveries retry ID|--all, once the cause is fixed")?;
        }
        if !status.unknown.is_empty() {
            screen.line("")?;
            screen.table(&deliveries::table(&status.unknown))?;
            screen.line(
                "  tidings deliveries settle ID sent|failed, once you know what became of one",
            )?;
        }
        if !status.days.is_empty() {
            screen.line("")?;
            screen.table(&days_table(&status.days, Day::of(now)))?;
        }
        if !status.unreadable.is_empty() {
            screen.warning(status.unreadable.sentence())?;
        }
        for warning in status.not_known.warnings(&app.config.policies) {
            screen.warning(warning)?;
        }
        Ok(exit)
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

/// Describes the provider's response times, such as `median 120 ms, 95th percentile 400 ms (last
/// 200 emails)`.
fn took(latency: Latency) -> String {
    let Latency {
        emails,
        median_ms,
        p95_ms,
    } = latency;
    let emails = words::count(emails, "email", "emails");
    format!(
        "median {} ms, 95th percentile {} ms (last {emails})",
        words::number(median_ms),
        words::number(p95_ms)
    )
}

fn fanouts(backlog: Backlog, oldest: Option<Day>) -> String {
    let done = format!("{} done", words::number(backlog.done));
    match (backlog.pending, oldest) {
        (0, _) => format!("none pending, {done}"),
        (pending, oldest) => {
            let oldest = oldest.map_or(String::new(), |day| {
                format!(" (oldest of {})", day.start().date_naive())
            });
            format!("{} pending{oldest}, {done}", words::number(pending))
        }
    }
}

/// Returns rows for days before the window: the backlog, blocked events, and expired events. The
/// backlog reads like `12 people, 40 events of days before the window, at 2014-04-22 09:00 UTC`.
/// Blocked events wait for users who cannot be emailed.
fn older_rows(older: &OlderDays) -> Vec<(&'static str, String)> {
    let amount = |owed: Owed| {
        let people = words::count(owed.people, "person", "people");
        format!("{people}, {}", words::count(owed.events, "event", "events"))
    };
    let mut rows = Vec::new();
    if let Some(look) = &older.owed {
        let at = words::minute(look.at);
        if !look.owed.is_nothing() {
            let of = amount(look.owed);
            rows.push((
                "owed",
                format!("{of} of days before the window, at {at} UTC"),
            ));
        }
        if !look.blocked.is_nothing() {
            let events = words::count(look.blocked.events, "event", "events");
            let people = words::count(look.blocked.people, "person", "people");
            let until = "they expire after digest.max_age";
            let what = format!("{events} for {people} who cannot be emailed; {until}");
            rows.push(("blocked", what));
        }
    }
    let dates = older.given_up.keys().map(|day| day.start().date_naive());
    if let (Some(first), Some(last)) = (dates.clone().min(), dates.max()) {
        let events = older.given_up.values().map(|owed| owed.events).sum();
        let days = match first == last {
            true => first.to_string(),
            false => format!("{first} to {last}"),
        };
        let mut what = format!(
            "{days}: {}, older than digest.max_age",
            words::count(events, "event", "events")
        );
        let blocked = older.given_up_blocked.events;
        if blocked > 0 {
            let blocked = words::number(blocked);
            what = format!("{what}; {blocked} of them for people who could not be emailed");
        }
        rows.push(("expired", what));
    }
    rows
}

/// Describes the batches, such as `12 open, 1 closing`.
fn gathering(batches: BatchCounts) -> String {
    let closing = words::some(batches.closing, "closing");
    match words::some(batches.open, "open") {
        None if closing.is_none() => "none open".into(),
        open => words::list([open, closing]),
    }
}

fn mails(deliveries: &BTreeMap<DeliveryState, u64>) -> String {
    let parts = words::list(
        deliveries
            .iter()
            .map(|(state, count)| words::some(*count, state.as_str())),
    );
    if parts.is_empty() {
        "none yet".into()
    } else {
        parts
    }
}

/// Describes provider reports on recent emails, such as `1,234 sent, 1,200 delivered, 3 bounced
/// (0.24 %)`.
fn reported(heard: &ReportCounts) -> String {
    let of_sent = |count: u64, share: f64, what: &str| {
        words::some(count, what).map(|some| format!("{some} ({:.2} %)", 100.0 * share))
    };
    words::list([
        words::some(heard.sent, "sent"),
        words::some(heard.delivered, "delivered"),
        words::some(heard.delayed, "delayed"),
        words::some(heard.unsubscribed, "unsubscribed"),
        of_sent(heard.refused, heard.refused_share(), "refused"),
        of_sent(heard.bounced, heard.bounce_share(), "bounced"),
        of_sent(heard.complained, heard.complaint_share(), "complained"),
    ])
}

/// Returns a row for each day in and after the window, and one for each earlier month.
fn days_table(days: &[DayView], today: Day) -> Table {
    let mut table = Table::new([
        Column::new("day"),
        Column::new("stacks").right(),
        Column::new("").ink(Ink::Faint),
    ]);
    let date = |day: &DayView| day.day.start().date_naive();
    let is_current = |day: &DayView| day.in_window || day.day > today;
    let month = |day: &DayView| (!is_current(day)).then(|| date(day).format("%Y-%m").to_string());
    for days in days.chunk_by(|a, b| month(a).is_some() && month(a) == month(b)) {
        let stacks = days.iter().map(|day| day.stacks).sum();
        let (what, place) = match days {
            [day] if day.in_window => (date(day).to_string(), "in the window".to_owned()),
            [day] if is_current(day) => (date(day).to_string(), "ahead of today".to_owned()),
            days => {
                let count = words::count(days.len() as u64, "day", "days");
                (month(&days[0]).unwrap_or_default(), count)
            }
        };
        table.row([what, words::number(stacks), place]);
    }
    table
}
