//! Reports without a tag: their email is found by its provider id, if only one email has that id.

use serde_json::json;
use tidings::domain::delivery::Settlement;
use tidings::domain::{DeliveryState, ReportKind};

use super::{Event, email_to, emailed, recorded_kind, signing};
use crate::support::town::{monday, mostly_on_sqlite};
use crate::support::{Fresh, Shorthand, delivery, noon};

mostly_on_sqlite! {
    a_report_without_a_tag_finds_its_email_by_provider_id
    a_provider_id_of_several_emails_matches_none
}

async fn a_report_without_a_tag_finds_its_email_by_provider_id(fresh: Fresh) {
    let api = emailed(&fresh).await;
    let delivery = email_to(&api, "ben").await;
    let at = monday(0).timestamp();
    let mut event =
        Event { provider: "resend", news: "bounced", n: 1, tag: "", to: "ben@example.org", at };

    let mut body = event.body();
    body["data"]["email_id"] = json!(format!("p:{delivery}"));
    let found = api.hook("resend", signing::sign("resend", &body, at, 1)).await;
    event.n = 2;
    let lost = api.report(&event).await;

    assert_eq!((found.status, &found.body["taken"]), (200, &json!(1)));
    assert_eq!((lost.status, &lost.body["not_ours"]), (200, &json!(1)));
    assert_eq!(recorded_kind(&api, &delivery).await, Some(ReportKind::Bounced));
    api.stop().await;
}

async fn a_provider_id_of_several_emails_matches_none(fresh: Fresh) {
    let api = emailed(&fresh).await;
    let rows = ["cem", "dee"].map(|person| delivery(person, "2014-04-01", "one"));
    fresh.open(&rows).await.unwrap();
    let sent = rows.each_ref().map(|row| Settlement {
        provider_id: Some("both".into()),
        ..Settlement::for_row(row, DeliveryState::Sent, 1, None)
    });
    let sent = fresh.settle("one", noon(), &sent).await;
    assert_eq!(sent, [true, true]);
    let at = monday(0).timestamp();
    let event =
        Event { provider: "resend", news: "bounced", n: 1, tag: "", to: "cem@example.org", at };

    let mut body = event.body();
    body["data"]["email_id"] = json!("both");
    let signed = signing::sign("resend", &body, at, 1);
    let lost = api.hook("resend", signed).await;

    assert_eq!((lost.status, &lost.body["not_ours"]), (200, &json!(1)));
    for row in &rows {
        assert_eq!(recorded_kind(&api, &row.id).await, None);
    }
    api.stop().await;
}
