//! Problems and warnings about options.

use std::fmt;

/// An invalid option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The path, such as `digest.hour`, or the name of an invalid file or variable.
    pub option: String,
    /// The problem, as a clause that follows the option.
    pub what: String,
}

/// A valid setting that is probably a mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The path, such as `batch.cooldown`.
    pub option: String,
    /// The doubt, as a clause that follows the option.
    pub what: String,
    /// What to do about it.
    pub advice: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}; {}", self.option, self.what, self.advice)
    }
}

/// All problems of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => f.write_str("the configuration has a problem:")?,
            many => write!(f, "the configuration has {many} problems:")?,
        }
        for Problem { option, what } in &self.0 {
            write!(f, "\n  {option}: {what}")?;
        }
        Ok(())
    }
}
