//! Tests that written documents equal those of the BSON library, and that stacks of older writers,
//! of other programs and with corrupt bytes are readable.

use bson::doc;
use bson::oid::ObjectId as Oid;

use super::*;

fn bytes(document: &Document) -> Vec<u8> {
    bson::serialize_to_vec(document).unwrap()
}

fn read(document: &Document) -> (UserId, Vec<Entry>) {
    let bytes = bytes(document);
    let stack = StackDocument::read(&bytes).unwrap().unwrap();
    (stack.user.clone(), stack.entries().unwrap().unwrap_or_default())
}

fn event(t: &str, o: &str, i: Option<Id>) -> Entry {
    let (t, o) = (EventType::stored(t), ObjectId::stored(o));
    Entry::Event(Event { kind: t, object: o, fanout_id: i })
}

fn marker(id: Option<Id>, n: Option<u32>) -> Entry {
    Entry::DigestMarker(DigestMarker { id, n })
}

const ID: Id = Id::from_bytes([0x53, 0x34, 0x64, 0x7b, 0x13, 0x9b, 0x21, 0x65, 0x16, 0, 0, 0xd8]);

fn oid() -> Oid {
    Oid::from_bytes(ID.bytes())
}

#[test]
fn a_stack_of_this_version_is_readable() {
    let (user, entries) = read(&doc! {"_id": "alice", "events": [
        {"t": "NearbyShow", "o": "533998b1c9dc24c371000041", "i": oid()},
        {"flushed": oid(), "n": 1},
    ]});
    assert_eq!(user.as_str(), "alice");
    let show = event("NearbyShow", "533998b1c9dc24c371000041", Some(ID));
    assert_eq!(entries, [show, marker(Some(ID), Some(1))]);
}

#[test]
fn a_stack_of_an_older_writer_is_readable() {
    let (user, entries) = read(&doc! {"events": [
        {"o": oid(), "t": "ArtworkPublished"},
        {"flushed": Bson::DateTime(bson::DateTime::from_millis(0))},
        {"flushed": Bson::Null},
        {"flushed": false},
    ], "_id": oid()});
    assert_eq!(user.as_str(), "5334647b139b2165160000d8");
    let published = event("ArtworkPublished", "5334647b139b2165160000d8", None);
    let bare = marker(None, None);
    assert_eq!(entries, [published, bare.clone(), bare.clone(), bare]);
}

#[test]
fn the_count_of_a_marker_may_have_any_numeric_type() {
    let n = |n: Bson| match read(&doc! {"_id": "a", "events": [{"flushed": oid(), "n": n}]}).1[..] {
        [Entry::DigestMarker(DigestMarker { n, .. })] => n,
        _ => panic!("no marker"),
    };
    for three in [Bson::Int32(3), Bson::Int64(3), Bson::Double(3.9)] {
        assert_eq!(n(three), Some(3));
    }
    for nothing in [Bson::Int32(-3), Bson::Int64(i64::MIN), Bson::Double(f64::NAN)] {
        assert_eq!(n(nothing), Some(0));
    }
    for everything in [Bson::Int64(i64::MAX), Bson::Double(f64::INFINITY)] {
        assert_eq!(n(everything), Some(u32::MAX));
    }
    assert_eq!(n(Bson::String("3".into())), None);
}

#[test]
fn an_unknown_entry_keeps_its_position() {
    let mut events = vec![
        Bson::Null,
        Bson::Int32(1),
        Bson::String("t".into()),
        Bson::Array(vec![Bson::Document(doc! {"t": "T", "o": "1"})]),
        Bson::Document(doc! {}),
        Bson::Document(doc! {"t": "T"}),
        Bson::Document(doc! {"t": 1, "o": "1"}),
        Bson::Document(doc! {"t": "T", "o": {"$ne": 1}}),
    ];
    let count = events.len();
    events.push(Bson::Document(doc! {"t": "T", "o": "1", "i": "not an id", "x": [1, {"t": "U"}]}));
    let (_, entries) = read(&doc! {"_id": "a", "events": events});
    assert_eq!(entries.len(), count + 1);
    assert!(entries[..count].iter().all(|entry| *entry == Entry::Other));
    assert_eq!(entries[count], event("T", "1", None));
}

fn regex() -> bson::Regex {
    bson::Regex {
        pattern: "a.*".to_owned().try_into().unwrap(),
        options: "i".to_owned().try_into().unwrap(),
    }
}

#[test]
fn fields_of_every_type_are_skipped() {
    let every = doc! {
        "double": 1.5, "text": "x", "document": {"_id": "not this"}, "array": [1, 2],
        "binary": Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![0; 5] }),
        "undefined": Bson::Undefined, "oid": oid(), "yes": true, "date": bson::DateTime::from_millis(1), "null": Bson::Null,
        "regex": regex(), "code": Bson::JavaScriptCode("f()".into()),
        "symbol": Bson::Symbol("s".into()),
        "scoped": bson::JavaScriptCodeWithScope { code: "g()".into(), scope: doc! {"a": 1} },
        "int": 1_i32, "timestamp": bson::Timestamp { time: 1, increment: 2 }, "long": 1_i64,
        "decimal": "1.5".parse::<bson::Decimal128>().unwrap(), "min": Bson::MinKey, "max": Bson::MaxKey,
    };
    let mut stack = every.clone();
    stack.insert("_id", "alice");
    let mut event_with_all = every;
    event_with_all.insert("t", "T");
    event_with_all.insert("o", "1");
    stack.insert("events", vec![Bson::Document(event_with_all)]);
    let (user, entries) = read(&stack);
    assert_eq!(user.as_str(), "alice");
    assert_eq!(entries, [event("T", "1", None)]);
}

#[test]
fn a_document_without_events_has_no_entries() {
    for stack in [
        doc! {"_id": "a"},
        doc! {"_id": "a", "events": Bson::Null},
        doc! {"_id": "a", "events": {"0": {}}},
    ] {
        assert_eq!(read(&stack).1, []);
    }
}

#[test]
fn a_document_without_a_user_id_is_skipped() {
    for stack in [doc! {"_id": 1, "events": []}, doc! {"events": []}] {
        assert!(StackDocument::read(&bytes(&stack)).unwrap().is_none());
    }
}

#[test]
fn invalid_utf_8_affects_only_its_own_entry() {
    let stack = doc! {"_id": "alice", "events": [{"t": "Q", "o": "1"}, {"t": "T", "o": "1"}]};
    let mut bytes = bytes(&stack);
    let q = bytes.iter().position(|byte| *byte == b'Q').unwrap();
    bytes[q] = 0xff;
    let entries = StackDocument::read(&bytes).unwrap().unwrap().entries().unwrap();
    assert_eq!(entries.unwrap(), [Entry::Other, event("T", "1", None)]);
}

#[test]
fn a_name_that_is_not_utf_8_makes_only_its_stack_unreadable() {
    let mut bytes = bytes(&doc! {"_id": "alice", "events": [{"odd": 1, "t": "T", "o": "1"}]});
    let position = bytes.windows(3).position(|name| name == b"odd").unwrap();
    bytes[position] = 0xff;
    let document = StackDocument::read(&bytes).unwrap().unwrap();
    let stack = document.stack(StackId::for_day("20140422".parse().unwrap()));
    assert_eq!((stack.entries, stack.defect), (Vec::new(), Some(Defect::Unreadable)));
}

#[test]
fn bytes_that_are_not_bson_are_an_error_without_a_panic() {
    let whole = bytes(
        &doc! {"_id": "alice", "events": [{"t": "T", "o": "1", "i": oid()}, {"flushed": 1.0, "n": 2_i64}]},
    );
    let read = |bytes: &[u8]| {
        StackDocument::read(bytes).and_then(|stack| stack.map_or(Ok(None), |s| s.entries()))
    };
    assert_eq!(read(&whole).unwrap().unwrap().len(), 2);
    for end in 0..whole.len() {
        assert!(read(&whole[..end]).is_err(), "cut at {end}");
    }
    for position in 0..whole.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut broken = whole.clone();
            broken[position] = value;
            // Any result is fine, as long as there is no panic.
            drop(read(&broken));
        }
    }
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_handled_without_a_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        drop(StackDocument::read(&bytes).and_then(|stack| stack.map_or(Ok(None), |s| s.entries())));
    }

    #[test]
    fn a_written_document_is_readable(events in proptest::collection::vec((".{0,40}", ".{0,40}", proptest::array::uniform12(0u8..)), 0..20)) {
        let events: Vec<Event> = events
            .into_iter()
            .map(|(t, o, i)| Event { kind: EventType::stored(t), object: ObjectId::stored(o), fanout_id: Some(Id::from_bytes(i)) })
            .collect();
        let list = RawArrayBuf::from_iter(events.iter().map(event_document));
        let document = rawdoc! {"_id": "alice", "events": list};
        let stack = StackDocument::read(document.as_bytes()).unwrap().unwrap();
        let events: Vec<Entry> = events.into_iter().map(Entry::Event).collect();
        proptest::prop_assert_eq!(stack.entries().unwrap().unwrap(), events);
    }
}

#[test]
fn entries_are_written_with_their_fields_in_order() {
    let (id, n) = (Id::from_bytes([7; 12]), Oid::from_bytes([7; 12]));
    let event = |i| Event {
        kind: EventType::stored("NearbyShow"),
        object: ObjectId::stored("0"),
        fanout_id: i,
    };
    let mailed = BatchMarker { id, fanouts: vec![id] };
    for (written, expected) in [
        (event_document(&event(Some(id))), doc! {"t": "NearbyShow", "o": "0", "i": n}),
        (event_document(&event(None)), doc! {"t": "NearbyShow", "o": "0"}),
        (flushed_document(id, 3), doc! {"flushed": n, "n": 3}),
        (mailed_document(&mailed), doc! {"mailed": n, "i": [n]}),
    ] {
        assert_eq!(written.as_bytes(), bytes(&expected));
    }
}
