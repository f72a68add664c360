//! `tidings status`: what is waiting, what was mailed, which days there are.

use std::collections::BTreeMap;

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
use crate::wire::status::{Backlog, BatchCounts, DayView, OlderDays, Unopened};

/// Show what is waiting, what became of mails, and which days there are
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// What an upgrade does, if one is ahead.
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
    /// Of a store that this command would have to upgrade: says so, and leaves it as it is.
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
        let status = app.status().now().await?;
        if self.json {
            screen.json(&status)?;
            return Ok(Exit::Done);
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
        if let Some(pause) = &status.paused {
            table.row(["sending".into(), digest::paused(pause)]);
        }
        for (index, line) in waits(&status.waiting).into_iter().enumerate() {
            let head = if index == 0 { "waiting" } else { "" };
            table.row([head.into(), line]);
        }
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
        if !status.unknown.is_empty() {
            screen.line("")?;
            screen.table(&deliveries::table(&status.unknown))?;
            screen.line(
                "  tidings deliveries settle ID sent|failed, once you know what became of one",
            )?;
        }
        if !status.days.is_empty() {
            screen.line("")?;
            screen.table(&days_table(&status.days, Day::of(app.clock.now())))?;
        }
        for warning in status.not_known.warnings(&app.config.policies) {
            screen.warning(warning)?;
        }
        Ok(Exit::Done)
    }
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

/// `owed: 12 people, 40 events of days before the window (2014-04-22 09:00 UTC)`, and what was
/// given up.
fn older_rows(older: &OlderDays) -> Vec<(&'static str, String)> {
    let amount = |owed: Owed| {
        let people = words::count(owed.people, "person", "people");
        format!("{people}, {}", words::count(owed.events, "event", "events"))
    };
    let mut rows = Vec::new();
    if let Some(look) = &older.owed {
        let at = words::minute(look.at);
        let what = format!(
            "{} of days before the window, at {at} UTC",
            amount(look.owed)
        );
        rows.push(("owed", what));
    }
    for (day, owed) in &older.given_up {
        let date = day.start().date_naive();
        let what = format!("{date}: {}, older than digest.max_age", amount(*owed));
        rows.push(("given up", what));
    }
    rows
}

/// `12 open, 1 closing`.
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

/// `1,234 sent, 1,200 delivered, 3 bounced (0.24 %)`: what providers reported of the mails of these
/// days.
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

fn days_table(days: &[DayView], today: Day) -> Table {
    let mut table = Table::new([
        Column::new("day"),
        Column::new("stacks").right(),
        Column::new("").ink(Ink::Faint),
    ]);
    for day in days {
        let place = if day.in_window {
            "in the window"
        } else if day.day > today {
            "ahead of today"
        } else {
            ""
        };
        table.row([
            day.day.start().date_naive().to_string(),
            words::number(day.stacks),
            place.to_owned(),
        ]);
    }
    table
}
