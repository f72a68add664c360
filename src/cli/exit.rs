//! Exit codes.
//!
//! 0: everything was done. 1: an error ended the command, or every part failed. 2: the request was
//! wrong, and nothing was changed. 3: some parts failed or need attention.

use std::io;
use std::process::ExitCode;

use crate::config::ConfigProblems;
use crate::domain::InvalidValue;
use crate::operate::open::Refusal;
use crate::{engine, render};

/// The result of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Everything was done, or there was nothing to do.
    Done = 0,
    /// An error ended the command, or every part failed.
    Failed = 1,
    /// Wrong usage, configuration or values. Nothing was changed.
    Usage = 2,
    /// Some parts were done, and others failed or need attention.
    Partly = 3,
}

impl Exit {
    /// Returns the result for these numbers of successful and failed parts.
    pub(super) fn of(good: u64, bad: u64) -> Self {
        match (good, bad) {
            (_, 0) => Self::Done,
            (0, _) => Self::Failed,
            _ => Self::Partly,
        }
    }

    /// Returns the result of printing. The reader may close the pipe early, as `head` does.
    pub(super) fn of_printing(result: io::Result<()>) -> anyhow::Result<Self> {
        match result {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(Self::Done),
        }
    }

    /// Returns `Partly` instead of `Done` if something is left to do.
    pub(super) fn partly_unless(self, is_complete: bool) -> Self {
        if self == Self::Done && !is_complete { Self::Partly } else { self }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Returns [`Exit::Usage`] for a wrong request, and [`Exit::Failed`] for any other failure.
pub fn exit_of_failure(failure: &anyhow::Error) -> Exit {
    let is_wrong_request = failure.chain().any(|cause| {
        cause.is::<ConfigProblems>()
            || cause.is::<InvalidValue>()
            || cause.is::<render::Error>()
            || cause.is::<Refusal>()
            || matches!(
                cause.downcast_ref(),
                Some(engine::Error::Invalid(_) | engine::Error::Conflict(_))
            )
    });
    if is_wrong_request { Exit::Usage } else { Exit::Failed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store;

    #[test]
    fn an_invalid_value_exits_with_2_and_an_unreachable_store_with_1() {
        let value: anyhow::Error =
            engine::Error::from(InvalidValue::new("limit", 0, "is too small")).into();
        let store: anyhow::Error =
            engine::Error::from(store::Error::database("reading", "gone")).into();

        assert_eq!(exit_of_failure(&value), Exit::Usage);
        assert_eq!(exit_of_failure(&value.context("feed")), Exit::Usage);
        assert_eq!(exit_of_failure(&store), Exit::Failed);
    }

    #[test]
    fn all_successes_are_done_all_failures_failed_and_a_mixture_partly() {
        assert_eq!(
            [Exit::of(2, 0), Exit::of(0, 2), Exit::of(1, 1), Exit::of(0, 0)],
            [Exit::Done, Exit::Failed, Exit::Partly, Exit::Done]
        );
    }
}
