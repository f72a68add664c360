//! Mails and pages to be looked at before anybody gets them: of invented things, or of what
//! somebody would get now.
//!
//! The rule: nothing is written, and nothing leaves. The templates are read anew each time, so that
//! what is shown is what was saved last. Links to stop mails lead nowhere, as in a dry run. What
//! is told of invented things goes the way that real mails go ([`invented`]); what somebody would
//! get is found as digests and batches find it ([`real`]).

use std::path::PathBuf;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use crate::domain::content::Caps;
use crate::domain::mute::Title;
use crate::domain::{FollowKey, Policies, Schedule, Stop, Subject, User};
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

/// Whose pages are shown.
#[derive(Debug, Clone)]
pub struct Reader {
    /// Their record.
    pub user: User,
}

/// What is looked at: a mail, or a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sheet {
    /// Of which kind it is.
    pub kind: Kind,
    /// What it shows, in a few words; sheets of a kind differ in it.
    pub name: String,
    /// Of a mail.
    pub subject: Option<String>,
    /// The HTML of it.
    pub html: String,
    /// The text part of a mail.
    pub text: Option<String>,
}

/// Makes mails and pages as the configuration and the templates say.
#[derive(Debug, Clone)]
pub struct Preview {
    /// Who writes, and how it looks.
    pub site: Site,
    /// The folder of templates that take the place of the built-in ones.
    pub templates: Option<PathBuf>,
    /// What types there are.
    pub policies: Arc<Policies>,
    /// How many items a section and a digest show.
    pub caps: Caps,
    /// What holds for people who did not choose cadence, weekday, hour or time zone.
    pub schedule: Schedule,
}

impl Preview {
    /// Mails of invented things, of the types that are configured. Pictures are looked for below
    /// this address; without one there are none.
    pub fn invented(&self, pictures: Option<&str>, now: DateTime<Utc>) -> Vec<Draft> {
        invented::drafts(&self.policies, self.caps, pictures, now)
    }

    /// Somebody who does not exist.
    pub fn nobody(&self) -> Reader {
        Reader {
            user: invented::reader(),
        }
    }

    /// These mails, and the pages of this person, by the templates as they were saved last; in this
    /// locale, or each person's own.
    pub fn sheets(
        &self,
        drafts: &[Draft],
        reader: Option<&Reader>,
        locale: Option<&str>,
        now: DateTime<Utc>,
    ) -> Result<Vec<Sheet>, render::Error> {
        let renderer = Renderer::new(self.site.clone(), self.templates.clone())?;
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
            let pages = Pages::new(&self.site, self.templates.clone())?;
            let user = asks(&reader.user);
            sheets.extend(self.pages(&pages, &Reader { user }, now)?);
        }
        Ok(sheets)
    }

    /// The words of all locales there are, as they were saved last.
    pub fn catalogs(&self) -> Result<Catalogs, render::Error> {
        Catalogs::load(self.templates.as_deref())
    }

    fn mail(
        &self,
        renderer: &Renderer,
        draft: &Draft,
        now: DateTime<Utc>,
    ) -> Result<Sheet, render::Error> {
        let place = |place: Place| Some(place.nowhere().to_owned());
        let stop = Stop::of_mail(&draft.content, &draft.occasion, &self.policies);
        let mute = Stop::of_subject(&draft.content, &draft.occasion, &self.policies);
        let rendered = renderer.render(&render::Mail {
            user: &draft.user,
            content: &draft.content,
            occasion: &draft.occasion,
            at: now,
            tz: draft.user.schedule(&self.schedule).tz,
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
        let (user, policies) = (&reader.user, &*self.policies);
        let locale = user.locale.as_deref();
        let tokens = &Tokens {
            own: "preview".to_owned(),
            digest: "preview-digest".to_owned(),
            all: "preview-all".to_owned(),
        };
        let preferences = Page::Preferences {
            user,
            token: &tokens.all,
            default: &self.schedule,
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
                default: &self.schedule,
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
