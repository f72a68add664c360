//! The pages people reach from their mails, as HTML.
//!
//! The rule: a page shows no more of an address than is needed to recognize one's own, works
//! without scripts, and loads nothing from anywhere. Templates see words ready to be shown; only
//! HTML escaping is left to do. [`crate::http::pages`] handles what users do on a page.

use std::path::PathBuf;

use chrono::{DateTime, TimeDelta, Utc, Weekday};
use minijinja::Value;
use minijinja::value::Serde;

use super::catalogs::Catalogs;
use super::parts::{Template, template};
use super::templates::Templates;
use super::voice::Voice;
use super::{Error, Site};
use crate::domain::mute::Title;
use crate::domain::{
    Cadence, EventType, FollowKey, Mandate, Policies, Policy, Schedule, Stop, Subject, User, UserId,
};

mod choices;
mod notice;
mod stopping;

use choices::PreferencesView;
use notice::NoticeView;
use stopping::StopView;

pub use super::following::UNFOLLOW;
pub use notice::Notice;
pub use stopping::{Others, Stopping, TYPE_FIELD, Tokens, UNMUTE_FIELD};

const LAYOUT: Template = template!("pages/layout.html");
const UNSUBSCRIBE: Template = template!("pages/unsubscribe.html");
const UNSUBSCRIBED: Template = template!("pages/unsubscribed.html");
const STOP: Template = template!("pages/stop.html");
const STOPPED: Template = template!("pages/stopped.html");
const MUTE: Template = template!("pages/mute.html");
const MUTED: Template = template!("pages/muted.html");
const UNDO: Template = template!("pages/undo.html");
const COMING: Template = template!("pages/coming.html");
const ELSE: Template = template!("pages/else.html");
const RECORDS: Template = template!("pages/records.html");
const WHOSE: Template = template!("pages/whose.html");
const PREFERENCES: Template = template!("pages/preferences.html");
const NOTICE: Template = template!("pages/notice.html");

pub(super) static ALL: [Template; 14] = [
    LAYOUT,
    UNDO,
    COMING,
    ELSE,
    RECORDS,
    WHOSE,
    UNSUBSCRIBE,
    UNSUBSCRIBED,
    STOP,
    STOPPED,
    MUTE,
    MUTED,
    PREFERENCES,
    NOTICE,
];

/// A page, and whom it is about. Links are relative, so that the pages may stand below any path.
#[derive(Debug, Clone, Copy)]
pub enum Page<'a> {
    /// Asks whether to end what a link ends; stands at the token's own path.
    Stop(Stopping<'a>),
    /// Says that it is ended.
    Stopped {
        /// What is ended, and whose.
        stopping: Stopping<'a>,
        /// Their record before it was, if that was just now: what can be undone.
        before: Option<&'a User>,
        /// What it says of other records with the same address.
        others: Others,
    },
    /// Everything that can be chosen; stands one step below the token.
    Preferences {
        /// Whose choices they are; all that they have muted is shown.
        user: &'a User,
        /// The signed token that ends everything, of which relative links are made.
        token: &'a str,
        /// What holds where they chose nothing.
        default: &'a Schedule,
        /// What types there are, and by which route each goes by default.
        policies: &'a Policies,
        /// Whether to say that what they just chose is saved.
        saved: bool,
        /// When their next digest falls due, if they get any.
        next: Option<DateTime<Utc>>,
    },
    /// Something went otherwise than somebody expected.
    Notice(Notice<'a>),
}

/// Templates of pages, compiled and tried out.
pub struct Pages {
    templates: Templates,
}

impl Pages {
    /// Compiles the templates and tries them on samples. Those in `overrides` (`pages/layout.html`
    /// and the others) take the place of the built-in ones.
    pub fn new(site: &Site, overrides: Option<PathBuf>) -> Result<Self, Error> {
        let catalogs = Catalogs::load(overrides.as_deref())?;
        let pages = Self {
            templates: Templates::load(&ALL, overrides.as_deref(), site, catalogs)?,
        };
        pages.try_out()?;
        Ok(pages)
    }

    /// The words of all locales.
    pub fn catalogs(&self) -> &Catalogs {
        self.templates.catalogs()
    }

    /// Why this type cannot be turned off, in the words of a locale.
    pub fn reason(&self, locale: Option<&str>, kind: &EventType, mandate: &Mandate) -> String {
        self.catalogs().voice(locale).reason(kind, mandate)
    }

    /// The whole page as HTML, in the language of the person it is about; where that is not known,
    /// in that of this locale. A template that fails here did not fail on the samples.
    pub fn render(&self, page: &Page<'_>, locale: Option<&str>) -> Result<String, Error> {
        let own = page.user().and_then(|user| user.locale.as_deref());
        // A locale that there is none of says nothing.
        let own = own.filter(|own| self.catalogs().nearest(own).is_some());
        let voice = self.catalogs().voice(own.or(locale));
        let template = match page {
            Page::Stop(Stopping {
                stop: Stop::All, ..
            }) => UNSUBSCRIBE,
            Page::Stop(Stopping {
                stop: Stop::Subject(..),
                ..
            }) => MUTE,
            Page::Stop(_) => STOP,
            Page::Stopped {
                stopping: Stopping {
                    stop: Stop::All, ..
                },
                ..
            } => UNSUBSCRIBED,
            Page::Stopped {
                stopping:
                    Stopping {
                        stop: Stop::Subject(..),
                        ..
                    },
                ..
            } => MUTED,
            Page::Stopped { .. } => STOPPED,
            Page::Preferences { .. } => PREFERENCES,
            Page::Notice(_) => NOTICE,
        };
        self.templates.render(&template, voice, page.view(voice))
    }

    fn try_out(&self) -> Result<(), Error> {
        let token = "sample";
        let (subject, title) = (Subject::stored(token), Title::cut("Sample"));
        let mut nobody = User::new(UserId::stored(token));
        let (epoch, hour) = (DateTime::UNIX_EPOCH, TimeDelta::hours(1));
        let mutes = &mut nobody.mutes;
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
            ..nobody.clone()
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
        for user in [&nobody, &unsubscribed] {
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
                let stopping = Stopping {
                    user,
                    stop,
                    tokens,
                    default,
                    policies,
                    name: Some("Sample"),
                    again: true,
                };
                self.render(&Page::Stop(stopping), None)?;
                let befores = [(None, Others::Offered), (Some(&nobody), Others::Ended)];
                for (before, others) in befores {
                    let stopped = Page::Stopped {
                        stopping,
                        before,
                        others,
                    };
                    self.render(&stopped, None)?;
                }
            }
            for saved in [false, true] {
                let preferences = Page::Preferences {
                    user,
                    token,
                    default,
                    policies,
                    saved,
                    next: Some(DateTime::UNIX_EPOCH),
                };
                self.render(&preferences, None)?;
            }
        }
        Ok(())
    }
}

impl Page<'_> {
    /// Whom it is about, if that is known.
    fn user(&self) -> Option<&User> {
        match self {
            Self::Notice(_) => None,
            Self::Stop(stopping) | Self::Stopped { stopping, .. } => Some(stopping.user),
            Self::Preferences { user, .. } => Some(user),
        }
    }

    fn view(&self, voice: &Voice) -> Value {
        match *self {
            Self::Notice(notice) => Value::from(Serde(NoticeView::of(notice, voice))),
            Self::Stop(stopping) => {
                let view = StopView::of(stopping, None, Others::Silent, voice);
                Value::from(Serde(view))
            }
            Self::Stopped {
                stopping,
                before,
                others,
            } => Value::from(Serde(StopView::of(stopping, before, others, voice))),
            Self::Preferences {
                user,
                token,
                default,
                policies,
                saved,
                next,
            } => {
                let kinds: Vec<&EventType> = policies.kinds().collect();
                let view = PreferencesView::of(user, token, default, policies, &kinds, voice);
                Value::from(Serde(view.with(saved, next, voice)))
            }
        }
    }
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
