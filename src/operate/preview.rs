//! Previews emails and pages, with invented content ([`invented`]) or a user's real content
//! ([`real`]).
//!
//! Nothing is written or sent. Templates are read again for every preview, so it shows the latest
//! saved version. Links that stop emails lead nowhere, as in a dry run. Start with
//! [`Preview::sheets`].

use chrono::{DateTime, TimeDelta, Utc};

use crate::config::Config;
use crate::domain::mute::Title;
use crate::domain::{FollowKey, Stop, Subject, User};
use crate::email::Place;
pub use crate::render::Catalogs;
use crate::render::pages::{Notice, Others, Stopping, Tokens};
use crate::render::{self, Links, Page, Pages, Renderer, Site};

mod draft;
mod invented;
mod real;
mod trouble;

pub use draft::{Draft, Kind};
pub use real::OfPerson;
pub(crate) use trouble::trouble;

/// The user whose pages are shown.
#[derive(Debug, Clone)]
pub struct Reader {
    /// The user's record.
    pub user: User,
}

/// A rendered email or page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sheet {
    /// The kind of the preview.
    pub kind: Kind,
    /// A short description, unique within the kind.
    pub name: String,
    /// The subject of an email.
    pub subject: Option<String>,
    /// The HTML of the page or email.
    pub html: String,
    /// The text part of an email.
    pub text: Option<String>,
}

/// Renders emails and pages with the configuration and the templates.
#[derive(Debug, Clone)]
pub struct Preview {
    /// The configuration, as it applies to one brand.
    pub config: Config,
}

impl Preview {
    /// Returns emails with invented content, of the configured types. `pictures` is the base URL of
    /// pictures; without it there are none.
    pub fn invented(&self, pictures: Option<&str>, now: DateTime<Utc>) -> Vec<Draft> {
        invented::drafts(
            &self.config.policies,
            self.config.digest.caps,
            pictures,
            now,
        )
    }

    /// Returns an invented reader.
    pub fn nobody(&self) -> Reader {
        Reader {
            user: invented::reader(),
        }
    }

    /// Renders these emails and the pages of this reader with the latest templates. `locale`
    /// replaces each user's own.
    pub fn sheets(
        &self,
        drafts: &[Draft],
        reader: Option<&Reader>,
        locale: Option<&str>,
        now: DateTime<Utc>,
    ) -> Result<Vec<Sheet>, render::Error> {
        let (site, templates) = (Site::from(&self.config), &self.config.mail.templates);
        let renderer = Renderer::new(site.clone(), templates.clone())?;
        let asks = |user: &User| User {
            locale: locale.map(str::to_owned).or_else(|| user.locale.clone()),
            ..user.clone()
        };
        let mails = drafts.iter().map(|draft| {
            let user = asks(&draft.user);
            self.mail(
                &renderer,
                &Draft {
                    user,
                    ..draft.clone()
                },
                now,
            )
        });
        let mut sheets = mails.collect::<Result<Vec<_>, _>>()?;
        if let Some(reader) = reader {
            let pages = Pages::new(&site, templates.clone())?;
            let user = asks(&reader.user);
            sheets.extend(self.pages(&pages, &Reader { user }, now)?);
        }
        Ok(sheets)
    }

    /// Loads the messages of all locales, in their latest version.
    pub fn catalogs(&self) -> Result<Catalogs, render::Error> {
        Catalogs::load(self.config.mail.templates.as_deref())
    }

    fn mail(
        &self,
        renderer: &Renderer,
        draft: &Draft,
        now: DateTime<Utc>,
    ) -> Result<Sheet, render::Error> {
        let place = |place: Place| Some(place.nowhere().to_owned());
        let stop = Stop::of_mail(&draft.content, &draft.occasion, &self.config.policies);
        let mute = Stop::of_subject(&draft.content, &draft.occasion, &self.config.policies);
        let rendered = renderer.render(&render::Mail {
            user: &draft.user,
            content: &draft.content,
            occasion: &draft.occasion,
            at: now,
            tz: draft.user.schedule(&self.config.digest.schedule).tz,
            links: Links {
                preferences: place(Place::Preferences),
                mute: mute.and_then(|_| place(Place::Mute)),
                unsubscribe: stop.as_ref().and_then(|_| place(Place::Unsubscribe)),
            },
            stop: stop.as_ref(),
        })?;
        Ok(Sheet {
            kind: draft.kind(),
            name: draft.name.clone(),
            subject: Some(rendered.subject),
            html: rendered.html,
            text: Some(rendered.text),
        })
    }

    fn pages(
        &self,
        made: &Pages,
        reader: &Reader,
        now: DateTime<Utc>,
    ) -> Result<Vec<Sheet>, render::Error> {
        let (user, policies) = (&reader.user, &self.config.policies);
        let locale = user.locale.as_deref();
        let tokens = &Tokens {
            own: "preview".to_owned(),
            digest: "preview-digest".to_owned(),
            all: "preview-all".to_owned(),
        };
        let preferences = Page::Preferences {
            user,
            token: &tokens.all,
            default: &self.config.digest.schedule,
            policies,
            saved: false,
            next: Some(now + TimeDelta::days(3)),
        };
        let alone = policies
            .kinds()
            .find(|kind| user.is_mailed_alone(kind, policies));
        let types = Stop::of_types(alone);
        let thread = Stop::Subject(Subject::stored("preview"), Title::cut("Budget"));
        let mut stops = vec![("the digest", &Stop::Digest), ("all e-mail", &Stop::All)];
        if alone.is_some() {
            stops.insert(0, ("a type", &types));
            stops.insert(1, ("a thread", &thread));
        }
        let follow = Stop::Follow(FollowKey::stored("artist:7"));
        stops.push(("a follow", &follow));
        let mut named = vec![("preferences".to_owned(), made.render(&preferences, locale)?)];
        for (what, stop) in stops {
            let mut stopped = user.clone();
            stopped.stop(stop, policies, now);
            let stopping = |user| Stopping {
                user,
                stop,
                tokens,
                default: &self.config.digest.schedule,
                policies,
                name: matches!(stop, Stop::Follow(_)).then_some(invented::FOLLOWED),
                again: false,
            };
            let ask = Page::Stop(stopping(user));
            named.push((format!("stop {what}"), made.render(&ask, locale)?));
            let done = Page::Stopped {
                stopping: stopping(&stopped),
                before: Some(user),
                others: Others::Silent,
            };
            named.push((format!("stopped {what}"), made.render(&done, locale)?));
        }
        let notice = made.render(&Page::Notice(Notice::Expired), locale)?;
        named.push(("notice".to_owned(), notice));
        let sheet = |(name, html)| Sheet {
            kind: Kind::Page,
            name,
            subject: None,
            html,
            text: None,
        };
        Ok(named.into_iter().map(sheet).collect())
    }
}

#[cfg(test)]
#[path = "preview/tests.rs"]
mod tests;
