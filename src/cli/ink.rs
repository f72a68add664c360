//! The roles of colored text. The screen draws each role in its color, if it uses colors.

/// The role of a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    /// The most important part of a line.
    Strong,
    /// Secondary information.
    Faint,
    /// A state that needs no attention.
    Good,
    Warning,
    /// An error that must be fixed.
    Bad,
    /// A command to type or a URL to open.
    Accent,
}

impl Ink {
    pub(super) const ALL: [Self; 6] = [
        Self::Strong,
        Self::Faint,
        Self::Good,
        Self::Warning,
        Self::Bad,
        Self::Accent,
    ];

    /// Returns the letter that marks the role in text until the screen writes it.
    pub(super) fn letter(self) -> char {
        char::from(b'a' + self as u8)
    }

    pub(super) fn of_letter(letter: char) -> Option<Self> {
        Self::ALL.into_iter().find(|ink| ink.letter() == letter)
    }

    /// Returns the parameter of its escape sequence (ECMA-48, SGR).
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::Strong => "1",
            Self::Faint => "2",
            Self::Good => "32",
            Self::Warning => "33",
            Self::Bad => "31",
            Self::Accent => "36",
        }
    }
}
