//! Tests of the HTTP API: each test starts a server on its own port, with its own data.
//!
//! Tests send requests as an application would, and read the store only to check what changed.
//! Every response is checked against `openapi.json` ([`described`]). Tests of bad input count store
//! calls, because bad input must not reach the store.

use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder};
use serde_json::Value;
use tidings::app::App;
use tidings::email::Resolution;
use tidings::engine::NoProgress;
use tidings::http::api;
use tidings::store::Store;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::support::Fresh;
use crate::support::town::Town;

/// Expands tests that run on SQLite only, because they do not depend on the store. Each is an
/// `async fn(Fresh)`.
macro_rules! on_sqlite {
    ($($test:ident)*) => {
        mod alone {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    crate::support::sqlite::run(super::$test).await;
                }
            )*
        }
    };
}

mod access;
mod batches;
mod brands;
mod browsers;
mod choices;
mod demo;
mod described;
mod description;
#[cfg(unix)]
mod dripping;
mod erasure;
mod errors;
mod events;
mod exact;
mod failovers;
mod feed;
mod follows;
mod groups;
mod health;
mod hooks;
mod key;
mod kinds;
mod languages;
mod limits;
mod logs;
mod marks;
mod metrics;
mod mutes;
mod objects;
mod pages;
mod polls;
mod proxied;
mod records;
mod stop;
mod stops;
mod strict;
mod suppressions;
mod users;
mod widget;

/// The server key of all tests.
const KEY: &str = "the-key-of-the-tests";

/// A server on its own port, and the data it serves.
struct Api {
    town: Town,
    app: App,
    addr: SocketAddr,
    client: reqwest::Client,
    stop: watch::Sender<bool>,
    running: JoinHandle<anyhow::Result<()>>,
}

/// A response with its whole body.
struct Answer {
    status: u16,
    headers: HeaderMap,
    /// `Null` if there is none.
    body: Value,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or("")
    }

    /// Asserts that the response is a problem with this status and code.
    #[track_caller]
    fn assert_problem(&self, status: u16, code: &str, context: &dyn std::fmt::Display) {
        let problem = (self.status, self.code());
        assert_eq!(problem, (status, code), "{context}: {}", self.body);
    }
}

impl Api {
    async fn on(fresh: &Fresh) -> Self {
        Self::of(Town::found(fresh, true, "server.listen = \"127.0.0.1:0\"").await)
    }

    /// Serves a town, whose configuration must set port 0 (any free port).
    fn of(town: Town) -> Self {
        let store = town.store.clone();
        Self::with_store(town, &store)
    }

    /// Serves a town through another view of its store.
    fn with_store(town: Town, store: &Arc<dyn Store>) -> Self {
        let app = town.process_on(store);
        Self::serving(town, app)
    }

    /// Starts another server for the same data.
    fn beside(&self, fresh: &Fresh, config: &str) -> Self {
        let town = Town::on(fresh.handle(), Resolution::Impossible, config);
        Self::serving(town, self.town.process())
    }

    fn serving(town: Town, app: App) -> Self {
        let bound = api::bind(app.clone(), KEY).unwrap();
        let addr = bound.addr;
        let (stop, stopped) = watch::channel(false);
        Self {
            town,
            app,
            addr,
            client: crate::support::client(),
            stop,
            running: tokio::spawn(bound.run(stopped)),
        }
    }

    /// Returns a request with the server key.
    fn ask(&self, method: &str, path: &str) -> RequestBuilder {
        self.anonymous(method, path).bearer_auth(KEY)
    }

    fn anonymous(&self, method: &str, path: &str) -> RequestBuilder {
        let method: Method = method.to_uppercase().parse().unwrap();
        self.client.request(method, format!("http://{}{path}", self.addr))
    }

    async fn get(&self, path: &str) -> Answer {
        answer(self.ask("GET", path)).await
    }

    async fn delete(&self, path: &str) -> Answer {
        answer(self.ask("DELETE", path)).await
    }

    async fn put(&self, path: &str, body: Value) -> Answer {
        answer(self.ask("PUT", path).json(&body)).await
    }

    async fn post(&self, path: &str, body: Value) -> Answer {
        answer(self.ask("POST", path).json(&body)).await
    }

    /// Fans out every accepted event in the server's own process.
    async fn fan_out(&self) {
        self.app.fanouts().drain(&NoProgress).await.unwrap();
    }

    /// Fans out every accepted event in another process.
    async fn fan_out_elsewhere(&self) {
        self.town.process().fanouts().drain(&NoProgress).await.unwrap();
    }

    /// Returns the ids of the objects on a feed page, newest first.
    async fn feed(&self, path: &str) -> Vec<String> {
        let page = self.get(path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.body);
        objects(&page)
    }

    /// Stops the server and checks that it ends without an error.
    async fn stop(self) {
        self.stop.send(true).unwrap();
        self.running.await.unwrap().unwrap();
    }
}

/// Returns the ids of the objects on a page.
fn objects(page: &Answer) -> Vec<String> {
    let items = page.body["items"].as_array().unwrap().iter();
    items.map(|item| item["object"]["id"].as_str().unwrap().to_owned()).collect()
}

async fn answer(request: RequestBuilder) -> Answer {
    let (client, request) = request.build_split();
    let request = request.unwrap();
    let (method, path) = (request.method().clone(), request.url().path().to_owned());
    let response = client.execute(request).await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = response.text().await.unwrap();
    let body = match text.as_str() {
        "" => Value::Null,
        text => serde_json::from_str(text).unwrap(),
    };
    let answer = Answer { status, headers, body };
    described::check(&method, &path, &answer);
    answer
}
