//! Restores a document whose `_id` is already stored.
//!
//! The documents must be equal, or each entry is appended once (see [`entries_to_append`]).

use bson::{Bson, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, doc, rawdoc};

use super::Mongo;
use super::bulk::Verb;
use super::codec::mailed_document;
use super::reads::id_of;
use crate::domain::{Day, Entry, Mailed};
use crate::store::days::{StoredEntry, entries_to_append};
use crate::store::entry::{read_entry, with_coverage};
use crate::store::{Error, Meeting, Result, extjson};

/// How often to retry after a concurrent write.
const TRIES: usize = 100;

impl Mongo {
    pub(super) async fn merge_stored(
        &self,
        day: Day,
        document: &RawDocumentBuf,
        meeting: Meeting,
    ) -> Result<()> {
        // Other writers may append meanwhile, but rarely to an old day.
        for _ in 0..TRIES {
            let Some(stored) = self.stored_in(day, document).await? else {
                let inserted = self.insert_into(day, std::slice::from_ref(document));
                if inserted.await?.is_empty() {
                    return Ok(());
                }
                continue;
            };
            let line = |document: &RawDocumentBuf| extjson::to_line(document);
            if stored == *document || line(&stored) == line(document) {
                return Ok(());
            }
            let (Some((before, rest)), Some((ours, our_rest)), Meeting::Append { is_expired }) =
                (parts(&stored), parts(document), meeting)
            else {
                break;
            };
            if rest != our_rest {
                break;
            }
            let Some(new) = entries_to_append(&before, &ours, is_expired) else {
                let user = name_in(document);
                return Err(Error::Pending { user, day });
            };
            if new.is_empty() || self.append(day, document, before.len(), new).await? {
                return Ok(());
            }
        }
        Err(conflict(day, document))
    }

    async fn stored_in(
        &self,
        day: Day,
        document: &RawDocumentBuf,
    ) -> Result<Option<RawDocumentBuf>> {
        let id = id_of(document).ok_or_else(|| conflict(day, document))?;
        let same = doc! {"_id": {"$eq": id}};
        let found = self.find(&day.collection(), same).raw().await?;
        Ok(found.into_iter().next())
    }

    /// Appends to a stack if it still has this length. Returns whether it did.
    async fn append(
        &self,
        day: Day,
        document: &RawDocumentBuf,
        length: usize,
        entries: Vec<RawBson>,
    ) -> Result<bool> {
        let id = document.get("_id").ok().flatten().map(RawBson::from);
        let length = i32::try_from(length).unwrap_or(i32::MAX);
        let statement = rawdoc! {
            "q": {"_id": {"$eq": id.unwrap_or(RawBson::Null)}, "events": {"$size": length}},
            "u": {"$push": {"events": {"$each": RawArrayBuf::from_iter(entries)}}},
        };
        let name = day.collection();
        let appended = self.write(Verb::Update, &name, [statement]).await?;
        // If the command was sent twice, the first attempt may have succeeded. The next comparison
        // shows it.
        let is_first = !appended.resent;
        Ok(appended.complete()? == 1 && is_first)
    }
}

fn name_in(document: &RawDocument) -> String {
    match id_of(document) {
        Some(Bson::String(text)) => text,
        Some(other) => other.to_string(),
        None => "an unknown user".to_owned(),
    }
}

fn conflict(day: Day, document: &RawDocument) -> Error {
    let user = name_in(document);
    let what = format!("the stack of {user} on {day}");
    Error::Conflict { what }
}

type Parts<'a> = (Vec<RawBson>, Vec<(&'a str, RawBson)>);

/// Returns the elements of `events`, and all other fields by name. `None` if `events` is not a
/// list, or a field cannot be read.
fn parts(document: &RawDocument) -> Option<Parts<'_>> {
    let (mut events, mut rest) = (None, Vec::new());
    for field in document {
        let (name, value) = field.ok()?;
        match value {
            RawBsonRef::Array(list) if name.as_str() == "events" => {
                let elements = list.into_iter().map(|element| element.map(RawBson::from));
                events = Some(elements.collect::<std::result::Result<_, _>>().ok()?);
            }
            value => rest.push((name.as_str(), RawBson::from(value))),
        }
    }
    Some((events?, rest))
}

impl StoredEntry for RawBson {
    fn entry(&self) -> Entry {
        match self {
            Self::Document(entry) => read_entry(entry).unwrap_or(Entry::Other),
            _ => Entry::Other,
        }
    }

    fn covering(&self, n: usize) -> Option<Self> {
        match self {
            Self::Document(marker) => with_coverage(marker, n).map(Self::Document),
            _ => None,
        }
    }

    fn mailed(mailed: &Mailed) -> Self {
        Self::Document(mailed_document(mailed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(document: bson::Document) -> RawBson {
        RawBson::Document(RawDocumentBuf::try_from(&document).unwrap())
    }

    #[test]
    fn a_marker_for_another_place_differs_only_in_its_count() {
        let marker = |n: Bson| entry(doc! {"flushed": true, "n": n, "x": 1});
        assert_eq!(marker(2.into()).covering(7), Some(marker(7.into())));
        assert_eq!(marker(2_i64.into()).covering(7), Some(marker(7.into())));
    }
}
