//! What a command could not use and passed over: told one by one, the first of many.

use std::fmt::Display;

use super::screen::Screen;
use super::words;
use crate::wire::trouble::{Bad, BadStacks};

/// Documents that something could not be done with: whose, and why.
pub(super) fn bad_stacks(bad: &BadStacks, screen: &mut Screen) -> std::io::Result<()> {
    passed_over(bad, "documents", screen)
}

/// What could not be used, and why; of many the first are named.
pub(super) fn passed_over<T: Display + PartialEq>(
    bad: &Bad<T>,
    what: &str,
    screen: &mut Screen,
) -> std::io::Result<()> {
    const SHOWN: usize = 20;
    for bad in bad.first.iter().take(SHOWN) {
        screen.warning(format!("passed over: {bad}"))?;
    }
    let more = bad.count.saturating_sub(SHOWN as u64);
    if more > 0 {
        let more = words::number(more);
        screen.warning(format!("passed over: {more} more {what}"))?;
    }
    Ok(())
}
