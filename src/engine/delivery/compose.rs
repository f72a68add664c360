//! Builds emails from delivery rows: reads their events again, checks them, and renders the rest.
//!
//! It only reads. An email includes the events that its row covers and no earlier email included
//! (P3). They must still apply (P6), and the user must be allowed to get them (P7, [`allowed`]).
//! All of that is checked just before sending. A repeated call is built as of its first time, so
//! that it has the same content. Start with [`Compose::build`].

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use self::because::Reasons;
use self::gathered::{Gathered, Tells};
use super::Headers;
pub(super) use super::mail::Mail;
use crate::domain::delivery::{Cause, Settlement};
use crate::domain::digest::{assemble, showable, wanted_by};
use crate::domain::stack::EventAt;
use crate::domain::{
    Content, Delivery, DeliveryState, Event, Id, Occasion, PersonStacks, Stack, Stop, User, UserId,
    Window,
};
use crate::email::{self, Message, Place, Placeholders};
use crate::engine::Result;
use crate::engine::access::links::Maker;
use crate::engine::eligibility::catalog::{Catalog, StackEvents};
use crate::engine::eligibility::stacks;
use crate::engine::feedback::suppressions::Suppressed;
use crate::render;
use crate::store::People;

mod ahead;
mod allowed;
mod because;
mod brands;
mod composer;
mod contents;
mod gathered;
mod preview;

pub(crate) use ahead::Prospect;
use allowed::Allowed;
pub(super) use brands::Stray;
pub use composer::Compose;
use contents::Contents;
use contents::Of;
use gathered::newest_first;
pub(super) use gathered::stacks_of;

/// How close together the users of some rows are in the stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Most users between the first and the last have a row, so a range is read.
    Dense,
    /// Few of them do, so each user is read by id.
    Sparse,
}

/// How many rows may be built at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// Rows until the contents are full, so that memory does not grow with their number.
    Bounded,
    /// All rows, to repeat a call. Its first build was within the bounds.
    Whole,
}

/// The result of building some rows.
#[derive(Default)]
pub(super) struct Built {
    pub mails: Vec<Mail>,
    /// Rows that ended without an email.
    pub settlements: Vec<Settlement>,
    /// Rows whose email belongs to another brand.
    pub strays: Vec<Stray>,
    /// The number of processed rows, counted from the first. At least one, if there were any.
    pub rows: usize,
}

/// Checks that the stacks of the row accept markers. Otherwise each later email would repeat the
/// events. The next email excludes such a stack.
fn takes_markers(row: &Delivery, stacks: &PersonStacks) -> std::result::Result<(), String> {
    let covered = |stack: &&Stack| row.watermarks.iter().any(|(id, _)| *id == stack.id);
    let mut covered = stacks.stacks.iter().filter(covered);
    match covered.find_map(|stack| Some((stack.id.day, stack.defect?))) {
        Some((day, defect)) => Err(format!("the stack of {day} takes no marker: {defect}")),
        None => Ok(()),
    }
}

impl Compose {
    /// Builds the emails of these rows from current data, as many rows as there is `room` for. `at`
    /// is their date.
    pub(super) async fn build(
        &self,
        rows: &[Delivery],
        spread: Spread,
        at: DateTime<Utc>,
        room: Room,
    ) -> Result<Built> {
        let mut catalog = self.catalog.of_mails();
        let mut stacks = self.read(rows, spread).await?;
        let readers = stacks::load_readers(&stacks, &self.skip_seen, &catalog);
        let (people, mut inboxes) = readers.await?;
        // A digest that is built again after its markers were written includes the same events.
        for ((row, person), inbox) in rows.iter().zip(&stacks).zip(&mut inboxes) {
            inbox.take_if(|_| person.hold_marker(row.marker));
        }
        let which = StackEvents::All;
        stacks::exclude(&mut stacks, &people, &inboxes, which, &mut catalog).await?;
        let suppressed = Suppressed::among(&*self.context.store, people.iter().flatten()).await?;
        let allowed: Vec<_> = rows
            .iter()
            .zip(&people)
            .map(|(row, person)| self.allowed(row, person.as_ref(), &suppressed))
            .collect();
        let tells = allowed.iter().map(allowed::scope).map(Tells::Wanted);
        let tells: Vec<Tells> = tells.collect();
        let wanted: Vec<_> = rows
            .iter()
            .zip(&people)
            .zip(stacks.iter().zip(&tells))
            .map(|((row, person), (stacks, tells))| {
                let wanted = |user| self.wanted(row, stacks, user, *tells);
                person.as_ref().map_or(Vec::new(), wanted)
            })
            .collect();
        catalog
            .load(wanted.iter().flatten().map(|pending| pending.event))
            .await?;

        let gathered = self.gathered(rows, &people, &tells, &mut catalog).await?;
        let batched = newest_first(&gathered);
        let shown: Vec<(&UserId, Vec<&Event>)> = rows
            .iter()
            .zip(&wanted)
            .map(|(row, wanted)| (&row.user, self.shown(row, wanted, &batched, &catalog)))
            .collect();
        let reasons = self.reasons(&shown, &mut catalog).await?;
        let maker = self.links.maker().await?;
        let (mut built, mut contents) = (Built::default(), Contents::default());
        for (((row, allowed), stacks), wanted) in rows.iter().zip(allowed).zip(&stacks).zip(&wanted)
        {
            if room == Room::Bounded && contents.is_full() {
                break;
            }
            built.rows += 1;
            let has_markers = match &row.occasion {
                Occasion::Digest { .. } => stacks.hold_marker(row.marker),
                Occasion::Batch { batch, .. } => {
                    gathered.get(batch).is_some_and(|of| of.has_markers)
                }
            };
            let takes = |allowed| takes_markers(row, stacks).map(|()| allowed);
            let Allowed { user, barred } = match allowed.and_then(takes) {
                Ok(allowed) => allowed,
                Err(reason) => {
                    let canceled = Settlement::of(row, DeliveryState::Canceled, 0, Some(&reason));
                    built.settlements.push(canceled);
                    continue;
                }
            };
            let Some(mut told) = self.told(row, wanted, &gathered, &catalog) else {
                let why = barred.as_deref().unwrap_or("nothing is left that applies");
                let canceled = Settlement::of(row, DeliveryState::Canceled, 0, Some(why));
                let cause = match barred {
                    Some(_) => Cause::Barred,
                    None => Cause::NothingLeft,
                };
                built.settlements.push(Settlement {
                    cause: Some(cause),
                    ..canceled
                });
                continue;
            };
            told.because = reasons.because(&row.user, &told);
            let brand = Self::brand_of_row(row, user, &gathered);
            if room == Room::Bounded && brand != self.brand {
                let row = row.clone();
                built.strays.push(Stray {
                    row,
                    brand,
                    has_markers,
                });
                continue;
            }
            let items = u32::try_from(told.total).unwrap_or(u32::MAX);
            match self.render(row, user, told, maker.as_ref(), at, &mut contents) {
                Ok(message) => built.mails.push(Mail {
                    row: row.clone(),
                    items,
                    has_markers,
                    message,
                }),
                Err(reason) => {
                    let ended = Settlement::of(
                        row,
                        DeliveryState::not_taken(has_markers),
                        0,
                        Some(&reason),
                    );
                    built.settlements.push(ended);
                }
            }
        }
        Ok(built)
    }

    /// Returns the events that the row's email may show, the newest of each type first.
    fn shown<'a>(
        &self,
        row: &Delivery,
        wanted: &[EventAt<'a>],
        batched: &'a HashMap<Id, Vec<Event>>,
        catalog: &Catalog,
    ) -> Vec<&'a Event> {
        let applies = |event: &Event| catalog.applies(event).is_some();
        match &row.occasion {
            Occasion::Digest { .. } => showable(wanted, self.caps, applies),
            Occasion::Batch { batch, .. } => batched.get(batch).into_iter().flatten().collect(),
        }
    }

    /// Loads the details of these events, and finds out why they concern their users.
    pub(crate) async fn reasons(
        &self,
        shown: &[(&UserId, Vec<&Event>)],
        catalog: &mut Catalog,
    ) -> Result<Reasons> {
        let events = shown.iter().flat_map(|(_, events)| events);
        let events: Vec<&Event> = events.copied().collect();
        let events = events.into_iter();
        catalog.load_details(events).await?;
        Reasons::of(shown, catalog, &self.catalog).await
    }

    /// Reads the stacks of each row's user, in the order of the rows. Rows that cover nothing get
    /// none.
    async fn read(&self, rows: &[Delivery], spread: Spread) -> Result<Vec<PersonStacks>> {
        let of_stacks = || rows.iter().filter(|row| !row.watermarks.is_empty());
        let covered = of_stacks().flat_map(|row| &row.watermarks);
        let window = Window::of(covered.map(|(stack, _)| stack.day));
        let users: Vec<UserId> = of_stacks().map(|row| row.user.clone()).collect();
        let mut found = match window {
            Some(window) => {
                let people = match spread {
                    // The store can read a range only for users in the order of their ids.
                    Spread::Dense if users.is_sorted() => People::Between(&users),
                    Spread::Dense | Spread::Sparse => People::Each(&users),
                };
                self.context
                    .store
                    .windows(window, people)
                    .await?
                    .into_iter()
            }
            None => Vec::new().into_iter(),
        };
        let none = |row: &Delivery| PersonStacks {
            user: row.user.clone(),
            stacks: Vec::new(),
        };
        let stacks = rows.iter().map(|row| {
            let read = if row.watermarks.is_empty() {
                None
            } else {
                found.next()
            };
            read.unwrap_or_else(|| none(row))
        });
        Ok(stacks.collect())
    }

    /// Returns the content of the row's email; `None` if no event applies any more.
    fn told(
        &self,
        row: &Delivery,
        wanted: &[EventAt<'_>],
        gathered: &HashMap<Id, Gathered>,
        catalog: &Catalog,
    ) -> Option<Content> {
        match &row.occasion {
            Occasion::Digest { .. } => {
                let applies = |event: &Event| catalog.told(event);
                assemble(wanted, &self.context.policies, self.caps, applies)
            }
            Occasion::Batch { batch, .. } => gathered
                .get(batch)?
                .content(&self.context.policies, catalog),
        }
    }

    /// Returns the events that a digest's row may include.
    fn wanted<'a>(
        &self,
        row: &Delivery,
        stacks: &'a PersonStacks,
        user: &User,
        tells: Tells,
    ) -> Vec<EventAt<'a>> {
        match tells {
            Tells::Wanted(scope) | Tells::Chosen(scope) => {
                wanted_by(row, stacks, user, scope, &self.context.policies)
            }
            Tells::All => stacks.pending_within(&row.watermarks, row.marker, |_, _| true),
        }
    }

    /// Renders an email, with placeholders for its links if there are public pages. So users with
    /// the same content can share it.
    pub fn rendered(
        &self,
        user: &User,
        content: &Content,
        occasion: &Occasion,
        at: DateTime<Utc>,
    ) -> std::result::Result<Written, String> {
        let placeholders = Placeholders::new()?;
        let placeholder = |place| {
            let has_pages = self.links.public_url.is_some();
            has_pages.then(|| placeholders.of(place).to_owned())
        };
        let stop = Stop::of_mail(content, occasion, &self.context.policies);
        let mutes = Stop::of_subject(content, occasion, &self.context.policies);
        let rendered = self.renderer.render(&render::Mail {
            user,
            content,
            occasion,
            at,
            tz: user.schedule(&self.schedule).tz,
            links: render::Links {
                unsubscribe: stop.as_ref().and_then(|_| placeholder(Place::Unsubscribe)),
                preferences: placeholder(Place::Preferences),
                mute: mutes.and_then(|_| placeholder(Place::Mute)),
            },
            stop: stop.as_ref(),
        });
        let rendered = rendered.map_err(|error| format!("{error:#}"))?;
        Ok(Written {
            content: email::Content {
                subject: rendered.subject,
                html: placeholders.cut(&rendered.html),
                text: placeholders.cut(&rendered.text),
            },
            shown: rendered.shown,
            is_personal: rendered.is_personal,
        })
    }

    fn render(
        &self,
        row: &Delivery,
        user: &User,
        told: Content,
        maker: Option<&Maker<'_>>,
        at: DateTime<Utc>,
        contents: &mut Contents,
    ) -> std::result::Result<Message, String> {
        let to = user
            .reachable()
            .map_err(|why| why.as_str().to_owned())?
            .clone();
        // Links are dated by the row, so that every build of it makes the same ones.
        let stop = Stop::of_mail(&told, &row.occasion, &self.context.policies);
        let mute = Stop::of_subject(&told, &row.occasion, &self.context.policies);
        let (stop, mute) = (stop.as_ref(), mute.as_ref());
        let issued = user
            .start
            .map_or(row.created, |start| start.valid_from(row.created));
        let personal = maker.map(|maker| {
            let maker = maker.to(&to);
            maker.personal(&row.user, stop, mute, issued)
        });
        let further = self.headers.of(row, &told, &self.context.policies);
        let locale = self.renderer.locale_of(user);
        let of = Of::new(&row.occasion, user.schedule(&self.schedule).tz, locale);
        let content = match contents.rendered(&of, &told) {
            Some(content) => content,
            None => {
                let written = self.rendered(user, &told, &row.occasion, at);
                let written =
                    written.map_err(|error| format!("the mail cannot be rendered: {error}"))?;
                let content = contents.share(written.content);
                if !written.is_personal {
                    contents.remember(of, told, Arc::clone(&content));
                }
                content
            }
        };
        Ok(Message {
            delivery: row.id.clone(),
            to,
            to_name: user.name.clone(),
            content,
            personal,
            further,
            at,
        })
    }
}

/// A rendered email, without its recipient.
pub struct Written {
    pub content: email::Content,
    /// The number of items that it shows.
    pub shown: usize,
    /// Whether it mentions its recipient.
    pub is_personal: bool,
}
