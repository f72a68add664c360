//! The rivals of tidings: the loops of the original scheme, and the bare driver as the ceiling.
//!
//! Each rival runs in its fairest form. The loops await one acknowledged write at a time, as the
//! original did. The bare driver sends documents that were encoded before the clock started.

use std::future::IntoFuture;

use bson::oid::ObjectId;
use bson::raw::{RawArrayBuf, RawBson, RawDocumentBuf};
use bson::{Document, doc, rawdoc};
use futures::{StreamExt, TryStreamExt};
use mongodb::{Collection, Database};

/// Upserts one user after another, as the original did.
pub async fn push_loop(
    day: &Collection<Document>,
    people: &[String],
    o: &str,
) -> mongodb::error::Result<()> {
    for user in people {
        day.update_one(
            doc! {"_id": user},
            doc! {"$push": {"events": {"t": "ArtworkPublished", "o": o}}},
        )
        .upsert(true)
        .await?;
    }
    Ok(())
}

/// Encodes `update` commands of 1,000 upserts each.
pub fn encode_pushes(collection: &str, people: &[String], o: &str) -> Vec<RawDocumentBuf> {
    let event = rawdoc! {"t": "ArtworkPublished", "o": o, "i": ObjectId::new()};
    let update = rawdoc! {"$push": {"events": event}};
    people
        .chunks(1_000)
        .map(|chunk| {
            let mut updates = RawArrayBuf::new();
            for user in chunk {
                updates.push(
                    rawdoc! {"q": {"_id": user.as_str()}, "u": update.clone(), "upsert": true},
                );
            }
            let mut command =
                rawdoc! {"update": collection, "ordered": false, "writeConcern": {"w": "majority"}};
            command.append(bson::raw::cstr!("updates"), RawBson::Array(updates));
            command
        })
        .collect()
}

/// Encodes `update` commands of 1,000 conditional upserts each.
///
/// One event joins one open batch per user, at most once. A batch keeps its last ten items.
pub fn encode_joins(
    collection: &str,
    people: &[String],
    key: &str,
    o: &str,
    at: bson::DateTime,
) -> Vec<RawDocumentBuf> {
    let fanout = ObjectId::new();
    let closes = bson::DateTime::from_millis(at.timestamp_millis() + 300_000);
    let event = rawdoc! {"t": "ArtworkPublished", "o": o, "i": fanout};
    let update = rawdoc! {
        "$push": {
            "items": {"$each": [event], "$slice": -10},
            "joined": fanout,
        },
        "$inc": {"count": 1},
        "$max": {"last": at},
        "$setOnInsert": {"id": ObjectId::new(), "opened": at, "due": closes, "state": "open"},
    };
    people
        .chunks(1_000)
        .map(|chunk| {
            let mut updates = RawArrayBuf::new();
            for user in chunk {
                let open = rawdoc! {"_id": {"u": user.as_str(), "k": key}, "joined": {"$ne": fanout}};
                updates.push(rawdoc! {"q": open, "u": update.clone(), "upsert": true});
            }
            let mut command = rawdoc! {
                "update": collection, "ordered": false, "writeConcern": {"w": "majority", "j": true},
            };
            command.append(bson::raw::cstr!("updates"), RawBson::Array(updates));
            command
        })
        .collect()
}

/// Sends the commands, two in flight.
pub async fn send_two_in_flight(
    db: &Database,
    commands: Vec<RawDocumentBuf>,
) -> mongodb::error::Result<()> {
    futures::stream::iter(commands)
        .map(|command| db.run_raw_command(command).into_future())
        .buffer_unordered(2)
        .try_for_each(|answer| async move {
            assert!(
                answer.get_array("writeErrors").is_err(),
                "the ceiling must write everything: {answer}"
            );
            Ok(())
        })
        .await
}

/// Returns the number of pending events, read as the original did: one `find_one` per user and day,
/// the slice after the last marker, without duplicates.
pub async fn read_loop(
    db: &Database,
    days: &[String],
    people: &[String],
) -> mongodb::error::Result<usize> {
    let mut total = 0;
    for user in people {
        let mut pending: Vec<(String, String)> = Vec::new();
        for day in days {
            let Some(found) = db.collection::<Document>(day).find_one(doc! {"_id": user}).await?
            else {
                continue;
            };
            let Ok(events) = found.get_array("events") else {
                continue;
            };
            let events: Vec<&Document> =
                events.iter().filter_map(|event| event.as_document()).collect();
            let from = events
                .iter()
                .rposition(|event| event.contains_key("flushed"))
                .map_or(0, |last| last + 1);
            for event in &events[from..] {
                if let (Ok(t), Ok(o)) = (event.get_str("t"), event.get_str("o"))
                    && !pending.iter().any(|(kt, ko)| kt == t && ko == o)
                {
                    pending.push((t.to_owned(), o.to_owned()));
                }
            }
        }
        total += pending.len();
    }
    Ok(total)
}

/// Flushes as the original did: one update per user and day, one after another.
pub async fn flush_loop(
    db: &Database,
    days: &[String],
    people: &[String],
) -> mongodb::error::Result<()> {
    for user in people {
        for day in days {
            let marker = doc! {"$push": {"events": {"flushed": ObjectId::new()}}};
            db.collection::<Document>(day).update_one(doc! {"_id": user}, marker).await?;
        }
    }
    Ok(())
}
