//! Restores a document whose `_id` is already stored.
//!
//! The documents must be equal, or each entry is appended once (see [`entries_to_append`]).

use std::collections::HashSet;

use bson::{Bson, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, doc, rawdoc};
use mongodb::options::FindOptions;

use super::bulk::Verb;
use super::{Mongo, codec};
use crate::domain::{Day, Entry, Event, Marker};
use crate::store::days::{Append, Exported, entries_to_append};
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
            let is_at = |from: usize| {
                let moved = ours.iter().map(|entry| moved(entry, |n| n + from));
                moved.eq(before[from..from + ours.len()].iter().cloned().map(Some))
            };
            // This may be a later export: the stored entries, followed by new ones.
            let new = match ours.strip_prefix(&before[..]) {
                Some(new) => new.to_vec(),
                None => {
                    let has_room = before.len() >= ours.len();
                    if has_room && (0..=before.len() - ours.len()).any(is_at) {
                        return Ok(());
                    }
                    let Some(new) = entries_behind(&before, &ours, is_expired) else {
                        let user = name_in(document);
                        return Err(Error::Pending { user, day });
                    };
                    let new: Option<Vec<RawBson>> = new.into_iter().collect();
                    new.ok_or_else(|| conflict(day, document))?
                }
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
        let id = id_of(document).and_then(|id| Bson::try_from(id).ok());
        let id = id.ok_or_else(|| conflict(day, document))?;
        let doing = format!("comparing with the documents of {day}");
        let (same, options) = (doc! {"_id": {"$eq": id}}, FindOptions::default());
        let name = day.collection();
        let found = self.find_raw(&doing, &name, &same, options).await?;
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
        let doing = format!("restoring {day}");
        let id = id_of(document).ok_or_else(|| conflict(day, document))?;
        let length = i32::try_from(length).unwrap_or(i32::MAX);
        let statements = [rawdoc! {
            "q": {"_id": {"$eq": RawBson::from(id)}, "events": {"$size": length}},
            "u": {"$push": {"events": {"$each": RawArrayBuf::from_iter(entries)}}},
        }];
        let (name, all) = (day.collection(), vec![0]);
        let appended = self.write_some(&doing, Verb::Update, &name, &statements, all);
        let appended = appended.await?;
        // If the command was sent twice, the first attempt may have succeeded. The next comparison
        // shows it.
        let done = appended.n == 1 && !appended.resent;
        appended.complete(&doing).map(|_| done)
    }
}

fn id_of(document: &RawDocument) -> Option<RawBsonRef<'_>> {
    document.get("_id").ok().flatten()
}

fn name_in(document: &RawDocument) -> String {
    match id_of(document).and_then(|id| Bson::try_from(id).ok()) {
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

fn decoded(entry: &RawBson) -> Entry {
    match entry {
        RawBson::Document(entry) => codec::element(entry),
        _ => Entry::Other,
    }
}

/// Returns the identity of an entry: a marker's id, or all of its bytes. An event or a marker
/// without an id has none: it may occur twice.
fn identity(entry: &RawBson) -> Option<Vec<u8>> {
    match decoded(entry) {
        Entry::Marker(Marker { id, .. }) => id.map(|id| id.bytes().to_vec()),
        Entry::Event(Event { i: None, .. }) => None,
        Entry::Event(_) | Entry::Mailed(_) | Entry::Other => {
            Some(rawdoc! {"entry": entry.clone()}.into_bytes())
        }
    }
}

/// Returns the entries to append to `before`, so that it has `ours` once; `None` if that is
/// refused. An entry is `None` if a marker cannot be read.
fn entries_behind(
    before: &[RawBson],
    ours: &[RawBson],
    is_expired: bool,
) -> Option<Vec<Option<RawBson>>> {
    let stored: HashSet<Vec<u8>> = before.iter().filter_map(identity).collect();
    let exported = |entry: &RawBson| Exported {
        is_stored: identity(entry).is_some_and(|identity| stored.contains(&identity)),
        entry: decoded(entry),
    };
    let exported: Vec<Exported> = ours.iter().map(exported).collect();
    let before: Vec<Entry> = before.iter().map(decoded).collect();
    let append = entries_to_append(&before, &exported, is_expired)?.into_iter();
    let entry = |append| match append {
        Append::Entry(index) => Some(ours[index].clone()),
        Append::Marker(index, covers) => moved(&ours[index], |_| covers),
        Append::Note(note) => Some(RawBson::Document(codec::mailed_document(&note))),
    };
    Some(append.map(entry).collect())
}

/// Returns the entry for another position in a list. A marker that covered `n` entries covers
/// `covers(n)` there. `None` if a field of a marker cannot be read.
fn moved(entry: &RawBson, covers: impl Fn(usize) -> usize) -> Option<RawBson> {
    let (RawBson::Document(marker), Entry::Marker(read)) = (entry, decoded(entry)) else {
        return Some(entry.clone());
    };
    let mut moved = RawDocumentBuf::new();
    for field in marker {
        let (name, value) = field.ok()?;
        let covered = read.n.filter(|_| name.as_str() == "n");
        let covered = covered.map(|n| (n as usize, covers(n as usize)));
        match covered.filter(|(was, is)| was != is) {
            Some((_, n)) => match i32::try_from(n) {
                Ok(n) => moved.append(name, n),
                Err(_) => moved.append(name, n as i64),
            },
            None => moved.append(name, value),
        }
    }
    Some(RawBson::Document(moved))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(document: bson::Document) -> RawBson {
        RawBson::Document(RawDocumentBuf::try_from(&document).unwrap())
    }

    #[test]
    fn moving_a_marker_shifts_only_its_count() {
        let marker = |n: Bson| entry(doc! {"flushed": true, "n": n, "x": 1});
        let moved = |entry: &RawBson, by: usize| super::moved(entry, |n| n + by).unwrap();
        assert_eq!(moved(&marker(2.into()), 5), marker(7.into()));
        assert_eq!(moved(&marker(2_i64.into()), 5), marker(7.into()));
        let bare = entry(doc! {"flushed": true});
        assert_eq!(moved(&bare, 5), bare);
        let event = entry(doc! {"t": "T", "o": "1", "n": 3});
        assert_eq!(moved(&event, 5), event);
    }
}
