//! Finds the place of an event in the email of its batch.
//!
//! The email's content is reconstructed from the batch and the stacks. Several variants are tried:
//! with current choices and objects, without mutes or choices, with mandatory types only, and with
//! withdrawn objects. The first with as many events as the row recorded counts. If none fits, the
//! place is unknown. Start with [`BatchMail::by`].

use std::collections::HashSet;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::unfit;
use crate::domain::EmailScope;
use crate::domain::batch::Item;
use crate::domain::content::gather;
use crate::domain::{
    Batch, Content, Delivery, Event, EventType, Facts, Object, ObjectId, PersonStacks, Policies,
    Purpose, User, classify,
};
use crate::engine::eligibility::catalog::Catalog;
use crate::wire::explanation::{By, LeftOut, Place};

/// Identifies an item. An email includes it once, even if the event happened several times.
type Name = (EventType, ObjectId);

/// The email of a batch, which was sent or may have been.
pub(crate) struct BatchMail<'a> {
    batch: &'a Batch,
    row: &'a Delivery,
    catalog: &'a Catalog,
    told: Option<Told>,
}

/// The reconstructed content of the email.
struct Told {
    shown: HashSet<Name>,
    /// All included items, shown or only counted.
    all: HashSet<Name>,
    /// Whether it counts events that the batch did not keep.
    counts: bool,
}

/// The events of a batch that its user wanted to be emailed.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    /// Events of types that this user gets within this scope.
    Of(&'a User, EmailScope),
    All,
}

impl Wanted<'_> {
    fn admits(self, item: &Item, policies: &Policies) -> bool {
        match self {
            Self::All => true,
            Self::Of(user, scope) => {
                let (at, facts) = (|| item.i.time(), Facts::default());
                let purpose = Purpose::Batch(scope);
                classify(&item.t, at, facts, Some(user), policies, purpose).is_none()
            }
        }
    }
}

impl<'a> BatchMail<'a> {
    /// Reconstructs the email of a batch. The catalog must have loaded the kept events and those on
    /// the user's stacks. `muted` returns since when an event is muted.
    pub(crate) fn of(
        batch: &'a Batch,
        row: &'a Delivery,
        person: &PersonStacks,
        user: Option<&User>,
        policies: &Policies,
        catalog: &'a Catalog,
        muted: impl Fn(&Event) -> Option<DateTime<Utc>>,
    ) -> Self {
        let built = row.built_at();
        let is_muted = |event: &Event| muted(event).is_some_and(|since| since <= built);
        let stood = |event: &Event| !catalog.was_retracted(event, built);
        let as_now = |event: &Event| catalog.mailable(event).filter(|_| stood(event));
        let as_ever = |event: &Event| catalog.recorded(event).filter(|_| stood(event));
        let by_choice = user.map(|user| Wanted::Of(user, EmailScope::All));
        let obliged = user.map(|user| Wanted::Of(user, EmailScope::MandatoryOnly));
        let every = Some(Wanted::All);
        let reconstruct = |wanted: Wanted<'_>, ever: bool, muted: bool| {
            let fit = |event: &Event| match ever {
                true => as_ever(event),
                false => as_now(event),
            };
            let applies = |event: &Event| fit(event).filter(|_| muted || !is_muted(event));
            told(batch, person, wanted, policies, applies)
        };
        let ways = [
            (by_choice, false),
            (by_choice, true),
            (every, true),
            (obliged, true),
        ];
        let ways = ways.map(|(wanted, muted)| (wanted, false, muted));
        let ever = [
            (by_choice, true, false),
            (by_choice, true, true),
            (every, true, true),
        ];
        let ways = ways.into_iter().chain(ever);
        let mut ways = ways.filter_map(|(wanted, ever, muted)| reconstruct(wanted?, ever, muted));
        let fitting = ways.find(|(content, _)| content.total == u64::from(row.outcome.items));
        Self {
            batch,
            row,
            catalog,
            told: fitting.map(|(_, told)| told),
        }
    }

    /// Returns the place of this event of the batch. `muted` is the time since which it is muted.
    pub(crate) fn by(&self, event: &Event, muted: Option<DateTime<Utc>>) -> By {
        let is_muted = muted.is_some_and(|since| since <= self.row.built_at());
        let (place, left_out) = self.place(event, is_muted);
        By::Mail {
            delivery: self.row.id.clone(),
            state: self.row.state,
            at: self.row.outcome.settled.unwrap_or(self.row.built_at()),
            place,
            left_out,
        }
    }

    fn place(&self, event: &Event, is_muted: bool) -> (Place, Option<LeftOut>) {
        let is_it = |item: &Item| Some(item.i) == event.i && item.t == event.t && item.o == event.o;
        let is_kept = self.batch.kept().any(is_it);
        let unfit = || unfit(self.catalog, event, self.row.built_at());
        let Some(told) = &self.told else {
            // Events that were retracted by then, or whose objects are still unknown, were in no
            // email.
            let never = |why: &LeftOut| matches!(why, LeftOut::Retracted | LeftOut::UnknownObject);
            return match unfit().filter(|why| is_kept && never(why)) {
                Some(why) => (Place::LeftOut, Some(why)),
                None => (Place::Unknown, None),
            };
        };
        let name = (event.t.clone(), event.o.clone());
        let unwanted = match is_muted {
            true => LeftOut::Muted,
            false => LeftOut::NotWanted,
        };
        if told.shown.contains(&name) {
            (Place::Shown, None)
        } else if told.all.contains(&name) || (told.counts && !is_kept) {
            (Place::Counted, None)
        } else {
            (Place::LeftOut, unfit().or(Some(unwanted)))
        }
    }
}

fn told(
    batch: &Batch,
    person: &PersonStacks,
    wanted: Wanted<'_>,
    policies: &Policies,
    applies: impl Fn(&Event) -> Option<Arc<Object>>,
) -> Option<(Content, Told)> {
    let may_be_told = |item: &Item| {
        wanted.admits(item, policies) && applies(&Event::from(item.clone())).is_some()
    };
    let by_kept = batch.is_complete(may_be_told);
    let mut items = match by_kept {
        true => batch.contents.items.clone(),
        false => batch.all_of(Some(person)),
    };
    items.retain(|item| wanted.admits(item, policies));
    let not_kept = if by_kept { batch.contents.more() } else { 0 };
    let content = gather(&batch.key, &items, not_kept, policies, &applies)?;
    let shown = content.items();
    let shown = shown.map(|(kind, item)| (kind.clone(), item.id.clone()));
    let told = Told {
        shown: shown.collect(),
        all: items
            .into_iter()
            .filter(may_be_told)
            .map(|item| (item.t, item.o))
            .collect(),
        counts: not_kept > 0,
    };
    Some((content, told))
}
