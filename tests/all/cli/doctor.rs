//! `doctor`: its output and its exit codes. It creates no files. `config` and `worker` print the
//! same warnings about batch policies.

use super::Desk;
use crate::support::assert_starts_with;

#[test]
fn an_empty_configuration_has_no_errors_and_no_file_is_created() {
    let desk = Desk::new();
    desk.write("tidings.toml", "");

    let output = desk.done(&["doctor", "--offline"]);

    for line in [
        "ok         configuration        tidings.toml",
        "warning    database             there is no database at sqlite:tidings.db (the configuration is tidings.toml) → check the option `store`, or",
        "ok         templates            they make",
    ] {
        assert!(output.contains(line), "{line} in {output}");
    }
    assert!(!output.contains('\x1b'), "{output}");
    assert_eq!(std::fs::read_dir(desk.path()).unwrap().count(), 1, "{output}");
}

#[test]
fn an_error_exits_with_1_and_wrong_usage_with_2() {
    let desk = Desk::new();
    desk.write(
        "tidings.toml",
        "[mail]\nprovider = \"resend\"\nkey = \"k3y\"\nfrom = \"digest@art.example\"",
    );

    let ran = desk.run(&["doctor", "--offline", "--json"]);

    let report = ran.json();
    assert_eq!((ran.code, ran.err.as_str()), (1, ""), "{}", ran.out);
    assert_eq!(report["verdict"], "error");
    let findings = report["findings"].as_array().unwrap();
    let of = |check: &str| findings.iter().find(|finding| finding["check"] == check);
    assert_eq!(of("server.public_url").unwrap()["verdict"], "error");
    assert_eq!(of("provider").unwrap()["verdict"], "unchecked");
    assert!(!ran.out.contains("k3y") && !ran.out.contains("digest@"), "{}", ran.out);
    for wrong in [
        ["--timeout", "0"],
        ["--timeout", "61"],
        ["--timeout", "soon"],
        ["--nameserver", "dns.example"],
    ] {
        assert_eq!(desk.run(&["doctor", wrong[0], wrong[1]]).code, 2);
    }
}

#[test]
fn all_problems_of_an_invalid_configuration_are_reported() {
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
fn brands_do_not_repeat_template_findings_of_the_default() {
    let desk = Desk::new();
    desk.write(
        "tidings.toml",
        "mail.templates = \"own\"\n[brands.acme]\nsite.name = \"Acme\"\n[brands.umbra]\nmail.templates = \"umbra\"\n",
    );
    for folder in ["own", "umbra"] {
        std::fs::create_dir_all(desk.path().join(folder)).unwrap();
    }

    let report = desk.run(&["doctor", "--offline", "--json"]).json();

    let findings = report["findings"].as_array().unwrap();
    let of_templates = findings.iter().filter(|of| of["check"] == "templates");
    let brands: Vec<_> = of_templates.map(|of| of["brand"].as_str()).collect();
    assert_eq!(brands, [None, Some("umbra")]);
}

#[test]
fn unknown_files_empty_parts_and_incomplete_catalogs_are_warnings() {
    let desk = Desk::new();
    desk.write("tidings.toml", "mail.templates = \"own\"\n");
    for folder in ["own/digest", "own/locales"] {
        std::fs::create_dir_all(desk.path().join(folder)).unwrap();
    }
    desk.write("own/digest/bodi.html", "");
    desk.write("own/digest/body.html~", "");
    desk.write("own/digest/body.txt", " \n");
    desk.write("own/locales/sv.ftl", "digest-head = { $news } till dig\n");
    desk.write("own/locales/de.ftl", "digest-head = { $news } für dich\n");

    let doctor = desk.run(&["doctor", "--offline"]);

    for line in [
        "digest/body.txt makes an empty part, which spam filters count against an email → add",
        "digest/bodi.html is not the name of a template, so it is not used → rename it to digest/body.html",
        "the catalog sv lacks ",
    ] {
        assert!(doctor.out.contains(line), "{line} in {}", doctor.out);
    }
    let of_templates = |line: &&str| line.starts_with("warning    templates ");
    assert_eq!(doctor.out.lines().filter(of_templates).count(), 2);
    assert!(!doctor.out.contains("catalog de"), "{}", doctor.out);
}

const STARVES: &str = "types.Comment.cooldown has no max_wait beside it";

#[test]
fn config_doctor_and_worker_warn_about_a_cooldown_without_max_wait() {
    let desk = Desk::new();
    desk.fill();
    desk.write("tidings.toml", "[types.Comment]\ncooldown = \"4m\"");

    let config = desk.run(&["config"]);
    let worker = desk.run(&["worker", "--once"]);
    let doctor = desk.run(&["doctor", "--offline"]);

    assert_eq!([config.code, worker.code, doctor.code], [0, 0, 0]);
    for message in [&config.err, &worker.err] {
        assert_starts_with!(message, &format!("note: {STARVES}"));
    }
    // The output of `config` is still valid TOML.
    assert!(config.out.parse::<toml::Table>().is_ok(), "{}", config.out);
    let line = format!("warning    configuration        {STARVES}");
    assert!(doctor.out.contains(&line), "{}", doctor.out);
    assert!(doctor.out.contains("→ set max_wait"), "{}", doctor.out);
}

#[test]
fn other_commands_do_not_warn_about_batch_policies() {
    let desk = Desk::with_people();
    desk.write("tidings.toml", "[types.Comment]\ncooldown = \"4m\"");

    desk.done(&["status"]);
}
