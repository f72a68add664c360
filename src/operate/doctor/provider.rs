//! Checks that the provider accepts the API key. Nothing is sent.

use super::{Doctor, Finding, LEFT, Outside};
use crate::config::Transport;
use crate::email::Checked;

const PROVIDER: &str = "provider";

impl Doctor {
    /// Returns the finding, and the DNS names of the DKIM keys that the provider reports.
    pub(super) async fn provider(&self) -> (Finding, Vec<String>) {
        let mailer = match &self.mailer {
            Ok(mailer) => mailer,
            Err(why) => {
                let advice = "see the options of the section [mail]";
                return (Finding::error(PROVIDER, why, advice), Vec::new());
            }
        };
        let is_near = matches!(self.config.mail.transport, Transport::Outbox);
        if self.look.outside == Outside::Leave && !is_near {
            return (Finding::unchecked(PROVIDER, LEFT), Vec::new());
        }
        let late = |reason| Checked::Unreached { reason };
        judge(self.within(mailer.check(), late).await)
    }
}

fn judge(checked: Checked) -> (Finding, Vec<String>) {
    match checked {
        Checked::Ready { found, dkim } => (Finding::ok(PROVIDER, found), dkim),
        Checked::Wrong { found, remedy } => (Finding::error(PROVIDER, found, remedy), Vec::new()),
        Checked::Unreached { reason } => (Finding::unchecked(PROVIDER, reason), Vec::new()),
    }
}
