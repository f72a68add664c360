//! Checks SPF (RFC 7208), which lists the hosts that may send for a domain.
//!
//! There must be exactly one record. It must not permit everyone, and it may need at most ten DNS
//! look-ups (sections 4.5 and 4.6.4). These are pure functions; [`super::sender`] does the
//! look-ups.

use super::Finding;

pub(super) const SPF: &str = "SPF";
/// The most look-ups of a record, with those that it includes.
pub(super) const MOST_LOOKUPS: usize = 10;

/// The parts of a record that are checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Record {
    /// The qualifier of `all`, for all other senders, if there is one.
    pub all: Option<char>,
    /// The number of its own terms that need a look-up.
    pub lookups: usize,
    /// The domains whose records it includes.
    pub brings: Vec<String>,
}

/// Returns the SPF records among the texts of a name.
pub(super) fn records(texts: &[String]) -> Vec<&str> {
    let is_record = |text: &&str| {
        let version = text.split(' ').next().unwrap_or_default();
        version.eq_ignore_ascii_case("v=spf1")
    };
    texts
        .iter()
        .map(|text| text.trim())
        .filter(is_record)
        .collect()
}

pub(super) fn read(record: &str) -> Record {
    let (mut read, mut redirect) = (Record::default(), None);
    for term in record.split_whitespace().skip(1) {
        let sign = term.chars().next().filter(|c| "+-~?".contains(*c));
        let term = term
            .trim_start_matches(['+', '-', '~', '?'])
            .to_ascii_lowercase();
        let name = term.split([':', '=', '/']).next().unwrap_or_default();
        let value = term[name.len()..].trim_start_matches([':', '=']);
        match name {
            "all" => read.all = read.all.or(Some(sign.unwrap_or('+'))),
            "include" => {
                read.lookups += 1;
                read.brings.push(value.to_owned());
            }
            "a" | "mx" | "ptr" | "exists" => read.lookups += 1,
            "redirect" => redirect = Some(value.to_owned()),
            _ => {}
        }
    }
    // With `all`, a redirect is ignored (section 6.1).
    if let (None, Some(redirect)) = (read.all, redirect) {
        read.lookups += 1;
        read.brings.push(redirect);
    }
    // Macros depend on the sender of an email, so they cannot be followed here.
    read.brings.retain(|domain| !domain.contains('%'));
    read
}

/// The total cost of a record and those that it includes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cost {
    Lookups(usize),
    /// A record includes this domain, which does not have exactly one record.
    Broken(String),
}

/// Where bounces go. Their domain's record counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bounces {
    /// To the checked domain.
    Here,
    /// To the provider's own domain.
    Elsewhere,
}

/// The finding for a domain without exactly one record.
pub(super) fn judge_absent(domain: &str, records: usize, bounces: Bounces) -> Finding {
    let advice = "publish the record that the provider names, and no other that begins with v=spf1";
    match (records, bounces) {
        (0, Bounces::Here) => {
            let found =
                format!("{domain} has no record; Gmail and Yahoo take no bulk mail without one");
            Finding::error(SPF, found, advice)
        }
        (0, Bounces::Elsewhere) => Finding::ok(
            SPF,
            format!(
                "{domain} has no record, and needs none: bounces go to the provider's own domain"
            ),
        ),
        (many, _) => {
            let found =
                format!("{domain} has {many} records, so none counts (RFC 7208, section 4.5)");
            Finding::error(SPF, found, "make them one")
        }
    }
}

/// The finding for a domain's only record.
pub(super) fn judge(domain: &str, text: &str, record: &Record, cost: &Cost) -> Finding {
    let lookups = match cost {
        Cost::Broken(brought) => {
            return Finding::error(
                SPF,
                format!(
                    "{domain} brings in {brought}, which has not exactly one record (RFC 7208, section 5.2)"
                ),
                format!("take {brought} out of the record, or have its owner fix it"),
            );
        }
        Cost::Lookups(lookups) => *lookups,
    };
    if lookups > MOST_LOOKUPS {
        return Finding::error(
            SPF,
            format!(
                "{domain} costs more than {MOST_LOOKUPS} look-ups, so it does not count (RFC 7208, section 4.6.4)"
            ),
            "take out what no longer sends",
        );
    }
    match record.all {
        Some('+') => Finding::error(
            SPF,
            format!("{domain} lets everybody send: {text}"),
            "end it with -all or ~all",
        ),
        Some('?') => Finding::warning(
            SPF,
            format!("{domain} says nothing of others: {text}"),
            "end it with -all or ~all",
        ),
        None if record.brings.is_empty() => Finding::warning(
            SPF,
            format!("{domain} has no end: {text}"),
            "end it with -all or ~all",
        ),
        _ => Finding::ok(
            SPF,
            format!("{domain}: {text} ({lookups} of {MOST_LOOKUPS} look-ups)"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_record_is_recognized_by_its_version() {
        let texts = [
            "v=spf1 -all",
            "V=SPF1 ~all",
            "v=spf10 -all",
            "google-site-verification=x",
            "v=spf1",
        ];
        assert_eq!(
            records(&texts.map(str::to_owned)),
            ["v=spf1 -all", "V=SPF1 ~all", "v=spf1"]
        );
    }

    #[test]
    fn terms_that_need_a_dns_lookup_are_counted() {
        for (text, all, lookups, brings) in [
            ("v=spf1 -all", Some('-'), 0, &[][..]),
            (
                "v=spf1 ip4:192.0.2.0/24 ip6:2001:db8::/32 ~all",
                Some('~'),
                0,
                &[],
            ),
            (
                "v=spf1 a mx/24 a:x.example ptr exists:%{i}.x.example ?all",
                Some('?'),
                5,
                &[],
            ),
            (
                "v=spf1 include:A.example +include:b.example all",
                Some('+'),
                2,
                &["a.example", "b.example"],
            ),
            ("v=spf1 redirect=c.example", None, 1, &["c.example"]),
            ("v=spf1 redirect=c.example -all", Some('-'), 0, &[]),
            ("v=spf1 include:%{d}.x.example -all", Some('-'), 1, &[]),
        ] {
            let expected = Record {
                all,
                lookups,
                brings: brings.iter().map(|domain| (*domain).to_owned()).collect(),
            };
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn a_single_strict_record_with_few_lookups_is_fine() {
        for (text, cost, expected) in [
            (
                "v=spf1 include:a.example -all",
                Cost::Lookups(10),
                Verdict::Ok,
            ),
            ("v=spf1 redirect=a.example", Cost::Lookups(1), Verdict::Ok),
            (
                "v=spf1 include:a.example -all",
                Cost::Lookups(11),
                Verdict::Error,
            ),
            (
                "v=spf1 include:a.example -all",
                Cost::Broken("a.example".into()),
                Verdict::Error,
            ),
            ("v=spf1 +all", Cost::Lookups(0), Verdict::Error),
            ("v=spf1 ?all", Cost::Lookups(0), Verdict::Warning),
            ("v=spf1 ip4:192.0.2.1", Cost::Lookups(0), Verdict::Warning),
        ] {
            let found = judge("art.example", text, &read(text), &cost);
            assert_eq!(found.verdict, expected, "{text}: {found:?}");
        }
    }

    #[test]
    fn several_records_are_errors_even_if_bounces_go_elsewhere() {
        for (records, bounces, expected) in [
            (0, Bounces::Here, Verdict::Error),
            (0, Bounces::Elsewhere, Verdict::Ok),
            (2, Bounces::Here, Verdict::Error),
            (2, Bounces::Elsewhere, Verdict::Error),
        ] {
            let found = judge_absent("art.example", records, bounces);
            assert_eq!(found.verdict, expected, "{found:?}");
        }
    }
}
