//! Reads the stacks of many users: merges one cursor per day and form of `_id`, by user id.
//!
//! Memory is bounded by batches and pieces, not by the number of users or the length of their
//! stacks. Each cursor reads ahead in its own task, so that server and client work at the same
//! time. A lost cursor is reopened after its last document. For few users, see [`super::windows`].

use std::pin::Pin;

use bson::{Document, RawDocumentBuf, doc};
use futures::channel::mpsc;
use futures::stream::{self, BoxStream, Peekable};
use futures::{StreamExt, TryStreamExt};

use super::windows::stack_of;
use super::{Mongo, oid};
use crate::domain::{Form, Id, PersonStacks, Stack, StackId, UserId, Window};
use crate::store::Result;

/// Documents per batch. The server also ends a batch at 16 MB.
const BATCH: u32 = 500;
/// Documents that are decoded together. They take about as much memory as on the wire.
const PIECE: usize = 50;
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
type Source = Pin<Box<Peekable<BoxStream<'static, Result<(UserId, Stack)>>>>>;

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
        let batches = self.documents(day.collection(), filter(after, form)?, BATCH);
        let documents = batches
            .map_ok(|batch| stream::iter(batch).map(Result::Ok))
            .try_flatten();
        let pieces = documents.try_ready_chunks(PIECE).map_err(|failed| failed.1);
        let decode = move |document: &RawDocumentBuf| stack_of(document, |_| Some(day));
        let pieces = pieces.map_ok(move |piece| piece.iter().filter_map(decode).collect());
        // The task ends at the end of the data, at an error, or when the receiver is dropped.
        let (give, ahead) = mpsc::channel(0);
        tokio::spawn(pieces.map(Ok).forward(give));
        let found = ahead.map_ok(|piece: Vec<_>| stream::iter(piece).map(Result::Ok));
        Some(Box::pin(found.try_flatten().boxed().peekable()))
    }
}

/// Returns the next users from all sources, at most `chunk`.
async fn take(sources: &mut [Source], chunk: usize) -> Result<Vec<PersonStacks>> {
    let mut people = Vec::with_capacity(chunk.min(10_000));
    let mut entries = 0;
    while people.len() < chunk && entries < chunk.saturating_mul(ENTRIES_EACH) {
        let mut next: Option<UserId> = None;
        for source in &mut *sources {
            match source.as_mut().peek().await {
                Some(Ok((user, _))) if next.as_ref().is_none_or(|next| user < next) => {
                    next = Some(user.clone());
                }
                Some(Err(_)) => drop(source.try_next().await?),
                _ => {}
            }
        }
        let Some(user) = next else {
            break;
        };
        let mut stacks = Vec::new();
        for source in &mut *sources {
            let is_next = |found: &Result<_>| found.as_ref().is_ok_and(|(of, _)| *of == user);
            if let Some(Ok((_, stack))) = source.as_mut().next_if(is_next).await {
                entries += stack.entries.len();
                stacks.push(stack);
            }
        }
        people.push(PersonStacks { user, stacks });
    }
    Ok(people)
}
