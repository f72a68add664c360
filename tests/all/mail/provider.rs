//! A provider on loopback that speaks one of five dialects, stores the accepted emails, and can be
//! told to misbehave.
//!
//! It reads raw requests and answers as the providers document it. A connection serves one request.
//! Whether the request is accepted is decided before the response is written.
//!
//! Long because each step differs between the five dialects.

pub mod ses;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, interval_at};

/// The provider whose API is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Mailgun,
    SendGrid,
    Postmark,
    Resend,
    Ses,
}

impl Dialect {
    /// Returns the provider's name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mailgun => "mailgun",
            Self::SendGrid => "sendgrid",
            Self::Postmark => "postmark",
            Self::Resend => "resend",
            Self::Ses => "ses",
        }
    }
}

/// The outcome of a request.
#[derive(Debug, Clone)]
pub enum Next {
    /// Accept it and respond, as by default.
    Take,
    /// Reject it with this response.
    Answer(u16, Vec<(&'static str, String)>, String),
    /// Reject the next call of several emails with this response, and accept others before it.
    AnswerSeveral(u16, String),
    /// Close the connection without accepting it.
    Reset,
    /// Accept it, and close the connection without a response.
    Lose,
    /// Accept it, and do not respond before the client gives up.
    Late,
    /// Accept it, and respond once the test calls [`Provider::release`].
    Hold,
    /// Accept it, with a response that cannot be parsed.
    Garble,
    /// Accept it, with a truncated response.
    Break,
    /// Accept it, with a response that never ends.
    Flood,
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: String,
    /// Whether the request was carried out, independent of the response.
    pub accepted: bool,
}

impl Request {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Returns the values of a field of the multipart form.
    pub fn fields(&self, name: &str) -> Vec<String> {
        let boundary = self.header("content-type").split("boundary=").nth(1);
        let start = format!("Content-Disposition: form-data; name=\"{name}\"\r\n\r\n");
        self.body
            .split(&format!("--{}", boundary.unwrap()))
            .filter_map(|part| part.trim_start().strip_prefix(&start))
            .map(|value| value.strip_suffix("\r\n").unwrap().to_owned())
            .collect()
    }
}

/// An accepted email: its recipients, its ids, and its unsubscribe header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedEmail {
    pub to: Vec<String>,
    pub delivery: String,
    pub call: String,
    pub unsubscribe: String,
}

#[derive(Default)]
struct State {
    next: Mutex<VecDeque<Next>>,
    requests: Mutex<Vec<Request>>,
    emails: Mutex<Vec<AcceptedEmail>>,
    /// Idempotency keys, each with the body and the response of its first request.
    keys: Mutex<BTreeMap<String, (String, Value)>>,
    /// The upper limit of the artificial delay of requests.
    slowest: Mutex<Duration>,
    /// Whether the requests that were held are answered.
    released: watch::Sender<bool>,
}

/// A running provider.
pub struct Provider {
    pub url: String,
    state: Arc<State>,
}

impl Provider {
    pub async fn start(dialect: Dialect) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(State::default());
        let (served, base) = (state.clone(), url.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, dialect, served.clone(), base.clone()));
            }
        });
        Self { url, state }
    }

    /// Queues outcomes for the next requests.
    pub fn then(&self, next: impl IntoIterator<Item = Next>) {
        self.state.next.lock().unwrap().extend(next);
    }

    /// Delays each request from now on, up to this limit.
    pub fn takes_up_to(&self, slowest: Duration) {
        *self.state.slowest.lock().unwrap() = slowest;
    }

    /// Answers the requests that are held.
    pub fn release(&self) {
        self.state.released.send_replace(true);
    }

    pub fn requests(&self) -> Vec<Request> {
        self.state.requests.lock().unwrap().clone()
    }

    /// Returns all accepted emails in order.
    pub fn emails(&self) -> Vec<AcceptedEmail> {
        self.state.emails.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, dialect: Dialect, state: Arc<State>, base: String) {
    let Some(mut request) = read(&mut stream).await else {
        return;
    };
    let slowest = *state.slowest.lock().unwrap();
    if !slowest.is_zero() {
        // A share of the limit that is the same in every run.
        let share = state.requests.lock().unwrap().len() * 37 % 100;
        let answers = Instant::now() + slowest.mul_f64(share as f64 / 100.0);
        interval_at(answers, slowest).tick().await;
    }
    let several = request.method == "POST" && emails(dialect, &request).len() > 1;
    let next = {
        let mut queue = state.next.lock().unwrap();
        let stays = matches!(queue.front(), Some(Next::AnswerSeveral(..))) && !several;
        (!stays).then(|| queue.pop_front()).flatten()
    };
    let refused = matches!(next, Some(Next::Answer(..) | Next::AnswerSeveral(..) | Next::Reset));
    request.accepted = !refused;
    state.requests.lock().unwrap().push(request.clone());
    match next {
        Some(Next::Answer(status, headers, body)) => {
            return answer(&mut stream, status, &headers, &body).await;
        }
        Some(Next::AnswerSeveral(status, body)) => {
            return answer(&mut stream, status, &[], &body).await;
        }
        Some(Next::Reset) => return,
        _ => {}
    }
    let (status, headers, body) = match request.method.as_str() {
        "POST" => take(dialect, &state, &request),
        _ => look_up(dialect, &state, &request, &base),
    };
    match next {
        Some(Next::Lose) => {}
        // Waits until the client closes the connection.
        Some(Next::Late) => drop(stream.read(&mut [0; 1]).await),
        Some(Next::Hold) => {
            let mut released = state.released.subscribe();
            released.wait_for(|released| *released).await.unwrap();
            answer(&mut stream, status, &headers, &body).await;
        }
        Some(Next::Garble) => answer(&mut stream, status, &[], "{\"id\": \"tru").await,
        Some(Next::Break) => {
            let whole = head(status, &headers, body.len().max(100));
            drop(stream.write_all(format!("{whole}{{").as_bytes()).await);
        }
        Some(Next::Flood) => {
            drop(stream.write_all(head(status, &headers, 1 << 40).as_bytes()).await);
            let much = vec![b' '; 1 << 16];
            while stream.write_all(&much).await.is_ok() {}
        }
        _ => answer(&mut stream, status, &headers, &body).await,
    }
}

async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8(bytes[..head].to_vec()).unwrap();
    let mut lines = text.lines();
    let mut first = lines.next()?.split(' ').map(str::to_owned);
    let (method, path) = (first.next()?, first.next()?);
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    while bytes.len() < head + 4 + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = String::from_utf8(bytes[head + 4..].to_vec()).unwrap();
    Some(Request { method, path, headers, body, accepted: false })
}

fn head(status: u16, headers: &[(&'static str, String)], length: usize) -> String {
    let mut head = format!(
        "HTTP/1.1 {status} X\r\nDate: Tue, 22 Apr 2014 12:00:00 GMT\r\nConnection: close\r\nContent-Length: {length}\r\n"
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head + "\r\n"
}

async fn answer(
    stream: &mut TcpStream,
    status: u16,
    headers: &[(&'static str, String)],
    body: &str,
) {
    let head = head(status, headers, body.len());
    // The client may have closed the connection.
    drop(stream.write_all(format!("{head}{body}").as_bytes()).await);
}

type Answered = (u16, Vec<(&'static str, String)>, String);

/// Accepts the emails of a call, in the format of the dialect.
fn take(dialect: Dialect, state: &State, request: &Request) -> Answered {
    let emails = emails(dialect, request);
    let count = emails.len();
    let number = state.requests.lock().unwrap().len();
    let ids = (0..count).map(|n| format!("id-{number}-{n}"));
    match dialect {
        Dialect::Mailgun => {
            state.emails.lock().unwrap().extend(emails);
            let id = request.fields("h:Message-Id").remove(0);
            (200, vec![], json!({ "id": id, "message": "Queued. Thank you." }).to_string())
        }
        Dialect::SendGrid => {
            state.emails.lock().unwrap().extend(emails);
            (202, vec![("X-Message-Id", format!("sg-{number}"))], String::new())
        }
        Dialect::Postmark => {
            let bad = |email: &AcceptedEmail| email.to[0].contains("inactive");
            let words: Vec<Value> = emails
                .iter()
                .zip(ids)
                .map(|(email, id)| match bad(email) {
                    true => json!({ "ErrorCode": 406, "Message": "inactive" }),
                    false => json!({ "ErrorCode": 0, "Message": "OK", "MessageID": id }),
                })
                .collect();
            let good = emails.into_iter().filter(|email| !bad(email));
            state.emails.lock().unwrap().extend(good);
            (200, vec![], Value::from(words).to_string())
        }
        Dialect::Ses => {
            state.emails.lock().unwrap().extend(emails);
            let id = json!({ "MessageId": format!("ses-{number}") });
            (200, vec![], id.to_string())
        }
        Dialect::Resend => {
            let key = request.header("idempotency-key").to_owned();
            let mut keys = state.keys.lock().unwrap();
            match keys.get(&key) {
                Some((body, first)) if *body == request.body => (200, vec![], first.to_string()),
                Some(_) => {
                    (409, vec![], json!({ "name": "invalid_idempotent_request" }).to_string())
                }
                None => {
                    state.emails.lock().unwrap().extend(emails);
                    let data: Vec<Value> = ids.map(|id| json!({ "id": id })).collect();
                    let first = json!({ "data": data });
                    let text = first.to_string();
                    keys.insert(key, (request.body.clone(), first));
                    (200, vec![], text)
                }
            }
        }
    }
}

/// Returns the emails of a call, each as its recipient gets it.
fn emails(dialect: Dialect, request: &Request) -> Vec<AcceptedEmail> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match dialect {
        Dialect::Ses => vec![ses::email(request)],
        Dialect::Mailgun => {
            let variables: Value = request.fields("recipient-variables")[0].parse().unwrap();
            let (link, id) = (
                request.fields("h:List-Unsubscribe").remove(0),
                request.fields("h:Message-Id").remove(0),
            );
            let email = |to: &String| {
                let own = &variables[&bare(to)[0]];
                AcceptedEmail {
                    to: bare(to),
                    delivery: text(&own["delivery"]),
                    call: id.clone(),
                    unsubscribe: link
                        .replace("%recipient.unsubscribe%", &text(&own["unsubscribe"])),
                }
            };
            request.fields("to").iter().map(email).collect()
        }
        Dialect::SendGrid => {
            let body = request.json();
            let email = |person: &Value| AcceptedEmail {
                to: person["to"].as_array().unwrap().iter().map(|to| text(&to["email"])).collect(),
                delivery: text(&person["custom_args"]["delivery"]),
                call: text(&person["custom_args"]["call"]),
                unsubscribe: text(&person["headers"]["List-Unsubscribe"]),
            };
            body["personalizations"].as_array().unwrap().iter().map(email).collect()
        }
        Dialect::Postmark => {
            let header = |email: &Value| {
                let headers = email["Headers"].as_array().unwrap().iter();
                let mut found = headers.filter(|header| header["Name"] == "List-Unsubscribe");
                found.next().map(|header| text(&header["Value"])).unwrap_or_default()
            };
            let email = |email: &Value| AcceptedEmail {
                to: bare(&text(&email["To"])),
                delivery: text(&email["Metadata"]["delivery"]),
                call: text(&email["Metadata"]["call"]),
                unsubscribe: header(email),
            };
            request.json().as_array().unwrap().iter().map(email).collect()
        }
        Dialect::Resend => {
            let email = |email: &Value| AcceptedEmail {
                to: email["to"].as_array().unwrap().iter().flat_map(|to| bare(&text(to))).collect(),
                delivery: text(&email["tags"][0]["value"]),
                call: request.header("idempotency-key").to_owned(),
                unsubscribe: text(&email["headers"]["List-Unsubscribe"]),
            };
            request.json().as_array().unwrap().iter().map(email).collect()
        }
    }
}

/// Returns the address without the display name before it.
fn bare(to: &str) -> Vec<String> {
    let address = to.rsplit_once('<');
    let address = address.map_or(to, |(_, rest)| rest.trim_end_matches('>'));
    vec![address.to_owned()]
}

/// Answers queries for accepted emails, and for the account (to check the key).
fn look_up(dialect: Dialect, state: &State, request: &Request, base: &str) -> Answered {
    const PAGE: usize = 300;
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    let parameter = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value.replace("%40", "@"))
    };
    let emails = state.emails.lock().unwrap().clone();
    let body = match (dialect, path) {
        (Dialect::Mailgun, path) if path.contains("/events") => {
            let from: usize = parameter("page").map_or(0, |page| page.parse().unwrap());
            let id = parameter("message-id").unwrap();
            let items: Vec<Value> = emails
                .iter()
                .filter(|email| email.call == format!("<{id}>"))
                .skip(from)
                .take(PAGE)
                .map(|email| {
                    json!({
                        "event": "accepted",
                        "message": { "headers": { "message-id": id } },
                        "user-variables": { "delivery": email.delivery },
                    })
                })
                .collect();
            // Mailgun names a next page even if there is none.
            let next =
                format!("{base}/v3/mg.art.example/events?message-id={id}&page={}", from + PAGE);
            json!({ "items": items, "paging": { "next": next } })
        }
        (Dialect::Mailgun, _) => json!({
            "domain": { "state": "active" },
            "sending_dns_records": [
                { "record_type": "TXT", "name": "mg.art.example", "valid": "valid" },
                { "record_type": "TXT", "name": "k1._domainkey.mg.art.example", "valid": "valid" },
            ],
        }),
        (Dialect::Postmark, "/messages/outbound") => {
            let call = parameter("metadata_call").unwrap();
            let ours = emails.iter().enumerate().filter(|(_, email)| email.call == call);
            let sent: Vec<Value> = ours
                .map(|(n, email)| {
                    json!({
                        "MessageID": format!("sent-{n}"),
                        "Metadata": { "delivery": email.delivery, "call": email.call },
                    })
                })
                .collect();
            json!({ "TotalCount": sent.len(), "Messages": sent })
        }
        (Dialect::Postmark, _) => json!({ "Name": "Art" }),
        (Dialect::Ses, path) => ses::look_up(path),
        (Dialect::SendGrid, _) => json!({ "scopes": ["mail.send"] }),
        (Dialect::Resend, "/domains") => {
            json!({ "data": [{ "id": "d1", "name": "art.example", "status": "verified" }] })
        }
        (Dialect::Resend, _) => json!({
            "id": "d1", "name": "art.example", "status": "verified",
            "records": [
                { "record": "SPF", "name": "send", "type": "TXT" },
                { "record": "DKIM", "name": "resend._domainkey", "type": "TXT" },
            ],
        }),
    };
    (200, vec![], body.to_string())
}
