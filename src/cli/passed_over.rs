//! Prints the records that a command skipped: the first ones with reasons, the others as a count.

use std::fmt::Display;

use super::screen::Screen;
use super::words;
use crate::wire::event::{Bad, BadStacks};

/// Prints the skipped documents, with their users and the reasons.
pub(super) fn bad_stacks(bad: &BadStacks, screen: &mut Screen) -> std::io::Result<()> {
    passed_over(bad, "documents", screen)
}

/// Prints the first 20 skipped records with the reasons, and how many more there are.
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
