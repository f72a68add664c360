//! Warnings about batch policies. `config`, `worker` and `doctor` print them and continue.

use super::Desk;
use crate::support::assert_starts_with;

const STARVES: &str = "types.Comment.cooldown has no max_wait beside it";

#[test]
fn config_doctor_and_worker_warn_about_a_cooldown_without_max_wait() {
    let desk = Desk::new();
    desk.fill();
    desk.write("tidings.toml", "[types.Comment]\ncooldown = \"4m\"");

    let config = desk.run(&["config"]);
    let worker = desk.run(&["worker", "--once"]);
    let doctor = desk.run(&["doctor", "--offline"]);

    assert_eq!([config.code, worker.code, doctor.code], [0, 0, 0]);
    for message in [&config.err, &worker.err] {
        assert_starts_with!(message, &format!("note: {STARVES}"));
    }
    // The output of `config` is still valid TOML.
    assert!(config.out.parse::<toml::Table>().is_ok(), "{}", config.out);
    let line = format!("warning    configuration        {STARVES}");
    assert!(doctor.out.contains(&line), "{}", doctor.out);
    assert!(doctor.out.contains("→ set max_wait"), "{}", doctor.out);
}

#[test]
fn other_commands_do_not_warn_about_batch_policies() {
    let desk = Desk::with_people();
    desk.write("tidings.toml", "[types.Comment]\ncooldown = \"4m\"");

    desk.done(&["status"]);
}
