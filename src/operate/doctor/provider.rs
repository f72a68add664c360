//! The provider: does it know the key? It is asked, and sent nothing.

use super::{Doctor, Finding, LEFT, Outside};
use crate::config::Transport;
use crate::email::Checked;

const PROVIDER: &str = "provider";

impl Doctor {
    /// What the provider says of us, and under which names it says its keys stand.
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
