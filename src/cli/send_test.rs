//! `tidings send-test`: sends an email of the preview to the operator's own address.

use clap::Args as Arguments;

use super::preview::{Subject, kinds};
use super::session::{Exit, Refusal, Session};
use crate::config::Transport;
use crate::domain::Address;
use crate::email::Outcome;
use crate::operate::send_test::send_test;

/// Send a test email to your own address
///
/// The configured provider sends it, and its subject says that it is a test. It appears in no feed
/// and not among the deliveries, and its unsubscribe links do not work. Suppressed addresses get no
/// test email.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// Recipient address
    address: Address,
    /// Email to send: a digest or a batch
    #[arg(value_parser = ["digest", "batch"], default_value = "digest")]
    kind: String,
    #[command(flatten)]
    subject: Subject,
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let kinds = kinds(Some(&self.kind));
        let preview = self.subject.preview(session, kinds).await?;
        let (sheets, notes) = preview.sheets(None).await?;
        let several = sheets.iter().find(|sheet| sheet.name.ends_with("several"));
        let Some(sheet) = several.or(sheets.first()) else {
            return Err(Refusal::new(notes.join("; "), "omitting --user").into());
        };
        // The configuration of the brand, whose provider sends the emails of its users.
        let (config, address) = (&preview.config, &self.address);
        let outcome = send_test(config, preview.brand.as_ref(), address.clone(), sheet).await?;
        let screen = &mut *session.screen;
        let (problem, reason) = match outcome {
            Outcome::Accepted(provider_id) => {
                screen.line(match config.mail.transport {
                    Transport::Outbox => format!("the outbox accepted the email: {provider_id}"),
                    _ => format!("the provider accepted the email for {address} as {provider_id}"),
                })?;
                return Ok(Exit::Done);
            }
            Outcome::Unknown(reason) => {
                let problem = "it is unknown whether it was accepted";
                screen.warning(format!("{problem}: {reason}; check whether it arrives"))?;
                return Ok(Exit::Partly);
            }
            Outcome::TryLater(reason, _) | Outcome::Deferred(reason) => {
                ("it was not accepted now, and may be later", reason)
            }
            Outcome::Unreachable(reason) => ("the provider could not be reached", reason),
            Outcome::Refused(reason)
            | Outcome::Unsendable(reason)
            | Outcome::RefusedTogether(reason)
            | Outcome::Undeliverable(reason)
            | Outcome::Withheld(reason)
            | Outcome::Stop(reason) => ("it was rejected", reason),
        };
        screen.warning(format!("{problem}: {reason}"))?;
        Ok(Exit::Failed)
    }
}
