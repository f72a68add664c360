//! Events with an unknown type or field are rejected.

use super::Desk;

#[test]
fn strict_types_rejects_other_types_in_commands_and_files() {
    let desk = Desk::with_people();
    desk.write("tidings.toml", "strict_types = true\n[types.Loan]\n");
    let line =
        |kind: &str| format!("{{\"type\": {kind:?}, \"objects\": \"a1\", \"to\": \"ada\"}}\n");
    desk.write("events", &(line("Loan") + &line("Laon")));

    let known = desk.run(&["notify", "Loan", "a1", "--to", "ada"]);
    let other = desk.run(&["notify", "Laon", "a1", "--to", "ada"]);
    let imported = desk.run(&["import", "events", "events"]);

    assert_eq!(known.code, 0, "{}", known.err);
    assert_eq!((other.code, other.out.as_str()), (2, ""));
    let why = "type \"Laon\" is not configured, and strict_types refuses others";
    assert!(other.err.contains(why), "{}", other.err);
    assert_eq!(imported.code, 3, "{}", imported.err);
    assert!(imported.err.contains("line 2, type: "), "{}", imported.err);
}

#[test]
fn events_accept_the_field_objects_but_not_object() {
    let desk = Desk::with_people();
    desk.write("events", r#"{"type": "Met", "object": "a1", "to": "ada"}"#);

    let ran = desk.run(&["import", "events", "events"]);

    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("unknown field `object`"), "{}", ran.err);
}
