//! `tidings send-test`: sends one real email to the operator's own address.

use clap::{Args as Arguments, ValueEnum};

use super::exit::{Exit, Usage};
use super::global::Global;
use super::ink::Ink;
use super::preview;
use super::screen::Screen;
use crate::config::Transport;
use crate::domain::{Address, BrandName, UserId};
use crate::email::Outcome;
use crate::operate::preview::{Kind, Sheet, send_test};

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
    #[arg(value_enum, default_value = "digest")]
    kind: What,
    /// Send what this user would get now, instead of invented events
    #[arg(long, value_name = "USER")]
    user: Option<UserId>,
    /// Locale to use instead of the user's, such as de or pt-BR
    #[arg(long, value_name = "LOCALE")]
    locale: Option<String>,
    /// Brand to use, with its provider [default: the user's brand, or the default one]
    #[arg(long, value_name = "BRAND")]
    brand: Option<BrandName>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    Digest,
    Batch,
}

impl From<What> for Kind {
    fn from(what: What) -> Self {
        match what {
            What::Digest => Self::Digest,
            What::Batch => Self::Batch,
        }
    }
}

/// Returns the sheet with several events if there is one, otherwise the first.
fn chosen(sheets: Vec<Sheet>) -> Option<Sheet> {
    let several = sheets
        .iter()
        .position(|sheet| sheet.name.ends_with("several"));
    sheets.into_iter().nth(several.unwrap_or_default())
}

impl Args {
    pub(super) async fn run(&self, global: &Global, screen: &mut Screen) -> anyhow::Result<Exit> {
        let kinds = vec![self.kind.into()];
        let brand = self.brand.as_ref();
        let locale = self.locale.as_deref();
        let showing = preview::showing(global, self.user.as_ref(), kinds, locale, brand).await?;
        // An email for a user uses the provider of the user's brand.
        let brand = self.brand.clone().or(showing.brand().await?);
        let (sheets, notes) = showing.sheets(None, locale).await?;
        let Some(sheet) = chosen(sheets) else {
            let why = notes.join("; ");
            return Err(Usage::new(why).instead("leaving --user out").into());
        };
        let config = global.load(Vec::new())?.of(brand.as_ref())?;
        let to = self.address.clone();
        let outcome = send_test(&config, brand.as_ref(), to, &sheet).await?;
        self.tell(&outcome, &config.mail.transport, screen)
    }

    fn tell(
        &self,
        outcome: &Outcome,
        transport: &Transport,
        screen: &mut Screen,
    ) -> anyhow::Result<Exit> {
        let to = &self.address;
        let (told, exit) = match outcome {
            Outcome::Accepted { provider_id } => {
                let taken = match transport {
                    Transport::Outbox => format!("the outbox took the mail: {provider_id}"),
                    _ => format!("the provider took the mail for {to} as {provider_id}"),
                };
                screen.line(taken)?;
                return Ok(Exit::Done);
            }
            Outcome::Unknown { reason } => (
                format!("nobody knows whether it was taken: {reason}; look whether it arrives"),
                Exit::Partly,
            ),
            Outcome::TryLater { reason, .. } | Outcome::Deferred { reason } => (
                format!("it was not taken now, and may be later: {reason}"),
                Exit::Failed,
            ),
            Outcome::Unreachable { reason } => {
                (format!("nobody could be reached: {reason}"), Exit::Failed)
            }
            Outcome::Refused { reason }
            | Outcome::Unsendable { reason }
            | Outcome::RefusedTogether { reason }
            | Outcome::Undeliverable { reason }
            | Outcome::Withheld { reason }
            | Outcome::Stop { reason } => (format!("it was refused: {reason}"), Exit::Failed),
        };
        screen.warning(screen.ink(Ink::Warning, told))?;
        Ok(exit)
    }
}
