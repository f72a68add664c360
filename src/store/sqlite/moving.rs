//! The file as something that can be moved, or moved into.
//!
//! The rule: rows are walked in the order of their keys, whatever these are, and one that cannot be
//! read keeps no other from being moved. A sealed file refuses writes by triggers, so SQLite itself
//! holds back whoever has it open, in any process and of any version.

use async_trait::async_trait;
use rusqlite::{Row, Transaction, params_from_iter};

use super::answer::Answer;
use super::codec::{Record, millis};
use super::columns::{Fields, Met, fields};
use super::odd_rows::Column;
use super::{Sqlite, batches, delivery_row, directory, inboxes, journal, objects, suppressions};
use crate::domain::{Address, DeliveryId, EventType, FollowKey, Id, ObjectId, Retraction, UserId};
use crate::store::moving::{BYTES, NOTE, RECORDS, stays};
use crate::store::record::batch::{AccumulatorRecord, BatchRecord};
use crate::store::record::delivery::DeliveryRecord;
use crate::store::record::fields::As;
use crate::store::record::inbox::InboxRecord;
use crate::store::record::suppression::SuppressionRecord;
use crate::store::record::user::UserRecord;
use crate::store::{Error, Kept, Kind, Moving, Portion, Result};

/// How the triggers of a sealed file are called, before the table's name.
const SEAL: &str = "sealed_";

#[async_trait]
impl Moving for Sqlite {
    async fn tally(&self, kind: Kind) -> Result<u64> {
        let count = move |transaction: &Transaction<'_>| {
            let table = table(kind);
            let own = match kind {
                Kind::Notes => " WHERE name NOT IN ('moving', 'schema')",
                _ => "",
            };
            let sql = format!("SELECT count(*) FROM {table}{own}");
            let count: i64 = transaction.query_row(&sql, [], |row| row.get(0))?;
            Ok(count.unsigned_abs())
        };
        let doing = format!("counting {}", kind.as_str());
        self.connections.read(doing, count).await
    }

    async fn portion(&self, kind: Kind, after: Option<&str>) -> Result<Portion> {
        let after = after.map(cursor).transpose()?;
        let read = move |transaction: &Transaction<'_>| portion(transaction, kind, after);
        let doing = format!("reading {}", kind.as_str());
        self.connections.read(doing, read).await
    }

    async fn put(&self, kind: Kind, kept: &[Kept]) -> Result<()> {
        let doing = format!("putting {}", kind.as_str());
        self.change_each(&doing, kept, put).await.map(drop)
    }

    async fn seal(&self, why: &str) -> Result<bool> {
        let why = why.replace('\'', "''");
        let seal = move |transaction: &Transaction<'_>| {
            for table in tables(transaction)? {
                for (change, row) in [("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")] {
                    let when = match table.as_str() {
                        "notes" => format!(" WHEN {row}.name <> '{NOTE}'"),
                        _ => String::new(),
                    };
                    transaction.execute_batch(&format!(
                        "CREATE TRIGGER IF NOT EXISTS {SEAL}{table}_{change}
                         BEFORE {change} ON {table}{when}
                         BEGIN SELECT RAISE(ABORT, '{why}'); END"
                    ))?;
                }
            }
            Ok(true)
        };
        self.connections.write("sealing the file", seal).await
    }

    async fn unseal(&self) -> Result<()> {
        let unseal = |transaction: &Transaction<'_>| {
            let sql = format!(
                "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name GLOB '{SEAL}*'"
            );
            let mut triggers = transaction.prepare(&sql)?;
            let names = triggers.query_map([], |row| row.get::<_, String>(0))?;
            for name in names.collect::<rusqlite::Result<Vec<_>>>()? {
                transaction.execute_batch(&format!("DROP TRIGGER {name}"))?;
            }
            Ok(())
        };
        self.connections.write("unsealing the file", unseal).await
    }
}

/// All tables.
fn tables(transaction: &Transaction<'_>) -> Answer<Vec<String>> {
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    let mut tables = transaction.prepare(sql)?;
    let names = tables.query_map([], |row| row.get(0))?;
    Ok(names.collect::<rusqlite::Result<_>>()?)
}

fn table(kind: Kind) -> &'static str {
    match kind {
        Kind::Users => "users",
        Kind::Follows => "follows",
        Kind::Objects => "objects",
        Kind::Inboxes => "inboxes",
        Kind::Retractions => "retractions",
        Kind::Suppressions => "suppressions",
        Kind::SoftBounces => "soft_bounces",
        Kind::Sightings => "sightings",
        Kind::Fanouts => "fanouts",
        Kind::Accumulators => "seats",
        Kind::Batches => "batches",
        Kind::Deliveries => "deliveries",
        Kind::Notes => "notes",
    }
}

/// The columns of its primary key.
fn key(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Follows => &["k", "u"],
        Kind::Retractions => &["type", "object"],
        Kind::SoftBounces => &["address", "delivery"],
        Kind::Accumulators => &["user", "key"],
        Kind::Inboxes => &["user"],
        Kind::Suppressions => &["address"],
        Kind::Sightings => &["key"],
        Kind::Notes => &["name"],
        Kind::Users | Kind::Objects | Kind::Fanouts | Kind::Batches | Kind::Deliveries => &["id"],
    }
}

/// The rows of a kind; those of the journal with what of them is in other tables.
fn selected(kind: Kind) -> String {
    match kind {
        Kind::Fanouts => "SELECT fanouts.*, objects, audience, details FROM fanouts
            LEFT JOIN audiences ON audiences.fanout = id LEFT JOIN details ON details.fanout = id"
            .to_owned(),
        kind => format!("SELECT * FROM {}", table(kind)),
    }
}

/// The key that a portion ended with.
fn cursor(text: &str) -> Result<Vec<Column>> {
    let columns: Option<Vec<String>> = serde_json::from_str(text).ok();
    let read = columns.and_then(|columns| columns.iter().map(|one| Column::read(one)).collect());
    read.ok_or_else(|| Error::corrupt("how far a move has come", format!("it is {text:?}")))
}

fn portion(
    transaction: &Transaction<'_>,
    kind: Kind,
    after: Option<Vec<Column>>,
) -> Answer<Portion> {
    let names = key(kind).join(", ");
    let (condition, values) = match after {
        None => (String::new(), Vec::new()),
        Some(values) => {
            let marks = vec!["?"; values.len()].join(", ");
            (format!(" WHERE ({names}) > ({marks})"), values)
        }
    };
    let sql = format!("{}{condition} ORDER BY {names}", selected(kind));
    let mut statement = transaction.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let (mut portion, mut read, mut bytes) = (Portion::default(), 0, 0);
    while let Some(row) = rows.next()? {
        match record(kind, row) {
            Ok(kept) => portion.kept.extend(kept),
            Err(failure) if failure.is_unreadable() => portion.bad.push(failure.told()),
            Err(failure) => return Err(failure),
        }
        read += 1;
        bytes += size(row)?;
        if read == RECORDS || bytes > BYTES {
            portion.next = Some(key_of(kind, row)?);
            break;
        }
    }
    Ok(portion)
}

/// About how many bytes a row takes.
fn size(row: &Row<'_>) -> Answer<usize> {
    let columns = 0..row.as_ref().column_count();
    let sizes = columns.map(|column| {
        let value = row.get_ref(column)?;
        Ok(value.as_bytes().map_or(8, <[u8]>::len))
    });
    sizes.sum()
}

fn key_of(kind: Kind, row: &Row<'_>) -> Answer<String> {
    let spelled = key(kind).iter().map(|column| {
        let value = row.get_ref(*column)?;
        Ok(Column::of(value).spelled())
    });
    let spelled: Answer<Vec<String>> = spelled.collect();
    super::codec::to_json(&spelled?)
}

/// What a row says; nothing where it is the store's own.
fn record(kind: Kind, row: &Row<'_>) -> Answer<Option<Kept>> {
    let what = Record {
        what: kind.as_str(),
        row,
    };
    let none = Fields::new;
    Ok(Some(match kind {
        Kind::Users => Kept::User(Box::new(directory::USERS.read::<UserRecord>(row, none())?)),
        Kind::Follows => Kept::Follow(
            FollowKey::stored(what.text("k")?),
            UserId::stored(what.text("u")?),
        ),
        Kind::Objects => Kept::Object(Box::new(objects::read(row)?)),
        Kind::Inboxes => Kept::Inbox(Box::new(inboxes::INBOXES.read::<InboxRecord>(row, none())?)),
        Kind::Retractions => Kept::Retraction(Retraction {
            t: EventType::stored(what.text("type")?),
            o: ObjectId::stored(what.text("object")?),
            at: what.parsed::<Id>("at")?,
        }),
        Kind::Suppressions => {
            Kept::Suppression(suppressions::SUPPRESSIONS.read::<SuppressionRecord>(row, none())?)
        }
        Kind::SoftBounces => Kept::SoftBounce {
            address: Address::stored(what.text("address")?)
                .map_err(|why| Error::corrupt("the address of a soft bounce", why))?,
            delivery: DeliveryId::stored(what.text("delivery")?),
            at: what.time("at")?,
        },
        Kind::Sightings => Kept::Sighting {
            key: what.text("key")?.to_owned(),
            mark: what.text("mark")?.to_owned(),
            until: what.time("until")?,
        },
        Kind::Fanouts => Kept::Fanout(Box::new(journal::read(row)?)),
        Kind::Accumulators => Kept::Accumulator(Box::new(
            batches::ACCUMULATORS.read::<AccumulatorRecord>(row, none())?,
        )),
        Kind::Batches => Kept::Batch(Box::new(batches::FILED.read::<BatchRecord>(row, none())?)),
        Kind::Deliveries => Kept::Delivery(Box::new(
            delivery_row::DELIVERIES.read::<DeliveryRecord>(row, none())?,
        )),
        Kind::Notes => {
            let (name, text) = (what.text("name")?, what.text("text")?);
            if stays(name) {
                return Ok(None);
            }
            Kept::Note {
                name: name.to_owned(),
                text: text.to_owned(),
            }
        }
    }))
}

fn put(transaction: &Transaction<'_>, kept: &Kept) -> Answer<()> {
    let insert = |sql: &str, values: &[&dyn rusqlite::ToSql]| -> Answer<()> {
        transaction.prepare_cached(sql)?.execute(values)?;
        Ok(())
    };
    match kept {
        Kept::User(user) => directory::write(transaction, user, 1),
        Kept::Follow(key, user) => insert(
            "INSERT OR REPLACE INTO follows (k, u) VALUES (?1, ?2)",
            &[&key.as_str(), &user.as_str()],
        ),
        Kept::Object(object) => objects::put(transaction, object),
        Kept::Inbox(inbox) => {
            let mut row = InboxRecord::keep(inbox);
            row.revision = row.revision.or(Some(As::keep(&FIRST)));
            inboxes::INBOXES.insert(transaction, Met::Replaced, &fields(&row)?)?;
            Ok(())
        }
        Kept::Retraction(Retraction { t, o, at }) => insert(
            "INSERT OR REPLACE INTO retractions (type, object, at) VALUES (?1, ?2, ?3)",
            &[&t.as_str(), &o.as_str(), &at.to_string()],
        ),
        Kept::Suppression(kept) => {
            let row = fields(&SuppressionRecord::exactly(kept))?;
            suppressions::SUPPRESSIONS.insert(transaction, Met::Replaced, &row)?;
            Ok(())
        }
        Kept::SoftBounce {
            address,
            delivery,
            at,
        } => insert(
            "INSERT OR REPLACE INTO soft_bounces (address, delivery, at) VALUES (?1, ?2, ?3)",
            &[&address.reveal(), &delivery.as_str(), &millis(*at)],
        ),
        Kept::Sighting { key, mark, until } => insert(
            "INSERT OR REPLACE INTO sightings (key, mark, until) VALUES (?1, ?2, ?3)",
            &[key, mark, &millis(*until)],
        ),
        Kept::Fanout(fanout) => journal::write(transaction, fanout),
        Kept::Accumulator(accumulator) => {
            let revision = accumulator.revision.unwrap_or(FIRST);
            batches::write(transaction, accumulator, revision)
        }
        Kept::Batch(batch) => {
            let row = fields(&BatchRecord::row(batch))?;
            batches::FILED.insert(transaction, Met::Replaced, &row)?;
            Ok(())
        }
        Kept::Delivery(delivery) => {
            let row = fields(&DeliveryRecord::row(delivery))?;
            delivery_row::DELIVERIES.insert(transaction, Met::Replaced, &row)?;
            Ok(())
        }
        Kept::Note { name, text } => insert(
            "INSERT OR REPLACE INTO notes (name, text) VALUES (?1, ?2)",
            &[name, text],
        ),
    }
}

/// The revision of a record that had none.
const FIRST: Id = Id::from_bytes([0; 12]);
