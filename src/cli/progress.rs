//! Progress bars for long work, drawn on standard error if it is a terminal.

use std::fmt::Write;
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::stop::Stop;
use crate::engine::Watcher;

/// A progress bar, or a counter if the total is unknown. It is erased when dropped.
pub(super) struct Bar {
    bar: ProgressBar,
    stop: Option<Stop>,
}

const COUNT: &str = "{spinner} {prefix}: {human_pos}, {rate}, {elapsed}";
const OF_TOTAL: &str =
    "{spinner} {prefix}: {bar:30} {human_pos} of {human_len}, {rate}, {eta} left";

impl Bar {
    /// Creates a bar. `what` names the counted things, such as "people looked at". Draws nothing if
    /// standard error is no terminal.
    pub(super) fn new(what: &'static str) -> Self {
        Self::on(ProgressDrawTarget::stderr(), what)
    }

    /// Creates a bar that is never drawn.
    pub(super) fn hidden(what: &'static str) -> Self {
        Self::on(ProgressDrawTarget::hidden(), what)
    }

    fn on(target: ProgressDrawTarget, what: &'static str) -> Self {
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(style(COUNT));
        bar.set_prefix(what);
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Self { bar, stop: None }
    }

    /// Lets the work end early once `stop` is true.
    pub(super) fn until(mut self, stop: Stop) -> Self {
        self.stop = Some(stop);
        self
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .expect("the templates above are valid; every bar is drawn with one")
        .with_key("rate", |state: &ProgressState, out: &mut dyn Write| {
            // A failed write only loses the rate.
            let _ = write!(out, "{}/s", HumanCount(state.per_sec() as u64));
        })
        .progress_chars("━╸ ")
}

impl Watcher for Bar {
    fn advance(&self, by: u64) {
        self.bar.inc(by);
    }

    fn total(&self, total: u64) {
        self.bar.set_length(total);
        self.bar.set_style(style(OF_TOTAL));
    }

    fn stopping(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| *stop.borrow())
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
