//! Stores small named texts: one document each, `{_id, text}`.
//!
//! The unique `_id` decides which of two new notes is stored; the other writer then reads it.

use std::collections::HashMap;

use async_trait::async_trait;
use bson::{RawDocument, doc};
use mongodb::options::FindOptions;

use super::bulk::DUPLICATE;
use super::patience::Failure;
use super::values::in_order;
use super::{Mongo, NOTES};
use crate::store::{Error, Notes, Result};

#[async_trait]
impl Notes for Mongo {
    async fn note(&self, name: &str) -> Result<Option<String>> {
        let doing = "reading a note";
        let (named, options) = (doc! {"_id": name}, FindOptions::default());
        let found = self.find_raw(doing, NOTES, &named, options).await?;
        found.first().map(|note| text(doing, note)).transpose()
    }

    async fn notes_named(&self, names: &[String]) -> Result<Vec<Option<String>>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let doing = "reading notes";
        let (named, options) = (doc! {"_id": {"$in": names}}, FindOptions::default());
        let found = self.find_raw(doing, NOTES, &named, options).await?;
        let found = found.iter().map(|raw| note(doing, raw));
        let found: HashMap<String, String> = found.collect::<Result<_>>()?;
        Ok(names.iter().map(|name| found.get(name).cloned()).collect())
    }

    async fn swap_note(&self, name: &str, read: Option<&str>, text: Option<&str>) -> Result<bool> {
        self.patiently("changing a note", || {
            let notes = self.collection(NOTES);
            async move {
                let standing = doc! {"_id": name, "text": read};
                match (read, text) {
                    (None, None) => Ok(false),
                    (None, Some(text)) => {
                        let inserted = notes.insert_one(doc! {"_id": name, "text": text}).await;
                        match inserted.map_err(Failure::from) {
                            Ok(_) => Ok(true),
                            Err(failure) if failure.code == Some(DUPLICATE) => Ok(false),
                            Err(failure) => Err(failure),
                        }
                    }
                    (Some(_), Some(text)) => {
                        let set = doc! {"$set": {"text": text}};
                        Ok(notes.update_one(standing, set).await?.matched_count == 1)
                    }
                    (Some(_), None) => Ok(notes.delete_one(standing).await?.deleted_count == 1),
                }
            }
        })
        .await
    }

    async fn notes(&self, prefix: &str) -> Result<Vec<(String, String)>> {
        let doing = "reading notes";
        let under = doc! {"_id": {"$gte": prefix, "$lt": format!("{prefix}{}", char::MAX)}};
        let by_name = in_order(doc! {"_id": 1}, usize::MAX);
        let found = self.find_raw(doing, NOTES, &under, by_name).await?;
        found.iter().map(|raw| note(doing, raw)).collect()
    }
}

/// Returns a note's name and text.
fn note(doing: &str, note: &RawDocument) -> Result<(String, String)> {
    let name = note.get_str("_id").map_err(|error| {
        Error::database(doing, format!("a note's name cannot be read: {error}"))
    })?;
    Ok((name.to_owned(), text(doing, note)?))
}

fn text(doing: &str, note: &RawDocument) -> Result<String> {
    let text = note.get_str("text").map(str::to_owned);
    text.map_err(|error| Error::database(doing, format!("a note cannot be read: {error}")))
}
