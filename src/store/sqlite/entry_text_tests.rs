//! Tests of the text form of entries.

use super::*;
use crate::domain::DigestMarker;
use crate::store::entry::{event_document, flushed_document};

const HEX: &str = "5334647b139b2165160000d8";

fn event(t: &str, o: &str, i: Option<Id>) -> Event {
    Event { kind: EventType::stored(t), object: ObjectId::stored(o), fanout_id: i }
}

fn event_line(event: &Event) -> String {
    to_line(&event_document(event))
}

fn marker_line(id: Id, n: u32) -> String {
    to_line(&flushed_document(id, n))
}

#[test]
fn an_event_is_written_in_the_form_of_the_archive() {
    let lines =
        event_line(&event("T", "a\"\n", Id::from_hex(HEX))) + &event_line(&event("T", "b", None));
    let first = r#"{"t":"T","o":"a\"\n","i":{"$oid":"5334647b139b2165160000d8"}}"#;
    assert_eq!(lines, format!("{first}\n{}\n", r#"{"t":"T","o":"b"}"#));
}

#[test]
fn a_count_beyond_signed_32_bits_is_written_as_a_long() {
    let id = Id::from_hex(HEX).unwrap();
    assert!(marker_line(id, 7).ends_with("\"n\":{\"$numberInt\":\"7\"}}\n"));
    assert!(marker_line(id, u32::MAX).ends_with("\"n\":{\"$numberLong\":\"4294967295\"}}\n"));
    for n in [0, 7, u32::MAX] {
        assert_eq!(
            read_lines(&marker_line(id, n)),
            [Entry::DigestMarker(DigestMarker { id: Some(id), n: Some(n) })]
        );
    }
}

#[test]
fn lines_of_other_writers_mean_the_same_as_on_mongodb() {
    let id = Id::from_hex(HEX);
    let marker = |id, n| Entry::DigestMarker(DigestMarker { id, n });
    for (line, expected) in [
        (r#"{"o":"b","t":"T"}"#, Entry::Event(event("T", "b", None))),
        (r#"{"t":"T","o":"b","x":null}"#, Entry::Event(event("T", "b", None))),
        (r#"{"t":"T","o":"b","i":"no id"}"#, Entry::Event(event("T", "b", None))),
        (
            r#"{"t":"T","o":{"$oid":"5334647b139b2165160000d8"}}"#,
            Entry::Event(event("T", HEX, None)),
        ),
        (r#"{"flushed":{"$oid":"5334647b139b2165160000d8"}}"#, marker(id, None)),
        (r#"{"flushed":true,"n":{"$numberLong":"-3"}}"#, marker(None, Some(0))),
        (r#"{"flushed":null,"n":{"$numberDouble":"2.9"}}"#, marker(None, Some(2))),
        (r#"{"flushed":null,"n":{"$numberDouble":"NaN"}}"#, marker(None, Some(0))),
        (r#"{"flushed":null,"n":"5"}"#, marker(None, None)),
        (r#"{"t":"T"}"#, Entry::Other),
        (r#"{"t":{"$numberInt":"1"},"o":"b"}"#, Entry::Other),
        ("null", Entry::Other),
        ("[]", Entry::Other),
    ] {
        assert_eq!(read_line(line), expected, "{line}");
    }
}

proptest::proptest! {
    #[test]
    fn any_event_round_trips_with_its_id(t in ".*", o in ".*", bytes: Option<[u8; 12]>) {
        let event = event(&t, &o, bytes.map(Id::from_bytes));
        let lines = event_line(&event);
        proptest::prop_assert_eq!(lines.matches('\n').count(), 1);
        proptest::prop_assert_eq!(trailing_id(lines.trim_end_matches('\n')), event.fanout_id);
        proptest::prop_assert_eq!(read_lines(&lines), [Entry::Event(event)]);
    }
}
