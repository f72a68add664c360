//! `preview` and `send-test` show emails and pages before users get them.
//!
//! A preview sends nothing and changes nothing in the store. A test email is not recorded.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use reqwest::{Client, Response};
use serde_json::Value;

use super::Desk;
use crate::support::assert_contains;

const KIOSK: &str = r#"site.name = "Kiosk"
mail.templates = "templates"
[types.Show]
heading = "Shows near you"
[types.Comment]
route = "batch"
heading = "New comments"
phrase = "commented on"
"#;

/// A running preview server.
pub(super) struct Served {
    child: Child,
    url: String,
    client: Client,
}

impl Served {
    pub(super) fn start(desk: &Desk, more: &[&str]) -> Self {
        let arguments = [&["preview", "--listen", "127.0.0.1:0"], more].concat();
        let mut child = desk
            .command(&arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next().expect("it ended before it served").unwrap();
        Self {
            child,
            url: line.split(' ').next().unwrap().to_owned(),
            client: crate::support::client(),
        }
    }

    async fn get(&self, path: &str) -> Response {
        let request = self.client.get(format!("{}/{path}", self.url));
        request.send().await.unwrap()
    }

    async fn board(&self) -> Value {
        self.get("board").await.json().await.unwrap()
    }

    /// Returns the HTML of all emails and pages.
    pub(super) async fn sheets(&self) -> String {
        let mut all = String::new();
        for sheet in self.board().await["sheets"].as_array().unwrap() {
            let html = self.get(sheet["html"].as_str().unwrap()).await;
            all += &html.text().await.unwrap();
        }
        all
    }

    /// Polls the board until `is_so` holds, at most 60 seconds. Returns it with the time it took.
    async fn once(&self, is_so: impl Fn(&Value) -> bool) -> (Value, Duration) {
        let begin = Instant::now();
        loop {
            let board = self.board().await;
            if is_so(&board) {
                return (board, begin.elapsed());
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{board}");
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn kiosk() -> Desk {
    let desk = Desk::new();
    desk.write("tidings.toml", KIOSK);
    std::fs::create_dir_all(desk.path().join("templates/digest")).unwrap();
    desk
}

/// Returns the text of all emails of this kind on a board.
fn texts(board: &Value, kind: &str) -> String {
    let sheets = board["sheets"].as_array().unwrap().iter();
    let sheets = sheets.filter(|sheet| sheet["kind"] == kind);
    sheets.filter_map(|sheet| sheet["text"].as_str()).collect()
}

#[tokio::test]
async fn a_preview_shows_all_samples_and_writes_nothing() {
    let desk = kiosk();

    let board = Served::start(&desk, &[]).board().await;
    let pages = Served::start(&desk, &["page"]).board().await;

    assert_eq!(files(desk.path()), ["templates", "tidings.toml"]);
    let kinds = |board: &Value| {
        let sheets = board["sheets"].as_array().unwrap().iter();
        let count = |kind: &str| sheets.clone().filter(|sheet| sheet["kind"] == kind).count();
        ["digest", "batch", "page"].map(count)
    };
    assert_eq!((kinds(&board), kinds(&pages)), ([3, 3, 22], [0, 0, 22]));
}

#[tokio::test]
async fn the_emails_of_a_user_are_previewed_and_nothing_changes() {
    let desk = Desk::with_people();
    desk.write("more.toml", "types.Comment.route = \"batch\"\ntypes.Loan.route = \"digest\"\n");
    let with = |arguments: &[&str]| desk.run(&[arguments, &["--config", "more.toml"]].concat());
    with(&["notify", "Loan", "a1", "--to", "ada"]).done();
    with(&["notify", "Comment", "c1", "--to", "ada"]).done();
    let before = with(&["explain", "ada", "--json"]).done();

    let of_user = |user: &str| {
        let arguments = ["--config", "more.toml", "--user", user];
        Served::start(&desk, &arguments)
    };
    let ada = of_user("ada").board().await;
    let ben = of_user("ben").board().await;
    let unknown = with(&["preview", "--user", "zoe"]);

    assert!(texts(&ada, "digest").contains("a1"), "{ada}");
    assert!(texts(&ada, "batch").contains("c1"), "{ada}");
    assert_eq!(with(&["explain", "ada", "--json"]).done(), before);
    assert!(!desk.path().join("outbox").exists());
    // An unconfirmed user gets no digest.
    assert_eq!(texts(&ben, "digest"), "");
    assert_contains!(ben["notes"].to_string(), "ben would get no digest now");
    assert_eq!(unknown.code, 2, "{}", unknown.err);
}

#[tokio::test]
async fn a_broken_catalog_keeps_the_last_good_preview() {
    let desk = kiosk();
    let catalog = "templates/locales/de.ftl";
    std::fs::create_dir_all(desk.path().join("templates/locales")).unwrap();
    desk.write(catalog, "digest-head = { $news } für dich\n");
    let served = Served::start(&desk, &["--locale", "de"]);
    let first = served.board().await;

    desk.write(catalog, "digest-head = { $news\n");
    let (wrong, _) = served.once(|board| !board["trouble"].is_null()).await;

    let subjects = |board: &Value| -> Vec<Value> {
        let sheets = board["sheets"].as_array().unwrap();
        sheets.iter().map(|sheet| sheet["subject"].clone()).collect()
    };
    assert!(subjects(&first).len() > 9 && subjects(&wrong) == subjects(&first), "{wrong}");
    let what = wrong["trouble"].as_str().unwrap();
    assert!(what.contains("de.ftl, line "), "{what}");
    let sheet = wrong["sheets"][0]["html"].as_str().unwrap();
    assert!(served.get(sheet).await.status().is_success());
}

#[tokio::test]
async fn a_batch_is_previewed_as_its_email_would_be_sent() {
    let desk = Desk::with_people();
    desk.write(
        "more.toml",
        "batch.keep = \"last 2\"\ntypes.Comment.route = \"batch\"\ntypes.Rule.route = \"batch\"\ntypes.Rule.mandatory = true\ntypes.Rule.unknown_objects = \"mail\"\n",
    );
    let with = |arguments: &[&str]| desk.run(&[arguments, &["--config", "more.toml"]].concat());
    for comment in ["c1", "c2", "c3", "c4"] {
        with(&["notify", "Comment", comment, "--to", "ada"]).done();
    }
    with(&["notify", "Rule", "r1", "--to", "ada"]).done();
    desk.write("gone.ndjson", "{\"id\": \"c4\", \"notifiable\": false}\n");
    with(&["import", "objects", "gone.ndjson"]).done();
    let shown = async || {
        let arguments = ["batch", "--user", "ada", "--config", "more.toml"];
        texts(&Served::start(&desk, &arguments).board().await, "batch")
    };

    // The batch keeps c3 and c4, and c4 is withdrawn, so the stack supplies the older events.
    let all = shown().await;
    for comment in ["c1", "c2", "c3", "r1"] {
        assert!(all.contains(comment), "{comment} in {all}");
    }
    assert!(!all.contains("c4"), "{all}");

    desk.write(
        "ada.ndjson",
        "{\"id\": \"ada\", \"email\": \"ada@example.org\", \"confirmed\": true, \"unsubscribed\": true}\n",
    );
    with(&["import", "users", "ada.ndjson"]).done();
    let mandatory = shown().await;
    assert!(mandatory.contains("r1") && !mandatory.contains("c1"), "{mandatory}");
}

#[test]
fn an_unknown_locale_is_rejected() {
    let none = kiosk().run(&["preview", "--locale", "xx"]);

    assert_eq!(none.code, 2);
    assert_contains!(none.err, "there is no catalog for the locale \"xx\"");
    assert_contains!(none.err, "ar, de, en, en-US, es, fr, ja, pl, pt, ru");
}

#[test]
fn explain_names_the_locale_of_a_user() {
    let desk = Desk::with_people();
    let records = |locale: &str| {
        let ada = "{\"id\": \"ada\", \"email\": \"ada@example.org\", \"confirmed\": true";
        desk.write("ada.ndjson", &format!("{ada}{locale}}}\n"));
        desk.done(&["import", "users", "ada.ndjson"]);
    };
    for (locale, expected) in [
        ("", "en, as their record names no locale"),
        (", \"locale\": \"pt-BR\"", "pt, for their pt-BR"),
        (", \"locale\": \"xx\"", "en, for their xx"),
        (", \"locale\": \"de\"", "de"),
    ] {
        records(locale);

        let explained = desk.done(&["explain", "ada"]);

        let line = format!("\n  locale  {expected}\n");
        assert!(explained.contains(&line), "{explained}");
    }
}

#[tokio::test]
async fn the_page_shows_saved_templates_and_their_errors() {
    let desk = kiosk();
    let subject = "templates/digest/subject.txt";
    let served = Served::start(&desk, &[]);
    let first = served.board().await;
    let name = |board: &Value, n: usize| board["sheets"][n]["subject"].clone();
    assert_eq!(first["sheets"].as_array().unwrap().len(), 28, "{first}");
    let html = first["sheets"][0]["html"].as_str().unwrap();
    let sheet = served.get(html).await;
    let policy = sheet.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert_contains!(policy, "default-src 'none'");
    assert_contains!(policy, "sandbox");
    assert!(sheet.text().await.unwrap().contains("Shows near you"));

    desk.write(subject, "Mine");
    let (mine, took) = served.once(|board| name(board, 0) == "Mine").await;
    assert!(mine["trouble"].is_null(), "{mine}");
    println!("shown {took:?} after it was saved");
    desk.write(subject, "{# one #}\n{{ nobody }}\nthree\n");
    let (wrong, _) = served.once(|board| !board["trouble"].is_null()).await;
    let trouble = wrong["trouble"].as_str().unwrap();
    assert!(trouble.contains("subject.txt, line 2"), "{trouble}");
    // The last good preview stays.
    assert_eq!(name(&wrong, 0), "Mine");
    desk.write(subject, "Right");
    let (right, _) = served.once(|board| name(board, 0) == "Right").await;
    assert!(right["trouble"].is_null(), "{right}");
}

#[tokio::test]
async fn the_page_is_served_only_to_this_machine() {
    let desk = kiosk();
    let served = Served::start(&desk, &["digest"]);

    for path in ["", "board", "sheets/0", "page.js", "pictures/thing-1.svg"] {
        served.board().await;
        let url = format!("{}/{path}", served.url);
        let foreign = served.client.get(&url).header("Host", "evil.example");
        assert_eq!(foreign.send().await.unwrap().status(), 403, "{path}");
        assert_eq!(served.get(path).await.status(), 200, "{path}");
    }

    let open = desk.run(&["preview", "--listen", "0.0.0.0:0"]);
    assert_eq!(open.code, 2, "{}", open.err);
    assert!(open.err.contains("only for this machine"), "{}", open.err);
}

#[test]
fn a_test_email_is_marked_and_not_recorded() {
    let desk = Desk::with_people();

    let output = desk.done(&["send-test", "me@example.org"]);

    assert!(output.starts_with("the outbox accepted the email: "), "{output}");
    let [email] = &emails(&desk)[..] else {
        panic!("{:?}", emails(&desk));
    };
    assert!(
        email.contains("To: <me@example.org>") || email.contains("To: me@example.org"),
        "{email}"
    );
    assert!(email.contains("Subject: [Test] "), "{email}");
    assert_eq!(desk.run(&["deliveries", "--json"]).json(), serde_json::json!([]));
}

#[test]
fn a_test_email_needs_no_store_and_creates_none() {
    let desk = kiosk();

    desk.done(&["send-test", "me@example.org", "batch"]);

    assert_eq!(emails(&desk).len(), 1);
    assert_eq!(files(desk.path()), ["outbox", "templates", "tidings.toml"]);
}

#[test]
fn a_test_email_to_a_suppressed_address_is_rejected() {
    let desk = Desk::with_people();
    desk.done(&["suppressions", "add", "Me@Example.org"]);

    let refused = desk.run(&["send-test", "me@example.org"]);

    assert_eq!(refused.code, 2, "{}", refused.err);
    assert_contains!(refused.err, "no email is sent to this address");
    assert!(!desk.path().join("outbox").exists());
}

fn emails(desk: &Desk) -> Vec<String> {
    let outbox = desk.path().join("outbox");
    let names = files(&outbox).into_iter().filter(|name| name.ends_with(".eml"));
    let emails = names.map(|name| std::fs::read_to_string(outbox.join(name)).unwrap());
    emails.collect()
}
