//! Renders the public pages that users reach from emails.
//!
//! Pages show only a masked address, work without scripts, and load no external resource. Templates
//! receive text that is ready to show; only HTML escaping is left to them. [`crate::http::pages`]
//! handles the requests.

use std::path::PathBuf;

use chrono::{DateTime, TimeDelta, Weekday};
use minijinja::{Value, context};

use super::catalogs::Catalogs;
use super::files::{Error, PAGES};
use super::site::Site;
use super::templates::Templates;
use super::voice::{Filled, Medium, Voice};
use crate::domain::preferences::Title;
use crate::domain::{
    Cadence, EventType, FollowKey, Mandate, Policies, Policy, Schedule, Stop, Subject, User, UserId,
};

mod view;

pub use super::mail::UNFOLLOW;
pub use view::{Choices, Stopping, TYPE_FIELD, Tokens, UNMUTE_FIELD};

/// A page and its data. Links are relative, so that the pages work below any path.
pub enum Page<'a> {
    /// Asks for confirmation of a link's effect, or confirms it. Its path ends in the token.
    Stop(Stopping<'a>),
    /// All choices. Its path is one level below the token.
    Preferences(Choices<'a>),
    /// A message.
    Notice(Notice),
}

/// Compiled page templates. Configured ones have rendered the samples without an error.
pub struct Pages {
    templates: Templates,
}

impl Pages {
    /// Compiles the templates. Files in `overrides`, such as `pages/layout.html`, replace the
    /// built-in templates. If there are any, renders samples; tests do it for the built-in ones.
    ///
    /// # Errors
    ///
    /// Fails if a template or catalog cannot be read, does not compile, or cannot render a sample.
    pub fn new(site: &Site, overrides: Option<PathBuf>) -> Result<Self, Error> {
        let catalogs = Catalogs::load(overrides.as_deref())?;
        let pages = Self {
            templates: Templates::load(&PAGES, overrides.as_deref(), site, catalogs)?,
        };
        if overrides.is_some() {
            pages.try_out()?;
        }
        Ok(pages)
    }

    /// Returns the message catalogs of all locales.
    pub fn catalogs(&self) -> &Catalogs {
        self.templates.catalogs()
    }

    /// Renders the page as HTML, in the nearest locale that has a catalog.
    ///
    /// # Errors
    ///
    /// Fails if a template fails with this page, although it rendered the samples.
    pub fn render(&self, page: &Page<'_>, locale: Option<&str>) -> Result<String, Error> {
        let voice = self.catalogs().voice(locale);
        let (template, view) = match page {
            Page::Stop(stopping) => {
                let template = match (stopping.stop, stopping.ended) {
                    (Stop::All, false) => "pages/unsubscribe.html",
                    (Stop::All, true) => "pages/unsubscribed.html",
                    (Stop::Subject(..), false) => "pages/mute.html",
                    (Stop::Subject(..), true) => "pages/muted.html",
                    (_, false) => "pages/stop.html",
                    (_, true) => "pages/stopped.html",
                };
                (template, view::stop(stopping, voice))
            }
            Page::Preferences(choices) => {
                ("pages/preferences.html", view::preferences(choices, voice))
            }
            Page::Notice(notice) => ("pages/notice.html", notice.view(voice)),
        };
        self.templates.render(template, voice, view)
    }

    fn try_out(&self) -> Result<(), Error> {
        let token = "sample";
        let (subject, title) = (Subject::stored(token), Title::cut("Sample"));
        let mut sample = User::new(UserId::stored(token));
        let (epoch, hour) = (DateTime::UNIX_EPOCH, TimeDelta::hours(1));
        let mutes = &mut sample.mutes;
        mutes.mute(subject.clone(), None, title.clone(), epoch);
        mutes.mute(Subject::stored("other"), Some(epoch + hour), None, epoch);
        let [own, digest, all] = ["sample-2", "sample-3", token].map(str::to_owned);
        let tokens = &Tokens { own, digest, all };
        let default = &Schedule {
            cadence: Cadence::Weekly,
            weekday: Weekday::Mon,
            hour: 9,
            tz: chrono_tz::UTC,
        };
        let unsubscribed = User {
            unsubscribed: Some(DateTime::UNIX_EPOCH),
            ..sample.clone()
        };
        for notice in [Notice::Expired, Notice::QuietHours] {
            self.render(&Page::Notice(notice), None)?;
        }
        let mandatory = Policy {
            category: "Sample".parse().ok(),
            mandatory: Some(Mandate::default()),
            ..Policy::default()
        };
        let policies = &Policies::new([
            (EventType::stored("Sample"), Policy::default()),
            (EventType::stored("Mandatory"), mandatory),
        ]);
        for user in [&sample, &unsubscribed] {
            let types = Stop::of_types([&EventType::stored("Sample")]);
            let follow = Stop::Follow(FollowKey::stored("sample:1"));
            let muting = Stop::Subject(subject.clone(), title.clone());
            for stop in [
                &Stop::All,
                &Stop::Digest,
                &Stop::Alone,
                &types,
                &follow,
                &muting,
            ] {
                for (ended, before) in [(false, None), (true, None), (true, Some(&sample))] {
                    let stopping = Stopping {
                        user,
                        stop,
                        ended,
                        before,
                        tokens,
                        default,
                        policies,
                        name: Some("Sample"),
                    };
                    self.render(&Page::Stop(stopping), None)?;
                }
            }
            for saved in [false, true] {
                let choices = Choices {
                    user,
                    token,
                    default,
                    policies,
                    saved,
                    next: Some(DateTime::UNIX_EPOCH),
                };
                self.render(&Page::Preferences(choices), None)?;
            }
        }
        Ok(())
    }
}

/// The message of a page: why a request had no effect, and what to do. Each has a message in the
/// catalogs. Details of errors that only programs cause are in English.
#[derive(Debug, Clone)]
pub enum Notice {
    /// A link is incomplete or has an invalid signature.
    Forged,
    /// A link has expired.
    Expired,
    /// The user of a link has no record.
    Gone,
    /// The user does not follow the key that the link would end.
    NotFollowed,
    /// The link is for a type that has become mandatory.
    Mandatory(EventType, Mandate),
    /// The request body cannot be read; the cause, as a sentence.
    Form(String),
    /// A choice is invalid; the value and the cause.
    Choice(String),
    /// The form of the preferences page has only one of the two times of the quiet hours.
    QuietHours,
    /// An internal error.
    Inside,
}

impl Notice {
    fn view(&self, voice: &Voice) -> Value {
        let reason;
        let (id, filled) = match self {
            Self::Forged => ("notice-forged", None),
            Self::Expired => ("notice-expired", None),
            Self::Gone => ("notice-gone", None),
            Self::NotFollowed => ("notice-not-followed", None),
            Self::Mandatory(kind, mandate) => {
                reason = voice.reason(kind, mandate);
                let reason = reason.trim_end_matches('.');
                ("notice-mandatory", Some(("reason", reason)))
            }
            Self::Form(why) => ("notice-form", Some(("why", why.as_str()))),
            Self::Choice(why) => ("notice-choice", Some(("why", why.as_str()))),
            Self::QuietHours => ("notice-quiet", None),
            Self::Inside => ("notice-inside", None),
        };
        let filled = filled.map(|(name, words)| (name, Filled::words(words)));
        let say = |id: &str| {
            let said = voice.say(id, filled.as_slice(), Medium::Text);
            said.unwrap_or_default()
        };
        context! {
            heading => say(id),
            text => say(&format!("{id}.text")),
            // The relative URL of the preferences page, if the notice is about its form.
            back => matches!(self, Self::QuietHours).then_some("preferences"),
        }
    }
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
