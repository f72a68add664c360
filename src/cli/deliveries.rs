//! `tidings deliveries`: lists emails, retries failed ones, and settles unknown outcomes.

use chrono::{DateTime, Utc};
use clap::{Args as Arguments, Subcommand, ValueEnum};

use super::exit::Exit;
use super::ink::Ink;
use super::screen::Screen;
use super::table::{Column, Table};
use super::{cut, time, words};
use crate::app::{Access, App, TemplateUse};
use crate::domain::delivery::Verdict;
use crate::domain::{DeliveryId, DeliveryState, ReportKind, UserId};
use crate::engine::delivery::deliveries::{Only, Unknown};
use crate::store::Span;
use crate::wire::delivery::{DeliveryRow, Listed};

mod show;

use show::Show;

/// List emails and their outcomes, newest first
#[derive(Debug, Arguments)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// Only emails in this state: pending, sending, sent, failed, canceled or unknown
    #[arg(long, value_name = "STATE")]
    state: Option<DeliveryState>,
    /// Only emails to this user
    #[arg(long, value_name = "USER")]
    user: Option<UserId>,
    /// Only emails created at this time or later
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    since: Option<DateTime<Utc>>,
    /// Only emails created before this time
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    until: Option<DateTime<Utc>>,
    /// Only emails that the provider reported as bounced
    #[arg(long)]
    bounced: bool,
    /// Maximum number of emails
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show an email: its history, content and provider report
    ///
    /// Objects are shown as they are now, and unsubscribe links do not work.
    Show(Show),
    /// Settle unknown outcomes: of one email, one call, a period, or all
    ///
    /// `sent`: the emails were sent. `failed`: they were not, and the next run or a worker sends
    /// them.
    #[command(allow_missing_positional = true)]
    Settle(Settle),
    /// Retry failed emails: these, or all of them
    ///
    /// Within its period, a failed digest is retried automatically, first after an hour. The next
    /// digest includes its events in any case. Events that a later email included are not emailed
    /// again.
    Retry(Retry),
}

#[derive(Debug, Arguments)]
struct Retry {
    /// Deliveries to retry, such as digest:mara:weekly:2014-W17
    #[arg(
        required_unless_present = "all",
        conflicts_with = "all",
        value_name = "ID"
    )]
    ids: Vec<String>,
    /// Retry all failed emails
    #[arg(long)]
    all: bool,
    /// With --all: only emails to this user
    #[arg(long, value_name = "USER", requires = "all")]
    user: Option<UserId>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

impl Retry {
    async fn run(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        let ids = self.ids.iter().map(|id| DeliveryId::stored(id.as_str()));
        let retried = if self.all {
            app.deliveries().retry_all(self.user.as_ref()).await?
        } else {
            app.deliveries().retry(&ids.collect::<Vec<_>>()).await?
        };
        let bad = (retried.busy.len() + retried.not_failed.len()) as u64;
        if self.json {
            screen.json(&retried)?;
            return Ok(Exit::of(retried.again, bad));
        }
        let mails = words::count(retried.again, "mail", "mails");
        screen.line(match retried.again {
            0 => "no failed mail is tried again".to_owned(),
            _ => format!("{mails} will be tried again by the next run or a worker"),
        })?;
        for id in &retried.busy {
            screen.warning(format!(
                "{id}: another mail to the same person is open; try again when it has ended"
            ))?;
        }
        for id in &retried.not_failed {
            screen.warning(format!("{id}: there is no failed delivery of that name"))?;
        }
        Ok(Exit::of(retried.again, bad))
    }
}

#[derive(Debug, Arguments)]
struct Settle {
    /// Delivery to settle, such as digest:mara:weekly:2014-W17
    #[arg(required_unless_present_any = ["call", "all", "since", "until"], conflicts_with_all = ["call", "all", "since", "until"])]
    id: Option<String>,
    /// The outcome
    #[arg(required = true)]
    end: End,
    /// Settle all unknown emails of this call, as `deliveries --json` names it
    #[arg(long, value_name = "REF")]
    call: Option<String>,
    /// Settle all unknown emails
    #[arg(long)]
    all: bool,
    /// Only emails handed over at this time or later
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    since: Option<DateTime<Utc>>,
    /// Only emails handed over before this time
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    until: Option<DateTime<Utc>>,
    /// Show how many there are, and change nothing
    #[arg(long, conflicts_with = "id")]
    dry_run: bool,
}

impl Settle {
    async fn run(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        let verdict = match self.end {
            End::Sent => Verdict::Sent,
            End::Failed => Verdict::NotSent,
        };
        if let Some(id) = &self.id {
            let id = DeliveryId::stored(id.as_str());
            app.deliveries().settle(&id, verdict).await?;
            screen.line(match self.end {
                End::Sent => format!("{id} is sent"),
                End::Failed => format!("{id} is pending again; the next run or a worker mails it"),
            })?;
            return Ok(Exit::Done);
        }
        let which = Unknown {
            call: self.call.clone(),
            since: self.since,
            until: self.until,
        };
        let rows = app.deliveries().unknown(&which).await?;
        let mails = |count: u64| words::count(count, "mail", "mails");
        if self.dry_run {
            let found = mails(rows.len() as u64);
            screen.line(format!("{found} would be settled (dry run)"))?;
            return Ok(Exit::Done);
        }
        let settled = app.deliveries().settle_all(&rows, verdict).await?;
        let done = mails(settled.settled);
        screen.line(match self.end {
            End::Sent => format!("{done}: sent"),
            End::Failed => format!("{done}: pending again; the next run or a worker mails them"),
        })?;
        if settled.busy > 0 {
            let busy = mails(settled.busy);
            screen.warning(format!(
                "{busy}: another delivery of the person is open; settle these when that one has ended"
            ))?;
            return Ok(Exit::Partly);
        }
        Ok(Exit::Done)
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum End {
    Sent,
    Failed,
}

impl Args {
    pub(super) fn access(&self) -> Access {
        match &self.what {
            None | Some(What::Show(_)) => Access::Read,
            Some(What::Settle(_) | What::Retry(_)) => Access::Write,
        }
    }

    pub(super) fn made(&self) -> TemplateUse {
        match &self.what {
            Some(What::Show(_)) => TemplateUse::Required,
            None => TemplateUse::Fallback,
            Some(What::Settle(_) | What::Retry(_)) => TemplateUse::BuiltIn,
        }
    }

    pub(super) async fn run(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        if let Some(What::Show(show)) = &self.what {
            return show.run(app, screen).await;
        }
        if let Some(What::Settle(settle)) = &self.what {
            return settle.run(app, screen).await;
        }
        if let Some(What::Retry(retry)) = &self.what {
            return retry.run(app, screen).await;
        }
        let only = Only {
            state: self.state,
            user: self.user.clone(),
            span: Span {
                since: self.since,
                until: self.until,
            },
            feedback: self.bounced.then_some(ReportKind::Bounced),
        };
        let limit = usize::from(self.limit);
        let mut rows = app.deliveries().list(&only, limit + 1).await?;
        if rows.len() > limit && !self.json {
            rows = app.deliveries().list(&only, cut::MOST + 1).await?;
        }
        let rest = cut::rest(rows.len(), limit, "--user, --state and --since");
        rows.truncate(limit);
        let mut shown = Vec::with_capacity(rows.len());
        for row in rows {
            let story = app.compose().story(row).await?;
            shown.push(Listed {
                row: story
                    .row
                    .with_brand(|call| app.identities.brand_of_call(call)),
                subject: story.mail.map(|mail| mail.subject),
            });
        }
        if self.json {
            screen.json(&shown)?;
        } else if shown.is_empty() {
            screen.line("none")?;
        } else {
            screen.table(&listing(&shown))?;
            if let Some(rest) = rest {
                screen.note(rest)?;
            }
        }
        Ok(Exit::Done)
    }
}

/// Returns the table of emails and their outcomes.
pub(super) fn table(rows: &[DeliveryRow]) -> Table {
    table_of(rows.iter().map(|row| (row, None)))
}

/// Like [`table`], with subjects.
fn listing(rows: &[Listed]) -> Table {
    table_of(
        rows.iter()
            .map(|listed| (&listed.row, listed.subject.as_deref())),
    )
}

fn table_of<'a>(rows: impl Iterator<Item = (&'a DeliveryRow, Option<&'a str>)>) -> Table {
    let mut table = Table::new([
        Column::new("emails (UTC)").ink(Ink::Faint),
        Column::new("state").ink(Ink::Strong),
        Column::new("events").right(),
        Column::new("tried").right().spare(),
        Column::new("delivery"),
        Column::new("subject").gives_way(),
        Column::new("because").gives_way(),
    ]);
    for (row, subject) in rows {
        table.row([
            words::minute(row.settled.or(row.tried).unwrap_or(row.created)),
            words::delivery_state(row),
            words::number(u64::from(row.items)),
            words::number(u64::from(row.attempts)),
            row.id.to_string(),
            subject.unwrap_or_default().to_owned(),
            row.reason.clone().unwrap_or_default(),
        ]);
    }
    table
}
