//! Emails that cannot be sent. The command prints a clear message and exits with the right code,
//! deliveries keep the reason, and no event is lost once the cause is fixed.

use std::process::Stdio;

use serde_json::Value;

use super::{Desk, Ran};
use crate::mail::provider::{Dialect, Next, Provider};
use crate::support::{Fresh, assert_contains, assert_starts_with, mongo};

/// Creates a pending event for ada and cem, then writes this `[mail]` configuration.
fn desk(mail: &str) -> Desk {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada", "cem"]);
    configure_mail(&desk, mail);
    desk
}

/// Writes a configuration with this `[mail]` table and short retries.
fn configure_mail(desk: &Desk, mail: &str) {
    let delivery = "[delivery]\nretry_after = \"1s\"\n";
    desk.write("tidings.toml", &format!("{delivery}[mail]\n{mail}\n"));
}

/// Returns the `[mail]` options for Resend at this URL.
fn resend(url: &str) -> String {
    format!("provider = \"resend\"\nurl = {url:?}\nkey = \"re_1\"\nfrom = \"digest@art.example\"")
}

const OUTBOX: &str = "provider = \"outbox\"";

/// Returns the state and the reason of each delivery.
fn delivery_states(desk: &Desk) -> Vec<(String, String)> {
    let rows = desk.run(&["deliveries", "--json"]).json();
    let state_and_reason = |row: &Value| {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        (text("state"), text("reason"))
    };
    rows.as_array().unwrap().iter().map(state_and_reason).collect()
}

/// Asserts that the next digest run sends both emails, and that another sends none.
fn assert_recovers(desk: &Desk, arguments: &[&str]) {
    let mut all = vec!["digest", "--now"];
    all.extend(arguments);
    let ran = desk.run(&all);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("2 sent"), "{}", ran.out);
    let rows = delivery_states(desk);
    assert!(rows.iter().all(|(state, _)| state == "sent"), "{rows:?}");
    let again = desk.done(&["digest", "--now"]);
    assert!(
        again.contains("no user has new events") || again.contains("no user is due"),
        "{again}"
    );
}

#[test]
fn an_unreachable_provider_leaves_emails_pending_with_the_reason() {
    // No process listens on this port after the drop.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let desk = desk(&resend(&url));

    let ran = desk.run(&["digest", "--now", "--no-wait"]);

    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.out.contains("2 due, 2 not settled yet"), "{}", ran.out);
    assert!(ran.err.contains("note: 2 emails deferred ("), "{}", ran.err);
    let rows = delivery_states(&desk);
    assert_eq!(rows.len(), 2);
    for (state, reason) in rows {
        assert!(state == "pending" && reason.contains("onnect"), "{state}: {reason}");
    }
    configure_mail(&desk, OUTBOX);
    assert_recovers(&desk, &[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_key_pauses_sending_until_it_is_resumed() {
    let provider = Provider::start(Dialect::Resend).await;
    let fault =
        r#"{"statusCode": 401, "name": "invalid_api_key", "message": "API key is invalid"}"#;
    provider.then([Next::Answer(401, vec![], fault.into())]);
    let desk = desk(&resend(&provider.url));

    let ran = desk.run(&["digest", "--now"]);

    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.out.contains("2 due, 2 not settled yet"), "{}", ran.out);
    for expected in ["API key is invalid", "paused since", "tidings digest --resume"] {
        assert!(ran.err.contains(expected), "{expected} in {}", ran.err);
    }
    let rows = delivery_states(&desk);
    assert!(rows.iter().all(|(state, _)| state == "pending"), "{rows:?}");
    let status = desk.run(&["status"]);
    assert_eq!((status.code, status.err.as_str()), (3, ""));
    assert!(status.out.contains("paused since"), "{}", status.out);
    let paused = desk.run(&["status", "--json"]).json();
    let reason = paused["paused"]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("API key is invalid"), "{reason}");
    let worker = desk.run(&["worker", "--once"]);
    assert_eq!(worker.code, 1);
    assert_contains!(worker.err, "no email is sent: paused since");
    assert_eq!(provider.requests().len(), 1, "nobody tries it again");

    assert_recovers(&desk, &["--resume"]);
    assert_eq!(provider.emails().len(), 2);
}

#[test]
fn a_template_that_always_fails_is_rejected_before_any_work() {
    let desk = desk("templates = \"own\"");
    std::fs::create_dir_all(desk.path().join("own/digest")).unwrap();
    desk.write("own/digest/subject.txt", "two lines\n{{ 1 // 0 }}");

    let ran = desk.run(&["digest", "--now"]);

    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    let expected = "error: own/digest/subject.txt, line 2: ";
    assert!(ran.err.starts_with(expected), "{}", ran.err);
    // Commands that render no email do not read the template.
    for arguments in
        [&["status"][..], &["explain", "ada"], &["feed", "ada"], &["deliveries"], &["flush", "cem"]]
    {
        desk.done(arguments);
    }
    desk.done(&["notify", "Published", "a2", "--to", "cem"]);
    let doctor = desk.run(&["doctor", "--offline"]);
    assert_contains!(doctor.out, "error      templates");
    configure_mail(&desk, OUTBOX);
    assert!(delivery_states(&desk).is_empty());
    assert_recovers(&desk, &[]);
}

#[test]
fn an_invalid_catalog_is_rejected_with_file_and_line() {
    let desk = desk("templates = \"own\"");
    std::fs::create_dir_all(desk.path().join("own/locales")).unwrap();
    desk.write("own/locales/de.ftl", "new = Neu\nopen = { $nam } öffnen\n");

    let ran = desk.run(&["digest", "--now"]);
    let doctor = desk.run(&["doctor", "--offline"]);

    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    let expected = "own/locales/de.ftl, line 2: open has no variable $nam";
    assert_starts_with!(ran.err, &format!("error: {expected}"));
    assert_contains!(doctor.out, "error      templates");
    assert!(doctor.out.contains("de.ftl, line 2"), "{}", doctor.out);
    assert_contains!(doctor.out, "remove it to use the built-in one");
    assert!(delivery_states(&desk).is_empty());
}

#[test]
fn a_template_that_fails_for_some_users_fails_only_their_emails() {
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
    desk.done(&["import", "users", "cem"]);

    let ran = desk.run(&["digest", "--now"]);

    assert_eq!(ran.code, 3, "{}", ran.out);
    assert!(ran.out.contains("2 due, 1 sent"), "{}", ran.out);
    assert!(ran.out.contains("1 failed"), "{}", ran.out);
    assert!(ran.err.contains("subject.txt"), "{}", ran.err);
    let rows = delivery_states(&desk);
    let failed =
        rows.iter().filter(|(state, reason)| state == "failed" && reason.contains("subject.txt"));
    assert_eq!((rows.len(), failed.count()), (2, 1), "{rows:?}");
    // His event is in no email yet, so the next one includes it.
    let explained = desk.run(&["explain", "cem", "--json"]).json();
    assert_eq!(explained["events"][0]["why"], "next_digest");
}

/// The store is MongoDB, because the limit on file sizes would apply to SQLite too.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_outbox_leaves_emails_pending_and_no_partial_file() {
    mongo::run(async |fresh: Fresh| full_outbox(fresh.url())).await;
}

#[cfg(unix)]
fn full_outbox(store: &str) {
    let desk = Desk::new();
    let config = format!("store = {store:?}\n[delivery]\nretry_after = \"1s\"\n[mail]\n{OUTBOX}\n");
    desk.write("tidings.toml", &config);
    desk.fill();
    desk.done(&["notify", "Published", "a1", "--to", "ada", "cem"]);

    // No file may exceed 4 KiB, and an email is larger.
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
    let rows = delivery_states(&desk);
    assert!(
        rows.iter().all(|(state, reason)| state == "pending" && reason.contains("writing")),
        "{rows:?}"
    );
    let left = std::fs::read_dir(desk.path().join("outbox")).unwrap().count();
    assert_eq!(left, 0, "no file is there in part");
    assert_recovers(&desk, &[]);
}

#[test]
fn an_unreachable_database_is_one_sentence_with_host_and_advice() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let host = free.local_addr().unwrap();
    drop(free);
    let desk = Desk::new();
    let store = format!("store = \"mongodb://{host}/tidings?serverSelectionTimeoutMS=200\"");
    desk.write("tidings.toml", &store);

    let ran = desk.run(&["status", "--log", "off"]);
    let doctor = desk.run(&["doctor", "--offline", "--timeout", "2"]);

    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    let expected = format!("no MongoDB server can be written to: {host} (Connection refused");
    assert!(ran.err.contains(&expected), "{}", ran.err);
    assert_contains!(ran.err, "try: see that the server runs");
    let line = ran.err.lines().next().unwrap();
    assert!(line.len() < 250 && !line.contains("Topology"), "{line}");
    let line = doctor.out.lines().find(|line| line.contains(" database "));
    assert!(line.is_some_and(|line| line.contains(&expected)), "{}", doctor.out);
}
