//! `tidings simulate`: compares batch policies on recorded events. It opens no store and sends
//! nothing.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as Arguments;
use indicatif::FormattedDuration;

use super::session::Fit::{Cut, Number};
use super::session::{Column, Exit, Session, Table, phrases};
use crate::config::CandidatePolicies;
use crate::operate::simulate::{read_events, simulate};
use crate::wire::batch::{PolicyComparison, PolicyFigures};

/// Compare batch policies on recorded events: how many emails, how late, how large
///
/// Replays the events against each policy and counts the emails it would have sent. It sends
/// nothing and opens no database. Every event counts as one to be emailed in a batch.
#[derive(Debug, Arguments)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Policies to compare, as TOML
    policies: PathBuf,
    /// Recorded events as NDJSON, plain, gzip or Zstandard; - is standard input
    events: PathBuf,
}

const AFTER_HELP: &str = r#"A policy takes the batch options of a type in tidings.toml:
  [policies.window-5m]
  window = "5m"
  [policies.cooldown-4m]
  cooldown = "4m"
  max_wait = "15m"

An event has a time, a type, and a user or several; object and batch_key are optional:
  {"at": "2026-03-02T09:00:00Z", "user": "mara", "type": "Comment", "batch_key": "acme"}
  {"at": "2026-03-02T09:00:04Z", "users": ["mara", "ben"], "type": "Edit"}

Example:
  tidings simulate policies.toml events.ndjson.zst"#;

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        session.refuse_store("a simulation opens no store")?;
        let screen = &mut *session.screen;
        let candidates = CandidatePolicies::load(&self.policies)?;
        screen.warnings(&candidates.warnings)?;
        let events = read_events(&self.events)?;
        let comparison = simulate(&events, &candidates.policies, &screen.progress_bar("events"));
        if !screen.answer(&comparison)? {
            screen.line(summary(&comparison))?;
            screen.line("")?;
            screen.table(&table(&comparison))?;
        }
        Ok(Exit::Done)
    }
}

fn summary(comparison: &PolicyComparison) -> String {
    let events = phrases::events(comparison.events);
    let users = phrases::users(comparison.users);
    let period = match (comparison.from, comparison.to) {
        (Some(from), Some(to)) => {
            format!(", {} to {} UTC", phrases::minute(from), phrases::minute(to))
        }
        _ => String::new(),
    };
    format!("simulate: {events} for {users}{period}")
}

fn table(comparison: &PolicyComparison) -> Table {
    let columns: &[Column<&PolicyFigures>] = &[
        Column("policy", Cut, |row| row.policy.clone()),
        Column("emails", Number, |row| phrases::number(row.emails)),
        Column("per day", Number, |row| rounded(row.emails_per_day)),
        Column("per user: mean", Number, |row| rounded(row.emails_per_user.mean)),
        Column("p95", Number, |row| phrases::number(row.emails_per_user.p95)),
        Column("max", Number, |row| phrases::number(row.emails_per_user.max)),
        Column("delay: p50", Number, |row| duration(row.delay_seconds.p50)),
        Column("p95", Number, |row| duration(row.delay_seconds.p95)),
        Column("max", Number, |row| duration(row.delay_seconds.max)),
        Column("largest", Number, |row| phrases::number(row.largest)),
    ];
    Table::new(&comparison.policies, columns)
}

/// Formats seconds, such as `00:04:30`.
fn duration(seconds: u64) -> String {
    FormattedDuration(Duration::from_secs(seconds)).to_string()
}

/// Formats a number with one decimal below 100 and none above: `3.4`, `1,234`.
fn rounded(number: f64) -> String {
    if number < 100.0 { format!("{number:.1}") } else { phrases::number(number.round() as u64) }
}
