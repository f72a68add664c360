//! When mails do not leave: a clear message, a state in the ledger, the right exit code, and
//! nothing lost once it is fixed.

use std::process::Stdio;

use serde_json::Value;

use super::{Desk, Ran};
use crate::mail::provider::{Dialect, Next, Provider};
use crate::support::{Fresh, mongo};

/// Somebody has something pending, and mails go this way.
fn desk(mail: &str) -> Desk {
    let desk = Desk::with_people();
    desk.run(&["notify", "Published", "a1", "--to", "ada", "cem"])
        .done();
    send_by(&desk, mail);
    desk
}

/// From now on mails go this way.
fn send_by(desk: &Desk, mail: &str) {
    let delivery = "[delivery]\nretry_after = \"1s\"\n";
    desk.write("tidings.toml", &format!("{delivery}[mail]\n{mail}\n"));
}

/// Through somebody who speaks Resend at this address.
fn resend(url: &str) -> String {
    format!("provider = \"resend\"\nurl = {url:?}\nkey = \"re_1\"\nfrom = \"digest@art.example\"")
}

const OUTBOX: &str = "provider = \"outbox\"";

/// What the ledger says of ada's and cem's mails.
fn ledger(desk: &Desk) -> Vec<(String, String)> {
    let rows = desk.run(&["deliveries", "--json"]).json();
    let told = |row: &Value| {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        (text("state"), text("reason"))
    };
    rows.as_array().unwrap().iter().map(told).collect()
}

/// Whatever was wrong is fixed: both get their mail, and once.
fn fixed(desk: &Desk, arguments: &[&str]) {
    let mut all = vec!["digest", "--now"];
    all.extend(arguments);
    let ran = desk.run(&all);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("2 sent"), "{}", ran.out);
    let told = ledger(desk);
    assert!(told.iter().all(|(state, _)| state == "sent"), "{told:?}");
    let again = desk.run(&["digest", "--now"]).done();
    assert!(
        again.contains("nobody has anything new") || again.contains("nobody due"),
        "{again}"
    );
}

#[test]
fn a_provider_that_cannot_be_reached_leaves_mails_pending_with_the_reason() {
    // A port that nobody listens on any more.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let desk = desk(&resend(&url));

    let ran = desk.run(&["digest", "--now", "--no-wait"]);

    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.out.contains("2 due, 2 not settled yet"), "{}", ran.out);
    assert!(ran.err.contains("note: 2 emails deferred ("), "{}", ran.err);
    let told = ledger(&desk);
    assert_eq!(told.len(), 2);
    for (state, reason) in told {
        assert!(
            state == "pending" && reason.contains("onnect"),
            "{state}: {reason}"
        );
    }
    send_by(&desk, OUTBOX);
    fixed(&desk, &[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_turned_away_pauses_everything_until_somebody_resumes() {
    let provider = Provider::start(Dialect::Resend).await;
    let fault =
        r#"{"statusCode": 401, "name": "invalid_api_key", "message": "API key is invalid"}"#;
    provider.then([Next::Answer(401, vec![], fault.into())]);
    let desk = desk(&resend(&provider.url));

    let ran = desk.run(&["digest", "--now"]);

    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.out.contains("2 due, 2 not settled yet"), "{}", ran.out);
    for expected in [
        "API key is invalid",
        "paused since",
        "tidings digest --resume",
    ] {
        assert!(ran.err.contains(expected), "{expected} in {}", ran.err);
    }
    let told = ledger(&desk);
    assert!(told.iter().all(|(state, _)| state == "pending"), "{told:?}");
    let status = desk.run(&["status"]);
    assert_eq!((status.code, status.err.as_str()), (3, ""));
    assert!(status.out.contains("paused since"), "{}", status.out);
    let paused = desk.run(&["status", "--json"]).json();
    let reason = paused["paused"]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("API key is invalid"), "{reason}");
    let worker = desk.run(&["worker", "--once"]);
    assert_eq!(worker.code, 1);
    assert!(
        worker.err.contains("no mail leaves: paused since"),
        "{}",
        worker.err
    );
    assert_eq!(provider.requests().len(), 1, "nobody tries it again");

    fixed(&desk, &["--resume"]);
    assert_eq!(provider.mails().len(), 2);
}

#[test]
fn a_template_that_fails_whatever_it_is_given_is_refused_before_anything_is_done() {
    let desk = desk("templates = \"own\"");
    std::fs::create_dir_all(desk.path().join("own/digest")).unwrap();
    desk.write("own/digest/subject.txt", "two lines\n{{ 1 // 0 }}");

    let ran = desk.run(&["digest", "--now"]);

    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    let told = "error: own/digest/subject.txt, line 2: ";
    assert!(ran.err.starts_with(told), "{}", ran.err);
    // Whatever makes no mail does not need it.
    for arguments in [
        &["status"][..],
        &["explain", "ada"],
        &["feed", "ada"],
        &["deliveries"],
        &["flush", "cem"],
    ] {
        desk.run(arguments).done();
    }
    desk.run(&["notify", "Published", "a2", "--to", "cem"])
        .done();
    let doctor = desk.run(&["doctor", "--offline"]);
    assert!(
        doctor.out.contains("error      templates"),
        "{}",
        doctor.out
    );
    send_by(&desk, OUTBOX);
    assert!(ledger(&desk).is_empty());
    fixed(&desk, &[]);
}

#[test]
fn a_catalog_that_is_wrong_is_refused_with_file_and_line() {
    let desk = desk("templates = \"own\"");
    std::fs::create_dir_all(desk.path().join("own/locales")).unwrap();
    desk.write("own/locales/de.ftl", "new = Neu\nopen = { $nam } öffnen\n");

    let ran = desk.run(&["digest", "--now"]);
    let doctor = desk.run(&["doctor", "--offline"]);

    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    let told = "own/locales/de.ftl, line 2: open has no variable $nam";
    assert!(
        ran.err.starts_with(&format!("error: {told}")),
        "{}",
        ran.err
    );
    assert!(
        doctor.out.contains("error      templates"),
        "{}",
        doctor.out
    );
    assert!(doctor.out.contains("de.ftl, line 2"), "{}", doctor.out);
    assert!(
        doctor.out.contains("what is built in takes its place"),
        "{}",
        doctor.out
    );
    assert!(ledger(&desk).is_empty());
}

#[test]
fn a_template_that_fails_for_some_is_named_and_their_mails_have_failed() {
    let desk = desk("templates = \"own\"");
    std::fs::create_dir_all(desk.path().join("own/digest")).unwrap();
    desk.write(
        "own/digest/subject.txt",
        "{% if user.name == \"Cem\" %}{{ 1 // 0 }}{% endif %}News",
    );
    desk.write(
        "cem",
        r#"{"id": "cem", "email": "cem@example.org", "name": "Cem", "confirmed": true}"#,
    );
    desk.run(&["import", "users", "cem"]).done();

    let ran = desk.run(&["digest", "--now"]);

    assert_eq!(ran.code, 3, "{}", ran.out);
    assert!(ran.out.contains("2 due, 1 sent"), "{}", ran.out);
    assert!(ran.out.contains("1 failed"), "{}", ran.out);
    assert!(ran.err.contains("subject.txt"), "{}", ran.err);
    let told = ledger(&desk);
    let failed = told
        .iter()
        .filter(|(state, reason)| state == "failed" && reason.contains("subject.txt"));
    assert_eq!((told.len(), failed.count()), (2, 1), "{told:?}");
    // His event is in no mail yet, and goes into the next one.
    let explained = desk.run(&["explain", "cem", "--json"]).json();
    assert_eq!(explained["events"][0]["why"], "next_digest");
}

/// The store is elsewhere: else it would not fit on that disk either.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_that_is_full_leaves_mails_pending_and_no_half_of_one() {
    mongo::run(async |fresh: Fresh| full_outbox(fresh.url())).await;
}

#[cfg(unix)]
fn full_outbox(store: &str) {
    let desk = Desk::new();
    let config = format!("store = {store:?}\n[delivery]\nretry_after = \"1s\"\n[mail]\n{OUTBOX}\n");
    desk.write("tidings.toml", &config);
    desk.fill();
    desk.run(&["notify", "Published", "a1", "--to", "ada", "cem"])
        .done();

    // No file may grow past 4 KiB, and a mail is longer.
    let limited = "trap '' XFSZ; ulimit -f 4; exec \"$0\" digest --now --no-wait";
    let ran: Ran = std::process::Command::new("bash")
        .args(["-c", limited, env!("CARGO_BIN_EXE_tidings")])
        .current_dir(desk.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null())
        .output()
        .unwrap()
        .into();

    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("(writing outbox/"), "{}", ran.err);
    let told = ledger(&desk);
    assert!(
        told.iter()
            .all(|(state, reason)| state == "pending" && reason.contains("writing")),
        "{told:?}"
    );
    let left = std::fs::read_dir(desk.path().join("outbox"))
        .unwrap()
        .count();
    assert_eq!(left, 0, "no file is there in part");
    fixed(&desk, &[]);
}

#[test]
fn a_template_whose_name_is_mistyped_is_told_with_the_nearest_one() {
    let desk = desk("templates = \"own\"");
    std::fs::create_dir_all(desk.path().join("own/digest")).unwrap();
    desk.write("own/digest/bodi.html", "<p>Hello");

    let doctor = desk.run(&["doctor", "--offline"]);

    let line = "digest/bodi.html is no template's name, so nothing is made of it → rename it to digest/body.html";
    assert!(doctor.out.contains(line), "{}", doctor.out);
    assert!(
        doctor.out.contains("warning    templates"),
        "{}",
        doctor.out
    );
}

#[test]
fn a_database_that_is_away_is_one_sentence_with_its_host_and_what_to_do() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let host = free.local_addr().unwrap();
    drop(free);
    let desk = Desk::new();
    let store = format!("store = \"mongodb://{host}/tidings?serverSelectionTimeoutMS=200\"");
    desk.write("tidings.toml", &store);

    let ran = desk.run(&["status", "--log", "off"]);
    let doctor = desk.run(&["doctor", "--offline", "--timeout", "2s"]);

    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    let told = format!("no MongoDB server can be written to: {host} (Connection refused");
    assert!(ran.err.contains(&told), "{}", ran.err);
    assert!(
        ran.err.contains("try: see that the server runs"),
        "{}",
        ran.err
    );
    let line = ran.err.lines().next().unwrap();
    assert!(line.len() < 250 && !line.contains("Topology"), "{line}");
    let line = doctor.out.lines().find(|line| line.contains(" database "));
    assert!(
        line.is_some_and(|line| line.contains(&told)),
        "{}",
        doctor.out
    );
}
