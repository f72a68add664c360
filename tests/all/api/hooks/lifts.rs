//! Reports about former addresses or from before a lift, unreadable items, and missing reports.

use chrono::TimeDelta;
use serde_json::json;
use tidings::domain::{Address, DeliveryId, ReportKind};

use super::{
    Event, PROVIDERS, email_to, emailed, lift_at, recorded_kind, signing, suppression, tag_of,
};
use crate::api::Api;
use crate::support::town::{Town, followers_of, monday, mostly_on_sqlite};
use crate::support::{Fresh, Shorthand, user};

mostly_on_sqlite! {
    a_report_about_a_former_address_suppresses_nothing
    a_report_from_before_a_lift_changes_nothing
    an_unreadable_item_does_not_lose_the_others
    emails_without_any_report_for_a_day_are_counted
}

async fn a_report_about_a_former_address_suppresses_nothing(fresh: Fresh) {
    let api = emailed(&fresh).await;
    let delivery = email_to(&api, "ada").await;
    let tag = tag_of(&delivery);
    api.town.change("ada", |ada| ada.email = Address::new("ada@new.example").ok()).await;
    let at = monday(0).timestamp();
    let event =
        Event { provider: "mailgun", news: "bounced", n: 1, tag: &tag, to: "ada@example.org", at };

    let answer = api.report(&event).await;

    assert_eq!((&answer.body["taken"], &answer.body["moved"]), (&json!(1), &json!(1)));
    assert_eq!(recorded_kind(&api, &delivery).await, Some(ReportKind::Bounced));
    for address in ["ada@new.example", "ada@example.org"] {
        assert_eq!(suppression(&api, address).await, None, "{address}");
    }
    api.stop().await;
}

async fn a_report_from_before_a_lift_changes_nothing(fresh: Fresh) {
    let api = emailed(&fresh).await;
    let tag = tag_of(&email_to(&api, "ada").await);
    let mut bounced = monday(0).timestamp() - 600;
    let mut n = 0;
    for provider in PROVIDERS {
        bounced += 100;
        let mut report = async |news, at| {
            n += 1;
            let event = Event { provider, news, n, tag: &tag, to: "ada@example.org", at };
            assert_eq!(api.report(&event).await.body["taken"], 1, "{provider}");
            suppression(&api, "ada@example.org").await
        };
        assert!(report("bounced", bounced).await.is_some(), "{provider}");
        let lifted = bounced + 20;
        lift_at(&api, lifted).await;

        for (news, at) in [
            ("bounced", bounced),
            ("complained", lifted - 1),
            ("unsubscribed", lifted),
            ("delayed", lifted - 2),
        ] {
            if provider == "resend" && news == "unsubscribed" {
                continue;
            }
            assert_eq!(report(news, at).await, None, "{provider} {news}");
        }
        assert!(report("bounced", lifted + 1).await.is_some(), "{provider}");
        lift_at(&api, lifted + 1).await;
    }
    let ada = fresh.user_record(&user("ada")).await;
    assert!(ada.unwrap().mailable_address().is_ok(), "an old report unsubscribed");
    api.stop().await;
}

async fn an_unreadable_item_does_not_lose_the_others(fresh: Fresh) {
    let api = emailed(&fresh).await;
    let [ada, ben] = [email_to(&api, "ada").await, email_to(&api, "ben").await];
    let at = monday(0).timestamp();
    let item = |delivery: &DeliveryId, to: &str, n| {
        let tag = tag_of(delivery);
        let event = Event { provider: "sendgrid", news: "bounced", n, tag: &tag, to, at };
        event.body()[0].clone()
    };
    let odd = json!({"event": "bounce", "status": 5, "email": "x@y.example"});
    let body = json!([item(&ada, "ada@example.org", 1), odd, 7, item(&ben, "ben@example.org", 2)]);

    let some = api.hook("sendgrid", signing::sign("sendgrid", &body, at, 1));
    let some = some.await;
    let none = json!([odd]);
    let none = api.hook("sendgrid", signing::sign("sendgrid", &none, at, 2));
    let none = none.await;

    assert_eq!(some.status, 200, "{}", some.body);
    assert_eq!((&some.body["taken"], &some.body["unreadable"]), (&json!(2), &json!(2)));
    for address in ["ada@example.org", "ben@example.org"] {
        assert!(suppression(&api, address).await.is_some(), "{address}");
    }
    assert_eq!((none.status, none.code()), (400, "invalid_body"));
    let scraped = api.ask("GET", "/metrics").send().await.unwrap();
    let scraped = scraped.text().await.unwrap().replace("{} ", " ");
    assert!(scraped.contains("tidings_reports_skipped_total 3\n"));
    api.stop().await;
}

async fn emails_without_any_report_for_a_day_are_counted(fresh: Fresh) {
    let provider =
        "mail.provider = \"resend\"\nmail.key = \"re_key\"\nmail.from = \"digest@art.example\"\n";
    let config = provider.to_owned() + &signing::config();
    let town = Town::found(&fresh, true, &config).await;
    town.happens(&["a1"], followers_of("artist:1")).await;
    town.digests_at(monday(0)).await;
    let api = Api::of(town);
    let unreported = async |hours: i64| {
        let at = monday(0) + TimeDelta::hours(hours);
        api.town.clock.set(at);
        api.town.process().status().current_status().await.unwrap().unreported
    };

    assert_eq!(unreported(1).await, 0, "reports may still arrive");
    assert_eq!(unreported(25).await, 2);
    assert_eq!(unreported(100).await, 2, "also for weekly digests");

    let tag = tag_of(&email_to(&api, "ada").await);
    let event = Event {
        provider: "resend",
        news: "delivered",
        n: 1,
        tag: &tag,
        to: "ada@example.org",
        at: monday(0).timestamp() + 100 * 3_600,
    };
    assert_eq!(api.report(&event).await.status, 200);
    assert_eq!(unreported(101).await, 0);
    api.stop().await;
}
