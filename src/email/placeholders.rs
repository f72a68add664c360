//! The content of an email: text, and placeholders for each recipient's own links.
//!
//! Text from outside can never become a placeholder (P7, P8). Rendered output marks the
//! placeholders with random words ([`Placeholders`]), which are cut out at once. From then on a
//! [`Text`] is a list of texts and placeholders. Every write breaks up providers' own variables
//! ([`in_html`], [`in_text`]).

use std::borrow::Cow;

use crate::domain::name::named_enum;

named_enum! {
    /// A placeholder for one of the recipient's own links. Its name is also that of the variable at
    /// providers.
    Place("placeholder") {
        /// The link that unsubscribes. Mail programs post to it; in a browser it opens a page that
        /// asks first.
        Unsubscribe = "unsubscribe",
        /// The link to the preferences page.
        Preferences = "preferences",
        /// The link that mutes the object of the email.
        Mute = "mute",
    }
}

impl Place {
    /// Returns a link that leads nowhere (RFC 2606), for previews.
    pub fn nowhere(self) -> &'static str {
        match self {
            Self::Unsubscribe => "https://tidings.invalid/unsubscribe",
            Self::Preferences => "https://tidings.invalid/preferences",
            Self::Mute => "https://tidings.invalid/mute",
        }
    }
}

/// A recipient's own links. They are plain `https` or `http` URLs, so they need no escaping in
/// HTML.
#[derive(Clone, PartialEq, Eq)]
pub struct Personal {
    /// The link for one-click unsubscribing (RFC 8058). `None` if a click would not stop emails
    /// like this one.
    pub unsubscribe: Option<String>,
    /// The link to the preferences page.
    pub preferences: String,
    /// The link that mutes the object, if the email is about exactly one.
    pub mute: Option<String>,
}

impl Personal {
    /// Returns the unsubscribe link if it may be in `List-Unsubscribe`, which requires HTTPS.
    pub fn one_click(&self) -> Option<&str> {
        let link = self.unsubscribe.as_deref();
        link.filter(|link| link.starts_with("https://"))
    }

    /// Returns the link for this placeholder; empty if there is none.
    pub fn link(&self, place: Place) -> &str {
        match place {
            Place::Unsubscribe => self.unsubscribe.as_deref().unwrap_or_default(),
            Place::Preferences => &self.preferences,
            Place::Mute => self.mute.as_deref().unwrap_or_default(),
        }
    }

    /// Returns the links of all placeholders that the content may have.
    pub(super) fn links(&self) -> impl Iterator<Item = (Place, &str)> {
        let has = |place: &Place| *place != Place::Mute || self.mute.is_some();
        let places = Place::ALL.into_iter().filter(has);
        places.map(|place| (place, self.link(place)))
    }
}

/// One body of an email.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Text(Vec<TextPart>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum TextPart {
    Said(String),
    Link(Place),
}

impl Text {
    /// Returns whether the body has neither text nor placeholders.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the length in bytes, without links.
    pub fn len(&self) -> usize {
        self.said().map(str::len).sum()
    }

    /// Returns the texts around the placeholders, in order.
    pub fn said(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            TextPart::Said(words) => Some(words.as_str()),
            TextPart::Link(_) => None,
        })
    }

    /// Writes the body: each text as `said` returns it, each placeholder as `link` returns it.
    pub fn write<'a>(
        &self,
        said: impl Fn(&str) -> Cow<'_, str>,
        link: impl Fn(Place) -> &'a str,
    ) -> String {
        let mut all = String::with_capacity(self.len() + 512);
        for part in &self.0 {
            match part {
                TextPart::Said(words) => all.push_str(&said(words)),
                TextPart::Link(place) => all.push_str(link(*place)),
            }
        }
        all
    }
}

impl<T: Into<String>> From<T> for Text {
    /// Creates a body without placeholders. Words in `text` that look like one stay text.
    fn from(text: T) -> Self {
        let parts = Some(text.into()).filter(|text| !text.is_empty());
        Self(parts.into_iter().map(TextPart::Said).collect())
    }
}

/// The content of an email without its recipient. Recipients with equal content can share a call.
///
/// Subject and bodies may contain any characters. Line breaks and control characters become spaces
/// in headers.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SharedContent {
    /// The subject, without placeholders.
    pub subject: String,
    /// The HTML body; empty for an email with text only.
    pub html: Text,
    /// The text body; empty for an email with HTML only.
    pub text: Text,
}

/// Content that is ready to send: the links are filled in, and providers' variables are broken up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilledContent {
    /// The subject.
    pub subject: String,
    /// The HTML body; empty if the content has none.
    pub html: String,
    /// The text body; empty if the content has none.
    pub text: String,
}

impl SharedContent {
    /// Returns the size in bytes, without links.
    pub fn bytes(&self) -> usize {
        self.subject.len() + self.html.len() + self.text.len()
    }

    /// Returns whether both bodies are empty. Mailers for providers' APIs do not send such an
    /// email.
    pub fn says_nothing(&self) -> bool {
        self.html.is_empty() && self.text.is_empty()
    }

    /// Fills the placeholders with a recipient's links. Without links they stay empty.
    pub fn filled(&self, personal: Option<&Personal>) -> FilledContent {
        let link = |place| personal.map_or("", |personal| personal.link(place));
        self.with(link)
    }

    /// Fills each placeholder with the text that `link` returns.
    pub fn with<'a>(&self, link: impl Fn(Place) -> &'a str) -> FilledContent {
        FilledContent {
            subject: in_text(&self.subject).into_owned(),
            html: self.html.write(in_html, &link),
            text: self.text.write(in_text, &link),
        }
    }
}

/// The words that mark the placeholders of one email while it is rendered. They look like links,
/// because templates check that they print a link, and lead nowhere (RFC 2606).
pub struct Placeholders([String; Place::ALL.len()]);

impl Placeholders {
    /// Creates words that cannot be guessed, from the operating system's randomness. Use them for
    /// one email only.
    pub fn new() -> Result<Self, String> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| format!("no randomness: {error}"))?;
        Ok(Self::with(&hex::encode(bytes)))
    }

    /// Creates words that contain this one, which no text may contain.
    pub(super) fn with(word: &str) -> Self {
        Self(Place::ALL.map(|place| format!("https://{word}.invalid/{place}/")))
    }

    /// Returns the word that marks this placeholder.
    pub fn of(&self, place: Place) -> &str {
        &self.0[place as usize]
    }

    /// Cuts the words out of rendered output.
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
                parts.push(TextPart::Said(rest[..at].to_owned()));
            }
            parts.push(TextPart::Link(place));
            rest = &rest[at + self.of(place).len()..];
        }
        if !rest.is_empty() {
            parts.push(TextPart::Said(rest.to_owned()));
        }
        Text(parts)
    }
}

/// The start of each provider's own variables: an opening, optional filler characters, and the
/// possible names.
///
/// A provider replaces such a variable with one recipient's data, for example an unsubscribe link.
/// So text from outside must not contain one (P7, P8). All variables are broken up for every
/// provider, because an SMTP server may belong to one of them.
const VARIABLES: [(&str, &[char], &[&str]); 3] = [
    // Mailgun: `%recipient.name%`, `%recipient_email%`, `%unsubscribe_url%`,
    // `%mailing_list_unsubscribe_url%`.
    ("%", &[], &["recipient", "unsubscribe", "mailing_list", "tag_unsubscribe"]),
    // SendGrid: `<%asm_group_unsubscribe_raw_url%>`.
    ("<%", &[' '], &["asm_"]),
    // Postmark: `{{{ pm:unsubscribe_url }}}`; Resend: `{{{RESEND_UNSUBSCRIBE_URL}}}`; Amazon SES:
    // `{{amazonSESUnsubscribeUrl}}`.
    ("{{", &['{', ' '], &["pm:", "resend_", "amazonses"]),
];

/// Returns HTML that renders the same and contains no variable: its start is a character reference.
pub(super) fn in_html(html: &str) -> Cow<'_, str> {
    break_variables(html, |first| match first {
        "%" => "&#37;",
        "<" => "&lt;",
        _ => "&#123;",
    })
}

/// Returns text that looks the same and contains no variable: a word joiner, which has no width,
/// follows its start.
pub(super) fn in_text(text: &str) -> Cow<'_, str> {
    break_variables(text, |first| match first {
        "%" => "%\u{2060}",
        "<" => "<\u{2060}",
        _ => "{\u{2060}",
    })
}

fn break_variables(text: &str, replacement: impl Fn(&str) -> &'static str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut written = 0;
    for (at, first) in text.match_indices(['%', '<', '{']) {
        if starts_variable(&text[at..]) {
            out.push_str(&text[written..at]);
            out.push_str(replacement(first));
            written = at + 1;
        }
    }
    if written == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[written..]);
    Cow::Owned(out)
}

/// Returns whether `text` starts with a variable. Names match in any case.
fn starts_variable(text: &str) -> bool {
    VARIABLES.iter().any(|(opening, filler, names)| {
        let Some(rest) = text.strip_prefix(opening) else {
            return false;
        };
        let rest = rest.trim_start_matches(*filler).as_bytes();
        names.iter().any(|name| {
            let start = rest.get(..name.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_it_is(said: &str) -> Cow<'_, str> {
        Cow::Borrowed(said)
    }

    #[test]
    fn placeholders_are_replaced_wherever_they_occur() {
        let placeholders = Placeholders::new().unwrap();
        let [stop, choose, mute] = Place::ALL.map(|place| placeholders.of(place).to_owned());

        let text = placeholders.cut(&format!("{stop}a{choose}{stop}b{mute}"));

        let links = |place: Place| match place {
            Place::Unsubscribe => "S",
            Place::Preferences => "C",
            Place::Mute => "M",
        };
        assert_eq!(text.write(as_it_is, links), "SaCSbM");
        assert_eq!((text.len(), text.said().collect::<Vec<_>>()), (2, vec!["a", "b"]));
        assert!(placeholders.cut("").is_empty() && !placeholders.cut(&stop).is_empty());
    }

    #[test]
    fn text_that_resembles_a_placeholder_is_not_replaced() {
        let (placeholders, others) = (Placeholders::new().unwrap(), Placeholders::new().unwrap());
        for said in [others.of(Place::Unsubscribe), "https://tidings.invalid/unsubscribe"] {
            let text = placeholders.cut(said);

            assert_eq!(text.write(as_it_is, |_| "a link"), said);
            assert_eq!(text, Text::from(said));
        }
    }

    #[test]
    fn only_text_that_starts_like_a_variable_is_escaped() {
        for (said, html, text) in [
            ("50% off, {a}, 1 < 2%", "50% off, {a}, 1 < 2%", "50% off, {a}, 1 < 2%"),
            ("%unsubscribe_url%", "&#37;unsubscribe_url%", "%\u{2060}unsubscribe_url%"),
            ("%é%%Recipient%", "%é%&#37;Recipient%", "%é%%\u{2060}Recipient%"),
            ("<% asm_x %>", "&lt;% asm_x %>", "<\u{2060}% asm_x %>"),
            ("{{{ pm:u }}}", "&#123;&#123;{ pm:u }}}", "{\u{2060}{\u{2060}{ pm:u }}}"),
            ("{{RESEND_U}}", "&#123;{RESEND_U}}", "{\u{2060}{RESEND_U}}"),
            (
                "{{amazonSESUnsubscribeUrl}}",
                "&#123;{amazonSESUnsubscribeUrl}}",
                "{\u{2060}{amazonSESUnsubscribeUrl}}",
            ),
            ("{{name}} %name%", "{{name}} %name%", "{{name}} %name%"),
        ] {
            assert_eq!((in_html(said).as_ref(), in_text(said).as_ref()), (html, text));
        }
    }
}
