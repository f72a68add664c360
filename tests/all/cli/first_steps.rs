//! The first commands of a new installation: `init`, `completions`, `man` and `--version`.

use super::Desk;
use crate::support::{assert_contains, assert_starts_with};

#[test]
fn init_writes_a_private_configuration_that_other_commands_read() {
    let desk = Desk::new();

    let said = desk.done(&["init"]);

    let written = std::fs::read_to_string(desk.path().join("tidings.toml")).unwrap();
    let steps: Vec<&str> = said.lines().filter(|line| line.starts_with("  ")).collect();
    assert_eq!(steps.len(), 3, "{said}");
    assert_contains!(said, "tidings doctor");
    assert_contains!(written, "\n#listen = \"127.0.0.1:8080\"\n");
    assert!(desk.done(&["config"]).contains("key = \"(hidden)\""));
    desk.done(&["import", "users", "/dev/null"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let file = std::fs::metadata(desk.path().join("tidings.toml")).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn init_never_changes_a_file() {
    let desk = Desk::new();
    desk.write("own.toml", "[site]\nname = \"Art\"\n");
    desk.done(&["init"]);

    let again = desk.run(&["init"]);
    let other = desk.run(&["init", "--config", "own.toml"]);

    for (ran, file) in [(again, "tidings.toml"), (other, "own.toml")] {
        assert_eq!((ran.code, ran.out.as_str()), (2, ""));
        let expected = format!("error: {file} exists already, and was not changed\n  try: ");
        assert_starts_with!(ran.err, &expected);
    }
    let own = std::fs::read_to_string(desk.path().join("own.toml")).unwrap();
    assert_eq!(own, "[site]\nname = \"Art\"\n");
}

#[test]
fn two_configurations_have_different_keys() {
    let keys = [Desk::new(), Desk::new()].map(|desk| {
        desk.done(&["init", "--config", "a.toml"]);
        let text = std::fs::read_to_string(desk.path().join("a.toml")).unwrap();
        let key = text.lines().find(|line| line.starts_with("key = "));
        key.unwrap().to_owned()
    });

    assert_ne!(keys[0], keys[1]);
    assert_eq!(keys[0].len(), "key = \"\"".len() + 48);
}

#[test]
fn completions_name_every_command_and_need_no_configuration() {
    let desk = Desk::new();
    desk.write("tidings.toml", "this is no configuration");

    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = desk.done(&["completions", shell]);

        for command in ["send-test", "suppressions", "health", "--store"] {
            let option = command.trim_start_matches('-');
            assert!(script.contains(option), "{command} for {shell}");
        }
    }
    assert_eq!(desk.run(&["completions", "cmd"]).code, 2);
}

#[test]
fn each_command_has_a_manual_page() {
    let desk = Desk::new();

    desk.done(&["man", "pages/man1"]);

    let page = |name: &str| {
        let path = desk.path().join("pages/man1").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("no page {name}"))
    };
    let whole = page("tidings.1");
    assert_contains!(whole, ".TH tidings 1");
    assert_contains!(whole, "tidings\\-doctor(1)");
    assert_contains!(page("tidings-serve.1"), "\\-\\-no\\-worker");
    assert_contains!(page("tidings-batches-close.1"), ".TH");
    assert!(!whole.contains("tidings\\-man(1)"), "it is hidden");
}

#[test]
fn the_version_names_the_build() {
    let version = Desk::new().done(&["--version"]);

    let expected = format!("tidings {} (", env!("CARGO_PKG_VERSION"));
    assert_starts_with!(version, &expected);
    assert!(version.ends_with(")\n"), "{version}");
}
