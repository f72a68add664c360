//! `tidings suppressions`: lists, adds, imports and lifts suppressions of addresses.
//!
//! Addresses are masked, unless the operator uses `--reveal`.

use std::path::PathBuf;

use clap::{Args as Arguments, Subcommand};

use super::import::{import_line, show_bad_lines};
use super::session::{Access, App, Exit, Screen, Session, phrases};
use crate::domain::{Address, SuppressionReason};
use crate::engine::feedback::suppressions::SuppressionInput;
use crate::engine::import::ImportKind;
use crate::wire::suppression::SuppressionView;

/// List suppressed addresses, or add, import and lift them
///
/// An address is suppressed when the provider reports a hard bounce, a complaint, an unsubscription
/// or too many soft bounces, or when you add it. It gets no email until you lift the suppression.
#[derive(Debug, Arguments)]
#[command(args_conflicts_with_subcommands = true, after_help = AFTER_HELP)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Show addresses in full, so that `import` can read the output of --json
    #[arg(long)]
    reveal: bool,
}

const AFTER_HELP: &str = r#"Examples:
  tidings suppressions
  tidings suppressions add mara@example.org
  tidings suppressions import bounces.csv --reason hard_bounce
  tidings suppressions --json --reveal | zstd > suppressions.ndjson.zst"#;

#[derive(Debug, Subcommand)]
enum Verb {
    /// Suppress an address
    Add {
        address: Address,
        /// Reason: hard_bounce, complaint, unsubscribe, manual or soft_bounces
        #[arg(long, default_value = "manual")]
        reason: SuppressionReason,
    },
    /// Import a list, such as a provider's export
    ///
    /// One address per line: as {"address": …, "reason": …, "at": …}, or as the first of
    /// comma-separated fields, with or without a header line. gzip and Zstandard are recognized.
    /// Bad lines are reported with their numbers and skipped.
    Import {
        /// File to import; - is standard input
        file: PathBuf,
        /// Reason for lines that name none
        #[arg(long, default_value = "manual")]
        reason: SuppressionReason,
    },
    /// Allow email to an address again
    Lift { address: Address },
}

const ADDRESSES_PER_READ: usize = 1_000;
const MAX_USERS_PER_ADDRESS: usize = 5;

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let access = match &self.verb {
            None => Access::Read,
            Some(Verb::Add { .. } | Verb::Import { .. }) => Access::Create,
            Some(Verb::Lift { .. }) => Access::Write,
        };
        let (app, screen) = (session.open(access).await?, &mut *session.screen);
        match &self.verb {
            None => self.list(&app, screen).await,
            Some(Verb::Add { address, reason }) => {
                let input = SuppressionInput::new(address.clone(), *reason);
                app.suppressions().add(vec![input]).await?;
                // A more severe reason may be stored already. It is kept.
                let stored = app.suppressions().get(address).await?;
                let reason = stored.map_or(*reason, |stored| stored.reason);
                screen.line(format!("{address} is suppressed: {reason}"))?;
                Ok(Exit::Done)
            }
            Some(Verb::Import { file, reason }) => {
                let (import, kind) = (app.import(), ImportKind::Suppressions(*reason));
                let report = import.import_file(&kind, file, &screen.progress_bar("lines")).await?;
                show_bad_lines(file, &report, screen)?;
                if !screen.answer(&report)? {
                    screen.line(import_line(&report, ("address", "addresses"), None))?;
                }
                Ok(Exit::of(report.accepted, report.bad))
            }
            Some(Verb::Lift { address }) => {
                let is_lifted = app.suppressions().lift(address).await?;
                let result = if is_lifted { "can be emailed again" } else { "was not suppressed" };
                screen.line(format!("{address} {result}"))?;
                Ok(Exit::Done)
            }
        }
    }

    async fn list(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        let (suppressions, people) = (app.suppressions(), app.users());
        let mut after = None;
        loop {
            let page = suppressions.page(after.as_ref(), ADDRESSES_PER_READ).await?;
            if page.is_empty() {
                break;
            }
            for suppression in page {
                let address = suppression.address.clone();
                after = Some(address.clone());
                let mut view = SuppressionView::from(suppression);
                if self.reveal {
                    view.address = address.reveal().to_owned();
                }
                if screen.answer(&view)? {
                    continue;
                }
                let users = people.find_by_address(&address, MAX_USERS_PER_ADDRESS).await?;
                let ids = phrases::list(users.iter().map(|user| Some(user.to_string())));
                let (since, reason) = (phrases::minute(view.at), view.reason.as_str());
                let (source, address) = (&view.source, &view.address);
                let detail = view.detail.as_deref().unwrap_or_default();
                let line = format!("{since}  {reason:12}  {source:9}  {address}  {ids}  {detail}");
                screen.line(line.trim_end())?;
            }
        }
        if after.is_none() && !screen.is_json {
            screen.line("no address is suppressed")?;
        }
        Ok(Exit::Done)
    }
}
