//! The mail of a row of the ledger as it was, or as it would be if it left now.
//!
//! The rule: nothing is written, not even the secret that links are made with: links to stop mails
//! are places without an address. What the mail tells is read as [`Compose::build`] reads it: what
//! its markers cover is told, and objects as they are now. Whoever wants no mail is shown what is
//! mandatory; where nothing is, what they would get otherwise, with why they do not. Of a mail that
//! left, what was taken back since is part, and what is as much as the row says it told: all that
//! they want now, with what they muted then or without, what of it was not seen or is mandatory, or
//! all that the row covers, as they may have turned some of it off since.

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

/// How much of what a row covers its mail tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    tells: Tells,
    /// Whether what was seen is part of it where that is left out of mails.
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

    /// Without what was seen.
    const fn unseen(self) -> Self {
        let seen = false;
        Self { seen, ..self }
    }
}

impl Compose {
    /// All that is known of a delivery; what it says, as its brand writes it.
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

    /// What a settled row told, as far as can be said.
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
                // What is missing is what was withdrawn since, not what they turned off.
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
