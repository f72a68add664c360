//! `tidings deliveries`: lists and shows emails, retries failed ones, and settles unknown outcomes.

use chrono::{DateTime, Utc};
use clap::{Args as Arguments, Subcommand};

use super::session::Fit::{Cut, Full, Number};
use super::session::{
    Access, App, Column, Exit, Refusal, Screen, Session, Table, TemplateUse, phrases,
};
use crate::domain::delivery::OperatorDecision;
use crate::domain::{DeliveryId, DeliveryState, ReportKind, UserId};
use crate::engine::delivery::operator_actions::DeliverySelection;
use crate::store::TimeRange;
use crate::wire::delivery::{DeliveryRow, DeliveryStory, ListedDelivery};

/// List emails and their outcomes, newest first
#[derive(Debug, Arguments)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Only emails in this state: pending, sending, sent, failed, canceled or unknown
    #[arg(long, value_name = "STATE")]
    state: Option<DeliveryState>,
    /// Only emails to this user
    #[arg(long, value_name = "USER")]
    user: Option<UserId>,
    /// Only emails created at this time or later
    #[arg(long, value_name = "TIME", value_parser = phrases::parse_time)]
    since: Option<DateTime<Utc>>,
    /// Only emails created before this time
    #[arg(long, value_name = "TIME", value_parser = phrases::parse_time)]
    until: Option<DateTime<Utc>>,
    /// Only emails that the provider reported as bounced
    #[arg(long)]
    bounced: bool,
    /// Maximum number of emails
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show an email: its history, content and provider report
    ///
    /// Objects are shown as they are now, and unsubscribe links do not work.
    Show {
        /// The delivery, such as digest:mara:weekly:2014-W17
        id: String,
    },
    /// Settle unknown outcomes: of one email, one call, a period, or all
    ///
    /// `sent`: the emails were sent. `failed`: they were not, and the next run or a worker sends
    /// them.
    #[command(allow_missing_positional = true)]
    Settle(SettleArgs),
    /// Retry failed emails: these, or all of them
    ///
    /// Within its period, a failed digest is retried automatically, first after an hour. The next
    /// digest includes its events in any case. Events that a later email included are not emailed
    /// again.
    Retry(RetryArgs),
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let (access, templates) = match &self.verb {
            None => (Access::Read, TemplateUse::Fallback),
            Some(Verb::Show { .. }) => (Access::Read, TemplateUse::Required),
            Some(Verb::Settle(_) | Verb::Retry(_)) => (Access::Write, TemplateUse::BuiltIn),
        };
        let app = session.open_with(access, templates).await?;
        match &self.verb {
            None => self.list(&app, session.screen).await,
            Some(Verb::Show { id }) => show(id, &app, session.screen).await,
            Some(Verb::Settle(settle)) => settle.run(&app, session.screen).await,
            Some(Verb::Retry(retry)) => retry.run(&app, session.screen).await,
        }
    }

    async fn list(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        let filter = DeliverySelection {
            state: self.state,
            user: self.user.clone(),
            span: TimeRange { since: self.since, until: self.until },
            feedback: self.bounced.then_some(ReportKind::Bounced),
        };
        let limit = usize::from(self.limit);
        let mut rows = app.deliveries().list(&filter, limit + 1).await?;
        let cut_note = phrases::cut(&mut rows, limit, "--user, --state or --since");
        let mut listed = Vec::with_capacity(rows.len());
        for row in rows {
            let DeliveryStory { row, email, .. } = app.compose().describe_delivery(row).await?;
            let subject = email.map(|email| email.subject);
            listed.push(ListedDelivery { row, subject });
        }
        if !screen.answer(&listed)? {
            let rows = listed.iter().map(|email| (&email.row, email.subject.as_deref()));
            screen.list(&table(rows), cut_note)?;
        }
        Ok(Exit::Done)
    }
}

/// Returns the table of emails, their outcomes and their subjects.
pub(super) fn table<'a>(
    rows: impl IntoIterator<Item = (&'a DeliveryRow, Option<&'a str>)>,
) -> Table {
    fn last_change(row: &DeliveryRow) -> DateTime<Utc> {
        row.settled.or(row.called_at).unwrap_or(row.created)
    }
    let columns: &[Column<(&'a DeliveryRow, Option<&'a str>)>] = &[
        Column("time (UTC)", Full, |(row, _)| phrases::minute(last_change(row))),
        Column("state", Full, |(row, _)| phrases::delivery_state(row)),
        Column("events", Number, |(row, _)| phrases::number(row.event_count.into())),
        Column("tried", Number, |(row, _)| phrases::number(row.attempts.into())),
        Column("delivery", Full, |(row, _)| row.id.to_string()),
        Column("subject", Cut, |(_, subject)| subject.unwrap_or_default().to_owned()),
        Column("because", Cut, |(row, _)| row.reason.clone().unwrap_or_default()),
    ];
    Table::new(rows, columns)
}

#[derive(Debug, Arguments)]
struct RetryArgs {
    /// Deliveries to retry, such as digest:mara:weekly:2014-W17
    #[arg(value_name = "ID")]
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<String>,
    /// Retry all failed emails
    #[arg(long)]
    all: bool,
    /// With --all: only emails to this user
    #[arg(long, value_name = "USER", requires = "all")]
    user: Option<UserId>,
}

impl RetryArgs {
    async fn run(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        let retried = if self.all {
            app.deliveries().retry_all(self.user.as_ref()).await?
        } else {
            let ids: Vec<_> = self.ids.iter().map(|id| DeliveryId::stored(id.as_str())).collect();
            app.deliveries().retry(&ids).await?
        };
        let bad = (retried.busy.len() + retried.not_failed.len()) as u64;
        let exit = Exit::of(retried.reopened, bad);
        if screen.answer(&retried)? {
            return Ok(exit);
        }
        screen.line(match retried.reopened {
            0 => "no failed email is tried again".to_owned(),
            n => format!("{} will be tried again by the next run or a worker", phrases::emails(n)),
        })?;
        let busy = "another email to the same user is open; try again when it has ended";
        let not_failed = "there is no failed delivery with this id";
        for (ids, why) in [(&retried.busy, busy), (&retried.not_failed, not_failed)] {
            screen.warnings(ids.iter().map(|id| format!("{id}: {why}")))?;
        }
        Ok(exit)
    }
}

#[derive(Debug, Arguments)]
struct SettleArgs {
    /// Delivery to settle, such as digest:mara:weekly:2014-W17
    #[arg(required_unless_present_any = ["call", "all", "since", "until"], conflicts_with_all = ["call", "all", "since", "until"])]
    id: Option<String>,
    /// The outcome
    #[arg(required = true, value_parser = ["sent", "failed"])]
    outcome: String,
    /// Settle all unknown emails of this call, as `deliveries --json` names it
    #[arg(long, value_name = "REF")]
    call: Option<String>,
    /// Settle all unknown emails
    #[arg(long)]
    all: bool,
    /// Only emails handed over at this time or later
    #[arg(long, value_name = "TIME", value_parser = phrases::parse_time)]
    since: Option<DateTime<Utc>>,
    /// Only emails handed over before this time
    #[arg(long, value_name = "TIME", value_parser = phrases::parse_time)]
    until: Option<DateTime<Utc>>,
}

impl SettleArgs {
    async fn run(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        let (decision, result) = match self.outcome.as_str() {
            "sent" => (OperatorDecision::Sent, "sent"),
            _ => {
                (OperatorDecision::NotSent, "pending again, to be sent by the next run or a worker")
            }
        };
        let deliveries = app.deliveries();
        if let Some(id) = &self.id {
            let id = DeliveryId::stored(id.as_str());
            deliveries.settle(&id, decision).await?;
            screen.line(format!("{id} is {result}"))?;
            return Ok(Exit::Done);
        }
        let span = TimeRange { since: self.since, until: self.until };
        let rows = deliveries.find_unknown(self.call.as_deref(), &span).await?;
        let settled = deliveries.settle_all(&rows, decision).await?;
        screen.line(format!("{}: {result}", phrases::emails(settled.settled)))?;
        if settled.busy > 0 {
            let why = "another delivery of the user is open; settle these when that one has ended";
            screen.warning(format!("{}: {why}", phrases::emails(settled.busy)))?;
        }
        Ok(Exit::Done.partly_unless(settled.busy == 0))
    }
}

async fn show(id: &str, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
    let id = DeliveryId::stored(id);
    let Some(row) = app.deliveries().get(&id).await? else {
        let what = format!("there is no delivery {id}");
        return Err(Refusal::new(what, "tidings deliveries, which lists them").into());
    };
    let story = app.compose().describe_delivery(row).await?;
    if !screen.answer(&story)? {
        show_story(&story, screen)?;
    }
    Ok(Exit::Done)
}

/// Returns the history of a delivery, one row per step.
fn history(story: &DeliveryStory) -> Table {
    let (row, mut table) = (&story.row, Table::facts());
    let minute = |at: Option<DateTime<Utc>>| at.map(phrases::minute);
    let attempts = phrases::count(u64::from(row.attempts), "attempt", "attempts");
    let tried = minute(row.called_at).map(|at| format!("{at} ({attempts})"));
    let lease = story.leased_by.as_ref().zip(minute(story.leased_until));
    let report = row.feedback.zip(minute(row.feedback_at));
    let waits_until = row.not_before.filter(|_| !row.state.is_settled());
    table.add("  created", phrases::minute(row.created));
    table.add("  handed over", tried);
    table.add("  waits until", minute(waits_until));
    table.add("  leased by", lease.map(|(owner, until)| format!("worker {owner} until {until}")));
    table.add("  settled", minute(row.settled));
    table.add("  because", row.reason.clone());
    table.add("  provider's id", row.provider_id.clone());
    table.add("  reported", report.map(|(report, at)| format!("{report} {at}")));
    table.add("  cannot be sent", story.send_obstacle.clone());
    table
}

fn show_story(story: &DeliveryStory, screen: &mut Screen) -> anyhow::Result<()> {
    let row = &story.row;
    let (id, state) = (&row.id, phrases::delivery_state(row));
    let to = phrases::list([Some(row.user.to_string()), story.to.clone()]);
    screen.line(format!("{id}  {state}  to {to}"))?;
    screen.table(&history(story))?;
    screen.line("")?;
    let Some(email) = &story.email else {
        let why = story.no_email.as_deref().unwrap_or_default();
        return Ok(screen.line(format!("no email to show: {why}"))?);
    };
    screen.line("The email, with objects as they are now:")?;
    let lines = email.text.trim_end().lines();
    for line in std::iter::once(&*email.subject).chain(lines) {
        screen.line(format!("  {line}").trim_end())?;
    }
    let sent = u64::from(row.event_count);
    if row.state == DeliveryState::Sent && sent != email.events() {
        let events = phrases::events(sent);
        screen.warning(format!("it was sent with {events}: objects have changed"))?;
    }
    Ok(())
}
