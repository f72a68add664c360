//! Previews the email of a delivery: as it was sent, or as it would be sent now.
//!
//! It writes nothing, not even the secret that signs links: unsubscribe links lead nowhere. Objects
//! are current, but retractions after a sent email are ignored. For a sent email, it tries the
//! choices and mutes that the user may have had ([`Part`]). It shows the first result with as many
//! events as the row recorded. Start with [`Compose::story`].

use super::{Allowed, Compose, Spread, Tells, gathered};
use crate::domain::EmailScope;
use crate::domain::content::Item;
use crate::domain::{BrandName, Delivery, DeliveryState, EventType, Mutes, Occasion, User};
use crate::email::Place;
use crate::engine::Result;
use crate::engine::eligibility::catalog::StackEvents;
use crate::engine::eligibility::stacks;
use crate::engine::feedback::suppressions::Suppressed;
use crate::wire::delivery::{Preview, Shown, Story};

/// A selection of the events that a row covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    tells: Tells,
    /// Whether it includes seen events, which emails may skip.
    seen: bool,
}

impl Part {
    const WHOLE: Self = Self::of(Tells::Wanted(EmailScope::All));
    const CHOSEN: Self = Self::of(Tells::Chosen(EmailScope::All));
    const OBLIGED: Self = Self::of(Tells::Wanted(EmailScope::MandatoryOnly));
    const EVERYTHING: Self = Self::of(Tells::All);

    const fn of(tells: Tells) -> Self {
        let seen = true;
        Self { tells, seen }
    }

    /// Returns the same selection without seen events.
    const fn unseen(self) -> Self {
        let seen = false;
        Self { seen, ..self }
    }
}

impl Compose {
    /// Describes a delivery, with its email as its brand renders it. If the user may only get
    /// mandatory types, the email has only those. If it has none, the full email is shown, with the
    /// reason why the user does not get it.
    pub async fn story(&self, row: Delivery) -> Result<Story> {
        let brand = self.brands_of(std::slice::from_ref(&row)).await?.pop();
        let brand = brand.flatten();
        match self.of_brand(brand.as_ref()) {
            Some(own) => own.story_of(row).await,
            None => {
                let mut story = self.story_of(row).await?;
                let why = brand.as_ref().map(BrandName::absent).unwrap_or_default();
                (story.mail, story.no_mail) = (None, Some(why.clone()));
                story.barred = story
                    .barred
                    .or(Some(why))
                    .filter(|_| !story.row.state.settled());
                Ok(story)
            }
        }
    }

    async fn story_of(&self, row: Delivery) -> Result<Story> {
        let store = &self.context.store;
        let mut users = store.users(std::slice::from_ref(&row.user)).await?;
        if row.state.settled() {
            let built = row.built_at();
            let known = users.iter_mut().flatten();
            known.for_each(|user| user.mutes.as_of(built));
        }
        let suppressed = Suppressed::among(&*self.context.store, users.iter().flatten()).await?;
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
                .preview(&row, &users, Part::OBLIGED.unseen())
                .await?
                .ok(),
            false => None,
        };
        let barred = barred.filter(|_| obliged.is_none());
        let mail = match obliged {
            Some(mail) => Ok(mail),
            None if row.state.settled() => self.as_told(&row, &users).await?,
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

    /// Previews the email of a settled row, as far as it can be reconstructed.
    async fn as_told(
        &self,
        row: &Delivery,
        users: &[Option<User>],
    ) -> Result<std::result::Result<Preview, String>> {
        let whole = self.preview(row, users, Part::WHOLE).await?;
        let is_told = |mail: &Preview| mail.events() == u64::from(row.outcome.items);
        if row.outcome.items == 0 || whole.as_ref().is_ok_and(is_told) {
            return Ok(whole);
        }
        for part in [
            Part::CHOSEN,
            Part::WHOLE.unseen(),
            Part::CHOSEN.unseen(),
            Part::OBLIGED,
            Part::OBLIGED.unseen(),
            Part::EVERYTHING,
            Part::EVERYTHING.unseen(),
        ] {
            let mail = self.preview(row, users, part).await?;
            if mail.as_ref().is_ok_and(is_told) {
                return Ok(mail);
            }
        }
        match whole {
            Ok(whole) => Ok(Ok(whole)),
            Err(_) => self.preview(row, users, Part::EVERYTHING).await,
        }
    }

    /// Renders a selection, or returns the reason why there is nothing to show.
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
        let now = self.context.clock.now();
        let at = row.attempts.called_at.unwrap_or(now);
        let mut catalog = self.catalog.of_mails();
        if row.state.flushes() {
            catalog = catalog.for_mail_of(at);
        }
        let mut stacks = self.read(rows, Spread::Sparse).await?;
        let inboxes = match part.seen {
            true => vec![None],
            false => {
                self.skip_seen
                    .inboxes(std::slice::from_ref(&row.user))
                    .await?
            }
        };
        let mut heeding = users.to_vec();
        if !matches!(part.tells, Tells::Wanted(_)) {
            let users = heeding.iter_mut().flatten();
            users.for_each(|user| user.mutes = Mutes::default());
        }
        let which = StackEvents::All;
        stacks::exclude(&mut stacks, &heeding, &inboxes, which, &mut catalog).await?;
        let wanted: Vec<_> = stacks
            .iter()
            .flat_map(|stacks| self.wanted(row, stacks, user, part.tells))
            .collect();
        catalog
            .load(wanted.iter().map(|pending| pending.event))
            .await?;
        if part.tells == Tells::All {
            let chosen = Part::CHOSEN.tells;
            let chosen = stacks
                .iter()
                .flat_map(|of| self.wanted(row, of, user, chosen));
            let apply = chosen.map(|of| catalog.applies(of.event).is_some());
            let apply: Vec<bool> = apply.collect();
            if apply.contains(&true) && apply.contains(&false) {
                // Events are missing because their objects were withdrawn, not because of the
                // user's choices.
                return none("what it told cannot be said any more");
            }
        }
        let gathered = self
            .gathered(rows, users, &[part.tells], &mut catalog)
            .await?;
        let batched = gathered::newest_first(&gathered);
        let shown = [(&user.id, self.shown(row, &wanted, &batched, &catalog))];
        let reasons = self.reasons(&shown, &mut catalog).await?;
        let told = self.told(row, &wanted, &gathered, &catalog);
        let Some(mut content) = told else {
            return none(match row.occasion {
                Occasion::Digest { .. } => "nothing of it is on their stacks any more, or applies",
                Occasion::Batch { .. } => "nothing is left of its batch that applies",
            });
        };
        content.because = reasons.because(&user.id, &content);
        let items = content.items().map(self::shown).collect();
        Ok(self
            .rendered(user, &content, &row.occasion, at)
            .map(|written| {
                let words = written.content.with(Place::nowhere);
                Preview {
                    subject: words.subject,
                    text: words.text,
                    html: words.html,
                    items,
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
