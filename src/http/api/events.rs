//! Accepts and retracts events, and reports the progress of their fan-out.
//!
//! A request is parsed and checked completely before [`crate::engine::ingest`] sees it
//! (P10). Status 202 means that all its events are in the journal (P1).

use std::time::Duration;

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;

use super::problem::{ApiResult, Code, Problem};
use super::request::{ApiRequest, record_problem};
use super::route::routes;
use crate::app::App;
use crate::domain::{EventType, Id, ObjectId};
use crate::engine::ingest::unknown_names::RequestNames;
use crate::engine::ingest::{EventInput, EventService, NewEvent, one_or_many_ids};
use crate::wire::event::{AcceptedEvent, AcceptedEvents, EventProgress};

routes! {ROUTES under "/v1":
    "/events" => {post write bulk: post, delete write: retract}
    "/events/{id}" => {get read: get}
}

const FIELD: &str = "events";

/// The longest wait for the look-up of unknown objects and users after the events are accepted.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);

/// Accepts events, and adds warnings about unknown types, objects and users. A failed look-up only
/// loses the warnings, because the events are already accepted.
async fn accept(app: &App, requests: Vec<NewEvent>) -> Result<Vec<AcceptedEvent>, Problem> {
    let names: Vec<RequestNames> = requests.iter().map(RequestNames::from).collect();
    let receipts = app.notify().accept(requests).await?;
    let looked_up =
        tokio::time::timeout(LOOKUP_TIMEOUT, app.name_lookup().find_unknown(&names)).await;
    let unknown = looked_up.ok().and_then(Result::ok).unwrap_or_else(|| {
        tracing::warn!("could not look up whether the objects and users of accepted events exist");
        Vec::new()
    });
    let mut warnings = unknown.iter().map(|unknown| unknown.warnings(&app.config.policies));
    let accepted =
        |receipt| AcceptedEvent { receipt, warnings: warnings.next().unwrap_or_default() };
    Ok(receipts.into_iter().map(accepted).collect())
}

/// `POST /v1/events`
async fn post(mut request: ApiRequest) -> ApiResult {
    let key = idempotency_key(&request.http)?;
    let (events, is_list) = request.parse_one_or_many(FIELD).await?;
    let requests = checked_events(&request.app.notify(), events, is_list, key)?;
    let mut events = accept(&request.app, requests).await?;
    if is_list {
        return Ok(HttpResponse::Accepted().json(AcceptedEvents { events }));
    }
    let answer = events.remove(0);
    let base = request.app.config.server.public_path();
    let location = format!("{base}/v1/events/{}", answer.receipt.id);
    Ok(HttpResponse::Accepted().insert_header((header::LOCATION, location)).json(answer))
}

/// Checks the events of a body. `key` is the request's `Idempotency-Key`, which names one event.
fn checked_events(
    notify: &EventService,
    mut events: Vec<EventInput>,
    is_list: bool,
    key: Option<String>,
) -> Result<Vec<NewEvent>, Problem> {
    if let Some(key) = key {
        if is_list {
            let why = "is for one event; give the events of a list a field `key` each";
            return Err(Problem::parameter(KEY_LOCATION, why));
        }
        if *events[0].key.get_or_insert_with(|| key.clone()) != key {
            let why = "differs from the field `key`; give one of them";
            return Err(Problem::parameter(KEY_LOCATION, why));
        }
    }
    let check = |(index, event): (usize, EventInput)| {
        let checked = event.into_request().and_then(|event| notify.check(&event).map(|()| event));
        checked.map_err(|invalid| {
            if is_list { record_problem(FIELD, index, invalid) } else { invalid.into() }
        })
    };
    events.into_iter().enumerate().map(check).collect()
}

/// `GET /v1/events/{id}`
async fn get(request: ApiRequest) -> ApiResult {
    let id: Id = request.segment("id")?;
    let Some(fanout) = request.app.notify().find(id).await? else {
        let detail = format!("there is no event {id}; ids are those that accepting gave");
        return Err(Problem::new(Code::UnknownEvent, detail));
    };
    Ok(HttpResponse::Ok().json(EventProgress::from(fanout)))
}

/// The body of a retraction.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RetractionBody {
    #[serde(rename = "type")]
    kind: EventType,
    #[serde(deserialize_with = "one_or_many_ids")]
    objects: Vec<ObjectId>,
}

/// `DELETE /v1/events`
async fn retract(mut request: ApiRequest) -> ApiResult {
    let RetractionBody { kind, objects } = request.parse_one().await?;
    let retracted = request.app.objects().retract(&kind, &objects).await?;
    Ok(HttpResponse::Ok().json(retracted))
}

const KEY_LOCATION: &str = "header Idempotency-Key";

/// Parses the header `Idempotency-Key`: a key in quotes, as the draft of the IETF requires
/// (draft-ietf-httpapi-idempotency-key-header), or the bare key, which many clients send.
fn idempotency_key(req: &HttpRequest) -> Result<Option<String>, Problem> {
    let mut values = req.headers().get_all("Idempotency-Key");
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Problem::parameter(KEY_LOCATION, "is given twice; give it once"));
    }
    let Some(key) = value.to_str().ok().and_then(unquoted) else {
        let why = "is not a key of visible ASCII characters, with or without quotes around it";
        return Err(Problem::parameter(KEY_LOCATION, why));
    };
    Ok(Some(key))
}

fn unquoted(text: &str) -> Option<String> {
    let text = text.trim();
    let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let key = quoted.unwrap_or(text);
    (!key.is_empty() && !key.contains('"')).then(|| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idempotency_key_is_the_same_with_and_without_quotes() {
        assert_eq!(unquoted("8e03978e-40d5").as_deref(), Some("8e03978e-40d5"));
        assert_eq!(unquoted("\"8e03978e-40d5\"").as_deref(), Some("8e03978e-40d5"));
        for garbled in ["", "\"", "\"\"", "\"a", "a\"", "\"a\" b", r#""a\"b""#] {
            assert_eq!(unquoted(garbled), None, "{garbled}");
        }
    }
}
