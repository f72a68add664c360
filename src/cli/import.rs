//! `tidings import`: imports an application's existing data from NDJSON.

use std::path::PathBuf;

use clap::{Args as Arguments, ValueEnum};

use super::exit::{Exit, Usage, WithoutKeys};
use super::export::warn;
use super::fan_out::{FanOut, FanOutEnd};
use super::screen::Screen;
use super::words;
use crate::app::{Access, App};
use crate::config::Config;
use crate::domain::{ModelName, Policies};
use crate::engine::directory::import::{Kind, Mapping, SHOWN};
use crate::operate::open::transfer;
use crate::operate::transfer::Verified;
use crate::wire::digest::FannedOut;
use crate::wire::transfer::{ImportReport, Imported, WithoutModel};

/// Import users, follows, objects or events from NDJSON, or a whole store
///
/// One JSON object per line; gzip and Zstandard are recognized. Bad lines are reported with their
/// number, field and reason, and skipped. Importing the same file again changes nothing. `store`
/// imports a folder of `tidings export` into an empty store, then compares both.
#[derive(Debug, Arguments)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Kind of data in the lines
    #[arg(value_enum, value_name = "WHAT")]
    what: What,
    /// File to import; - is standard input. For `store`, the folder of the export
    file: PathBuf,
    /// Objects: put this model before their ids, and store unknown fields in `data`
    #[arg(long)]
    model: Option<ModelName>,
    /// Objects: map fields of the file to fields of tidings, such as by=artist
    #[arg(long, value_name = "OURS=THEIRS", value_parser = pair, num_args = 1..)]
    map: Vec<(String, String)>,
    #[command(flatten)]
    fan_out: FanOut,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
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
           except, actor, tell_actor, key, batch_key, brand, text, data, at

Examples:
  tidings import users users.ndjson.gz
  tidings import objects artworks.ndjson --model Artwork --map by=artist at=published_at
  zcat events.gz | tidings import events -
  tidings --store mongodb://HOST/DATABASE import store /var/backups/tidings/2026-03-01"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    Users,
    Follows,
    Objects,
    Events,
    Store,
}

impl What {
    /// Returns the singular and the plural of the imported things.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Users => ("user", "users"),
            Self::Follows => ("follow", "follows"),
            Self::Objects => ("object", "objects"),
            Self::Events => ("event", "events"),
            Self::Store => ("record", "records"),
        }
    }
}

/// Returns a warning about object ids without a model. Returns `None` if no event type of the
/// configuration has a model.
fn names_none(of: &WithoutModel, policies: &Policies) -> Option<String> {
    let with_model = |kind| Some((kind, policies.of(kind).model.as_ref()?));
    let (kind, model) = policies.kinds().find_map(with_model)?;
    let objects = words::count(of.objects, "object has", "objects have");
    Some(format!(
        "{objects} no model in the id, such as {}: events of {kind} are about {model}:ID; \
         --model {model} puts it before them",
        of.such_as
    ))
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((ours, theirs)) if !ours.is_empty() && !theirs.is_empty() => {
            Ok((ours.to_owned(), theirs.to_owned()))
        }
        _ => Err("not two names with = between, such as by=artist".into()),
    }
}

impl Args {
    pub(super) async fn run(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        let kind = self.kind()?;
        let bar = screen.bar("lines");
        let report = app.import().file(&kind, &self.file, &bar).await;
        let report = report.map_err(|error| match kind {
            Kind::Events => WithoutKeys::note(error),
            _ => error.into(),
        })?;
        drop(bar);
        let fanned_out = if kind == Kind::Events && report.taken > 0 && self.fan_out.wanted(app) {
            Some(FanOutEnd::all(app, &screen.bar("people reached")).await)
        } else {
            None
        };
        let done = fanned_out
            .as_ref()
            .filter(|fanned_out| fanned_out.failure().is_none());
        let done = done.map(|fanned_out| &fanned_out.done);
        for bad in &report.bad_lines {
            screen.note(format!("{}, {bad}", words::file(&self.file)))?;
        }
        if report.bad > SHOWN as u64 {
            let more = words::number(report.bad - SHOWN as u64);
            screen.note(format!("and {more} more bad lines"))?;
        }
        if let Some(of) = &report.without_model
            && let Some(why) = names_none(of, &app.config.policies)
        {
            screen.warning(why)?;
        }
        if self.json {
            screen.json(&Imported {
                report: &report,
                fanned_out: done,
            })?;
        } else {
            screen.line(self.sentence(&report, done))?;
        }
        let exit = Exit::of(report.taken, report.bad);
        let Some(fanned_out) = fanned_out else {
            return Ok(exit);
        };
        fanned_out.tell(screen)?;
        Ok(fanned_out.exit(exit))
    }

    /// Whether a whole store is imported.
    pub(super) fn is_of_store(&self) -> bool {
        self.what == What::Store
    }

    /// Imports a whole store.
    pub(super) async fn run_store(
        &self,
        config: &Config,
        screen: &mut Screen,
    ) -> anyhow::Result<Exit> {
        self.refuse_mapping()?;
        // A mistyped or damaged folder creates no store.
        let export = Verified::read(&self.file)?;
        let transfer = transfer(config, Access::Import, self.file.clone()).await?;
        let bar = screen.bar("records imported and compared");
        let imported = transfer.import(&export, &bar).await?;
        drop(bar);
        warn(screen, "cannot be imported", &imported.rejected)?;
        warn(screen, "not in the export", &imported.unreadable)?;
        let (store, folder) = (&config.store, self.file.display());
        if self.json {
            screen.json(&imported)?;
        } else if imported.same {
            let records = imported.files.iter().map(|file| file.records).sum();
            let records = words::count(records, "record", "records");
            let lacks = match imported.unreadable.count {
                0 => "",
                _ => ", but for the records that the export lacks",
            };
            screen.line(format!(
                "imported {records} from {folder} into {store:?}: compared, and the same{lacks}"
            ))?;
        } else {
            for file in imported.files.iter().filter(|file| !file.same) {
                let (records, stored) = (words::number(file.records), words::number(file.stored));
                let name = &file.name;
                screen.line(format!(
                    "{name} differs: {records} in the file, {stored} in the store"
                ))?;
            }
            screen.line(format!(
                "{store:?} stays closed; next: stop all writers and repeat"
            ))?;
        }
        Ok(match (imported.same, imported.unreadable.count) {
            (true, 0) => Exit::Done,
            (true, _) => Exit::Partly,
            (false, _) => Exit::Failed,
        })
    }

    fn refuse_mapping(&self) -> Result<(), Usage> {
        if self.what != What::Objects && (self.model.is_some() || !self.map.is_empty()) {
            return Err(Usage::new("--model and --map are for objects")
                .instead("leaving them out; every other line says itself what it is about"));
        }
        Ok(())
    }

    fn kind(&self) -> Result<Kind, Usage> {
        self.refuse_mapping()?;
        Ok(match self.what {
            What::Users => Kind::Users,
            What::Follows => Kind::Follows,
            What::Objects => Kind::Objects(Mapping {
                model: self.model.clone(),
                fields: self.map.clone(),
            }),
            What::Events => Kind::Events,
            What::Store => unreachable!("run_store imports a store"),
        })
    }

    fn sentence(&self, report: &ImportReport, fanned_out: Option<&FannedOut>) -> String {
        let (one, many) = self.what.names();
        let taken = words::count(report.taken, one, many);
        let bad = (report.bad > 0).then(|| {
            let lines = words::count(report.bad, "bad line", "bad lines");
            format!("{lines} left out")
        });
        let fanned_out = match fanned_out {
            Some(done) => Some(format!(
                "{} reached {}",
                words::count(done.done, "fan-out", "fan-outs"),
                words::count(done.counts.people, "person", "people")
            )),
            None if self.what == What::Events && report.taken > 0 => {
                Some("a worker fans them out (tidings worker --once)".into())
            }
            None => None,
        };
        words::list([Some(format!("import: {taken}")), bad, fanned_out])
    }
}
