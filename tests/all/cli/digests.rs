//! Mails: `digest`, `worker` and `status`.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use super::{Desk, now};
use crate::support::{Fresh, mongo};

/// How many mails lie in the outbox.
fn mails(desk: &Desk) -> usize {
    std::fs::read_dir(desk.path().join("outbox")).map_or(0, Iterator::count)
}

#[test]
fn a_digest_is_written_once_and_a_second_run_writes_nothing() {
    let desk = Desk::with_people();
    desk.run(&["notify", "Published", "a1", "--followers-of", "artist:1"])
        .done();

    let first = desk.run(&["digest", "--now"]).done();
    let second = desk.run(&["digest", "--now"]).done();

    assert!(
        first.starts_with("digest 2")
            && first.ends_with(" UTC: 2 due, 2 sent into outbox (2 events); 1 unconfirmed\n"),
        "{first}"
    );
    assert!(
        second.ends_with(" UTC: nobody due; 1 unconfirmed\n"),
        "{second}"
    );
    assert_eq!(mails(&desk), 2);
    assert!(desk.run(&["status"]).done().contains("2 sent"));
}

#[test]
fn digest_alone_is_enough_for_cron() {
    let desk = Desk::with_people();
    desk.run(&["notify", "Published", "a1", "--to", "ada", "--no-wait"])
        .done();

    let line = desk.run(&["digest", "--now"]).done();

    assert!(
        line.contains("1 due, 1 sent into outbox (1 event)"),
        "{line}"
    );
}

#[test]
fn a_dry_run_writes_nothing() {
    let desk = Desk::with_people();
    desk.run(&["notify", "Published", "a1", "--to", "ada"])
        .done();

    let line = desk.run(&["digest", "--now", "--dry-run"]).done();

    assert!(
        line.ends_with(" UTC: 1 due, would be mailed 1 event (dry run)\n"),
        "{line}"
    );
    assert_eq!(mails(&desk), 0);
    assert!(desk.run(&["status"]).done().contains("none yet"));
}

#[test]
fn a_dry_run_writes_a_page() {
    let desk = Desk::with_people();
    desk.run(&["notify", "Published", "a1", "--to", "ada", "ben", "cem"])
        .done();
    let dry_run = ["digest", "--now", "--dry-run", "--report", "report.html"];

    let lines = desk.run(&dry_run).done();
    let told = desk.run(&[&dry_run[..], &["--json"]].concat()).json();

    assert!(
        lines.ends_with("2 events (dry run); 1 unconfirmed\nreport: report.html\n"),
        "{lines}"
    );
    assert_eq!(
        (&told["page"], &told["due"]),
        (&"report.html".into(), &2.into())
    );
    let page = std::fs::read_to_string(desk.path().join("report.html")).unwrap();
    assert!(page.contains("<h1>2 digests would be sent</h1>"), "{page}");
    assert!(page.contains("a…@example.org") && !page.contains("ada@"));
    assert_eq!(mails(&desk), 0);
}

#[test]
fn a_report_needs_a_dry_run_and_an_existing_folder() {
    let desk = Desk::with_people();
    desk.run(&["notify", "Published", "a1", "--to", "ada"])
        .done();
    let before = std::fs::read_dir(desk.path()).unwrap().count();

    let sending = desk.run(&["digest", "--now", "--report", "report.html"]);
    let nowhere = desk.run(&["digest", "--dry-run", "--report", "no/report.html"]);

    assert_eq!((sending.code, nowhere.code), (2, 2));
    assert!(sending.err.contains("--dry-run"), "{}", sending.err);
    assert_eq!(
        nowhere.err,
        "error: --report: the folder no does not exist\n  try: mkdir -p no\n"
    );
    assert_eq!(std::fs::read_dir(desk.path()).unwrap().count(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_says_what_nobody_has_fanned_out_yet() {
    mongo::run(async |fresh: Fresh| {
        let desk = Desk::new();
        desk.write("tidings.toml", &format!("store = {:?}\n", fresh.url()));
        desk.fill();
        desk.run(&["notify", "Published", "a1", "--to", "ada"]);

        let ran = desk.run(&["digest", "--now", "--dry-run"]);

        assert_eq!(ran.code, 0);
        assert!(
            ran.err
                .starts_with("note: 1 accepted event not fanned out yet"),
            "{}",
            ran.err
        );
        assert!(desk.run(&["digest", "--now"]).out.contains("1 sent"));
    })
    .await;
}

#[test]
fn whoever_is_not_due_is_told_when_they_are() {
    let desk = Desk::with_people();
    desk.run(&["notify", "Published", "a1", "--to", "ada"])
        .done();

    let line = desk.run(&["digest"]).done();

    assert!(
        line.contains("UTC: nobody due; 1 waiting (next due 2")
            && line.ends_with("; --now does not wait)\n"),
        "{line}"
    );
}

#[test]
fn a_digest_can_be_for_some_people_at_some_time_with_a_limit() {
    let desk = Desk::with_people();
    desk.run(&["notify", "Published", "a1", "--to", "ada", "cem"])
        .done();
    let in_eight_days = (now() + chrono::TimeDelta::days(7))
        .format("%Y-%m-%d %H:%M")
        .to_string();
    let run = |arguments: &[&str]| {
        let mut all = vec!["digest", "--json"];
        let rehearsed = arguments.contains(&"--dry-run");
        all.extend(
            rehearsed
                .then_some(["--at", &in_eight_days])
                .iter()
                .flatten(),
        );
        all.extend(arguments);
        desk.run(&all).json()
    };

    let daily = run(&["--cadence", "daily", "--dry-run"]);
    let limited = run(&["--limit", "1", "--dry-run"]);
    let cem = run(&["--user", "cem", "--now"]);

    assert_eq!(
        (&daily["due"], &daily["dry_run"]),
        (&1.into(), &true.into())
    );
    assert_eq!(
        (&limited["due"], &limited["limited"]),
        (&1.into(), &true.into())
    );
    assert_eq!((&cem["due"], &cem["mails"]["sent"]), (&1.into(), &1.into()));
}

#[test]
fn a_worker_that_finds_only_mails_that_wait_tells_of_them_and_ends_with_3() {
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
fn a_mail_that_cannot_leave_is_a_failure_with_its_reason() {
    let desk = Desk::with_people();
    desk.run(&["notify", "Published", "a1", "--to", "ada"])
        .done();
    desk.write("outbox", "a file where the folder should be");

    let ran = desk.run(&["digest", "--now", "--no-wait"]);

    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.out.contains("1 due, 1 not settled yet"), "{}", ran.out);
    assert!(
        ran.err
            .starts_with("note: 1 email deferred (making the outbox folder outbox: "),
        "{}",
        ran.err
    );
}

#[test]
fn a_worker_answers_in_json_what_it_did() {
    let desk = Desk::with_people();
    desk.run(&["notify", "Published", "a1", "--to", "ada", "--no-wait"])
        .done();

    let round = desk.run(&["worker", "--once", "--json"]).json();

    assert_eq!(round["fanouts"]["done"], 1);
    assert_eq!(round["digests"]["pending"], 1);
    assert_eq!(
        desk.run(&["worker", "--once"]).done(),
        "worker: nothing to do\n"
    );
}

#[cfg(unix)]
#[test]
fn a_worker_ends_when_it_is_asked_to_and_says_what_it_did() {
    let desk = Desk::with_people();
    desk.run(&["notify", "Published", "a1", "--to", "ada", "--no-wait"])
        .done();
    let mut worker = desk
        .command(&["worker"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(worker.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("1 fan-out done, 1 entry added") {
        line.clear();
        assert!(
            log.read_line(&mut line).unwrap() > 0,
            "it ended before it worked"
        );
    }

    let asked = Command::new("kill")
        .arg(worker.id().to_string())
        .status()
        .unwrap();

    assert!(asked.success() && worker.wait().unwrap().success());
    let mut rest = String::new();
    log.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("worker: stopped\n"), "{rest}");
    assert!(desk.run(&["feed", "ada"]).done().contains("a1"));
}

#[test]
fn status_tells_a_script_what_it_tells_people() {
    let desk = Desk::with_people();
    desk.run(&["notify", "Published", "a1", "--to", "ada"])
        .done();
    desk.run(&["notify", "Published", "a2", "--to", "ada", "--no-wait"])
        .done();

    let status = desk.run(&["status", "--json"]).json();

    assert_eq!(status["store"], "sqlite:tidings.db");
    assert_eq!(
        status["fanouts"],
        serde_json::json!({"pending": 1, "done": 1})
    );
    assert_eq!(status["oldest_pending_day"], status["days"][0]["day"]);
    assert_eq!(
        (
            &status["days"][0]["stacks"],
            &status["days"][0]["in_window"]
        ),
        (&1.into(), &true.into())
    );
    assert_eq!(status["deliveries"]["sent"], 0);
}
