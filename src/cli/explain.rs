//! `tidings explain`: why somebody did or did not get something.

use chrono::{DateTime, Utc};
use clap::Args as Arguments;

use super::batches;
use super::deliveries;
use super::exit::Exit;
use super::ink::Ink;
use super::screen::Screen;
use super::table::{Column, Table};
use super::words;
use crate::app::App;
use crate::domain::{Cadence, UserId};
use crate::wire::explanation::{BrandView, By, DigestView, Explanation, Fate, Place, Why};
use crate::wire::suppression::SuppressionView;

/// Explain why a person does or does not get something
///
/// Shows their record, every event of the window and what becomes of it, and their latest mails.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    user: UserId,
    /// Only this event: an item such as 20140422.17, an object's id, or a type and an id
    #[arg(num_args = 0..=2, value_name = "WHAT")]
    event: Vec<String>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn run(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        let event = self.event.last().map(String::as_str);
        let mut explained = app.explain().user(&self.user, event).await?;
        if let [kind, _] = &self.event[..] {
            explained.events.retain(|fate| fate.kind == *kind);
        }
        if self.json {
            screen.json(&explained)?;
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
        if !explained.batches.is_empty() && event.is_none() {
            screen.line("")?;
            screen.table(&batches::table(&explained.batches))?;
        }
        if !explained.deliveries.is_empty() && event.is_none() {
            screen.line("")?;
            screen.table(&deliveries::table(&explained.deliveries))?;
        }
        Ok(Exit::Done)
    }

    fn nothing(&self, days: u32) -> String {
        let days = words::count(u64::from(days), "day", "days");
        let event = (!self.event.is_empty()).then(|| self.event.join(" "));
        match event {
            Some(event) => format!(
                "{event} is not on their stacks of the last {days}: it never concerned them, is older, or it is \
                 still to be fanned out (tidings status)"
            ),
            None => format!("nothing happened that concerns them in the last {days}"),
        }
    }
}

fn person(explained: &Explanation, now: DateTime<Utc>, screen: &mut Screen) -> anyhow::Result<()> {
    let mut head = screen.ink(Ink::Strong, &explained.user);
    let about = words::list([explained.name.clone(), explained.email.clone()]);
    if !about.is_empty() {
        head = format!("{head}  {about}");
    }
    screen.line(head)?;
    if let Some(digest) = &explained.digest {
        screen.line(format!("  digest  {}", when(digest, now)))?;
    }
    if let Some(locale) = &explained.locale {
        screen.line(format!("  locale  {locale}"))?;
    }
    if !explained.turned_off.is_empty() {
        let off = explained.turned_off.iter().map(ToString::to_string);
        let off: Vec<String> = off.collect();
        screen.line(format!("  off     {}, as they chose", off.join(", ")))?;
    }
    if let Some(BrandView { name, configured }) = &explained.brand {
        screen.line(match configured {
            true => format!("  brand   {name}"),
            false => {
                let line =
                    format!("no mail leaves: the brand {name} is not configured, so they wait");
                format!("  {}", screen.ink(Ink::Warning, line))
            }
        })?;
    }
    if let Some(when) = explained.unsubscribed {
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
fn since(suppression: &SuppressionView) -> String {
    let SuppressionView { reason, source, .. } = suppression;
    let at = words::minute(suppression.at);
    let detail = suppression.detail.as_ref();
    let detail = detail.map_or(String::new(), |detail| format!(" ({detail})"));
    format!(
        "their address: {reason} since {at} UTC, from {source}{detail}; tidings suppressions lift ends it"
    )
}

/// `weekly, Mondays at 09:00 Europe/Lisbon; next 2014-04-28 08:00 UTC`.
fn when(digest: &DigestView, now: DateTime<Utc>) -> String {
    let (hour, tz) = (digest.schedule.hour, digest.tz);
    let day = match digest.schedule.cadence {
        Cadence::Never => return "never".into(),
        Cadence::Daily => "daily".to_owned(),
        Cadence::Weekly => format!("weekly, {}s", weekday(&digest.schedule.weekday)),
    };
    let next = match digest.next_due {
        Some(due) if due <= now => {
            let since = words::minute(due);
            format!("; due since {since} UTC, and mailed by the next run")
        }
        Some(next) => format!("; next {} UTC", words::minute(next)),
        None => String::new(),
    };
    format!("{day} at {hour:02}:00 {tz}{next}")
}

fn weekday(short: &str) -> &str {
    [
        "Monday",
        "Tuesday",
        "Wednesday",
        "Thursday",
        "Friday",
        "Saturday",
        "Sunday",
    ]
    .into_iter()
    .find(|day| day.to_lowercase().starts_with(short))
    .unwrap_or(short)
}

/// `was shown in digest:mara:weekly:2014-W17, sent 2014-04-21 09:00`.
fn dealt_with(by: &By) -> String {
    match by {
        By::Mail {
            delivery,
            state,
            at,
            place,
            left_out,
        } => {
            let place = match place {
                Place::Shown => "was shown in",
                Place::Counted => "was counted (\"+N more\") in",
                Place::LeftOut => "was covered and not told by",
                Place::Unknown => "was covered by",
            };
            let why = left_out.map_or(String::new(), |why| format!(": {}", why.sentence()));
            let at = words::minute(*at);
            format!("{place} {delivery}, {} {at}{why}", state.as_str())
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

/// `will be in the next digest; mandatory, so their choices do not count; not in the feed`.
fn told(fate: &Fate) -> String {
    let mut told = becomes(fate);
    if fate.mandatory {
        told.push_str("; mandatory, so their choices do not count");
    }
    if !fate.in_feed {
        told.push_str("; not in the feed");
    }
    told
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
            let why = batch.held_until.map_or("", |_| ", when quiet hours end");
            format!(
                "is in the open batch {}, which closes {closes}{why}",
                batch.id
            )
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
            told(fate),
            fate.position.to_string(),
        ]);
    }
    table
}
