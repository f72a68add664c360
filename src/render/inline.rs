//! Copies style sheet rules into `style` attributes, because email clients drop style sheets.
//!
//! Inlining takes 4 to 6 times as long as rendering an email of 1 to 40 items. So the styles of
//! built-in templates are inlined once; comments replace the template tags meanwhile. The markup of
//! an operator's template may depend on its tags, so each finished email is inlined.

use css_inline::{CSSInliner, InlineError};

/// Creates an inliner that reads no network and no files. `@media` rules stay in a sheet.
pub(super) fn inliner() -> CSSInliner<'static> {
    CSSInliner::options()
        .load_remote_stylesheets(false)
        .keep_at_rules(true)
        .minify_css(true)
        .build()
}

/// Returns the template with its styles inlined. No tag may be inside an element's tag, except in
/// the value of an attribute that no style depends on.
pub(super) fn template(inliner: &CSSInliner<'_>, source: &str) -> Result<String, InlineError> {
    let (masked, tags) = mask(source);
    let mut html = email(inliner, &masked)?;
    for (n, tag) in tags.into_iter().enumerate() {
        // The title has no comments: the parser escapes them as text.
        for mask in [format!("<!--{n}-->"), format!("&lt;!--{n}--&gt;")] {
            html = html.replace(&mask, tag);
        }
    }
    Ok(html)
}

/// Returns a finished email with its styles inlined.
pub(super) fn email(inliner: &CSSInliner<'_>, html: &str) -> Result<String, InlineError> {
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

/// Replaces `{{ }}`, `{% %}` and `{# #}` with numbered comments. Also returns the tags.
fn mask(source: &str) -> (String, Vec<&str>) {
    let mut masked = String::with_capacity(source.len());
    let mut tags = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        masked.push_str(before);
        let (tag, after) = from.split_at(tag_len(from).unwrap_or(1));
        if tag.len() > 1 {
            masked.push_str(&format!("<!--{}-->", tags.len()));
            tags.push(tag);
        } else {
            masked.push('{');
        }
        rest = after;
    }
    masked.push_str(rest);
    (masked, tags)
}

/// Returns the length of the template tag at the start of the text; `None` for a plain brace.
fn tag_len(text: &str) -> Option<usize> {
    let end = match text.as_bytes().get(1)? {
        b'{' => "}}",
        b'%' => "%}",
        b'#' => return text.find("#}").map(|at| at + 2),
        _ => return None,
    };
    let mut quote = None;
    for (at, c) in text.char_indices().skip(2) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_tags_survive_inlining_anywhere() {
        let source = r#"<!DOCTYPE html><html><head><title>{{ subject }}</title>
<style>p { color: {{ site.accent }}; margin: 0 } @media (max-width: 600px) { p { color: {{ x }} } }</style>
</head><body lang="{{ a }}">{# a > b #}
<table>{% for item in items %}{% if item.n < 3 and item.s > "%}" %}
<tr><td><p><a href="{{ item.url }}">{{ item.title }}</a> {&amp;}</p></td></tr>
{%- endif %}{% endfor %}</table></body></html>"#;

        let html = template(&inliner(), source).unwrap();

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
        assert!(!html.contains("<!--"), "{html}");
    }

    #[test]
    fn single_braces_and_unclosed_tags_are_harmless() {
        for source in ["{", "{{", "{% if", "a { b } c", "<", "{#", "<é>{ é }"] {
            assert_eq!(mask(source), (source.to_owned(), Vec::new()));
        }
    }
}
