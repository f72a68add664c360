//! Provider webhooks, signed with test keys. Forged reports are in [`attacks`].
//!
//! P7, P8: a report counts only if it is signed, fresh and about a delivery in the store. Repeated,
//! late and reordered reports lead to the same state.

mod attacks;
mod brands;
mod judged;
mod lifts;
mod orders;
mod provider_ids;
mod ses;
mod signing;

use serde_json::{Value, json};
use tidings::domain::user::UnmailableReason;
use tidings::domain::{Address, DeliveryId, ReportKind, Suppression, SuppressionReason, User};

use super::{Answer, Api};
use crate::support::town::{Town, followers_of, monday, mostly_on_sqlite};
use crate::support::{Fresh, Shorthand, user};
use signing::{Signed, config};

mostly_on_sqlite! {
    every_provider_can_report_every_outcome
    after_a_hard_bounce_a_user_gets_no_email_and_explain_says_why
    consecutive_soft_bounces_suppress_an_address
}

on_sqlite! {
    reports_about_unknown_deliveries_are_counted_and_change_nothing
    a_provider_without_a_key_has_no_webhook
    a_report_gets_a_503_until_the_store_has_recorded_it
}

/// An event about the email to `to`, from which `body` builds a report in the provider's format.
struct Event<'a> {
    provider: &'a str,
    news: &'a str,
    /// Distinguishes this event from others.
    n: u32,
    tag: &'a str,
    to: &'a str,
    /// Seconds since 1970.
    at: i64,
}

impl Event<'_> {
    fn body(&self) -> Value {
        let Self { n, tag, to, at, .. } = self;
        let time = chrono::DateTime::from_timestamp(*at, 0).unwrap();
        let time = time.to_rfc3339();
        let meta = json!({"delivery": tag});
        match self.provider {
            "mailgun" => {
                let (event, severity) = match self.news {
                    "bounced" | "refused" => ("failed", json!("permanent")),
                    "delayed" => ("failed", json!("temporary")),
                    other => (other, Value::Null),
                };
                let enhanced = match self.news {
                    "refused" => "5.7.26",
                    _ => "",
                };
                json!({"event-data": {
                    "event": event, "severity": severity, "id": format!("mg-{n}"), "timestamp": at, "recipient": to,
                    "reason": "bounce", "delivery-status": {"code": 550, "enhanced-code": enhanced, "message": format!("no such user {to}")},
                    "message": {"headers": {"message-id": format!("p{n}@example.org"), "to": to}}, "user-variables": meta,
                }})
            }
            "sendgrid" => {
                let (event, kind) = match self.news {
                    "bounced" | "refused" => ("bounce", "bounce"),
                    "delayed" => ("bounce", "blocked"),
                    "complained" => ("spamreport", ""),
                    "unsubscribed" => ("group_unsubscribe", ""),
                    other => (other, ""),
                };
                let status = match self.news {
                    "refused" => "5.7.1",
                    "delayed" => "4.2.2",
                    _ => "5.1.1",
                };
                json!([{
                    "email": to, "timestamp": at, "event": event, "type": kind, "sg_event_id": format!("sg-{n}"),
                    "sg_message_id": format!("p{n}.recvd-5f54b5d587-8dz8h-1-6450F6B2-9.0"), "status": status,
                    "reason": format!("550 no such user {to}"), "delivery": tag,
                }])
            }
            "postmark" => {
                let (record, kind) = match self.news {
                    "bounced" => ("Bounce", "HardBounce"),
                    "delayed" => ("Bounce", "SoftBounce"),
                    "refused" => ("Bounce", "Blocked"),
                    "complained" => ("SpamComplaint", "SpamComplaint"),
                    "unsubscribed" => ("SubscriptionChange", ""),
                    _ => ("Delivery", ""),
                };
                json!({
                    "RecordType": record, "Type": kind, "ID": n, "MessageID": format!("p{n}"), "Recipient": to,
                    "Email": to, "BouncedAt": time, "SuppressSending": true, "Metadata": meta,
                    "Description": format!("no such user {to}"),
                })
            }
            "ses" => {
                let status = match self.news {
                    "refused" => "5.7.1",
                    _ => "5.1.1",
                };
                let part = json!({
                    "timestamp": time, "bounceType": "Permanent", "bounceSubType": "General",
                    "bouncedRecipients": [{"emailAddress": to, "status": status, "diagnosticCode": to}],
                    "newTopicPreferences": {"unsubscribeAll": true},
                });
                let (kind, name) = match self.news {
                    "bounced" | "refused" => ("Bounce", "bounce"),
                    "delayed" => ("DeliveryDelay", "deliveryDelay"),
                    "complained" => ("Complaint", "complaint"),
                    "unsubscribed" => ("Subscription", "subscription"),
                    _ => ("Delivery", "delivery"),
                };
                let email = json!({"messageId": format!("p{n}"), "destination": [to], "tags": {"delivery": [tag]}});
                json!({"eventType": kind, name: part, "mail": email})
            }
            _ => {
                let (kind, bounce) = match self.news {
                    "delayed" => ("delivery_delayed", Value::Null),
                    "bounced" => (
                        "bounced",
                        json!({"type": "Permanent", "subType": "General", "message": to}),
                    ),
                    "refused" => (
                        "bounced",
                        json!({"type": "Permanent", "subType": "General",
                            "diagnosticCode": ["smtp; 550 5.7.1 refused by policy"]}),
                    ),
                    other => (other, Value::Null),
                };
                json!({"type": format!("email.{kind}"), "created_at": time, "data": {
                    "email_id": format!("p{n}"), "to": [to], "tags": meta, "bounce": bounce,
                }})
            }
        }
    }

    fn signed(&self) -> Signed {
        signing::sign(self.provider, &self.body(), self.at, self.n)
    }
}

/// Starts a server with every provider's key, whose users were just sent a weekly digest.
async fn emailed(fresh: &Fresh) -> Api {
    let town = Town::found(fresh, true, &config()).await;
    town.happens(&["a1"], followers_of("artist:1")).await;
    town.digests_at(monday(0)).await;
    Api::of(town)
}

fn tag_of(delivery: &DeliveryId) -> String {
    delivery.tag().to_string()
}

/// Returns the delivery of the only email to this user.
async fn email_to(api: &Api, person: &str) -> DeliveryId {
    let emails = api.town.deliveries_of(person).await;
    assert_eq!(emails.len(), 1, "{emails:?}");
    emails[0].id.clone()
}

async fn recorded_kind(api: &Api, delivery: &DeliveryId) -> Option<ReportKind> {
    let row = api.town.store.delivery(delivery).await.unwrap();
    row.outcome.feedback.map(|feedback| feedback.news)
}

/// Lifts the suppression of ada's address at this second.
async fn lift_at(api: &Api, second: i64) {
    let ada = Address::new("ada@example.org").unwrap();
    let at = chrono::DateTime::from_timestamp(second, 0).unwrap();
    let expired = chrono::DateTime::UNIX_EPOCH;
    api.town.store.lift(&ada, at, expired).await;
}

async fn suppression(api: &Api, address: &str) -> Option<Suppression> {
    let addresses = [Address::new(address).unwrap()];
    api.town.store.suppressed(&addresses).await.remove(0)
}

impl Api {
    async fn report(&self, event: &Event<'_>) -> Answer {
        self.hook(event.provider, event.signed()).await
    }

    async fn hook(&self, provider: &str, signed: Signed) -> Answer {
        let mut request = self.anonymous("POST", &format!("/hooks/{provider}"));
        for (name, value) in signed.headers {
            request = request.header(name, value);
        }
        let request = request.header("Content-Type", "application/json");
        super::answer(request.body(signed.body)).await
    }
}

const PROVIDERS: [&str; 5] = ["mailgun", "sendgrid", "postmark", "resend", "ses"];

async fn every_provider_can_report_every_outcome(fresh: Fresh) {
    let api = emailed(&fresh).await;
    let delivery = email_to(&api, "ada").await;
    let at = monday(0).timestamp();
    let before = fresh.user_record(&user("ada")).await.unwrap();
    let mut n = 0;
    for provider in PROVIDERS {
        for news in ReportKind::ALL {
            if provider == "resend" && news == ReportKind::Unsubscribed {
                continue;
            }
            n += 1;
            let at = at - 60 + i64::from(n);
            lift_at(&api, at - 1).await;
            let tag = tag_of(&delivery);
            let event =
                Event { provider, news: news.as_str(), n, tag: &tag, to: "Ada@Example.org", at };

            let answer = api.report(&event).await;

            let about = format!("{provider} {news}: {}", answer.body);
            assert_eq!((answer.status, &answer.body["taken"]), (200, &json!(1)), "{about}");
            let reason = match news {
                ReportKind::Delivered | ReportKind::Delayed | ReportKind::Refused => None,
                ReportKind::Unsubscribed => Some(SuppressionReason::Unsubscribe),
                ReportKind::Bounced => Some(SuppressionReason::HardBounce),
                ReportKind::Complained => Some(SuppressionReason::Complaint),
            };
            let current = suppression(&api, "ada@example.org").await;
            assert_eq!(current.as_ref().map(|one| one.reason), reason, "{about}");
            let ada = fresh.user_record(&user("ada")).await.unwrap();
            let unsubscribed = ada.mailable_address() == Err(UnmailableReason::Unsubscribed);
            assert_eq!(unsubscribed, news == ReportKind::Unsubscribed, "{about}");
            let restore = |ada: &mut User| {
                let rev = ada.revision;
                *ada = before.clone();
                ada.revision = rev;
            };
            api.town.change("ada", restore).await;
            if let Some(current) = current {
                assert_eq!((current.source.as_str(), current.at.timestamp()), (provider, at));
                assert!(!format!("{:?}", current.detail).contains("ada"), "{current:?}");
            }
        }
    }
    assert_eq!(recorded_kind(&api, &delivery).await, Some(ReportKind::Complained));
    api.stop().await;
}

async fn after_a_hard_bounce_a_user_gets_no_email_and_explain_says_why(fresh: Fresh) {
    let api = emailed(&fresh).await;
    let delivery = email_to(&api, "ada").await;
    let tag = tag_of(&delivery);
    let at = monday(0).timestamp();
    let event =
        Event { provider: "mailgun", news: "bounced", n: 1, tag: &tag, to: "ada@example.org", at };
    api.report(&event).await;

    api.town.happens(&["a2"], followers_of("artist:1")).await;
    let report = api.town.digests_at(monday(1)).await;

    assert_eq!((report.emails.sent, report.due.users), (1, 1), "ben's");
    assert_eq!(report.users.unmailable["suppressed after a hard bounce"], 1);
    assert_eq!(api.town.emailed_to("ada"), ["a1"]);
    let explained = api.town.process().explain().user(&user("ada"), None).await;
    let explained = explained.unwrap();
    let why = explained.unmailable.unwrap();
    assert_eq!(why, "they are suppressed after a hard bounce");
    let suppression = explained.suppression.unwrap();
    assert_eq!(
        (suppression.at.timestamp(), suppression.detail.as_deref()),
        (at, Some("550 bounce"))
    );
    api.stop().await;
}

async fn consecutive_soft_bounces_suppress_an_address(fresh: Fresh) {
    let api = emailed(&fresh).await;
    let mut n = 0;
    // Two emails bounce softly, one is delivered, and three bounce softly. The configured limit is
    // three in a row.
    for (week, news) in
        ["delayed", "delayed", "delivered", "delayed", "delayed", "delayed"].into_iter().enumerate()
    {
        if week > 0 {
            let work = ["a1", "a2", "a3", "a4", "a5", "a6"][week];
            api.town.happens(&[work], followers_of("artist:1")).await;
            api.town.digests_at(monday(week as i64)).await;
        }
        let delivery = api.town.deliveries_of("ada").await.remove(0).id;
        let tag = tag_of(&delivery);
        // The provider tries to deliver one email three times, which counts as one bounced email.
        for attempt in 0..3 {
            assert_eq!(suppression(&api, "ada@example.org").await, None, "week {week}");
            n += 1;
            let at = monday(week as i64).timestamp() + attempt;
            let event =
                Event { provider: "sendgrid", news, n, tag: &tag, to: "ada@example.org", at };
            api.report(&event).await;
            if (week, attempt) == (5, 0) {
                break;
            }
        }
    }

    let current = suppression(&api, "ada@example.org").await.unwrap();
    assert_eq!(current.reason, SuppressionReason::SoftBounces);
    api.stop().await;
}

async fn reports_about_unknown_deliveries_are_counted_and_change_nothing(fresh: Fresh) {
    let api = emailed(&fresh).await;
    let at = monday(0).timestamp();
    let unknown = DeliveryId::stored("digest:eve:weekly:2014-W17");
    for (n, provider) in PROVIDERS.into_iter().enumerate() {
        let tag = tag_of(&unknown);
        let event = Event {
            provider,
            news: "complained",
            n: n as u32,
            tag: &tag,
            to: "ada@example.org",
            at,
        };

        let answer = api.report(&event).await;

        assert_eq!((answer.status, &answer.body["not_ours"]), (200, &json!(1)), "{provider}");
        assert_eq!(suppression(&api, "ada@example.org").await, None, "{provider}");
    }
    let mut opened =
        Event { provider: "sendgrid", news: "open", n: 9, tag: "", to: "ada@example.org", at }
            .body();
    opened[0]["event"] = json!("open");
    let answer = api.hook("sendgrid", signing::sign("sendgrid", &opened, at, 9)).await;
    assert_eq!((answer.status, &answer.body["ignored"]), (200, &json!(1)));
    api.stop().await;
}

async fn a_provider_without_a_key_has_no_webhook(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    for provider in PROVIDERS {
        let event =
            Event { provider, news: "bounced", n: 1, tag: "", to: "ada@example.org", at: 0 };
        let answer = api.report(&event).await;
        answer.assert_problem(404, "hook_not_configured", &provider);
    }
    for provider in ["sparkpost", "Mailgun", "mailgun%20"] {
        let answer = api.hook(provider, Signed::default()).await;
        answer.assert_problem(404, "unknown_provider", &provider);
    }
    api.stop().await;
}

async fn a_report_gets_a_503_until_the_store_has_recorded_it(fresh: Fresh) {
    use crate::support::{FailingStore, Fault, Then};
    let emailed = emailed(&fresh).await;
    let delivery = email_to(&emailed, "ada").await;
    let tag = tag_of(&delivery);
    let at = monday(0).timestamp();
    for (n, provider) in PROVIDERS.into_iter().enumerate() {
        let n = 1 + n as u32;
        let event = Event { provider, news: "bounced", n, tag: &tag, to: "ada@example.org", at };
        let signed = event.signed();
        let mut failed = 0;
        loop {
            let store = FailingStore::new(fresh.handle(), failed, Fault::Unheard, Then::StaysDown);
            let town = Town::found(&fresh, true, &config()).await;
            town.clock.set(monday(0));
            let api = Api::with_store(town, &(store.clone() as _));
            let answer = api.hook(provider, signed.clone()).await;
            api.stop().await;
            if store.struck().is_none() {
                assert_eq!((answer.status, failed > 5), (200, true), "{provider}");
                break;
            }
            answer.assert_problem(503, "store_unavailable", &provider);
            failed += 1;
        }
        assert_eq!(suppression(&emailed, "ada@example.org").await.unwrap().source, "mailgun");
    }
    assert_eq!(recorded_kind(&emailed, &delivery).await, Some(ReportKind::Bounced));
    emailed.stop().await;
}
