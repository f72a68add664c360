//! Tests how responses are interpreted and masked. `tests/all/mail` tests the calls on a real
//! server.

use std::sync::Arc;

use chrono::DateTime;
use reqwest::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::super::api_calls::KeyHeader;
use super::super::{LinkPlaceholder, Message, Placeholders, RecipientLinks, SharedContent};
use super::*;
use crate::domain::{Address, DeliveryId};

/// Returns an answer from noon of 22 April 2014, by the provider's clock.
pub(crate) fn answer(
    status: u16,
    headers: &[(&'static str, &str)],
    body: &str,
) -> ProviderResponse {
    let mut map = HeaderMap::new();
    map.insert(DATE, HeaderValue::from_static("Tue, 22 Apr 2014 12:00:00 GMT"));
    for (name, value) in headers {
        map.insert(*name, value.parse().unwrap());
    }
    ProviderResponse { status, headers: map, body: Some(body.as_bytes().to_vec()) }
}

/// Returns an account with the sender "Art & Co." and a Reply-To address.
pub(crate) fn account() -> Account {
    Account {
        base_url: "http://127.0.0.1:9".into(),
        key: Secret::new("key-1"),
        options: BTreeMap::new(),
        now: || DateTime::UNIX_EPOCH,
        timeout: Duration::from_secs(5),
        max_per_call: None,
        sender: SenderAddress {
            from: Address::new("digest@art.example").unwrap(),
            from_name: "Art & Co.".into(),
            reply_to: Some(Address::new("hello@art.example").unwrap()),
        },
    }
}

/// Returns an email to this user, with links of their own.
pub(crate) fn email(user: &str, subject: &str) -> Message {
    let base = format!("https://x.example/u/{user}");
    let placeholders = Placeholders::new().unwrap();
    let link = placeholders.marker(LinkPlaceholder::Unsubscribe);
    Message {
        delivery: DeliveryId::stored(format!("digest:{user}:weekly:2014-W17")),
        to: Address::new(format!("{user}@example.org")).unwrap(),
        to_name: Some(format!("{user}, the \"first\"")),
        content: Arc::new(SharedContent {
            subject: subject.into(),
            html: placeholders.extract(&format!("<p>{subject}</p><a href=\"{link}\">stop</a>")),
            text: placeholders.extract(&format!("{subject}\n\n{link}\n")),
        }),
        links: Some(RecipientLinks {
            preferences: format!("{base}/preferences"),
            unsubscribe: Some(base),
            mute: None,
        }),
        extra_headers: vec![
            ("List-Id".into(), "<Comment.art.example>".into()),
            ("Feedback-ID".into(), "weekly:tidings".into()),
            ("In-Reply-To".into(), "<thread-1@art.example>".into()),
            ("References".into(), "<thread-1@art.example>".into()),
        ],
        at: DateTime::UNIX_EPOCH,
    }
}

/// Returns the kind of an outcome, and the wait in seconds.
pub(crate) fn kind(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Accepted(provider_id) => format!("accepted as {provider_id}"),
        Outcome::Refused(..) => "refused".into(),
        Outcome::Unsendable(..) => "unsendable".into(),
        Outcome::RefusedTogether(..) => "refused together".into(),
        Outcome::Undeliverable(..) => "undeliverable".into(),
        Outcome::Unreachable(..) => "unreachable".into(),
        Outcome::TryLater(_, None) => "later".into(),
        Outcome::TryLater(_, Some(after)) => format!("later, in {} s", after.as_secs_f32()),
        Outcome::Deferred(..) => "deferred".into(),
        Outcome::Withheld(..) => "withheld".into(),
        Outcome::Stop(..) => "stop".into(),
        Outcome::Unknown(..) => "unknown".into(),
    }
}

#[test]
fn the_wait_is_read_in_every_form_that_providers_use() {
    let noon = 1_398_168_000_u64;
    let seconds = (noon + 7).to_string();
    let milliseconds = ((noon + 7) * 1000).to_string();
    for (name, value, expected) in [
        ("retry-after", "2", 2.0),
        ("retry-after", "0.5", 0.5),
        ("retry-after", "Tue, 22 Apr 2014 12:00:09 GMT", 9.0),
        ("retry-after", "Tue, 22 Apr 2014 11:00:00 GMT", 0.0),
        ("ratelimit-reset", "3", 3.0),
        ("x-ratelimit-reset", &*seconds, 7.0),
        ("x-ratelimit-reset", &*milliseconds, 7.0),
        ("x-ratelimit-reset", "30", 30.0),
        // The longest wait is one day.
        ("retry-after", "99999999", 86_400.0),
    ] {
        let wait = answer(429, &[(name, value)], "").wait();
        assert_eq!(wait, Some(Duration::from_secs_f64(expected)), "{name}: {value}");
    }
    for (name, value) in [("retry-after", "soon"), ("retry-after", "-1"), ("x-other", "2")] {
        assert_eq!(answer(429, &[(name, value)], "").wait(), None, "{name}: {value}");
    }
}

#[test]
fn a_rate_window_causes_no_wait_unless_the_limit_was_reached() {
    for status in [402, 403, 500, 503] {
        let headers = [("ratelimit-reset", "1"), ("x-ratelimit-reset", "1")];
        assert_eq!(answer(status, &headers, "").wait(), None, "{status}");
        let wait = answer(status, &[("retry-after", "9")], "").wait();
        assert_eq!(wait, Some(Duration::from_secs(9)), "{status}");
    }
}

#[test]
fn the_most_specific_wait_header_wins() {
    let headers = [("x-ratelimit-reset", "30"), ("ratelimit-reset", "20"), ("retry-after", "2")];
    assert_eq!(answer(429, &headers, "").wait(), Some(Duration::from_secs(2)));
}

#[test]
fn a_providers_message_is_kept_without_addresses_and_links() {
    let line = ledger_line(
        "Found inactive\r\naddresses: Ada <ada@example.org>, see\thttps://x.example/u/token now",
    );
    assert_eq!(line, "Found inactive addresses: Ada (address) see (link) now");
    assert_eq!(ledger_line(&"é".repeat(1000)).chars().count(), 241);
}

#[test]
fn a_refusal_of_several_emails_is_not_attributed_to_one() {
    let refused = || Outcome::Refused("no".into());
    assert_eq!(repeat_outcome(refused(), 1), [refused()]);
    assert_eq!(kind(&repeat_outcome(refused(), 2)[1]), "refused together");
    let stop = Outcome::Stop("key".into());
    assert_eq!(repeat_outcome(stop.clone(), 2), [stop.clone(), stop]);
}

#[test]
fn an_invalid_key_is_rejected_before_the_first_call() {
    let bad = |change: fn(&mut Account)| {
        let mut account = account();
        change(&mut account);
        let api =
            KeyHeader::bearer(&account.key).and_then(|signer| ApiClient::new(account, signer));
        api.err().unwrap()
    };
    let key = bad(|account| account.key = Secret::new("two\nlines"));
    assert_eq!(key, "mail.key holds a character that no key has");
    assert!(bad(|account| account.base_url = "nowhere".into()).contains("is no address"));
}

/// Signs a request by writing its parameters into a header.
struct HeaderSigner;

impl Sign for HeaderSigner {
    fn sign(&self, request: &mut Request, body: &[u8], at: DateTime<Utc>) {
        let (path, body) = (request.url().path(), String::from_utf8_lossy(body));
        let signature = format!("{} {path} {body} {}", request.method(), at.timestamp());
        let headers = request.headers_mut();
        headers.insert("x-signed", signature.parse().unwrap());
    }
}

#[tokio::test]
async fn every_request_is_signed_over_its_own_content_and_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let account = Account {
        base_url: format!("http://{}", listener.local_addr().unwrap()),
        now: || DateTime::from_timestamp(1_398_168_000, 0).unwrap(),
        ..account()
    };
    let api = ApiClient::new(account, HeaderSigner).unwrap();
    let served = async {
        let mut heads = Vec::new();
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = Vec::new();
            while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
                stream.read_buf(&mut bytes).await.unwrap();
            }
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            stream.write_all(answer).await.unwrap();
            heads.push(String::from_utf8(bytes).unwrap());
        }
        heads
    };
    let called = async {
        assert!(api.get("/server").await.is_ok());
        let body = RequestBody::json(&serde_json::json!([1]));
        assert!(api.post("/email", body, &SendPermit::always()).await.is_ok());
    };

    let (heads, ()) = tokio::join!(served, called);

    assert!(heads[0].contains("x-signed: GET /server  1398168000\r\n"), "{heads:?}");
    assert!(heads[1].contains("x-signed: POST /email [1] 1398168000\r\n"), "{heads:?}");
}
