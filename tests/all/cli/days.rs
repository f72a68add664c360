//! `archive` and `restore`, and the days that `status` lists.

use super::{Desk, Ran, days_ago};
use crate::support::{assert_contains, assert_starts_with};

/// Creates events of today and of 9, 50 and 60 days ago. Only the one of 50 days ago should have
/// been emailed, because ben is unconfirmed.
fn aged() -> Desk {
    let desk = Desk::with_people();
    for (days, person) in [(60, "ben"), (50, "ada"), (9, "ben"), (0, "ben")] {
        let at = days_ago(days);
        // Accepted with a longer window, as if on the day of the event.
        let mut then = desk.command(&["notify", "Published", "a1", "--to", person, "--at", &at]);
        let ran: Ran = then
            .envs([("TIDINGS_WINDOW_DAYS_BACK", "60"), ("TIDINGS_ARCHIVE_KEEP", "90d")])
            .output()
            .unwrap()
            .into();
        ran.done();
    }
    desk
}

/// Returns the days in the store.
fn days(desk: &Desk) -> Vec<String> {
    let status = desk.run(&["status", "--json"]).json();
    let days = status["days"].as_array().unwrap().iter();
    days.map(|day| day["day"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn archive_drops_old_days_but_keeps_unsent_events() {
    let desk = aged();

    let ran = desk.run(&["archive"]);

    assert_eq!(
        (ran.code, ran.err.as_str()),
        (3, ""),
        "cron sees a protected day by the exit code alone"
    );
    assert_eq!(
        ran.out,
        format!(
            "{}  dropped, 1 stack\n{}  kept: 1 user should have been emailed 1 event (--force drops the day anyway)\n\
             archive: 1 day with 1 stack dropped, 1 kept, 2 not old enough\n",
            days_ago(60),
            days_ago(50)
        )
    );
    assert_eq!(days(&desk).len(), 3);
}

#[test]
fn status_counts_days_before_the_window_apart() {
    let desk = aged();

    let status = desk.done(&["status"]);

    let today = days_ago(0);
    let words = status.split_whitespace().collect::<Vec<_>>().join(" ");
    let current = format!(" days 1 day, {today} to {today}, 1 stack ");
    let (first, last) = (days_ago(60), days_ago(9));
    let older = format!(" older days 3 days, {first} to {last}, ");
    assert!(words.contains(&current) && words.contains(&older), "{status}");
}

#[test]
fn a_dry_run_drops_nothing() {
    let desk = aged();

    let ran = desk.run(&["archive", "--dry-run", "--force", "--keep", "9d", "--export", "old"]);

    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_contains!(
        ran.out,
        &format!("{}  would be dropped, 1 stack, to old/notifications_", days_ago(60)),
    );
    assert_eq!(days(&desk).len(), 4);
}

#[test]
fn a_wrong_folder_is_an_error_before_any_day_is_old() {
    let desk = Desk::with_people();
    desk.write("old", "a file");

    let ran = desk.run(&["archive", "--export", "old"]);

    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert_contains!(ran.err, "exporting to old");
}

#[test]
fn an_exported_day_can_be_restored() {
    let desk = aged();
    let before = days(&desk);

    let ran = desk.run(&["archive", "--force", "--export", "old", "--json"]);

    assert_eq!(ran.code, 0, "{}", ran.err);
    let lines: Vec<serde_json::Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let fates: Vec<_> = lines.iter().map(|line| line["fate"].as_str().unwrap()).collect();
    assert_eq!(fates, ["dropped", "dropped", "young", "in_window"]);
    let files: Vec<_> = lines.iter().filter_map(|line| line["file"].as_str()).collect();
    let restored = desk.done(&["restore", files[0], files[1]]);
    assert_starts_with!(restored, &format!("{}  restored, 1 stack\n", days_ago(60)));
    assert_eq!(days(&desk), before);
}

#[test]
fn a_damaged_file_is_rejected_and_the_others_are_restored() {
    let desk = aged();
    let ran = desk.run(&["archive", "--force", "--export", "old", "--json"]);
    let first: serde_json::Value = serde_json::from_str(ran.out.lines().next().unwrap()).unwrap();
    desk.write("broken.zst", "no Zstandard at all");

    let ran = desk.run(&["restore", "broken.zst", first["file"].as_str().unwrap()]);

    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.starts_with("error: broken.zst"), "{}", ran.err);
    assert_eq!(days(&desk).len(), 3);
}
