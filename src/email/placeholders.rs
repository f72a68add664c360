//! The content of an email: text, and placeholders for each recipient's own links.
//!
//! Text from outside can never become a placeholder (P7, P8). Rendered output marks the
//! placeholders with random words ([`Placeholders`]), which are cut out at once. From then on a
//! [`BodyText`] is a list of texts and placeholders. Every write breaks up providers' own variables
//! ([`in_html`], [`in_text`]).

use std::borrow::Cow;

use crate::domain::name::named_enum;

named_enum! {
    /// A placeholder for one of the recipient's own links. Its name is also that of the variable at
    /// providers.
    LinkPlaceholder("placeholder") {
        /// The link that unsubscribes. Mail programs post to it; in a browser it opens a page that
        /// asks first.
        Unsubscribe = "unsubscribe",
        /// The link to the preferences page.
        Preferences = "preferences",
        /// The link that mutes the object of the email.
        Mute = "mute",
    }
}

impl LinkPlaceholder {
    /// Returns a link that leads nowhere (RFC 2606), for previews.
    pub fn preview_url(self) -> &'static str {
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
pub struct RecipientLinks {
    /// The link for one-click unsubscribing (RFC 8058). `None` if a click would not stop emails
    /// like this one.
    pub unsubscribe: Option<String>,
    /// The link to the preferences page.
    pub preferences: String,
    /// The link that mutes the object, if the email is about exactly one.
    pub mute: Option<String>,
}

impl RecipientLinks {
    /// Returns the unsubscribe link if it may be in `List-Unsubscribe`, which requires HTTPS.
    pub fn one_click(&self) -> Option<&str> {
        let link = self.unsubscribe.as_deref();
        link.filter(|link| link.starts_with("https://"))
    }

    /// Returns the link for this placeholder; empty if there is none.
    pub fn link(&self, placeholder: LinkPlaceholder) -> &str {
        match placeholder {
            LinkPlaceholder::Unsubscribe => self.unsubscribe.as_deref().unwrap_or_default(),
            LinkPlaceholder::Preferences => &self.preferences,
            LinkPlaceholder::Mute => self.mute.as_deref().unwrap_or_default(),
        }
    }

    /// Returns the links of all placeholders that the content may have.
    pub(super) fn links(&self) -> impl Iterator<Item = (LinkPlaceholder, &str)> {
        let may_occur = |placeholder: &LinkPlaceholder| {
            *placeholder != LinkPlaceholder::Mute || self.mute.is_some()
        };
        let placeholders = LinkPlaceholder::ALL.into_iter().filter(may_occur);
        placeholders.map(|placeholder| (placeholder, self.link(placeholder)))
    }
}

/// One body of an email.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct BodyText(Vec<TextPart>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum TextPart {
    Text(String),
    Link(LinkPlaceholder),
}

impl BodyText {
    /// Returns whether the body has neither text nor placeholders.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the length in bytes, without links.
    pub fn len(&self) -> usize {
        self.texts().map(str::len).sum()
    }

    /// Returns the texts around the placeholders, in order.
    fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            TextPart::Text(text) => Some(text.as_str()),
            TextPart::Link(_) => None,
        })
    }

    /// Writes the body: each text as `escape` returns it, each placeholder as `link` returns it.
    pub fn write<'a>(
        &self,
        escape: impl Fn(&str) -> Cow<'_, str>,
        link: impl Fn(LinkPlaceholder) -> &'a str,
    ) -> String {
        let mut body = String::with_capacity(self.len() + 512);
        for part in &self.0 {
            match part {
                TextPart::Text(text) => body.push_str(&escape(text)),
                TextPart::Link(placeholder) => body.push_str(link(*placeholder)),
            }
        }
        body
    }
}

impl<T: Into<String>> From<T> for BodyText {
    /// Creates a body without placeholders. Words in `text` that look like one stay text.
    fn from(text: T) -> Self {
        let parts = Some(text.into()).filter(|text| !text.is_empty());
        Self(parts.into_iter().map(TextPart::Text).collect())
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
    pub html: BodyText,
    /// The text body; empty for an email with HTML only.
    pub text: BodyText,
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
    pub fn is_empty(&self) -> bool {
        self.html.is_empty() && self.text.is_empty()
    }

    /// Fills the placeholders with a recipient's links. Without links they stay empty.
    pub fn fill(&self, personal: Option<&RecipientLinks>) -> FilledContent {
        self.fill_with(|placeholder| personal.map_or("", |links| links.link(placeholder)))
    }

    /// Fills each placeholder with the text that `link` returns.
    pub fn fill_with<'a>(&self, link: impl Fn(LinkPlaceholder) -> &'a str) -> FilledContent {
        FilledContent {
            subject: in_text(&self.subject).into_owned(),
            html: self.html.write(in_html, &link),
            text: self.text.write(in_text, &link),
        }
    }
}

/// The words that mark the placeholders of one email while it is rendered. They look like links,
/// because templates check that they print a link, and lead nowhere (RFC 2606).
pub struct Placeholders([String; LinkPlaceholder::ALL.len()]);

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
        Self(
            LinkPlaceholder::ALL
                .map(|placeholder| format!("https://{word}.invalid/{placeholder}/")),
        )
    }

    /// Returns the word that marks this placeholder.
    pub fn marker(&self, placeholder: LinkPlaceholder) -> &str {
        &self.0[placeholder as usize]
    }

    /// Cuts the words out of rendered output.
    pub fn extract(&self, rendered: &str) -> BodyText {
        let mut parts = Vec::new();
        let mut rest = rendered;
        let find_next = |rest: &str| {
            LinkPlaceholder::ALL
                .into_iter()
                .filter_map(|placeholder| Some((rest.find(self.marker(placeholder))?, placeholder)))
                .min_by_key(|(start, _)| *start)
        };
        while let Some((start, placeholder)) = find_next(rest) {
            if start > 0 {
                parts.push(TextPart::Text(rest[..start].to_owned()));
            }
            parts.push(TextPart::Link(placeholder));
            rest = &rest[start + self.marker(placeholder).len()..];
        }
        if !rest.is_empty() {
            parts.push(TextPart::Text(rest.to_owned()));
        }
        BodyText(parts)
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

/// Returns HTML that looks the same and contains no variable: the start of each one becomes a
/// character reference.
pub(super) fn in_html(html: &str) -> Cow<'_, str> {
    break_variables(html, |first| match first {
        "%" => "&#37;",
        "<" => "&lt;",
        _ => "&#123;",
    })
}

/// Returns text that looks the same and contains no variable: a word joiner, which has no width,
/// follows the start of each one.
pub(super) fn in_text(text: &str) -> Cow<'_, str> {
    break_variables(text, |first| match first {
        "%" => "%\u{2060}",
        "<" => "<\u{2060}",
        _ => "{\u{2060}",
    })
}

fn break_variables(text: &str, replacement: impl Fn(&str) -> &'static str) -> Cow<'_, str> {
    let mut output = String::new();
    let mut copied = 0;
    for (start, first) in text.match_indices(['%', '<', '{']) {
        if starts_with_variable(&text[start..]) {
            output.push_str(&text[copied..start]);
            output.push_str(replacement(first));
            copied = start + 1;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    output.push_str(&text[copied..]);
    Cow::Owned(output)
}

/// Returns whether `text` starts with a variable. Names match in any case.
fn starts_with_variable(text: &str) -> bool {
    VARIABLES.iter().any(|(opening, filler, names)| {
        text.strip_prefix(opening).is_some_and(|rest| {
            let bytes = rest.trim_start_matches(*filler).as_bytes();
            names.iter().any(|name| {
                let start = bytes.get(..name.len());
                start.is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unchanged(text: &str) -> Cow<'_, str> {
        Cow::Borrowed(text)
    }

    #[test]
    fn placeholders_are_replaced_wherever_they_occur() {
        let placeholders = Placeholders::new().unwrap();
        let [unsubscribe, preferences, mute] =
            LinkPlaceholder::ALL.map(|placeholder| placeholders.marker(placeholder).to_owned());

        let text =
            placeholders.extract(&format!("{unsubscribe}a{preferences}{unsubscribe}b{mute}"));

        let links = |placeholder: LinkPlaceholder| match placeholder {
            LinkPlaceholder::Unsubscribe => "U",
            LinkPlaceholder::Preferences => "P",
            LinkPlaceholder::Mute => "M",
        };
        assert_eq!(text.write(unchanged, links), "UaPUbM");
        assert_eq!((text.len(), text.texts().collect::<Vec<_>>()), (2, vec!["a", "b"]));
        assert!(
            placeholders.extract("").is_empty() && !placeholders.extract(&unsubscribe).is_empty()
        );
    }

    #[test]
    fn text_that_resembles_a_placeholder_is_not_replaced() {
        let (placeholders, others) = (Placeholders::new().unwrap(), Placeholders::new().unwrap());
        for similar in
            [others.marker(LinkPlaceholder::Unsubscribe), "https://tidings.invalid/unsubscribe"]
        {
            let text = placeholders.extract(similar);

            assert_eq!(text.write(unchanged, |_| "a link"), similar);
            assert_eq!(text, BodyText::from(similar));
        }
    }

    #[test]
    fn only_text_that_starts_like_a_variable_is_escaped() {
        for (input, html, text) in [
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
            assert_eq!((in_html(input).as_ref(), in_text(input).as_ref()), (html, text));
        }
    }
}
