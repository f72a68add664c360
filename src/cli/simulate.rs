//! `tidings simulate`: what mails recorded events would have made under several policies. It opens
//! no store and sends nothing.

use std::path::PathBuf;

use clap::{Args as Arguments, ValueEnum};

use super::exit::{Exit, Usage};
use super::ink::Ink;
use super::screen::Screen;
use super::table::{Column, Table};
use super::words;
use crate::config::Candidates;
use crate::operate::simulate::generate::{self, Shape};
use crate::operate::simulate::read::{self, Order};
use crate::operate::simulate::{Trial, replay};
use crate::wire::simulation::{Comparison, Report};

mod chart;

use chart::Bars;

/// Try windows on recorded events: how many mails, how late, how large
///
/// Replays events on a virtual clock against named policies and compares what mails they would have
/// made. Nothing is sent, and no store is opened. Every event counts as one to be mailed in
/// batches.
#[derive(Debug, Arguments)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Policies to compare, as TOML; six usual ones if left out
    policies: Option<PathBuf>,
    /// Recorded events, as NDJSON, plain, gzip or Zstandard; - is standard input
    #[arg(required_unless_present = "generate", requires = "policies")]
    events: Option<PathBuf>,
    /// Make up so many events instead, 1 to 100000000: bursts, quiet nights, one person with half
    /// of everything
    #[arg(
        long,
        value_name = "EVENTS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "100000",
        conflicts_with_all = ["events", "sort"],
        value_parser = clap::value_parser!(u64).range(1..=100_000_000)
    )]
    generate: Option<u64>,
    /// With --generate: another seed makes up others
    #[arg(long, default_value_t = 1, requires = "generate")]
    seed: u64,
    /// Read all events and sort them by time first; else one that is out of order is an error
    #[arg(long)]
    sort: bool,
    /// What to draw: how long events wait, or how many mails leave by the hour of the day (UTC)
    #[arg(long, value_enum, default_value_t = Chart::Delays)]
    chart: Chart,
    /// Write the chart to this file, as SVG, instead of drawing it here
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = r#"Policies, with the options that a type has in tidings.toml:
  [policies.window-5m]
  window = "5m"
  [policies.cooldown-4m]
  cooldown = "4m"
  max_wait = "15m"

Events in the order of time; "users": ["…"] names several, batch_key and object can be left out:
  {"at": "2026-03-02T09:00:00Z", "user": "mara", "type": "Comment", "batch_key": "acme"}

Examples:
  tidings simulate --generate
  tidings simulate policies.toml events.ndjson.zst
  tidings simulate policies.toml --generate=1000000 --seed 7 --svg delays.svg"#;

/// What is compared where no file is named.
const USUAL: &str = include_str!("simulate.policies.toml");

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Chart {
    Delays,
    Hours,
    None,
}

impl Args {
    pub(super) fn run(&self, screen: &mut Screen) -> anyhow::Result<Exit> {
        if self.svg.is_some() && self.chart == Chart::None {
            return Err(Usage::new("--chart none leaves nothing to write to --svg")
                .instead("--chart delays or --chart hours")
                .into());
        }
        let candidates = match &self.policies {
            Some(file) => Candidates::load(file)?,
            None => Candidates::parse(USUAL)?,
        };
        for warning in &candidates.warnings {
            screen.warning(warning)?;
        }
        let trials = candidates.policies.into_iter();
        let trials = trials
            .map(|one| Trial::new(one.name, one.policy, one.key))
            .collect();
        let bar = screen.bar("events");
        let comparison = match (&self.events, self.generate) {
            (Some(file), _) => replay(read::events(file, self.order())?, trials, &bar)?,
            (None, events) => {
                let (events, seed) = (events.unwrap_or_default(), self.seed);
                let happenings = generate::events(Shape { events, seed });
                replay(happenings.map(Ok), trials, &bar)?
            }
        };
        drop(bar);
        self.show(&comparison, screen)?;
        Ok(Exit::Done)
    }

    fn order(&self) -> Order {
        match self.sort {
            true => Order::Sorted,
            false => Order::Expected,
        }
    }

    fn show(&self, comparison: &Comparison, screen: &mut Screen) -> anyhow::Result<()> {
        let bars = match self.chart {
            Chart::Delays => Some(Bars::of_delays(comparison)),
            Chart::Hours => Some(Bars::of_hours(comparison)),
            Chart::None => None,
        };
        if let (Some(file), Some(bars)) = (&self.svg, &bars) {
            crate::private::write(file, bars.svg())
                .map_err(|error| anyhow::anyhow!("writing {}: {error}", file.display()))?;
        }
        if self.json {
            return screen.json(comparison);
        }
        screen.line(sentence(comparison))?;
        screen.line("")?;
        screen.table(&table(comparison))?;
        match (&self.svg, bars) {
            (Some(file), _) => {
                screen.line("")?;
                screen.line(format!("chart: {}", file.display()))?;
            }
            (None, Some(bars)) => {
                for line in bars.lines(screen.width(), |ink, text| screen.ink(ink, text)) {
                    screen.line(line)?;
                }
            }
            (None, None) => {}
        }
        Ok(())
    }
}

fn sentence(comparison: &Comparison) -> String {
    let events = words::count(comparison.events, "event", "events");
    let people = words::count(comparison.people, "person", "people");
    let during = match (comparison.from, comparison.to) {
        (Some(from), Some(to)) => format!(", {} to {} UTC", words::minute(from), words::minute(to)),
        _ => String::new(),
    };
    format!("simulate: {events} for {people}{during}")
}

fn table(comparison: &Comparison) -> Table {
    let number = |heading| Column::new(heading).right();
    let mut table = Table::new([
        Column::new("policy").ink(Ink::Strong).gives_way(),
        number("mails"),
        number("a day"),
        number("a person: mean"),
        number("p95"),
        number("max"),
        number("delay: p50"),
        number("p95"),
        number("max"),
        number("largest"),
    ]);
    for report in &comparison.policies {
        table.row(row(report));
    }
    table
}

fn row(report: &Report) -> [String; 10] {
    let (person, delay) = (report.mails_per_person, report.delay_seconds);
    [
        report.policy.clone(),
        words::number(report.mails),
        short(report.mails_per_day),
        short(person.mean),
        words::number(person.p95),
        words::number(person.max),
        words::duration(delay.p50),
        words::duration(delay.p95),
        words::duration(delay.max),
        words::number(report.largest),
    ]
}

/// `3.4`, `1,234`.
fn short(number: f64) -> String {
    if number < 100.0 {
        format!("{number:.1}")
    } else {
        words::number(number.round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_policies_are_valid_and_nothing_about_them_is_doubtful() {
        let usual = Candidates::parse(USUAL).unwrap();

        assert_eq!(usual.policies.len(), 6);
        assert!(usual.warnings.is_empty());
    }
}
