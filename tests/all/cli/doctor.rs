//! `doctor`: its lines, its exit codes, and what it leaves behind.

use super::Desk;

#[test]
fn a_bare_machine_has_no_errors_and_nothing_is_made_by_looking() {
    let desk = Desk::new();
    desk.write("tidings.toml", "");

    let said = desk.run(&["doctor", "--offline"]).done();

    for line in [
        "ok         configuration        tidings.toml",
        "warning    database             there is no database at sqlite:tidings.db: nothing was ever brought in there → see that",
        "ok         templates            they make",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }
    assert!(!said.contains('\x1b'), "{said}");
    assert_eq!(std::fs::read_dir(desk.path()).unwrap().count(), 1, "{said}");
}

#[test]
fn an_error_is_1_and_wrong_usage_is_2() {
    let desk = Desk::new();
    desk.write(
        "tidings.toml",
        "[mail]\nprovider = \"resend\"\nkey = \"k3y\"\nfrom = \"digest@art.example\"",
    );

    let ran = desk.run(&["doctor", "--offline", "--json"]);

    let told = ran.json();
    assert_eq!((ran.code, ran.err.as_str()), (1, ""), "{}", ran.out);
    assert_eq!(told["verdict"], "error");
    let findings = told["findings"].as_array().unwrap();
    let of = |check: &str| findings.iter().find(|finding| finding["check"] == check);
    assert_eq!(of("server.public_url").unwrap()["verdict"], "error");
    assert_eq!(of("provider").unwrap()["verdict"], "unchecked");
    assert!(
        !ran.out.contains("k3y") && !ran.out.contains("digest@"),
        "{}",
        ran.out
    );
    for wrong in [
        ["--timeout", "0"],
        ["--timeout", "61s"],
        ["--timeout", "soon"],
        ["--nameserver", "dns.example"],
    ] {
        assert_eq!(desk.run(&["doctor", wrong[0], wrong[1]]).code, 2);
    }
}

#[test]
fn a_configuration_that_cannot_be_read_is_told_with_all_its_problems() {
    let desk = Desk::new();
    desk.write("tidings.toml", "color = 1\n[digest]\nhour = 24");

    let ran = desk.run(&["doctor"]);

    assert_eq!((ran.code, ran.err.as_str()), (1, ""), "{}", ran.out);
    for expected in [
        "error      configuration    color: is not an option",
        "error      configuration    digest.hour: 24 is not",
        "unchecked  everything else",
        "2 errors, 1 unchecked",
    ] {
        assert!(ran.out.contains(expected), "{expected} in {}", ran.out);
    }
}

#[test]
fn brands_say_of_templates_only_what_the_default_does_not() {
    let desk = Desk::new();
    desk.write(
        "tidings.toml",
        "mail.templates = \"own\"\n[brands.acme]\nsite.name = \"Acme\"\n[brands.umbra]\nmail.templates = \"umbra\"\n",
    );
    for folder in ["own/locales", "umbra/locales"] {
        std::fs::create_dir_all(desk.path().join(folder)).unwrap();
    }
    desk.write("own/locales/SV-se.ftl", "more = Mer\n");
    desk.write("umbra/locales/da.ftl", "more = Mere\n");

    let told = desk.run(&["doctor", "--offline", "--json"]).json();

    let findings = told["findings"].as_array().unwrap();
    let of_templates = findings.iter().filter(|finding| {
        let check = finding["check"].as_str().unwrap();
        ["templates", "languages", "size of mails"].contains(&check)
    });
    let brands: Vec<_> = of_templates
        .map(|finding| {
            (
                finding["brand"].as_str(),
                finding["check"].as_str().unwrap(),
            )
        })
        .collect();
    let umbra = Some("umbra");
    assert_eq!(
        brands,
        [
            (None, "templates"),
            (None, "size of mails"),
            (None, "languages"),
            (umbra, "templates"),
            (umbra, "size of mails"),
            (umbra, "languages"),
        ]
    );
    let languages = findings.iter().find(|of| of["check"] == "languages");
    let found = languages.unwrap()["found"].as_str().unwrap();
    assert!(found.starts_with("locales/SV-se.ftl lacks "), "{found}");
}
