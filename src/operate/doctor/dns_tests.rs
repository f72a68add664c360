//! Tests how the records of the sender's domain are judged.

use super::*;
use crate::wire::diagnosis::Severity;

#[test]
fn an_spf_record_is_recognized_by_its_version() {
    let texts =
        ["v=spf1 -all", "V=SPF1 ~all", "v=spf10 -all", "google-site-verification=x", "v=spf1"];
    assert_eq!(spf_records(&texts.map(str::to_owned)), ["v=spf1 -all", "V=SPF1 ~all", "v=spf1"]);
}

#[test]
fn a_single_strict_record_is_fine() {
    for (text, expected) in [
        ("v=spf1 include:a.example -all", Severity::Ok),
        ("v=spf1 ip4:192.0.2.0/24 ~ALL", Severity::Ok),
        ("v=spf1 redirect=a.example", Severity::Ok),
        ("v=spf1 +all", Severity::Error),
        ("v=spf1 include:a.example all", Severity::Error),
        ("v=spf1 redirect=a.example +all", Severity::Error),
        ("v=spf1 ?all", Severity::Warning),
        ("v=spf1 ip4:192.0.2.1", Severity::Warning),
    ] {
        let found = judge_spf("art.example", &[text], true);
        assert_eq!(found.severity, expected, "{text}: {found:?}");
    }
}

#[test]
fn several_records_are_errors_even_if_bounces_go_elsewhere() {
    for (records, is_own, expected) in [
        (0, true, Severity::Error),
        (0, false, Severity::Ok),
        (2, true, Severity::Error),
        (2, false, Severity::Error),
    ] {
        let found = judge_spf("art.example", &vec!["v=spf1 -all"; records], is_own);
        assert_eq!(found.severity, expected, "{found:?}");
    }
}

fn encoded(bytes: usize) -> String {
    BASE64_STANDARD.encode(vec![7; bytes])
}

#[test]
fn a_published_key_must_be_readable_and_long_enough() {
    for (text, expected) in [
        (format!("v=DKIM1; k=rsa; p={}", encoded(294)), Severity::Ok),
        (format!("p={}", encoded(162)), Severity::Ok),
        (format!("v=DKIM1; k=ed25519; p={}", encoded(32)), Severity::Ok),
        (format!("v=DKIM1; p={}", encoded(94)), Severity::Error),
        ("v=DKIM1; p=".to_owned(), Severity::Error),
        ("v=DKIM1; p=?".to_owned(), Severity::Error),
        ("v=DKIM2; p=AAAA".to_owned(), Severity::Error),
        ("something else".to_owned(), Severity::Error),
    ] {
        let found = judge_keys("k1._domainkey.art.example", std::slice::from_ref(&text));
        assert_eq!(found.severity, expected, "{text}: {found:?}");
    }
}

#[test]
fn no_key_and_several_keys_are_errors() {
    let key = || format!("v=DKIM1; p={}", encoded(294));

    assert_eq!(judge_keys("x", &[]).severity, Severity::Error);
    assert_eq!(judge_keys("x", &[key(), key()]).severity, Severity::Error);
    assert_eq!(judge_keys("x", &[key(), "a remark".into()]).severity, Severity::Ok);
}

#[test]
fn the_lookup_walks_from_the_sender_domain_to_its_parents() {
    assert_eq!(
        dmarc_domains("news.mail.art.example"),
        ["news.mail.art.example", "mail.art.example", "art.example"]
    );
    assert_eq!(dmarc_domains("art.example"), ["art.example"]);
    assert_eq!(dmarc_domains("localhost"), ["localhost"]);
}

#[test]
fn a_dmarc_record_is_recognized_by_its_version() {
    let texts = ["v=DMARC1; p=none", "v = DMARC1;p=none", "v=DMARC1", "v=dmarc1; p=none", "p=none"];
    assert_eq!(
        dmarc_records(&texts.map(str::to_owned)),
        ["v=DMARC1; p=none", "v = DMARC1;p=none", "v=DMARC1"]
    );
}

#[test]
fn a_policy_of_none_causes_a_warning() {
    for (owner, record, expected) in [
        ("m.art.example", "v=DMARC1; p=reject", Severity::Ok),
        ("m.art.example", "v=DMARC1; p=Quarantine; rua=mailto:x@y.example", Severity::Ok),
        ("m.art.example", "v=DMARC1; p=none", Severity::Warning),
        ("m.art.example", "v=DMARC1; p=reject; sp=none", Severity::Ok),
        ("art.example", "v=DMARC1; p=reject; sp=none", Severity::Warning),
        ("art.example", "v=DMARC1; p=none; sp=reject", Severity::Ok),
        ("m.art.example", "v=DMARC1; rua=mailto:x@y.example", Severity::Error),
        ("m.art.example", "v=DMARC1; p=maybe", Severity::Error),
    ] {
        let found = judge_dmarc("m.art.example", Some((owner, &[record])));
        assert_eq!(found.severity, expected, "{record}: {found:?}");
    }
}

#[test]
fn no_record_and_several_records_are_errors() {
    let two = ["v=DMARC1; p=reject", "v=DMARC1; p=none"];

    assert_eq!(judge_dmarc("art.example", None).severity, Severity::Error);
    assert_eq!(judge_dmarc("art.example", Some(("art.example", &two))).severity, Severity::Error);
}
