//! The mail of a row of the ledger as it was, or as it would be if it left now.
//!
//! The rule: nothing is written, not even the secret that links are made with: links to stop mails
//! are places without an address. What the mail tells is read as [`Compose::build`] reads it: what
//! its markers cover is told, and objects as they are now. Whoever wants no mail is shown what is
//! mandatory; where nothing is, what they would get otherwise, with why they do not. What was
//! mailed was all of it, unless what was not seen, or what is mandatory, is as much as the row says
//! it told.

use super::{Allowed, Compose, Spread};
use crate::domain::content::Item;
use crate::domain::user::Extent;
use crate::domain::{Content, Delivery, DeliveryState, EventType, Occasion, User};
use crate::mail::Place;
use crate::services::Result;
use crate::services::suppressions::Suppressed;
use crate::wire::delivery::{Preview, Shown, Story};

/// How much of what a row covers its mail tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    extent: Extent,
    /// Whether what was seen is part of it where that is left out of mails.
    seen: bool,
}

impl Part {
    const WHOLE: Self = Self::of(Extent::All);

    const fn of(extent: Extent) -> Self {
        let seen = true;
        Self { extent, seen }
    }

    /// Without what was seen.
    const fn unseen(self) -> Self {
        let seen = false;
        Self { seen, ..self }
    }
}

impl Compose {
    /// All that is known of a delivery.
    pub async fn story(&self, row: Delivery) -> Result<Story> {
        let users = self
            .directory
            .users(std::slice::from_ref(&row.user))
            .await?;
        let suppressed = Suppressed::among(&*self.suppressions, users.iter().flatten()).await?;
        let allowed = match (users.first(), row.state.settled()) {
            (Some(user), false) => Some(self.allowed(&row, user.as_ref(), &suppressed)),
            _ => None,
        };
        let (by_wish, barred) = match allowed {
            Some(Ok(Allowed { barred, .. })) => (barred.is_some(), barred),
            Some(Err(why)) => (false, Some(why)),
            None => (false, None),
        };
        let obliged = match by_wish {
            true => self
                .preview(&row, &users, Part::of(Extent::Mandatory).unseen())
                .await?
                .ok(),
            false => None,
        };
        let barred = barred.filter(|_| obliged.is_none());
        let mail = match obliged {
            Some(mail) => Ok(mail),
            None if row.state.settled() => self.preview(&row, &users, Part::WHOLE).await?,
            None => self.preview(&row, &users, Part::WHOLE.unseen()).await?,
        };
        let address = users.iter().flatten().find_map(|user| user.email.as_ref());
        Ok(Story {
            to: address.map(ToString::to_string),
            held_by: row.lease.as_ref().map(|lease| lease.owner.clone()),
            held_until: row.lease.as_ref().map(|lease| lease.until),
            barred,
            no_mail: mail.as_ref().err().cloned(),
            mail: mail.ok(),
            row: row.into(),
        })
    }

    /// What it holds, or why there is nothing to show.
    async fn preview(
        &self,
        row: &Delivery,
        users: &[Option<User>],
        part: Part,
    ) -> Result<std::result::Result<Preview, String>> {
        let none = |why: &str| Ok(Err(why.to_owned()));
        if row.state == DeliveryState::Canceled {
            return none("it was canceled, so there was no mail");
        }
        let Some(Some(user)) = users.first() else {
            return none("the person's record is gone");
        };
        let rows = std::slice::from_ref(row);
        let mut catalog = self.catalog.of_mails();
        let mut stacks = self.read(rows, Spread::Sparse, &mut catalog).await?;
        if !part.seen {
            // Of a mail that left nothing is pending, and what was seen counts all the same.
            let is_seen = self.skip_seen.of(&row.user).await?;
            for person in &mut stacks {
                person.leave_out(|place, _| is_seen(place));
            }
        }
        let extent = part.extent;
        let wanted: Vec<_> = stacks
            .iter()
            .flat_map(|stacks| self.wanted(row, stacks, user, extent))
            .collect();
        catalog
            .load(wanted.iter().map(|pending| pending.event))
            .await?;
        let at = row.tried.unwrap_or_else(|| self.clock.now());
        let gathered = self.gathered(rows, users, &[extent], &mut catalog).await?;
        let told = self.told(row, &wanted, &gathered, &catalog);
        let is_more = |told: &Content| told.total > u64::from(row.items);
        if part == Part::WHOLE && row.state.settled() && told.as_ref().is_some_and(is_more) {
            let obliged = Part::of(Extent::Mandatory);
            for part in [part.unseen(), obliged, obliged.unseen()] {
                let mail = Box::pin(self.preview(row, users, part)).await?;
                let told = |mail: &Preview| mail.items.len() as u64 + mail.more;
                if let Ok(mail) = mail
                    && told(&mail) == u64::from(row.items)
                {
                    return Ok(Ok(mail));
                }
            }
        }
        let Some(content) = told else {
            return none(match row.occasion {
                Occasion::Digest { .. } => "nothing of it is on their stacks any more, or applies",
                Occasion::Batch { .. } => "nothing is left of its batch that applies",
            });
        };
        Ok(self
            .rendered(user, &content, &row.occasion, at)
            .map(|written| {
                let words = written.content.with(Place::nowhere);
                Preview {
                    subject: words.subject,
                    text: words.text,
                    html: words.html,
                    items: content.items().map(shown).collect(),
                    more: content.more(),
                }
            })
            .map_err(|error| format!("it cannot be rendered: {error}")))
    }
}

fn shown((kind, item): (&EventType, &Item)) -> Shown {
    Shown {
        kind: kind.clone(),
        object: item.id.clone(),
        title: item.object.title.clone(),
    }
}
