//! Tests how statements become commands, and how replies are read.

use bson::{Document, doc, rawdoc};

use super::super::MongoOptions;
use super::*;

/// Returns how many of these statements fit into a command, given the weight and bytes of each.
fn fitting(items: usize, weigh: impl Fn(usize) -> u64, bytes: usize) -> usize {
    let items: Vec<usize> = (0..items).collect();
    let statement = |item| (rawdoc! {"x": "x".repeat(bytes)}, weigh(item));
    encode_fitting(&items, MAX_STATEMENTS, statement).len()
}

#[test]
fn statements_are_split_by_number_and_size() {
    assert_eq!(fitting(2_500, |_| 1, 1), MAX_STATEMENTS);
    assert_eq!(fitting(20, |_| 1, 1 << 20), 7);
    assert_eq!(fitting(3, |_| 1, 9 << 20), 1);
    assert_eq!(fitting(0, |_| 1, 1), 0);
}

#[test]
fn expensive_statements_limit_the_size_of_a_command() {
    assert_eq!(fitting(7, |_| MAX_WEIGHT / 2, 1), 2);
    let weigh = |item| if item == 0 { 3 * MAX_WEIGHT } else { 1 };
    assert_eq!(fitting(7, weigh, 1), 1);
}

#[tokio::test]
async fn each_command_has_its_options() {
    let options = MongoOptions::default();
    let store = Mongo::connect("mongodb://localhost", options).await.unwrap();
    let statements = [rawdoc! {"_id": 1}, rawdoc! {"_id": 2}];
    let command = store.command(CommandKind::Insert, "numbers", &statements).unwrap();
    let command = Document::try_from(command).unwrap();
    assert_eq!(command.get_str("insert").unwrap(), "numbers");
    assert_eq!(command.get_array("documents").unwrap().len(), 2);
    assert!(!command.get_bool("ordered").unwrap());
    assert_eq!(command.get_i64("maxTimeMS").unwrap(), 18_000);
    let concern = command.get_document("writeConcern").unwrap();
    assert_eq!(concern.get_str("w").unwrap(), "majority");
}

#[test]
fn all_parts_of_a_reply_are_read() {
    let items: Vec<usize> = (10..20).collect();
    let read = |reply: Document| BulkOutcome::read(&reply, &items, false);
    let ours = |reply: Document| read(reply).unwrap();
    let fine = ours(doc! {"ok": 1.0, "n": 3, "upserted": [{"index": 0, "_id": "a"}]});
    assert_eq!((fine.n, fine.created, fine.rejected.len()), (3, 1, 0));
    let error = doc! {"index": 4, "code": 11000, "errmsg": "dup"};
    let partial = ours(doc! {"ok": 1.0, "n": 1, "writeErrors": [error]});
    assert_eq!((partial.n, partial.rejected[0].item), (1, 14));
    let stepping_down =
        doc! {"ok": 1.0, "n": 1, "writeErrors": [{"index": 4, "code": 10107, "errmsg": ""}]};
    assert!(read(stepping_down).unwrap_err().is_transient);
    let alone =
        doc! {"ok": 1.0, "n": 1, "writeConcernError": {"code": 64, "errmsg": "waiting timed out"}};
    assert!(read(alone).unwrap_err().is_transient);
    let never = doc! {"ok": 1.0, "n": 1, "writeConcernError": {"code": 100, "errmsg": "not enough members"}};
    assert!(!read(never).unwrap_err().is_transient);
}

#[test]
fn a_document_that_the_server_rejects_is_no_outage() {
    for (code, is_outage) in [(121, false), (17419, false), (13, true)] {
        let error = doc! {"index": 0, "code": code, "errmsg": "rejected"};
        let outcome = BulkOutcome::read(&doc! {"n": 1, "writeErrors": [error]}, &[0, 1], false);

        let error = outcome.unwrap().duplicates().unwrap_err();

        assert_eq!(error.is_outage(), is_outage, "{error:?}");
    }
}
