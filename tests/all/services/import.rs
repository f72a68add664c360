//! P10: an import stores good lines, reports bad ones by number, and stores no part of a bad line.

use std::io::Write;
use std::path::{Path, PathBuf};

use tidings::clock::Clock;
use tidings::engine::NoProgress;
use tidings::engine::import::ImportKind;
use tidings::wire::transfer::{BadLine, ImportReport};

use crate::support::town::{Town, mostly_on_sqlite};
use crate::support::{Fresh, Shorthand, key, kind, lease, user};

mostly_on_sqlite! {
    users_are_imported_and_bad_lines_are_reported_by_number
    compressed_files_are_imported
    a_model_is_put_before_ids_that_lack_it
    events_imported_twice_are_accepted_once
    follows_accept_numeric_user_ids
    a_reused_key_is_one_bad_line
    an_object_of_a_mapped_model_is_a_bad_line
}

fn file(folder: &Path, lines: &str) -> PathBuf {
    let path = folder.join("lines.ndjson");
    std::fs::write(&path, lines).unwrap();
    path
}

async fn import(town: &Town, kind: ImportKind, path: &Path) -> ImportReport {
    town.process().import().import_file(&kind, path, &NoProgress).await.unwrap()
}

async fn users_are_imported_and_bad_lines_are_reported_by_number(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let folder = tempfile::tempdir().unwrap();
    let path = file(
        folder.path(),
        r#"{"id": "eve", "email": "eve@example.org", "confirmed": true, "tz": "Europe/Paris", "loc": [2.35, 48.86], "digest": {"cadence": "daily", "hour": 7}, "types": {"A.b$": {"route": "never"}, "Reply": {"route": "batch", "window": "1d"}}}
{"id": "bad", "email": "nonsense"}

{"id": "worse", "color": "red"}
{"id": {"$ne": ""}, "email": "x@example.org"}
{"email": "nobody@example.org"}
{"id": "late", "digest": {"hour": 24}}
{"id": 0, "name": "Zero"}
not json
{"id": "slow", "types": {"Reply": {"route": "batch", "window": "a while"}}}
"#,
    );

    let report = import(&town, ImportKind::Users, &path).await;

    assert_eq!((report.accepted, report.bad), (2, 7));
    let numbers: Vec<_> = report.bad_lines.iter().map(|BadLine { line, .. }| *line).collect();
    assert_eq!(numbers, [2, 4, 5, 6, 7, 9, 10]);
    assert!(report.bad_lines[0].why.contains("has no @"), "{:?}", report.bad_lines[0]);
    assert!(!report.bad_lines[0].why.contains("nonsense@"));
    let found = fresh.users(&["eve", "0", "bad", "worse"].map(user)).await.unwrap();
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false, false]);
    let eve = found[0].as_ref().unwrap();
    assert_eq!((eve.digest.hour, eve.types.len(), eve.confirmed), (Some(7), 2, true));
    let day = chrono::TimeDelta::days(1);
    assert_eq!(eve.types[&kind("Reply")].window, Some(day));
}

async fn compressed_files_are_imported(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let folder = tempfile::tempdir().unwrap();
    let lines: String = (0..5_000).map(|n| format!("{{\"id\": \"z{n}\"}}\n")).collect();
    let (gz, zst) = (folder.path().join("users.gz"), folder.path().join("users.ndjson.zst"));
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(lines.as_bytes()).unwrap();
    std::fs::write(&gz, encoder.finish().unwrap()).unwrap();
    std::fs::write(&zst, zstd::encode_all(lines.as_bytes(), 1).unwrap()).unwrap();

    for path in [&gz, &zst] {
        let report = import(&town, ImportKind::Users, path).await;
        assert_eq!((report.accepted, report.bad), (5_000, 0), "{}", path.display());
    }
    assert!(fresh.users(&[user("z4999")]).await.unwrap()[0].is_some());
}

async fn a_model_is_put_before_ids_that_lack_it(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let folder = tempfile::tempdir().unwrap();
    let path = file(
        folder.path(),
        r#"{"id": "A1", "title": "Snow & Storm", "data": {"acquired": 1922}}
{"_id": 7}
{"id": "Artwork:A2"}
{"id": "A3", "url": "javascript:alert(1)"}
{"id": "A4", "acquired": 1922}
{"id": " A5"}
{"title": "No id"}
"#,
    );
    let kind = ImportKind::Objects(Some("Artwork".parse().unwrap()));

    let report = import(&town, kind, &path).await;

    assert_eq!((report.accepted, report.bad), (3, 4));
    let lines = report.bad_lines.iter().map(|bad| bad.line);
    assert_eq!(lines.collect::<Vec<_>>(), [4, 5, 6, 7]);
    let keys = ["Artwork:A1", "Artwork:7", "Artwork:A2"].map(|text| text.parse().unwrap());
    let found = fresh.objects(&keys).await.unwrap();
    assert!(found.iter().all(Option::is_some), "{found:?}");
    let first = found[0].as_ref().unwrap();
    assert_eq!(first.title.as_deref(), Some("Snow & Storm"));
    assert_eq!(first.data, serde_json::json!({"acquired": 1922}).into());
}

async fn events_imported_twice_are_accepted_once(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let folder = tempfile::tempdir().unwrap();
    let path = file(
        folder.path(),
        r#"{"type": "ArtworkPublished", "objects": "a1", "followers_of": "artist:1", "at": "2014-04-18T10:00:00Z", "batch_key": "acme"}
{"type": "ArtworkPublished", "objects": ["a2", 3], "to": ["ada", 0]}
{"type": "ArtworkPublished", "objects": "a3"}
{"type": "ArtworkPublished", "objects": "a3", "to": "ada", "followers_of": "artist:1"}
{"type": "ArtworkPublished", "objects": "a3", "near": {"point": [999, 0], "km": 5}}
{"type": "ArtworkPublished", "objects": [], "to": "ada"}
{"type": "ArtworkPublished", "objects": "a3", "to": "ada", "batch_key": 0}
"#,
    );

    let first = import(&town, ImportKind::Events, &path).await;
    let second = import(&town, ImportKind::Events, &path).await;

    assert_eq!((first.accepted, first.bad), (2, 5));
    assert_eq!(first.bad_lines[4].why, "batch key 0 is not text; if it is meant, write \"0\"");
    assert_eq!(second.accepted, 2);
    assert_eq!(fresh.backlog().await.pending, 2);
    let now = town.clock.now();
    let until = now + chrono::TimeDelta::minutes(1);
    let pending = fresh.claim_fanouts(&lease("one", until), now, 10.into()).await.unwrap().fanouts;
    let keys = pending.iter().map(|fanout| fanout.batch_key.as_ref());
    let keys: Vec<_> = keys.map(|key| key.map(|key| key.as_str())).collect();
    assert_eq!(keys, [Some("acme"), None]);
}

async fn follows_accept_numeric_user_ids(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "{\"user\": 0, \"key\": \"artist:0\"}\n{\"user\": \"x\"}\n");

    let report = import(&town, ImportKind::Follows, &path).await;

    assert_eq!((report.accepted, report.bad), (1, 1));
    assert_eq!(fresh.followers(&key("artist:0"), None, 10).await, [user("0")]);
}

async fn a_reused_key_is_one_bad_line(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let folder = tempfile::tempdir().unwrap();
    let path = file(
        folder.path(),
        r#"{"type": "ArtworkPublished", "objects": "a1", "to": "ada", "key": "one"}
{"type": "ArtworkPublished", "objects": "a2", "to": "ada", "key": "one"}
{"type": "ArtworkPublished", "objects": "a3", "to": "ada", "key": "two"}
"#,
    );

    let report = import(&town, ImportKind::Events, &path).await;

    assert_eq!((report.accepted, report.bad), (2, 1));
    assert_eq!(report.bad_lines[0].line, 2);
    assert!(
        report.bad_lines[0].why.contains("\"one\" was used for a different event"),
        "{:?}",
        report.bad_lines
    );
    assert_eq!(town.store.backlog().await.pending, 2);
}

async fn an_object_of_a_mapped_model_is_a_bad_line(fresh: Fresh) {
    let config = "store = \"mongodb://localhost/gallery\"\nmodels.Show.collection = \"shows\"";
    let town = Town::found(&fresh, true, config).await;
    let folder = tempfile::tempdir().unwrap();
    let path = file(
        folder.path(),
        "{\"id\": \"Artwork:1\"}\n{\"id\": \"Show:1\", \"title\": \"never read\"}\n",
    );
    let kind = ImportKind::Objects(None);

    let report = import(&town, kind, &path).await;

    assert_eq!((report.accepted, report.bad), (1, 1), "{report:?}");
    let bad = &report.bad_lines[0];
    assert_eq!(bad.line, 2);
    assert!(bad.why.contains("own collection"), "{bad:?}");
    let found = fresh.objects(&["Artwork:1", "Show:1"].map(|key| key.parse().unwrap())).await;
    assert_eq!(found.unwrap().iter().map(Option::is_some).collect::<Vec<_>>(), [true, false]);
}
