//! The server of `tidings preview`: shows emails and pages, and rebuilds them when a template is
//! saved.
//!
//! Only users of this machine can reach it: it listens on loopback, and requests must name a
//! loopback host ([`local`]). It changes nothing. If something cannot be built, it
//! shows the error beside the last result.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use actix_web::http::header::{self, HeaderValue};
use actix_web::middleware::from_fn;
use actix_web::web::{self, Data};
use actix_web::{HttpResponse, HttpServer};
use anyhow::Context;
use tokio::sync::{Mutex, watch};

use super::demo::{OF_PICTURE, local, local_answer};
use super::socket::{Listening, stopped};
use crate::demo::picture;
use crate::operate::preview::{Catalogs, Preview, Sheet};
use crate::wire::local::{Board, Locale, Sheet as SheetSummary};

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

/// The last result for one locale.
#[derive(Default)]
struct Built {
    sheets: Vec<Sheet>,
    board: Board,
}

/// The last results, and the last catalogs that could be read.
#[derive(Default)]
struct Results {
    version: u64,
    catalogs: Option<Catalogs>,
    /// The results by locale; `None` is each user's own.
    built: HashMap<Option<String>, Built>,
}

struct PreviewServer {
    preview: Preview,
    addr: SocketAddr,
    results: Mutex<Results>,
}

impl PreviewServer {
    /// Returns the overview of all sheets. Rebuilds them if a template was saved since.
    async fn board(&self, requested: Option<&str>) -> Board {
        let preview = &self.preview;
        let version = version(preview.config.mail.templates.as_deref());
        let results = &mut *self.results.lock().await;
        if results.version != version {
            results.version = version;
            // Building the sheets reports a broken catalog.
            results.catalogs = preview.catalogs().ok().or(results.catalogs.take());
        }
        let catalogs = results.catalogs.as_ref();
        let requested = requested.filter(|locale| !locale.is_empty());
        let locale = requested.and_then(|locale| catalogs?.nearest(locale).map(str::to_owned));
        let built = results.built.entry(locale.clone()).or_default();
        if built.board.version == version {
            return built.board.clone();
        }
        let pictures = format!("http://{}/pictures", self.addr);
        let sheets = self.preview.sheets(Some(&pictures), locale.as_deref());
        let (notes, trouble) = match sheets.await {
            Ok((sheets, notes)) => {
                built.sheets = sheets;
                (notes, None)
            }
            // The sheets of the last result remain.
            Err(error) => (built.board.notes.clone(), Some(format!("{error:#}"))),
        };
        let languages = catalogs.iter().flat_map(|catalogs| catalogs.languages());
        let locales = languages.map(|(tag, name)| Locale {
            tag: tag.to_owned(),
            name,
        });
        let folder = locale.as_deref().unwrap_or(OWN);
        let summary = |(n, sheet): (usize, &Sheet)| SheetSummary {
            kind: sheet.kind.as_str(),
            name: sheet.name.clone(),
            subject: sheet.subject.clone(),
            text: sheet.text.clone(),
            html: format!("sheets/{folder}/{n}?{version:x}"),
            bytes: sheet.html.len(),
        };
        built.board = Board {
            version,
            sheets: built.sheets.iter().enumerate().map(summary).collect(),
            locales: locales.collect(),
            trouble,
            notes,
            locale,
        };
        built.board.clone()
    }
}

/// The path segment for each user's own locale.
const OWN: &str = "own";

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
    pub async fn show(self, preview: Preview, stop: watch::Receiver<bool>) -> anyhow::Result<()> {
        let Self { addr, listener } = self.local()?;
        let preview = Data::new(PreviewServer {
            preview,
            addr,
            results: Mutex::default(),
        });
        let file = |kind: &'static str, text: &'static str| {
            web::get().to(move || async move { answer(kind, OF_PAGE, text) })
        };
        let server = HttpServer::new(move || {
            actix_web::App::new()
                .app_data(preview.clone())
                .wrap(from_fn(local))
                .route("/", file("text/html; charset=utf-8", PAGE))
                .route("/page.js", file("text/javascript; charset=utf-8", SCRIPT))
                .route("/page.css", file("text/css; charset=utf-8", STYLE))
                .route("/board", web::get().to(board))
                .route("/sheets/{locale}/{n}", web::get().to(sheet))
                .route("/pictures/{name}", web::get().to(drawn))
        })
        .workers(1)
        .disable_signals()
        .shutdown_timeout(1)
        .shutdown_signal(stopped(stop))
        .listen(listener)
        .context("listening")?;
        server.run().await.context("serving the preview")
    }
}

/// Answers without a referrer, because the address of a preview names its port on this machine.
fn answer(kind: &str, policy: &str, body: impl Into<String>) -> HttpResponse {
    let mut answer = local_answer(kind, policy, body);
    let none = HeaderValue::from_static("no-referrer");
    answer.headers_mut().insert(header::REFERRER_POLICY, none);
    answer
}

/// The requested locale. Without one, the locale of the command line applies.
#[derive(serde::Deserialize)]
struct Which {
    locale: Option<String>,
}

async fn board(preview: Data<PreviewServer>, which: web::Query<Which>) -> HttpResponse {
    let locale = which.locale.as_deref();
    let locale = locale.or(preview.preview.locale.as_deref());
    HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(preview.board(locale).await)
}

async fn sheet(preview: Data<PreviewServer>, of: web::Path<(String, usize)>) -> HttpResponse {
    let (locale, n) = of.into_inner();
    let locale = Some(locale).filter(|locale| locale != OWN);
    let results = preview.results.lock().await;
    let built = results.built.get(&locale);
    match built.and_then(|built| built.sheets.get(n)) {
        Some(sheet) => answer("text/html; charset=utf-8", OF_SHEET, sheet.html.clone()),
        None => HttpResponse::NotFound().finish(),
    }
}

async fn drawn(name: web::Path<String>) -> HttpResponse {
    let name = name.trim_end_matches(".svg");
    answer("image/svg+xml", OF_PICTURE, picture(name))
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
