//! `batches`: list, show, close and cancel batches, and remove events from them. `status` and
//! `worker` report batches too.

use serde_json::Value;

use super::Desk;

/// Creates open batches for ada and cem. Each counts three comments and keeps two.
fn with_open_batches() -> Desk {
    let desk = Desk::with_people();
    let comments = "[types.Comment]\nroute = \"batch\"\nwindow = \"1h\"\nkeep = \"last 2\"";
    desk.write("tidings.toml", comments);
    let recipients = ["--to", "ada", "--to", "cem"];
    desk.done(&[&["notify", "Comment", "c1", "c2", "c3"][..], &recipients].concat());
    desk
}

fn listed(desk: &Desk, arguments: &[&str]) -> Vec<Value> {
    let ran = desk.run(&[&["batches", "--json"], arguments].concat());
    ran.json().as_array().unwrap().clone()
}

fn id_of(desk: &Desk, user: &str) -> String {
    let batch = &listed(desk, &["--user", user])[0];
    batch["id"].as_str().unwrap().to_owned()
}

#[test]
fn open_batches_are_listed_and_shown() {
    let desk = with_open_batches();
    let id = id_of(&desk, "ada");

    let table = desk.run(&["batches", "--key", "type:Comment", "--user", "ada"]);
    let none = desk.done(&["batches", "--state", "closed"]);
    let shown = desk.done(&["batches", "show", &id]);
    let json = desk.run(&["batches", "show", &id, "--json"]).json();
    let status = desk.done(&["status"]);

    let table = table.done();
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("closes (UTC)"), "{table}");
    let row = lines[1].split_whitespace().skip(2);
    assert_eq!(row.collect::<Vec<_>>(), ["open", "3", "ada", "type:Comment", &id]);
    assert_eq!((lines.len(), none.as_str()), (2, "none\n"));
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), json);
    assert!(shown.contains("\n  \"user\": \"ada\",\n"), "{shown}");
    assert_eq!(
        (&json["count"], &json["more"], &json["items"][1]["object"]),
        (&3.into(), &1.into(), &"c3".into())
    );
    assert!(status.contains("batches   2 open\n"), "{status}");
    let status = desk.run(&["status", "--json"]).json();
    assert_eq!(status["batches"], serde_json::json!({"open": 2, "closing": 0}));
}

#[test]
fn a_batch_is_closed_or_canceled_and_the_worker_reports_it() {
    let desk = with_open_batches();
    let (ada, cem) = (id_of(&desk, "ada"), id_of(&desk, "cem"));

    let closed = desk.done(&["batches", "close", &ada]);
    let canceled = desk.run(&["batches", "cancel", &cem, &ada]);
    let again = desk.run(&["batches", "close", &ada]);
    let worked = desk.done(&["worker", "--once"]);
    let shown = desk.run(&["batches", "show", &ada, "--json"]).json();

    assert_eq!(closed, format!("{ada} is closing; a worker emails it in its next round\n"));
    assert_eq!((canceled.code, canceled.out), (3, format!("{cem} is canceled\n")));
    let conflict = format!("batch {ada} is closing: its email may be on its way\n");
    assert_eq!((again.code, again.out.as_str(), &again.err), (2, "", &conflict));
    assert_eq!(canceled.err, conflict);
    assert_eq!(
        worked,
        "worker: batches: 1 ended, 1 canceled; emails: 1 sent into outbox (3 events)\n"
    );
    assert_eq!(shown["delivery"]["id"], format!("batch:{ada}"));
    assert_eq!(shown["delivery"]["state"], "sent");
    assert_eq!(desk.done(&["status"]).matches("batches      none open\n").count(), 1);
}

#[test]
fn events_are_removed_and_omitted_items_are_reported() {
    let desk = with_open_batches();

    let out = desk.run(&["batches", "take-out", "Comment", "c3", "c9"]);
    let other = desk.done(&["batches", "take-out", "Task", "c2"]);
    let again = desk.run(&["batches", "take-out", "Comment", "c3", "--json"]);

    assert_eq!((out.code, out.out.as_str()), (0, "take-out: 2 events removed from open batches\n"));
    assert_eq!(
        out.err,
        "the same batches count 2 that they no longer keep; their objects are unknown, so they stay counted\n"
    );
    assert_eq!(other, "take-out: 0 events removed from open batches\n");
    assert_eq!(again.json(), serde_json::json!({"taken": 0, "omitted": 0}));
    assert_eq!(listed(&desk, &["--user", "ada"])[0]["count"], 2);
}

#[test]
fn a_sent_lead_is_noted_and_listed_apart_from_later_events() {
    let desk = Desk::with_people();
    let leading = "[types.Comment]\nroute = \"batch\"\nwindow = \"1h\"\nleading = true";
    desk.write("tidings.toml", leading);
    let comment = |object: &str| {
        let ran = desk.run(&["notify", "Comment", object, "--to", "ada"]);
        ran.done();
    };
    comment("c1");
    comment("c2");
    let id = id_of(&desk, "ada");

    let pending = desk.run(&["batches", "show", &id, "--json"]).json();
    desk.done(&["batches", "take-out", "Comment", "c2"]);
    desk.done(&["worker", "--once"]);
    let open = desk.done(&["batches"]);
    desk.done(&["batches", "cancel", &id]);
    let listed = desk.done(&["batches"]);

    assert_eq!(pending["lead_sent"], true);
    assert_eq!(pending["items"][0]["object"], "c2");
    let row_of = |table: &str| {
        let line = table.lines().find(|line| line.contains(&id));
        line.expect(table).to_owned()
    };
    assert!(row_of(&open).ends_with("  its lead was emailed at once"), "{open}");
    assert!(row_of(&listed).ends_with("  its lead was emailed at once"), "{listed}");
}

#[test]
fn invalid_arguments_are_rejected() {
    let desk = with_open_batches();
    let unknown = "0123456789abcdef01234567";
    for (arguments, expected) in [
        (&["batches", "--key", "Comment"][..], "does not begin with type: or key:"),
        (&["batches", "--state", "done"], "is not open, closing, closed or canceled"),
        (&["batches", "show", "1"], "is not 24 hexadecimal digits"),
        (
            &["batches", "show", unknown],
            "there is no batch 0123456789abcdef01234567\n  try: tidings batches",
        ),
        (&["batches", "cancel", unknown], "there is no batch 0123456789abcdef01234567"),
        (&["batches", "close"], "<ID>"),
        (&["batches", "take-out", "Comment"], "<OBJECT>"),
        (&["batches", "--limit", "0"], "'0'"),
    ] {
        let ran = desk.run(arguments);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(expected), "{arguments:?}: {}", ran.err);
    }
}

#[test]
fn a_limited_list_says_that_rows_are_omitted() {
    let desk = with_open_batches();

    let batches = desk.run(&["batches", "--limit", "1"]);
    let all = desk.run(&["batches", "--limit", "2"]);
    let json = desk.run(&["batches", "--limit", "1", "--json"]);
    for id in ["ada", "cem"].map(|user| id_of(&desk, user)) {
        desk.done(&["batches", "close", &id]);
    }
    desk.done(&["worker", "--once"]);
    let listed = desk.run(&["deliveries", "--limit", "1"]);

    let more = "there are more rows; use --limit (up to 1,000), or filter by --user";
    assert_eq!(batches.out.lines().count(), 2);
    assert!(batches.err.starts_with(more), "{}", batches.err);
    assert_eq!((all.out.lines().count(), all.err.as_str()), (3, ""));
    assert_eq!(json.err, "");
    assert_eq!(json.json().as_array().unwrap().len(), 1);
    assert_eq!(listed.out.lines().count(), 2);
    assert!(listed.err.starts_with(more), "{}", listed.err);
}
