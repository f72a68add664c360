//! Checks the configuration for settings that are unsuitable in production, and its files for those
//! that other users of the machine can read.
//!
//! An outbox is for trials, so with it no finding is worse than a warning. New files are private
//! (P8, [`crate::private`]). Open ones come from an older version or an operator.

use std::path::{Path, PathBuf};

use super::{Doctor, Finding};
use crate::config::{Config, StoreUrl, Transport};
use crate::private;

impl Doctor {
    pub(super) fn configuration(&self) -> Vec<Finding> {
        judge_config(&self.config)
    }

    /// Judges the options that each brand has of its own.
    pub(super) fn sending(&self) -> Vec<Finding> {
        judge_sending(&self.config)
    }

    /// Warns about files with addresses or keys that other users of this machine can read.
    pub(super) fn files(&self) -> Option<Finding> {
        let mut files = Vec::new();
        if let StoreUrl::Sqlite(path) = &self.config.store {
            for end in ["", "-wal", "-shm"] {
                let mut name = path.clone().into_os_string();
                name.push(end);
                files.push(name.into());
            }
        }
        if matches!(self.config.mail.transport, Transport::Outbox) {
            files.push(self.config.mail.outbox.clone());
        }
        let what = "email addresses or the secret that signs links";
        judge_files(&files, private::mode_if_open_to_others, "go-rwx", what)
    }

    /// Reports which files with secrets everyone can read.
    pub(super) fn secret_files(&self) -> Option<Finding> {
        judge_files(&self.config.secret_files, private::mode_if_open_to_world, "o-rwx", "secrets")
    }
}

/// Judges the whole configuration.
fn judge_config(config: &Config) -> Vec<Finding> {
    let file = match &config.file {
        Some(file) => file.display().to_string(),
        None => "no file; the defaults and the environment".to_owned(),
    };
    let mut findings = vec![Finding::ok(file).for_check("configuration")];
    for warning in &config.warnings {
        let found = format!("{} {}", warning.option, warning.what);
        findings.push(Finding::warning(found, &warning.advice).for_check("configuration"));
    }
    findings.extend(judge_sending(config));
    let secret = match config.server.link_secret {
        Some(_) => "is set; it must be the same wherever `serve`, `worker` and `digest` run",
        None => "is empty, so the store keeps one that all processes share",
    };
    findings.push(Finding::ok(secret).for_check("server.link_secret"));
    for (is_empty, option, found, advice) in [
        (
            config.site.postal_address.is_none(),
            "site.postal_address",
            "is empty, and commercial email must contain one (CAN-SPAM Act, section 5(a)(5))",
            "set it to the sender's postal address",
        ),
        (
            config.site.feedback_id.is_none(),
            "site.feedback_id",
            "is empty, so Gmail does not distinguish runs in its spam reports",
            "set it to 5 to 15 letters that stay the same",
        ),
        (
            config.server.key.is_none(),
            "server.key",
            "is empty, so `serve` generates a new key at each start",
            "set server.key or server.key_file",
        ),
    ] {
        if is_empty {
            findings.push(Finding::warning(found, advice).for_check(option));
        }
    }
    findings
}

/// Judges the options that a brand can have of its own: how emails are sent, whether the provider's
/// reports can be verified, and the address of the public pages.
fn judge_sending(config: &Config) -> Vec<Finding> {
    let provider = match &config.mail.transport {
        Transport::Outbox => {
            let found = "is outbox: emails become files, and none is sent";
            let advice = "set it and mail.from before you send emails to people";
            let outbox = Finding::warning(found, advice).for_check("mail.provider");
            return vec![outbox, public_url(config)];
        }
        Transport::Smtp(_) => None,
        Transport::Api(api) => Some(api.provider),
    };
    let name = provider.map_or("SMTP", |provider| provider.title);
    let domain = config.mail.sender.from.domain();
    let found = format!("{name} sends the emails, from an address at {domain}");
    let mut findings = vec![Finding::ok(found).for_check("mail.provider")];
    if let Some(provider) = provider
        && config.reporting_provider().is_none()
    {
        let warning = Finding::warning(
            format!("is empty, so tidings ignores bounces and complaints that {name} reports"),
            "set it, and let the provider post to /hooks (docs/guides/providers.md, \"Bounces and complaints\")",
        );
        findings.push(warning.for_check(provider.hook_key.options().0));
    }
    findings.push(public_url(config));
    findings
}

fn public_url(config: &Config) -> Finding {
    let why = match &config.server.public_url {
        Some(url) if url.starts_with("https://") => {
            return Finding::ok(url).for_check("server.public_url");
        }
        Some(url) => format!(
            "{url} is plain http, for which no mailbox provider offers one-click unsubscribing"
        ),
        None => "is empty, so emails contain no unsubscribe link".to_owned(),
    };
    let advice = "set it to the public https address of `tidings serve`";
    let finding = match config.mail.transport {
        Transport::Outbox => Finding::warning(why, advice),
        Transport::Smtp(_) | Transport::Api(_) => Finding::error(why, advice),
    };
    finding.for_check("server.public_url")
}

/// Warns about files whose permissions are too open. `chmod` with `mode` closes them.
fn judge_files(
    files: &[PathBuf],
    open_permissions: impl Fn(&Path) -> Option<String>,
    mode: &str,
    what: &str,
) -> Option<Finding> {
    let open_files = files.iter().filter_map(|path| {
        let (permissions, path) = (open_permissions(path)?, path.display());
        Some((format!("{path} ({permissions})"), format!("chmod {mode} {path}")))
    });
    let (names, advice): (Vec<String>, Vec<String>) = open_files.unzip();
    if names.is_empty() {
        return None;
    }
    let found = format!("other users of this machine can read {what} in {}", names.join(", "));
    Some(Finding::warning(found, advice.join("; ")).for_check("files"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::diagnosis::Severity;

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
        judge_config(&Config::parse(&text.join("\n")).unwrap())
    }

    /// Returns the severity and the check of each finding that needs attention.
    fn problems(lines: &str) -> Vec<(Severity, &'static str)> {
        let problems = findings(lines).into_iter().filter(|one| one.severity != Severity::Ok);
        problems
            .map(|finding| {
                assert!(finding.advice.is_some(), "{finding:?}");
                (finding.severity, finding.check)
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
                (Severity::Warning, "hooks.resend_secret"),
                (Severity::Error, "server.public_url"),
                (Severity::Warning, "site.postal_address"),
                (Severity::Warning, "site.feedback_id"),
                (Severity::Warning, "server.key"),
            ]
        );
    }

    #[test]
    fn plain_http_is_an_error_with_a_provider_and_a_warning_with_the_outbox() {
        let plain = "server.public_url = \"http://127.0.0.1:8080\"\n";
        let outbox = format!("{plain}mail.provider = \"outbox\"\nmail.key = \"\"\n");

        assert_eq!(problems(plain), [(Severity::Error, "server.public_url")]);
        assert_eq!(
            problems(&outbox),
            [(Severity::Warning, "mail.provider"), (Severity::Warning, "server.public_url")]
        );
    }

    #[test]
    fn no_finding_reveals_an_address() {
        let text = format!("{:?}", findings(""));

        assert!(text.contains("art.example") && !text.contains("digest@"), "{text}");
    }
}
