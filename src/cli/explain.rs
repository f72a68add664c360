//! `tidings explain`: why a user did or did not get something. The output has at most 80 columns if
//! standard output is no terminal.

use chrono::{DateTime, NaiveDate, Utc, Weekday};
use clap::Args as Arguments;

use super::deliveries;
use super::session::Fit::{Cut, Full};
use super::session::{Access, Column, Exit, Screen, Session, Table, phrases};
use super::users;
use crate::domain::user::UnreadableField;
use crate::domain::{Cadence, UserId};
use crate::wire::batch::BatchView;
use crate::wire::explanation::{
    BrandView, CoveredBy, DigestView, EmailPlace, EventStatus, ExplainedDelivery, ExplainedEvent,
    Explanation,
};
use crate::wire::suppression::SuppressionView;

/// Explain why a user does or does not get something
///
/// Shows their record, every event of the window and what becomes of it, and their latest emails.
/// Exits with 1 if there is no record of the user.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// The user's id, or their email address
    user: UserId,
    /// Only this event: an item such as 20140422.17, an object's id, or a type and an id
    #[arg(num_args = 0..=2, value_name = "WHAT")]
    event: Vec<String>,
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let app = session.open(Access::Read).await?;
        let event = self.event.last().map(String::as_str);
        let user = users::find(&app, self.user.as_str()).await?;
        let mut explained = app.explain().user(&user, event).await?;
        if let [kind, _] = &self.event[..] {
            explained.events.retain(|fate| fate.kind == *kind);
        }
        let exit = if explained.has_record { Exit::Done } else { Exit::Failed };
        if session.screen.answer(&explained)? {
            return Ok(exit);
        }
        let (screen, now) = (&mut session.screen.with_page_width(), app.context.clock.now());
        show_user(&explained, now, screen)?;
        if explained.events.is_empty() {
            screen.line("")?;
            screen.paragraph(&self.no_events_text(app.config.window_days_back + 1))?;
        }
        for fate in &explained.events {
            show_event(fate, now, screen)?;
        }
        for day in &explained.full_days {
            let date = day.start().date_naive();
            let full = "their stack is full; later events of that day were not stored";
            screen.line("")?;
            screen.paragraph(&format!("{date}: {full}"))?;
        }
        if event.is_none() {
            let mut batches = Table::facts();
            for batch in &explained.batches {
                batches.add("  batch", batch_text(batch));
            }
            screen.section(&batches)?;
            let rows = explained.deliveries.iter().map(|row| (row, None));
            screen.section(&deliveries::table(rows))?;
        }
        Ok(exit)
    }

    fn no_events_text(&self, days: u32) -> String {
        let days = phrases::count(u64::from(days), "day", "days");
        match self.event.join(" ").as_str() {
            "" => format!("nothing happened that concerns them in the last {days}"),
            event => format!(
                "{event} is not on their stacks of the last {days}: it never concerned them, is \
                 older, or is not fanned out yet (tidings status)"
            ),
        }
    }
}

/// Writes the user's record, settings and obstacles to their emails.
fn show_user(
    explained: &Explanation,
    now: DateTime<Utc>,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    let name = phrases::list([explained.name.clone(), explained.email.clone()]);
    screen.line(format!("{}  {name}", explained.user).trim_end())?;
    for UnreadableField { field, why } in &explained.unreadable {
        let line = format!("{field} of their record cannot be read, so the default is used: {why}");
        screen.line(format!("  {line}"))?;
    }
    let turned_off = phrases::list(explained.turned_off.iter().map(|kind| Some(kind.to_string())));
    let (digest, locale) = (explained.digest.as_ref(), explained.locale.as_ref());
    let (mut facts, mut obstacles) = (Table::facts(), Vec::new());
    facts.add("  digest", digest.map(|digest| schedule_text(digest, now)));
    facts.add("  locale", locale.map(ToString::to_string));
    if !turned_off.is_empty() {
        facts.add("  off", format!("{turned_off}, as they chose"));
    }
    match &explained.brand {
        Some(BrandView { name, configured: true }) => facts.add("  brand", name.to_string()),
        Some(BrandView { name, configured: false }) => obstacles.push(format!(
            "no email is sent: the brand {name} is not configured, so their emails wait"
        )),
        None => {}
    }
    screen.table(&facts)?;
    obstacles.extend(explained.unsubscribed.map(|at| {
        let at = phrases::minute(at);
        format!("unsubscribed from everything on {at} UTC")
    }));
    let unmailable = explained.unmailable.iter();
    obstacles.extend(unmailable.map(|why| format!("no email is sent: {why}")));
    obstacles.extend(explained.suppression.as_ref().map(suppression_text));
    Ok(obstacles.iter().try_for_each(|obstacle| screen.paragraph(obstacle))?)
}

/// Describes a batch: `5352… open, 3 events, closes 2014-04-19 10:05 UTC, key ArtworkPublished`.
fn batch_text(batch: &BatchView) -> String {
    let BatchView { id, key, state, .. } = batch;
    let (events, closes) = (phrases::events(batch.count), phrases::minute(batch.closes_at));
    format!("{id} {state}, {events}, closes {closes} UTC, key {key}")
}

/// Describes a suppression: `their address: hard_bounce since 2014-04-22 12:00 UTC, from mailgun
/// (550 5.1.1); tidings suppressions lift ends it`.
fn suppression_text(suppression: &SuppressionView) -> String {
    let SuppressionView { reason, source, .. } = suppression;
    let at = phrases::minute(suppression.at);
    let detail = suppression.detail.as_ref().map_or(String::new(), |detail| format!(" ({detail})"));
    let since = format!("their address: {reason} since {at} UTC, from {source}{detail}");
    format!("{since}; tidings suppressions lift ends it")
}

/// Describes a schedule: `weekly, Mondays at 09:00 Europe/Lisbon; next 2014-04-28 08:00 UTC`.
fn schedule_text(digest: &DigestView, now: DateTime<Utc>) -> String {
    let (hour, tz) = (digest.schedule.hour, digest.tz);
    let day = match digest.schedule.cadence {
        Cadence::Never => return "never".into(),
        Cadence::Daily => "daily".to_owned(),
        Cadence::Weekly => format!("weekly, {}s", weekday(digest.schedule.weekday)),
    };
    let next = match digest.next_due {
        Some(due) if due <= now => {
            let how = "tidings digest sends it now, a worker within digest.full_scan";
            format!("; due since {} UTC: {how}", phrases::minute(due))
        }
        Some(due) => format!("; next {} UTC", phrases::minute(due)),
        None => String::new(),
    };
    format!("{day} at {hour:02}:00 {tz}{next}")
}

fn weekday(day: Weekday) -> String {
    let date = NaiveDate::from_isoywd_opt(2014, 1, day);
    date.map_or(day.to_string(), |date| date.format("%A").to_string())
}

/// Describes what covers an event: `was shown in digest:mara:weekly:2014-W17, sent 2014-04-21
/// 09:00`.
fn covered_text(by: &CoveredBy) -> String {
    match by {
        CoveredBy::Email { delivery, state, at, place, excluded } => {
            let verb = match place {
                EmailPlace::Shown => "was shown in",
                EmailPlace::Counted => "was counted (\"+N more\") in",
                EmailPlace::Excluded => "was left out of",
                EmailPlace::Unknown => "was covered by",
            };
            let why = excluded.map_or(String::new(), |why| format!(": it {}", why.sentence()));
            let at = phrases::minute(*at);
            format!("{verb} {delivery}, {} {at}{why}", state.as_str())
        }
        CoveredBy::Flush { at } => format!("was flushed on {}", phrases::minute(*at)),
        CoveredBy::OlderWriter { at } => {
            let date = at.map_or(String::new(), |at| format!(", of {}", phrases::minute(at)));
            format!("is covered by a marker of an older writer{date}")
        }
    }
}

/// Describes an event's outcome with its exceptions: `will be in the next digest; mandatory, so
/// their choices do not count; not in the feed`.
fn event_text(fate: &ExplainedEvent, now: DateTime<Utc>) -> String {
    let mut clauses = vec![outcome_text(fate, now)];
    if fate.mandatory {
        clauses.push("mandatory, so their choices do not count".to_owned());
    }
    if !fate.in_feed {
        clauses.push("not in the feed".to_owned());
    }
    phrases::clauses(clauses)
}

/// Describes a delivery: `digest:ada:weekly:2014-W17 (pending): 451 4.7.1 greylisted; next attempt
/// 09:08:14 UTC`.
fn delivery_text(delivery: &ExplainedDelivery, now: DateTime<Utc>) -> String {
    let (id, state, reason) = (&delivery.id, delivery.state, &delivery.reason);
    let at = delivery.next_attempt.map(|at| phrases::second(at, now));
    let next = match (&delivery.leased_by, at) {
        (Some(worker), Some(until)) => format!("leased by worker {worker} until {until}"),
        (_, Some(at)) => format!("next attempt {at}"),
        (_, None) if state.is_settled() => return format!("{id} {}: {reason}", state.as_str()),
        (_, None) => "next attempt with the next run or by a worker".to_owned(),
    };
    format!("{id} ({}): {reason}; {next}", state.as_str())
}

/// Describes an event's outcome: `is in the open batch 5352…, which closes 2014-04-19 10:05`.
fn outcome_text(fate: &ExplainedEvent, now: DateTime<Utc>) -> String {
    if let Some(by) = &fate.covered {
        return covered_text(by);
    }
    match (fate.status, &fate.delivery, &fate.batch) {
        (EventStatus::Emailed, _, Some(batch)) => {
            let sent = batch.settled.map(|at| format!(", sent {}", phrases::minute(at)));
            format!("was emailed in batch:{}{}", batch.id, sent.unwrap_or_default())
        }
        (EventStatus::InOpenBatch, _, Some(batch)) => {
            let (id, closes) = (batch.id, phrases::minute(batch.closes_at));
            let why = batch.deferred_until.map_or("", |_| ", when quiet hours end");
            format!("is in the open batch {id}, which closes {closes}{why}")
        }
        (EventStatus::NextDigest, Some(failed), _) => {
            format!("{}; {}", fate.status.sentence(), delivery_text(failed, now))
        }
        (_, Some(delivery), _) => format!("waits in {}", delivery_text(delivery, now)),
        (EventStatus::InClosingBatch, None, Some(batch)) => {
            format!("is in batch {}, which is being emailed", batch.id)
        }
        (EventStatus::NotEmailed, _, Some(batch)) => match &batch.reason {
            Some(reason) => format!("was not emailed: {reason}"),
            None => "was not emailed: its batch was canceled".to_owned(),
        },
        (why, ..) => why.sentence().to_owned(),
    }
}

/// Writes an event on one line, and its outcome on the lines below.
fn show_event(
    fate: &ExplainedEvent,
    now: DateTime<Utc>,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    let columns: &[Column<&ExplainedEvent>] = &[
        Column("", Full, |fate| format!("{} UTC", phrases::minute(fate.at))),
        Column("", Cut, |fate| match &fate.title {
            Some(title) => title.clone(),
            None => fate.object.to_string(),
        }),
        Column("", Cut, |fate| fate.kind.clone()),
        Column("", Full, |fate| fate.position.to_string()),
    ];
    screen.section(&Table::new([fate], columns))?;
    Ok(screen.paragraph(&event_text(fate, now))?)
}
