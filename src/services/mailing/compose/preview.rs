//! The mail of a row of the ledger as it was, or as it would be if it left now.
//!
//! The rule: nothing is written, not even the secret that links are made with: links to stop mails
//! are places without an address. What the mail tells is read as [`Compose::build`] reads it: what
//! its markers cover is told, and objects as they are now.

use serde::Serialize;

use super::{Compose, Spread};
use crate::domain::content::Item;
use crate::domain::digest::wanted_by;
use crate::domain::{Delivery, DeliveryState, EventType, ObjectId, Occasion, User};
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
        let gathered = self.gathered(rows, users, &mut catalogue).await?;
        let Some(content) = self.told(row, &wanted, &gathered, &catalogue) else {
            return none(match row.occasion {
                Occasion::Digest { .. } => "nothing of it is on their stacks any more, or applies",
                Occasion::Batch { .. } => "nothing is left of its batch that applies",
            });
        };
        Ok(match self.rendered(user, &content, &row.occasion, at) {
            Ok(written) => {
                let words = written.content.with(Place::nowhere);
                Looked::Mail(Box::new(Preview {
                    subject: words.subject,
                    text: words.text,
                    html: words.html,
                    items: content.items().map(shown).collect(),
                    more: content.more(),
                }))
            }
            Err(error) => Looked::None(format!("it cannot be rendered: {error}")),
        })
    }
}

fn shown((kind, item): (&EventType, &Item)) -> Shown {
    Shown {
        kind: kind.clone(),
        object: item.id.clone(),
        title: item.object.title.clone(),
    }
}
