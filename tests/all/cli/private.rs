//! Only their owner can access files with addresses, links or secrets, even with a umask of 0.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Desk, days_ago};
use crate::support::assert_contains;

/// Returns a command that runs with a umask of 0, so that new files are open to all by default.
fn with_open_umask(desk: &Desk, arguments: &str) -> Command {
    let mut shell = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_tidings");
    shell
        .args(["-c", &format!("umask 000; exec {program} {arguments}")])
        .current_dir(desk.path())
        .env_clear()
        .stdin(Stdio::null());
    shell
}

fn run_with_open_umask(desk: &Desk, arguments: &str) {
    run(with_open_umask(desk, arguments), arguments);
}

fn run(mut command: Command, arguments: &str) {
    let ran = command.output().unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.code() != Some(2), "{arguments}: {errors}");
}

/// Returns the files and folders below a folder that others can access, with their modes, except
/// those named in `but`.
fn open_to_others(folder: &Path, but: &[&str]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let known = but.iter().any(|name| path.ends_with(name));
        let mode = std::fs::symlink_metadata(&path).unwrap().mode() & 0o777;
        if mode & 0o077 != 0 && !known {
            found.push((path.clone(), format!("{mode:o}")));
        }
        if path.is_dir() {
            found.extend(open_to_others(&path, but));
        }
    }
    found
}

#[test]
fn all_files_that_commands_write_are_private() {
    let desk = Desk::new();
    desk.write("users", r#"{"id": "ada", "email": "ada@example.org", "confirmed": true}"#);
    desk.write("objects", r#"{"id": "a1", "title": "A work"}"#);
    run_with_open_umask(&desk, "import users users");
    run_with_open_umask(&desk, "import objects objects");
    // While the worker has the database open, its WAL and its shared memory file exist too.
    let mut worker = with_open_umask(&desk, "worker");
    let mut worker = worker.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // Accepted with a longer window, as if 60 days ago.
    let late = format!("notify Published a2 --to ada --at {}", days_ago(60));
    let mut then = with_open_umask(&desk, &late);
    then.envs([("TIDINGS_WINDOW_DAYS_BACK", "60"), ("TIDINGS_ARCHIVE_KEEP", "90d")]);
    run(then, &late);
    for arguments in [
        "notify Published a1 --to ada".to_owned(),
        "digest --dry-run --now --report report.html".to_owned(),
        "digest --now".to_owned(),
        "archive --force --export old/days".to_owned(),
    ] {
        run_with_open_umask(&desk, &arguments);
    }

    let found = open_to_others(desk.path(), &["users", "objects"]);
    let all = ["tidings.db", "tidings.db-wal", "outbox", "report.html", "old/days"];
    let missing: Vec<_> = all.iter().filter(|name| !desk.path().join(name).exists()).collect();

    worker.kill().unwrap();
    worker.wait().unwrap();
    assert_eq!((found, missing), (vec![], vec![]));
}

#[test]
fn doctor_names_files_that_others_can_read() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada"]);
    desk.done(&["digest", "--now"]);
    let readable = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(desk.path().join("tidings.db"), readable).unwrap();

    let ran = desk.run(&["doctor", "--offline", "--json"]);

    let report = ran.json();
    let findings = report["findings"].as_array().unwrap();
    let files = findings.iter().find(|finding| finding["check"] == "files").unwrap();
    assert_eq!(files["verdict"], "warning", "{files}");
    let text = files.to_string();
    assert_contains!(text, "tidings.db");
    assert_contains!(text, "chmod");
}

#[test]
fn doctor_names_world_readable_files_with_secrets() {
    let desk = Desk::new();
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    desk.write("tidings.toml", &format!("hooks.resend_secret = \"{secret}\"\n"));
    let findings = |mode: u32| -> String {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(desk.path().join("tidings.toml"), mode).unwrap();
        let report = desk.run(&["doctor", "--offline", "--json"]).json();
        let findings = report["findings"].as_array().unwrap().iter();
        let files = findings.filter(|finding| finding["check"] == "files");
        files.map(|finding| finding.to_string()).collect()
    };

    let (open, to_a_group) = (findings(0o644), findings(0o640));

    assert_contains!(open, "can read secrets in tidings.toml (644)");
    assert!(!open.contains("whsec"), "{open}");
    assert_eq!(to_a_group, "");
}

#[test]
fn databases_behind_links_are_private() {
    let desk = Desk::new();
    std::fs::create_dir(desk.path().join("data")).unwrap();
    let closed = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(desk.path().join("data"), closed).unwrap();
    std::os::unix::fs::symlink("data/real.db", desk.path().join("tidings.db")).unwrap();
    desk.write("users", r#"{"id": "ada", "email": "ada@example.org"}"#);

    run_with_open_umask(&desk, "import users users");

    assert!(desk.path().join("data/real.db").exists());
    let found = open_to_others(desk.path(), &["users", "tidings.db"]);
    assert_eq!(found, vec![]);
}
