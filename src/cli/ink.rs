//! What a part of a line is to its reader; the screen gives each a color where there are any.

/// How a piece of text looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    /// What a reader looks for first.
    Strong,
    /// What can be passed over.
    Faint,
    /// As it should be.
    Good,
    Warning,
    /// What has to be fixed.
    Bad,
    /// What can be typed or opened.
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

    /// What it is marked by in a text.
    pub(super) fn letter(self) -> char {
        match self {
            Self::Strong => 's',
            Self::Faint => 'f',
            Self::Good => 'g',
            Self::Warning => 'w',
            Self::Bad => 'b',
            Self::Accent => 'a',
        }
    }

    pub(super) fn of_letter(letter: char) -> Option<Self> {
        Self::ALL.into_iter().find(|ink| ink.letter() == letter)
    }

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
