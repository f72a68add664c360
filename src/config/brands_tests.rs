//! Tests of brands: overridden, inherited, and never inherited options.

use crate::config::{Config, Sources, Transport};
use crate::domain::BrandName;

const DEFAULT: &str = r##"
    [site]
    name = "Gallery"
    url = "https://gallery.example"
    postal_address = "1 Art Road"
    accent = "#123456"
    [server]
    public_url = "https://mail.gallery.example"
    link_secret = "signed-with-this-one"
    [mail]
    provider = "mailgun"
    domain = "mg.gallery.example"
    key = "key-of-the-gallery"
    from = "news@gallery.example"
    from_name = "The Gallery"
    reply_to = "desk@gallery.example"
    list_domain = "lists.gallery.example"
    [hooks]
    mailgun_key = "hook-of-the-gallery"
"##;

fn config(brands: &str) -> Config {
    Config::parse(&format!("{DEFAULT}{brands}")).unwrap()
}

fn problems(brands: &str) -> String {
    let refused = Config::parse(&format!("{DEFAULT}{brands}"));
    refused.unwrap_err().to_string()
}

fn acme(config: &Config) -> Config {
    config.for_brand(Some(&BrandName::new("acme").unwrap())).unwrap()
}

fn api(config: &Config) -> &crate::config::ProviderApi {
    match &config.mail.transport {
        Transport::Api(api) => api,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_brand_inherits_unset_options_from_the_default() {
    let config = config("[brands.acme]\nsite.accent = \"#654321\"\n");

    let own = acme(&config);

    assert_eq!(own.site.accent, "#654321");
    assert_eq!(own.site.name, "Gallery");
    assert_eq!(own.site.url.as_deref(), Some("https://gallery.example"));
    assert_eq!(own.mail.sender.from, config.mail.sender.from);
    assert_eq!(own.mail.sender.from_name, "The Gallery");
    assert_eq!(own.mail.sender.reply_to, config.mail.sender.reply_to);
    assert_eq!(own.server.public_url, config.server.public_url);
    assert_eq!(api(&own).api_key.expose(), "key-of-the-gallery");
    assert_eq!((&own.digest.caps, own.window_days_back), (&config.digest.caps, 7));
}

#[test]
fn a_brand_with_its_own_name_or_sender_inherits_no_identity_options() {
    let config = config(
        "[brands.acme]\nsite.name = \"Acme\"\nmail.from = \"hello@acme.example\"\nserver.public_url = \"https://mail.acme.example/\"\n",
    );

    let own = acme(&config);

    assert_eq!((own.site.url, own.site.logo), (None, None));
    assert_eq!(own.mail.sender.from_name, "Acme");
    assert_eq!(own.mail.sender.reply_to, None);
    assert_eq!(own.mail.list_domain, "acme.example");
    let public_url = own.server.public_url.as_deref();
    assert_eq!(public_url, Some("https://mail.acme.example"));
    assert_eq!(own.site.postal_address.as_deref(), Some("1 Art Road"));
}

#[test]
fn a_brand_with_its_own_provider_inherits_no_key() {
    let without = problems("[brands.acme.mail]\nprovider = \"postmark\"\n");
    let with = config(
        "[brands.acme.mail]\nprovider = \"postmark\"\nkey = \"key-of-acme\"\n[brands.acme.hooks]\npostmark_user = \"hook\"\npostmark_password = \"hook-of-acme\"\n",
    );

    let own = acme(&with);

    assert!(without.contains("brands.acme.mail.key: is needed with Postmark"), "{without}");
    assert_eq!(api(&own).provider.name, "postmark");
    assert_eq!(api(&own).api_key.expose(), "key-of-acme");
    assert_eq!(with.hooks.keys.get("postmark"), None);
    assert_eq!(own.hooks.keys.get("postmark"), Some(&b"hook:hook-of-acme"[..]));
    assert_eq!(with.for_brand(None).unwrap().mail.sender.from, with.mail.sender.from);
}

#[test]
fn a_brands_key_file_replaces_the_inherited_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "key-of-acme\n").unwrap();

    let config = config(&format!("[brands.acme.mail]\nkey_file = {file:?}\n"));

    assert_eq!(api(&acme(&config)).api_key.expose(), "key-of-acme");
    assert_eq!(config.secret_files, [file]);
}

#[test]
fn problems_of_a_brand_are_reported_at_once_with_its_name() {
    let message = problems(
        r#"
        [brands.Acme]
        site.name = "x"
        [brands.acme]
        color = "red"
        mail.from = "nobody"
        mail.fron = "news@acme.example"
        server.key = "not of a brand"
        [brands.umbra.site]
        accent = "red"
        name = ""
        "#,
    );

    for expected in [
        "brands.Acme: brand \"Acme\" is not 1 to 40 lower-case letters",
        "brands.acme.color: is not an option",
        "brands.acme.mail.from: ",
        "brands.acme.mail.fron: is not an option; did you mean mail.from?",
        "brands.acme.server.key: is not an option",
        "brands.umbra.site.accent: \"red\" is not a color",
        "brands.umbra.site.name: must not be empty",
    ] {
        assert!(message.contains(expected), "{expected} in {message}");
    }
    assert!(!message.contains("not of a brand"), "{message}");
}

#[test]
fn a_problem_of_the_default_is_reported_once() {
    let message = problems("[brands.acme]\nsite.accent = \"#000000\"\n[digest]\nhour = 99\n");
    let inherited = Config::parse("mail.timeout = \"9h\"\n[brands.acme]\nsite.name = \"A\"\n");

    assert!(!message.contains("brands"), "{message}");
    let inherited = inherited.unwrap_err().to_string();
    assert_eq!(inherited.matches("timeout").count(), 1, "{inherited}");
}

#[test]
fn secrets_of_a_brand_are_not_printed() {
    let config = config(
        r#"
        [brands.acme.mail]
        key = "hunter2"
        from = "ada@acme.example"
        reply_to = "ben@acme.example"
        url = "https://user:hunter3@api.acme.example"
        [brands.acme.hooks]
        mailgun_key = "hunter4"
        "#,
    );

    for printed in [config.redacted.clone(), format!("{config:?}")] {
        for secret in ["hunter2", "hunter4", "ada@", "ben@", "of-the-gallery"] {
            assert!(!printed.contains(secret), "{secret} in {printed}");
        }
    }
    let shown = config.redacted;
    assert!(!shown.contains("hunter3"), "{shown}");
    assert!(shown.contains("[brands.acme.mail]") && shown.contains("a…@acme.example"), "{shown}");
}

#[test]
fn the_file_declares_brands_and_environment_variables_set_their_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidings.toml");
    let text = "[brands.a-b.mail]\nprovider = \"smtp\"\nfrom = \"a@b.example\"\nsmtp_host = \"smtp.b.example\"\ntemplates = \"own\"\n";
    std::fs::write(&file, text).unwrap();
    let load = |name: &str, value: &str| {
        Config::load(&Sources {
            file: Some(file.clone()),
            environment: vec![
                (name.to_owned(), value.to_owned()),
                ("TIDINGS_BRANDS_A_B_MAIL_SMTP_USER".into(), "me".into()),
                ("TIDINGS_BRANDS_A_B_MAIL_SMTP_PORT".into(), "2525".into()),
            ],
            flags: Vec::new(),
        })
    };

    let config = load("TIDINGS_BRANDS_A_B_MAIL_SMTP_PASSWORD", "secret").unwrap();
    let unknown = load("TIDINGS_BRANDS_C_MAIL_KEY", "x").unwrap_err();

    let own = &config.brands[&BrandName::new("a-b").unwrap()];
    let Transport::Smtp(server) = &own.mail.transport else {
        panic!("{own:?}");
    };
    let (user, password) = server.login.as_ref().unwrap();
    assert_eq!((user.expose(), password.expose()), ("me", "secret"));
    assert_eq!(server.port, 2525);
    assert_eq!(own.mail.templates, Some(folder.path().join("own")));
    assert!(unknown.to_string().contains("TIDINGS_BRANDS_C_MAIL_KEY: no option"));
}

#[test]
fn a_branded_type_needs_a_route_other_than_digest() {
    let parse = |route: &str| Config::parse(&format!("[types.A]\nbranded = true\n{route}\n"));

    for refused in ["", "route = \"digest\""] {
        let message = parse(refused).unwrap_err().to_string();
        assert!(message.contains("types.A.branded: needs another route than digest"), "{message}");
    }
    for route in ["batch", "immediate", "never"] {
        assert!(parse(&format!("route = \"{route}\"")).is_ok(), "{route}");
    }
}

#[test]
fn brands_that_share_environment_variable_names_are_rejected() {
    let message = problems("[brands.a-b]\nsite.name = \"A\"\n[brands.a_b]\nsite.name = \"B\"\n");

    assert!(message.contains("TIDINGS_BRANDS_A_B_"), "{message}");
}

#[test]
fn a_brand_with_another_url_does_not_inherit_the_key() {
    let config =
        config("[brands.acme]\nmail.url = \"https://elsewhere.example\"\nmail.key = \"k\"\n");
    assert_eq!(acme(&config).mail.sender.from_name, "The Gallery");

    let message = problems("[brands.acme]\nmail.url = \"https://elsewhere.example\"\n");
    assert!(message.contains("mail.key"), "{message}");
}

#[test]
fn an_unconfigured_brand_is_rejected_with_the_configured_names() {
    let acme = BrandName::new("acme").unwrap();
    let check = |brands: &[&str]| {
        let tables = brands.iter().map(|name| format!("[brands.{name}]\n"));
        let checked = config(&tables.collect::<String>()).check_brand(&acme);
        checked.map_err(|why| why.to_string())
    };

    assert_eq!(check(&["acme"]), Ok(()));
    let why = "brand \"acme\" is not configured: there is no table [brands.NAME]";
    assert_eq!(check(&[]), Err(why.to_owned()));
    let others = check(&["c", "a", "b"]).unwrap_err();
    assert!(others.ends_with("; the brands are a, b, c"), "{others}");
}
