//! Checks the DNS records of the sender's domain: SPF (RFC 7208), DKIM (RFC 6376) and DMARC (RFC
//! 7489).
//!
//! The methods look records up, and pure functions judge them. If a name server does not answer,
//! the check is `unchecked`. Only the presence of a DKIM key is checked, because the provider or
//! server has the private key.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use futures::future::join_all;

use super::{Doctor, Finding, SKIPPED};
use crate::config::Transport;
use crate::operate::dns_and_web::DnsResolver;

const SPF: &str = "SPF";
const DKIM: &str = "DKIM";
const DMARC: &str = "DMARC";
/// The bytes of RSA keys with 1,024 bits, the minimum of RFC 8301, section 3.2, and with 2,048
/// bits.
const MIN_KEY_BYTES: usize = 128;
const GOOD_KEY_BYTES: usize = 256;

/// The look-ups.
impl Doctor {
    pub(super) async fn spf(&self) -> Finding {
        let from = self.config.mail.sender.from.domain();
        // The record of the domain that receives bounces counts.
        let bounce_domain = match &self.config.mail.transport {
            Transport::Outbox => None,
            Transport::Smtp(_) => Some(from),
            Transport::Api(api) => {
                let option = api.provider.bounce_domain_option;
                option.and_then(|option| Some(api.options.get(option)?.as_str()))
            }
        };
        let domain = bounce_domain.unwrap_or(from);
        let look_up = async |resolver: &DnsResolver| {
            let texts = resolver.texts(domain).await?;
            Ok(judge_spf(domain, &spf_records(&texts), bounce_domain.is_some()))
        };
        self.look_up(look_up).await.for_check(SPF)
    }

    pub(super) async fn dmarc(&self) -> Finding {
        let domain = self.config.mail.sender.from.domain();
        let look_up = async |resolver: &DnsResolver| {
            for parent in dmarc_domains(domain) {
                let texts = resolver.texts(&format!("_dmarc.{parent}")).await?;
                let records = dmarc_records(&texts);
                if !records.is_empty() {
                    return Ok(judge_dmarc(domain, Some((&parent, &records))));
                }
            }
            Ok(judge_dmarc(domain, None))
        };
        self.look_up(look_up).await.for_check(DMARC)
    }

    /// Checks the keys at the names that the provider reported, or else the configured key.
    pub(super) async fn dkim(&self, reported: &[String]) -> Vec<Finding> {
        let domain = self.config.mail.sender.from.domain();
        let selector = self.config.mail.dkim_selector.iter();
        let configured: Vec<String> =
            selector.map(|selector| format!("{selector}._domainkey.{domain}")).collect();
        let names: &[String] = if reported.is_empty() { &configured } else { reported };
        if names.is_empty() {
            let unknown =
                "the provider does not report its DKIM key; set mail.dkim_selector to check one";
            let why = self.unqueried().unwrap_or(unknown);
            return vec![Finding::unchecked(why).for_check(DKIM)];
        }
        let findings = names.iter().map(async |name| {
            let look_up =
                async |resolver: &DnsResolver| Ok(judge_keys(name, &resolver.texts(name).await?));
            self.look_up(look_up).await.for_check(DKIM)
        });
        join_all(findings).await
    }

    /// Returns why the DNS is not queried, if it is not.
    fn unqueried(&self) -> Option<&'static str> {
        match self.config.mail.transport {
            _ if self.options.offline => Some(SKIPPED),
            Transport::Outbox => Some("nothing is sent: emails become files"),
            Transport::Smtp(_) | Transport::Api(_) => None,
        }
    }

    async fn look_up<'a, F>(&'a self, look_up: impl FnOnce(&'a DnsResolver) -> F) -> Finding
    where
        F: Future<Output = Result<Finding, String>>,
    {
        if let Some(why) = self.unqueried() {
            return Finding::unchecked(why);
        }
        let finding = match &self.resolver {
            Ok(resolver) => self.within(look_up(resolver), Err).await,
            Err(why) => Err(why.clone()),
        };
        finding.unwrap_or_else(Finding::unchecked)
    }
}

/// Returns the SPF records among the texts of a name.
fn spf_records(texts: &[String]) -> Vec<&str> {
    let version = |text: &str| text.split(' ').next().map(str::to_ascii_lowercase);
    let is_spf = |text: &&str| version(text).as_deref() == Some("v=spf1");
    texts.iter().map(|text| text.trim()).filter(is_spf).collect()
}

/// Judges the SPF records of a domain. `is_own` is whether bounces go to that domain, not to one of
/// the provider's.
fn judge_spf(domain: &str, records: &[&str], is_own: bool) -> Finding {
    let text = match records {
        [text] => *text,
        [] if is_own => {
            return Finding::error(
                format!("{domain} has no record; Gmail and Yahoo accept no bulk email without one"),
                "publish the record that the provider names, and no other that begins with v=spf1",
            );
        }
        [] => {
            let none = "has no record, and needs none: bounces go to the provider's own domain";
            return Finding::ok(format!("{domain} {none}"));
        }
        many => {
            let (count, why) = (many.len(), "so none counts (RFC 7208, section 4.5)");
            let found = format!("{domain} has {count} records, {why}");
            return Finding::error(found, "make them one");
        }
    };
    let record = text.to_ascii_lowercase();
    let mut terms = record.split_whitespace().skip(1);
    let is_for_others = |term: &&str| term.trim_start_matches(['+', '-', '~', '?']) == "all";
    // Without `all`, a redirect says what applies to others (section 6.1).
    let all = terms.clone().find(is_for_others);
    let is_redirected = terms.any(|term| term.starts_with("redirect="));
    let found = |what: &str| format!("{domain} {what}: {text}");
    let advice = "end it with -all or ~all";
    match all {
        Some("all" | "+all") => Finding::error(found("allows all senders"), advice),
        Some("?all") => Finding::warning(found("has no policy for other senders"), advice),
        None if !is_redirected => Finding::warning(found("has no end"), advice),
        _ => Finding::ok(format!("{domain}: {text}")),
    }
}

/// Returns the value of a tag in a DKIM or DMARC record.
fn tag<'a>(record: &'a str, wanted: &str) -> Option<&'a str> {
    let mut tags = record.split(';').filter_map(|tag| tag.split_once('='));
    tags.find(|(name, _)| name.trim() == wanted).map(|(_, value)| value.trim())
}

/// Judges the texts under the name of a DKIM key.
fn judge_keys(name: &str, texts: &[String]) -> Finding {
    let publish = "publish the key there that the provider names";
    // A key record is a list of tags. The tag `p` is the key (section 3.6.1).
    let is_dkim = |text: &&String| tag(text, "v").is_none_or(|version| version == "DKIM1");
    let mut keys = texts.iter().filter(is_dkim).filter_map(|text| Some((text, tag(text, "p")?)));
    let (record, encoded) = match (keys.next(), keys.next()) {
        (Some(key), None) => key,
        (None, _) => {
            let found = format!("there is no key at {name}, so receivers cannot verify emails");
            return Finding::error(found, publish);
        }
        (Some(_), Some(_)) => {
            let found = format!("there are several keys at {name}, so none is sure to count");
            return Finding::error(found, "leave one of them");
        }
    };
    let is_rsa = tag(record, "k").is_none_or(|kind| kind == "rsa");
    let unspaced: String = encoded.split_whitespace().collect();
    let bytes = BASE64_STANDARD.decode(unspaced).ok().map(|key| key.len());
    match (is_rsa, bytes) {
        (_, None) => Finding::error(format!("the key at {name} is not Base64"), publish),
        (_, Some(0)) => Finding::error(format!("the key at {name} is withdrawn"), publish),
        (true, Some(bytes)) if bytes < MIN_KEY_BYTES => Finding::error(
            format!("the key at {name} has less than 1,024 bits, and does not count"),
            "let the provider make one of 2,048 bits",
        ),
        (true, Some(bytes)) if bytes < GOOD_KEY_BYTES => {
            Finding::ok(format!("there is a key at {name}; 2,048 bits would be better"))
        }
        _ => Finding::ok(format!("there is a key at {name}")),
    }
}

/// Returns the domains that may have a DMARC record for this one: itself and its parents with at
/// least two labels. The first record applies, so no list of public suffixes is needed.
fn dmarc_domains(domain: &str) -> Vec<String> {
    let labels: Vec<&str> = domain.split('.').collect();
    let last = labels.len().saturating_sub(2);
    (0..=last).map(|from| labels[from..].join(".")).collect()
}

/// Returns the DMARC records among the texts of a name.
fn dmarc_records(texts: &[String]) -> Vec<&str> {
    let version = |text: &str| text.split(';').next().map(|tag| tag.replace(' ', ""));
    let is_dmarc = |text: &&str| version(text).as_deref() == Some("v=DMARC1");
    texts.iter().map(|text| text.trim()).filter(is_dmarc).collect()
}

/// Judges the DMARC records of the first domain that has any. `domain` is the sender's.
fn judge_dmarc(domain: &str, found: Option<(&str, &[&str])>) -> Finding {
    let Some((owner, records)) = found else {
        return Finding::error(
            format!("{domain} has no record; Gmail and Yahoo accept no bulk email without one"),
            format!(
                "publish \"v=DMARC1; p=none; rua=mailto:…\" at _dmarc.{domain}, read its reports, then tighten it"
            ),
        );
    };
    let [record] = records else {
        let (count, why) = (records.len(), "so none counts (RFC 7489, section 6.6.3)");
        let found = format!("_dmarc.{owner} has {count} records, {why}");
        return Finding::error(found, "leave one of them");
    };
    // A parent's record may have another policy for subdomains.
    let of_subdomains = (owner != domain).then(|| tag(record, "sp")).flatten();
    let policy = of_subdomains.or(tag(record, "p")).map(str::to_ascii_lowercase);
    match policy.as_deref() {
        Some("reject" | "quarantine") => Finding::ok(format!("_dmarc.{owner}: {record}")),
        Some("none") => Finding::warning(
            format!("_dmarc.{owner} lets others send as {domain}: {record}"),
            "once its reports show that all of yours pass, make it p=quarantine or p=reject",
        ),
        _ => Finding::error(
            format!("_dmarc.{owner} has no policy that can be read: {record}"),
            "give it p=none, p=quarantine or p=reject",
        ),
    }
}

#[cfg(test)]
#[path = "dns_tests.rs"]
mod tests;
