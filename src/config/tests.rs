//! Tests of the configuration: defaults, precedence of the layers, all problems at once, and hidden
//! secrets.

use super::*;
use crate::domain::{EventType, Route};

#[test]
fn the_documented_defaults_are_valid() {
    let config = Config::with_defaults();
    assert_eq!(config.window_days_back, 7);
    assert_eq!(config.digest.schedule.hour, 9);
    assert_eq!(config.archive_keep, TimeDelta::days(30));
}

#[test]
fn all_problems_are_reported_at_once() {
    let text = r#"
        store = "postgres://x"
        color = "red"
        [digest]
        hour = 24
        weekday = "caturday"
        [fanout]
        lease = "soon"
        [types."a.b"]
        route = "pigeon"
        rute = "digest"
    "#;
    let problems = Config::parse(text).unwrap_err().to_string();
    for expected in [
        "store: \"postgres://x\" is not sqlite:PATH",
        "color: is not an option",
        "digest.hour: 24 is not a whole number from 0 to 23",
        "digest.weekday: \"caturday\" is not a weekday",
        "fanout.lease: \"soon\" is not a duration",
        "\"pigeon\" is not never, immediate, batch or digest",
        "types.a.b.rute: is not an option",
    ] {
        assert!(problems.contains(expected), "{expected} in {problems}");
    }
}

#[test]
fn environment_variables_override_the_file_and_flags_override_both() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidings.toml");
    std::fs::write(&file, "[digest]\nhour = 6\nsection_items = 5\n[mail]\nfrom_name = \"File\"")
        .unwrap();
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    let config = Config::load(&Sources {
        file: Some(file),
        environment: vec![
            pair("TIDINGS_DIGEST_HOUR", "7"),
            pair("TIDINGS_MAIL_FROM_NAME", "Env"),
            pair("HOME", "x"),
        ],
        flags: vec![pair("mail.from_name", "Flag")],
    })
    .unwrap();
    assert_eq!(config.digest.schedule.hour, 7);
    assert_eq!(config.digest.caps.section, 5);
    assert_eq!(config.mail.sender.from_name, "Flag");
}

#[test]
fn relative_paths_start_at_the_folder_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidings.toml");
    std::fs::write(&file, "[mail]\ntemplates = \"/srv/templates\"").unwrap();
    let flag = ("mail.outbox".to_owned(), "here".to_owned());

    let config =
        Config::load(&Sources { file: Some(file), flags: vec![flag], ..Sources::default() })
            .unwrap();

    assert_eq!(config.store, StoreUrl::Sqlite(folder.path().join("tidings.db")));
    assert_eq!(config.mail.templates, Some("/srv/templates".into()));
    assert_eq!(config.mail.outbox, PathBuf::from("here"));
}

#[test]
fn an_unknown_variable_with_our_prefix_is_an_error() {
    let environment = vec![("TIDINGS_DIGEST_HUOR".to_owned(), "7".to_owned())];
    let problems = Config::load(&Sources { environment, ..Sources::default() }).unwrap_err();
    assert!(problems.to_string().contains("TIDINGS_DIGEST_HUOR"));
}

#[test]
fn secrets_are_not_printed() {
    let text = r#"
        store = "mongodb://root:hunter2@db.example/x"
        server.key = "s3cret"
        server.link_secret = "signed-with-this-one"
        mail.from = "ada@example.org"
        [hooks]
        mailgun_key = "key-mailgun"
        postmark_user = "hook"
        postmark_password = "key-postmark"
        resend_secret = "whsec_a2V5LXJlc2VuZA=="
    "#;
    let config = Config::parse(text).unwrap();
    for printed in [config.redacted.clone(), format!("{config:?}")] {
        for secret in ["hunter2", "s3cret", "signed-with", "ada@", "key-", "a2V5", "107, 101"] {
            assert!(!printed.contains(secret), "{secret} in {printed}");
        }
    }
}

#[test]
fn types_keep_the_order_of_the_file() {
    let config =
        Config::parse("[types.Zebra]\nheading = \"Z\"\n[types.Ant]\nroute = \"never\"").unwrap();
    let (zebra, ant) = (EventType::new("Zebra").unwrap(), EventType::new("Ant").unwrap());
    assert!(config.policies.section_order(&zebra) < config.policies.section_order(&ant));
    assert_eq!(config.policies.policy(&ant).route, Route::Never);
}

#[test]
fn an_invalid_phrase_is_reported_with_the_other_problems() {
    let good = Config::parse("[types.Comment]\nphrase = \"commented on\"\n[types.Like]").unwrap();
    let phrase = |kind: &str| {
        let policy = good.policies.policy(&EventType::new(kind).unwrap());
        policy.phrase.as_ref().map(|phrase| phrase.as_str())
    };
    assert_eq!((phrase("Comment"), phrase("Like")), (Some("commented on"), None));

    let text = format!(
        "[types.A]\nphrase = \"com\\nmented\"\n[types.B]\nphrase = \"{}\"\nroute = \"x\"",
        "x".repeat(61)
    );
    let problems = Config::parse(&text).unwrap_err().to_string();
    for expected in ["types.A.phrase: ", "types.B.phrase: ", "types.B.route: "] {
        assert!(problems.contains(expected), "{problems}");
    }
    assert!(problems.contains("one line of 1 to 60 characters"), "{problems}");
}

#[test]
fn days_inside_the_window_cannot_be_archived() {
    let problems = Config::parse("[archive]\nkeep = \"3d\"").unwrap_err().to_string();
    assert!(problems.contains("archive.keep: is shorter than the window of 8 days"), "{problems}");
}

#[test]
fn webhook_keys_are_read_from_files_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidings.toml");
    std::fs::write(folder.path().join("key"), " from-a-file \n").unwrap();
    std::fs::write(&file, "[hooks]\nmailgun_key_file = \"key\"").unwrap();
    let sources = Sources { file: Some(file), ..Sources::default() };
    let config = Config::load(&sources).unwrap();
    assert_eq!(config.hooks.keys.get("mailgun"), Some(&b"from-a-file"[..]));

    let text = r#"
        [hooks]
        sendgrid_public_key = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE"
        postmark_user = "hook"
        resend_secret = "whsec_???"
        ses_topic = "tidings"
    "#;
    let problems = Config::parse(text).unwrap_err().to_string();
    for expected in [
        "hooks.sendgrid_public_key: is not the verification key",
        "hooks.postmark_password: is missing",
        "hooks.resend_secret: is not a signing secret",
        "hooks.ses_topic: is not the name of a topic",
    ] {
        assert!(problems.contains(expected), "{expected} in {problems}");
    }
    assert!(!problems.contains("???"), "{problems}");
}

#[test]
fn a_sqlite_url_with_slashes_is_rejected() {
    let problems = Config::parse("store = \"sqlite://tidings.db\"").unwrap_err();
    let rooted = Config::parse("store = \"sqlite:/var/lib/tidings.db\"").unwrap();

    let message = problems.to_string();
    assert!(message.contains("\"sqlite://tidings.db\" is not sqlite:PATH"), "{message}");
    assert_eq!(rooted.store, StoreUrl::Sqlite("/var/lib/tidings.db".into()));
}

#[test]
fn one_invalid_value_is_reported_once() {
    for (text, expected) in [
        ("types.T.window = 5", "types.T.window: 5 is not a duration such as"),
        ("archive.keep = \"30\"", "archive.keep: \"30\" is not a duration"),
        ("mail.from = 7", "mail.from: 7 is not text in quotes"),
        ("digest.cadence = 7", "digest.cadence: 7 is not text in quotes"),
    ] {
        let problems = Config::parse(text).unwrap_err().to_string();

        assert!(
            problems.starts_with("the configuration has a problem:") && problems.contains(expected),
            "{text}: {problems}"
        );
    }
}

#[test]
fn variables_that_kubernetes_sets_for_a_service_are_ignored() {
    let loaded = |name: &str| {
        let environment = vec![(name.to_owned(), "tcp://10.0.0.1:8080".to_owned())];
        let sources = Sources { environment, ..Sources::default() };
        Config::load(&sources).map_err(|problems| problems.to_string())
    };

    for name in [
        "TIDINGS_SERVICE_HOST",
        "TIDINGS_SERVICE_PORT_HTTP",
        "TIDINGS_PORT",
        "TIDINGS_PORT_8080_TCP_PROTO",
    ] {
        assert!(loaded(name).is_ok(), "{name}");
    }
    for (name, what) in [
        ("TIDINGS_DIGEST_HUOR", "did you mean TIDINGS_DIGEST_HOUR?"),
        ("TIDINGS_COLOR", "`tidings config --defaults` lists all"),
    ] {
        let problems = loaded(name).unwrap_err();
        assert!(problems.contains(what), "{problems}");
    }
}

#[test]
fn an_unknown_option_causes_a_suggestion() {
    for (text, meant) in [
        ("digest.huor = 7", "did you mean digest.hour?"),
        ("types.T.rout = \"batch\"", "did you mean types.T.route?"),
        ("types.Comment.windw = \"5m\"", "did you mean types.Comment.window?"),
        ("types.T.close_att = 3", "did you mean types.T.close_at?"),
        ("types.T.brandd = true", "did you mean types.T.branded?"),
        ("color = 1", "`tidings config` lists all"),
    ] {
        let problems = Config::parse(text).unwrap_err().to_string();

        assert!(problems.contains(meant), "{text}: {problems}");
    }
}

#[test]
fn types_have_categories_can_be_mandatory_and_can_skip_the_feed() {
    let text = r#"
        [types.Plain]
        [types.Notice]
        category = " Account "
        mandatory = "We have to tell you"
        [types.Alarm]
        mandatory = true
        [types.Quiet]
        mandatory = false
        feed = false
        category = ""
    "#;
    let config = Config::parse(text).unwrap();
    let of = |name: &str| {
        let policy = config.policies.policy(&EventType::stored(name));
        let reason = policy.mandatory.as_ref().map(|mandate| mandate.as_str());
        let category = policy.category.as_ref().map(|category| category.as_str());
        (category, reason, policy.feed)
    };

    assert_eq!(of("Plain"), (None, None, true));
    let notice = (Some("Account"), Some("We have to tell you"), true);
    assert_eq!(of("Notice"), notice);
    assert_eq!(of("Alarm"), (None, Some("This cannot be turned off"), true));
    assert_eq!(of("Quiet"), (None, None, false));

    let long = "x".repeat(121);
    let text = format!(
        "[types.A]\ncategory = \"{}\"\nmandatory = \"{long}\"\nfeed = \"no\"\n[types.B]\nmandatory = 3",
        &long[..61]
    );
    let problems = Config::parse(&text).unwrap_err().to_string();
    for expected in [
        "types.A.category: \"xxx",
        "is not a name such as \"Community\": one line of 1 to 60 characters",
        "types.A.mandatory: \"xxx",
        "is not true, false, or the reason that people read: one line of 1 to 120 characters",
        "types.A.feed: \"no\" is not true or false",
        "types.B.mandatory: 3 is not",
    ] {
        assert!(problems.contains(expected), "{expected} in {problems}");
    }
}

#[test]
fn a_type_without_feed_and_email_causes_a_warning() {
    let quiet = "[types.Quiet]\nroute = \"never\"\nfeed = false";
    let warnings = Config::parse(quiet).unwrap().warnings;
    let options: Vec<_> = warnings.iter().map(|one| one.option.as_str()).collect();
    assert!(options.contains(&"types.Quiet.feed"), "{options:?}");
}

#[test]
fn a_badly_saved_key_file_is_rejected_with_its_option() {
    let folder = tempfile::tempdir().unwrap();
    let key = "0123456789abcdef0123456789abcdef";
    let pem = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";
    let file = folder.path().join("key");
    for option in [
        "server.key",
        "server.link_secret",
        "tokens.secret",
        "mail.key",
        "mail.smtp_password",
        "hooks.mailgun_key",
    ] {
        let problems = |content: &str| {
            std::fs::write(&file, content).unwrap();
            let text = format!("{option}_file = {:?}", file.display().to_string());
            match Config::parse(&text) {
                Ok(_) => String::new(),
                Err(problems) => problems.to_string(),
            }
        };
        for content in
            [key.to_owned(), format!("{key}\n"), format!("{key}\r\n"), format!(" {key}\u{a0}\n\n")]
        {
            assert!(
                !problems(&content).contains(&format!("{option}_file")),
                "{option}: {content:?}"
            );
        }
        for (content, why) in [
            (format!("\u{feff}{key}\n"), "byte order mark"),
            (format!("{key}\nsecond line\n"), "line break"),
            (format!("{key}\r\nsecond line"), "line break"),
            (format!("0123\u{a0}{key}"), "U+00A0"),
            (format!("0123\u{200b}{key}"), "U+200B"),
            (format!("0123\t{key}"), "U+0009"),
            (pem.to_owned(), "PEM"),
            (" \n".to_owned(), "is empty"),
        ] {
            let problems = problems(&content);
            let named = problems.contains(&format!("{option}_file: "));
            assert!(named && problems.contains(why), "{option} {why}: {problems}");
            assert!(!problems.contains(key), "{problems}");
        }
    }
    for (value, why) in [
        (format!("{key}\\n"), "line break"),
        (format!("\u{a0}{key}"), "begins or ends"),
        (format!("{key} "), "begins or ends"),
        (format!("0123\u{202e}{key}"), "U+202E"),
    ] {
        let problems = Config::parse(&format!("server.key = \"{value}\"")).unwrap_err();
        let problems = problems.to_string();
        assert!(problems.contains("server.key: ") && problems.contains(why), "{problems}");
    }
}

/// Values of a platform's secrets and of copied texts.
#[test]
fn delivered_values_lose_their_line_end_and_other_invisible_ends_are_rejected() {
    let key = "0123456789abcdef0123456789abcdef";
    let loaded = |name: &str, value: &str| {
        let environment = vec![(name.to_owned(), value.to_owned())];
        let sources = Sources { environment, ..Sources::default() };
        Config::load(&sources).map_err(|problems| problems.to_string())
    };

    for end in ["", "\n", "\r\n", "\n\n"] {
        let config = loaded("TIDINGS_SERVER_KEY", &format!("{key}{end}")).unwrap();
        assert_eq!(config.server.key.unwrap().expose(), key);
        let config = loaded("TIDINGS_STORE", &format!("mongodb://h/t{end}")).unwrap();
        assert_eq!(config.store, StoreUrl::Mongo("mongodb://h/t".into()));
        let config = loaded("TIDINGS_DIGEST_HOUR", &format!("7{end}")).unwrap();
        assert_eq!(config.digest.schedule.hour, 7);
    }
    for (variable, option) in [
        ("TIDINGS_SERVER_KEY", "server.key"),
        ("TIDINGS_STORE", "store"),
        ("TIDINGS_SITE_NAME", "site.name"),
        ("TIDINGS_MAIL_SMTP_USER", "mail.smtp_user"),
    ] {
        for value in ["\u{feff}KEY", "KEY\u{a0}", "KEY\u{200b}\n"] {
            let value = value.replace("KEY", key);
            let problems = loaded(variable, &value).unwrap_err();
            let named = problems.contains(&format!("{option}: begins or ends with an invisible"));
            assert!(named && !problems.contains(key), "{option}: {problems}");
        }
    }
    let problems = loaded("TIDINGS_SERVER_KEY", &format!("{key}\u{fffd}")).unwrap_err();
    assert!(problems.contains("server.key: holds bytes that are not UTF-8"));
    for store in ["sqlite:a.db ", " mongodb://h/t", "mongodb://h/t\nx"] {
        assert!(loaded("TIDINGS_STORE", store).is_err(), "{store:?}");
    }
    // An emoji may end with a character that is invisible alone.
    assert!(loaded("TIDINGS_SITE_NAME", "Art \u{2764}\u{fe0f}").is_ok());
}

#[test]
fn a_file_with_a_byte_order_mark_and_crlf_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidings.toml");
    std::fs::write(&file, "\u{feff}[site]\r\nname = \"Art\"\r\n").unwrap();

    let config = Config::load(&Sources { file: Some(file), ..Sources::default() });

    assert_eq!(config.unwrap().site.name, "Art");
}

#[test]
fn a_mongodb_url_after_sqlite_is_rejected_without_printing_its_password() {
    for store in
        ["sqlite:mongodb://u:hunter2@h", "sqlite:mongodb:/u:hunter2@h/t", "sqlite://u:hunter2@h"]
    {
        assert_eq!(StoreUrl::parse(store), None, "{store}");
        let problems = Config::parse(&format!("store = {store:?}")).unwrap_err();
        let problems = problems.to_string();
        assert!(problems.contains("store: ") && !problems.contains("hunter2"), "{problems}");
    }
    assert!(StoreUrl::parse("sqlite:mongodb.db").is_some());
}
