//! The roles of text on a screen. Each has a color on a terminal that shows colors.

/// The role of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    /// What readers look for first.
    Strong,
    /// What readers can skip.
    Faint,
    /// In order.
    Good,
    Warning,
    /// To be fixed.
    Bad,
    /// A command or an address.
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

    /// The letter that marks it in a text.
    pub(super) fn letter(self) -> char {
        char::from(b'a' + self as u8)
    }

    pub(super) fn of_letter(letter: char) -> Option<Self> {
        Self::ALL.into_iter().find(|ink| ink.letter() == letter)
    }

    /// The parameter of its escape sequence (ECMA-48, SGR).
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
