//! Problems and warnings: what is wrong with an option, or doubtful.

use std::fmt;

/// One thing that is wrong: option, and what is wrong with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Its path, such as `digest.hour`; of a file or a variable that is wrong, its name.
    pub option: String,
    /// What is wrong, as a clause that follows the option.
    pub what: String,
}

/// One thing that is valid and can hardly be meant: option, why, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Its path, such as `batch.cooldown`.
    pub option: String,
    /// What is doubtful, as a clause that follows the option.
    pub what: String,
    /// What to do about it.
    pub advice: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}; {}", self.option, self.what, self.advice)
    }
}

/// All that is wrong.
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
