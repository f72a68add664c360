//! What providers fill in by themselves is made to look like something else in all that a mail
//! says.
//!
//! The rule (P7, P8): a variable of a provider holds what belongs to one recipient alone, such as a
//! link to unsubscribe, so nothing that is told may name one. What is done to it cannot be seen: in
//! HTML a character is written by its number, elsewhere a word joiner, which has no width, parts
//! the beginning. All providers' variables are parted for every provider, as SMTP servers may be
//! theirs as well.

use std::borrow::Cow;

/// How variables begin: what they open with, what may follow that, and their names.
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

/// HTML that reads the same and holds no variable.
pub(super) fn in_html(html: &str) -> Cow<'_, str> {
    parted(html, |first| match first {
        '%' => "&#37;",
        '<' => "&lt;",
        _ => "&#123;",
    })
}

/// Text that looks the same and holds no variable.
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

/// Whether a variable begins here.
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
    fn what_begins_like_a_variable_is_parted_and_nothing_else() {
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
