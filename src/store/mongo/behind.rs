//! Restores a document whose `_id` is already stored.
//!
//! The documents must be equal, or each entry is appended once (see [`entries_to_append`]).

use std::collections::HashSet;

use bson::spec::ElementType;
use bson::{Bson, RawDocumentBuf, doc};
use mongodb::options::FindOptions;

use super::Mongo;
use super::bulk::Verb;
use super::decode::{self, Elements, Field};
use super::encode::Writer;
use crate::domain::{self, Day, Event, Marker};
use crate::store::days::{Append, Exported, entries_to_append};
use crate::store::{Error, Meeting, Result, extjson};

/// How often to retry after a concurrent write.
const TRIES: usize = 100;

/// An entry of `events`: its type and the bytes of its value.
type Entry = (u8, Vec<u8>);

impl Mongo {
    pub(super) async fn meet(
        &self,
        day: Day,
        document: &RawDocumentBuf,
        meeting: Meeting,
    ) -> Result<()> {
        // Other writers may append meanwhile, but rarely to an old day.
        for _ in 0..TRIES {
            let Some(standing) = self.stands_in(day, document).await? else {
                let inserted = self.insert_into(day, std::slice::from_ref(document));
                if inserted.await?.is_empty() {
                    return Ok(());
                }
                continue;
            };
            let line = |document: &RawDocumentBuf| extjson::to_line(document);
            if standing == *document || line(&standing) == line(document) {
                return Ok(());
            }
            let (before, rest) = parts(&standing);
            let (ours, our_rest) = parts(document);
            let (Meeting::Append { is_expired }, Some(before), Some(ours)) =
                (meeting, before, ours)
            else {
                return Err(conflict(day, document));
            };
            if rest != our_rest {
                return Err(conflict(day, document));
            }
            let stands_at = |from: usize| {
                let entries = ours.iter().map(|entry| moved(entry, |n| n + from));
                entries.eq(before[from..from + ours.len()].iter().cloned())
            };
            // This may be a later export: the stored entries, followed by new ones.
            if ours.starts_with(&before) {
                let new = &ours[before.len()..];
                if self.append(day, document, before.len(), new).await? {
                    return Ok(());
                }
                continue;
            }
            if before.len() >= ours.len() && (0..=before.len() - ours.len()).any(stands_at) {
                return Ok(());
            }
            let Some(entries) = new_behind(&before, &ours, is_expired) else {
                let user = name_in(document);
                return Err(Error::Pending { user, day });
            };
            if entries.is_empty() {
                return Ok(());
            }
            if self.append(day, document, before.len(), &entries).await? {
                return Ok(());
            }
        }
        Err(conflict(day, document))
    }

    async fn stands_in(
        &self,
        day: Day,
        document: &RawDocumentBuf,
    ) -> Result<Option<RawDocumentBuf>> {
        let id = id_of(document).ok_or_else(|| conflict(day, document))?;
        let doing = format!("comparing with what stands in {day}");
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
        entries: &[Entry],
    ) -> Result<bool> {
        let doing = format!("restoring {day}");
        let targets = vec![(day.collection(), vec![0])];
        let id = Elements::of(document.as_bytes()).find(|element| element.name == b"_id");
        let appended = self.bulk(&doing, Verb::Update, targets, |writer, _| {
            writer.document("q");
            if let Some(id) = id {
                writer.document("_id");
                writer.element("$eq", id);
                writer.close();
            }
            writer.document("events");
            writer.int("$size", i32::try_from(length).unwrap_or(i32::MAX));
            writer.close();
            writer.close();
            writer.document("u");
            writer.document("$push");
            writer.document("events");
            writer.array("$each");
            for (n, (kind, value)) in entries.iter().enumerate() {
                let name = b"";
                writer.element(
                    n,
                    Field {
                        kind: *kind,
                        name,
                        value,
                    },
                );
            }
            writer.close();
            writer.close();
            writer.close();
            writer.close();
        });
        let appended = appended.await?;
        // If the command was sent twice, the first attempt may have succeeded. The next comparison
        // shows it.
        let done = appended.n == 1 && !appended.resent;
        appended.complete(&doing).map(|_| done)
    }
}

fn id_of(document: &RawDocumentBuf) -> Option<Bson> {
    let id = document.get("_id").ok()??;
    Bson::try_from(id).ok()
}

fn name_in(document: &RawDocumentBuf) -> String {
    match id_of(document) {
        Some(Bson::String(text)) => text,
        Some(other) => other.to_string(),
        None => "an unknown user".to_owned(),
    }
}

fn conflict(day: Day, document: &RawDocumentBuf) -> Error {
    let user = name_in(document);
    let what = format!("the stack of {user} on {day}");
    Error::Conflict { what }
}

/// The entries, if `events` is a list, and all other fields by name.
type Parts = (Option<Vec<Entry>>, Vec<(Vec<u8>, Entry)>);

fn parts(document: &RawDocumentBuf) -> Parts {
    let (mut events, mut rest) = (None, Vec::new());
    for element in Elements::of(document.as_bytes()) {
        let entry = |element: Field<'_>| (element.kind, element.value.to_vec());
        if element.name == b"events" && element.is_array() {
            events = Some(Elements::of(element.value).map(entry).collect());
        } else {
            rest.push((element.name.to_vec(), entry(element)));
        }
    }
    (events, rest)
}

/// Returns the entry's fields, if it is a document.
fn fields((kind, value): &Entry) -> Option<Elements<'_>> {
    let entry = Field {
        kind: *kind,
        name: b"",
        value,
    };
    entry.is_document().then(|| Elements::of(value))
}

/// Returns the identity of an entry: a marker's id, or all of its bytes. An event or a marker
/// without an id has none: it may occur twice.
fn name_of(entry: &Entry) -> Option<&[u8]> {
    match decode::element(entry.0, &entry.1) {
        domain::Entry::Marker(Marker { id: Some(_), .. }) => {
            let id = fields(entry)?.find(|field| field.name == b"flushed")?;
            Some(id.value)
        }
        domain::Entry::Event(Event { i: None, .. }) | domain::Entry::Marker(_) => None,
        domain::Entry::Event(_) | domain::Entry::Mailed(_) | domain::Entry::Other => Some(&entry.1),
    }
}

/// Returns the entries to append to `before`, so that it has `ours` once; `None` if that is
/// refused.
fn new_behind(before: &[Entry], ours: &[Entry], is_expired: bool) -> Option<Vec<Entry>> {
    let standing: HashSet<&[u8]> = before.iter().filter_map(name_of).collect();
    let decoded = |(kind, value): &Entry| decode::element(*kind, value);
    let exported = |entry: &Entry| Exported {
        is_stored: name_of(entry).is_some_and(|name| standing.contains(name)),
        entry: decoded(entry),
    };
    let list: Vec<Exported> = ours.iter().map(exported).collect();
    let before: Vec<domain::Entry> = before.iter().map(decoded).collect();
    let append = entries_to_append(&before, &list, is_expired)?.into_iter();
    let entry = |append| match append {
        Append::Entry(index) => ours[index].clone(),
        Append::Marker(index, covers) => moved(&ours[index], |_| covers),
        Append::Note(note) => {
            let mut writer = Writer::new();
            writer.mailed_fields(&note);
            (
                ElementType::EmbeddedDocument as u8,
                writer.finish().into_bytes(),
            )
        }
    };
    Some(append.map(entry).collect())
}

/// Returns the entry for another position in a list. A marker that covered `n` entries covers
/// `covers(n)` there.
fn moved(entry: &Entry, covers: impl Fn(usize) -> usize) -> Entry {
    let (kind, value) = entry;
    if !matches!(decode::element(*kind, value), domain::Entry::Marker(_)) {
        return entry.clone();
    }
    let mut writer = Writer::new();
    for field in Elements::of(value) {
        let count = field.count().filter(|_| field.name == b"n");
        let covered = count.map(|n| (n as usize, covers(n as usize)));
        match covered.filter(|(was, is)| was != is) {
            Some((_, n)) => {
                let n = n as i64;
                match i32::try_from(n) {
                    Ok(n) => writer.int("n", n),
                    Err(_) => writer.long("n", n),
                }
            }
            None => writer.element(field.name, field),
        }
    }
    (*kind, writer.finish().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(document: bson::Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(&document).unwrap()
    }

    #[test]
    fn moving_a_marker_shifts_only_its_count() {
        let marker = |n: Bson| raw(doc! {"flushed": true, "n": n, "x": 1});
        let entry = |document: RawDocumentBuf| (3, document.into_bytes());
        let moved = |entry: &Entry, by: usize| super::moved(entry, |n| n + by);
        assert_eq!(moved(&entry(marker(2.into())), 5), entry(marker(7.into())));
        assert_eq!(
            moved(&entry(marker(2_i64.into())), 5),
            entry(marker(7.into()))
        );
        let bare = entry(raw(doc! {"flushed": true}));
        assert_eq!(moved(&bare, 5), bare);
        let event = entry(raw(doc! {"t": "T", "o": "1", "n": 3}));
        assert_eq!(moved(&event, 5), event);
    }
}
