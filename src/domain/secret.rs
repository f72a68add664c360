//! Keys and passwords that do not leak: they print hidden, and only what uses them may expose them.

use std::fmt;

/// A key or a password. `Debug` and `Display` show `(hidden)`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes any text, also an empty one; what makes a good secret is checked where it is read.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself: for whoever it proves something to, and for nothing else.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_prints_hidden() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret} {secret:?}"), "(hidden) (hidden)");
        assert_eq!(secret.expose(), "hunter2");
    }
}
