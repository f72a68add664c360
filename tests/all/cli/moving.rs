//! `tidings move`, as it is typed: from one file into another.

use super::Desk;

/// Dies once this much of the move is done.
const HALF_WAY: (&str, &str) = ("TIDINGS_CRASH", "move-noted:2");

#[test]
fn a_store_is_counted_then_moved_and_the_old_one_is_closed() {
    let desk = Desk::with_people();
    let ran = desk.run(&["notify", "ArtworkPublished", "a1", "--to", "ada"]);
    assert_eq!(ran.code, 0, "{}", ran.err);

    let counted = desk.run(&["move", "--to", "sqlite:new.db", "--dry-run", "--json"]);
    let counted = counted.json();
    assert_eq!(counted["outcome"], "counted");
    assert_eq!(counted["parts"][0]["records"], 3);
    assert!(!desk.path().join("new.db").exists());

    let moved = desk.run(&["move", "--to", "sqlite:new.db"]).done();
    assert!(moved.contains("compared, and the same"), "{moved}");
    assert!(moved.contains("next: set `store`"), "{moved}");
    let again = desk
        .run(&["move", "--to", "sqlite:new.db", "--json"])
        .json();
    assert_eq!(again["outcome"], "known");

    let old = desk.run(&["notify", "ArtworkPublished", "a2", "--to", "ada"]);
    assert_eq!(old.code, 2);
    let told = "error: sqlite:tidings.db was moved to sqlite:new.db, and is closed\n  \
                try: with the option `store` at sqlite:new.db, where everything is now\n";
    assert_eq!(old.err, told);
    let elsewhere = desk.run(&["move", "--to", "sqlite:third.db"]);
    assert_eq!(elsewhere.code, 2, "{}", elsewhere.err);
    desk.run(&["--store", "sqlite:new.db", "worker", "--once"]);
    let feed = desk.run(&["--store", "sqlite:new.db", "feed", "ada", "--json"]);
    assert!(feed.out.contains("a1"), "{}{}", feed.out, feed.err);
}

#[test]
fn half_way_both_stores_are_closed_to_everything_but_the_move() {
    let desk = Desk::with_people();
    let died = desk
        .command(&["move", "--to", "sqlite:new.db"])
        .env(HALF_WAY.0, HALF_WAY.1)
        .output()
        .unwrap();
    assert!(died.status.code().is_none(), "{died:?}");

    let old = "error: sqlite:tidings.db is being moved to sqlite:new.db, and is closed\n  \
               try: tidings move --to sqlite:new.db, which goes on; \
               tidings move --undo opens it again\n";
    let new = "error: sqlite:new.db is not whole: it is being moved into from sqlite:tidings.db\n  \
               try: tidings move --to sqlite:new.db again, where the move was started\n";
    for command in [
        &["status"][..],
        &["worker", "--once"],
        &["import", "users", "users"],
    ] {
        let ran = desk.run(command);
        assert_eq!((ran.code, ran.err.as_str()), (2, old), "{command:?}");
        let on_new = [&["--store", "sqlite:new.db"], command].concat();
        let ran = desk.run(&on_new);
        assert_eq!((ran.code, ran.err.as_str()), (2, new), "{command:?}");
    }
    let doctor = desk.run(&["doctor", "--offline"]);
    assert!(doctor.out.contains("is being moved to"), "{}", doctor.out);

    desk.run(&["move", "--undo"]).done();
    desk.run(&["status"]).done();
    let refused = desk.run(&["move", "--to", "sqlite:new.db"]);
    assert_eq!(refused.code, 2);
    assert!(
        refused.err.contains("is of another move"),
        "{}",
        refused.err
    );
}

#[test]
fn what_names_no_other_store_is_refused() {
    let desk = Desk::with_people();
    for (to, why) in [
        ("sqlite:tidings.db", "is the configured store itself"),
        ("postgres://db", "--to names no store"),
    ] {
        let ran = desk.run(&["move", "--to", to]);
        assert_eq!(ran.code, 2);
        assert!(ran.err.contains(why), "{}", ran.err);
    }
    let ran = desk.run(&["move"]);
    assert_eq!(ran.code, 2);
    let nowhere = Desk::new().run(&["move", "--to", "sqlite:new.db"]);
    assert_eq!(nowhere.code, 2);
    assert!(
        nowhere.err.contains("there is no database"),
        "{}",
        nowhere.err
    );
}
