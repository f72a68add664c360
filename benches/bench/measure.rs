//! Measures fairly on a noisy machine: contestants take turns, and the median round counts.

use std::future::Future;
use std::time::{Duration, Instant};

/// The rates of one contestant, in units per second, one per round.
#[derive(Debug, Clone, Default)]
pub struct Rounds(Vec<f64>);

impl Rounds {
    /// Records a round.
    pub fn note(&mut self, units: u64, took: Duration) {
        self.0.push(units as f64 / took.as_secs_f64());
    }

    /// Returns the rate of the median round, in units per second.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }

    /// Returns the rates of the slowest and of the fastest round.
    pub fn range(&self) -> (f64, f64) {
        self.0
            .iter()
            .fold((f64::MAX, f64::MIN), |(min, max), value| (min.min(*value), max.max(*value)))
    }
}

/// Awaits `work`, and returns its result and how long it took.
pub async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let begin = Instant::now();
    let value = work.await;
    (value, begin.elapsed())
}

/// Returns the number of rounds, at least 1: `TIDINGS_BENCH_ROUNDS`, or else `standard`.
pub fn rounds(standard: usize) -> usize {
    std::env::var("TIDINGS_BENCH_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(standard)
        .max(1)
}

/// Scales a size by `TIDINGS_BENCH_SCALE`, such as 0.1 for a quick run; at least 10.
///
/// `docs/benchmarks.md` names every scale other than 1.
pub fn scaled(size: usize) -> usize {
    let scale: f64 =
        std::env::var("TIDINGS_BENCH_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1.0);
    ((size as f64 * scale) as usize).max(10)
}

/// A table in Markdown, printed row by row.
pub struct Table;

impl Table {
    pub fn begin(title: &str, columns: &[&str]) -> Self {
        println!(
            "\n### {title}\n\n| {} |\n|{}",
            columns.join(" | "),
            " --- |".repeat(columns.len())
        );
        Self
    }

    pub fn row(&self, cells: &[String]) {
        println!("| {} |", cells.join(" | "));
    }
}

/// Formats a number as `12,345`, or as `0.85` below 100.
pub fn number(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{:.0}", value);
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats rounds as `median (slowest–fastest)`.
pub fn spread(rounds: &Rounds) -> String {
    let (slowest, fastest) = rounds.range();
    format!("{} ({}–{})", number(rounds.median()), number(slowest), number(fastest))
}

/// Formats a ratio with the goal that it must reach, and says if it was missed.
pub fn against(ratio: f64, bar: f64) -> String {
    format!("{}× (goal {bar}×{})", number(ratio), if ratio >= bar { "" } else { ", **missed**" })
}
