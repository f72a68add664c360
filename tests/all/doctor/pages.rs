//! Checks of the public pages and the one-click link, against a running server and against others.

use tidings::http::api;
use tidings::wire::diagnosis::Severity;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Network, found, problems};
use crate::support::town::{Town, mostly_on_sqlite, only_on_sqlite};
use crate::support::{FailingStore, Fault, Fresh, Then};

only_on_sqlite! {
    the_link_secret_in_the_store_is_enough
    a_server_that_cannot_reach_its_store_is_an_error
    another_server_at_the_public_url_is_detected
    a_public_url_without_listener_or_tls_is_an_error
}

mostly_on_sqlite! {
    a_healthy_setup_has_no_problems
    the_one_click_check_changes_nothing
    a_server_with_another_link_secret_is_an_error
}

/// A running server and its URL.
struct Serving {
    url: String,
    stop: watch::Sender<bool>,
    running: JoinHandle<anyhow::Result<()>>,
}

impl Serving {
    async fn start(app: tidings::app::App) -> Self {
        let bound = api::bind(app, "a key").unwrap();
        let url = format!("http://{}", bound.addr);
        let (stop, stopped) = watch::channel(false);
        let running = tokio::spawn(bound.run(stopped));
        Self { url, stop, running }
    }

    async fn end(self) {
        self.stop.send(true).unwrap();
        self.running.await.unwrap().unwrap();
    }
}

fn town(secret: &str) -> String {
    format!("server.listen = \"127.0.0.1:0\"\nserver.link_secret = \"{secret}\"")
}

const SECRET: &str = "the link secret of the tests";

fn more(fresh: &Fresh, url: &str) -> String {
    format!("store = \"{}\"\nserver.public_url = \"{url}\"", fresh.url())
}

async fn a_healthy_setup_has_no_problems(fresh: Fresh) {
    let town = Town::found(&fresh, true, &town(SECRET)).await;
    let serving = Serving::start(town.process()).await;

    let seen = Network::healthy().await.findings(&more(&fresh, &serving.url)).await;

    let mut problems = problems(&seen);
    // The tests use neither HTTPS nor more than one database server.
    problems.retain(|(_, check)| *check != "server.public_url" && *check != "replication");
    assert_eq!(problems, [], "{seen:#?}");
    serving.end().await;
}

async fn the_one_click_check_changes_nothing(fresh: Fresh) {
    let town = Town::found(&fresh, true, &town(SECRET)).await;
    let serving = Serving::start(town.process()).await;
    let users = crate::support::town::PEOPLE.map(crate::support::user);
    let before = fresh.users(&users).await.unwrap();

    let seen = Network::healthy().await.findings(&more(&fresh, &serving.url)).await;

    found(&seen, "one-click", Severity::Ok, "a forged one was not");
    assert_eq!(fresh.users(&users).await.unwrap(), before);
    let empty_id = [tidings::domain::UserId::stored("")];
    assert_eq!(fresh.users(&empty_id).await.unwrap(), [None]);
    assert_eq!(fresh.note("doctor").await.unwrap(), None);
    serving.end().await;
}

async fn a_server_with_another_link_secret_is_an_error(fresh: Fresh) {
    let town = Town::found(&fresh, true, &town("another secret of the tests")).await;
    let serving = Serving::start(town.process()).await;

    let seen = Network::healthy().await.findings(&more(&fresh, &serving.url)).await;

    found(&seen, "public pages", Severity::Ok, "answers");
    found(&seen, "one-click", Severity::Error, "same store and server.link_secret");
    serving.end().await;
}

async fn the_link_secret_in_the_store_is_enough(fresh: Fresh) {
    let town = Town::found(&fresh, true, "server.listen = \"127.0.0.1:0\"").await;
    let serving = Serving::start(town.process()).await;
    let network = Network::healthy().await;
    let url = format!("mail.url = \"{}\"\n", network.provider.url);
    let own = super::HEALTHY.replace(&format!("server.link_secret = \"{SECRET}\""), "");

    let config = [own, url, more(&fresh, &serving.url)].concat();
    let seen = super::findings(&config, network.look()).await;

    found(&seen, "one-click", Severity::Ok, "");
    serving.end().await;
}

async fn a_server_that_cannot_reach_its_store_is_an_error(fresh: Fresh) {
    let town = Town::found(&fresh, true, &town(SECRET)).await;
    let down = FailingStore::new(town.store.clone(), 0, Fault::Refused, Then::StaysDown);
    let store: std::sync::Arc<dyn tidings::store::Store> = down;
    let serving = Serving::start(town.process_on(&store)).await;

    let seen = Network::healthy().await.findings(&more(&fresh, &serving.url)).await;

    found(&seen, "one-click", Severity::Error, "cannot reach its records");
    serving.end().await;
}

/// Starts a server that sends the same response to every request. Returns its URL.
pub async fn always(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4_096]).await;
                let head =
                    format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                let _ = stream.write_all(head.as_bytes()).await;
            });
        }
    });
    url
}

async fn another_server_at_the_public_url_is_detected(fresh: Fresh) {
    for (answer, pages, words) in [
        (
            "301 Moved\r\nLocation: https://www.art.example/",
            Severity::Error,
            "sends on to https://www.art.example/",
        ),
        ("200 OK", Severity::Warning, "not tidings"),
        ("401 Unauthorized", Severity::Warning, "login"),
        ("405 Method Not Allowed", Severity::Warning, "POST"),
    ] {
        let url = always(answer).await;

        let seen = Network::healthy().await.findings(&more(&fresh, &url)).await;

        found(&seen, "public pages", pages, "");
        found(&seen, "one-click", Severity::Error, words);
    }
}

async fn a_public_url_without_listener_or_tls_is_an_error(fresh: Fresh) {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let unused = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let plain = always("200 OK").await.replace("http://", "https://");
    for (url, words) in [(unused, "nothing listens"), (plain, "cannot be trusted")] {
        let seen = Network::healthy().await.findings(&more(&fresh, &url)).await;

        found(&seen, "public pages", Severity::Error, words);
        found(&seen, "one-click", Severity::Error, words);
    }
}
