//! Tests of `[mail]`: missing settings are reported before the first email, and no key is printed.

use super::super::{Config, DEFAULTS};
use super::*;

fn problems(text: &str) -> String {
    Config::parse(text).unwrap_err().to_string()
}

#[test]
fn a_dkim_selector_is_a_dns_name() {
    for (text, fits) in [("k1", true), ("S1.2026", true), ("a b", false), (".", false)] {
        let config = Config::parse(&format!("mail.dkim_selector = {text:?}"));
        assert_eq!(config.is_ok(), fits, "{text}");
    }
}

#[test]
fn list_ids_end_in_a_domain() {
    let of = |more: &str| {
        let config = Config::parse(&format!("mail.from = \"a@Bücher.example\"\n{more}"));
        config.map(|config| config.mail.list_domain)
    };
    assert_eq!(of("").unwrap(), "xn--bcher-kva.example");
    let chosen = of("mail.list_domain = \"Lists.art.example\"");
    assert_eq!(chosen.unwrap(), "lists.art.example");
    for bad in ["a b", "art..example", "art.example>", &"a.".repeat(100)] {
        assert!(of(&format!("mail.list_domain = \"{bad}\"")).is_err(), "{bad}");
    }
}

#[test]
fn the_default_provider_is_the_outbox() {
    let mail = Config::with_defaults().mail;
    assert!(matches!(mail.transport, Transport::Outbox));
}

#[test]
fn all_missing_provider_options_are_reported_at_once() {
    let mailgun = problems("[mail]\nprovider = \"mailgun\"\ntimeout = \"4m\"");
    for expected in [
        "mail.from: is still the default; Mailgun sends only for an address that you own",
        "mail.key: is needed with Mailgun; mail.key_file names a file that holds it",
        "mail.domain: is needed with Mailgun",
        "mail.timeout: must be at most half of delivery.lease",
    ] {
        assert!(mailgun.contains(expected), "{expected} in {mailgun}");
    }
    let smtp = problems("[mail]\nprovider = \"smtp\"\nfrom = \"a@b.org\"\nsmtp_user = \"me\"");
    for expected in
        ["mail.smtp_host: is needed with SMTP", "mail.smtp_password: is needed with mail.smtp_user"]
    {
        assert!(smtp.contains(expected), "{expected} in {smtp}");
    }
}

#[test]
fn provider_urls_use_https_or_loopback() {
    let sendgrid = |url: &str| {
        Config::parse(&format!(
            "[mail]\nprovider = \"sendgrid\"\nkey = \"k\"\nfrom = \"a@b.org\"\nurl = \"{url}\""
        ))
    };
    for good in
        ["https://eu.example", "http://127.0.0.1:4010/", "http://localhost:1", "http://[::1]:9/x"]
    {
        assert!(sendgrid(good).is_ok(), "{good}");
    }
    for bad in [
        "http://example.org",
        "http://127.0.0.1.example.org",
        "http://evil.example?@localhost",
        "http://evil.example#@localhost",
        "http://evil.example\\\\@localhost",
        "http://localhost@evil.example",
        "ftp://x",
        "https://",
    ] {
        let error = sendgrid(bad).unwrap_err().to_string();
        assert!(error.contains("mail.url"), "{bad}: {error}");
    }
    let plain = |host: &str| {
        Config::parse(&format!(
            "[mail]\nprovider = \"smtp\"\nfrom = \"a@b.org\"\nsmtp_tls = \"none\"\nsmtp_host = \"{host}\""
        ))
    };
    assert!(plain("127.0.0.1").is_ok());
    let error = plain("mx.example.org").unwrap_err().to_string();
    assert!(error.contains("mail.smtp_tls"), "{error}");
}

#[test]
fn options_that_the_provider_does_not_support_are_errors() {
    let text = r#"
        [mail]
        provider = "postmark"
        key = "k"
        from = "a@b.org"
        region = "eu"
        stream = "a b"
        calls_per_second = 5000
    "#;
    let problems = problems(text);
    for expected in [
        "mail.region: Postmark has one API for all regions",
        "mail.stream: \"a b\" is not up to 64 letters, digits, - and _",
        "mail.calls_per_second: 5000 is not a whole number from 0 to 1000",
    ] {
        assert!(problems.contains(expected), "{expected} in {problems}");
    }
}

#[test]
fn keys_passwords_and_user_names_are_not_printed() {
    let text = r#"
        [mail]
        provider = "smtp"
        from = "ada@example.org"
        key = "sk-123"
        smtp_host = "mx.example.org"
        smtp_user = "ada@example.org"
        smtp_password = "hunter2"
    "#;
    let config = Config::parse(text).unwrap();
    for printed in [config.redacted.clone(), format!("{config:?}")] {
        for secret in ["sk-123", "hunter2", "ada@"] {
            assert!(!printed.contains(secret), "{secret} in {printed}");
        }
    }
}

#[test]
fn environment_variables_set_lists() {
    let origins = "https://a.example, https://b.example".to_owned();
    let environment = vec![("TIDINGS_SERVER_CORS_ORIGINS".to_owned(), origins)];
    let config =
        Config::load(&super::super::Sources { environment, ..Default::default() }).unwrap();
    let expected = ["https://a.example", "https://b.example"];
    assert_eq!(config.server.cors_origins, expected);
}

#[test]
fn each_provider_has_its_own_default_rate() {
    let pace = |provider: &str, more: &str| {
        let text =
            format!("[mail]\nprovider = \"{provider}\"\nkey = \"k\"\nfrom = \"a@b.org\"\n{more}");
        Config::parse(&text).unwrap().mail.calls_per_second.get()
    };
    let usual = [("resend", 2), ("postmark", 10), ("sendgrid", 100)];
    for (provider, calls) in usual {
        assert_eq!(pace(provider, ""), calls, "{provider}");
    }
    let key = "access_key_id = \"AKIAIOSFODNN7EXAMPLE\"\nregion = \"eu-west-1\"";
    assert_eq!(pace("ses", key), 14);
    assert_eq!(pace("mailgun", "domain = \"mg.example.org\""), 60);
    assert_eq!(pace("resend", "calls_per_second = 7"), 7);
}

#[test]
fn every_provider_option_is_documented_with_its_default() {
    let defaults: toml::Table = DEFAULTS.parse().unwrap();
    let default = |path: &str| {
        let (section, name) = path.split_once('.').unwrap();
        let value = defaults[section].get(name).and_then(|value| value.as_str());
        value.unwrap_or_else(|| panic!("{path} is not in config.default.toml"))
    };
    for provider in PROVIDERS {
        let named = format!("\"{}\"", provider.name);
        assert!(DEFAULTS.contains(&named), "{named}");
        for option in provider.options {
            let expected = match option.if_empty {
                IfEmpty::Default(value) => value,
                IfEmpty::Required(_) => "",
            };
            assert_eq!(default(option.path), expected, "{}", option.path);
        }
        let (first, last) = provider.hook_key.options();
        for path in [first, last, &format!("{last}_file")] {
            assert_eq!(default(path), "", "{path}");
        }
    }
}

#[test]
fn a_region_must_belong_to_the_provider() {
    let region = |provider: &str, region: &str| {
        let text = format!(
            "[mail]\nprovider = \"{provider}\"\nkey = \"k\"\nfrom = \"a@b.org\"\nregion = \"{region}\""
        );
        Config::parse(&text).map(|config| match config.mail.transport {
            Transport::Api(api) => api.base_url,
            Transport::Outbox | Transport::Smtp(_) => String::new(),
        })
    };
    let why = |provider: &str, name: &str| region(provider, name).unwrap_err().to_string();

    assert_eq!(region("sendgrid", "us").unwrap(), "https://api.sendgrid.com");
    assert_eq!(region("sendgrid", "eu").unwrap(), "https://api.eu.sendgrid.com");
    assert_eq!(region("outbox", "eu").unwrap(), "");
    for provider in ["sendgrid", "outbox"] {
        let why = why(provider, "asia");
        assert!(why.contains("mail.region: \"asia\" is not us or eu"), "{why}");
    }
    let why = why("resend", "eu");
    assert!(
        why.contains("mail.region: Resend has one API for all regions; leave it \"us\""),
        "{why}"
    );
    let why = self::problems("[mail]\nprovider = \"ses\"");
    for expected in [
        "mail.region: \"us\" is not a region of AWS such as eu-west-1",
        "mail.access_key_id: is needed with Amazon SES",
        "mail.key: is needed with Amazon SES",
    ] {
        assert!(why.contains(expected), "{expected} in {why}");
    }
}
