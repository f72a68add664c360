//! `keys` and `token`: keys are shown once, and tokens need a secret.

use super::Desk;
use crate::support::assert_contains;

#[test]
fn a_key_is_shown_once_listed_by_name_and_revoked() {
    let desk = Desk::with_people();

    let made = desk.run(&["keys", "create", "web app", "--scope", "write"]);
    let json = desk.run(&["keys", "create", "dash", "--scope", "read", "--json"]);
    let duplicate = desk.run(&["keys", "create", "dash", "--scope", "admin"]);
    let listed = desk.done(&["keys"]);
    let lines = desk.done(&["keys", "--json"]);
    let revoked = desk.done(&["keys", "revoke", "web app"]);
    let again = desk.run(&["keys", "revoke", "web app"]);

    let key = made.out.trim();
    assert!(made.code == 0 && key.starts_with("tdg_write_") && key.len() == 53, "{key}");
    assert!(made.err.contains("not shown again"), "{}", made.err);
    let json = json.json();
    assert_eq!((&json["name"], &json["scope"]), (&"dash".into(), &"read".into()));
    assert!(json["key"].as_str().unwrap().starts_with("tdg_read_"));
    assert_eq!(duplicate.code, 2);
    assert_contains!(duplicate.err, "key name \"dash\" is taken");
    assert_contains!(listed, "web app");
    assert_contains!(listed, "write");
    assert_eq!(lines.lines().count(), 2);
    for output in [&listed, &lines] {
        assert!(!output.contains("tdg_") && !output.contains("hash"), "{output}");
    }
    assert!(revoked.contains("\"web app\" is revoked"), "{revoked}");
    assert_eq!(again.code, 2);
    assert_contains!(again.err, "tidings keys, which lists them");
    let wrong = desk.run(&["keys", "create", "x", "--scope", "root"]);
    assert_eq!(wrong.code, 2);
    assert_contains!(wrong.err, "is not read, write or admin");
}

#[test]
fn a_token_needs_a_signing_secret() {
    let desk = Desk::new();

    let without = desk.run(&["token", "ada"]);
    desk.write("secret", "a-secret-that-only-these-tests-have\n");
    desk.write("tidings.toml", "[tokens]\nsecret_file = \"secret\"\n");
    let token = desk.run(&["token", "ada", "--hours", "2"]);
    let long = desk.run(&["token", "ada", "--hours", "25"]);
    let shown = desk.done(&["config"]);

    assert_eq!(without.code, 2);
    assert_contains!(without.err, "tokens.secret");
    assert_eq!((token.code, token.out.trim().split('.').count()), (0, 3));
    assert!(token.err.contains("\"ada\""), "{}", token.err);
    assert_eq!(long.code, 2);
    assert_contains!(long.err, "hours \"25\" is not from 1 to 24");
    assert!(!shown.contains("that-only-these-tests"), "{shown}");
}
