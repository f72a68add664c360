//! `tidings deliveries show`: the history, content and provider report of an email.

use clap::Args as Arguments;

use crate::app::App;
use crate::cli::exit::{Exit, Usage};
use crate::cli::harmless;
use crate::cli::ink::Ink;
use crate::cli::screen::Screen;
use crate::cli::table::{Column, Table};
use crate::cli::words;
use crate::domain::{DeliveryId, DeliveryState};
use crate::wire::delivery::Story;

#[derive(Debug, Arguments)]
pub(super) struct Show {
    /// The delivery, such as digest:mara:weekly:2014-W17
    id: String,
    /// Answer in JSON, including the HTML part
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) async fn run(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        let id = DeliveryId::stored(self.id.as_str());
        let Some(row) = app.deliveries().get(&id).await? else {
            return Err(Usage::new(format!("there is no delivery {id}"))
                .instead("tidings deliveries, which lists them")
                .into());
        };
        let mut story = app.compose().story(row).await?;
        story.row = story
            .row
            .with_brand(|call| app.identities.brand_of_call(call));
        if self.json {
            screen.json(&story)?;
        } else {
            told(&story, screen)?;
        }
        Ok(Exit::Done)
    }
}

/// Returns the history of a delivery, one row per step.
fn steps(story: &Story) -> Vec<(&'static str, String)> {
    let row = &story.row;
    let minute = |at: Option<chrono::DateTime<chrono::Utc>>| at.map(words::minute);
    let mut steps = vec![("created", words::minute(row.created))];
    if let Some(tried) = minute(row.tried) {
        let times = words::count(u64::from(row.attempts), "attempt", "attempts");
        steps.push(("handed over", format!("{tried} ({times})")));
    }
    if let Some(until) = minute(row.not_before.filter(|_| !row.state.settled())) {
        steps.push(("waits until", until));
    }
    if let (Some(owner), Some(until)) = (&story.held_by, minute(story.held_until)) {
        steps.push(("held by", format!("worker {owner} until {until}")));
    }
    if let Some(settled) = minute(row.settled) {
        steps.push(("settled", settled));
    }
    if let Some(reason) = &row.reason {
        steps.push(("because", reason.clone()));
    }
    if let Some(id) = &row.provider_id {
        steps.push(("provider's id", id.clone()));
    }
    if let (Some(heard), Some(at)) = (row.feedback, minute(row.feedback_at)) {
        steps.push(("reported", format!("{heard} {at}")));
    }
    steps
}

fn told(story: &Story, screen: &mut Screen) -> anyhow::Result<()> {
    let row = &story.row;
    let to = words::list([Some(row.user.to_string()), story.to.clone()]);
    let id = screen.ink(Ink::Strong, &row.id);
    screen.line(format!("{id}  {}  to {to}", words::delivery_state(row)))?;
    let mut table = Table::new([Column::new("").ink(Ink::Faint), Column::new("").gives_way()]);
    for (what, when) in steps(story) {
        table.row([format!("  {what}"), when]);
    }
    if let Some(why) = &story.barred {
        table.row(["  cannot leave".into(), why.clone()]);
    }
    screen.table(&table)?;
    screen.line("")?;
    let Some(mail) = &story.mail else {
        let why = story.no_mail.as_deref().unwrap_or_default();
        screen.line(format!("no mail to show: {why}"))?;
        return Ok(());
    };
    let head = match row.state {
        DeliveryState::Pending => "The mail, if it left now, with objects as they are now:",
        _ => "The mail, as it was built from what it covers, with objects as they are now:",
    };
    screen.line(screen.ink(Ink::Faint, head))?;
    screen.line(screen.ink(Ink::Strong, format!("  {}", mail.subject)))?;
    // An isolated name can be wrapped, so its isolates may be balanced only across several lines.
    for line in harmless::lines(mail.text.trim_end()).lines() {
        screen.line(format!("  {line}").trim_end())?;
    }
    screen.line("")?;
    let mut items = Table::new([
        Column::new("it shows").ink(Ink::Strong).gives_way(),
        Column::new("type").gives_way(),
        Column::new("object").ink(Ink::Faint),
    ]);
    for item in &mail.items {
        let title = item.title.clone();
        items.row([
            title.unwrap_or_else(|| item.object.to_string()),
            item.kind.to_string(),
            item.object.to_string(),
        ]);
    }
    screen.table(&items)?;
    if mail.more > 0 {
        let more = words::count(mail.more, "more event", "more events");
        screen.line(format!("and counts {more}"))?;
    }
    let (told, now) = (u64::from(row.items), mail.events());
    if row.state == DeliveryState::Sent && told != now {
        let told = words::count(told, "event", "events");
        screen.warning(format!(
            "the mail that was sent told {told}: objects have changed since, or were put later"
        ))?;
    }
    Ok(())
}
