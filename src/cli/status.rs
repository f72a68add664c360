//! `tidings status`: what is waiting, what was mailed, which days there are.

use chrono::TimeDelta;
use clap::Args as Arguments;
use serde::Serialize;

use super::deliveries::{self, Row};
use super::digest;
use super::exit::Exit;
use super::ink::Ink;
use super::screen::Screen;
use super::table::{Column, Table};
use super::waits::waits;
use super::words;
use crate::app::App;
use crate::config::Config;
use crate::domain::{Day, DeliveryState, Owed, ReportCounts, Window};
use crate::services::deliveries::{Only, Waiting};
use crate::services::mailing::Pause;
use crate::services::owed::Told;
use crate::services::unknown::Unknown;
use crate::store::{Backlog, BatchCounts, DayInfo, Schema};

/// Of how long ago the mails are whose reports are counted.
const HEARD: TimeDelta = TimeDelta::days(7);

/// So many of the newest events are looked at for types and objects that are not known.
const LATELY: usize = 1_000;

/// Show what is waiting, what became of mails, and which days there are
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// What a script is told.
#[derive(Serialize)]
struct Answer {
    store: String,
    schema: Schema,
    fanouts: Backlog,
    oldest_pending_day: Option<Day>,
    /// How many gather, and how many are being mailed.
    batches: BatchCounts,
    deliveries: std::collections::BTreeMap<&'static str, u64>,
    /// The newest of the mails of which nobody knows whether they were taken.
    unknown: Vec<Row>,
    paused: Option<Pause>,
    /// Mails that are not settled, by why.
    waiting: Waiting,
    /// Of the last seven days.
    heard: ReportCounts,
    suppressed: std::collections::BTreeMap<&'static str, u64>,
    /// What is not known of the events that were accepted lately.
    #[serde(skip_serializing_if = "Unknown::is_empty")]
    not_known: Unknown,
    /// What is owed of days that have left the window, and what was given up.
    late: Told,
    days: Vec<DayAnswer>,
}

#[derive(Serialize)]
struct DayAnswer {
    day: Day,
    stacks: u64,
    in_window: bool,
}

/// Of a store that is not opened, as that would upgrade it.
#[derive(Serialize)]
struct Unopened<'a> {
    store: String,
    schema: &'a Schema,
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
        let store = &app.store;
        let schema = store.schema().await?;
        let backlog = store.backlog().await?;
        let oldest = store.busy_days().await?.into_iter().min();
        let batches = store.batch_counts().await?;
        let deliveries = store.delivery_counts(&DeliveryState::ALL).await?;
        let unknown = app.deliveries().list(&unknown(), UNKNOWN_SHOWN).await?;
        let paused = app.deliveries().pause().await?;
        let waiting = app.deliveries().waiting(None).await?;
        let heard = store.report_counts(app.clock.now() - HEARD).await?;
        let suppressed = store.suppression_counts().await?;
        let late = app.owed().told().await?;
        let days = store.days().await?;
        let unknown_lately = app.known().lately(LATELY).await?;
        let window = Window::ending(Day::of(app.clock.now()), app.config.window_back);
        if self.json {
            screen.json(&Answer {
                store: format!("{:?}", app.config.store),
                schema,
                fanouts: backlog,
                oldest_pending_day: oldest,
                batches,
                deliveries: deliveries
                    .iter()
                    .map(|(state, count)| (state.as_str(), *count))
                    .collect(),
                unknown: unknown.iter().map(Row::from).collect(),
                paused,
                waiting,
                heard,
                suppressed: suppressed
                    .iter()
                    .map(|(reason, count)| (reason.as_str(), *count))
                    .collect(),
                not_known: unknown_lately,
                late,
                days: days.iter().map(|day| told(day, &window)).collect(),
            })?;
            return Ok(Exit::Done);
        }
        let mut table = Table::new([Column::new("").ink(Ink::Faint), Column::new("")]);
        table.row(["store".into(), format!("{:?}", app.config.store)]);
        for (what, said) in upgrade_rows(&schema) {
            table.row([what.to_owned(), said]);
        }
        table.row(["fan-outs".into(), fanouts(backlog, oldest)]);
        table.row(["batches".into(), gathering(batches)]);
        table.row(["mails".into(), mails(&deliveries)]);
        if let Some(pause) = &paused {
            table.row(["sending".into(), digest::paused(pause)]);
        }
        for (index, line) in waits(&waiting).into_iter().enumerate() {
            let head = if index == 0 { "waiting" } else { "" };
            table.row([head.into(), line]);
        }
        if heard.sent > 0 {
            table.row(["last 7 days".into(), reported(&heard)]);
        }
        for (what, said) in late_rows(&late) {
            table.row([what.to_owned(), said]);
        }
        let listed = suppressed.into_iter();
        let listed = listed.map(|(reason, count)| words::some(count, reason.as_str()));
        let listed = words::list(listed);
        if !listed.is_empty() {
            table.row(["suppressed".into(), listed]);
        }
        if days.is_empty() {
            table.row(["days".into(), "none".into()]);
        }
        screen.table(&table)?;
        if !unknown.is_empty() {
            screen.line("")?;
            screen.table(&deliveries::table(&unknown))?;
            screen.line(
                "  tidings deliveries settle ID sent|failed, once you know what became of one",
            )?;
        }
        if !days.is_empty() {
            screen.line("")?;
            screen.table(&days_table(&days, &window))?;
        }
        for warning in unknown_lately.warnings(&app.config.policies) {
            screen.warning(warning)?;
        }
        Ok(Exit::Done)
    }
}

/// How many unknown mails are shown.
const UNKNOWN_SHOWN: usize = 10;

fn unknown() -> Only {
    Only {
        state: Some(DeliveryState::Unknown),
        user: None,
    }
}

fn told(day: &DayInfo, window: &Window) -> DayAnswer {
    DayAnswer {
        day: day.day,
        stacks: day.stacks,
        in_window: window.contains(day.day),
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
fn late_rows(late: &Told) -> Vec<(&'static str, String)> {
    let amount = |owed: Owed| {
        let people = words::count(owed.people, "person", "people");
        format!("{people}, {}", words::count(owed.events, "event", "events"))
    };
    let mut rows = Vec::new();
    if let Some(look) = &late.owed {
        let at = words::minute(look.at);
        let what = format!(
            "{} of days before the window, at {at} UTC",
            amount(look.owed)
        );
        rows.push(("owed", what));
    }
    for (day, owed) in &late.given_up {
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

fn mails(deliveries: &[(DeliveryState, u64)]) -> String {
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
        of_sent(heard.bounced, heard.bounce_share(), "bounced"),
        of_sent(heard.complained, heard.complaint_share(), "complained"),
    ])
}

fn days_table(days: &[DayInfo], window: &Window) -> Table {
    let mut table = Table::new([
        Column::new("day"),
        Column::new("stacks").right(),
        Column::new("").ink(Ink::Faint),
    ]);
    for day in days {
        let place = if window.contains(day.day) {
            "in the window"
        } else if day.day > window.last() {
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
