//! `tidings doctor`: finds problems that keep emails from being sent or delivered.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use clap::Args as Arguments;

use super::session::Fit::{Full, Wrap};
use super::session::{Column, Exit, Screen, Session, Table, phrases};
use crate::clock::SystemClock;
use crate::config::ConfigProblems;
use crate::operate::doctor::{DoctorOptions, doctor};
use crate::operate::open::is_missing;
use crate::wire::diagnosis::{Diagnosis, Finding, Severity};

/// Check configuration, database, provider, DNS, public pages and templates
///
/// No email is sent and no user is unsubscribed. Each line shows ok, warning, error or unchecked,
/// then the finding and what to do about it. Checks that are not possible from this machine are
/// unchecked. Nothing is logged unless you use --log.
#[derive(Debug, Arguments)]
#[command(
    after_help = "Exit codes: 0 no errors, 1 at least one error, 2 wrong usage, or neither configuration nor database here."
)]
pub(super) struct Args {
    /// Skip the checks of the provider, DNS and the public pages
    #[arg(long)]
    offline: bool,
    /// How long to wait for each answer, 1 to 60 seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=60))]
    timeout: u64,
    /// DNS server to use instead of this machine's, such as 9.9.9.9 or 127.0.0.1:5353
    #[arg(long, value_name = "ADDRESS", value_parser = nameserver)]
    nameserver: Option<SocketAddr>,
}

const DNS_PORT: u16 = 53;

fn nameserver(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, DNS_PORT)))
        .map_err(|_| "not an address such as 9.9.9.9 or 127.0.0.1:5353".to_owned())
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let mut is_wrong_folder = false;
        let findings = match session.load() {
            Ok(config) => {
                let options = DoctorOptions {
                    timeout: Duration::from_secs(self.timeout),
                    offline: self.offline,
                    nameserver: self.nameserver,
                };
                is_wrong_folder = config.file.is_none() && is_missing(&config);
                doctor(&config, options, Arc::new(SystemClock)).await.run().await
            }
            Err(problems) => configuration_findings(&problems),
        };
        let worst = findings.iter().map(|finding| finding.severity).max();
        let (severity, findings) = (worst.unwrap_or(Severity::Ok), &*findings);
        if !session.screen.answer(&Diagnosis { severity, findings })? {
            show(findings, session.screen)?;
        }
        Ok(match severity {
            // There is neither a configuration nor a database here.
            _ if is_wrong_folder => Exit::Usage,
            Severity::Error => Exit::Failed,
            Severity::Ok | Severity::Unchecked | Severity::Warning => Exit::Done,
        })
    }
}

/// Returns the problems of the configuration as findings.
fn configuration_findings(problems: &ConfigProblems) -> Vec<Finding> {
    let advice = "fix it; `tidings config --defaults` shows every option";
    let errors = problems.0.iter().map(|problem| {
        let found = format!("{}: {}", problem.option, problem.what);
        Finding::error(found, advice).for_check("configuration")
    });
    let rest =
        Finding::unchecked("needs a configuration that can be read").for_check("everything else");
    errors.chain([rest]).collect()
}

/// The severities in the order of the summary: the words for one and for several.
static SEVERITIES: [(Severity, &str, &str); 4] = [
    (Severity::Ok, "ok", "ok"),
    (Severity::Warning, "warning", "warnings"),
    (Severity::Error, "error", "errors"),
    (Severity::Unchecked, "unchecked", "unchecked"),
];

fn show(findings: &[Finding], screen: &mut Screen) -> std::io::Result<()> {
    fn severity(finding: &Finding) -> &'static str {
        let entry = SEVERITIES.iter().find(|(severity, ..)| *severity == finding.severity);
        entry.map_or("", |(_, one, _)| *one)
    }
    let columns: &[Column<&Finding>] = &[
        Column("", Full, |finding| severity(finding).to_owned()),
        Column("", Full, |finding| match &finding.brand {
            Some(brand) => format!("{brand}: {}", finding.check),
            None => finding.check.to_owned(),
        }),
        Column("", Wrap, |finding| text_of(finding)),
    ];
    screen.table(&Table::new(findings, columns))?;
    let counts = SEVERITIES.map(|(severity, one, many)| {
        let n = findings.iter().filter(|finding| finding.severity == severity).count();
        phrases::nonzero_count(n as u64, one, many)
    });
    screen.line("")?;
    screen.line(phrases::list(counts))
}

/// Joins the finding and the advice on one line.
fn text_of(finding: &Finding) -> String {
    let text = match &finding.advice {
        Some(advice) => format!("{} → {advice}", finding.result),
        None => finding.result.clone(),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line_with_its_advice() {
        let finding = Finding::error("v=DMARC1\n; p=x", "fix it").for_check("DMARC");

        assert_eq!(text_of(&finding), "v=DMARC1 ; p=x → fix it");
    }

    #[test]
    fn a_name_server_is_an_address_with_or_without_a_port() {
        assert_eq!(nameserver("9.9.9.9").unwrap().to_string(), "9.9.9.9:53");
        assert_eq!(nameserver("::1").unwrap().to_string(), "[::1]:53");
        assert_eq!(nameserver("127.0.0.1:5353").unwrap().port(), 5353);
        assert!(nameserver("dns.example").is_err());
    }
}
