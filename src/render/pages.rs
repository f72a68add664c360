//! Renders the public pages that users reach from emails.
//!
//! Pages show only a masked address, work without scripts, and load no external resource. Templates
//! receive text that is ready to show; only HTML escaping is left to them. [`crate::http::pages`]
//! handles the requests.

use std::path::PathBuf;

use chrono::{DateTime, TimeDelta, Utc, Weekday};
use minijinja::{Value, context};

use super::built_in_templates::PAGES;
use super::catalogs::Catalogs;
use super::error::Error;
use super::locale_formatter::{LocaleFormatter, Medium, MessageValue};
use super::sample::{FOLLOWED, sample_user};
use super::templates::Templates;
use crate::domain::mutes_and_quiet_hours::Title;
use crate::domain::{
    Cadence, EventType, FollowKey, Mandate, Policies, Policy, Route, Schedule, Site, StopAction,
    Subject,
};

mod view;

pub use super::template_input::UNFOLLOW;
pub use view::{EmailTokens, PageUser, PreferencesPage, StopPage, TYPE_FIELD, UNMUTE_FIELD};

/// A page and its data. Links are relative, so that the pages work below any path.
pub enum WebPage<'a> {
    /// Asks for confirmation of a link's effect, or confirms it. Its path ends in the token.
    Stop(StopPage<'a>),
    /// All choices. Its path is one level below the token.
    Preferences(PreferencesPage<'a>),
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
            pages.render_samples()?;
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
        let formatter = self.catalogs().formatter(locale);
        let (template, view) = match page {
            WebPage::Stop(stopping) => {
                let template = match (stopping.stop, stopping.is_stopped) {
                    (StopAction::All, false) => "pages/unsubscribe.html",
                    (StopAction::All, true) => "pages/unsubscribed.html",
                    (StopAction::Subject(..), false) => "pages/mute.html",
                    (StopAction::Subject(..), true) => "pages/muted.html",
                    (_, false) => "pages/stop.html",
                    (_, true) => "pages/stopped.html",
                };
                (template, view::stop(stopping, formatter))
            }
            WebPage::Preferences(choices) => {
                ("pages/preferences.html", view::preferences(choices, formatter))
            }
            WebPage::Notice(notice) => ("pages/notice.html", notice.view(formatter)),
        };
        self.templates.render(template, formatter, view)
    }

    /// Renders all pages for sample users.
    fn render_samples(&self) -> Result<(), Error> {
        let (now, hour) = (DateTime::UNIX_EPOCH, TimeDelta::hours(1));
        let mut user = sample_user();
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
        let mut unsubscribed = user.clone();
        unsubscribed.unsubscribed = Some(now);
        for user in [&user, &unsubscribed] {
            self.samples(PageUser::new(user, default, policies), now)?;
        }
        Ok(())
    }

    /// Renders each page for this user. Returns the pages with descriptions.
    pub(crate) fn samples(
        &self,
        page_user: PageUser<'_>,
        now: DateTime<Utc>,
    ) -> Result<Vec<(String, String)>, Error> {
        let PageUser { user, policies, .. } = page_user;
        let [own, digest, all] = ["preview", "preview-digest", "preview-all"].map(str::to_owned);
        let tokens = &EmailTokens { own, digest, all };
        let mut pages = Vec::new();
        let mut add = |name: String, page: &WebPage<'_>| {
            pages.push((name, self.render(page, user.locale.as_deref())?));
            Ok::<_, Error>(())
        };
        for (name, saved) in [("preferences", false), ("preferences saved", true)] {
            let choices = PreferencesPage {
                page_user,
                token: &tokens.all,
                is_saved: saved,
                next_digest: Some(now + TimeDelta::days(3)),
            };
            add(name.to_owned(), &WebPage::Preferences(choices))?;
        }
        let mut stops = vec![
            ("the digest", StopAction::Digest),
            ("all but the digest", StopAction::OutsideDigest),
            ("all email", StopAction::All),
            ("a follow", StopAction::Follow(FollowKey::stored("artist:7"))),
        ];
        let outside_digest = policies.kinds().find(|kind| user.gets_outside_digest(kind, policies));
        if outside_digest.is_some() {
            let thread = StopAction::Subject(Subject::stored("preview"), Title::cut("Budget"));
            stops.extend([("a type", StopAction::for_types(outside_digest)), ("a thread", thread)]);
        }
        for (what, stop) in &stops {
            let mut stopped = user.clone();
            stopped.apply_stop(stop, policies, now);
            for (name, user, ended, before) in [
                (format!("stop {what}"), user, false, None),
                (format!("stopped {what}"), &stopped, true, Some(user)),
                (format!("stopped {what} before"), &stopped, true, None),
            ] {
                let stopping = StopPage {
                    page_user: PageUser { user, ..page_user },
                    stop,
                    is_stopped: ended,
                    previous_user: before,
                    tokens,
                    follow_name: matches!(stop, StopAction::Follow(_)).then_some(FOLLOWED),
                };
                add(name, &WebPage::Stop(stopping))?;
            }
        }
        add("notice".to_owned(), &WebPage::Notice(Notice::ExpiredLink))?;
        add("notice about quiet hours".to_owned(), &WebPage::Notice(Notice::IncompleteQuietHours))?;
        Ok(pages)
    }
}

/// The message of a page: why a request had no effect, and what to do. Each has a message in the
/// catalogs. Details of errors that only programs cause are in English.
#[derive(Debug, Clone)]
pub enum Notice {
    /// A link is incomplete or has an invalid signature.
    InvalidLink,
    /// A link has expired.
    ExpiredLink,
    /// The user of a link has no record.
    UnknownUser,
    /// The user does not follow the key that the link would end.
    NotFollowed,
    /// The link is for a type that has become mandatory.
    Mandatory(EventType, Mandate),
    /// The request body cannot be read; the cause, as a sentence.
    InvalidForm(String),
    /// A choice is invalid; the value and the cause.
    InvalidChoice(String),
    /// The form of the preferences page has only one of the two times of the quiet hours.
    IncompleteQuietHours,
    /// An internal error.
    InternalError,
}

impl Notice {
    fn view(&self, formatter: &LocaleFormatter) -> Value {
        let reason;
        let (id, value) = match self {
            Self::InvalidLink => ("notice-forged", None),
            Self::ExpiredLink => ("notice-expired", None),
            Self::UnknownUser => ("notice-gone", None),
            Self::NotFollowed => ("notice-not-followed", None),
            Self::Mandatory(kind, mandate) => {
                reason = formatter.reason(kind, mandate);
                ("notice-mandatory", Some(("reason", reason.trim_end_matches('.'))))
            }
            Self::InvalidForm(why) => ("notice-form", Some(("why", why.as_str()))),
            Self::InvalidChoice(why) => ("notice-choice", Some(("why", why.as_str()))),
            Self::IncompleteQuietHours => ("notice-quiet", None),
            Self::InternalError => ("notice-inside", None),
        };
        let values = value.map(|(name, text)| (name, MessageValue::words(text)));
        let format =
            |id: &str| formatter.format(id, values.as_slice(), Medium::Text).unwrap_or_default();
        context! {
            heading => format(id),
            text => format(&format!("{id}.text")),
            // The relative URL of the preferences page, if the notice is about its form.
            back => matches!(self, Self::IncompleteQuietHours).then_some("preferences"),
        }
    }
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
