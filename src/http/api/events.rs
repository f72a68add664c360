//! Accepts and retracts events, and reports the progress of their fan-out.
//!
//! A request is parsed and checked completely before [`crate::engine::ingest::notify`] sees it
//! (P10). Status 202 means that all its events are in the journal (P1).

use std::time::Duration;

use actix_web::http::header;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use futures::FutureExt;
use futures::future::{Either, select};
use serde::Deserialize;

use super::body;
use super::problem::{Code, Problem};
use super::uri::{NoQuery, segment};
use crate::app::App;
use crate::domain::{EventType, Id, ObjectId};
use crate::engine::directory::unknown::Named;
use crate::engine::ingest::notify::{EventInput, Notify, Request, ids};
use crate::wire::event::{Accepted, AllAccepted, Progress};

const FIELD: &str = "events";

/// The longest wait for the look-up of unknown objects and users after the events are accepted.
const MOMENT: Duration = Duration::from_secs(1);

/// Accepts events, and adds warnings about unknown types, objects and users. A failed look-up only
/// loses the warnings, because the events are already accepted.
async fn accept(app: &App, requests: Vec<Request>) -> Result<Vec<Accepted>, Problem> {
    let named: Vec<Named> = requests.iter().map(Named::from).collect();
    let keyed = requests.iter().all(|request| request.key.is_some());
    let (notify, known) = (app.notify(), app.known());
    let accepting = notify.accept(requests).boxed();
    // Runs concurrently, because each costs a round trip to the store.
    let asking = known.of(&named).boxed();
    let (accepted, asked) = match select(accepting, asking).await {
        Either::Left((accepted, asking)) => (accepted, Either::Left(asking)),
        Either::Right((asked, accepting)) => (accepting.await, Either::Right(asked)),
    };
    let receipts = accepted.map_err(|error| match keyed {
        true => Problem::from(error),
        false => Problem::from(error).without_keys(),
    })?;
    let asked = match asked {
        Either::Left(asking) => tokio::time::timeout(MOMENT, asking).await.ok(),
        Either::Right(asked) => Some(asked),
    };
    let unknown = asked.and_then(Result::ok).unwrap_or_else(|| {
        tracing::warn!("could not look up whether the objects and users of accepted events exist");
        Vec::new()
    });
    let mut warnings = unknown
        .iter()
        .map(|unknown| unknown.warnings(&app.config.policies));
    let answer = |receipt| Accepted {
        receipt,
        warnings: warnings.next().unwrap_or_default(),
    };
    Ok(receipts.into_iter().map(answer).collect())
}

/// `POST /v1/events`
pub(super) async fn post(
    _: NoQuery,
    req: HttpRequest,
    payload: Payload,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let key = idempotency_key(&req)?;
    let body = body::read(&req, payload, body::BULK_LIMIT).await?;
    let notify = app.notify();
    let sent = body::aside(body, move |body| Sent::read(&notify, body, key)).await?;
    match sent {
        Sent::Many(requests) => {
            let events = accept(&app, requests).await?;
            Ok(HttpResponse::Accepted().json(AllAccepted { events }))
        }
        Sent::One(request) => {
            let mut answers = accept(&app, vec![*request]).await?;
            let answer = answers.remove(0);
            Ok(HttpResponse::Accepted()
                .insert_header((
                    header::LOCATION,
                    format!(
                        "{}/v1/events/{}",
                        app.config.server.public_path(),
                        answer.receipt.id
                    ),
                ))
                .json(answer))
        }
    }
}

/// The events in a body.
enum Sent {
    One(Box<Request>),
    Many(Vec<Request>),
}

impl Sent {
    /// Parses and checks a body. `key` is the request's `Idempotency-Key`.
    fn read(notify: &Notify, body: &[u8], key: Option<String>) -> Result<Self, Problem> {
        if body::is_many(body, FIELD) {
            if key.is_some() {
                let why = "is for one event; give the events of a list a field `key` each";
                return Err(Problem::parameter(KEY_LOCATION, why));
            }
            let events: Vec<EventInput> = body::many(body, FIELD)?;
            let requests = events.into_iter().enumerate().map(|(index, event)| {
                checked(notify, event).map_err(|invalid| body::of_record(FIELD, index, invalid))
            });
            return Ok(Self::Many(requests.collect::<Result<_, _>>()?));
        }
        let mut event: EventInput = body::one(body)?;
        if let Some(key) = key {
            if event.key.as_ref().is_some_and(|other| *other != key) {
                let why = "differs from the field `key`; give one of them";
                return Err(Problem::parameter(KEY_LOCATION, why));
            }
            event.key = Some(key);
        }
        Ok(Self::One(Box::new(checked(notify, event)?)))
    }
}

fn checked(notify: &Notify, event: EventInput) -> Result<Request, crate::domain::Invalid> {
    let request = event.into_request()?;
    notify.check(&request)?;
    Ok(request)
}

/// `GET /v1/events/{id}`
pub(super) async fn get(
    _: NoQuery,
    req: HttpRequest,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let id: Id = segment(&req, "id")?;
    let Some(fanout) = app.notify().find(id).await? else {
        let detail = format!("there is no event {id}; ids are those that accepting gave");
        return Err(Problem::new(Code::UnknownEvent, detail));
    };
    Ok(HttpResponse::Ok().json(Progress::from(fanout)))
}

/// The body of a retraction.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Retraction {
    #[serde(rename = "type")]
    kind: EventType,
    #[serde(deserialize_with = "ids")]
    objects: Vec<ObjectId>,
}

/// `DELETE /v1/events`
pub(super) async fn retract(
    _: NoQuery,
    req: HttpRequest,
    payload: Payload,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let body = body::read(&req, payload, body::LIMIT).await?;
    let Retraction { kind, objects } = body::aside(body, body::one).await?;
    let out = app.retract().events(&kind, &objects).await?;
    Ok(HttpResponse::Ok().json(out))
}

const KEY_LOCATION: &str = "header Idempotency-Key";

/// Parses the header `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header). The draft
/// requires a quoted string, but many clients send the bare key.
fn idempotency_key(req: &HttpRequest) -> Result<Option<String>, Problem> {
    let mut values = req.headers().get_all("Idempotency-Key");
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Problem::parameter(
            KEY_LOCATION,
            "is given twice; give it once",
        ));
    }
    let key = value.to_str().ok().and_then(unquoted);
    key.map(Some).ok_or_else(|| {
        let why = "is not a key of visible ASCII characters, with or without quotes around it";
        Problem::parameter(KEY_LOCATION, why)
    })
}

/// Parses a string of structured fields (RFC 8941, 3.3.3), or a bare key without quotes.
fn unquoted(text: &str) -> Option<String> {
    let text = text.trim();
    let Some(rest) = text.strip_prefix('"') else {
        return (!text.is_empty() && !text.contains('"')).then(|| text.to_owned());
    };
    let mut key = String::with_capacity(rest.len());
    let mut chars = rest.chars();
    loop {
        match chars.next()? {
            '"' => break,
            '\\' => key.push(chars.next().filter(|c| matches!(c, '"' | '\\'))?),
            c => key.push(c),
        }
    }
    (!key.is_empty() && chars.as_str().is_empty()).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idempotency_key_is_the_same_with_and_without_quotes() {
        assert_eq!(unquoted("8e03978e-40d5").as_deref(), Some("8e03978e-40d5"));
        assert_eq!(
            unquoted("\"8e03978e-40d5\"").as_deref(),
            Some("8e03978e-40d5")
        );
        assert_eq!(unquoted(r#""a\"b\\""#).as_deref(), Some(r#"a"b\"#));
        for garbled in ["", "\"\"", "\"a", "a\"", "\"a\" b", r#""a\n""#] {
            assert_eq!(unquoted(garbled), None, "{garbled}");
        }
    }
}
