//! Tests of the sections `[site]`, `[server]` and `[tokens]`.

use super::super::{Config, Sources};
use super::*;

const SECRET: &str = "a-secret-that-only-these-tests-have";

/// The example of RFC 8410, section 10.1.
const PEM: &str = "-----BEGIN PUBLIC KEY-----\n\
    MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n\
    -----END PUBLIC KEY-----\n";

#[test]
fn keys_are_read_with_their_algorithms_and_secrets_are_not_printed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidings.toml");
    std::fs::write(folder.path().join("new.pem"), PEM).unwrap();
    std::fs::write(folder.path().join("alone"), format!("{SECRET}-alone\n")).unwrap();
    let text = format!(
        "[tokens]\nsecret_file = \"alone\"\n[tokens.keys.old]\nsecret = \"{SECRET}\"\n\
         [tokens.keys.new]\npublic_key_file = \"new.pem\"\n"
    );
    std::fs::write(&file, text).unwrap();

    let config = Config::load(&Sources { file: Some(file.clone()), ..Sources::default() }).unwrap();

    let keys = &config.tokens.keys;
    let ids: Vec<&str> = keys.iter().map(|key| key.id.as_str()).collect();
    assert_eq!(ids, ["default", "old", "new"]);
    let hs256 = |secret: &str| KeyMaterial::Hs256(Secret::new(secret));
    assert_eq!(keys[0].material, hs256(&format!("{SECRET}-alone")));
    assert_eq!(keys[1].material, hs256(SECRET));
    assert!(matches!(keys[2].material, KeyMaterial::EdDsa([0x19, 0xbf, ..])));
    let printed = format!("{config:?}{}", config.redacted);
    assert!(printed.contains("\"old\"") && !printed.contains(SECRET), "{printed}");
    assert_eq!(config.secret_files, [folder.path().join("alone"), file]);
}

#[test]
fn a_problem_of_a_key_is_reported_with_its_id() {
    let problems = |keys: &str| Config::parse(keys).unwrap_err().to_string();
    let key = |options: &str| format!("[tokens.keys.a]\n{options}\n");
    let sound = format!("secret = \"{SECRET}\"");

    for (text, expected) in [
        (key(""), "tokens.keys.a.secret: is missing"),
        (key("algorithm = \"HS256\""), "tokens.keys.a.algorithm: is not an option"),
        (key("secret = \"short\""), "tokens.keys.a.secret: is shorter than 32"),
        (
            key(&format!("{sound}\npublic_key_file = \"x\"")),
            "tokens.keys.a.public_key_file: cannot be set together with",
        ),
        (key("public_key_file = \"/none\""), "tokens.keys.a.public_key_file: /none cannot be read"),
        (key(&format!("{sound}\ncolor = \"red\"")), "tokens.keys.a.color: is not an option"),
        (
            format!("[tokens]\n{sound}\n[tokens.keys.default]\n{sound}"),
            "tokens.keys.default: has the id of the key tokens.secret",
        ),
        ("[tokens]\nkeys = [1]".into(), "tokens.keys: is not a table of tables [tokens.keys.NAME]"),
        ("[tokens]\nsecret = \"short\"".into(), "tokens.secret: is shorter than 32"),
        ("[tokens]\naudience = \"\"".into(), "tokens.audience: must not be empty"),
        (
            "[server]\ncors_origins = [\"app.example\"]".into(),
            "server.cors_origins: \"app.example\" is no origin",
        ),
        (
            "[server]\ncors_origins = [\"*\", \"https://a.example\"]".into(),
            "server.cors_origins: holds \"*\" beside others",
        ),
        ("[server]\nrate_limit_key = -1".into(), "server.rate_limit_key: -1 is not a whole number"),
    ] {
        let reported = problems(&text);
        assert!(reported.contains(expected), "{expected} in {reported}");
    }
}

#[test]
fn a_pem_of_another_key_type_is_rejected() {
    assert!(parse_ed25519_key(PEM).is_some());
    assert!(parse_ed25519_key(&PEM.replace("PUBLIC", "PRIVATE")).is_none());
    assert!(parse_ed25519_key(&PEM.replace("MCow", "MCox")).is_none());
    assert!(parse_ed25519_key(&PEM.replace("ZuE=", "Zg==")).is_none());
    assert!(parse_ed25519_key("").is_none());
}

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

#[test]
fn a_feedback_id_has_five_to_fifteen_plain_characters() {
    assert!(parse_feedback_id("tidings").is_some() && parse_feedback_id("art-news_2026").is_some());
    for text in ["news", "a:b:c", "sixteen-letters-x", "tidings ", "tidîngs"] {
        assert_eq!(parse_feedback_id(text), None, "{text}");
    }
}
