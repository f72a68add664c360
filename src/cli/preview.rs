//! `tidings preview`: emails and pages as the templates render them; and `tidings send-test`, which
//! sends one of these emails to the operator's own address.

use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args as Arguments;

use super::session::{Access, App, Exit, Refusal, Session, TemplateUse, stop_on_signal};
use crate::clock::SystemClock;
use crate::config::Transport;
use crate::domain::{Address, BrandName, UserId};
use crate::email::Outcome;
use crate::http::api;
use crate::operate::preview::{PreviewKind, Previewer, send_test};

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
struct Subject {
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

/// Returns the kinds of this name, or all.
fn kinds(name: Option<&str>) -> Vec<PreviewKind> {
    let mut kinds = PreviewKind::ALL.to_vec();
    kinds.retain(|kind| name.is_none_or(|name| name == kind.as_str()));
    kinds
}

impl Subject {
    /// Prepares a preview with this configuration. Only a user's own emails need the store. Broken
    /// templates do not prevent it.
    async fn preview(
        &self,
        session: &Session<'_>,
        kinds: Vec<PreviewKind>,
    ) -> anyhow::Result<Previewer> {
        let (config, locale) = (session.load()?, &self.locale);
        let (mut brand, mut person) = (self.brand.clone(), None);
        if let Some(user) = &self.user {
            let app = App::open(config.clone(), Access::Read, TemplateUse::BuiltIn).await?;
            let of = app.of_person();
            let Some(reader) = of.reader(user).await? else {
                let why = format!("there is no record of {user:?}");
                return Err(Refusal::new(why, "leaving --user out").into());
            };
            brand = brand.or(reader.brand);
            person = Some((of, user.clone()));
        } else {
            session.refuse_store("invented things are in no store; --user shows a user's own")?;
        }
        let preview = Previewer {
            config: config.of(brand.as_ref())?,
            brand,
            person,
            kinds,
            locale: locale.clone(),
            clock: Arc::new(SystemClock),
        };
        if let (Some(locale), Ok(catalogs)) = (locale, preview.catalogs())
            && catalogs.nearest(locale).is_none()
        {
            let tags: Vec<&str> = catalogs.tags().collect();
            let why = format!("there is no catalog for the locale {locale:?}");
            return Err(Refusal::new(why, format!("one of {}", tags.join(", "))).into());
        }
        Ok(preview)
    }
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let kinds = kinds(self.kind.as_deref());
        if !self.listen.ip().is_loopback() {
            let at = self.listen;
            let what = format!("--listen {at}: a preview is for this machine alone");
            let next = format!("--listen 127.0.0.1:{}", at.port());
            return Err(Refusal::new(what, next).into());
        }
        let preview = self.subject.preview(session, kinds).await?;
        let screen = &mut *session.screen;
        let listening = api::listen(self.listen)?;
        let at = listening.addr;
        screen.line(format!("http://{at} shows emails and pages; Ctrl-C ends it"))?;
        let templates = match &preview.config.mail.templates {
            Some(folder) => format!("{}, looked at again when one is saved", folder.display()),
            None => "the built-in ones; mail.templates names a folder of your own".to_owned(),
        };
        screen.line(format!("  templates  {templates}"))?;
        listening.show(preview, stop_on_signal()?).await?;
        Ok(Exit::Done)
    }
}

/// Send a test email to your own address
///
/// The configured provider sends it, and its subject says that it is a test. It appears in no feed
/// and not among the deliveries, and its unsubscribe links do not work. Suppressed addresses get no
/// test email.
#[derive(Debug, Arguments)]
pub(super) struct SendTestArgs {
    /// Recipient address
    address: Address,
    /// Email to send: a digest or a batch
    #[arg(value_parser = ["digest", "batch"], default_value = "digest")]
    kind: String,
    #[command(flatten)]
    subject: Subject,
}

impl SendTestArgs {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let kinds = kinds(Some(&self.kind));
        let preview = self.subject.preview(session, kinds).await?;
        let (sheets, notes) = preview.sheets(None).await?;
        let several = sheets.iter().find(|sheet| sheet.name.ends_with("several"));
        let Some(sheet) = several.or(sheets.first()) else {
            return Err(Refusal::new(notes.join("; "), "leaving --user out").into());
        };
        // The configuration of the brand: an email for a user is sent by that brand's provider.
        let (config, to) = (&preview.config, self.address.clone());
        let outcome = send_test(config, preview.brand.as_ref(), to, sheet).await?;
        let to = &self.address;
        let screen = &mut *session.screen;
        let (what, reason) = match outcome {
            Outcome::Accepted(provider_id) => {
                screen.line(match config.mail.transport {
                    Transport::Outbox => format!("the outbox accepted the email: {provider_id}"),
                    _ => format!("the provider accepted the email for {to} as {provider_id}"),
                })?;
                return Ok(Exit::Done);
            }
            Outcome::Unknown(reason) => {
                let what = "it is unknown whether it was accepted";
                screen.warning(format!("{what}: {reason}; look whether it arrives"))?;
                return Ok(Exit::Partly);
            }
            Outcome::TryLater(reason, _) | Outcome::Deferred(reason) => {
                ("it was not taken now, and may be later", reason)
            }
            Outcome::Unreachable(reason) => ("the provider could not be reached", reason),
            Outcome::Refused(reason)
            | Outcome::Unsendable(reason)
            | Outcome::RefusedTogether(reason)
            | Outcome::Undeliverable(reason)
            | Outcome::Withheld(reason)
            | Outcome::Stop(reason) => ("it was refused", reason),
        };
        screen.warning(format!("{what}: {reason}"))?;
        Ok(Exit::Failed)
    }
}
