//! Two accounts at one provider: each brand's own key verifies the reports of its account.

use serde_json::json;

use super::signing::{MAILGUN, mailgun};
use super::{Event, config, email_to, tag_of};
use crate::api::Api;
use crate::support::Fresh;
use crate::support::town::{Town, followers_of, monday, mostly_on_sqlite};

mostly_on_sqlite! {
    reports_of_both_accounts_are_accepted_and_no_others
}

async fn reports_of_both_accounts_are_accepted_and_no_others(fresh: Fresh) {
    let brands = "[brands.acme.hooks]\nmailgun_key = \"key-of-acme\"\n";
    let town = Town::found(&fresh, true, &(config() + brands)).await;
    town.happens(&["a1"], followers_of("artist:1")).await;
    town.digests_at(monday(0)).await;
    let api = Api::of(town);
    let delivery = email_to(&api, "ada").await;
    let (tag, at) = (tag_of(&delivery), monday(0).timestamp());
    let signed = |key: &str, n| {
        let event = Event {
            provider: "mailgun",
            news: "delivered",
            n,
            tag: &tag,
            to: "ada@example.org",
            at,
        };
        mailgun(key, &event.body(), at, &format!("token {n}"))
    };

    let own = api.hook("mailgun", signed(MAILGUN, 1)).await;
    let acmes = api.hook("mailgun", signed("key-of-acme", 2)).await;
    let others = api.hook("mailgun", signed("another key", 3)).await;

    assert_eq!((own.status, &own.body["taken"]), (200, &json!(1)));
    assert_eq!((acmes.status, &acmes.body["taken"]), (200, &json!(1)));
    assert_eq!(others.status, 401, "{}", others.body);
}
