//! Tests the limits of requests, the cache, and that redirects are not followed.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Starts a server that sends one of these responses per connection. The handle returns the request
/// lines that it received.
async fn serving(answers: Vec<String>) -> (PinnedClient, tokio::task::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let mut requested = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = vec![0; 4096];
            let read = stream.read(&mut bytes).await.unwrap();
            let head = String::from_utf8_lossy(&bytes[..read]).into_owned();
            requested.push(head.lines().next().unwrap().to_owned());
            // A client that has read enough closes the connection.
            drop(stream.write_all(answer.as_bytes()).await);
        }
        requested
    });
    (PinnedClient::on_this_machine(&base).unwrap(), served)
}

fn answer(status: u16, more: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} X\r\n{more}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

fn pinned_url(path: &str) -> PinnedUrl {
    PinnedUrl { host: "sns.eu-west-1.amazonaws.com".into(), path: path.into() }
}

#[tokio::test]
async fn a_certificate_is_cached_once_it_has_verified_a_signature() {
    let answers = ["one", "two", "three"].map(|body| answer(200, "", body));
    let (pinned, served) = serving(answers.into()).await;
    let url = pinned_url("/a.pem");

    let first = pinned.certificate(&url).await.unwrap();
    let second = pinned.certificate(&url).await.unwrap();
    pinned.cache_certificate(url.clone(), second.clone());
    let third = pinned.certificate(&url).await.unwrap();
    let other = pinned.certificate(&pinned_url("/b.pem")).await.unwrap();

    let texts = [first, second, third, other].map(|it| String::from_utf8(it.to_vec()).unwrap());
    assert_eq!(texts, ["one", "two", "two", "three"]);
    let requested = served.await.unwrap();
    assert_eq!(requested.last().unwrap(), "GET /b.pem HTTP/1.1");
}

#[tokio::test]
async fn a_missing_certificate_differs_from_a_failed_download() {
    let huge = "x".repeat(MAX_ANSWER_BYTES + 1);
    let elsewhere = "Location: http://127.0.0.1:1/x\r\n";
    let answers = vec![
        answer(403, "", ""),
        answer(404, "", ""),
        answer(429, "", ""),
        answer(500, "", ""),
        answer(302, elsewhere, ""),
        answer(200, "", &huge),
        answer(404, "", ""),
    ];
    let (pinned, served) = serving(answers).await;
    let mut errors = Vec::new();
    for _ in 0..6 {
        errors.push(pinned.certificate(&pinned_url("/a.pem")).await.unwrap_err());
    }
    let failed_visit = pinned.request(&pinned_url("/a.pem")).await.unwrap_err();
    served.await.unwrap();

    for error in &errors[..2] {
        assert!(matches!(error, HookRejection::Unverified(_)), "{error:?}");
    }
    for (error, word) in errors[2..].iter().zip(["429", "500", "302", "64 KiB"]) {
        let HookRejection::Unreached(why) = error else { panic!("{error:?}") };
        assert!(why.contains(word), "{why}");
    }
    // A failed download may succeed later.
    assert!(matches!(failed_visit, HookRejection::Unreached(_)), "{failed_visit:?}");
}

#[tokio::test]
async fn the_number_of_concurrent_downloads_is_limited() {
    // This server accepts connections and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let pinned = Arc::new(PinnedClient::on_this_machine(&base).unwrap());
    let (mut under_way, mut connections) = (Vec::new(), Vec::new());
    for n in 0..MAX_REQUESTS_IN_FLIGHT {
        let pinned = pinned.clone();
        let url = pinned_url(&format!("/{n}.pem"));
        under_way.push(tokio::spawn(async move { pinned.certificate(&url).await }));
        connections.push(listener.accept().await.unwrap());
    }

    let one_more = pinned.certificate(&pinned_url("/more.pem")).await;

    let Err(HookRejection::Unreached(why)) = one_more else { panic!("{one_more:?}") };
    assert!(why.contains("under way"), "{why}");
    for one in under_way {
        one.abort();
    }
}

#[test]
fn only_a_loopback_server_can_replace_the_real_hosts() {
    for base in ["http://127.0.0.1:4010", "http://127.9.9.9"] {
        assert!(PinnedClient::on_this_machine(base).is_some(), "{base}");
    }
    for base in ["http://192.0.2.1", "https://example.org", "http://localhost", "x", ""] {
        assert!(PinnedClient::on_this_machine(base).is_none(), "{base}");
    }
}
