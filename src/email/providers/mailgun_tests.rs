//! Mailgun: the fields of a call, one test for each row of the outcome table, and the query for
//! events.

use super::*;
use crate::email::http::tests::{account, answer, kind, mail};

fn mailgun() -> Mailgun {
    Mailgun::new(Account {
        options: [(DOMAIN, "mg.art.example".into())].into(),
        ..account()
    })
    .unwrap()
}

fn judged(status: u16, headers: &[(&'static str, &str)], body: &str) -> String {
    kind(&judge(&answer(status, headers, body), 1)[0])
}

fn fault(status: u16, message: &str) -> String {
    judged(status, &[], &json!({ "message": message }).to_string())
}

fn field(mails: &[Message], wanted: &str) -> String {
    let fields = mailgun().fields("ref-1", &Letters::of(mails).ready);
    let mut found = fields.into_iter().filter(|(name, _)| name == wanted);
    found.next().map(|(_, value)| value).unwrap()
}

#[test]
fn a_call_holds_the_content_once_and_each_persons_variables_beside_it() {
    let mails = [mail("ada", "Fourteen works"), mail("ben", "Fourteen works")];
    let fields = mailgun().fields("ref-1", &Letters::of(&mails).ready);
    let body = serde_json::to_string_pretty(&fields).unwrap();
    insta::assert_snapshot!(body);
}

#[test]
fn what_a_mail_says_is_never_taken_for_a_variable() {
    let mut odd = mail("ada", "100 %recipient.unsubscribe% %Recipient%");
    odd.to_name = Some("%recipient.delivery%".into());
    let mails = [odd];
    for name in ["subject", "text", "html", "to"] {
        let value = field(&mails, name);
        let ours = value.replace(UNSUBSCRIBE, "");
        let ours = ours.to_lowercase();
        assert!(!ours.contains("%recipient"), "{name}: {value}");
    }
    let text = field(&mails, "text");
    assert_eq!(text.matches(UNSUBSCRIBE).count(), 1, "{text}");
    assert_eq!(
        field(&mails, "subject"),
        "100 %\u{2060}recipient.unsubscribe% %\u{2060}Recipient%"
    );
}

#[test]
fn fields_are_written_so_that_none_can_end_another() {
    let fields = [("text".to_owned(), "a\r\n--tidings-r--\r\nb".to_owned())];

    let body = form("r", &fields);

    assert_eq!(body.kind, "multipart/form-data; boundary=tidings-r---");
    assert_eq!(
        String::from_utf8(body.bytes).unwrap(),
        "--tidings-r---\r\nContent-Disposition: form-data; name=\"text\"\r\n\r\na\r\n--tidings-r--\r\nb\r\n--tidings-r-----\r\n"
    );
}

#[test]
fn a_call_that_was_taken_has_one_id_for_all() {
    let taken = answer(
        200,
        &[],
        r#"{"id":"<ref-1@mg.art.example>","message":"Queued."}"#,
    );
    let kinds: Vec<_> = judge(&taken, 2).iter().map(kind).collect();
    assert_eq!(kinds, ["accepted as ref-1@mg.art.example"; 2]);
}

#[test]
fn a_yes_that_cannot_be_read_is_unknown() {
    for body in ["", r#"{"id": "tru"#, "{}", r#"{"id":""}"#, "<html>"] {
        assert_eq!(judged(200, &[], body), "unknown", "{body}");
    }
}

#[test]
fn what_may_pass_is_tried_later_when_mailgun_says() {
    let message = "Domain x is not allowed to send: limit exceeded, try again after 30 seconds";
    assert_eq!(fault(429, message), "later, in 30 s");
    assert_eq!(fault(429, "try again after 2 minutes"), "later, in 120 s");
    assert_eq!(fault(429, "try again after a while"), "later");
    assert_eq!(fault(429, "try again after 720 hours"), "later, in 86400 s");
    let reset = [("x-ratelimit-reset", "1398168002000")];
    assert_eq!(judged(429, &reset, ""), "later, in 2 s");
    for status in [429, 500, 502, 503, 504] {
        assert_eq!(fault(status, "m"), "later", "{status}");
    }
}

#[test]
fn an_account_to_be_paid_for_is_waited_for_long() {
    assert_eq!(fault(402, "payment required"), "later, in 3600 s");
}

#[test]
fn what_mailgun_will_never_take_is_refused() {
    assert_eq!(
        fault(400, "'to' parameter is not a valid address"),
        "refused"
    );
    assert_eq!(fault(413, "too large"), "refused");
    let several = judge(&answer(400, &[], ""), 2);
    assert_eq!(kind(&several[0]), "refused together");
}

#[test]
fn a_key_or_a_domain_that_does_not_work_stops_the_sender() {
    assert_eq!(judged(401, &[], "\"Forbidden\""), "stop");
    assert_eq!(fault(403, "m"), "stop");
    assert_eq!(fault(404, "domain not found"), "stop");
    assert_eq!(judged(301, &[], ""), "stop");
}

#[test]
fn an_event_of_another_call_or_of_nobody_is_no_answer() {
    let event = |json: Value| serde_json::from_value::<Event>(json).unwrap();
    let of = |id: &str, variables: Value| {
        event(json!({
            "event": "accepted",
            "message": { "headers": { "message-id": id } },
            "user-variables": variables,
        }))
    };
    let ours = json!({ "delivery": "tag-1" });
    assert_eq!(
        tag_of(of("ref-1@d", ours.clone()), "ref-1@d"),
        Ok("tag-1".into())
    );
    assert!(tag_of(of("ref-2@d", ours), "ref-1@d").is_err());
    assert!(tag_of(of("ref-1@d", json!({})), "ref-1@d").is_err());
}
