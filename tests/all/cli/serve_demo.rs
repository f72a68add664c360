//! `serve --demo`: the demo gallery in a browser, only for users of this machine.
//!
//! Tests send requests as the demo page does. The server rejects requests that a foreign page could
//! make a browser send. Start with [`Demo`].

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use reqwest::{Client, RequestBuilder, Response};
use serde_json::{Value, json};
use tidings::http::api::{DEMO_ROUTES, Route};

use super::Desk;

fn demo_routes() -> impl Iterator<Item = &'static Route> {
    DEMO_ROUTES.iter().flat_map(|table| table.routes)
}

/// A running demo server in its own folder.
struct Demo {
    desk: Desk,
    child: Child,
    /// Without a trailing slash.
    url: String,
    key: String,
    client: Client,
}

impl Demo {
    fn start() -> Self {
        let desk = Desk::new();
        let mut child = desk
            .command(&["serve", "--demo", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (mut url, mut key) = (String::new(), String::new());
        while key.is_empty() {
            let line = lines.next().expect("it ended before it served").unwrap();
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["tidings", _, "shows", at] => url = at.strip_suffix("/demo").unwrap().to_owned(),
                ["key", made_up, ..] => key = made_up.trim_end_matches(',').to_owned(),
                _ => {}
            }
        }
        Self { desk, child, url, key, client: crate::support::client() }
    }

    /// Builds a request as the script of the demo page sends it.
    fn ask(&self, method: &str, path: &str) -> RequestBuilder {
        let request = self.foreign(method, path);
        match method {
            "post" => request.header("Origin", &self.url),
            _ => request,
        }
    }

    /// Builds the same request without an `Origin` header.
    fn foreign(&self, method: &str, path: &str) -> RequestBuilder {
        let path = path.replace("{id}", "mara").replace("{number}", "0");
        let url = format!("{}{}", self.url, path.replace("{name}", "W01"));
        self.client.request(method.to_uppercase().parse().unwrap(), url)
    }

    async fn get(&self, path: &str) -> Value {
        read(self.ask("get", path)).await
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        read(self.ask("post", path).json(&body)).await
    }

    async fn token(&self, person: &str) -> String {
        let path = format!("/demo/people/{person}");
        let played = self.post(&path, json!({})).await;
        played["token"].as_str().unwrap().to_owned()
    }

    /// Returns the unseen count of a user's feed.
    async fn unseen(&self, person: &str) -> u64 {
        let path = format!("/v1/users/{person}/feed/count");
        let request = self.ask("get", &path).bearer_auth(self.token(person).await);
        read(request).await["unseen"].as_u64().unwrap()
    }

    /// Returns the emails and the scene, which a rejected request must not change.
    async fn state(&self) -> [Value; 2] {
        [self.get("/demo/mails").await, self.get("/demo/scene").await]
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _code = self.child.wait();
    }
}

async fn read(request: RequestBuilder) -> Value {
    let answer = request.send().await.unwrap();
    let (status, text) = (answer.status(), answer.text().await.unwrap());
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

async fn refused(answer: Response, what: &str) {
    assert_eq!(answer.status(), 403, "{what}");
    let problem: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(problem["code"], "forbidden", "{what}");
}

/// Returns the new emails of a response, each with its user and its content.
async fn new_emails(demo: &Demo, sent: &Value) -> Vec<(String, String)> {
    let count = sent["new"].as_u64().unwrap() as usize;
    let mut emails = Vec::new();
    for email in sent["emails"].as_array().unwrap().iter().take(count) {
        let path = format!("/demo/mails/{}", email["number"]);
        let answer = demo.ask("get", &path).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let user = email["user"].as_str().unwrap().to_owned();
        emails.push((user, answer.text().await.unwrap()));
    }
    emails
}

/// Returns the users of the emails that contain a text, sorted. Two such emails list a user twice.
fn recipients<'a>(emails: &'a [(String, String)], text: &str) -> Vec<&'a str> {
    let emails = emails.iter().filter(|(_, email)| email.contains(text));
    let mut users: Vec<&str> = emails.map(|(user, _)| user.as_str()).collect();
    users.sort_unstable();
    users
}

#[tokio::test]
async fn a_published_work_is_in_feeds_and_in_one_email_per_follower() {
    let demo = Demo::start();
    let (before, otto) = (demo.unseen("mara").await, demo.unseen("otto").await);

    let work = json!({"artist": "Ines Tavoro", "title": " The Last Tram <Home> "});
    let published = demo.post("/demo/works", work).await;
    let then = (demo.unseen("mara").await, demo.unseen("otto").await);
    let first = demo.post("/demo/digests", json!({})).await;
    let again = demo.post("/demo/digests", json!({})).await;

    assert_eq!(published["people"], 4, "ada, lev, mara and uma");
    assert_eq!(then, (before + 1, otto), "otto follows others");
    let emails = new_emails(&demo, &first).await;
    let title = "The Last Tram &lt;Home&gt;";
    assert_eq!(recipients(&emails, title), ["ada", "lev", "mara"]);
    assert!(emails.iter().all(|(_, email)| email.contains("/u/")));
    assert_eq!(again["new"], 0, "{again}");
}

#[tokio::test]
async fn digests_can_be_sent_repeatedly_and_include_all_accepted_events() {
    let demo = Demo::start();
    demo.post("/demo/digests", json!({})).await;

    // Digests run at a simulated time. In the last round, today has left the window.
    for round in 1..=3 {
        let (object, key) = (format!("O{round}"), &demo.key);
        let title = format!("Object of round {round}");
        let object_url = format!("{}/v1/objects/Artwork/{object}", demo.url);
        let put = demo.client.put(object_url).bearer_auth(key);
        let put = put.json(&json!({"title": title})).send().await.unwrap();
        assert_eq!(put.status(), 204);
        let event =
            json!({"type": "ArtworkPublished", "objects": object, "followers_of": "artist:tavoro"});
        let posted = demo.ask("post", "/v1/events").bearer_auth(key).json(&event);
        assert_eq!(posted.send().await.unwrap().status(), 202);

        let sent = demo.post("/demo/digests", json!({})).await;

        // A run without new events must not record that today has no backlog.
        let nothing = demo.post("/demo/digests", json!({})).await;

        let emails = new_emails(&demo, &sent).await;
        assert_eq!(recipients(&emails, &title), ["ada", "lev", "mara"]);
        assert_eq!(nothing["new"], 0, "{nothing}");
    }
}

#[tokio::test]
async fn only_loopback_host_names_are_served() {
    let demo = Demo::start();
    let others = ["/v1/users/mara/feed", "/u/x", "/healthz", "/widget.js", "/"];
    let others = others.map(|path| ("get", path));
    let routes = demo_routes().map(|route| (route.method, route.path));
    let port = demo.url.rsplit(':').next().unwrap();

    for (method, path) in routes.chain(others) {
        for host in [format!("demo.example:{port}"), "demo.example".into(), "10.0.0.1".into()] {
            let request = demo.ask(method, path).bearer_auth(&demo.key);
            // The origin matches the host name, so only the name can be the reason.
            let request = request.header("Origin", format!("http://{host}"));
            let answer = request.header("Host", &host).send().await.unwrap();
            refused(answer, &format!("{method} {path} of {host}")).await;
        }
    }

    for host in ["localhost", "127.0.0.1", "[::1]:80"] {
        let request = demo.ask("get", "/demo").header("Host", host);
        assert_eq!(request.send().await.unwrap().status(), 200, "{host}");
    }
}

#[tokio::test]
async fn a_request_with_a_missing_or_ambiguous_host_is_rejected() {
    let demo = Demo::start();
    let addr = demo.url.strip_prefix("http://").unwrap();

    for head in [
        "GET /demo/scene HTTP/1.0\r\n".to_owned(),
        format!("GET http://demo.example/demo/scene HTTP/1.1\r\nHost: {addr}\r\n"),
        format!("GET /demo/scene HTTP/1.1\r\nHost: {addr}\r\nHost: demo.example\r\n"),
    ] {
        let mut stream = TcpStream::connect(addr).unwrap();
        let request = format!("{head}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap_or("none");
        assert!(matches!(status, "400" | "403"), "{head}: {answer}");
    }
}

#[tokio::test]
async fn requests_from_other_origins_are_rejected_and_change_nothing() {
    let demo = Demo::start();
    let before = demo.state().await;
    let posts = demo_routes().filter(|route| route.method == "post");
    let posts: Vec<&str> = posts.map(|route| route.path).collect();

    for path in &posts {
        let request = |headers: &[(&'static str, &str)]| {
            let body = json!({"artist": "Ines Tavoro", "title": "Forged"}).to_string();
            let request = demo.foreign("post", path).body(body);
            let request = request.header("Content-Type", "application/json");
            let headers = headers.iter();
            headers.fold(request, |request, (name, value)| request.header(*name, *value))
        };
        for headers in [
            &[][..],
            &[("Origin", "https://demo.example")],
            &[("Origin", "http://127.0.0.1:1")],
            &[("Origin", "null")],
            &[("Origin", &demo.url), ("Sec-Fetch-Site", "cross-site")],
            &[("Origin", &demo.url), ("Sec-Fetch-Site", "same-site")],
            &[("Origin", &demo.url), ("Origin", "https://demo.example")],
        ] {
            let answer = request(headers).send().await.unwrap();
            refused(answer, &format!("{path} with {headers:?}")).await;
        }
    }

    assert_eq!(posts.len(), 3);
    assert_eq!(demo.state().await, before);
}

#[tokio::test]
async fn invalid_requests_are_reported_and_change_nothing() {
    let demo = Demo::start();
    let before = demo.state().await;
    let work = |artist: &str, title: &str| json!({"artist": artist, "title": title});
    let long = "x".repeat(81);

    for (path, body, expected) in [
        ("/demo/works", work("Nobody", "A"), "artist \\\"Nobody\\\" has no work"),
        ("/demo/works", work("Ines Tavoro", " "), "title \\\" \\\" says nothing"),
        ("/demo/works", work("Ines Tavoro", &long), "is longer than 80"),
        ("/demo/works", json!({"title": "A"}), "missing field `artist`"),
        ("/demo/works", work("Ines Tavoro", "a\u{0}b"), "another control character"),
        ("/demo/people/eve", json!({}), "is no user of the demo"),
    ] {
        let answer = demo.ask("post", path).json(&body).send().await.unwrap();
        let status = answer.status().as_u16();
        let problem = answer.text().await.unwrap();
        assert!(matches!(status, 400 | 404), "{path}: {status} {problem}");
        assert!(problem.contains(expected), "{path}: {problem}");
    }

    for path in ["/demo/mails/99", "/demo/mails/-1", "/demo/mails/..%2Ftidings.toml"] {
        let answer = demo.ask("get", path).send().await.unwrap();
        assert_eq!(answer.status(), 404, "{path}");
    }
    assert_eq!(demo.state().await, before);
}

#[tokio::test]
async fn pages_contain_no_secrets_and_run_no_foreign_scripts() {
    let demo = Demo::start();
    let config = std::fs::read_to_string(demo.desk.path().join("tidings-demo/tidings.toml"));
    let config = config.unwrap();
    let quoted = |option: &str| {
        let (_, rest) = config.split_once(&format!("\n{option} = \"")).unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    let secrets = [quoted("key"), quoted("secret")];
    assert!(secrets.iter().all(|secret| secret.len() == 48) && secrets[0] == demo.key);

    for route in demo_routes().filter(|route| route.method == "get") {
        let answer = demo.ask("get", route.path).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{}", route.path);
        let header = |name: &str| {
            let value = answer.headers().get(name);
            value.map_or("", |value| value.to_str().unwrap()).to_owned()
        };
        let (kind, policy) = (header("Content-Type"), header("Content-Security-Policy"));
        assert_eq!(header("Cache-Control"), "no-store", "{}", route.path);
        if !kind.starts_with("application/json") {
            assert!(policy.starts_with("default-src 'none'; "), "{}", route.path);
            assert!(!policy.contains("unsafe-eval") && !policy.contains('*'));
            let scripts = policy.split("; ").filter(|part| part.starts_with("script-src"));
            assert!(scripts.into_iter().all(|part| part == "script-src 'self'"));
        }
        let text = answer.text().await.unwrap();
        assert!(secrets.iter().all(|secret| !text.contains(secret)));
    }
    let email = demo.ask("get", "/demo/mails/0").send().await.unwrap();
    let policy = email.headers()["Content-Security-Policy"].to_str().unwrap();
    assert!(policy.contains("sandbox allow-popups allow-popups-to-escape-sandbox;"));
    assert!(!policy.contains("script"));
}

#[tokio::test]
async fn a_demo_user_can_open_preferences_and_unsubscribe() {
    let demo = Demo::start();
    let played = demo.post("/demo/people/mara", json!({})).await;
    let link = |name: &str| played[name].as_str().unwrap().to_owned();

    let page = demo.client.get(link("preferences")).send().await.unwrap();
    assert_eq!(page.status(), 200);
    assert!(page.text().await.unwrap().contains("Comments"));
    let left = demo.client.post(link("unsubscribe"));
    let left = left.header("Content-Type", "application/x-www-form-urlencoded");
    let left = left.body("List-Unsubscribe=One-Click");
    assert_eq!(left.send().await.unwrap().status(), 200);
    let published = json!({"artist": "Ines Tavoro", "title": "Unheard"});
    demo.post("/demo/works", published).await;
    let sent = demo.post("/demo/digests", json!({})).await;

    let emails = new_emails(&demo, &sent).await;
    assert!(emails.iter().any(|(user, _)| user == "lev"));
    assert!(emails.iter().all(|(user, _)| user != "mara"));
    let scene = demo.get("/demo/scene").await;
    let people = scene["people"].as_array().unwrap();
    let of = |id: &str| people.iter().find(|person| person["id"] == id).unwrap();
    assert_eq!(of("mara")["digest"], "unsubscribed");
    assert_eq!(of("ada")["digest"], "Mon 9:00, New York");
}

#[test]
fn the_demo_is_rejected_on_a_public_address() {
    for address in ["0.0.0.0:0", "[::]:8080", "192.0.2.1:8080"] {
        let desk = Desk::new();

        let ran = desk.run(&["serve", "--demo", "--listen", address]);

        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
        let message = format!("{address} is open to others");
        assert!(ran.err.contains(&message), "{}", ran.err);
        assert!(ran.err.contains("try: --listen 127.0.0.1:"), "{}", ran.err);
        assert!(!desk.path().join("tidings-demo").exists());
    }
}

#[test]
fn an_earlier_demo_is_kept_if_the_new_one_cannot_listen() {
    let desk = Desk::new();
    desk.done(&["demo"]);
    let config = desk.path().join("tidings-demo/tidings.toml");
    let before = std::fs::read(&config).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();

    let busy = desk.run(&["serve", "--demo", "--listen", &address]);

    assert_eq!(busy.code, 1, "{}", busy.err);
    assert!(busy.err.contains("listening on"), "{}", busy.err);
    assert_eq!(std::fs::read(config).unwrap(), before);
}

#[test]
fn a_foreign_folder_and_another_store_are_rejected() {
    let desk = Desk::new();
    std::fs::create_dir(desk.path().join("mine")).unwrap();
    desk.write("mine/notes.txt", "mine");
    let demo = |more: &[&str]| {
        let mut all = vec!["serve", "--demo", "--listen", "127.0.0.1:0"];
        all.extend(more);
        desk.run(&all)
    };

    let foreign = demo(&["--dir", "mine"]);
    let store = demo(&["--store", "sqlite:mine.db"]);
    let alone = desk.run(&["serve", "--dir", "mine"]);

    assert_eq!((foreign.code, store.code, alone.code), (2, 2, 2));
    assert!(foreign.err.contains("mine is not empty, and no earlier demo"));
    assert!(foreign.err.contains("try: tidings serve --demo --dir DIR"));
    assert!(store.err.contains("a demo has a store of its own"));
    assert!(alone.err.contains("--demo"), "{}", alone.err);
    let left = std::fs::read_dir(desk.path().join("mine")).unwrap().count();
    assert_eq!(left, 1);
}
