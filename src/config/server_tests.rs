//! Tests of the section `[server]`.

use super::super::Config;
use super::*;

#[test]
fn a_public_url_uses_https_or_loopback() {
    for (text, expected) in [
        ("https://news.example.org", "https://news.example.org"),
        ("https://news.example.org/", "https://news.example.org"),
        ("https://example.org:8443/mail/", "https://example.org:8443/mail"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://localhost:8080", "http://localhost:8080"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("https://[2001:db8::1]", "https://[2001:db8::1]"),
    ] {
        assert_eq!(parse_public_url(text).as_deref(), Some(expected));
    }
    for text in [
        "news.example.org",
        "http://news.example.org",
        "http://localhost.example.org",
        "http://127.0.0.1.example.org",
        "https://",
        "https:///u",
        "https://example.org?x=1",
        "https://example.org/#x",
        "https://user:pass@example.org",
        "https://example.org:99999",
        "https://exa mple.org",
        "https://example.org/\"><b>",
        "https://[::1",
        "ftp://example.org",
    ] {
        assert_eq!(parse_public_url(text), None, "{text}");
    }
}

#[test]
fn the_grace_has_a_range_and_should_exceed_the_timeouts_of_all_brands() {
    for bad in ["0s", "500ms", "11m", "soon"] {
        let problems = Config::parse(&format!("server.grace = {bad:?}")).unwrap_err();
        let expected = format!("server.grace: {bad:?} ");
        assert!(problems.to_string().contains(&expected), "{problems}");
    }
    let relay = "provider = \"smtp\"\nfrom = \"a@b.org\"\nsmtp_host = \"b.org\"\n";
    let slow = format!("{relay}timeout = \"1m\"\n");
    let brand = format!("site.name = \"A\"\n[brands.acme.mail]\n{slow}");
    for (text, is_slow) in [
        (format!("[mail]\n{relay}"), false),
        (format!("[mail]\n{slow}"), true),
        (format!("server.grace = \"61s\"\n[mail]\n{slow}"), false),
        (format!("[brands.acme]\n{brand}"), true),
        // The outbox makes no calls.
        ("mail.timeout = \"1m\"".to_owned(), false),
    ] {
        let warnings = Config::parse(&text).unwrap().warnings;
        let mut options = warnings.iter().map(|warning| &warning.option);
        let warns = options.any(|option| option == "server.grace");
        assert_eq!(warns, is_slow, "{text}: {warnings:?}");
    }
    assert!(Config::with_defaults().server.grace > Config::with_defaults().mail.timeout);
}

#[test]
fn an_origin_has_the_form_that_browsers_send() {
    for text in [
        "*",
        "https://app.example",
        "https://app.example:8443",
        "http://localhost:5173",
        "http://[::1]:3000",
    ] {
        assert!(is_origin(text), "{text}");
    }
    for text in [
        "app.example",
        "https://",
        "https://:8443",
        "https://app.example/",
        "https://App.example",
        "https://app.example:443",
        "http://app.example:80",
        "https://*.example",
        "https://a.example,https://b.example",
        "null",
    ] {
        assert!(!is_origin(text), "{text}");
    }
}
