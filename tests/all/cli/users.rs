//! `users`: export and erase one user, by id or address.

use super::Desk;

#[test]
fn a_user_is_exported_and_erased_by_address() {
    let desk = Desk::with_people();
    desk.done(&["notify", "ArtworkPublished", "a1", "--to", "ada"]);

    let shown = desk.done(&["explain", "ada"]);
    let exported = desk.run(&["users", "export", "ADA@example.org"]).json();
    let erased = desk.done(&["users", "erase", "ada@example.org"]);
    let again = desk.run(&["users", "erase", "ada"]);

    assert!(shown.contains("a…@example.org"), "{shown}");
    assert_eq!(exported["user"], "ada");
    assert_eq!(exported["email"], "ada@example.org");
    assert_eq!(exported["events"][0]["object"], "a1");
    assert!(exported["follows"].as_array().is_some_and(|keys| !keys.is_empty()));
    assert_eq!(erased, "erased ada\n");
    assert_eq!((again.code, again.out.as_str()), (1, ""));
    let left = desk.run(&["users", "export", "ada"]);
    assert_eq!((left.code, left.out.as_str()), (1, ""));
}

#[test]
fn a_shared_address_is_rejected() {
    let desk = Desk::with_people();
    let twins = r#"{"id": "twin", "email": "Ada@Example.org", "confirmed": true}"#;
    desk.write("twins.ndjson", twins);
    desk.done(&["import", "users", "twins.ndjson"]);

    let refused = desk.run(&["users", "erase", "ada@example.org"]);
    let kept = desk.run(&["users", "export", "twin"]).json();

    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("ada, twin"), "{}", refused.err);
    assert_eq!(kept["user"], "twin");
}
