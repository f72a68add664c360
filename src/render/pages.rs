//! Renders the public pages that users reach from emails.
//!
//! Pages show only a masked address, work without scripts, and load no external resource. Templates
//! receive text that is ready to show; only HTML escaping is left to them. [`crate::http::pages`]
//! handles the requests.

use std::path::PathBuf;

use chrono::{DateTime, TimeDelta, Utc, Weekday};
use minijinja::{Value, context};

use super::built_in_templates::{Error, PAGES};
use super::catalogs::Catalogs;
use super::sample::{FOLLOWED, reader};
use super::templates::Templates;
use super::voice::{Medium, MessageValue, Voice};
use crate::domain::mutes_and_quiet_hours::Title;
use crate::domain::{
    Cadence, EventType, FollowKey, Mandate, Policies, Policy, Route, Schedule, Site, StopAction,
    Subject,
};

mod view;

pub use super::template_input::UNFOLLOW;
pub use view::{Choices, EmailTokens, PageUser, Stopping, TYPE_FIELD, UNMUTE_FIELD};

/// A page and its data. Links are relative, so that the pages work below any path.
pub enum WebPage<'a> {
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
        let pages = Self { templates: Templates::load(&PAGES, overrides.as_deref(), site, None)? };
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
    pub fn render(&self, page: &WebPage<'_>, locale: Option<&str>) -> Result<String, Error> {
        let voice = self.catalogs().voice(locale);
        let (template, view) = match page {
            WebPage::Stop(stopping) => {
                let template = match (stopping.stop, stopping.ended) {
                    (StopAction::All, false) => "pages/unsubscribe.html",
                    (StopAction::All, true) => "pages/unsubscribed.html",
                    (StopAction::Subject(..), false) => "pages/mute.html",
                    (StopAction::Subject(..), true) => "pages/muted.html",
                    (_, false) => "pages/stop.html",
                    (_, true) => "pages/stopped.html",
                };
                (template, view::stop(stopping, voice))
            }
            WebPage::Preferences(choices) => {
                ("pages/preferences.html", view::preferences(choices, voice))
            }
            WebPage::Notice(notice) => ("pages/notice.html", notice.view(voice)),
        };
        self.templates.render(template, voice, view)
    }

    fn try_out(&self) -> Result<(), Error> {
        let (now, hour) = (DateTime::UNIX_EPOCH, TimeDelta::hours(1));
        let mut user = reader();
        user.mutes.mute(Subject::stored("other"), Some(now + hour), None, now);
        let default = &Schedule {
            cadence: Cadence::Weekly,
            weekday: Weekday::Mon,
            hour: 9,
            tz: chrono_tz::UTC,
        };
        let batch = Policy { route: Route::Batch, ..Policy::default() };
        let mandatory = Policy {
            category: "Sample".parse().ok(),
            mandatory: Some(Mandate::default()),
            ..Policy::default()
        };
        let policies = &Policies::new([
            (EventType::stored("Sample"), batch),
            (EventType::stored("Mandatory"), mandatory),
        ]);
        let mut gone = user.clone();
        gone.unsubscribed = Some(now);
        for user in [&user, &gone] {
            self.samples(PageUser::new(user, default, policies), now)?;
        }
        Ok(())
    }

    /// Renders each page for this user. Returns the pages with descriptions.
    pub(crate) fn samples(
        &self,
        of: PageUser<'_>,
        now: DateTime<Utc>,
    ) -> Result<Vec<(String, String)>, Error> {
        let PageUser { user, policies, .. } = of;
        let [own, digest, all] = ["preview", "preview-digest", "preview-all"].map(str::to_owned);
        let tokens = &EmailTokens { own, digest, all };
        let mut pages = Vec::new();
        let mut add = |name: String, page: &WebPage<'_>| {
            pages.push((name, self.render(page, user.locale.as_deref())?));
            Ok::<_, Error>(())
        };
        for (name, saved) in [("preferences", false), ("preferences saved", true)] {
            let choices =
                Choices { of, token: &tokens.all, saved, next: Some(now + TimeDelta::days(3)) };
            add(name.to_owned(), &WebPage::Preferences(choices))?;
        }
        let mut stops = vec![
            ("the digest", StopAction::Digest),
            ("all but the digest", StopAction::OutsideDigest),
            ("all email", StopAction::All),
            ("a follow", StopAction::Follow(FollowKey::stored("artist:7"))),
        ];
        let mut kinds = policies.kinds();
        let alone = kinds.find(|kind| user.gets_outside_digest(kind, policies));
        if alone.is_some() {
            let thread = StopAction::Subject(Subject::stored("preview"), Title::cut("Budget"));
            stops.extend([("a type", StopAction::for_types(alone)), ("a thread", thread)]);
        }
        for (what, stop) in &stops {
            let mut stopped = user.clone();
            stopped.apply_stop(stop, policies, now);
            for (name, user, ended, before) in [
                (format!("stop {what}"), user, false, None),
                (format!("stopped {what}"), &stopped, true, Some(user)),
                (format!("stopped {what} before"), &stopped, true, None),
            ] {
                let stopping = Stopping {
                    of: PageUser { user, ..of },
                    stop,
                    ended,
                    before,
                    tokens,
                    name: matches!(stop, StopAction::Follow(_)).then_some(FOLLOWED),
                };
                add(name, &WebPage::Stop(stopping))?;
            }
        }
        add("notice".to_owned(), &WebPage::Notice(Notice::Expired))?;
        let quiet = "notice about quiet hours".to_owned();
        add(quiet, &WebPage::Notice(Notice::QuietHours))?;
        Ok(pages)
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
        let filled = filled.map(|(name, words)| (name, MessageValue::words(words)));
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
