//! The server of `tidings preview`: shows emails and pages, and rebuilds them when a template is
//! saved.
//!
//! Only users of this machine can reach it: it listens on loopback, and requests must name a
//! loopback host ([`super::demo::local`]). It changes nothing. If something cannot be built, it
//! shows the error beside the last result.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use actix_web::http::header;
use actix_web::middleware::from_fn;
use actix_web::web::{self, Data};
use actix_web::{HttpResponse, HttpServer};
use anyhow::Context;
use tokio::sync::{Mutex, watch};

use super::demo;
use super::socket::{Listening, stopped};
use crate::clock::Clock;
use crate::demo::picture;
use crate::domain::{BrandName, UserId};
use crate::operate::preview::{Catalogs, Kind, OfPerson, Preview, Sheet, trouble};
use crate::wire::local::{Board, Locale, Sheet as Shown};

const PAGE: &str = include_str!("preview/page.html");
const SCRIPT: &str = include_str!("preview/page.js");
const STYLE: &str = include_str!("preview/page.css");

/// Restricts an email as email programs do: images are allowed, scripts and forms are not.
const OF_SHEET: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src http: https: data:; \
                        sandbox; frame-ancestors 'self'";
const OF_PAGE: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                       connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; \
                       frame-ancestors 'none'; require-trusted-types-for 'script'; \
                       trusted-types 'none'";

/// The recipient of the emails.
pub enum Of {
    /// A fictional user, with fictional objects.
    Nobody,
    /// An existing user, with the emails that they would get now.
    Somebody(Box<OfPerson>, UserId),
}

/// The contents of a preview.
pub struct Showing {
    /// Builds emails and pages.
    pub preview: Preview,
    /// The recipient.
    pub of: Of,
    /// The kinds of emails and pages to show.
    pub kinds: Vec<Kind>,
    /// The locale; `None` for each user's own.
    pub locale: Option<String>,
    /// The recipient's own locale in words, for an existing user.
    pub spoken: Option<String>,
    /// The source of the current time.
    pub clock: Arc<dyn Clock>,
}

/// The last result for one locale.
#[derive(Default)]
struct Made {
    version: u64,
    sheets: Vec<Sheet>,
    board: Board,
}

/// The last results, and the last catalogs that could be read.
#[derive(Default)]
struct Shelf {
    version: u64,
    catalogs: Option<Catalogs>,
    /// The results by locale; `None` is each user's own.
    made: HashMap<Option<String>, Made>,
}

struct Desk {
    showing: Showing,
    addr: SocketAddr,
    shelf: Mutex<Shelf>,
}

/// Explains why a user has no email or page of this kind.
fn note(kind: Kind, user: &UserId) -> String {
    match kind {
        Kind::Digest => format!(
            "{user} would get no digest now: nothing is pending, or they had one this period, or no \
             mail may leave (tidings explain {user})"
        ),
        Kind::Batch => format!("no batch of {user} is open, or no mail may leave"),
        Kind::Page => format!("there is no record of {user}"),
    }
}

impl Showing {
    /// Returns the brand of the recipient; `None` for the default brand.
    pub async fn brand(&self) -> anyhow::Result<Option<BrandName>> {
        match &self.of {
            Of::Nobody => Ok(None),
            Of::Somebody(of, user) => {
                let reader = of.reader(user).await?;
                Ok(reader.and_then(|reader| reader.brand))
            }
        }
    }

    /// Builds the emails and pages in this locale, or in each user's own. Also explains which kinds
    /// are missing. `pictures` is the base URL of the pictures of fictional objects.
    pub async fn sheets(
        &self,
        pictures: Option<&str>,
        locale: Option<&str>,
    ) -> anyhow::Result<(Vec<Sheet>, Vec<String>)> {
        let (now, has) = (self.clock.now(), |kind| self.kinds.contains(&kind));
        let (mut drafts, reader) = match &self.of {
            Of::Nobody => {
                let drafts = self.preview.invented(pictures, now);
                (drafts, Some(self.preview.nobody()))
            }
            Of::Somebody(of, user) => (of.drafts(user).await?, of.reader(user).await?),
        };
        drafts.retain(|draft| has(draft.kind()));
        let reader = reader.filter(|_| has(Kind::Page));
        let reader = reader.as_ref();
        let sheets = self.preview.sheets(&drafts, reader, locale, now)?;
        let missing = |kind: &&Kind| !sheets.iter().any(|sheet| sheet.kind == **kind);
        let notes = match &self.of {
            Of::Nobody => Vec::new(),
            Of::Somebody(_, user) => {
                let missing = self.kinds.iter().filter(missing);
                missing.map(|kind| note(*kind, user)).collect()
            }
        };
        Ok((sheets, notes))
    }
}

impl Desk {
    /// Returns the overview of all sheets. Rebuilds them if a template was saved since.
    async fn board(&self, asked: Option<&str>) -> Board {
        let version = version(self.showing.preview.config.mail.templates.as_deref());
        let mut shelf = self.shelf.lock().await;
        let shelf = &mut *shelf;
        if shelf.version != version {
            shelf.version = version;
            // Building the sheets reports a broken catalog.
            if let Ok(catalogs) = self.showing.preview.catalogs() {
                shelf.catalogs = Some(catalogs);
            }
        }
        let catalogs = shelf.catalogs.as_ref();
        let nearest = |asked: &str| catalogs?.nearest(asked).map(str::to_owned);
        let locale = asked.filter(|asked| !asked.is_empty()).and_then(nearest);
        let made = shelf.made.entry(locale.clone()).or_default();
        if made.version == version {
            return made.board.clone();
        }
        let languages = catalogs.iter().flat_map(|catalogs| catalogs.languages());
        let locales = languages.map(|(tag, name)| Locale {
            tag: tag.to_owned(),
            name,
        });
        let locales: Vec<Locale> = locales.collect();
        let pictures = format!("http://{}/pictures", self.addr);
        let board = match self
            .showing
            .sheets(Some(&pictures), locale.as_deref())
            .await
        {
            Ok((sheets, notes)) => {
                made.sheets = sheets;
                let shown = made.sheets.iter().enumerate();
                Board {
                    version,
                    sheets: shown
                        .map(|(n, sheet)| shown_of(n, version, locale.as_deref(), sheet))
                        .collect(),
                    locale,
                    spoken: self.showing.spoken.clone(),
                    locales,
                    trouble: None,
                    notes,
                }
            }
            Err(error) => Board {
                version,
                trouble: Some(trouble(&error)),
                locale,
                spoken: self.showing.spoken.clone(),
                locales,
                ..made.board.clone()
            },
        };
        made.version = version;
        made.board = board;
        made.board.clone()
    }
}

/// The path segment for each user's own locale.
const OWN: &str = "own";

fn shown_of(n: usize, version: u64, locale: Option<&str>, sheet: &Sheet) -> Shown {
    let locale = locale.unwrap_or(OWN);
    Shown {
        kind: sheet.kind.as_str(),
        name: sheet.name.clone(),
        subject: sheet.subject.clone(),
        text: sheet.text.clone(),
        html: format!("sheets/{locale}/{n}?{version:x}"),
        bytes: sheet.html.len(),
    }
}

/// Returns a version that changes if a file in the folder is saved, created or removed; never 0.
fn version(folder: Option<&Path>) -> u64 {
    let mut files = Vec::new();
    if let Some(folder) = folder {
        list(folder, &mut files);
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        let seen = std::fs::metadata(&file).ok();
        let seen = seen.map(|file| (file.len(), file.modified().ok()));
        (file, seen).hash(&mut hasher);
    }
    // JavaScript represents integers exactly up to 53 bits only.
    (hasher.finish() >> 12).max(1)
}

/// Lists the files in a folder and its subfolders. Skips unreadable folders.
fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.filter_map(Result::ok) {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => list(&entry.path(), files),
            _ => files.push(entry.path()),
        }
    }
}

impl Listening {
    /// Serves the preview until `stop` becomes true. Fails unless the address is loopback.
    pub async fn show(self, showing: Showing, stop: watch::Receiver<bool>) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.addr.ip().is_loopback(),
            "a preview is for this machine alone, and {} is not a loopback address",
            self.addr
        );
        let desk = Data::new(Desk {
            showing,
            addr: self.addr,
            shelf: Mutex::default(),
        });
        let server = HttpServer::new(move || {
            actix_web::App::new()
                .app_data(desk.clone())
                .wrap(from_fn(demo::local))
                .route("/", web::get().to(page))
                .route("/page.js", web::get().to(script))
                .route("/page.css", web::get().to(style))
                .route("/board", web::get().to(board))
                .route("/sheets/{locale}/{n}", web::get().to(sheet))
                .route("/pictures/{name}", web::get().to(drawn))
        })
        .workers(1)
        .disable_signals()
        .shutdown_timeout(1)
        .shutdown_signal(stopped(stop))
        .listen(self.listener)
        .context("listening")?;
        server.run().await.context("serving the preview")
    }
}

fn answer(kind: &str, policy: &str, body: impl Into<String>) -> HttpResponse {
    HttpResponse::Ok()
        .content_type(kind)
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::CONTENT_SECURITY_POLICY, policy))
        .body(body.into())
}

async fn page() -> HttpResponse {
    answer("text/html; charset=utf-8", OF_PAGE, PAGE)
}

async fn script() -> HttpResponse {
    answer("text/javascript; charset=utf-8", OF_PAGE, SCRIPT)
}

async fn style() -> HttpResponse {
    answer("text/css; charset=utf-8", OF_PAGE, STYLE)
}

/// The requested locale. Without one, the locale of the command line applies.
#[derive(serde::Deserialize)]
struct Which {
    locale: Option<String>,
}

async fn board(desk: Data<Desk>, which: web::Query<Which>) -> HttpResponse {
    let locale = which.locale.as_deref().or(desk.showing.locale.as_deref());
    HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(desk.board(locale).await)
}

async fn sheet(desk: Data<Desk>, of: web::Path<(String, usize)>) -> HttpResponse {
    let (locale, n) = of.into_inner();
    let locale = Some(locale).filter(|locale| locale != OWN);
    let shelf = desk.shelf.lock().await;
    match shelf.made.get(&locale).and_then(|made| made.sheets.get(n)) {
        Some(sheet) => answer("text/html; charset=utf-8", OF_SHEET, sheet.html.clone()),
        None => HttpResponse::NotFound().finish(),
    }
}

async fn drawn(name: web::Path<String>) -> HttpResponse {
    let name = name.trim_end_matches(".svg");
    answer(
        "image/svg+xml",
        "default-src 'none'; sandbox",
        picture(name),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_changes_when_a_template_is_saved() {
        let folder = tempfile::tempdir().unwrap();
        let (deep, path) = (folder.path().join("digest"), Some(folder.path()));
        std::fs::create_dir(&deep).unwrap();
        std::fs::write(deep.join("subject.txt"), "one").unwrap();
        let first = version(path);

        assert_eq!(version(path), first);
        std::fs::write(deep.join("subject.txt"), "other").unwrap();
        let second = version(path);
        assert_ne!(second, first);
        std::fs::remove_file(deep.join("subject.txt")).unwrap();
        assert_ne!(version(path), second);
        assert_ne!(version(None), 0);
    }
}
