//! Previews the email of a delivery: as it was sent, or as it would be sent now.
//!
//! It writes nothing, not even the secret that signs links: unsubscribe links lead nowhere. Objects
//! are current, but retractions after a sent email are ignored. For a sent email, it tries the
//! choices and mutes that the user may have had ([`Compose::reconstruct_sent`]). Start with
//! [`Compose::describe_delivery`].

use std::collections::HashSet;

use chrono::{DateTime, Utc};

use super::{Compose, MANDATORY, NO_RECORD, Selection, WANTED};
use crate::domain::{
    BrandName, Delivery, DeliverySource, DeliveryState, EmailContent, Event, Mutes, User,
};
use crate::email::LinkPlaceholder;
use crate::engine::Result;
use crate::engine::eligibility;
use crate::engine::eligibility::event_facts::{EventFacts, StackEvents};
use crate::engine::feedback::suppressions::SuppressedAddresses;
use crate::wire::delivery::{DeliveryRow, DeliveryStory, EmailPreview, ShownItem};

/// What an email includes.
pub(crate) struct SelectedEvents {
    pub content: EmailContent,
    /// The events that it shows or counts.
    pub included: HashSet<Event>,
    /// Whether it also counts events that its batch did not keep.
    pub counts_omitted: bool,
}

/// A value, or the reason why there is none.
type Maybe<T> = Result<T, String>;

/// A sent email, as far as it can be reconstructed.
pub(crate) struct ReconstructedEmail {
    pub email: Maybe<SelectedEvents>,
    /// Whether it has as many events as the row recorded.
    pub is_exact: bool,
}

impl Compose {
    /// Describes a delivery, with its email as its brand renders it. If the user may only get
    /// mandatory types, the email has only those. If it has none, the full email is shown, with the
    /// reason why the user does not get it.
    pub async fn describe_delivery(&self, row: Delivery) -> Result<DeliveryStory> {
        let brand = self.brands_of(std::slice::from_ref(&row)).await?.pop().flatten();
        if let Some(compose) = self.for_brand(brand.as_ref()) {
            return compose.describe(row).await;
        }
        let mut story = self.describe(row).await?;
        let why = brand.as_ref().map(BrandName::unconfigured_reason).unwrap_or_default();
        (story.email, story.no_email) = (None, Some(why.clone()));
        let barred = story.send_obstacle.or(Some(why));
        story.send_obstacle = barred.filter(|_| !story.row.state.is_settled());
        Ok(story)
    }

    async fn describe(&self, row: Delivery) -> Result<DeliveryStory> {
        let (store, is_settled) = (&self.context.store, row.state.is_settled());
        let users = store.users(std::slice::from_ref(&row.user)).await?;
        let user = users.iter().flatten().next();
        let suppressed = SuppressedAddresses::load_for(&**store, user).await?;
        let (mut barred, mut mandatory) = (None, None);
        if !is_settled {
            match self.check_allowed(&row, user, &suppressed) {
                Ok((_, None)) => {}
                Ok((_, why)) => {
                    let email = self.select_covered(&row, &users, MANDATORY, true);
                    mandatory = email.await?.ok();
                    barred = why.filter(|_| mandatory.is_none());
                }
                Err(why) => barred = Some(why),
            }
        }
        let selected = match mandatory {
            Some(email) => Ok(email),
            None if is_settled => self.reconstruct_sent(&row, users.clone()).await?.email,
            None => self.select_covered(&row, &users, WANTED, true).await?,
        };
        let email = selected
            .and_then(|selected| self.preview(&row, user.ok_or(NO_RECORD)?, &selected.content));
        let address = user.and_then(|user| user.email.as_ref());
        let call = row.attempts.call.as_deref();
        let brand = call.and_then(|call| self.identities.brand_of_call(call).cloned());
        Ok(DeliveryStory {
            to: address.map(ToString::to_string),
            leased_by: row.lease.as_ref().map(|lease| lease.owner.clone()),
            leased_until: row.lease.as_ref().map(|lease| lease.until),
            send_obstacle: barred,
            no_email: email.as_ref().err().cloned(),
            email: email.ok(),
            row: DeliveryRow { brand, ..row.into() },
        })
    }

    /// Reconstructs the email of a settled row: the first selection with as many events as the row
    /// recorded, or else the one that follows the user's choices.
    pub(crate) async fn reconstruct_sent(
        &self,
        row: &Delivery,
        mut users: Vec<Option<User>>,
    ) -> Result<ReconstructedEmail> {
        for user in users.iter_mut().flatten() {
            user.mutes.remove_started_after(row.built_at());
        }
        let sent = u64::from(row.outcome.items);
        let mut fallback = Err(String::new());
        for (selection, skip_seen) in [
            (WANTED, false),
            (WANTED, true),
            (MANDATORY, false),
            (MANDATORY, true),
            (Selection::All, true),
            (Selection::All, false),
        ] {
            let email = self.select_covered(row, &users, selection, skip_seen).await?;
            let is_exact = email.as_ref().is_ok_and(|email| email.content.total == sent);
            if is_exact || sent == 0 {
                return Ok(ReconstructedEmail { email, is_exact });
            }
            let replaces = selection == Selection::All && fallback.is_err();
            if !skip_seen && (selection == WANTED || replaces) {
                fallback = email;
            }
        }
        Ok(ReconstructedEmail { email: fallback, is_exact: false })
    }

    /// Selects events that a row covers. `skip_seen` excludes those seen in the feed, if the
    /// configuration does.
    async fn select_covered(
        &self,
        row: &Delivery,
        users: &[Option<User>],
        selection: Selection,
        skip_seen: bool,
    ) -> Result<Maybe<SelectedEvents>> {
        let none = |why: &str| Ok(Err(why.to_owned()));
        if row.state == DeliveryState::Canceled {
            return none("it was canceled, so no email was sent");
        }
        let Some(Some(user)) = users.first() else {
            return none(NO_RECORD);
        };
        let rows = std::slice::from_ref(row);
        let mut event_facts = EventFacts::for_emails(&self.context);
        if row.state.needs_markers() {
            event_facts = event_facts.ignoring_retractions_after(self.date_of(row));
        }
        let mut stacks = self.load_stacks(rows).await?;
        let inboxes = if skip_seen {
            let user_ids = std::slice::from_ref(&row.user);
            eligibility::load_inboxes(&self.context, user_ids).await?
        } else {
            vec![None]
        };
        let mut without_mutes = users.to_vec();
        if selection == Selection::All {
            let users = without_mutes.iter_mut().flatten();
            users.for_each(|user| user.mutes = Mutes::default());
        }
        let which = StackEvents::All;
        eligibility::exclude_events(&mut stacks, &without_mutes, &inboxes, which, &mut event_facts)
            .await?;
        let chosen = self.choose(rows, users, &stacks, &[selection], &mut event_facts).await?;
        if selection == Selection::All {
            let wanted =
                stacks.iter().flat_map(|stacks| self.select_pending(row, stacks, user, WANTED));
            let applies =
                wanted.map(|pending| event_facts.applicable_object(pending.event).is_some());
            let applies: Vec<bool> = applies.collect();
            if applies.contains(&true) && applies.contains(&false) {
                // Events are missing because their objects were withdrawn, not because of the
                // user's choices.
                return none("its content cannot be reconstructed any more");
            }
        }
        let Some(content) = self.content(row, &chosen, 0, &event_facts) else {
            return none(match row.source {
                DeliverySource::Digest(..) => {
                    "nothing of it is on their stacks any more, or applies"
                }
                DeliverySource::Batch(..) => "nothing is left of its batch that applies",
            });
        };
        let batch = chosen.batches.values().next();
        let batch_items = batch.iter().flat_map(|batch| &batch.items).cloned();
        let digest_events = chosen.digests.iter().flatten().map(|pending| pending.event.clone());
        let events = digest_events.chain(batch_items.map(Event::from));
        Ok(Ok(SelectedEvents {
            content,
            included: events
                .filter(|event| event_facts.applicable_object(event).is_some())
                .collect(),
            counts_omitted: batch.is_some_and(|batch| batch.omitted > 0),
        }))
    }

    /// Returns the date of a row's email.
    fn date_of(&self, row: &Delivery) -> DateTime<Utc> {
        let called_at = row.attempts.called_at;
        called_at.unwrap_or_else(|| self.context.clock.now())
    }

    /// Renders an email.
    fn preview(&self, row: &Delivery, user: &User, content: &EmailContent) -> Maybe<EmailPreview> {
        let written = self
            .render_email(user, content, &row.source, self.date_of(row))
            .map_err(|error| format!("it cannot be rendered: {error}"))?;
        let filled = written.content.fill_with(LinkPlaceholder::preview_url);
        let items = content.items().map(|(kind, item)| ShownItem {
            kind: kind.clone(),
            object: item.id.clone(),
            title: item.object.title.clone(),
        });
        Ok(EmailPreview {
            subject: filled.subject,
            text: filled.text,
            html: filled.html,
            items: items.collect(),
            more: content.hidden_count(),
        })
    }
}
