//! Suppressed addresses over HTTP: add, list with masked addresses, and lift.

use serde_json::json;
use tidings::domain::SuppressionReason;

use super::Api;
use crate::support::town::{followers_of, monday, mostly_on_sqlite};
use crate::support::{Fresh, noon};

mostly_on_sqlite! {
    a_suppressed_address_gets_no_email_until_it_is_lifted
}

on_sqlite! {
    the_list_is_paged_and_masks_addresses
    the_most_severe_reason_is_kept
    an_invalid_address_is_rejected_without_repeating_it
}

async fn a_suppressed_address_gets_no_email_until_it_is_lifted(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    api.town.happens(&["a1"], followers_of("artist:1")).await;
    let entry =
        json!({"address": "ADA@example.org", "reason": "complaint", "at": "2014-04-19T09:00:00Z"});
    let put = api.post("/v1/suppressions", entry).await;

    let report = api.town.digests_at(monday(0)).await;

    assert_eq!((put.status, &put.body["taken"]), (200, &json!(1)));
    assert_eq!(report.emails.sent, 1, "ben's");
    assert_eq!(report.users.unmailable["suppressed after a complaint"], 1);
    assert_eq!(api.town.emailed_to("ada"), Vec::<String>::new());

    let lifted = api.delete("/v1/suppressions/ada%40example.org").await;
    let again = api.delete("/v1/suppressions/ada%40example.org").await;
    let report = api.town.digests_at(monday(0)).await;

    assert_eq!((lifted.status, again.status, again.code()), (204, 404, "not_suppressed"));
    assert_eq!(report.emails.sent, 1);
    assert_eq!(api.town.emailed_to("ada"), ["a1"]);
    api.stop().await;
}

async fn the_list_is_paged_and_masks_addresses(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let people = ["ada", "ben", "cem", "dee", "eve"];
    let list: Vec<_> = people
        .iter()
        .map(|who| json!({"address": format!("{who}.private@example.org"), "source": "Mailgun!", "detail": format!("550 <{who}.private@x.org>")}))
        .collect();
    let put = api.post("/v1/suppressions", json!({"suppressions": list})).await;
    assert_eq!((put.status, &put.body["taken"]), (200, &json!(5)));

    let (mut shown, mut path) = (Vec::new(), "/v1/suppressions?limit=2".to_owned());
    loop {
        let page = api.get(&path).await;
        assert_eq!(page.status, 200, "{}", page.body);
        assert!(!page.body.to_string().contains("private"), "{}", page.body);
        for one in page.body["suppressions"].as_array().unwrap() {
            assert_eq!((&one["source"], &one["detail"]), (&json!("mailgun"), &json!("550")));
            shown.push(one["address"].as_str().unwrap().to_owned());
        }
        let Some(next) = page.body["next"].as_str() else {
            break;
        };
        assert!(!next.contains("private"), "{next}");
        path = format!("/v1/suppressions?limit=2&after={next}");
    }

    let expected = ["a", "b", "c", "d", "e"].map(|first| format!("{first}…@example.org"));
    assert_eq!(shown, expected);
    for path in ["limit=0", "limit=1001", "after=ada", "after=6164", "limit=ten"] {
        let refused = api.get(&format!("/v1/suppressions?{path}")).await;
        refused.assert_problem(400, "invalid_parameter", &path);
    }
    api.stop().await;
}

async fn the_most_severe_reason_is_kept(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    for reason in ["manual", "hard_bounce", "soft_bounces"] {
        let entry = json!({"address": "eve@example.org", "reason": reason, "at": noon()});
        assert_eq!(api.post("/v1/suppressions", entry).await.status, 200);
    }

    let shown = api.get("/v1/suppressions/Eve%40Example.org").await;
    let other = api.get("/v1/suppressions/ada%40example.org").await;

    assert_eq!(shown.body["reason"], SuppressionReason::HardBounce.as_str());
    assert_eq!(shown.body["address"], "e…@example.org");
    // A suppression cannot start in the future, so its time is the current one.
    assert_eq!(shown.body["at"], "2014-04-19T10:00:00Z");
    assert_eq!((other.status, other.code()), (404, "not_suppressed"));
    api.stop().await;
}

async fn an_invalid_address_is_rejected_without_repeating_it(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let bodies = [
        json!({"address": "private.person at example.org"}),
        json!({"address": {"$ne": ""}}),
        json!({"address": "a@example.org", "reason": "bounce"}),
        json!([{"address": "a@example.org"}, {"address": "private.person"}]),
        json!({"reason": "manual"}),
    ];
    for body in bodies {
        let refused = api.post("/v1/suppressions", body.clone()).await;
        refused.assert_problem(400, "invalid_body", &body);
        assert!(!refused.body.to_string().contains("private.person"), "{}", refused.body);
    }
    let refused = api.get("/v1/suppressions/private.person").await;
    assert_eq!((refused.status, refused.code()), (400, "invalid_parameter"));
    assert!(!refused.body.to_string().contains("private.person"));
    assert_eq!(fresh.suppressions(None, 10).await.unwrap(), []);
    api.stop().await;
}
