//! `serve`: where it listens, with which key, and how it ends.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::Desk;

/// A server that has said where it listens.
struct Serving {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    url: String,
    key: String,
}

impl Serving {
    fn start(desk: &Desk, arguments: &[&str]) -> Self {
        Self::start_with(desk, arguments, &[])
    }

    /// Starts a server with these environment variables.
    fn start_with(desk: &Desk, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut all = vec!["serve", "--listen", "127.0.0.1:0"];
        all.extend(arguments);
        let mut child = desk
            .command(&all)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let (mut url, mut key) = (String::new(), String::new());
        while key.is_empty() {
            let mut line = String::new();
            assert!(
                out.read_line(&mut line).unwrap() > 0,
                "it ended before it listened"
            );
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["tidings", _, "listens", "on", at] => url = (*at).to_owned(),
                ["key", made_up, ..] => key = made_up.trim_end_matches(',').to_owned(),
                _ => {}
            }
        }
        Self {
            child,
            out,
            url,
            key,
        }
    }

    /// Asks it to end; answers its exit code and what it logged.
    fn end(mut self) -> (Option<i32>, String) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        let mut log = String::new();
        self.out.read_to_string(&mut log).unwrap();
        let mut err = self.child.stderr.take().unwrap();
        err.read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap().code(), log)
    }
}

#[cfg(unix)]
#[tokio::test]
async fn it_serves_what_the_commands_wrote_until_it_is_asked_to_end() {
    let desk = Desk::with_people();
    desk.run(&["notify", "Published", "a1", "--to", "ada", "--no-wait"])
        .done();
    desk.run(&["worker", "--once"]).done();
    let serving = Serving::start(&desk, &["--no-worker"]);
    let feed = format!("{}/v1/users/ada/feed", serving.url);
    let client = crate::support::client();

    let stranger = client.get(&feed).send().await.unwrap();
    let known = client
        .get(&feed)
        .bearer_auth(&serving.key)
        .send()
        .await
        .unwrap();

    assert_eq!(
        (stranger.status().as_u16(), known.status().as_u16()),
        (401, 200)
    );
    let served: Value = known.json().await.unwrap();
    assert_eq!(
        served,
        desk.run(&["feed", "ada", "--json"]).json(),
        "both faces answer alike"
    );
    assert_eq!(serving.key.len(), 48);
    let (code, log) = serving.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.ends_with("stopped\n"), "{log}");
}

#[cfg(unix)]
#[tokio::test]
async fn what_the_api_answers_is_what_json_says_of_the_same_thing() {
    let desk = Desk::with_people();
    desk.write("tidings.toml", "[types.Comment]\nroute = \"batch\"");
    let event = ["notify", "Comment", "c1", "--to", "ada", "--key", "k1"];
    let notified = desk.run(&[&event[..], &["--json"]].concat()).json();
    desk.run(&["suppressions", "add", "ada@example.org"]).done();
    let serving = Serving::start(&desk, &["--no-worker"]);
    let client = crate::support::client();
    let asked = async |path: &str| -> Value {
        let request = client.get(format!("{}{path}", serving.url));
        let answer = request.bearer_auth(&serving.key).send().await.unwrap();
        answer.json().await.unwrap()
    };
    let posted = client
        .post(format!("{}/v1/events", serving.url))
        .bearer_auth(&serving.key)
        .json(&json!({"type": "Comment", "objects": "c1", "to": "ada", "key": "k1"}));
    let posted: Value = posted.send().await.unwrap().json().await.unwrap();

    let progress = asked(&format!("/v1/events/{}", posted["id"].as_str().unwrap())).await;
    let feed = asked("/v1/users/ada/feed").await;
    let batches = asked("/v1/batches").await["batches"].take();
    let suppressed = asked("/v1/suppressions").await["suppressions"].take();
    let preferences = asked("/v1/users/ada/preferences").await;

    let again = desk.run(&[&event[..], &["--json"]].concat()).json();
    let same = |names: &[&str], one: &Value, other: &Value| {
        for name in names {
            assert_eq!(one[name], other[name], "{name}");
        }
    };
    same(&["id", "known", "warnings"], &posted, &again);
    same(&["id", "state"], &progress, &notified);
    same(
        &["people", "pushed", "capped"],
        &progress["counts"],
        &notified,
    );
    assert_eq!(feed, desk.run(&["feed", "ada", "--json"]).json());
    assert_eq!(batches, desk.run(&["batches", "list", "--json"]).json());
    let line = desk.run(&["suppressions", "list", "--json"]).json();
    assert_eq!(suppressed, json!([line]));
    let explained = desk.run(&["explain", "ada", "--json"]).json();
    assert_eq!(explained["batches"], batches);
    assert_eq!(explained["suppression"], line);
    same(
        &["cadence", "weekday", "hour"],
        &explained["digest"],
        &preferences["digest"],
    );
    assert_eq!(explained["digest"]["tz"], preferences["tz"]);
    let (code, log) = serving.end();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn an_address_that_is_taken_is_a_failure_that_says_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();

    let ran = Desk::new().run(&["serve", "--listen", &address]);

    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(
        ran.err
            .contains(&format!("error: listening on {address}: ")),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("try: --listen 127.0.0.1:0"), "{}", ran.err);
}

#[test]
fn a_wrong_address_is_refused() {
    let ran = Desk::new().run(&["serve", "--listen", "here"]);

    assert_eq!(ran.code, 2);
    assert!(
        ran.err
            .contains("server.listen: \"here\" is not an address"),
        "{}",
        ran.err
    );
}

#[cfg(unix)]
#[tokio::test]
async fn a_log_for_programs_tells_of_events_within_their_request_and_names_nobody() {
    let desk = Desk::new();
    desk.write("tidings.toml", "[log]\nformat = \"json\"\n");
    let serving = Serving::start(&desk, &["--log", "debug"]);
    let client = crate::support::client();
    let ask = |path: &str, body: Value| {
        let asked = client.post(format!("{}{path}", serving.url));
        let asked = asked.bearer_auth(&serving.key).json(&body);
        asked.header("X-Request-Id", "r-17").send()
    };
    let person = json!({"id": "ada", "email": "ada@example.org", "confirmed": true});
    let event = json!({"type": "Loan", "objects": ["o1"], "to": ["ada"]});

    let users = ask("/v1/users", json!([person])).await.unwrap();
    let accepted = ask("/v1/events", event).await.unwrap();

    assert!(users.status().is_success() && accepted.status().is_success());
    assert_eq!(accepted.headers()["x-request-id"], "r-17");
    let key = serving.key.clone();
    let (code, log) = serving.end();
    assert_eq!(code, Some(0), "{log}");
    let lines = log.lines().filter(|line| line.starts_with('{'));
    let lines: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let told = |message: &str| {
        let found = lines.iter().find(|line| line["message"] == message);
        found.unwrap_or_else(|| panic!("{message}: {log}"))
    };
    let accepted = told("an event was accepted");
    assert_eq!(accepted["event"].as_str().unwrap().len(), 24, "{accepted}");
    assert_eq!(accepted["span"]["request"], "r-17", "{accepted}");
    let answered = told("a request was answered");
    assert_eq!(answered["span"]["request"], "r-17", "{answered}");
    for secret in ["ada@", "example.org", &key] {
        let told = lines.iter().find(|line| line.to_string().contains(secret));
        assert_eq!(told, None);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_worker_tells_its_metrics_where_that_is_configured() {
    let desk = Desk::with_people();
    let mut worker = desk.command(&["worker"]);
    let worker = worker.env("TIDINGS_METRICS_LISTEN", "127.0.0.1:0");
    let mut child = worker.stderr(Stdio::piped()).spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let url = loop {
        let mut line = String::new();
        assert!(err.read_line(&mut line).unwrap() > 0, "it ended");
        if let Some((_, url)) = line.trim_end().split_once("metrics: ") {
            break url.to_owned();
        }
    };

    let text = crate::support::client().get(&url).send().await.unwrap();
    let text = text.text().await.unwrap();

    assert!(text.contains("tidings_build_info"), "{text}");
    let pid = child.id().to_string();
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[cfg(unix)]
#[tokio::test]
async fn a_worker_whose_metrics_address_is_in_use_says_so_and_works() {
    let desk = Desk::with_people();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut worker = desk.command(&["worker"]);
    let worker = worker.env("TIDINGS_METRICS_LISTEN", &address);
    let mut child = worker.stderr(Stdio::piped()).spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("metrics: ") {
        line.clear();
        assert!(err.read_line(&mut line).unwrap() > 0, "it ended");
    }

    let running = || desk.run(&["status", "--json"]).json()["worker"]["running"] == true;
    while !running() {
        assert_eq!(child.try_wait().unwrap(), None, "it ended");
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").arg(pid).status().unwrap().success());

    let expected = format!("another process listens on {address} (metrics.listen)");
    assert!(line.contains(&expected), "{line}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let status = desk.run(&["status"]).done();
    assert!(
        status.contains("worker    not running; last active "),
        "{status}"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn a_server_whose_metrics_address_is_in_use_says_so_and_serves() {
    let desk = Desk::with_people();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let listens = [("TIDINGS_METRICS_LISTEN", address.as_str())];
    let serving = Serving::start_with(&desk, &["--no-worker"], &listens);

    let healthy = crate::support::client()
        .get(format!("{}/healthz", serving.url))
        .send();
    let healthy = healthy.await.unwrap();
    let (code, log) = serving.end();

    assert_eq!((healthy.status().as_u16(), code), (200, Some(0)), "{log}");
    let expected = format!("another process listens on {address} (metrics.listen)");
    assert!(log.contains(&expected), "{log}");
}
