//! Checks the configuration for settings that are unsuitable in production.
//!
//! An outbox is for trials, so with it no finding is worse than a warning.

use std::path::Path;

use super::{Doctor, Finding, Verdict};
use crate::config::{Config, Transport};

impl Doctor {
    /// Judges the whole configuration.
    pub(super) fn configuration(&self) -> Vec<Finding> {
        judge(&self.config, self.file.as_deref())
    }

    /// Judges the options that a brand can have of its own.
    pub(super) fn brand_configuration(&self) -> Vec<Finding> {
        let mut findings = sending(&self.config);
        findings.push(public_url(&self.config));
        findings
    }
}

fn judge(config: &Config, file: Option<&Path>) -> Vec<Finding> {
    let file = match file {
        Some(file) => file.display().to_string(),
        None => "no file; the defaults and the environment".to_owned(),
    };
    let mut findings = vec![Finding::ok("configuration", file)];
    for warning in &config.warnings {
        let found = format!("{} {}", warning.option, warning.what);
        findings.push(Finding::warning("configuration", found, &warning.advice));
    }
    findings.extend(sending(config));
    findings.push(public_url(config));
    findings.push(link_secret(config));
    if config.site.postal_address.is_none() {
        findings.push(Finding::warning(
            "site.postal_address",
            "is empty, and commercial mail must carry one (CAN-SPAM Act, section 5(a)(5))",
            "set it to the sender's postal address",
        ));
    }
    if config.site.feedback_id.is_none() {
        findings.push(Finding::warning(
            "site.feedback_id",
            "is empty, so Gmail does not tell runs apart in its spam reports",
            "set it to 5 to 15 letters that stay the same",
        ));
    }
    if config.server.key.is_none() {
        findings.push(Finding::warning(
            "server.key",
            "is empty, so `serve` makes up another one at each start",
            "set server.key or server.key_file",
        ));
    }
    findings
}

/// Judges how emails are sent, and whether the provider's reports can be verified.
fn sending(config: &Config) -> Vec<Finding> {
    let provider = match &config.mail.transport {
        Transport::Outbox => {
            return vec![Finding::warning(
                "mail.provider",
                "is outbox: mails become files, and nobody is sent any",
                "set it, and mail.from, once mails should reach people",
            )];
        }
        Transport::Smtp(_) => None,
        Transport::Api(api) => Some(api.provider),
    };
    let name = provider.map_or("SMTP", |provider| provider.title);
    let domain = config.mail.from.domain();
    let by = format!("mails leave by {name}, from an address at {domain}");
    let mut findings = vec![Finding::ok("mail.provider", by)];
    if let Some(provider) = provider
        && config.reporter().is_none()
    {
        findings.push(Finding::warning(
            provider.hook_key.options().0,
            format!("is empty, so bounces and complaints that {name} reports are not heard"),
            "set it, and let the provider post to /hooks (docs/operations.md, \"Bounces and complaints\")",
        ));
    }
    findings
}

fn public_url(config: &Config) -> Finding {
    let why = match &config.server.public_url {
        Some(url) if url.starts_with("https://") => return Finding::ok("server.public_url", url),
        Some(url) => format!(
            "{url} is plain http, for which no mailbox provider offers one-click unsubscribing"
        ),
        None => "is empty, so mails carry no link to unsubscribe".to_owned(),
    };
    let advice = "set it to the https address under which the world reaches `tidings serve`";
    Finding {
        verdict: match config.mail.transport {
            Transport::Outbox => Verdict::Warning,
            Transport::Smtp(_) | Transport::Api(_) => Verdict::Error,
        },
        ..Finding::warning("server.public_url", why, advice)
    }
}

fn link_secret(config: &Config) -> Finding {
    let found = match config.server.link_secret {
        Some(_) => "is set; it must be the same wherever `serve`, `worker` and `digest` run",
        None => "is empty, so the store keeps one that all processes share",
    };
    Finding::ok("server.link_secret", found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the findings for a finished configuration with these lines on top.
    fn findings(lines: &str) -> Vec<Finding> {
        let base = r#"
            mail.provider = "resend"
            mail.from = "digest@art.example"
            mail.key = "key"
            hooks.resend_secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
            server.public_url = "https://news.art.example"
            server.key = "0123456789abcdef0123456789abcdef"
            site.postal_address = "1 Main Street"
            site.feedback_id = "artdigest"
        "#;
        let kept = base.lines().filter(|line| {
            let option = line.split('=').next().unwrap_or_default().trim();
            option.is_empty() || !lines.contains(option)
        });
        let text: Vec<&str> = kept.chain(lines.lines()).collect();
        judge(&Config::parse(&text.join("\n")).unwrap(), None)
    }

    /// Returns the severity and the check of each finding that needs attention.
    fn problems(lines: &str) -> Vec<(Verdict, &'static str)> {
        let findings = findings(lines).into_iter();
        let problems = findings.filter(|finding| finding.verdict != Verdict::Ok);
        problems
            .map(|finding| {
                assert!(finding.advice.is_some(), "{finding:?}");
                (finding.verdict, finding.check)
            })
            .collect()
    }

    #[test]
    fn a_finished_configuration_needs_no_attention() {
        assert_eq!(problems(""), []);
    }

    #[test]
    fn missing_options_are_reported_and_emails_without_links_are_an_error() {
        let bare = r#"
            server.public_url = ""
            server.key = ""
            site.postal_address = ""
            site.feedback_id = ""
            hooks.resend_secret = ""
        "#;

        assert_eq!(
            problems(bare),
            [
                (Verdict::Warning, "hooks.resend_secret"),
                (Verdict::Error, "server.public_url"),
                (Verdict::Warning, "site.postal_address"),
                (Verdict::Warning, "site.feedback_id"),
                (Verdict::Warning, "server.key"),
            ]
        );
    }

    #[test]
    fn plain_http_is_an_error_with_a_provider_and_a_warning_with_the_outbox() {
        let plain = "server.public_url = \"http://127.0.0.1:8080\"\n";
        let outbox = format!("{plain}mail.provider = \"outbox\"\nmail.key = \"\"\n");

        assert_eq!(problems(plain), [(Verdict::Error, "server.public_url")]);
        assert_eq!(
            problems(&outbox),
            [
                (Verdict::Warning, "mail.provider"),
                (Verdict::Warning, "server.public_url")
            ]
        );
    }

    #[test]
    fn no_finding_reveals_an_address() {
        let text = format!("{:?}", findings(""));

        assert!(
            text.contains("art.example") && !text.contains("digest@"),
            "{text}"
        );
    }
}
