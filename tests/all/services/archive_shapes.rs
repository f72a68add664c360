//! Tests that an archived day is restored byte for byte (P9), including invalid and unusual values.

use std::collections::BTreeMap;

use bson::{Bson, RawDocumentBuf, doc};
use chrono::TimeDelta;
use futures::TryStreamExt;
use tidings::domain::Day;
use tidings::engine::NoProgress;
use tidings::engine::archive::ArchiveRequest;
use tidings::wire::archive::DayFate;

use crate::support::Fresh;
use crate::support::poison::{database, file};
use crate::support::town::{Town, monday, saturday};

fn first_day() -> Day {
    Day::of(saturday())
}

fn request(folder: &std::path::Path) -> ArchiveRequest {
    ArchiveRequest {
        keep: TimeDelta::days(30),
        export: Some(folder.to_owned()),
        dry_run: false,
        force: true,
    }
}

/// A BSON field: type, name, and the bytes of the value.
type Field<'a> = (u8, &'a [u8], Vec<u8>);

/// Encodes a BSON document without checking its fields.
fn document(fields: &[Field<'_>]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    for (kind, name, value) in fields {
        bytes.push(*kind);
        bytes.extend_from_slice(name);
        bytes.push(0);
        bytes.extend_from_slice(value);
    }
    bytes.push(0);
    let length = (bytes.len() as i32).to_le_bytes();
    bytes[..4].copy_from_slice(&length);
    bytes
}

fn text(bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as i32 + 1).to_le_bytes();
    [&length[..], bytes, b"\0"].concat()
}

fn counted(bytes: &[u8], subtype: u8) -> Vec<u8> {
    let length = (bytes.len() as i32).to_le_bytes();
    [&length[..], &[subtype], bytes].concat()
}

/// Documents that the types of the `bson` crate cannot express.
fn raw_shapes() -> Vec<Vec<u8>> {
    let fields: Vec<Vec<Field<'_>>> = vec![
        // Field names that are duplicate, empty, or invalid UTF-8.
        vec![(0x10, b"a", vec![1, 0, 0, 0]), (0x10, b"a", vec![2, 0, 0, 0])],
        vec![(0x10, b"", vec![1, 0, 0, 0])],
        vec![(0x10, b"\xff\xfe", vec![1, 0, 0, 0])],
        // Strings, symbols, code, and patterns with invalid UTF-8.
        vec![(0x02, b"t", text(b"\xff\xff"))],
        vec![(0x0e, b"t", text(b"\xc3"))],
        vec![(0x0d, b"t", text(b"f(\xff)"))],
        vec![(0x0b, b"t", b"\xff\0\0".to_vec())],
        // Negative zero, NaNs with payloads, and decimals with equal values but different bits.
        vec![(0x01, b"n", (-0.0_f64).to_le_bytes().to_vec())],
        vec![(0x01, b"n", 0x7ff8_0000_0000_0001_u64.to_le_bytes().to_vec())],
        vec![(0x01, b"n", 0xfff0_0000_0000_0007_u64.to_le_bytes().to_vec())],
        vec![(0x13, b"n", vec![0xff; 16])],
        vec![(0x13, b"n", [vec![1], vec![0; 13], vec![0x40, 0x30]].concat())],
        vec![(0x13, b"n", [vec![10], vec![0; 13], vec![0x3e, 0x30]].concat())],
        // Binary: generic, subtype 2 with a right and a wrong inner length, UUIDs (one too short),
        // and user-defined.
        vec![(0x05, b"b", counted(b"abc", 0))],
        vec![(0x05, b"b", counted(b"\x03\0\0\0abc", 2))],
        vec![(0x05, b"b", counted(b"\x09\0\0\0abc", 2))],
        vec![(0x05, b"b", counted(&[7; 16], 3))],
        vec![(0x05, b"b", counted(&[7; 16], 4))],
        vec![(0x05, b"b", counted(b"short", 4))],
        vec![(0x05, b"b", counted(b"", 0x80))],
        // Deprecated types.
        vec![(0x06, b"u", vec![])],
        vec![(0x0c, b"p", [text(b"db.c"), vec![9; 12]].concat())],
        vec![(0x0e, b"s", text(b"symbol"))],
        // Regular expressions with unsorted or unknown options.
        vec![(0x0b, b"r", b"a.*\0xi\0".to_vec())],
        vec![(0x0b, b"r", b"a/\"\0zu\0".to_vec())],
        // Dates out of range, a timestamp, and the min and max keys.
        vec![(0x09, b"d", i64::MIN.to_le_bytes().to_vec())],
        vec![(0x09, b"d", i64::MAX.to_le_bytes().to_vec())],
        vec![(0x11, b"s", u64::MAX.to_le_bytes().to_vec())],
        vec![(0xff, b"k", vec![]), (0x7f, b"l", vec![])],
        // An array whose element names are not its indexes.
        vec![(
            0x04,
            b"events",
            document(&[(0x10, b"7", vec![1, 0, 0, 0]), (0x10, b"7", vec![2, 0, 0, 0])]),
        )],
    ];
    fields.iter().map(|fields| document(fields)).collect()
}

/// Valid values, each stored in an entry and in the field `x`.
fn values() -> Vec<Bson> {
    let mut deep: Bson = 1.into();
    for _ in 0..80 {
        deep = doc! {"d": [deep]}.into();
    }
    let id = bson::oid::ObjectId::from_bytes([5; 12]);
    vec![
        1_i32.into(),
        1_i64.into(),
        1.0.into(),
        i64::MIN.into(),
        1e300.into(),
        5e-324.into(),
        f64::INFINITY.into(),
        true.into(),
        Bson::Null,
        id.into(),
        bson::DateTime::from_millis(-1).into(),
        "ünï\u{2028}\u{0}\u{7f}😀\r\n\t\"\\".into(),
        "".into(),
        deep,
        doc! {}.into(),
        Bson::Array(vec![]),
        doc! {"a.b": 1, "": 2, "ke\"y\n": 3, "ü": 4}.into(),
        Bson::JavaScriptCode("f()".into()),
        bson::JavaScriptCodeWithScope { code: "g()".into(), scope: doc! {"$oid": "x"} }.into(),
        // Documents that look like the type wrappers of Extended JSON.
        doc! {"$oid": "x"}.into(),
        doc! {"$oid": "5334647b139b2165160000d8"}.into(),
        doc! {"$numberInt": "1"}.into(),
        doc! {"$numberInt": 1}.into(),
        doc! {"$numberLong": "1"}.into(),
        doc! {"$numberDouble": "NaN"}.into(),
        doc! {"$numberDecimal": "1"}.into(),
        doc! {"$date": {"$numberLong": "1"}}.into(),
        doc! {"$date": "2014-04-22T00:00:00Z"}.into(),
        doc! {"$binary": {"base64": "", "subType": "00"}}.into(),
        doc! {"$binary": "AAAA", "$type": "00"}.into(),
        doc! {"$uuid": "00000000-0000-0000-0000-000000000000"}.into(),
        doc! {"$regularExpression": {"pattern": "a", "options": ""}}.into(),
        doc! {"$regex": "a", "$options": "i"}.into(),
        doc! {"$timestamp": {"t": 1, "i": 1}}.into(),
        doc! {"$code": "f()"}.into(),
        doc! {"$code": "f()", "$scope": {}}.into(),
        doc! {"$symbol": "s"}.into(),
        doc! {"$undefined": true}.into(),
        doc! {"$minKey": 1}.into(),
        doc! {"$maxKey": 1}.into(),
        doc! {"$dbPointer": {"$ref": "c", "$id": id}}.into(),
        doc! {"$ref": "c", "$id": "x"}.into(),
        doc! {"$ne": 1, "$where": "f()"}.into(),
        doc! {"$tidings_bson": "AAAA"}.into(),
    ]
}

/// Values of the types that the server accepts as `_id`.
fn ids() -> Vec<Bson> {
    vec![
        7.into(),
        7.5.into(),
        Bson::Null,
        true.into(),
        "".into(),
        doc! {"a": 1, "b": [2]}.into(),
        bson::oid::ObjectId::from_bytes([6; 12]).into(),
        bson::DateTime::from_millis(7).into(),
        Bson::Binary(bson::Binary {
            subtype: bson::spec::BinarySubtype::Generic,
            bytes: vec![1, 2],
        }),
        Bson::MinKey,
    ]
}

fn shapes() -> Vec<Vec<u8>> {
    let mut shapes = Vec::new();
    for (n, raw) in raw_shapes().into_iter().enumerate() {
        let id = doc! {"_id": format!("raw {n}")};
        let mut bytes = bson::serialize_to_vec(&id).unwrap();
        bytes.pop();
        bytes.extend_from_slice(&raw[4..]);
        let length = (bytes.len() as i32).to_le_bytes();
        bytes[..4].copy_from_slice(&length);
        shapes.push(bytes);
    }
    let values = values().into_iter().enumerate();
    let documents = values.flat_map(|(n, value)| {
        let entries = vec![value.clone(), doc! {"t": "T", "o": value.clone()}.into()];
        [
            doc! {"_id": format!("entry {n}"), "events": entries},
            doc! {"_id": format!("beside {n}"), "x": value, "events": []},
        ]
    });
    let named = ids().into_iter().map(|id| doc! {"_id": id, "events": [1]});
    shapes
        .extend(documents.chain(named).map(|document| bson::serialize_to_vec(&document).unwrap()));
    shapes
}

/// Returns the bytes of all documents of the day, each with its count.
async fn load_documents(database: &mongodb::Database) -> BTreeMap<Vec<u8>, usize> {
    let collection = database.collection::<bson::Document>(&first_day().collection_name());
    let batches: Vec<_> =
        collection.find(doc! {}).batch().await.unwrap().try_collect().await.unwrap();
    let mut found = BTreeMap::new();
    for batch in &batches {
        for document in batch.doc_slices().unwrap().into_iter() {
            let bytes = document.unwrap().as_document().unwrap().as_bytes().to_vec();
            *found.entry(bytes).or_default() += 1;
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_of_every_shape_are_restored_byte_for_byte() {
    crate::support::mongo::run(async |fresh: Fresh| {
        let town = Town::of(&fresh).await;
        let database = database(&fresh).await.unwrap();
        let shapes = shapes();
        assert!(shapes.len() >= 62, "{}", shapes.len());
        for shape in &shapes {
            let mut command =
                bson::serialize_to_vec(&doc! {"insert": first_day().collection_name()}).unwrap();
            command.pop();
            command.extend(b"\x04documents\0");
            command.extend(document(&[(0x03, b"0", shape.clone())]));
            command.push(0);
            let length = (command.len() as i32).to_le_bytes();
            command[..4].copy_from_slice(&length);
            let command = RawDocumentBuf::from_bytes(command).unwrap();
            let answer = database.run_raw_command(command).await.unwrap();
            let readable =
                RawDocumentBuf::from_bytes(shape.clone()).map(|shape| format!("{shape:?}"));
            assert!(!answer.contains_key("writeErrors"), "{answer} {readable:?}");
        }
        let before = load_documents(&database).await;
        assert_eq!(before.len(), shapes.len());
        town.clock.set(monday(5));
        let folder = tempfile::tempdir().unwrap();

        let mut reports = Vec::new();
        let archive = town.process().archive();
        archive.run(&request(folder.path()), &NoProgress, &mut reports).await.unwrap();
        let DayFate::Dropped { file: Some(file) } = &reports[0].fate else {
            panic!("{reports:?}");
        };
        assert!(load_documents(&database).await.is_empty());
        for _ in 0..2 {
            archive.restore(file, &NoProgress).await.unwrap();
        }

        let after = load_documents(&database).await;
        let lost: Vec<_> = before.keys().filter(|bytes| !after.contains_key(*bytes)).collect();
        assert!(lost.is_empty(), "{} of {}: {lost:?}", lost.len(), before.len());
        assert_eq!(after.len(), before.len());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_with_a_damaged_row_is_not_dropped() {
    for row in [
        "(5, 0, '')",
        "(-2.5e300, 'many', x'ff00')",
        "(x'0102', 1, 'no JSON')",
        "(CAST(x'ff61' AS TEXT), 0, '')",
        "('ben', 1, CAST(x'7b22ff220a' AS TEXT))",
        "('cem', 7, '{\"t\":\"T\",\"o\":\"a\"}')",
        "('dee', 1, '{\"t\": \"T\", \"o\": \"a\"}' || char(10))",
    ] {
        crate::support::sqlite::run(async |fresh: Fresh| {
            let town = Town::of(&fresh).await;
            let ada = crate::support::user("ada");
            let pushed = crate::support::push_to(&ada, crate::support::events(2, 1));
            town.store.push(first_day(), 1_000, &pushed).await.unwrap();
            let table = first_day().collection_name();
            let insert = format!("INSERT INTO {table} (id, n, events) VALUES {row}");
            file(&fresh).execute(&insert, []).unwrap();
            town.clock.set(monday(5));
            let folder = tempfile::tempdir().unwrap();

            let mut reports = Vec::new();
            let archive = town.process().archive();
            archive.run(&request(folder.path()), &NoProgress, &mut reports).await.unwrap();

            assert!(matches!(reports[0].fate, DayFate::Failed { .. }), "{row}: {reports:?}");
            assert_eq!(town.store.days().await.unwrap(), [first_day()]);
        })
        .await;
    }
}
