//! Reads the stacks of many users: merges one cursor per day and form of `_id`, by user id.
//!
//! Memory is bounded by batches and pieces, not by the number of users or the length of their
//! stacks. Each cursor reads ahead in its own task, so that server and client work at the same
//! time. A lost cursor is reopened after its last document. For few users, see [`super::windows`].

use bson::{Document, RawDocument, doc};
use futures::channel::mpsc;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::windows::stack_of;
use super::{Mongo, oid};
use crate::domain::{Form, Id, PersonStacks, Stack, StackId, UserId, Window};
use crate::store::Result;

/// Documents per batch. The server also ends a batch at 16 MB.
const BATCH: u32 = 500;
/// The average number of entries per user above which a chunk ends early.
const ENTRIES_EACH: usize = 50;

/// Returns the filter for documents of this form after a user, by the text of the ids. `None` if
/// no document can match.
fn filter(after: Option<&UserId>, form: Form) -> Option<Document> {
    let id = match (form, after) {
        (Form::Text, None) => doc! {"$gte": ""},
        (Form::Text, Some(user)) => doc! {"$gt": user.as_str()},
        (Form::ObjectId, None) => doc! {"$gte": oid(Id::from_bytes([0; 12]))},
        (Form::ObjectId, Some(user)) => doc! {"$gte": oid(Id::first_after(user.as_str())?)},
    };
    Some(doc! {"_id": id})
}

/// The stacks of one day and form, in the order of the users.
struct Source {
    ready: std::vec::IntoIter<(UserId, Stack)>,
    /// Pieces that were read ahead.
    ahead: mpsc::Receiver<Result<Vec<(UserId, Stack)>>>,
}

impl Source {
    /// Waits until a stack is ready or none is left.
    async fn fill(&mut self) -> Result<()> {
        while self.ready.as_slice().is_empty() {
            match self.ahead.next().await {
                Some(piece) => self.ready = piece?.into_iter(),
                None => break,
            }
        }
        Ok(())
    }

    fn user(&self) -> Option<&UserId> {
        self.ready.as_slice().first().map(|(user, _)| user)
    }
}

impl Mongo {
    /// Streams the users after this one in ascending order.
    pub(super) fn merge(
        &self,
        window: Window,
        after: Option<UserId>,
        chunk: usize,
    ) -> BoxStream<'_, Result<Vec<PersonStacks>>> {
        let start = move || {
            let forms = [Form::ObjectId, Form::Text];
            let stacks = window
                .days()
                .flat_map(move |day| forms.map(|form| StackId { day, form }));
            stacks
                .filter_map(|id| self.source(id, after.as_ref()))
                .collect()
        };
        // Nothing is read before the stream is polled.
        let sources = stream::once(async move { Result::Ok(start()) });
        sources
            .map_ok(move |sources: Vec<Source>| {
                stream::try_unfold(sources, move |mut sources| async move {
                    let people = take(&mut sources, chunk.max(1)).await?;
                    Ok((!people.is_empty()).then_some((people, sources)))
                })
            })
            .try_flatten()
            .boxed()
    }

    /// Starts to read the stacks of one day and form. `None` if no document can match.
    fn source(&self, StackId { day, form }: StackId, after: Option<&UserId>) -> Option<Source> {
        let read = move |document: &RawDocument| stack_of(document, |_| Some(day));
        let pieces = self.documents(day.collection(), filter(after, form)?, BATCH, read);
        let pieces = pieces.map_ok(|piece| piece.into_iter().flatten().collect());
        // The task ends at the end of the data, at an error, or when the receiver is dropped.
        let (give, ahead) = mpsc::channel(0);
        tokio::spawn(pieces.map(Ok).forward(give));
        let ready = Vec::new().into_iter();
        Some(Source { ready, ahead })
    }
}

/// Returns the next users from all sources, at most `chunk`.
async fn take(sources: &mut [Source], chunk: usize) -> Result<Vec<PersonStacks>> {
    let mut people = Vec::with_capacity(chunk.min(10_000));
    let mut entries = 0;
    while people.len() < chunk && entries < chunk.saturating_mul(ENTRIES_EACH) {
        for source in &mut *sources {
            source.fill().await?;
        }
        let Some(user) = sources.iter().filter_map(Source::user).min().cloned() else {
            break;
        };
        let own = sources
            .iter_mut()
            .filter(|source| source.user() == Some(&user));
        let stacks: Vec<Stack> = own
            .filter_map(|source| source.ready.next())
            .map(|(_, stack)| stack)
            .collect();
        entries += stacks.iter().map(|one| one.entries.len()).sum::<usize>();
        people.push(PersonStacks { user, stacks });
    }
    Ok(people)
}
