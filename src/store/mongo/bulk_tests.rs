//! Tests how statements become commands, and how replies are read.

use bson::doc;

use super::*;

/// Returns inserts of numbers, each with a text of `bytes` bytes.
fn numbered<W: Fn(usize) -> u64>(
    items: std::ops::Range<usize>,
    weigh: W,
    bytes: usize,
) -> Commands<'static, W, impl Fn(&mut Writer, usize)> {
    Commands {
        verb: Verb::Insert,
        collection: "numbers",
        queue: VecDeque::from([(items.collect(), false)]),
        statements: STATEMENTS,
        limit: Duration::from_secs(18),
        weigh,
        encode: move |writer: &mut Writer, item| {
            writer.int("_id", item as i32);
            writer.text("x", &"x".repeat(bytes));
        },
    }
}

fn commands(items: std::ops::Range<usize>, bytes: usize) -> Vec<(Document, Vec<usize>)> {
    let mut commands = numbered(items, |_| 1, bytes);
    std::iter::from_fn(|| commands.next())
        .map(|command| command.unwrap())
        .map(|command| (Document::try_from(command.body).unwrap(), command.items))
        .collect()
}

#[test]
fn statements_are_split_by_number_and_each_command_has_its_options() {
    let commands = commands(0..2_500, 1);
    let sizes: Vec<_> = commands.iter().map(|(_, items)| items.len()).collect();
    assert_eq!(sizes, [1_000, 1_000, 500]);
    let (last, items) = commands.last().unwrap();
    assert_eq!(items[0], 2_000);
    assert_eq!(last.get_str("insert").unwrap(), "numbers");
    assert_eq!(last.get_array("documents").unwrap().len(), 500);
    assert!(!last.get_bool("ordered").unwrap());
    assert_eq!(last.get_i64("maxTimeMS").unwrap(), 18_000);
    let concern = last.get_document("writeConcern").unwrap();
    assert_eq!(concern.get_str("w").unwrap(), "majority");
}

#[test]
fn statements_are_split_by_size_and_none_is_lost() {
    let commands = commands(0..20, 1 << 20);
    let items: Vec<_> = commands
        .iter()
        .flat_map(|(_, items)| items.clone())
        .collect();
    assert_eq!(items, (0..20).collect::<Vec<_>>());
    assert!(commands.len() >= 3);
}

#[test]
fn expensive_statements_limit_the_size_of_a_command() {
    let weigh = |item| if item == 6 { 3 * WEIGHT } else { WEIGHT / 2 };
    let mut commands = numbered(0..7, weigh, 1);
    let sizes = std::iter::from_fn(|| commands.next()).map(|command| command.unwrap().items.len());
    assert_eq!(sizes.collect::<Vec<_>>(), [2, 2, 2, 1]);
}

#[test]
fn a_command_that_timed_out_is_split_and_later_ones_are_no_larger() {
    let mut commands = numbered(0..8, |item| if item < 5 { 1 } else { WEIGHT / 2 }, 1);
    let first = commands.next().unwrap().unwrap();
    assert_eq!((first.items.len(), first.resent), (6, false));
    commands.halve(&first.items);
    let rest: Vec<_> = std::iter::from_fn(|| commands.next())
        .map(|command| command.unwrap())
        .map(|command| (command.items, command.resent))
        .collect();
    let expected = [
        (vec![0, 1, 2], true),
        (vec![3, 4, 5], true),
        (vec![6, 7], false),
    ];
    assert_eq!(rest, expected);
}

#[test]
fn all_parts_of_a_reply_are_read() {
    let items: Vec<usize> = (10..20).collect();
    let read = |reply: Document| Outcome::read(&reply, &items, false);
    let ours = |reply: Document| read(reply).unwrap();
    let fine = ours(doc! {"ok": 1.0, "n": 3, "upserted": [{"index": 0, "_id": "a"}]});
    assert_eq!((fine.n, fine.created, fine.refused.len()), (3, 1, 0));
    let error = doc! {"index": 4, "code": 11000, "errmsg": "dup"};
    let partial = ours(doc! {"ok": 1.0, "n": 1, "writeErrors": [error]});
    assert_eq!((partial.n, partial.refused[0].item), (1, 14));
    let stepping_down =
        doc! {"ok": 1.0, "n": 1, "writeErrors": [{"index": 4, "code": 10107, "errmsg": ""}]};
    assert!(read(stepping_down).unwrap_err().passing);
    let alone =
        doc! {"ok": 1.0, "n": 1, "writeConcernError": {"code": 64, "errmsg": "waiting timed out"}};
    assert!(read(alone).unwrap_err().passing);
    let never = doc! {"ok": 1.0, "n": 1, "writeConcernError": {"code": 100, "errmsg": "not enough members"}};
    assert!(!read(never).unwrap_err().passing);
}
