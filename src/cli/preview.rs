//! `tidings preview`: emails and pages as the templates render them. Sends nothing.

use std::collections::HashSet;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::Context;
use clap::{Args as Arguments, ValueEnum};

use super::exit::{Exit, Usage};
use super::global::Global;
use super::ink::Ink;
use super::screen::Screen;
use super::{stop, words};
use crate::app::{Access, App, TemplateUse};
use crate::clock::SystemClock;
use crate::domain::{BrandName, UserId};
use crate::http::api::{self, Of, Showing};
use crate::operate::preview::{Kind, Preview, Sheet};
use crate::private;
use crate::render::Catalogs;
use crate::wire::explanation::LocaleView;

/// Preview emails and pages
///
/// Serves a page on this machine that shows digest emails, batch emails, and the pages they link
/// to. It shows them at phone and desktop width, light and dark. It reloads when you save a
/// template (mail.templates), and shows template errors in place. Without --user, it shows invented
/// events of the configured types. Nothing is sent or changed.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// Show only digest emails, only batch emails, or only pages
    #[arg(value_enum)]
    kind: Option<What>,
    /// Show what this user would get now, and their pages
    #[arg(long, value_name = "USER")]
    user: Option<UserId>,
    /// Brand to use [default: the user's brand, or the default one]
    #[arg(long, value_name = "BRAND")]
    brand: Option<BrandName>,
    /// Locale to use instead of the user's, such as de or pt-BR
    #[arg(long, value_name = "LOCALE")]
    locale: Option<String>,
    /// Write the files to this folder and exit, replacing earlier files of the same names
    #[arg(long, value_name = "DIR", conflicts_with_all = ["listen", "open"])]
    out: Option<PathBuf>,
    /// Address to listen on, on this machine only; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8026")]
    listen: SocketAddr,
    /// Open the page in a browser
    #[arg(long)]
    open: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum What {
    Digest,
    Batch,
    Page,
}

impl From<What> for Kind {
    fn from(what: What) -> Self {
        match what {
            What::Digest => Self::Digest,
            What::Batch => Self::Batch,
            What::Page => Self::Page,
        }
    }
}

/// Collects what to show for this configuration. Only a user's own emails need the store. Broken
/// templates do not prevent opening it.
pub(super) async fn showing(
    global: &Global,
    user: Option<&UserId>,
    kinds: Vec<Kind>,
    locale: Option<&str>,
    brand: Option<&BrandName>,
) -> anyhow::Result<Showing> {
    let config = global.load(Vec::new())?;
    let mut spoken = None;
    let mut preview = Preview {
        config: config.of(brand)?,
    };
    if let (Some(locale), Ok(catalogs)) = (locale, preview.catalogs()) {
        there(locale, &catalogs)?;
    }
    let of = match user {
        None => {
            global.refuse_store("invented things are in no store; --user shows somebody's own")?;
            Of::Nobody
        }
        Some(user) => {
            let app = App::open(config, Access::Read, TemplateUse::BuiltIn).await?;
            let mut of = app.of_person();
            let Some(reader) = of.reader(user).await? else {
                let why = format!("there is no record of {user:?}");
                return Err(Usage::new(why).instead("leaving --user out").into());
            };
            of.brand = brand.or(reader.brand.as_ref()).cloned();
            if brand.is_none() {
                preview = Preview {
                    config: app.config.of(reader.brand.as_ref())?,
                };
            }
            if let (None, Ok(catalogs)) = (locale, preview.catalogs()) {
                let asked = reader.locale.as_deref();
                spoken = Some(LocaleView::of(asked, catalogs.spoken(asked)));
            }
            Of::Somebody(Box::new(of), user.clone())
        }
    };
    Ok(Showing {
        preview,
        of,
        kinds,
        locale: locale.map(str::to_owned),
        spoken: spoken.map(|spoken| spoken.to_string()),
        clock: Arc::new(SystemClock),
    })
}

/// Returns an error if no catalog fits this locale.
fn there(locale: &str, catalogs: &Catalogs) -> Result<(), Usage> {
    if catalogs.nearest(locale).is_some() {
        return Ok(());
    }
    let tags: Vec<&str> = catalogs.tags().collect();
    let why = format!("there is no catalog for the locale {locale:?}");
    Err(Usage::new(why).instead(format!("one of {}", tags.join(", "))))
}

impl Args {
    pub(super) async fn run(&self, global: &Global, screen: &mut Screen) -> anyhow::Result<Exit> {
        let kinds = self
            .kind
            .map_or(Kind::ALL.to_vec(), |kind| vec![kind.into()]);
        if self.out.is_none() && !self.listen.ip().is_loopback() {
            let what = format!(
                "--listen {}: a preview is for this machine alone",
                self.listen
            );
            let next = format!("--listen 127.0.0.1:{}", self.listen.port());
            return Err(Usage::new(what).instead(next).into());
        }
        let (locale, brand) = (self.locale.as_deref(), self.brand.as_ref());
        let showing = showing(global, self.user.as_ref(), kinds, locale, brand).await?;
        match &self.out {
            Some(folder) => write(folder, &showing, screen).await,
            None => self.serve(showing, screen).await,
        }
    }

    async fn serve(&self, showing: Showing, screen: &mut Screen) -> anyhow::Result<Exit> {
        let listening = api::listen(self.listen)?;
        let url = format!("http://{}", listening.addr);
        let shown = screen.ink(Ink::Strong, &url);
        screen.line(format!("{shown} shows mails and pages; Ctrl-C ends it"))?;
        match &showing.preview.config.mail.templates {
            Some(folder) => screen.line(format!(
                "  templates  {}, looked at again when one is saved",
                folder.display()
            ))?,
            None => screen.line(
                "  templates  the built-in ones; mail.templates names a folder of your own",
            )?,
        }
        if let Some(spoken) = &showing.spoken {
            screen.line(format!("  locale     {spoken}"))?;
        }
        if self.open
            && let Err(error) = open(&url)
        {
            screen.warning(format!("no browser could be opened: {error}"))?;
        }
        listening.show(showing, stop::on_signal()?).await?;
        Ok(Exit::Done)
    }
}

/// Opens a page in the default browser.
fn open(url: &str) -> std::io::Result<()> {
    let (program, first): (&str, &[&str]) = if cfg!(target_os = "macos") {
        ("open", &[])
    } else if cfg!(windows) {
        ("cmd", &["/C", "start", ""])
    } else {
        ("xdg-open", &[])
    };
    let mut browser = Command::new(program);
    browser.args(first).arg(url);
    browser
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    browser.spawn().map(drop)
}

async fn write(folder: &Path, showing: &Showing, screen: &mut Screen) -> anyhow::Result<Exit> {
    let (sheets, notes) = showing.sheets(None, showing.locale.as_deref()).await?;
    for note in &notes {
        screen.warning(note)?;
    }
    private::folder(folder).with_context(|| format!("making the folder {}", folder.display()))?;
    let (mut written, mut taken) = (0, HashSet::new());
    for sheet in &sheets {
        let name = free(file(sheet), &mut taken);
        for (ending, text) in parts(sheet) {
            let path = folder.join(format!("{name}.{ending}"));
            let mut file = private::create(&path);
            let done = file
                .as_mut()
                .map_err(|error| std::io::Error::from(error.kind()));
            done.and_then(|file| file.write_all(text.as_bytes()))
                .with_context(|| format!("writing {}", path.display()))?;
            written += 1;
        }
    }
    let files = words::count(written, "file", "files");
    let spoken = showing.spoken.as_ref();
    let spoken = spoken.map_or(String::new(), |spoken| format!("; locale {spoken}"));
    screen.line(format!("wrote {files} into {}{spoken}", folder.display()))?;
    Ok(match sheets.is_empty() {
        true => Exit::Failed,
        false => Exit::Done,
    })
}

/// Returns the files of a sheet by extension: its HTML, and for an email its subject and text.
fn parts(sheet: &Sheet) -> Vec<(&'static str, String)> {
    let mut parts = vec![("html", sheet.html.clone())];
    if let (Some(subject), Some(text)) = (&sheet.subject, &sheet.text) {
        parts.push(("txt", format!("Subject: {subject}\n\n{text}")));
    }
    parts
}

/// The maximum length of a file name in characters, without number and extension.
const LONGEST: usize = 60;

/// Returns this name, with a number if it is taken.
fn free(name: String, taken: &mut HashSet<String>) -> String {
    let others = (2..).map(|n| format!("{name}-{n}"));
    let mut names = std::iter::once(name.clone()).chain(others);
    let free = names.find(|name| !taken.contains(name)).unwrap_or(name);
    taken.insert(free.clone());
    free
}

/// Returns the file name of a sheet without extension, such as `batch-comment-one-event`.
fn file(sheet: &Sheet) -> String {
    let name = format!("{} {}", sheet.kind.as_str(), sheet.name).to_lowercase();
    let words = name.split(|c: char| !c.is_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join("-").chars().take(LONGEST).collect()
}
