//! `GET /widget.js`, the element that shows a feed on a page, and `GET /openapi.json`.
//!
//! They contain no user data, so any page of any origin may load the widget. Browsers revalidate it
//! by its entity tag, so it is never stale. `docs/widget.md` documents the element.

use std::sync::LazyLock;

use actix_web::http::header::{self, ContentEncoding};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};

use super::response::{Compression, accepts_gzip, entity_tag, gzipped, hash, is_known};
use super::route::routes;
use crate::app::App;
use crate::wire::OPENAPI;

routes! {ROUTES under "":
    "/widget.js" => {get open: widget}
    "/openapi.json" => {get open: openapi}
}

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

static WIDGET_HASH: LazyLock<[u8; 16]> = LazyLock::new(|| hash(WIDGET.as_bytes()));

/// `GET /widget.js`
async fn widget(req: HttpRequest) -> HttpResponse {
    let is_known = is_known(&req, &WIDGET_HASH);
    let mut response = match is_known {
        true => HttpResponse::NotModified(),
        false => HttpResponse::Ok(),
    };
    response
        .insert_header(header::ETag(entity_tag(&WIDGET_HASH)))
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .insert_header((header::VARY, "Accept-Encoding"))
        // Browsers fetch modules by the rules of CORS.
        .insert_header((header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"))
        .insert_header(("Cross-Origin-Resource-Policy", "cross-origin"));
    if is_known {
        return response.finish();
    }
    response.content_type("text/javascript; charset=utf-8");
    if accepts_gzip(&req) {
        response.insert_header(ContentEncoding::Gzip);
        response.body(GZIPPED.as_slice())
    } else {
        response.body(WIDGET.as_str())
    }
}

/// `GET /openapi.json`
async fn openapi(app: Data<App>) -> HttpResponse {
    let path = app.config.server.public_path();
    let servers = |path: &str| format!(r#""servers": [{{"url": "{path}"}}]"#);
    let mut response = HttpResponse::Ok();
    response
        .content_type("application/json")
        .insert_header((header::CACHE_CONTROL, "no-cache"));
    match path {
        "" => response.body(OPENAPI),
        path => response.body(OPENAPI.replacen(&servers("/"), &servers(path), 1)),
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
