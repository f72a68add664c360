//! Tests the outbox in a real folder.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Arc;

use chrono::DateTime;
use mail_parser::MessageParser;

use super::super::SharedContent;
use super::*;
use crate::domain::Address;

fn outbox(folder: impl Into<PathBuf>) -> Outbox {
    let sender = SenderAddress {
        from: Address::new("news@tate.example").unwrap(),
        from_name: "Tate".into(),
        reply_to: None,
    };
    Outbox::new(folder, sender, false)
}

fn message(delivery: &str) -> Message {
    Message {
        delivery: DeliveryId::stored(delivery),
        to: Address::new("ada@example.org").unwrap(),
        to_name: None,
        content: Arc::new(SharedContent {
            subject: "14 new works".into(),
            html: "<p>Norham Castle, Sunrise</p>".into(),
            text: "Norham Castle, Sunrise".into(),
        }),
        links: None,
        extra_headers: Vec::new(),
        at: DateTime::from_timestamp(1_398_124_800, 0).unwrap(),
    }
}

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn an_email_is_written_to_a_file_in_a_new_folder() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("var/outbox");
    let outbox = outbox(&folder);
    let message = message("digest:ada:weekly:2014-W17");

    let outcomes = outbox.send("call", std::slice::from_ref(&message), &SendPermit::always()).await;

    let name = &files(&folder)[0];
    assert!(name.starts_with("digest-ada-weekly-2014-w17-"), "{name}");
    assert_eq!(outcomes, [Outcome::Accepted(name.clone())]);
    let bytes = fs::read(outbox.folder.join(file_name(&message.delivery))).unwrap();
    let email = MessageParser::new().parse(&bytes).unwrap();
    assert_eq!(email.subject(), Some("14 new works"));
}

#[tokio::test]
async fn sending_a_delivery_again_overwrites_its_file() {
    let root = tempfile::tempdir().unwrap();
    let outbox = outbox(root.path());
    let first = message("digest:ada:weekly:2014-W17");
    let mut second = first.clone();
    Arc::make_mut(&mut second.content).subject = "13 new works".into();

    outbox.send("call", &[first.clone(), first.clone()], &SendPermit::always()).await;
    outbox.send("call", &[second], &SendPermit::always()).await;

    assert_eq!(outbox.resolution(), Resolution::Repeat { within: None });
    assert_eq!(files(root.path()).len(), 1);
    let written = fs::read_to_string(outbox.folder.join(file_name(&first.delivery))).unwrap();
    assert!(written.contains("Subject: 13 new works"), "{written}");
}

#[tokio::test]
async fn outcomes_have_the_order_of_the_messages() {
    let root = tempfile::tempdir().unwrap();
    let outbox = outbox(root.path());
    let mut messages: Vec<Message> = (0..50).map(|n| message(&n.to_string())).collect();
    messages[20].extra_headers.push(("X-A".into(), "b\nFrom: eve@example.org".into()));

    let outcomes = outbox.send("call", &messages, &SendPermit::always()).await;

    for (n, (message, outcome)) in messages.iter().zip(&outcomes).enumerate() {
        match outcome {
            Outcome::Unsendable(reason) if n == 20 => {
                assert!(reason.contains("X-A"), "{reason}")
            }
            Outcome::Accepted(provider_id) => {
                assert_eq!(*provider_id, file_name(&message.delivery));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((outcomes.len(), files(root.path()).len()), (50, 49));
}

#[tokio::test]
async fn sending_no_messages_creates_no_folder() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("outbox");

    assert!(outbox(&folder).send("call", &[], &SendPermit::always()).await.is_empty());

    assert!(!folder.exists());
}

#[tokio::test]
async fn an_unusable_folder_causes_a_retry_with_the_reason() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    fs::write(&file, "in the way").unwrap();

    let outcomes = outbox(file.join("outbox"))
        .send("call", &[message("a"), message("b")], &SendPermit::always())
        .await;

    assert_eq!(outcomes.len(), 2);
    for outcome in outcomes {
        let Outcome::TryLater(reason, _) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(reason.contains("file/outbox"), "{reason}");
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_renamed_leaves_no_draft() {
    let root = tempfile::tempdir().unwrap();
    let outbox = outbox(root.path());
    let message = message("digest:ada:weekly:2014-W17");
    // A folder has the name of the file, so the draft can be written but not renamed.
    fs::create_dir(outbox.folder.join(file_name(&message.delivery))).unwrap();

    let outcomes = outbox.send("call", std::slice::from_ref(&message), &SendPermit::always()).await;

    assert!(matches!(&outcomes[0], Outcome::TryLater(reason, _) if reason.contains("writing")));
    assert_eq!(files(root.path()), [file_name(&message.delivery)]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_causes_a_retry_with_the_reason() {
    let mut full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let error = full.write_all(b"mail").unwrap_err();

    let outcome = try_later(Path::new("outbox/a.eml"), &error);

    let Outcome::TryLater(reason, _) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(reason.contains("No space left on device"), "{reason}");
}

#[test]
fn file_names_are_safe_and_distinct_for_distinct_ids() {
    let long = "x".repeat(4_000);
    let longer = format!("{long}x");
    let ids = [
        "digest:ada:weekly:2014-W17",
        "digest:Ada:weekly:2014-W17",
        "digest-ada-weekly-2014-w17",
        "digest:a/b:weekly:2014-W17",
        "digest:a:b:weekly:2014-W17",
        "digest:../../etc/passwd:daily:2014-04-22",
        "digest:\u{e9}:daily:2014-04-22",
        "digest:e\u{301}:daily:2014-04-22",
        "",
        ".",
        "..",
        "con",
        "a\0b",
        "عربى",
        &long,
        &longer,
    ];

    let names: HashSet<String> =
        ids.iter().map(|id| file_name(&DeliveryId::stored(*id)).to_lowercase()).collect();

    assert_eq!(names.len(), ids.len());
    for name in names {
        assert!(name.len() <= 110, "{name}");
        assert!(
            name.bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.'),
            "{name}"
        );
        assert!(name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.ends_with(".eml"));
    }
}
