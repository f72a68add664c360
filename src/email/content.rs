//! What a mail says: words, and places where each recipient's own links go.
//!
//! The rule (P7, P8): a place is no text, so nothing that is told can pose as one. While a mail is
//! rendered, words that nobody can guess stand in its places ([`Placeholders`]); they are cut out
//! of what was rendered at once, and from then on a text is a list of words and places. The words
//! are made harmless ([`variables`]) whenever they are written for anybody, as providers fill in
//! what they take for a variable.

use std::borrow::Cow;

use super::variables;

/// Where a recipient's own link goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// The link to end the mails: mail programs post to it, people are asked on its page.
    Unsubscribe,
    /// The link to the page of choices.
    Preferences,
    /// The link to mute what the mail is about.
    Mute,
}

impl Place {
    /// All places that a mail can have.
    pub const ALL: [Self; 3] = [Self::Unsubscribe, Self::Preferences, Self::Mute];

    /// A link that leads nowhere (RFC 2606), for a mail that is only shown.
    pub fn nowhere(self) -> &'static str {
        match self {
            Self::Unsubscribe => "https://tidings.invalid/unsubscribe",
            Self::Preferences => "https://tidings.invalid/preferences",
            Self::Mute => "https://tidings.invalid/mute",
        }
    }

    /// Its name, as providers' variables have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unsubscribe => "unsubscribe",
            Self::Preferences => "preferences",
            Self::Mute => "mute",
        }
    }

    /// Where it stands among [`Self::ALL`].
    pub fn index(self) -> usize {
        match self {
            Self::Unsubscribe => 0,
            Self::Preferences => 1,
            Self::Mute => 2,
        }
    }
}

/// A recipient's own links. They are plain `https` or `http` URLs, so they need no escaping in
/// HTML.
#[derive(Clone, PartialEq, Eq)]
pub struct Personal {
    /// One click ends the mails (RFC 8058). `None` where it would not end what this mail tells.
    pub unsubscribe: Option<String>,
    /// The page on which people choose what they get.
    pub preferences: String,
    /// Where what the mail is about can be muted, if it is about one thing.
    pub mute: Option<String>,
}

impl Personal {
    /// Where one click ends the mails, if that can stand in a header: it is an HTTPS link.
    pub fn one_click(&self) -> Option<&str> {
        let link = self.unsubscribe.as_deref();
        link.filter(|link| link.starts_with("https://"))
    }

    /// The link that goes into this place, empty where there is none.
    pub fn link(&self, place: Place) -> &str {
        match place {
            Place::Unsubscribe => self.unsubscribe.as_deref().unwrap_or_default(),
            Place::Preferences => &self.preferences,
            Place::Mute => self.mute.as_deref().unwrap_or_default(),
        }
    }
}

/// A body of a mail.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Text(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Part {
    Said(String),
    Link(Place),
}

impl Text {
    /// Whether it has neither words nor places.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many bytes it says, without the links.
    pub fn len(&self) -> usize {
        self.said().map(str::len).sum()
    }

    /// What is said before, between and after the places.
    pub fn said(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Said(words) => Some(words.as_str()),
            Part::Link(_) => None,
        })
    }

    /// All of it: what is said as `said` writes it, and something in each place.
    pub fn write<'a>(
        &self,
        said: impl Fn(&str) -> Cow<'_, str>,
        link: impl Fn(Place) -> &'a str,
    ) -> String {
        let mut all = String::with_capacity(self.len() + 512);
        for part in &self.0 {
            match part {
                Part::Said(words) => all.push_str(&said(words)),
                Part::Link(place) => all.push_str(link(*place)),
            }
        }
        all
    }
}

impl<T: Into<String>> From<T> for Text {
    /// A text without places, whatever it says.
    fn from(text: T) -> Self {
        let parts = Some(text.into()).filter(|text| !text.is_empty());
        Self(parts.into_iter().map(Part::Said).collect())
    }
}

/// What a mail says, without whom it is for: people whose content is the same can share a call to
/// the provider.
///
/// Subject and bodies may hold anything: line breaks and control characters in what becomes a
/// header are turned into spaces.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Content {
    /// The subject, without places.
    pub subject: String,
    /// The HTML body; empty for a mail of text alone.
    pub html: Text,
    /// The text body; empty for a mail of HTML alone.
    pub text: Text,
}

/// A content that is ready to be sent to somebody: their links are in it, and nothing a provider
/// would take for a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filled {
    /// The subject.
    pub subject: String,
    /// The HTML body, empty where the content has none.
    pub html: String,
    /// The text body, empty where the content has none.
    pub text: String,
}

impl Content {
    /// How many bytes it has, without the links.
    pub fn bytes(&self) -> usize {
        self.subject.len() + self.html.len() + self.text.len()
    }

    /// Whether both bodies are empty: no provider's API is asked to take such a mail.
    pub fn says_nothing(&self) -> bool {
        self.html.is_empty() && self.text.is_empty()
    }

    /// With somebody's links in its places; without links they stay empty.
    pub fn filled(&self, personal: Option<&Personal>) -> Filled {
        let link = |place| personal.map_or("", |personal| personal.link(place));
        self.with(link)
    }

    /// With these words in its places.
    pub fn with<'a>(&self, link: impl Fn(Place) -> &'a str) -> Filled {
        Filled {
            subject: variables::in_text(&self.subject).into_owned(),
            html: self.html.write(variables::in_html, &link),
            text: self.text.write(variables::in_text, &link),
        }
    }
}

/// What stands in the places of one mail while it is rendered. They look like links, as templates
/// check what they print as one, and lead nowhere (RFC 2606).
pub struct Placeholders([String; Place::ALL.len()]);

impl Placeholders {
    /// Placeholders that nobody has seen and nobody will: they are of the operating system's
    /// randomness, and of this mail alone.
    pub fn new() -> Result<Self, String> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| format!("no randomness: {error}"))?;
        let secret = hex::encode(bytes);
        Ok(Self(Place::ALL.map(|place| {
            format!("https://{secret}.invalid/{}/", place.name())
        })))
    }

    /// The placeholder of this place, to be rendered as a link is.
    pub fn of(&self, place: Place) -> &str {
        &self.0[place.index()]
    }

    /// What was rendered, with places instead of placeholders.
    pub fn cut(&self, rendered: &str) -> Text {
        let mut parts = Vec::new();
        let mut rest = rendered;
        let next = |rest: &str| {
            let found = Place::ALL.into_iter();
            let found = found.filter_map(|place| Some((rest.find(self.of(place))?, place)));
            found.min_by_key(|(at, _)| *at)
        };
        while let Some((at, place)) = next(rest) {
            if at > 0 {
                parts.push(Part::Said(rest[..at].to_owned()));
            }
            parts.push(Part::Link(place));
            rest = &rest[at + self.of(place).len()..];
        }
        if !rest.is_empty() {
            parts.push(Part::Said(rest.to_owned()));
        }
        Text(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_it_is(said: &str) -> Cow<'_, str> {
        Cow::Borrowed(said)
    }

    #[test]
    fn places_are_cut_out_wherever_their_placeholders_stand() {
        let placeholders = Placeholders::new().unwrap();
        let [stop, choose, mute] = Place::ALL.map(|place| placeholders.of(place).to_owned());

        let text = placeholders.cut(&format!("{stop}a{choose}{stop}b{mute}"));

        let links = |place: Place| match place {
            Place::Unsubscribe => "S",
            Place::Preferences => "C",
            Place::Mute => "M",
        };
        assert_eq!(text.write(as_it_is, links), "SaCSbM");
        assert_eq!(
            (text.len(), text.said().collect::<Vec<_>>()),
            (2, vec!["a", "b"])
        );
        assert!(placeholders.cut("").is_empty() && !placeholders.cut(&stop).is_empty());
    }

    #[test]
    fn nothing_said_is_a_place() {
        let (placeholders, others) = (Placeholders::new().unwrap(), Placeholders::new().unwrap());
        for said in [
            others.of(Place::Unsubscribe),
            "https://tidings.invalid/unsubscribe",
        ] {
            let text = placeholders.cut(said);

            assert_eq!(text.write(as_it_is, |_| "a link"), said);
            assert_eq!(text, Text::from(said));
        }
    }
}
