//! Keeps the pages of the demo and of the preview to this machine, and builds their responses.
//!
//! [`require_local_host`] requires a loopback name in every request. A foreign page can make its
//! own name resolve to this machine (DNS rebinding), but cannot make it a loopback name.

use actix_web::body::{BoxBody, EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{self, HeaderMap, HeaderName};
use actix_web::middleware::Next;
use actix_web::{Error, HttpResponse, HttpResponseBuilder};

use super::problem::{Code, Problem};

/// Shows an email as email programs do: pictures and links, but no scripts.
pub(super) const EMAIL_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src http: https: data:; \
                       sandbox allow-popups allow-popups-to-escape-sandbox; frame-ancestors 'self'";
/// Shows a picture, a script or a style sheet alone.
pub(super) const FILE_POLICY: &str = "default-src 'none'; sandbox";

/// Allows only resources of this server and pictures of the site `url`, and no inline scripts or
/// styles.
pub(super) fn page_policy(url: &str) -> String {
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' {url}; connect-src 'self'; \
         frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'"
    )
}

/// Answers with a page, a file or a picture that only this machine sees.
pub(super) fn local_response(kind: &str, policy: &str, body: impl Into<String>) -> HttpResponse {
    uncached()
        .content_type(kind)
        .insert_header((header::REFERRER_POLICY, "same-origin"))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::CONTENT_SECURITY_POLICY, policy))
        .body(body.into())
}

/// Starts a response that no cache keeps.
pub(super) fn uncached() -> HttpResponseBuilder {
    let mut response = HttpResponse::Ok();
    response.insert_header((header::CACHE_CONTROL, "no-store"));
    response
}

/// Passes requests whose host is a loopback name. Posts to the demo must come from its own page.
pub(super) async fn require_local_host<B: MessageBody>(
    req: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B, BoxBody>>, Error> {
    let host = single_header(req.headers(), &header::HOST).unwrap_or_default();
    // A target in absolute form overrides the header (RFC 9112, 3.2.2).
    let target = req.uri().authority();
    let is_local = is_loopback(host) && target.is_none_or(|target| is_loopback(target.as_str()));
    // The path as the router matches it, decoded.
    let path = req.match_info().as_str();
    let is_change = req.method() == Method::POST && path.starts_with("/demo/");
    let problem = if !is_local {
        let detail =
            "the demo answers only to the names of this machine, such as 127.0.0.1 and localhost";
        Problem::new(Code::Forbidden, detail).at("header Host")
    } else if is_change && !is_own_page(req.headers(), host) {
        let detail = "only the demo's own page may send this request; open /demo in a browser";
        Problem::new(Code::Forbidden, detail).at("header Origin")
    } else {
        return Ok(next.call(req).await?.map_into_left_body());
    };
    Ok(req.error_response(problem).map_into_right_body())
}

/// Returns whether a page of this server sent the request.
fn is_own_page(headers: &HeaderMap, host: &str) -> bool {
    let site = headers.get("Sec-Fetch-Site");
    let origin =
        single_header(headers, &header::ORIGIN).and_then(|origin| origin.strip_prefix("http://"));
    site.is_none_or(|site| site == "same-origin")
        && origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host))
}

/// Returns a header that occurs once.
fn single_header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name);
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Returns whether a host is a loopback name or address, with or without a port.
fn is_loopback(host: &str) -> bool {
    let url = url::Url::parse(&format!("http://{host}/"));
    let has_loopback_host = url.is_ok_and(|url| match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    });
    has_loopback_host && !host.contains(['@', '/', '\\', '?', '#'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loopback_host_may_have_a_port() {
        for host in [
            "127.0.0.1:8080",
            "127.0.0.1",
            "localhost",
            "LocalHost:80",
            "127.1.2.3:1",
            "[::1]",
            "[::1]:8080",
        ] {
            assert!(is_loopback(host), "{host}");
        }
    }

    #[test]
    fn other_hosts_are_not_loopback_hosts() {
        for host in [
            "",
            ":8080",
            "demo.example",
            "demo.example:8080",
            "localhost.example",
            "127.0.0.1.example",
            "127.0.0.1:80:80",
            "127.0.0.1:x",
            "127.0.0.1:+80",
            "127.0.0.1/x",
            "demo.example#@127.0.0.1",
            ":x@localhost",
            "0.0.0.0:8080",
            "192.168.0.1",
            "[::1",
            "[::1]x",
            "[::2]:8080",
            "::1",
            "user@localhost",
            "localhost, demo.example",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
