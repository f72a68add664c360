//! `tidings send-test`: one real mail to an address of one's own, to see it arrive.

use clap::{Args as Arguments, ValueEnum};

use super::exit::{Exit, Usage};
use super::global::Global;
use super::ink::Ink;
use super::preview;
use super::screen::Screen;
use crate::config::Transport;
use crate::domain::{Address, BrandName, UserId};
use crate::email::Outcome;
use crate::operate::preview::{Kind, Sheet};
use crate::operate::send_test::send_test;

/// Send one mail to an address of yours, to see it arrive
///
/// It leaves by the configured provider, and its subject says that it is a test. Neither the ledger
/// nor anybody's feed hears of it, and its links to stop mails lead nowhere. An address that is
/// suppressed gets none.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// Where it goes
    address: Address,
    /// Which mail: a digest, or one of a batch
    #[arg(value_enum, default_value = "digest")]
    kind: What,
    /// What this person would get now, instead of invented things
    #[arg(long, value_name = "USER")]
    user: Option<UserId>,
    /// In this locale, such as de or pt-BR, whatever people's own is
    #[arg(long, value_name = "LOCALE")]
    locale: Option<String>,
    /// As this brand sends it, by its provider
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

/// The one that shows most: of several things, where there is one.
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
        // Somebody's mail goes as their brand's does.
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
