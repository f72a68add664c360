//! Tests how Postmark's webhook records are read, and the login of the webhook.
//! `tests/all/api/hooks` tests forged and repeated reports of every provider over HTTP.

use super::*;

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_398_124_800, 0).unwrap()
}

const LOGIN: &[u8] = b"hook:a password";

/// Verifies and reads a body with the right login.
fn postmark(body: serde_json::Value) -> Result<VerifiedReports, HookRejection> {
    let body = body.to_string();
    // "hook:a password"
    let header = |name: &str| (name == "authorization").then_some("Basic aG9vazphIHBhc3N3b3Jk");
    let posted = HookRequest {
        key: LOGIN,
        now: now(),
        header: &header,
        body: body.as_bytes(),
        certificate: None,
    };
    read_reports(&posted)
}

#[test]
fn postmark_bounce_types_map_to_report_kinds() {
    let expected = [
        ("HardBounce", true, Some(ReportKind::Bounced)),
        ("BadEmailAddress", true, Some(ReportKind::Bounced)),
        ("SoftBounce", false, Some(ReportKind::Delayed)),
        ("Transient", false, Some(ReportKind::Delayed)),
        ("DnsError", false, Some(ReportKind::Delayed)),
        ("Unknown", true, Some(ReportKind::Bounced)),
        ("SpamComplaint", true, Some(ReportKind::Complained)),
        ("Unsubscribe", false, Some(ReportKind::Unsubscribed)),
        ("AutoResponder", false, None),
        ("AddressChange", false, None),
    ];
    for (kind, inactive, news) in expected {
        let body = serde_json::json!({
            "RecordType": "Bounce", "ID": 42, "Type": kind, "TypeCode": 1, "Inactive": inactive,
            "MessageID": "m-1", "Email": "ada@example.org", "BouncedAt": "2014-04-21T22:00:00Z",
            "Details": "smtp;550 <ada@example.org>", "Metadata": {"delivery": "no tag of ours"},
        });
        let verified = postmark(body).unwrap();
        let report = verified.reports.first();
        assert_eq!(report.map(|report| report.kind), news, "{kind}");
        assert_eq!(verified.ignored_count, u64::from(news.is_none()));
        if let Some(report) = report {
            assert_eq!(report.id, "Bounce 42");
            assert_eq!(
                (report.tag.as_ref(), &report.provider_ids[..]),
                (None, &["m-1".to_owned()][..])
            );
            assert!(!format!("{report:?}").contains("ada@"), "{report:?}");
        }
    }
}

#[test]
fn postmark_records_other_than_bounces_are_read() {
    let tag = crate::domain::DeliveryId::stored("digest:ada:weekly:2014-W17").tag();
    let record = |fields: serde_json::Value| {
        let mut body = serde_json::json!({
            "MessageID": "m-1", "Recipient": "ada@example.org", "Metadata": {"delivery": tag.as_str()},
        });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let mut verified = postmark(body).unwrap();
        assert_eq!(verified.reports.len() as u64 + verified.ignored_count, 1);
        verified.reports.pop()
    };
    let delivered = record(serde_json::json!({
        "RecordType": "Delivery", "DeliveredAt": "2014-04-21T22:00:00Z", "Details": "OK",
    }));
    let delivered = delivered.unwrap();
    assert_eq!((delivered.kind, delivered.tag), (ReportKind::Delivered, Some(tag.clone())));
    assert_eq!(delivered.at.to_rfc3339(), "2014-04-21T22:00:00+00:00");

    let changed = |stops: bool, why: &str| {
        record(serde_json::json!({
            "RecordType": "SubscriptionChange", "ChangedAt": "2034-04-21T22:00:00Z",
            "SuppressSending": stops, "SuppressionReason": why,
        }))
    };
    let stopped = changed(true, "ManualSuppression").unwrap();
    assert_eq!(stopped.kind, ReportKind::Unsubscribed);
    assert_eq!(stopped.at, now(), "nothing happened later than now");
    assert_eq!(changed(true, "HardBounce").unwrap().kind, ReportKind::Bounced);
    assert_eq!(changed(true, "SpamComplaint").unwrap().kind, ReportKind::Complained);
    assert_eq!(changed(false, ""), None);
    assert_eq!(record(serde_json::json!({"RecordType": "Open"})), None);
}

#[test]
fn the_postmark_login_is_compared_in_full() {
    for authorization in [
        "",
        "Basic",
        "Basic ",
        "Basic aG9vazphIHBhc3N3b3I=",
        "Basic aG9vazphIHBhc3N3b3JkIQ==",
        "Bearer aG9vazphIHBhc3N3b3Jk",
        "Basic ???",
        "Bäsic aG9v",
    ] {
        let header = |name: &str| (name == "authorization").then_some(authorization);
        let posted = HookRequest {
            key: LOGIN,
            now: now(),
            header: &header,
            body: b"{\"RecordType\": \"Delivery\"}",
            certificate: None,
        };
        let refused = read_reports(&posted);
        assert!(matches!(refused, Err(HookRejection::Unverified(_))), "{authorization}");
    }
}
