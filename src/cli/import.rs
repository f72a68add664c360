//! `tidings import`: imports an application's existing data from NDJSON.

use std::path::{Path, PathBuf};

use clap::{Args as Arguments, ValueEnum};

use super::failure_text::WithoutKeys;
use super::fan_out::FanOutArgs;
use super::session::{Access, Exit, Refusal, Screen, Session, phrases};
use super::transfer::import_store;
use crate::domain::ModelName;
use crate::engine::import::{ImportKind, MAX_REPORTED_LINES};
use crate::wire::transfer::{ImportAnswer, ImportReport};

/// Import users, follows, objects or events from NDJSON, or a whole store
///
/// One JSON object per line; gzip and Zstandard are recognized. A user or an object replaces the
/// record with its id. Bad lines are reported with their number, field and reason, and skipped.
/// Importing the same file again changes nothing. `store` imports a folder of `tidings export` into
/// an empty store, then compares both.
#[derive(Debug, Arguments)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Kind of data in the lines
    #[arg(value_enum, value_name = "WHAT")]
    data: DataKind,
    /// File to import; - is standard input. For `store`, the folder of the export
    file: PathBuf,
    /// Objects: put this model before ids that lack it
    #[arg(long)]
    model: Option<ModelName>,
    #[command(flatten)]
    fan_out: FanOutArgs,
}

const AFTER_HELP: &str = r#"Lines, such as:
  users    {"id": "mara", "email": "mara@example.org", "confirmed": true, "tz": "Europe/Lisbon",
            "digest": {"cadence": "weekly", "weekday": "mon", "hour": 9}}
  follows  {"user": "mara", "key": "artist:558"}
  objects  {"id": "Artwork:A00001", "title": "Night Ferry", "by": "Ines Tavoro", "url": "https://…"}
  events   {"type": "ArtworkPublished", "objects": ["A00001"], "followers_of": ["artist:558"]}

All fields, those that are needed first; docs/api.md says what each means:
  users    id; email, name, confirmed, tz, locale, brand, loc [lng, lat], quiet {from, to},
           digest {cadence, weekday, hour}, types {TYPE: {route, window}}, suppressed, unsubscribed
  follows  user, key
  objects  id; notifiable, title, url, image, by, at, place [lng, lat], data {…}
  events   type, objects, and one of to, followers_of and near {point [lng, lat], km};
           except, actor, notify_actor, key, batch_key, brand, text, data, at

Examples:
  tidings import users users.ndjson.gz
  jq -c '{id, title, by: .artist, data: {year}}' works.ndjson |
    tidings import objects - --model Artwork
  zcat events.gz | tidings import events -
  tidings --store mongodb://HOST/DATABASE import store /var/backups/tidings/2026-03-01"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DataKind {
    Users,
    Follows,
    Objects,
    Events,
    Store,
}

/// Prints the bad lines of a file.
pub(super) fn show_bad_lines(
    file: &Path,
    report: &ImportReport,
    screen: &mut Screen,
) -> std::io::Result<()> {
    for bad in &report.bad_lines {
        screen.note(format!("{}, {bad}", phrases::file(file)))?;
    }
    match phrases::nonzero(report.bad.saturating_sub(MAX_REPORTED_LINES as u64), "more bad lines") {
        Some(more) => screen.note(format!("and {more}")),
        None => Ok(()),
    }
}

/// Summarizes an import: `import: 8 users, 1 bad line skipped`. Ends in `suffix`.
pub(super) fn import_line(
    report: &ImportReport,
    (one, many): (&str, &str),
    suffix: Option<String>,
) -> String {
    let accepted = phrases::count(report.accepted, one, many);
    let skipped = phrases::nonzero_count(report.bad, "bad line skipped", "bad lines skipped");
    phrases::list([Some(format!("import: {accepted}")), skipped, suffix])
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        if self.data != DataKind::Objects && self.model.is_some() {
            let next = "omitting it; lines of other kinds contain all they need";
            return Err(Refusal::new("--model is for objects", next).into());
        }
        let (kind, nouns) = match self.data {
            DataKind::Users => (ImportKind::Users, ("user", "users")),
            DataKind::Follows => (ImportKind::Follows, ("follow", "follows")),
            DataKind::Objects => (ImportKind::Objects(self.model.clone()), ("object", "objects")),
            DataKind::Events => (ImportKind::Events, ("event", "events")),
            DataKind::Store => return import_store(&self.file, session).await,
        };
        let (app, screen) = (session.open(Access::Create).await?, &mut *session.screen);
        let import = app.import();
        let result = import.import_file(&kind, &self.file, &screen.progress_bar("lines")).await;
        let report = &result.map_err(|error| match kind {
            ImportKind::Events => WithoutKeys::add_to(error),
            _ => error.into(),
        })?;
        let has_events = kind == ImportKind::Events && report.accepted > 0;
        let fan_out = if has_events { self.fan_out.run(&app, screen).await } else { None };
        let without_failure = fan_out.as_ref().filter(|fan_out| fan_out.failure.is_none());
        let fanned_out = without_failure.map(|fan_out| &fan_out.done);
        show_bad_lines(&self.file, report, screen)?;
        if !screen.answer(&ImportAnswer { report, fanned_out })? {
            let suffix = match fanned_out {
                Some(done) => {
                    let fanouts = phrases::count(done.completed, "fan-out", "fan-outs");
                    let users = phrases::users(done.counts.people);
                    Some(format!("{fanouts} reached {users}"))
                }
                None if has_events => Some("a worker fans them out (tidings worker --once)".into()),
                None => None,
            };
            screen.line(import_line(report, nouns, suffix))?;
        }
        let fan_out = fan_out.unwrap_or_default();
        fan_out.show(screen)?;
        Ok(Exit::of(report.accepted, report.bad).partly_unless(fan_out.is_complete()))
    }
}
