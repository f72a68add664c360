//! Checks that the provider's reports arrive, and whether receivers refuse the sender.
//!
//! Only if a key is configured to verify the reports. There is no finding if all is well.

use std::sync::Arc;

use chrono::TimeDelta;

use super::{Doctor, Finding};
use crate::domain::ReportCounts;
use crate::engine::feedback::suppressions::unreported;
use crate::store::{Error, Store};

pub(super) const REPORTS: &str = "reports";

impl Doctor {
    /// Warns if emails have no reports, or if any were refused in the last day.
    pub(super) async fn reports(&self, store: &Arc<dyn Store>) -> Result<Option<Finding>, Error> {
        let Some(provider) = self.config.reporter() else {
            return Ok(None);
        };
        let now = self.clock.now();
        let silent = unreported(store.as_ref(), now).await?;
        let lately = store.report_counts(now - TimeDelta::days(1)).await?;
        Ok(judge(provider.title, silent, &lately))
    }
}

fn judge(provider: &str, silent: u64, lately: &ReportCounts) -> Option<Finding> {
    let emails = |number| match number {
        1 => "1 email".to_owned(),
        _ => format!("{number} emails"),
    };
    if silent > 0 {
        return Some(Finding::warning(
            REPORTS,
            format!(
                "{} left more than a day ago, and {provider} has reported nothing since",
                emails(silent)
            ),
            "let the provider post to /hooks, also when it delivers (docs/operations.md, \"Bounces and complaints\")",
        ));
    }
    (lately.refused > 0).then(|| {
        Finding::warning(
            REPORTS,
            format!(
                "receivers refused the sender or the content of {} of {} of the last day",
                lately.refused,
                emails(lately.sent)
            ),
            "look at the status in the log; check SPF, DKIM, DMARC and the domain's reputation",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_webhook_reports_and_refusals_cause_warnings_but_bounces_do_not() {
        let counts = |refused| ReportCounts {
            sent: 40,
            bounced: 3,
            refused,
            ..ReportCounts::default()
        };
        let found = |silent, refused| judge("Mailgun", silent, &counts(refused));

        assert_eq!(found(0, 0), None);
        let silent = found(1, 2).unwrap().found;
        assert!(silent.starts_with("1 email left"), "{silent}");
        let refused = found(0, 2).unwrap().found;
        assert!(
            refused.ends_with("2 of 40 emails of the last day"),
            "{refused}"
        );
    }
}
