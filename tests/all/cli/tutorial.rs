//! The commands of the tutorial work as printed, up to those that need a running server.

use std::path::Path;
use std::process::Command;

use super::Desk;
use crate::support::assert_contains;

const TUTORIAL: &str = include_str!("../../../docs/tutorial.md");

/// Returns the shell commands from one step to another.
fn commands(from: &str, to: &str) -> String {
    let (_, rest) = TUTORIAL.split_once(from).unwrap();
    let (steps, _) = rest.split_once(to).unwrap();
    let blocks = steps.split("\n```sh\n").skip(1);
    let blocks = blocks.map(|block| block.split_once("\n```\n").unwrap().0);
    blocks.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_commands_of_the_tutorial_send_one_digest() {
    let desk = Desk::new();
    let script = commands("\n## 2. ", "\n## 5. ");
    let programs = Path::new(env!("CARGO_BIN_EXE_tidings")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();

    let ran = Command::new("sh")
        .args(["-eu", "-c", &script])
        .current_dir(desk.path())
        .env_clear()
        .env("PATH", format!("{}:{path}", programs.display()))
        .output();

    let ran = ran.unwrap();
    let printed = String::from_utf8([ran.stdout, ran.stderr].concat()).unwrap();
    assert!(ran.status.success(), "{printed}");
    let promised: Vec<&str> =
        script.lines().filter_map(|line| Some(line.split_once("# prints: ")?.1)).collect();
    assert!(promised.len() > 5, "{promised:?}");
    for text in promised {
        assert_contains!(printed, text);
    }
    let files = std::fs::read_dir(desk.path().join("outbox")).unwrap();
    assert_eq!(files.count(), 2, "an email and its page");
}
