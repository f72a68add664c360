//! The server of `tidings preview`: shows emails and pages, and rebuilds them when a template is
//! saved.
//!
//! Only users of this machine can reach it: it listens on loopback, and requests must name a
//! loopback host ([`require_local_host`]). It changes nothing. If something cannot be built, it
//! shows the error beside the last result.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::path::Path;

use actix_web::middleware::from_fn;
use actix_web::web::{self, Data};
use actix_web::{HttpResponse, HttpServer};
use anyhow::Context;
use tokio::sync::{Mutex, MutexGuard, watch};

use super::listener::{ListeningSocket, stopped};
use super::local_only::{
    EMAIL_POLICY, FILE_POLICY, local_response, page_policy, require_local_host, uncached,
};
use crate::demo::picture;
use crate::operate::preview::{PreviewSheet, Previewer, files_in};
use crate::wire::local_pages::{PreviewBoard, RenderedSheet as SheetSummary};

const PAGE: &str = include_str!("preview_server/page.html");
const SCRIPT: &str = include_str!("preview_server/page.js");
const STYLE: &str = include_str!("preview_server/page.css");

/// The last result.
#[derive(Default)]
struct BuiltPreview {
    sheets: Vec<PreviewSheet>,
    board: PreviewBoard,
}

struct PreviewServer {
    preview: Previewer,
    addr: SocketAddr,
    built: Mutex<BuiltPreview>,
}

impl PreviewServer {
    /// Returns all sheets. Rebuilds them if a template was saved since. If that fails, the last
    /// sheets remain.
    async fn build(&self) -> MutexGuard<'_, BuiltPreview> {
        let mut built = self.built.lock().await;
        let version = version(self.preview.config.mail.templates.as_deref());
        if built.board.version == version {
            return built;
        }
        let pictures = format!("http://{}/pictures", self.addr);
        let (notes, trouble) = match self.preview.sheets(Some(&pictures)).await {
            Ok((sheets, notes)) => {
                built.sheets = sheets;
                (notes, None)
            }
            Err(error) => (built.board.notes.clone(), Some(format!("{error:#}"))),
        };
        let summary = |(n, sheet): (usize, &PreviewSheet)| SheetSummary {
            kind: sheet.kind.as_str(),
            name: sheet.name.clone(),
            subject: sheet.subject.clone(),
            text: sheet.text.clone(),
            html: format!("sheets/{n}?{version:x}"),
            bytes: sheet.html.len(),
        };
        built.board = PreviewBoard {
            version,
            sheets: built.sheets.iter().enumerate().map(summary).collect(),
            rebuild_error: trouble,
            notes,
        };
        built
    }
}

/// Returns a version that changes if a file in the folder is saved, created or removed; never 0.
fn version(folder: Option<&Path>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in folder.map(files_in).into_iter().flatten() {
        let metadata = std::fs::metadata(&file).ok();
        let version = metadata.map(|metadata| (metadata.len(), metadata.modified().ok()));
        (file, version).hash(&mut hasher);
    }
    // JavaScript represents integers exactly up to 53 bits only.
    (hasher.finish() >> 12).max(1)
}

impl ListeningSocket {
    /// Serves the preview until `stop` becomes true. Fails unless the address is loopback.
    pub async fn serve_preview(
        self,
        preview: Previewer,
        stop: watch::Receiver<bool>,
    ) -> anyhow::Result<()> {
        let Self { addr, listener } = self.require_loopback()?;
        let preview = Data::new(PreviewServer { preview, addr, built: Mutex::default() });
        let file = |kind: &'static str, text: &'static str| {
            web::get().to(move || async move { local_response(kind, &page_policy(""), text) })
        };
        let server = HttpServer::new(move || {
            actix_web::App::new()
                .app_data(preview.clone())
                .wrap(from_fn(require_local_host))
                .route("/", file("text/html; charset=utf-8", PAGE))
                .route("/page.js", file("text/javascript; charset=utf-8", SCRIPT))
                .route("/page.css", file("text/css; charset=utf-8", STYLE))
                .route("/board", web::get().to(board))
                .route("/sheets/{n}", web::get().to(sheet))
                .route("/pictures/{name}", web::get().to(drawing))
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

async fn board(preview: Data<PreviewServer>) -> HttpResponse {
    uncached().json(&preview.build().await.board)
}

async fn sheet(preview: Data<PreviewServer>, n: web::Path<usize>) -> HttpResponse {
    match preview.build().await.sheets.get(*n) {
        Some(sheet) => local_response("text/html; charset=utf-8", EMAIL_POLICY, &*sheet.html),
        None => HttpResponse::NotFound().finish(),
    }
}

async fn drawing(name: web::Path<String>) -> HttpResponse {
    let name = name.trim_end_matches(".svg");
    local_response("image/svg+xml", FILE_POLICY, picture(name))
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
