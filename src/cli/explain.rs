//! `tidings explain`: why somebody did or did not get something.

use chrono::{DateTime, Utc};
use clap::Args as Arguments;
use serde::Serialize;

use super::batches;
use super::deliveries;
use super::exit::Exit;
use super::ink::Ink;
use super::screen::Screen;
use super::table::{Column, Table};
use super::words;
use crate::app::App;
use crate::domain::{Cadence, Delivery, Reason, ReportKind, Schedule, Suppression, UserId};
use crate::services::batches::BatchView;
use crate::services::explain::{By, Explanation, Fate, InBatch, Place, Why};

/// Explain why a person does or does not get something
///
/// Shows their record, every event of the window and what becomes of it, and their latest mails.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    user: UserId,
    /// Only this event: an object's id, or an item such as 20140422.17
    event: Option<String>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// What a script is told.
#[derive(Serialize)]
struct Answer<'a> {
    user: &'a UserId,
    known: bool,
    email: Option<String>,
    unmailable: Option<&'a str>,
    suppression: Option<Suppressed<'a>>,
    /// When they unsubscribed from everything.
    unsubscribed: Option<DateTime<Utc>>,
    digest: Option<Digest>,
    events: Vec<Event<'a>>,
    full_days: Vec<String>,
    /// What gathers for them, or is being mailed.
    batches: &'a [BatchView],
    deliveries: Vec<Mail<'a>>,
}

#[derive(Serialize)]
struct Suppressed<'a> {
    reason: Reason,
    at: DateTime<Utc>,
    source: &'a str,
    detail: Option<&'a str>,
}

#[derive(Serialize)]
struct Digest {
    cadence: Cadence,
    weekday: String,
    hour: u8,
    tz: &'static str,
    next_due: Option<DateTime<Utc>>,
}

#[derive(Serialize)]
struct Event<'a> {
    id: String,
    #[serde(rename = "type")]
    kind: &'a str,
    object: &'a str,
    title: Option<&'a str>,
    at: DateTime<Utc>,
    why: Why,
    batch: Option<&'a InBatch>,
    covered: Option<&'a By>,
}

#[derive(Serialize)]
struct Mail<'a> {
    id: &'a str,
    state: &'static str,
    items: u32,
    attempts: u32,
    created: DateTime<Utc>,
    settled: Option<DateTime<Utc>>,
    provider_id: Option<&'a str>,
    reason: Option<&'a str>,
    feedback: Option<ReportKind>,
    feedback_at: Option<DateTime<Utc>>,
}

impl<'a> From<&'a Explanation> for Answer<'a> {
    fn from(e: &'a Explanation) -> Self {
        let record = e.record.as_ref();
        Self {
            user: &e.user,
            known: record.is_some(),
            email: record
                .and_then(|user| user.email.as_ref())
                .map(ToString::to_string),
            unmailable: e.unmailable.as_deref(),
            suppression: e.suppression.as_ref().map(|one| Suppressed {
                reason: one.reason,
                at: one.at,
                source: &one.source,
                detail: one.detail.as_deref(),
            }),
            unsubscribed: record.and_then(|user| user.unsubscribed),
            digest: e.schedule.map(|schedule| Digest {
                cadence: schedule.cadence,
                weekday: schedule.weekday.to_string().to_lowercase(),
                hour: schedule.hour,
                tz: schedule.tz.name(),
                next_due: e.next_due,
            }),
            events: e.events.iter().map(event).collect(),
            full_days: e.full_days.iter().map(ToString::to_string).collect(),
            batches: &e.batches,
            deliveries: e.deliveries.iter().map(mail).collect(),
        }
    }
}

fn event(fate: &Fate) -> Event<'_> {
    Event {
        id: fate.position.to_string(),
        kind: &fate.kind,
        object: fate.object.as_str(),
        title: fate.title.as_deref(),
        at: fate.at,
        why: fate.why,
        batch: fate.batch.as_ref(),
        covered: fate.covered.as_ref(),
    }
}

fn mail(delivery: &Delivery) -> Mail<'_> {
    Mail {
        id: delivery.id.as_str(),
        state: delivery.state.as_str(),
        items: delivery.items,
        attempts: delivery.attempts,
        created: delivery.created,
        settled: delivery.settled,
        provider_id: delivery.provider_id.as_deref(),
        reason: delivery.reason.as_deref(),
        feedback: delivery.feedback.map(|feedback| feedback.news),
        feedback_at: delivery.feedback.map(|feedback| feedback.at),
    }
}

impl Args {
    pub(super) async fn run(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        let explained = app
            .explain()
            .user(&self.user, self.event.as_deref())
            .await?;
        if self.json {
            screen.json(&Answer::from(&explained))?;
            return Ok(Exit::Done);
        }
        person(&explained, app.clock.now(), screen)?;
        if explained.events.is_empty() {
            screen.line("")?;
            screen.line(self.nothing(app.config.window_back + 1))?;
        } else {
            screen.line("")?;
            screen.table(&events(&explained))?;
        }
        for day in &explained.full_days {
            let date = day.start().date_naive();
            screen.line(format!(
                "{date}: their stack is full; what came later that day was not stored"
            ))?;
        }
        if !explained.batches.is_empty() && self.event.is_none() {
            screen.line("")?;
            screen.table(&batches::table(&explained.batches))?;
        }
        if !explained.deliveries.is_empty() && self.event.is_none() {
            screen.line("")?;
            screen.table(&deliveries::table(&explained.deliveries))?;
        }
        Ok(Exit::Done)
    }

    fn nothing(&self, days: u32) -> String {
        let days = words::count(u64::from(days), "day", "days");
        match &self.event {
            Some(event) => format!(
                "{event} is not on their stacks of the last {days}: it never concerned them, is older, or its fan-out is \
                 still to be carried out (tidings status)"
            ),
            None => format!("nothing happened that concerns them in the last {days}"),
        }
    }
}

fn person(explained: &Explanation, now: DateTime<Utc>, screen: &mut Screen) -> anyhow::Result<()> {
    let mut head = screen.ink(Ink::Strong, &explained.user);
    if let Some(user) = &explained.record {
        let address = user.email.as_ref().map(ToString::to_string);
        let about = words::list([user.name.clone(), address]);
        if !about.is_empty() {
            head = format!("{head}  {about}");
        }
    }
    screen.line(head)?;
    if let Some(schedule) = &explained.schedule {
        screen.line(format!(
            "  digest  {}",
            when(schedule, explained.next_due, now)
        ))?;
    }
    let record = explained.record.as_ref();
    if let Some(when) = record.and_then(|user| user.unsubscribed) {
        let when = words::minute(when);
        let line = format!("unsubscribed from everything on {when} UTC");
        screen.line(format!("  {}", screen.ink(Ink::Warning, line)))?;
    }
    if let Some(why) = &explained.unmailable {
        screen.line(format!(
            "  {}",
            screen.ink(Ink::Warning, format!("no mail leaves: {why}"))
        ))?;
    }
    if let Some(suppression) = &explained.suppression {
        screen.line(format!("  {}", since(suppression)))?;
    }
    Ok(())
}

/// `their address: hard_bounce since 2014-04-22 12:00 UTC, from mailgun (550 5.1.1); tidings
/// suppressions lift ends it`.
fn since(suppression: &Suppression) -> String {
    let Suppression { reason, source, .. } = suppression;
    let at = words::minute(suppression.at);
    let detail = suppression.detail.as_ref();
    let detail = detail.map_or(String::new(), |detail| format!(" ({detail})"));
    format!(
        "their address: {reason} since {at} UTC, from {source}{detail}; tidings suppressions lift ends it"
    )
}

/// `weekly, Mondays at 09:00 Europe/Lisbon; next 2014-04-28 08:00 UTC`.
fn when(schedule: &Schedule, next: Option<DateTime<Utc>>, now: DateTime<Utc>) -> String {
    let (hour, tz) = (schedule.hour, schedule.tz.name());
    let day = match schedule.cadence {
        Cadence::Never => return "never".into(),
        Cadence::Daily => "daily".to_owned(),
        Cadence::Weekly => format!("weekly, {}s", weekday(schedule.weekday)),
    };
    let next = match next {
        Some(due) if due <= now => {
            let since = words::minute(due);
            format!("; due since {since} UTC, and mailed by the next run")
        }
        Some(next) => format!("; next {} UTC", words::minute(next)),
        None => String::new(),
    };
    format!("{day} at {hour:02}:00 {tz}{next}")
}

fn weekday(weekday: chrono::Weekday) -> &'static str {
    [
        "Monday",
        "Tuesday",
        "Wednesday",
        "Thursday",
        "Friday",
        "Saturday",
        "Sunday",
    ][weekday.num_days_from_monday() as usize]
}

/// `was shown in digest:mara:weekly:2014-W17, sent 2014-04-21 09:00`.
fn dealt_with(by: &By) -> String {
    match by {
        By::Mail {
            delivery,
            state,
            at,
            place,
        } => {
            let place = match place {
                Place::Shown => "was shown in",
                Place::Counted => "was counted (\"+N more\") in",
                Place::LeftOut => "was covered and not told by",
                Place::Unknown => "was covered by",
            };
            format!(
                "{place} {delivery}, {} {}",
                state.as_str(),
                words::minute(*at)
            )
        }
        By::Flush { at } => format!("was flushed on {}", words::minute(*at)),
        By::OlderWriter { at: Some(at) } => {
            format!(
                "is covered by a marker of an older writer, of {}",
                words::minute(*at)
            )
        }
        By::OlderWriter { at: None } => "is covered by a marker of an older writer".to_owned(),
    }
}

/// `is in the open batch 5352…, which closes 2014-04-19 10:05`.
fn becomes(fate: &Fate) -> String {
    if let Some(by) = &fate.covered {
        return dealt_with(by);
    }
    match (fate.why, &fate.batch) {
        (Why::Mailed, Some(batch)) => {
            let when = batch
                .settled
                .map_or(String::new(), |at| format!(", sent {}", words::minute(at)));
            format!("was mailed in batch:{}{when}", batch.id)
        }
        (Why::Gathering, Some(batch)) => {
            let closes = words::minute(batch.closes_at);
            format!("is in the open batch {}, which closes {closes}", batch.id)
        }
        (Why::Closing, Some(batch)) => format!("is in batch {}, which is being mailed", batch.id),
        (Why::NotMailed, Some(batch)) => match &batch.reason {
            Some(reason) => format!("was not mailed: {reason}"),
            None => "was not mailed: its batch was canceled".to_owned(),
        },
        (why, _) => why.sentence().to_owned(),
    }
}

fn events(explained: &Explanation) -> Table {
    let mut table = Table::new([
        Column::new("when (UTC)").ink(Ink::Faint),
        Column::new("event").ink(Ink::Strong).gives_way(),
        Column::new("type").gives_way(),
        Column::new("it …").gives_way(),
        Column::new("item").ink(Ink::Faint).spare(),
    ]);
    for fate in &explained.events {
        table.row([
            words::minute(fate.at),
            fate.title
                .clone()
                .unwrap_or_else(|| fate.object.to_string()),
            fate.kind.clone(),
            becomes(fate),
            fate.position.to_string(),
        ]);
    }
    table
}
