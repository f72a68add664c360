//! What can hardly be meant of batches is told where a configuration is looked at or begun with,
//! and stops nothing.

use super::Desk;

const STARVES: &str = "types.Comment.cooldown has no max_wait beside it";

#[test]
fn config_doctor_and_worker_tell_what_can_hardly_be_meant() {
    let desk = Desk::new();
    desk.fill();
    desk.write("tidings.toml", "[types.Comment]\ncooldown = \"4m\"");

    let config = desk.run(&["config"]);
    let worker = desk.run(&["worker", "--once"]);
    let doctor = desk.run(&["doctor", "--offline"]);

    assert_eq!([config.code, worker.code, doctor.code], [0, 0, 0]);
    for told in [&config.err, &worker.err] {
        assert!(told.starts_with(&format!("note: {STARVES}")), "{told}");
    }
    // What config prints to standard output is still a configuration.
    assert!(config.out.parse::<toml::Table>().is_ok(), "{}", config.out);
    let line = format!("warning    configuration        {STARVES}");
    assert!(doctor.out.contains(&line), "{}", doctor.out);
    assert!(doctor.out.contains("→ set max_wait"), "{}", doctor.out);
}

#[test]
fn commands_that_are_not_about_it_say_nothing_of_it() {
    let desk = Desk::with_people();
    desk.write("tidings.toml", "[types.Comment]\ncooldown = \"4m\"");

    desk.run(&["status"]).done();
}
