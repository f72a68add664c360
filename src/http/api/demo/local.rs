//! Checks that a request comes from this machine, and from the demo's own page.
//!
//! Browsers send the true host (`Host`) and the true origin of the page (`Origin`). A foreign page
//! can make its own name resolve to this machine (DNS rebinding), but cannot make it a loopback
//! name.

use std::future::{Ready, ready};

use actix_web::body::{BoxBody, EitherBody, MessageBody};
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderMap, HeaderName};
use actix_web::middleware::Next;
use actix_web::{Error, FromRequest, HttpRequest};

use crate::http::api::problem::{Code, Problem};

/// Passes requests whose host is a loopback name.
pub(in crate::http::api) async fn local<B: MessageBody>(
    req: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B, BoxBody>>, Error> {
    let named = only(req.headers(), &header::HOST).is_some_and(is_local);
    // A target in absolute form overrides the header (RFC 9112, 3.2.2).
    let asked = req.uri().authority();
    if named && asked.is_none_or(|asked| is_local(asked.as_str())) {
        return Ok(next.call(req).await?.map_into_left_body());
    }
    let detail =
        "the demo answers to the names of this machine alone, such as 127.0.0.1 and localhost";
    let problem = Problem::new(Code::Forbidden, detail).at("header Host");
    Ok(req.error_response(problem).map_into_right_body())
}

/// An extractor for requests that only the demo's own page may send.
pub(in crate::http::api) struct Home;

impl FromRequest for Home {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        let headers = req.headers();
        let site = HeaderName::from_static("sec-fetch-site");
        let site = headers.get(site);
        let is_same = site.is_none_or(|site| site == "same-origin");
        let host = only(headers, &header::HOST).unwrap_or_default();
        let origin =
            only(headers, &header::ORIGIN).and_then(|origin| origin.strip_prefix("http://"));
        let is_own = origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host));
        ready(if is_same && is_own {
            Ok(Self)
        } else {
            let detail = "only the demo's own page may ask this; open /demo in a browser";
            Err(Problem::new(Code::Forbidden, detail).at("header Origin"))
        })
    }
}

/// Returns a header that occurs once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name);
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Whether a host is this machine's own, with or without a port.
fn is_local(host: &str) -> bool {
    let url = url::Url::parse(&format!("http://{host}/"));
    let is_loopback = url.is_ok_and(|url| match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    });
    is_loopback && !host.contains(['@', '/', '\\', '?', '#'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loopback_host_is_local_with_or_without_a_port() {
        for host in [
            "127.0.0.1:8080",
            "127.0.0.1",
            "localhost",
            "LocalHost:80",
            "127.1.2.3:1",
            "[::1]",
            "[::1]:8080",
        ] {
            assert!(is_local(host), "{host}");
        }
    }

    #[test]
    fn other_hosts_are_not_local() {
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
            assert!(!is_local(host), "{host}");
        }
    }
}
