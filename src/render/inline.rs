//! Copies style sheet rules into `style` attributes, because email clients drop style sheets.
//!
//! Inlining happens once per template, because it takes 4 to 6 times as long as rendering an email
//! of 1 to 40 items. Masks that survive an HTML parser replace template tags. If styles depend on
//! the email, or the parser changed the structure, [`template`] returns `None` and each email is
//! inlined.

use css_inline::{CSSInliner, InlineError};

/// Creates an inliner that reads no network and no files. `@media` rules stay in a sheet.
pub(super) fn inliner() -> CSSInliner<'static> {
    CSSInliner::options()
        .load_remote_stylesheets(false)
        .keep_at_rules(true)
        .minify_css(true)
        .build()
}

/// Returns the template with its styles inlined, or `None` if only a finished email can be inlined.
pub(super) fn template(
    inliner: &CSSInliner<'_>,
    source: &str,
) -> Result<Option<String>, InlineError> {
    let (masked, tags) = mask(source);
    let inlined = mail(inliner, &masked)?;
    let done = steady(&masked) && skeleton(&masked) == skeleton(&inlined);
    Ok(done.then(|| unmask(inlined, &tags)))
}

/// Returns a finished email with its styles inlined.
pub(super) fn mail(inliner: &CSSInliner<'_>, html: &str) -> Result<String, InlineError> {
    inliner.inline(html).map(sheet_last)
}

/// Moves the remaining style sheet (`@media`) to the end of the head. At the start, where the
/// inliner puts it, it would push the charset declaration out of the first kilobyte, where clients
/// expect it.
fn sheet_last(html: String) -> String {
    const END: &str = "</style>";
    let moved = || {
        let (before, rest) = html.split_once("<head>")?;
        let sheet = rest.starts_with("<style>").then(|| rest.find(END))?? + END.len();
        let (sheet, rest) = rest.split_at(sheet);
        let (head, body) = rest.split_once("</head>")?;
        let (head, body) = (head.trim(), body.trim_start());
        Some(format!("{before}<head>\n{head}\n{sheet}\n</head>\n{body}"))
    };
    moved().unwrap_or(html)
}

/// Returns the mask for the nth template tag. No mask is a prefix of another.
fn word(n: usize) -> String {
    format!("{MASK}{n}-x")
}

const MASK: &str = "tidings-tag-";

/// Replaces `{{ }}`, `{% %}` and `{# #}` with masks: comments between elements, plain words
/// elsewhere. Also returns the tags.
fn mask(source: &str) -> (String, Vec<&str>) {
    let mut tags = Vec::new();
    let mut words = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        words.push_str(before);
        let tag = &from[..tag_len(from)];
        if tag.len() > 1 {
            words.push_str(&word(tags.len()));
            tags.push(tag);
        } else {
            words.push('{');
        }
        rest = &from[tag.len()..];
    }
    words.push_str(rest);
    let mut masked = String::with_capacity(words.len());
    let mut n = 0;
    for piece in pieces(&words) {
        match piece {
            Piece::Text(text) => {
                let mut rest = text;
                while let Some((before, after)) = rest.split_once(&word(n)) {
                    masked.push_str(&format!("{before}<!--{}-->", word(n)));
                    rest = after;
                    n += 1;
                }
                masked.push_str(rest);
            }
            Piece::Element(text) | Piece::Comment(text) | Piece::Raw(text) => {
                masked.push_str(text);
                n += text.matches(MASK).count();
            }
        }
    }
    (masked, tags)
}

fn unmask(mut html: String, tags: &[&str]) -> String {
    for (n, tag) in tags.iter().enumerate() {
        let word = word(n);
        html = html
            .replace(&format!("<!--{word}-->"), tag)
            .replace(&word, tag);
    }
    html
}

/// Returns the length of the template tag at the start of the text, or 1 for a plain brace.
fn tag_len(text: &str) -> usize {
    let end = match text.as_bytes().get(1) {
        Some(b'{') => "}}",
        Some(b'%') => "%}",
        Some(b'#') => return text.find("#}").map_or(1, |at| at + 2),
        _ => return 1,
    };
    after_unquoted(text, 2, end).unwrap_or(1)
}

/// Returns the position after `end`, which is outside quotes and not in the first characters.
fn after_unquoted(text: &str, first: usize, end: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices().skip(first) {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '"' || c == '\'' => quote = Some(c),
            None if text[at..].starts_with(end) => return Some(at + end.len()),
            None => {}
        }
    }
    None
}

/// A part of an HTML text.
enum Piece<'a> {
    Text(&'a str),
    /// A comment or doctype.
    Comment(&'a str),
    /// A start or end tag: `<name …>` or `</name>`.
    Element(&'a str),
    /// The content of a title, style sheet, script or text area.
    Raw(&'a str),
}

fn pieces(html: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = html;
    let mut raw: Option<&str> = None;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (kind, len): (fn(_) -> _, _) = if let Some(name) = raw.take() {
            (Piece::Raw, end_of_raw(rest, name))
        } else if rest.starts_with("<!--") {
            (
                Piece::Comment,
                rest.find("-->").map_or(rest.len(), |at| at + 3),
            )
        } else if rest.starts_with("<!") {
            (
                Piece::Comment,
                rest.find('>').map_or(rest.len(), |at| at + 1),
            )
        } else if begins_element(rest) {
            raw = raw_content(rest);
            let end = after_unquoted(rest, 0, ">");
            (Piece::Element, end.unwrap_or(rest.len()))
        } else {
            let next = rest.char_indices().skip(1).find(|(at, c)| {
                *c == '<' && (rest[*at..].starts_with("<!") || begins_element(&rest[*at..]))
            });
            (Piece::Text, next.map_or(rest.len(), |(at, _)| at))
        };
        let (piece, after) = rest.split_at(len);
        rest = after;
        Some(kind(piece))
    })
}

fn begins_element(text: &str) -> bool {
    text.strip_prefix('<')
        .map(|after| after.strip_prefix('/').unwrap_or(after))
        .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()))
}

/// Returns the name of the element at the start of the text, with a leading `/` for an end tag.
fn element_name(text: &str) -> &str {
    let name = text.trim_start_matches('<');
    let end = name
        .char_indices()
        .find(|(at, c)| *at > 0 && !c.is_ascii_alphanumeric())
        .map_or(name.len(), |(at, _)| at);
    &name[..end]
}

fn raw_content(text: &str) -> Option<&'static str> {
    ["style", "title", "script", "textarea"]
        .into_iter()
        .find(|name| element_name(text).eq_ignore_ascii_case(name))
}

fn end_of_raw(text: &str, name: &str) -> usize {
    let end = format!("</{name}");
    (0..text.len())
        .filter(|at| text.is_char_boundary(*at))
        .find(|at| {
            text[*at..]
                .get(..end.len())
                .is_some_and(|here| here.eq_ignore_ascii_case(&end))
        })
        .unwrap_or(text.len())
}

/// Returns the elements and masks in order, which inlining must not change. Elements that the
/// inliner removes or a parser adds are omitted.
fn skeleton(html: &str) -> Vec<String> {
    const MAY_COME_OR_GO: [&str; 5] = ["html", "head", "body", "tbody", "style"];
    let mut bones = Vec::new();
    for piece in pieces(html) {
        match piece {
            Piece::Element(text) => {
                let name = element_name(text).to_ascii_lowercase();
                if !MAY_COME_OR_GO.contains(&name.trim_start_matches('/')) {
                    bones.push(name);
                }
            }
            Piece::Comment(text) if text.contains(MASK) => bones.push(text.to_owned()),
            Piece::Text(_) | Piece::Comment(_) | Piece::Raw(_) => {}
        }
    }
    bones
}

/// Returns whether no mask affects the styles of an element. Masks may only be in attribute values,
/// and not in `class`, `id` or `style`.
fn steady(html: &str) -> bool {
    const DECIDING: [&str; 3] = ["class", "id", "style"];
    pieces(html).all(|piece| match piece {
        Piece::Element(text) if text.contains(MASK) => {
            let mut rest = text;
            while let Some(open) = rest.find(['"', '\'']) {
                let (before, from) = rest.split_at(open);
                let Some(len) = from[1..].find(&from[..1]) else {
                    break;
                };
                let value = &from[1..=len];
                let name = before
                    .trim_end_matches([' ', '='])
                    .rsplit(char::is_whitespace)
                    .next();
                let deciding = name.is_some_and(|name| {
                    DECIDING
                        .iter()
                        .any(|deciding| name.eq_ignore_ascii_case(deciding))
                });
                if before.contains(MASK) || (deciding && value.contains(MASK)) {
                    return false;
                }
                rest = &from[len + 2..];
            }
            !rest.contains(MASK)
        }
        // Only the finished email has the final order of elements.
        Piece::Raw(text) => !PLACED.iter().any(|placed| text.contains(placed)),
        _ => true,
    })
}

/// Signs of a selector that depends on the position or content of an element.
const PLACED: [&str; 8] = [
    ":first", ":last", ":nth", ":only", ":empty", ":has", "+", "~",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn inlined(source: &str) -> Option<String> {
        template(&inliner(), source).unwrap()
    }

    #[test]
    fn template_tags_survive_inlining_anywhere() {
        let source = r#"<!DOCTYPE html><html><head><title>{{ subject }}</title>
<style>p { color: {{ site.accent }}; margin: 0 } @media (max-width: 600px) { p { color: {{ x }} } }</style>
</head><body lang="{{ a }}">{# a > b #}
<table>{% for item in items %}{% if item.n < 3 and item.s > "%}" %}
<tr><td><p><a href="{{ item.url }}">{{ item.title }}</a> {&amp;}</p></td></tr>
{%- endif %}{% endfor %}</table></body></html>"#;

        let html = inlined(source).unwrap();

        for part in [
            "<head>\n<title>{{ subject }}</title>\n<style>@media",
            "@media (max-width: 600px) { p { color: {{ x }} } }",
            r#"<body lang="{{ a }}">{# a > b #}"#,
            r#"<table>{% for item in items %}{% if item.n < 3 and item.s > "%}" %}"#,
            r#"<p style="color:{{ site.accent }};margin:0"><a href="{{ item.url }}">{{ item.title }}</a> {&amp;}</p>"#,
            "{%- endif %}{% endfor %}</tbody></table>",
        ] {
            assert!(html.contains(part), "{part}\nis not in\n{html}");
        }
        assert!(!html.contains("tidings-tag"), "{html}");
    }

    #[test]
    fn a_tag_that_splits_elements_defers_inlining_to_each_email() {
        let source = "<style>b{color:red}</style>{% if x %}<a href='u'>{% else %}<b>{% endif %}t{% if x %}</a>{% else %}</b>{% endif %}";

        assert_eq!(inlined(source), None);
    }

    #[test]
    fn markup_that_a_parser_would_move_defers_inlining_to_each_email() {
        assert_eq!(inlined("<table><tr><p>{{ x }}</p></tr></table>"), None);
        assert_eq!(inlined("<p><div>{{ x }}</div></p>"), None);
    }

    #[test]
    fn an_element_with_dynamic_styles_defers_inlining_to_each_email() {
        for source in [
            "<h{{ n }}>x</h{{ n }}>",
            "<p{% if x %} hidden{% endif %}>x</p>",
            "<p class='a{% if x %} b{% endif %}'>x</p>",
            "<p ID = \"{{ x }}\">x</p>",
            "<p title='a' style=\"width:{{ x }}px\">x</p>",
            "<p title={{ x }}>x</p>",
        ] {
            assert_eq!(inlined(source), None, "{source}");
        }
        assert!(inlined("<p title='{{ x }}' lang = \"{{ y }}\">x</p>").is_some());
    }

    #[test]
    fn a_positional_selector_defers_inlining_to_each_email() {
        for selector in ["li:first-child", "li + li", "li ~ li", "li:nth-of-type(2)"] {
            let source = format!(
                "<style>{selector} {{ color: red }}</style>{{% for x in y %}}<li>{{{{ x }}}}</li>{{% endfor %}}"
            );
            assert_eq!(inlined(&source), None, "{source}");
        }
    }

    #[test]
    fn single_braces_and_unclosed_tags_are_harmless() {
        for source in [
            "{",
            "{{",
            "{% if",
            "a { b } c",
            "<",
            "<p",
            "<!--",
            "<style>",
            "{#",
            "<é>{{ é }}",
        ] {
            let (masked, tags) = mask(source);
            assert_eq!(unmask(masked, &tags), source);
        }
    }
}
