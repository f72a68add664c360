//! Breaks up the providers' own variables in the text of an email.
//!
//! A provider replaces such a variable with one recipient's data, for example an unsubscribe link.
//! So text from outside must not contain one (P7, P8). The change is invisible: HTML gets a
//! character reference, other text a word joiner, which has no width. All variables are broken up
//! for every provider, because an SMTP server may belong to one of them.

use std::borrow::Cow;

/// The start of a variable: an opening, optional filler characters, and a name.
struct Opening {
    open: &'static str,
    filler: &'static [char],
    names: &'static [&'static str],
}

const OPENINGS: [Opening; 3] = [
    // Mailgun: `%recipient.name%`, `%recipient_email%`, `%unsubscribe_url%`,
    // `%mailing_list_unsubscribe_url%`.
    Opening {
        open: "%",
        filler: &[],
        names: &[
            "recipient",
            "unsubscribe",
            "mailing_list",
            "tag_unsubscribe",
        ],
    },
    // SendGrid: `<%asm_group_unsubscribe_raw_url%>`.
    Opening {
        open: "<%",
        filler: &[' '],
        names: &["asm_"],
    },
    // Postmark: `{{{ pm:unsubscribe_url }}}`; Resend: `{{{RESEND_UNSUBSCRIBE_URL}}}`; Amazon SES:
    // `{{amazonSESUnsubscribeUrl}}`.
    Opening {
        open: "{{",
        filler: &['{', ' '],
        names: &["pm:", "resend_", "amazonses"],
    },
];

/// Returns HTML that renders the same and contains no variable.
pub(super) fn in_html(html: &str) -> Cow<'_, str> {
    parted(html, |first| match first {
        '%' => "&#37;",
        '<' => "&lt;",
        _ => "&#123;",
    })
}

/// Returns text that looks the same and contains no variable.
pub(super) fn in_text(text: &str) -> Cow<'_, str> {
    parted(text, |first| match first {
        '%' => "%\u{2060}",
        '<' => "<\u{2060}",
        _ => "{\u{2060}",
    })
}

fn parted(text: &str, instead: impl Fn(char) -> &'static str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut written = 0;
    for (at, first) in text.match_indices(['%', '<', '{']) {
        if opens(&text[at..]) {
            out.push_str(&text[written..at]);
            out.push_str(instead(first.chars().next().unwrap_or_default()));
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
fn opens(text: &str) -> bool {
    OPENINGS.iter().any(|opening| {
        let Some(rest) = text.strip_prefix(opening.open) else {
            return false;
        };
        let rest = rest.trim_start_matches(opening.filler).as_bytes();
        let names = |name: &&str| {
            let start = rest.get(..name.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
        };
        opening.names.iter().any(names)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_that_starts_like_a_variable_is_escaped() {
        for (said, html, text) in [
            (
                "50% off, {a}, 1 < 2%",
                "50% off, {a}, 1 < 2%",
                "50% off, {a}, 1 < 2%",
            ),
            (
                "%unsubscribe_url%",
                "&#37;unsubscribe_url%",
                "%\u{2060}unsubscribe_url%",
            ),
            (
                "%é%%Recipient%",
                "%é%&#37;Recipient%",
                "%é%%\u{2060}Recipient%",
            ),
            ("<% asm_x %>", "&lt;% asm_x %>", "<\u{2060}% asm_x %>"),
            (
                "{{{ pm:u }}}",
                "&#123;&#123;{ pm:u }}}",
                "{\u{2060}{\u{2060}{ pm:u }}}",
            ),
            ("{{RESEND_U}}", "&#123;{RESEND_U}}", "{\u{2060}{RESEND_U}}"),
            (
                "{{amazonSESUnsubscribeUrl}}",
                "&#123;{amazonSESUnsubscribeUrl}}",
                "{\u{2060}{amazonSESUnsubscribeUrl}}",
            ),
            ("{{name}} %name%", "{{name}} %name%", "{{name}} %name%"),
        ] {
            assert_eq!(
                (in_html(said).as_ref(), in_text(said).as_ref()),
                (html, text)
            );
        }
    }
}
