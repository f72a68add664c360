//! Keys and passwords that do not leak into logs. They print as `(hidden)`.

use std::fmt;

/// A key or password. `Debug` and `Display` show `(hidden)`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps any text, including an empty one. The reader of a configuration checks its strength.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the secret, for authentication only.
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
    fn a_secret_prints_as_hidden() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret} {secret:?}"), "(hidden) (hidden)");
        assert_eq!(secret.expose(), "hunter2");
    }
}
