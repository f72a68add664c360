//! P8: logs show how requests end, and contain no personal data.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};

use serde_json::json;
use tracing_subscriber::EnvFilter;

use super::{Api, KEY, answer, pages};
use crate::support::town::{Town, saturday};
use crate::support::{FailingStore, Fault, Fresh, Then, assert_contains};

on_sqlite! {
    a_log_shows_how_requests_end_and_names_no_user
}

/// Collects everything that this process logs once [`LOG`] is initialized.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

static LOG: LazyLock<Log> = LazyLock::new(|| {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("warn,tidings=trace"))
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    log
});

/// An id that nothing else in this process uses.
const PERSON: &str = "who.is.this@private.example";

async fn a_log_shows_how_requests_end_and_names_no_user(fresh: Fresh) {
    let log = LazyLock::force(&LOG);
    let config = format!(
        "hooks.postmark_user = \"hook\"\nhooks.postmark_password = \"p\"\n{}",
        pages::config()
    );
    let town = Town::found(&fresh, true, &config).await;
    let down = FailingStore::new(town.store.clone(), 6, Fault::Refused, Then::StaysDown);
    let api = Api::with_store(town, &(down as _));
    let (user, feed) =
        (format!("/v1/users/{PERSON}"), format!("/v1/users/{PERSON}/feed?type={PERSON}"));
    let report = json!({"RecordType": "Bounce", "Type": "HardBounce", "ID": 1, "Email": PERSON, "Details": PERSON});
    let hook = |password: &str| {
        let request = api.anonymous("POST", "/hooks/postmark");
        let request = request.basic_auth("hook", Some(password)).json(&report);
        async { answer(request).await.status }
    };
    let listed = format!("/v1/suppressions/{PERSON}");
    let link = pages::path(&api, PERSON, saturday()).await;
    let page = |method: &str, path: String| {
        let request = api.anonymous(method, &path);
        let request = request
            .header("content-type", "application/x-www-form-urlencoded")
            .body("List-Unsubscribe=One-Click");
        async { request.send().await.unwrap().status().as_u16() }
    };
    let record = json!({"email": PERSON, "name": PERSON, "confirmed": true});

    let statuses = [
        api.put(&user, record.clone()).await.status,
        api.put(&user, json!({"email": [PERSON]})).await.status,
        api.get(&format!("{user}?{PERSON}=1")).await.status,
        answer(api.anonymous("GET", &user).bearer_auth(format!("{KEY}{PERSON}"))).await.status,
        answer(api.anonymous("GET", &user).bearer_auth(format!("{PERSON}.{PERSON}.x")))
            .await
            .status,
        api.get(&format!("/{PERSON}")).await.status,
        api.get(&feed).await.status,
        api.get(&feed).await.status,
        api.put(&user, record).await.status,
        hook(PERSON).await,
        hook("p").await,
        api.get(&listed).await.status,
        page("GET", format!("{link}x")).await,
        page("POST", link.clone()).await,
        page("GET", format!("{link}/preferences")).await,
    ];

    assert_eq!(
        statuses,
        [204, 400, 400, 401, 401, 404, 200, 503, 503, 401, 503, 503, 404, 503, 503]
    );
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_contains!(logged, "route=\"/v1/users/{id}/feed\" status=503 code=\"store_unavailable\"",);
    assert_contains!(logged, "calling windows: the test wanted it to fail");
    assert_contains!(logged, "status=400 code=\"invalid_body\"");
    assert_contains!(logged, "route=\"/u/{token}\" status=503");
    assert_contains!(logged, "calling users: the test wanted it to fail");
    let token = link.trim_start_matches("/u/");
    for secret in ["who.is", "private", KEY, token, &token[..20]] {
        let line = logged.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret} is in the log");
    }
    api.stop().await;
}
