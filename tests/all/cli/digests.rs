//! `digest`, `worker` and `status`: the emails that they send, and the counts that they print.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use super::{Desk, now};
use crate::support::{Fresh, assert_contains, assert_starts_with, mongo};

/// Returns the number of emails in the outbox.
fn emails(desk: &Desk) -> usize {
    std::fs::read_dir(desk.path().join("outbox")).map_or(0, Iterator::count)
}

#[test]
fn a_digest_is_sent_once_and_a_second_run_sends_nothing() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--followers-of", "artist:1"]);

    let first = desk.done(&["digest", "--now"]);
    let second = desk.done(&["digest", "--now"]);

    assert!(
        first.starts_with("digest 2")
            && first.ends_with(" UTC: 2 due, 2 sent into outbox (2 events); 1 unconfirmed\n"),
        "{first}"
    );
    assert!(second.ends_with(" UTC: no user is due; 1 unconfirmed\n"), "{second}");
    assert_eq!(emails(&desk), 2);
    assert!(desk.done(&["status"]).contains("2 sent"));
}

#[test]
fn digest_fans_out_pending_events_itself() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada", "--no-wait"]);

    let line = desk.done(&["digest", "--now"]);

    assert_contains!(line, "1 due, 1 sent into outbox (1 event)");
}

#[test]
fn a_dry_run_writes_nothing() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada"]);

    let line = desk.done(&["digest", "--now", "--dry-run"]);

    assert!(line.ends_with(" UTC: 1 due, would send 1 email (1 event); dry run\n"), "{line}");
    assert_eq!(emails(&desk), 0);
    assert!(desk.done(&["status"]).contains("none yet"));
}

#[test]
fn a_dry_run_writes_a_report() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada", "ben", "cem"]);
    let dry_run = ["digest", "--now", "--dry-run", "--report", "report.html"];

    let lines = desk.done(&dry_run);
    let report = desk.run(&[&dry_run[..], &["--json"]].concat()).json();

    assert!(lines.ends_with("2 events); dry run; 1 unconfirmed\nreport: report.html\n"), "{lines}");
    assert_eq!((&report["page"], &report["due"]), (&"report.html".into(), &2.into()));
    let page = std::fs::read_to_string(desk.path().join("report.html")).unwrap();
    assert!(page.contains("<h1>2 digests would be sent</h1>"), "{page}");
    assert!(page.contains("<td>ada</td>") && !page.contains("ada@"));
    assert_eq!(emails(&desk), 0);
}

#[test]
fn a_report_needs_a_dry_run_and_an_existing_folder() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada"]);
    // Without the files that SQLite creates beside an open database.
    let files = || {
        let all = std::fs::read_dir(desk.path()).unwrap();
        let names = all.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.contains(".db-")).collect::<BTreeSet<_>>()
    };
    let before = files();

    let sending = desk.run(&["digest", "--now", "--report", "report.html"]);
    let nowhere = desk.run(&["digest", "--dry-run", "--report", "no/report.html"]);

    assert_eq!((sending.code, nowhere.code), (2, 2));
    assert!(sending.err.contains("--dry-run"), "{}", sending.err);
    assert_eq!(nowhere.err, "error: --report: the folder no does not exist\n  try: mkdir -p no\n");
    assert_eq!(files(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_notes_events_that_are_not_fanned_out_yet() {
    mongo::run(async |fresh: Fresh| {
        let desk = Desk::new();
        desk.write("tidings.toml", &format!("store = {:?}\n", fresh.url()));
        desk.fill();
        desk.run(&["notify", "Published", "a1", "--to", "ada"]);

        let ran = desk.run(&["digest", "--now", "--dry-run"]);

        assert_eq!(ran.code, 0);
        assert_starts_with!(ran.err, "note: 1 accepted event not fanned out yet");
        assert!(desk.run(&["digest", "--now"]).out.contains("1 sent"));
    })
    .await;
}

#[test]
fn digest_prints_when_waiting_users_are_due() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada"]);

    let line = desk.done(&["digest"]);

    assert!(
        line.contains("UTC: no user is due; 1 waiting (next due 2")
            && line.ends_with("; --now does not wait)\n"),
        "{line}"
    );
}

#[test]
fn a_digest_can_be_limited_by_user_cadence_time_and_count() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada", "cem"]);
    let in_a_week = (now() + chrono::TimeDelta::days(7)).format("%Y-%m-%d %H:%M").to_string();
    let run = |arguments: &[&str]| {
        let mut all = vec!["digest", "--json"];
        let is_dry_run = arguments.contains(&"--dry-run");
        all.extend(is_dry_run.then_some(["--at", &in_a_week]).iter().flatten());
        all.extend(arguments);
        desk.run(&all).json()
    };

    let daily = run(&["--cadence", "daily", "--dry-run"]);
    let limited = run(&["--limit", "1", "--dry-run"]);
    let cem = run(&["--user", "cem", "--now"]);

    assert_eq!((&daily["due"], &daily["dry_run"]), (&1.into(), &true.into()));
    assert_eq!((&limited["due"], &limited["limited"]), (&1.into(), &true.into()));
    assert_eq!((&cem["due"], &cem["emails"]["sent"]), (&1.into(), &1.into()));
}

#[test]
fn a_worker_with_only_deferred_emails_notes_them_and_exits_with_3() {
    let desk = Desk::with_people();
    desk.write(
        "tidings.toml",
        "mail.provider = \"smtp\"\nmail.from = \"a@example.org\"\nmail.smtp_host = \"127.0.0.1\"\nmail.smtp_port = 1\nmail.smtp_tls = \"none\"\n\
         server.public_url = \"https://example.org\"\n",
    );
    desk.run(&["notify", "Published", "a1", "--to", "ada"]);
    let first = desk.run(&["digest", "--now", "--no-wait"]);

    let worker = desk.run(&["worker", "--once"]);

    assert!(first.err.contains("1 email deferred ("), "{}", first.err);
    assert_eq!(worker.code, 3, "{}{}", worker.out, worker.err);
    assert!(worker.err.contains("1 email deferred ("), "{}", worker.err);
}

#[test]
fn an_email_that_cannot_be_sent_is_a_failure_with_its_reason() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada"]);
    desk.write("outbox", "a file where the folder should be");

    let ran = desk.run(&["digest", "--now", "--no-wait"]);

    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.out.contains("1 due, 1 not settled yet"), "{}", ran.out);
    assert_starts_with!(ran.err, "note: 1 email deferred (writing outbox: ");
}

#[test]
fn a_worker_prints_its_work_as_json() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada", "--no-wait"]);

    let round = desk.run(&["worker", "--once", "--json"]).json();

    assert_eq!(round["fanouts"]["done"], 1);
    assert_eq!(round["digests"]["pending"], 1);
    assert_eq!(desk.done(&["worker", "--once"]), "worker: nothing to do\n");
}

#[cfg(unix)]
#[test]
fn a_worker_stops_on_sigterm_and_logs_its_work() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada", "--no-wait"]);
    let mut worker = desk.command(&["worker"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(worker.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("1 fan-out done, 1 entry added") {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0, "it ended before it worked");
    }

    let kill = Command::new("kill").arg(worker.id().to_string()).status().unwrap();

    assert!(kill.success() && worker.wait().unwrap().success());
    let mut rest = String::new();
    log.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("worker: stopped\n"), "{rest}");
    assert!(desk.done(&["feed", "ada"]).contains("a1"));
}

#[test]
fn status_prints_its_counts_as_json() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada"]);
    desk.done(&["notify", "Published", "a2", "--to", "ada", "--no-wait"]);

    let status = desk.run(&["status", "--json"]).json();

    assert_eq!(status["store"], "sqlite:tidings.db");
    assert_eq!(status["fanouts"], serde_json::json!({"pending": 1, "done": 1}));
    assert_eq!(status["oldest_pending_day"], status["days"][0]["day"]);
    assert_eq!(
        (&status["days"][0]["stacks"], &status["days"][0]["in_window"]),
        (&1.into(), &true.into())
    );
    assert_eq!(status["deliveries"]["sent"], 0);
}
