//! `tidings preview`: shows emails and pages as the templates render them.

use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args as Arguments;

use super::session::{Access, App, Exit, Refusal, Session, TemplateUse};
use super::stop::stop_on_signal;
use crate::clock::SystemClock;
use crate::domain::{BrandName, UserId};
use crate::http::api;
use crate::operate::preview::{PreviewKind, Previewer};

/// Show emails and pages in the browser
///
/// Serves a page on this machine that shows digest emails, batch emails, and the pages they link
/// to. It shows them at phone and desktop width, light and dark. It reloads when you save a
/// template (mail.templates), and shows template errors in place. Without --user, it shows invented
/// events of the configured types. Nothing is sent or changed.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// Show only digest emails, only batch emails, or only pages
    #[arg(value_parser = ["digest", "batch", "page"])]
    kind: Option<String>,
    #[command(flatten)]
    subject: Subject,
    /// Address to listen on, on this machine only; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8026")]
    listen: SocketAddr,
}

#[derive(Debug, Arguments)]
pub(super) struct Subject {
    /// Use what this user would get now, instead of invented events
    #[arg(long, value_name = "USER")]
    user: Option<UserId>,
    /// Brand to use, with its provider [default: the user's brand, or the default one]
    #[arg(long, value_name = "BRAND")]
    brand: Option<BrandName>,
    /// Locale to use instead of the user's, such as de or pt-BR
    #[arg(long, value_name = "LOCALE")]
    locale: Option<String>,
}

/// Returns the kind with this name, or all.
pub(super) fn kinds(name: Option<&str>) -> Vec<PreviewKind> {
    let is_wanted = |kind: &PreviewKind| name.is_none_or(|name| name == kind.as_str());
    PreviewKind::ALL.into_iter().filter(is_wanted).collect()
}

impl Subject {
    /// Prepares a preview with this configuration. Only a user's own emails need the store. Broken
    /// templates do not prevent it.
    pub(super) async fn preview(
        &self,
        session: &Session<'_>,
        kinds: Vec<PreviewKind>,
    ) -> anyhow::Result<Previewer> {
        let config = session.load()?;
        let (mut brand, mut person) = (self.brand.clone(), None);
        if let Some(user) = &self.user {
            let app = App::open(config.clone(), Access::Read, TemplateUse::BuiltIn).await?;
            let pending_emails = app.user_emails();
            let Some(record) = pending_emails.reader(user).await? else {
                let what = format!("there is no record of {user:?}");
                return Err(Refusal::new(what, "omitting --user").into());
            };
            brand = brand.or(record.brand);
            person = Some((pending_emails, user.clone()));
        } else {
            session.refuse_store("invented events are in no store; --user shows a user's own")?;
        }
        let preview = Previewer {
            config: config.for_brand(brand.as_ref())?,
            brand,
            recipient: person,
            kinds,
            locale: self.locale.clone(),
            clock: Arc::new(SystemClock),
        };
        if let (Some(locale), Ok(catalogs)) = (&self.locale, preview.catalogs())
            && catalogs.nearest_locale(locale).is_none()
        {
            let locales: Vec<&str> = catalogs.locales().collect();
            let what = format!("there is no catalog for the locale {locale:?}");
            return Err(Refusal::new(what, format!("one of {}", locales.join(", "))).into());
        }
        Ok(preview)
    }
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let kinds = kinds(self.kind.as_deref());
        let listen = self.listen;
        if !listen.ip().is_loopback() {
            let what = format!("--listen {listen}: a preview is only for this machine");
            let next = format!("--listen 127.0.0.1:{}", listen.port());
            return Err(Refusal::new(what, next).into());
        }
        let preview = self.subject.preview(session, kinds).await?;
        let screen = &mut *session.screen;
        let listening = api::listen(listen)?;
        let addr = listening.addr;
        screen.line(format!("http://{addr} shows emails and pages; Ctrl-C ends it"))?;
        let templates = match &preview.config.mail.templates {
            Some(folder) => format!("{}, read again when one is saved", folder.display()),
            None => "the built-in ones; mail.templates names a folder of your own".to_owned(),
        };
        screen.line(format!("  templates  {templates}"))?;
        listening.serve_preview(preview, stop_on_signal()?).await?;
        Ok(Exit::Done)
    }
}
