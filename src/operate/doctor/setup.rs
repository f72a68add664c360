//! Checks the configuration for settings that are unsuitable in production.
//!
//! An outbox is for trials, so with it no finding is worse than a warning.

use std::path::PathBuf;

use super::{Finding, Verdict};
use crate::domain::{Address, EventType};
use crate::render::Stray;

/// The parts of the configuration that are checked. It contains no secret.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The configuration file that was read.
    pub file: Option<PathBuf>,
    /// How emails are sent (`mail.provider`).
    pub departure: Departure,
    /// The sender's address (`mail.from`).
    pub from: Address,
    /// The URL of the public pages; `None` if unset, and then emails have no links.
    pub public_url: Option<String>,
    /// Whether `server.key` is set. Otherwise `serve` generates one at each start.
    pub has_server_key: bool,
    /// Whether `server.link_secret` is set. Otherwise the store has a generated one.
    pub has_link_secret: bool,
    /// Whether emails contain the sender's postal address (`site.postal_address`).
    pub has_postal_address: bool,
    /// Whether emails have a `Feedback-ID` header (`site.feedback_id`).
    pub has_feedback_id: bool,
    /// The configured DKIM selector, for providers that do not report theirs.
    pub dkim_selector: Option<String>,
    /// The DNS name and the expected record of our own DKIM key, if this instance signs emails.
    pub dkim: Option<(String, String)>,
    /// The most items in an email.
    pub items: usize,
    /// Files in the templates folder with names that no template has.
    pub strays: Vec<Stray>,
    /// The types with configured wording, and whether it includes a phrase.
    pub worded: Vec<(EventType, bool)>,
    /// Files and folders that only their owner should be able to access. They may be missing.
    pub files: Vec<PathBuf>,
    /// Files with secrets, which a service may read through its group.
    pub secret_files: Vec<PathBuf>,
    /// Valid settings that are probably mistakes, each with advice.
    pub doubts: Vec<(String, String)>,
}

/// How emails are sent.
#[derive(Debug, Clone)]
pub enum Departure {
    /// As files in a folder.
    Outbox,
    /// Through the API of a provider or a relay.
    Provider {
        /// The provider's name as shown to people.
        name: &'static str,
        /// The domain for bounces, if it is the sender's and not the provider's own.
        bounces: Option<String>,
        /// Whether the provider's reports can be verified.
        hook: Hook,
    },
}

/// Whether the provider's reports of bounces and complaints can be verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// The key that verifies them is configured.
    Verified,
    /// This option, which sets the key, is empty.
    Lacks(&'static str),
    /// The provider posts no reports.
    None,
}

impl Setup {
    pub(super) fn judge(&self) -> Vec<Finding> {
        let file = match &self.file {
            Some(file) => file.display().to_string(),
            None => "no file; the defaults and the environment".to_owned(),
        };
        let mut findings = vec![Finding::ok("configuration", file)];
        for (found, advice) in &self.doubts {
            findings.push(Finding::warning("configuration", found, advice));
        }
        findings.extend(self.sending());
        findings.extend(self.links());
        if !self.has_postal_address {
            findings.push(Finding::warning(
                "site.postal_address",
                "is empty, and commercial mail must carry one (CAN-SPAM Act, section 5(a)(5))",
                "set it to the sender's postal address",
            ));
        }
        if !self.has_feedback_id {
            findings.push(Finding::warning(
                "site.feedback_id",
                "is empty, so Gmail does not tell runs apart in its spam reports",
                "set it to 5 to 15 letters that stay the same",
            ));
        }
        if !self.has_server_key {
            findings.push(Finding::warning(
                "server.key",
                "is empty, so `serve` makes up another one at each start",
                "set server.key or server.key_file",
            ));
        }
        findings
    }

    /// Checks the settings that a brand can have of its own.
    pub(super) fn judge_brand(&self) -> Vec<Finding> {
        let mut findings = self.sending();
        findings.extend(self.links().into_iter().take(1));
        findings
    }

    fn sending(&self) -> Vec<Finding> {
        match &self.departure {
            Departure::Outbox => vec![Finding::warning(
                "mail.provider",
                "is outbox: mails become files, and nobody is sent any",
                "set it, and mail.from, once mails should reach people",
            )],
            Departure::Provider { name, hook, .. } => {
                let by = format!(
                    "mails leave by {name}, from an address at {}",
                    self.from.domain()
                );
                let mut findings = vec![Finding::ok("mail.provider", by)];
                if let Hook::Lacks(option) = hook {
                    findings.push(Finding::warning(
                        option,
                        format!("is empty, so bounces and complaints that {name} reports are not heard"),
                        "set it, and let the provider post to /hooks (docs/operations.md, \"Bounces and complaints\")",
                    ));
                }
                findings
            }
        }
    }

    fn links(&self) -> Vec<Finding> {
        let worst = match self.departure {
            Departure::Outbox => Verdict::Warning,
            Departure::Provider { .. } => Verdict::Error,
        };
        let public = match &self.public_url {
            Some(url) if url.starts_with("https://") => Finding::ok("server.public_url", url),
            Some(url) => Finding {
                verdict: worst,
                ..Finding::warning(
                    "server.public_url",
                    format!(
                        "{url} is plain http, for which no mailbox provider offers one-click unsubscribing"
                    ),
                    "set it to the https address under which the world reaches `tidings serve`",
                )
            },
            None => Finding {
                verdict: worst,
                ..Finding::warning(
                    "server.public_url",
                    "is empty, so mails carry no link to unsubscribe",
                    "set it to the https address under which the world reaches `tidings serve`",
                )
            },
        };
        let secret = match self.has_link_secret {
            true => "is set; it must be the same wherever `serve`, `worker` and `digest` run",
            false => "is empty, so the store keeps one that all processes share",
        };
        vec![public, Finding::ok("server.link_secret", secret)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Setup {
        Setup {
            file: Some("tidings.toml".into()),
            departure: Departure::Provider {
                name: "Resend",
                bounces: None,
                hook: Hook::Verified,
            },
            from: Address::new("digest@art.example").unwrap(),
            public_url: Some("https://news.art.example".into()),
            has_server_key: true,
            has_link_secret: false,
            has_postal_address: true,
            has_feedback_id: true,
            dkim_selector: None,
            dkim: None,
            items: 40,
            strays: Vec::new(),
            worded: Vec::new(),
            files: Vec::new(),
            secret_files: Vec::new(),
            doubts: Vec::new(),
        }
    }

    /// Returns the severity and check of each finding that is not `Ok`.
    fn amiss(setup: &Setup) -> Vec<(Verdict, &'static str)> {
        let findings = setup.judge().into_iter();
        let amiss = findings.filter(|finding| finding.verdict != Verdict::Ok);
        amiss
            .map(|finding| {
                assert!(finding.advice.is_some(), "{finding:?}");
                (finding.verdict, finding.check)
            })
            .collect()
    }

    #[test]
    fn a_finished_configuration_has_nothing_to_be_done_about() {
        assert_eq!(amiss(&good()), []);
    }

    #[test]
    fn what_nobody_has_set_is_named_and_mails_without_a_way_to_stop_them_are_an_error() {
        let bare = Setup {
            public_url: None,
            has_server_key: false,
            has_postal_address: false,
            has_feedback_id: false,
            departure: Departure::Provider {
                name: "Resend",
                bounces: None,
                hook: Hook::Lacks("hooks.resend_secret"),
            },
            ..good()
        };

        assert_eq!(
            amiss(&bare),
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
    fn plain_http_is_an_error_where_mails_go_to_people_and_a_warning_where_they_do_not() {
        let plain = |departure| Setup {
            public_url: Some("http://127.0.0.1:8080".into()),
            departure,
            ..good()
        };

        assert_eq!(
            amiss(&plain(good().departure)),
            [(Verdict::Error, "server.public_url")]
        );
        assert_eq!(
            amiss(&plain(Departure::Outbox)),
            [
                (Verdict::Warning, "mail.provider"),
                (Verdict::Warning, "server.public_url")
            ]
        );
    }

    #[test]
    fn no_address_is_told() {
        let told = format!("{:?}", good().judge());

        assert!(
            told.contains("art.example") && !told.contains("digest@"),
            "{told}"
        );
    }
}
