//! The section `[site]`: what emails and pages show of the service.

use super::reader::TableReader;
use crate::domain::Site;
use crate::domain::text_checks::plain_word;

/// Reads the section `[site]`.
pub(super) fn read_site(r: &mut TableReader<'_>) -> Site {
    let feedback_ids = "5 to 15 letters, digits, - or _";
    Site {
        name: r.string("site.name"),
        url: r.link("site.url"),
        postal_address: r.non_empty("site.postal_address"),
        logo: r.link("site.logo"),
        accent: r.parse_with("site.accent", "a color written #rrggbb", parse_color),
        feedback_id: r.parse_non_empty_with("site.feedback_id", feedback_ids, parse_feedback_id),
    }
}

fn parse_color(text: &str) -> Option<String> {
    let digits = text.strip_prefix('#')?;
    (digits.len() == 6 && digits.bytes().all(|b| b.is_ascii_hexdigit())).then(|| text.to_owned())
}

fn parse_feedback_id(text: &str) -> Option<String> {
    plain_word(text, "-_", 5..=15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feedback_id_has_five_to_fifteen_plain_characters() {
        assert!(
            parse_feedback_id("tidings").is_some() && parse_feedback_id("art-news_2026").is_some()
        );
        for text in ["news", "a:b:c", "sixteen-letters-x", "tidings ", "tidîngs"] {
            assert_eq!(parse_feedback_id(text), None, "{text}");
        }
    }
}
