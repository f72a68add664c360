//! `serve` and `worker`: addresses, keys, logs, metrics and shutdown.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Desk;
use crate::support::assert_contains;

/// A running server that has printed its address and key.
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
            assert!(out.read_line(&mut line).unwrap() > 0, "it ended before it listened");
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["tidings", _, "listens", "on", at] => url = (*at).to_owned(),
                ["key", made_up, ..] => key = made_up.trim_end_matches(',').to_owned(),
                _ => {}
            }
        }
        Self { child, out, url, key }
    }

    /// Stops the server with SIGTERM. Returns its exit code and its log.
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
async fn it_serves_the_data_of_the_store_until_sigterm() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada", "--no-wait"]);
    desk.done(&["worker", "--once"]);
    let serving = Serving::start(&desk, &["--no-worker"]);
    let feed = format!("{}/v1/users/ada/feed", serving.url);
    let client = crate::support::client();

    let without_key = client.get(&feed).send().await.unwrap();
    let with_key = client.get(&feed).bearer_auth(&serving.key).send().await.unwrap();

    assert_eq!((without_key.status().as_u16(), with_key.status().as_u16()), (401, 200));
    let served: Value = with_key.json().await.unwrap();
    assert_eq!(served, desk.run(&["feed", "ada", "--json"]).json(), "both faces answer alike");
    assert_eq!(serving.key.len(), 48);
    let (code, log) = serving.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.ends_with("stopped\n"), "{log}");
}

#[cfg(unix)]
#[test]
fn an_unfinished_request_does_not_outlast_the_grace() {
    let desk = Desk::with_people();
    let variables = [("TIDINGS_SERVER_GRACE", "1s")];
    let serving = Serving::start_with(&desk, &["--no-worker"], &variables);
    let address = serving.url.trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nHost: tidings\r\nAuthorization: Bearer {}\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n",
        serving.key
    );
    stream.write_all(head.as_bytes()).unwrap();
    // The server sends this when the handler starts to read the body.
    let mut interim = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut interim).unwrap();
    let stopping = Instant::now();

    let (code, log) = serving.end();

    assert_eq!(code, Some(0), "{log}");
    // Half of the default grace.
    assert!(stopping.elapsed() < Duration::from_secs(22), "{log}");
}

#[cfg(unix)]
#[tokio::test]
async fn the_api_and_the_json_output_of_commands_agree() {
    let desk = Desk::with_people();
    desk.write("tidings.toml", "[types.Comment]\nroute = \"batch\"");
    let event = ["notify", "Comment", "c1", "--to", "ada", "--key", "k1"];
    let notified = desk.run(&[&event[..], &["--json"]].concat()).json();
    desk.done(&["suppressions", "add", "ada@example.org"]);
    let serving = Serving::start(&desk, &["--no-worker"]);
    let client = crate::support::client();
    let fetch = async |path: &str| -> Value {
        let request = client.get(format!("{}{path}", serving.url));
        let answer = request.bearer_auth(&serving.key).send().await.unwrap();
        answer.json().await.unwrap()
    };
    let posted = client
        .post(format!("{}/v1/events", serving.url))
        .bearer_auth(&serving.key)
        .json(&json!({"type": "Comment", "objects": "c1", "to": "ada", "key": "k1"}));
    let posted: Value = posted.send().await.unwrap().json().await.unwrap();

    let progress = fetch(&format!("/v1/events/{}", posted["id"].as_str().unwrap())).await;
    let feed = fetch("/v1/users/ada/feed").await;
    let batches = fetch("/v1/batches").await["batches"].take();
    let suppressed = fetch("/v1/suppressions").await["suppressions"].take();
    let preferences = fetch("/v1/users/ada/preferences").await;

    let again = desk.run(&[&event[..], &["--json"]].concat()).json();
    let same = |names: &[&str], one: &Value, other: &Value| {
        for name in names {
            assert_eq!(one[name], other[name], "{name}");
        }
    };
    same(&["id", "duplicate", "warnings"], &posted, &again);
    same(&["id", "state"], &progress, &notified);
    same(&["people", "pushed", "capped"], &progress["counts"], &notified);
    assert_eq!(feed, desk.run(&["feed", "ada", "--json"]).json());
    assert_eq!(batches, desk.run(&["batches", "--json"]).json());
    let line = desk.run(&["suppressions", "--json"]).json();
    assert_eq!(suppressed, json!([line]));
    let explained = desk.run(&["explain", "ada", "--json"]).json();
    assert_eq!(explained["batches"], batches);
    assert_eq!(explained["suppression"], line);
    same(&["cadence", "weekday", "hour"], &explained["digest"], &preferences["digest"]);
    assert_eq!(explained["digest"]["tz"], preferences["tz"]);
    let (code, log) = serving.end();
    assert_eq!(code, Some(0), "{log}");
}

#[cfg(unix)]
#[test]
fn health_exits_with_0_only_while_the_server_answers() {
    let desk = Desk::with_people();
    let serving = Serving::start(&desk, &["--no-worker"]);
    let url = serving.url.clone();
    let address = url.trim_start_matches("http://").to_owned();
    let port = address.rsplit(':').next().unwrap();
    let anywhere = format!("[server]\nlisten = \"0.0.0.0:{port}\"\n");
    let run = |arguments: &[&str]| {
        let mut command = desk.command(&[&["health"], arguments].concat());
        // It ignores proxies.
        let ran = command.env("HTTP_PROXY", "http://127.0.0.1:1").output();
        super::Ran::from(ran.unwrap())
    };

    let ready = run(&["--url", &url]);
    let alive = run(&["--url", &format!("{url}/"), "--alive"]);
    desk.write("tidings.toml", &anywhere);
    let configured = run(&[]);
    let elsewhere = run(&["--url", &format!("{url}/nowhere")]);
    let (code, log) = serving.end();
    let after = run(&[]);

    assert_eq!(code, Some(0), "{log}");
    assert_eq!(ready.done(), format!("{url}/readyz: ready\n"));
    assert_eq!(alive.done(), format!("{url}/healthz: alive\n"));
    assert_eq!(configured.done(), format!("{url}/readyz: ready\n"));
    assert_eq!((elsewhere.code, after.code), (1, 1));
    assert_contains!(elsewhere.err, "/nowhere/readyz answers 404");
    assert_contains!(after.err, "/readyz does not answer: ");
    assert_contains!(after.err, "\n  try: tidings serve");
}

#[cfg(target_os = "linux")]
#[test]
fn systemd_gets_notified_of_the_start_of_life_and_of_the_end() {
    let desk = Desk::with_people();
    let path = desk.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let patience = std::time::Duration::from_secs(60);
    socket.set_read_timeout(Some(patience)).unwrap();
    let receive = || {
        let mut message = [0; 64];
        let length = socket.recv(&mut message).unwrap();
        let text = String::from_utf8(message[..length].to_vec()).unwrap();
        text.trim_end().to_owned()
    };
    let variables = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "100000")];
    let serving = Serving::start_with(&desk, &[], &variables);

    let first = [receive(), receive()];
    let (code, log) = serving.end();
    let mut last = receive();
    while last == "WATCHDOG=1" {
        last = receive();
    }

    assert_eq!(first, ["READY=1", "WATCHDOG=1"]);
    assert_eq!((last.as_str(), code), ("STOPPING=1", Some(0)), "{log}");
}

#[test]
fn an_address_in_use_is_a_failure_with_advice() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();

    let ran = Desk::new().run(&["serve", "--listen", &address]);

    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert_contains!(ran.err, &format!("error: listening on {address}: "));
    assert!(ran.err.contains("try: --listen 127.0.0.1:0"), "{}", ran.err);
}

#[test]
fn an_invalid_address_is_rejected() {
    let ran = Desk::new().run(&["serve", "--listen", "here"]);

    assert_eq!(ran.code, 2);
    assert_contains!(ran.err, "server.listen: \"here\" is not an address");
}

#[cfg(unix)]
#[tokio::test]
async fn json_logs_carry_request_ids_and_no_personal_data() {
    let desk = Desk::new();
    desk.write("tidings.toml", "[log]\nformat = \"json\"\n");
    let serving = Serving::start(&desk, &["--log", "debug"]);
    let client = crate::support::client();
    let ask = |path: &str, body: Value| {
        let request = client.post(format!("{}{path}", serving.url));
        let request = request.bearer_auth(&serving.key).json(&body);
        request.header("X-Request-Id", "r-17").send()
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
    let lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    let logged = |message: &str| {
        let found = lines.iter().find(|line| line["message"] == message);
        found.unwrap_or_else(|| panic!("{message}: {log}"))
    };
    let accepted = logged("an event was accepted");
    assert_eq!(accepted["event"].as_str().unwrap().len(), 24, "{accepted}");
    assert_eq!(accepted["span"]["request"], "r-17", "{accepted}");
    let answered = logged("a request was answered");
    assert_eq!(answered["span"]["request"], "r-17", "{answered}");
    for secret in ["ada@", "example.org", &key] {
        let leak = lines.iter().find(|line| line.to_string().contains(secret));
        assert_eq!(leak, None);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_worker_serves_metrics_on_the_configured_address() {
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
async fn a_worker_runs_although_its_metrics_address_is_in_use() {
    let desk = Desk::with_people();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
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
    let status = desk.done(&["status"]);
    assert_contains!(status, "worker    not running; last active ");
}

#[cfg(unix)]
#[tokio::test]
async fn a_server_runs_although_its_metrics_address_is_in_use() {
    let desk = Desk::with_people();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let listens = [("TIDINGS_METRICS_LISTEN", address.as_str())];
    let serving = Serving::start_with(&desk, &["--no-worker"], &listens);

    let healthy = crate::support::client().get(format!("{}/healthz", serving.url)).send();
    let healthy = healthy.await.unwrap();
    let (code, log) = serving.end();

    assert_eq!((healthy.status().as_u16(), code), (200, Some(0)), "{log}");
    let expected = format!("another process listens on {address} (metrics.listen)");
    assert!(log.contains(&expected), "{log}");
}
