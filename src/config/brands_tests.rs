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
    tags = ["art"]
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
    config.of(Some(&BrandName::new("acme").unwrap())).unwrap()
}

fn api(config: &Config) -> &crate::config::Api {
    match &config.mail.transport {
        Transport::Api(api) => api,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_brand_does_not_say_is_as_in_the_default() {
    let config = config("[brands.acme]\nsite.accent = \"#654321\"\n");

    let own = acme(&config);

    assert_eq!(own.site.accent, "#654321");
    assert_eq!(own.site.name, "Gallery");
    assert_eq!(own.site.url.as_deref(), Some("https://gallery.example"));
    assert_eq!(own.mail.from, config.mail.from);
    assert_eq!(own.mail.from_name, "The Gallery");
    assert_eq!(own.mail.reply_to, config.mail.reply_to);
    assert_eq!(own.server.public_url, config.server.public_url);
    assert_eq!(api(&own).key.expose(), "key-of-the-gallery");
    assert_eq!(
        (&own.digest.caps, own.window_back),
        (&config.digest.caps, 7)
    );
}

#[test]
fn with_a_name_or_a_sender_of_its_own_comes_nothing_that_is_the_others() {
    let config = config(
        "[brands.acme]\nsite.name = \"Acme\"\nmail.from = \"hello@acme.example\"\nserver.public_url = \"https://mail.acme.example/\"\n",
    );

    let own = acme(&config);

    assert_eq!((own.site.url, own.site.logo), (None, None));
    assert_eq!(own.mail.from_name, "Acme");
    assert_eq!(own.mail.reply_to, None);
    assert_eq!(own.mail.list_domain, "acme.example");
    let public_url = own.server.public_url.as_deref();
    assert_eq!(public_url, Some("https://mail.acme.example"));
    assert_eq!(own.site.postal_address.as_deref(), Some("1 Art Road"));
}

#[test]
fn a_provider_of_its_own_gets_no_key_of_another() {
    let without = problems("[brands.acme.mail]\nprovider = \"postmark\"\n");
    let with = config(
        "[brands.acme.mail]\nprovider = \"postmark\"\nkey = \"key-of-acme\"\n[brands.acme.hooks]\npostmark_user = \"hook\"\npostmark_password = \"hook-of-acme\"\n",
    );

    let own = acme(&with);

    assert!(
        without.contains("brands.acme.mail.key: is needed with Postmark"),
        "{without}"
    );
    assert_eq!(api(&own).provider.name, "postmark");
    assert_eq!(api(&own).key.expose(), "key-of-acme");
    assert_eq!(with.hooks.keys.of("postmark"), [] as [Vec<u8>; 0]);
    assert_eq!(own.hooks.keys.of("postmark"), [b"hook:hook-of-acme"]);
    assert_eq!(with.of(None).unwrap().mail.from, with.mail.from);
}

#[test]
fn a_key_that_stands_in_a_file_takes_the_place_of_one_that_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "key-of-acme\n").unwrap();

    let config = config(&format!("[brands.acme.mail]\nkey_file = {file:?}\n"));

    assert_eq!(api(&acme(&config)).key.expose(), "key-of-acme");
    assert_eq!(config.secret_files, [file]);
}

#[test]
fn all_that_is_wrong_is_told_with_the_brand() {
    let told = problems(
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
        assert!(told.contains(expected), "{expected} in {told}");
    }
    assert!(!told.contains("not of a brand"), "{told}");
}

#[test]
fn what_is_wrong_with_the_default_is_told_once() {
    let told = problems("[brands.acme]\nsite.accent = \"#000000\"\n[digest]\nhour = 99\n");
    let inherited = Config::parse("mail.timeout = \"9h\"\n[brands.acme]\nsite.name = \"A\"\n");

    assert!(!told.contains("brands"), "{told}");
    let inherited = inherited.unwrap_err().to_string();
    assert_eq!(inherited.matches("timeout").count(), 1, "{inherited}");
}

#[test]
fn no_secret_of_a_brand_is_printed() {
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

    for printed in [config.redacted(), format!("{config:?}")] {
        for secret in ["hunter2", "hunter4", "ada@", "ben@", "of-the-gallery"] {
            assert!(!printed.contains(secret), "{secret} in {printed}");
        }
    }
    let shown = config.redacted();
    assert!(!shown.contains("hunter3"), "{shown}");
    assert!(
        shown.contains("[brands.acme.mail]") && shown.contains("a…@acme.example"),
        "{shown}"
    );
}

#[test]
fn a_file_says_which_brands_there_are_and_the_environment_what_they_keep_secret() {
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
    let login = server.login.as_ref().unwrap();
    assert_eq!(
        (login.user.expose(), login.password.expose()),
        ("me", "secret")
    );
    assert_eq!(server.port, 2525);
    assert_eq!(own.mail.templates, Some(folder.path().join("own")));
    assert!(
        unknown
            .to_string()
            .contains("TIDINGS_BRANDS_C_MAIL_KEY: no option")
    );
}

#[test]
fn a_type_with_events_of_brands_needs_a_route_outside_digests() {
    let parse = |route: &str| Config::parse(&format!("[types.A]\nbranded = true\n{route}\n"));

    for refused in ["", "route = \"digest\""] {
        let told = parse(refused).unwrap_err().to_string();
        assert!(
            told.contains("types.A.branded: needs another route than digest"),
            "{told}"
        );
    }
    for route in ["batch", "immediate", "never"] {
        assert!(parse(&format!("route = \"{route}\"")).is_ok(), "{route}");
    }
}

#[test]
fn brands_whose_variables_would_be_the_same_are_refused() {
    let told = problems("[brands.a-b]\nsite.name = \"A\"\n[brands.a_b]\nsite.name = \"B\"\n");

    assert!(told.contains("TIDINGS_BRANDS_A_B_"), "{told}");
}

#[test]
fn a_key_is_sent_to_no_other_address() {
    let config =
        config("[brands.acme]\nmail.url = \"https://elsewhere.example\"\nmail.key = \"k\"\n");
    assert_eq!(acme(&config).mail.from_name, "The Gallery");

    let told = problems("[brands.acme]\nmail.url = \"https://elsewhere.example\"\n");
    assert!(told.contains("mail.key"), "{told}");
}
