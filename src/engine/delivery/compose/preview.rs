//! Previews the email of a delivery: as it was sent, or as it would be sent now.
//!
//! It writes nothing, not even the secret that signs links: unsubscribe links lead nowhere. Objects
//! are current, but retractions after a sent email are ignored. For a sent email, it tries the
//! choices and mutes that the user may have had. It shows the first result with as many events as
//! the row recorded. Start with [`Compose::story`].

use super::{Allowed, Compose, Selection};
use crate::domain::{BrandName, Delivery, DeliveryState, EmailScope, Mutes, Occasion, User};
use crate::email::Place;
use crate::engine::Result;
use crate::engine::eligibility;
use crate::engine::eligibility::catalog::StackEvents;
use crate::engine::feedback::suppressions::Suppressed;
use crate::wire::delivery::{Preview, Shown, Story};

const WANTED: Selection = Selection::Wanted(EmailScope::All);
const WITH_MUTED: Selection = Selection::WithMuted(EmailScope::All);
const MANDATORY: Selection = Selection::Wanted(EmailScope::MandatoryOnly);

/// Whether an email includes events that were seen in the feed. It may skip them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Included,
    Skipped,
}

/// An email, or the reason why there is nothing to show.
type Previewed = std::result::Result<Preview, String>;

impl Compose {
    /// Describes a delivery, with its email as its brand renders it. If the user may only get
    /// mandatory types, the email has only those. If it has none, the full email is shown, with the
    /// reason why the user does not get it.
    pub async fn story(&self, row: Delivery) -> Result<Story> {
        let brand = self.brands_of(std::slice::from_ref(&row)).await?.pop();
        let brand = brand.flatten();
        if let Some(own) = self.of_brand(brand.as_ref()) {
            return own.story_of(row).await;
        }
        let mut story = self.story_of(row).await?;
        let why = brand.as_ref().map(BrandName::absent).unwrap_or_default();
        (story.mail, story.no_mail) = (None, Some(why.clone()));
        let barred = story.barred.or(Some(why));
        story.barred = barred.filter(|_| !story.row.state.settled());
        Ok(story)
    }

    async fn story_of(&self, row: Delivery) -> Result<Story> {
        let (store, is_settled) = (&self.context.store, row.state.settled());
        let mut users = store.users(std::slice::from_ref(&row.user)).await?;
        if is_settled {
            let known = users.iter_mut().flatten();
            known.for_each(|user| user.mutes.as_of(row.built_at()));
        }
        let suppressed = Suppressed::among(&**store, users.iter().flatten()).await?;
        let (mut barred, mut mandatory) = (None, None);
        if let (Some(user), false) = (users.first(), is_settled) {
            match self.allowed(&row, user.as_ref(), &suppressed) {
                Ok(Allowed { barred: None, .. }) => {}
                Ok(Allowed { barred: why, .. }) => {
                    let email = self.preview(&row, &users, MANDATORY, Seen::Skipped);
                    mandatory = email.await?.ok();
                    barred = why.filter(|_| mandatory.is_none());
                }
                Err(why) => barred = Some(why),
            }
        }
        let mail = match mandatory {
            Some(mail) => Ok(mail),
            None if is_settled => self.as_sent(&row, &users).await?,
            None => self.preview(&row, &users, WANTED, Seen::Skipped).await?,
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

    /// Previews the email of a settled row, as far as it can be reconstructed.
    async fn as_sent(&self, row: &Delivery, users: &[Option<User>]) -> Result<Previewed> {
        let whole = self.preview(row, users, WANTED, Seen::Included).await?;
        let fits = |mail: &Preview| mail.events() == u64::from(row.outcome.items);
        if row.outcome.items == 0 || whole.as_ref().is_ok_and(fits) {
            return Ok(whole);
        }
        for (selection, seen) in [
            (WITH_MUTED, Seen::Included),
            (WANTED, Seen::Skipped),
            (WITH_MUTED, Seen::Skipped),
            (MANDATORY, Seen::Included),
            (MANDATORY, Seen::Skipped),
            (Selection::All, Seen::Included),
            (Selection::All, Seen::Skipped),
        ] {
            let mail = self.preview(row, users, selection, seen).await?;
            if mail.as_ref().is_ok_and(fits) {
                return Ok(mail);
            }
        }
        match whole {
            Ok(whole) => Ok(Ok(whole)),
            Err(_) => {
                self.preview(row, users, Selection::All, Seen::Included)
                    .await
            }
        }
    }

    /// Renders a selection of the events that a row covers.
    async fn preview(
        &self,
        row: &Delivery,
        users: &[Option<User>],
        selection: Selection,
        seen: Seen,
    ) -> Result<Previewed> {
        let none = |why: &str| Ok(Err(why.to_owned()));
        if row.state == DeliveryState::Canceled {
            return none("it was canceled, so there was no mail");
        }
        let Some(Some(user)) = users.first() else {
            return none("the person's record is gone");
        };
        let rows = std::slice::from_ref(row);
        let at = row.attempts.called_at;
        let at = at.unwrap_or_else(|| self.context.clock.now());
        let mut catalog = self.catalog.of_mails();
        if row.state.flushes() {
            catalog = catalog.for_mail_of(at);
        }
        let mut stacks = self.read(rows).await?;
        let inboxes = match seen {
            Seen::Included => vec![None],
            Seen::Skipped => {
                let user = std::slice::from_ref(&row.user);
                eligibility::load_inboxes(&self.context, user).await?
            }
        };
        let mut without_mutes = users.to_vec();
        if !matches!(selection, Selection::Wanted(_)) {
            let users = without_mutes.iter_mut().flatten();
            users.for_each(|user| user.mutes = Mutes::default());
        }
        let which = StackEvents::All;
        eligibility::exclude(&mut stacks, &without_mutes, &inboxes, which, &mut catalog).await?;
        let selections = [selection];
        let chosen = self.choose(rows, users, &stacks, &selections, &mut catalog);
        let chosen = chosen.await?;
        if selection == Selection::All {
            let wanted = stacks
                .iter()
                .flat_map(|of| self.wanted(row, of, user, WITH_MUTED));
            let applies: Vec<bool> = wanted
                .map(|of| catalog.applies(of.event).is_some())
                .collect();
            if applies.contains(&true) && applies.contains(&false) {
                // Events are missing because their objects were withdrawn, not because of the
                // user's choices.
                return none("what it told cannot be said any more");
            }
        }
        let Some(content) = self.content(row, &chosen, 0, &catalog) else {
            return none(match row.occasion {
                Occasion::Digest { .. } => "nothing of it is on their stacks any more, or applies",
                Occasion::Batch { .. } => "nothing is left of its batch that applies",
            });
        };
        let items = content.items().map(|(kind, item)| Shown {
            kind: kind.clone(),
            object: item.id.clone(),
            title: item.object.title.clone(),
        });
        let written = self.rendered(user, &content, &row.occasion, at);
        Ok(written
            .map(|written| {
                let words = written.content.with(Place::nowhere);
                Preview {
                    subject: words.subject,
                    text: words.text,
                    html: words.html,
                    items: items.collect(),
                    more: content.more(),
                }
            })
            .map_err(|error| format!("it cannot be rendered: {error}")))
    }
}
