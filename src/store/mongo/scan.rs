//! Reads the stacks of many users: merges one cursor per day and form of `_id`, by user id.
//!
//! Memory is bounded by batches and pieces, not by the number of users or the length of their
//! stacks. Each cursor reads ahead in its own task, so that server and client work at the same
//! time. A lost cursor is reopened after its last document. For few users, see [`super::windows`].

use bson::raw::RawIter;
use bson::{Document, doc};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::mpsc;

use super::codec::RawStack;
use super::patience::Failure;
use super::reads::Resuming;
use super::{Mongo, oid};
use crate::domain::{Form, Id, PersonStacks, Stack, StackId, UserId, Window};
use crate::store::entry::Malformed;
use crate::store::{Error, Result};

/// Documents per batch. The server also ends a batch at 16 MB.
const BATCH: u32 = 500;
/// The number of entries that ends a piece of a batch. Decoded entries take about as much memory as
/// on the wire.
const PIECE: usize = 10_000;
/// The number of pieces that each cursor decodes ahead of the merge.
const AHEAD: usize = 1;
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

/// A user's document of one day.
struct Found {
    user: UserId,
    stack: Stack,
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
                .map(|id| Source::start(self.clone(), id, after.clone()))
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
        let stacks: Vec<Stack> = sources
            .iter_mut()
            .filter(|source| source.user() == Some(&user))
            .filter_map(|source| source.ready.next())
            .map(|found| found.stack)
            .collect();
        entries += stacks
            .iter()
            .map(|stack| stack.entries.len())
            .sum::<usize>();
        people.push(PersonStacks { user, stacks });
    }
    Ok(people)
}

/// The documents of one cursor, in order.
struct Source {
    ready: std::vec::IntoIter<Found>,
    /// Pieces that were read ahead. The channel closes after the last one.
    ahead: mpsc::Receiver<Result<Vec<Found>>>,
}

impl Source {
    fn start(store: Mongo, id: StackId, after: Option<UserId>) -> Self {
        let (give, ahead) = mpsc::channel(AHEAD);
        let reader = Reader {
            store,
            id,
            after,
            give,
        };
        // The task ends at the end of the data, at an error, or when the receiver is dropped.
        tokio::spawn(reader.run());
        let ready = Vec::new().into_iter();
        Self { ready, ahead }
    }

    /// Waits until a document is ready or the cursor has ended.
    async fn fill(&mut self) -> Result<()> {
        while self.ready.as_slice().is_empty() {
            match self.ahead.recv().await {
                Some(batch) => self.ready = batch?.into_iter(),
                None => break,
            }
        }
        Ok(())
    }

    fn user(&self) -> Option<&UserId> {
        self.ready.as_slice().first().map(|found| &found.user)
    }
}

/// Reads one day's documents of one form ahead of the merge.
struct Reader {
    store: Mongo,
    id: StackId,
    after: Option<UserId>,
    give: mpsc::Sender<Result<Vec<Found>>>,
}

impl Reader {
    async fn run(mut self) {
        if let Err(error) = self.read().await {
            // Without a receiver, the error does not matter.
            drop(self.give.send(Err(error)).await);
        }
    }

    async fn read(&mut self) -> Result<()> {
        let StackId { day, form } = self.id;
        let doing = format!("reading the stacks of {day}");
        let Some(all) = filter(self.after.as_ref(), form) else {
            return Ok(());
        };
        let mut cursor = Resuming::new(self.store.clone(), doing, day.collection(), BATCH, all);
        while let Some(batch) = cursor.next().await? {
            let documents = batch.doc_slices().map_err(Failure::from);
            let documents = documents.map_err(|why| Error::database(&cursor.doing, why))?;
            let mut documents = documents.iter_elements();
            while let Some((found, last)) = piece(&mut documents, self.id)? {
                cursor.resume_at(filter(Some(&last), form));
                if self.give.send(Ok(found)).await.is_err() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Decodes the next piece of a batch. Returns the stacks and the last user; `None` at the end.
fn piece(documents: &mut RawIter<'_>, id: StackId) -> Result<Option<(Vec<Found>, UserId)>> {
    let corrupt = || Error::corrupt(format!("a batch of stacks of {}", id.day), Malformed);
    let (mut found, mut last, mut entries) = (Vec::new(), None, 0);
    while entries < PIECE
        && let Some(document) = documents.next()
    {
        let document = document.map_err(|_| corrupt())?;
        let Some(document) = document.value().ok().and_then(|value| value.as_document()) else {
            return Err(corrupt());
        };
        // Without a readable owner, the document is skipped.
        let Ok(Some(stack)) = RawStack::read(document.as_bytes()) else {
            continue;
        };
        let user = stack.user.user();
        let stack = stack.stack(id);
        entries += stack.entries.len();
        last = Some(user.clone());
        found.push(Found { user, stack });
    }
    Ok(last.map(|last| (found, last)))
}
