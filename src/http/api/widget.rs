//! `GET /widget.js`: the element that shows a feed on a page, as one ES module.
//!
//! It contains no user data, so any page of any origin may load it. Browsers revalidate it by its
//! entity tag, so it is never stale. `docs/widget.md` documents the element.

use std::sync::LazyLock;

use actix_web::http::header::{self, ContentEncoding, EntityTag};
use actix_web::{HttpRequest, HttpResponse};
use sha2::{Digest, Sha256};

use super::feed::Known;
use super::gzip::{Compression, gzipped, is_taken};

static WIDGET: LazyLock<String> =
    LazyLock::new(|| small(include_str!("../../../widget/widget.js")));

/// Removes indentation, comment lines, spaces around punctuation outside quotes, and line breaks
/// that end no statement. Line breaks in quotes are removed too; only the style sheet has any.
fn small(source: &str) -> String {
    let lines = source.lines().map(str::trim_start);
    let lines = lines.filter(|line| !line.starts_with("//"));
    let text: String = lines.flat_map(|line| [line, "\n"]).collect();
    let is_word = |sign: char| sign.is_alphanumeric() || matches!(sign, '_' | '$' | '#');
    let (mut small, mut quote, mut before) = (String::with_capacity(text.len()), None, '\n');
    let mut signs = text.chars().peekable();
    while let Some(sign) = signs.next() {
        let after = signs.peek().copied().unwrap_or('\n');
        // `a + +b` is not `a++b`.
        let keeps_apart = is_word(before) && is_word(after) || before == after;
        let ends_nothing = quote.is_some() || ";{,([".contains(before) || "})]\n".contains(after);
        match quote {
            _ if sign == '\n' && ends_nothing => continue,
            Some(open) if sign == open && before != '\\' => quote = None,
            None if matches!(sign, '\'' | '`') => quote = Some(sign),
            None if sign == ' ' && !keeps_apart => continue,
            _ => {}
        }
        small.push(sign);
        before = sign;
    }
    small
}

static GZIPPED: LazyLock<Vec<u8>> =
    LazyLock::new(|| gzipped(WIDGET.as_bytes(), Compression::best()));

/// A weak tag, because it covers both content encodings (RFC 9110, 8.8.3).
static TAG: LazyLock<EntityTag> =
    LazyLock::new(|| EntityTag::new_weak(hex::encode(&Sha256::digest(WIDGET.as_bytes())[..16])));

/// `GET /widget.js`
pub(super) async fn get(req: HttpRequest) -> HttpResponse {
    let known = Known::of(&req).has(&TAG);
    let mut response = if known {
        HttpResponse::NotModified()
    } else {
        HttpResponse::Ok()
    };
    response
        .insert_header(header::ETag(TAG.clone()))
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .insert_header((header::VARY, "Accept-Encoding"))
        // Browsers fetch modules by the rules of CORS.
        .insert_header((header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"))
        .insert_header(("Cross-Origin-Resource-Policy", "cross-origin"));
    if known {
        return response.finish();
    }
    response.content_type("text/javascript; charset=utf-8");
    if is_taken(&req) {
        response.insert_header(ContentEncoding::Gzip);
        response.body(GZIPPED.as_slice())
    } else {
        response.body(WIDGET.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::small;

    #[test]
    fn insignificant_whitespace_is_removed() {
        for (source, served) in [
            ("  // A comment.\n  let a = 1, b = { c };", "let a=1,b={c};"),
            ("a = {\n  b,\n};\nc()\n\nd()\n", "a={b,};c()\nd()"),
            (
                "css = `\n.a{b:c;\nd:e}\n.f{}`\ng()",
                "css=`.a{b:c;d:e}.f{}`\ng()",
            ),
            ("const $a = await #b ( c );", "const $a=await #b(c);"),
            ("a + +b - -c", "a+ +b- -c"),
            (
                "say('a , b') ; say(`${a } , b`)",
                "say('a , b');say(`${a } , b`)",
            ),
            (r"say('it\'s , this') ; a", "say('it\\'s , this');a"),
        ] {
            assert_eq!(small(source), served, "{source}");
        }
    }
}
