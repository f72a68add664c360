//! The mail of a row of the ledger as it was, or as it would be if it left now.
//!
//! The rule: nothing is written, not even the secret that links are made with: links to stop mails
//! are places without an address. What the mail tells is read as [`Compose::build`] reads it: what
//! its markers cover is told, and objects as they are now.

use serde::Serialize;

use super::{Compose, Spread, Written};
use crate::domain::bulletin;
use crate::domain::digest::{assemble, wanted_by};
use crate::domain::{Delivery, DeliveryState, Event, EventType, ObjectId, Occasion, User};
use crate::mail::Place;
use crate::services::Result;
use crate::services::catalogue::Catalogue;
use crate::services::suppressions::Suppressed;

/// What a mail holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Preview {
    /// The subject line.
    pub subject: String,
    /// The plain text part; links to stop mails lead nowhere.
    pub text: String,
    /// The HTML part; links to stop mails lead nowhere.
    pub html: String,
    /// What it shows, section by section.
    pub items: Vec<Shown>,
    /// How many more events it counts ("+N more").
    pub more: u64,
}

/// One thing that a mail shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// The event's type; `type` in JSON.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// What the event is about.
    pub object: ObjectId,
    /// The object's title now, if it has one.
    pub title: Option<String>,
}

/// A mail, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Looked {
    /// What it holds, with objects as they are now.
    Mail(Box<Preview>),
    /// Why there is nothing to show, for people to read.
    None(String),
}

/// A row, whose mail it is, and the mail.
#[derive(Debug)]
pub struct Story {
    /// The row as it was read.
    pub row: Delivery,
    /// `None` if their record is gone.
    pub user: Option<User>,
    /// What the row covers, as far as it can still be told.
    pub mail: Looked,
    /// Why it would not leave now, whatever it holds; only of rows that are not settled.
    pub barred: Option<String>,
}

impl Compose {
    /// All that is known of a delivery.
    pub async fn story(&self, row: Delivery) -> Result<Story> {
        let users = self
            .directory
            .users(std::slice::from_ref(&row.user))
            .await?;
        let suppressed = Suppressed::among(&*self.suppressions, users.iter().flatten()).await?;
        let mail = self.preview(&row, &users).await?;
        let barred = match (users.first(), row.state.settled()) {
            (Some(user), false) => self.allowed(&row, user.as_ref(), &suppressed).err(),
            _ => None,
        };
        Ok(Story {
            mail,
            barred,
            user: users.into_iter().next().flatten(),
            row,
        })
    }

    async fn preview(&self, row: &Delivery, users: &[Option<User>]) -> Result<Looked> {
        let none = |why: &str| Ok(Looked::None(why.to_owned()));
        if row.state == DeliveryState::Canceled {
            return none("it was canceled, so there was no mail");
        }
        let Some(Some(user)) = users.first() else {
            return none("the person's record is gone");
        };
        let rows = std::slice::from_ref(row);
        let stacks = self.read(rows, Spread::Sparse).await?;
        let wanted: Vec<_> = stacks
            .iter()
            .flat_map(|stacks| wanted_by(row, stacks, user, &self.policies))
            .collect();
        let mut catalogue = Catalogue::new(self.objects.clone(), self.policies.clone());
        catalogue
            .load(wanted.iter().map(|pending| pending.event))
            .await?;
        let at = row.tried.unwrap_or_else(|| self.clock.now());
        let applies = |event: &Event| catalogue.applies(event);
        let (rendered, items, total) = match &row.occasion {
            Occasion::Digest { cadence, period } => {
                let Some(digest) = assemble(&wanted, &self.policies, self.caps, applies) else {
                    return none("nothing of it is on their stacks any more, or applies");
                };
                let sections = digest.sections.iter();
                let items = sections.flat_map(|section| &section.items);
                let items: Vec<Shown> = items
                    .map(|item| shown(&item.kind, &item.id, item.object.title.as_deref()))
                    .collect();
                let rendered = self.rendered(user, &digest, (*cadence, period), at);
                (rendered, items, digest.total as u64)
            }
            Occasion::Batch { batch, .. } => {
                let gathered = self.gathered(rows, users, &mut catalogue).await?;
                let applies = |event: &Event| catalogue.applies(event);
                let told = gathered.get(batch).and_then(|of| {
                    bulletin::gather(&of.key, &of.items, of.not_kept, &self.policies, applies)
                });
                let Some(bulletin) = told else {
                    return none("nothing is left of its batch that applies");
                };
                let sections = bulletin.sections.iter();
                let items: Vec<Shown> = sections
                    .flat_map(|section| section.items().map(move |item| (&section.kind, item)))
                    .map(|(kind, item)| shown(kind, &item.id, item.object.title.as_deref()))
                    .collect();
                let rendered = self.batch_written(user, &bulletin, at);
                (rendered, items, bulletin.total)
            }
        };
        Ok(match rendered {
            Ok(rendered) => Looked::Mail(Box::new(preview(rendered, items, total))),
            Err(error) => Looked::None(format!("it cannot be rendered: {error}")),
        })
    }
}

fn shown(kind: &EventType, object: &ObjectId, title: Option<&str>) -> Shown {
    Shown {
        kind: kind.clone(),
        object: object.clone(),
        title: title.map(str::to_owned),
    }
}

fn preview(written: Written, items: Vec<Shown>, total: u64) -> Preview {
    let shown = written.content.with(Place::nowhere);
    Preview {
        more: total.saturating_sub(items.len() as u64),
        subject: shown.subject,
        text: shown.text,
        html: shown.html,
        items,
    }
}
