//! The public pages and the one click, against a server that runs, and against others in its place.

use tidings::http::api;
use tidings::wire::doctor::Verdict;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Outdoors, amiss, found};
use crate::support::town::{Town, on_both_stores};
use crate::support::{FailingStore, Fault, Fresh, Then};

on_both_stores! {
    where_all_is_well_nothing_is_amiss
    a_click_with_nobodys_link_changes_nothing
    a_server_with_another_secret_is_found_out
}

/// The server of a town, and where it is.
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

async fn where_all_is_well_nothing_is_amiss(fresh: Fresh) {
    let town = Town::found(&fresh, true, &town(SECRET)).await;
    let serving = Serving::start(town.process()).await;

    let seen = Outdoors::well()
        .await
        .findings(&more(&fresh, &serving.url))
        .await;

    let mut amiss = amiss(&seen);
    // On loopback there is neither https nor, in these tests, more than one server.
    amiss.retain(|(_, check)| *check != "server.public_url" && *check != "replication");
    assert_eq!(amiss, [], "{seen:#?}");
    serving.end().await;
}

async fn a_click_with_nobodys_link_changes_nothing(fresh: Fresh) {
    let town = Town::found(&fresh, true, &town(SECRET)).await;
    let serving = Serving::start(town.process()).await;
    let everybody = crate::support::town::PEOPLE.map(crate::support::user);
    let before = fresh.users(&everybody).await.unwrap();

    let seen = Outdoors::well()
        .await
        .findings(&more(&fresh, &serving.url))
        .await;

    found(&seen, "one-click", Verdict::Ok, "a forged one was not");
    assert_eq!(fresh.users(&everybody).await.unwrap(), before);
    let nobody = [tidings::domain::UserId::stored("")];
    assert_eq!(fresh.users(&nobody).await.unwrap(), [None]);
    assert_eq!(fresh.note("doctor").await.unwrap(), None);
    serving.end().await;
}

async fn a_server_with_another_secret_is_found_out(fresh: Fresh) {
    let town = Town::found(&fresh, true, &town("another secret of the tests")).await;
    let serving = Serving::start(town.process()).await;

    let seen = Outdoors::well()
        .await
        .findings(&more(&fresh, &serving.url))
        .await;

    found(&seen, "public pages", Verdict::Ok, "answers");
    found(
        &seen,
        "one-click",
        Verdict::Error,
        "same store and server.link_secret",
    );
    serving.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_secret_that_the_store_keeps_is_enough() {
    crate::support::sqlite::run(|fresh| async move {
        let town = Town::found(&fresh, true, "server.listen = \"127.0.0.1:0\"").await;
        let serving = Serving::start(town.process()).await;
        let outdoors = Outdoors::well().await;
        let url = format!("mail.url = \"{}\"\n", outdoors.provider.url);
        let own = super::WELL.replace(&format!("server.link_secret = \"{SECRET}\""), "");

        let config = [own, url, more(&fresh, &serving.url)].concat();
        let seen = super::findings(&config, outdoors.look()).await;

        found(&seen, "one-click", Verdict::Ok, "");
        serving.end().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_its_records_is_an_error() {
    crate::support::sqlite::run(|fresh| async move {
        let town = Town::found(&fresh, true, &town(SECRET)).await;
        let down = FailingStore::new(town.store.clone(), 0, Fault::Refused, Then::StaysDown);
        let store: std::sync::Arc<dyn tidings::store::Store> = down;
        let serving = Serving::start(town.process_on(&store)).await;

        let seen = Outdoors::well()
            .await
            .findings(&more(&fresh, &serving.url))
            .await;

        found(
            &seen,
            "one-click",
            Verdict::Error,
            "cannot reach its records",
        );
        serving.end().await;
    })
    .await;
}

/// Something that answers everything alike, and where it is.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_stands_in_front_of_the_server_is_found_out() {
    crate::support::sqlite::run(|fresh| async move {
        for (answer, pages, says) in [
            (
                "301 Moved\r\nLocation: https://www.art.example/",
                Verdict::Error,
                "sends on to https://www.art.example/",
            ),
            ("200 OK", Verdict::Warning, "not tidings"),
            ("401 Unauthorized", Verdict::Warning, "login"),
            ("405 Method Not Allowed", Verdict::Warning, "POST"),
        ] {
            let url = always(answer).await;

            let seen = Outdoors::well().await.findings(&more(&fresh, &url)).await;

            found(&seen, "public pages", pages, "");
            found(&seen, "one-click", Verdict::Error, says);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_there_and_no_encryption_there_are_errors() {
    crate::support::sqlite::run(|fresh| async move {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nobody = format!("http://{}", free.local_addr().unwrap());
        drop(free);
        let plain = always("200 OK").await.replace("http://", "https://");
        for (url, says) in [(nobody, "nothing listens"), (plain, "cannot be trusted")] {
            let seen = Outdoors::well().await.findings(&more(&fresh, &url)).await;

            found(&seen, "public pages", Verdict::Error, says);
            found(&seen, "one-click", Verdict::Error, says);
        }
    })
    .await;
}
