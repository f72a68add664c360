//! Checks DMARC (RFC 7489): the policy for emails that fail both SPF and DKIM.
//!
//! The record of the sender's domain applies, or else the first one of a parent domain. So no list
//! of public suffixes is needed. These are pure functions; [`super::sender`] does the look-ups.

use super::Finding;

pub(super) const DMARC: &str = "DMARC";

/// Returns the domains that may have a record for this one: itself and its parents with at least
/// two labels.
pub(super) fn places(domain: &str) -> Vec<String> {
    let labels: Vec<&str> = domain.split('.').collect();
    let last = labels.len().saturating_sub(2);
    (0..=last).map(|from| labels[from..].join(".")).collect()
}

/// Returns the DMARC records among the texts of a name.
pub(super) fn records(texts: &[String]) -> Vec<&str> {
    let is_record = |text: &&str| {
        let version = text.split(';').next().unwrap_or_default();
        version.replace(' ', "") == "v=DMARC1"
    };
    texts
        .iter()
        .map(|text| text.trim())
        .filter(is_record)
        .collect()
}

/// Checks the records of the first domain that has any. `domain` is the sender's.
pub(super) fn judge(domain: &str, found: Option<(&str, &[&str])>) -> Finding {
    let Some((place, records)) = found else {
        return Finding::error(
            DMARC,
            format!("{domain} has no record; Gmail and Yahoo take no bulk mail without one"),
            format!(
                "publish \"v=DMARC1; p=none; rua=mailto:…\" at _dmarc.{domain}, read its reports, then tighten it"
            ),
        );
    };
    let [record] = records else {
        return Finding::error(
            DMARC,
            format!(
                "_dmarc.{place} has {} records, so none counts (RFC 7489, section 6.6.3)",
                records.len()
            ),
            "leave one of them",
        );
    };
    let tag = |wanted: &str| {
        let tags = record.split(';').filter_map(|tag| tag.split_once('='));
        let mut tags = tags.map(|(name, value)| (name.trim(), value.trim().to_ascii_lowercase()));
        tags.find(|(name, _)| *name == wanted)
            .map(|(_, value)| value)
    };
    // A parent's record may have another policy for subdomains.
    let below = (place != domain).then(|| tag("sp")).flatten();
    match below.or_else(|| tag("p")).as_deref() {
        Some("reject" | "quarantine") => Finding::ok(DMARC, format!("_dmarc.{place}: {record}")),
        Some("none") => Finding::warning(
            DMARC,
            format!("_dmarc.{place} lets others send as {domain}: {record}"),
            "once its reports show that all of yours pass, make it p=quarantine or p=reject",
        ),
        _ => Finding::error(
            DMARC,
            format!("_dmarc.{place} has no policy that can be read: {record}"),
            "give it p=none, p=quarantine or p=reject",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn the_lookup_walks_from_the_sender_domain_to_its_parents() {
        assert_eq!(
            places("news.mail.art.example"),
            ["news.mail.art.example", "mail.art.example", "art.example"]
        );
        assert_eq!(places("art.example"), ["art.example"]);
        assert_eq!(places("localhost"), ["localhost"]);
    }

    #[test]
    fn a_record_is_recognized_by_its_version() {
        let texts = [
            "v=DMARC1; p=none",
            "v = DMARC1;p=none",
            "v=DMARC1",
            "v=dmarc1; p=none",
            "p=none",
        ];
        assert_eq!(
            records(&texts.map(str::to_owned)),
            ["v=DMARC1; p=none", "v = DMARC1;p=none", "v=DMARC1"]
        );
    }

    #[test]
    fn a_policy_of_none_causes_a_warning() {
        for (place, record, expected) in [
            ("m.art.example", "v=DMARC1; p=reject", Verdict::Ok),
            (
                "m.art.example",
                "v=DMARC1; p=Quarantine; rua=mailto:x@y.example",
                Verdict::Ok,
            ),
            ("m.art.example", "v=DMARC1; p=none", Verdict::Warning),
            ("m.art.example", "v=DMARC1; p=reject; sp=none", Verdict::Ok),
            (
                "art.example",
                "v=DMARC1; p=reject; sp=none",
                Verdict::Warning,
            ),
            ("art.example", "v=DMARC1; p=none; sp=reject", Verdict::Ok),
            (
                "m.art.example",
                "v=DMARC1; rua=mailto:x@y.example",
                Verdict::Error,
            ),
            ("m.art.example", "v=DMARC1; p=maybe", Verdict::Error),
        ] {
            let found = judge("m.art.example", Some((place, &[record])));
            assert_eq!(found.verdict, expected, "{record}: {found:?}");
        }
    }

    #[test]
    fn no_record_and_several_records_are_errors() {
        let two = ["v=DMARC1; p=reject", "v=DMARC1; p=none"];

        assert_eq!(judge("art.example", None).verdict, Verdict::Error);
        assert_eq!(
            judge("art.example", Some(("art.example", &two))).verdict,
            Verdict::Error
        );
    }
}
