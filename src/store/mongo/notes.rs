//! Small texts under a name: one document each, `{_id, text}`.
//!
//! The rule: which note is kept is decided by `_id`, so whoever comes second reads what the first
//! one wrote.

use async_trait::async_trait;
use bson::{Document, doc};
use mongodb::options::FindOptions;

use super::patience::Failure;
use super::{Mongo, NOTES};
use crate::store::{Error, Notes, Result};

#[async_trait]
impl Notes for Mongo {
    async fn note(&self, name: &str) -> Result<Option<String>> {
        let doing = "reading a note";
        let found: Option<Document> = self
            .patiently(doing, || {
                let notes = self.collection(NOTES);
                async move { self.one_of(notes.find_one(doc! {"_id": name})).await }
            })
            .await?;
        found.map(|note| text(doing, &note)).transpose()
    }

    async fn put_note(&self, name: &str, text: &str) -> Result<()> {
        self.patiently("writing a note", || {
            let notes = self.collection(NOTES);
            let set = doc! {"$set": {"text": text}};
            async move {
                let write = notes.update_one(doc! {"_id": name}, set).upsert(true);
                match write.await {
                    Ok(_) => Ok(()),
                    Err(error) => Err(again_if_raced(error)),
                }
            }
        })
        .await
    }

    async fn keep_note(&self, name: &str, ours: &str) -> Result<String> {
        let doing = "keeping a note";
        let kept = self
            .patiently(doing, || {
                let notes = self.collection(NOTES);
                let keep = doc! {"$setOnInsert": {"text": ours}};
                async move {
                    let write = notes
                        .find_one_and_update(doc! {"_id": name}, keep)
                        .upsert(true)
                        .return_document(mongodb::options::ReturnDocument::After);
                    match write.await {
                        Ok(note) => Ok(note),
                        Err(error) => Err(again_if_raced(error)),
                    }
                }
            })
            .await?;
        match kept {
            Some(note) => text(doing, &note),
            None => Ok(ours.to_owned()),
        }
    }

    async fn swap_note(&self, name: &str, read: Option<&str>, text: &str) -> Result<bool> {
        self.patiently("changing a note", || {
            let notes = self.collection(NOTES);
            async move {
                let Some(read) = read else {
                    let inserted = notes.insert_one(doc! {"_id": name, "text": text}).await;
                    return match inserted.map_err(Failure::from) {
                        Ok(_) => Ok(true),
                        Err(failure) if failure.code == Some(super::bulk::DUPLICATE) => Ok(false),
                        Err(failure) => Err(failure),
                    };
                };
                let standing = doc! {"_id": name, "text": read};
                let set = doc! {"$set": {"text": text}};
                let swapped = notes.update_one(standing, set).await?;
                Ok(swapped.matched_count == 1)
            }
        })
        .await
    }

    async fn notes_under(&self, prefix: &str) -> Result<Vec<(String, String)>> {
        let doing = "reading notes";
        let under = doc! {"_id": {"$gte": prefix, "$lt": format!("{prefix}{}", char::MAX)}};
        let by_name = FindOptions::builder().sort(doc! {"_id": 1}).build();
        let found = self.find_all(doing, NOTES, &under, by_name).await?;
        let note = |note: &Document| {
            let name = note.get_str("_id").map_err(|error| {
                Error::database(doing, format!("a note's name cannot be read: {error}"))
            })?;
            Ok((name.to_owned(), text(doing, note)?))
        };
        found.iter().map(note).collect()
    }

    async fn drop_note(&self, name: &str) -> Result<()> {
        self.patiently("forgetting a note", || {
            let notes = self.collection(NOTES);
            async move { Ok(notes.delete_one(doc! {"_id": name}).await.map(drop)?) }
        })
        .await
    }
}

/// Of two that write a note first, one may be told that it stands already: then it does.
fn again_if_raced(error: mongodb::error::Error) -> Failure {
    let failure = Failure::from(error);
    Failure {
        passing: failure.passing || failure.code == Some(super::bulk::DUPLICATE),
        ..failure
    }
}

fn text(doing: &str, note: &Document) -> Result<String> {
    note.get_str("text")
        .map(str::to_owned)
        .map_err(|error| Error::database(doing, format!("a note cannot be read: {error}")))
}
