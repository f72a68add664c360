//! The pages people reach from their mails, as HTML.
//!
//! The rule: a page shows no more of an address than is needed to recognize one's own, works
//! without scripts, and loads nothing from anywhere. Templates see words ready to be shown; only
//! HTML escaping is left to do. What is done with a page is [`crate::web`]'s.

use std::collections::BTreeMap;
use std::path::PathBuf;

use chrono::{DateTime, Utc, Weekday};
use minijinja::Value;
use minijinja::value::Serde;
use serde::Serialize;

use super::naming::{day_in_full, heading_of};
use super::parts::{Template, template};
use super::templates::Templates;
use super::{Error, Site};
use crate::domain::{
    Cadence, Category, EventType, Mandate, Policies, Policy, Route, Schedule, User, UserId,
};

const LAYOUT: Template = template!("pages/layout.html");
const UNSUBSCRIBE: Template = template!("pages/unsubscribe.html");
const UNSUBSCRIBED: Template = template!("pages/unsubscribed.html");
const PREFERENCES: Template = template!("pages/preferences.html");
const NOTICE: Template = template!("pages/notice.html");

pub(super) static ALL: [Template; 5] = [LAYOUT, UNSUBSCRIBE, UNSUBSCRIBED, PREFERENCES, NOTICE];

/// The name of the form field that chooses a type's route is this and the type.
pub const TYPE_FIELD: &str = "type.";

/// A page, and whom it is about. Links are relative, so that the pages may stand below any path.
#[derive(Debug, Clone, Copy)]
pub enum Page<'a> {
    /// Asks whether to unsubscribe; stands at the token's own path.
    Unsubscribe {
        /// Whose mails it is about.
        user: &'a User,
        /// The signed token of the link, of which relative links are made.
        token: &'a str,
        /// What types there are: some may be mailed all the same.
        policies: &'a Policies,
    },
    /// Says that it is done.
    Unsubscribed {
        /// Whose mails it is about.
        user: &'a User,
        /// The signed token of the link, of which relative links are made.
        token: &'a str,
        /// What types there are: some are mailed all the same.
        policies: &'a Policies,
    },
    /// Everything that can be chosen; stands one step below the token.
    Preferences {
        /// Whose choices they are.
        user: &'a User,
        /// The signed token of the link, of which relative links are made.
        token: &'a str,
        /// What holds where they chose nothing.
        default: &'a Schedule,
        /// What types there are, and by which route each goes by default.
        policies: &'a Policies,
        /// Types of what happened to them lately.
        seen: &'a [EventType],
        /// Whether to say that what they just chose is saved.
        saved: bool,
        /// When their next digest falls due, if they get any.
        next: Option<DateTime<Utc>>,
    },
    /// Something went otherwise than somebody expected.
    Notice {
        /// What happened, in a few words.
        heading: &'a str,
        /// What it means, and what to do.
        text: &'a str,
    },
}

/// Templates of pages, compiled and tried out.
pub struct Pages {
    templates: Templates,
}

impl Pages {
    /// Compiles the templates and tries them on samples. Those in `overrides` (`pages/layout.html`
    /// and the others) take the place of the built-in ones.
    pub fn new(site: &Site, overrides: Option<PathBuf>) -> Result<Self, Error> {
        let pages = Self {
            templates: Templates::load(&ALL, overrides.as_deref(), site)?,
        };
        pages.try_out()?;
        Ok(pages)
    }

    /// The whole page as HTML; a template that fails here did not fail on the samples.
    pub fn render(&self, page: &Page<'_>) -> Result<String, Error> {
        let template = match page {
            Page::Unsubscribe { .. } => UNSUBSCRIBE,
            Page::Unsubscribed { .. } => UNSUBSCRIBED,
            Page::Preferences { .. } => PREFERENCES,
            Page::Notice { .. } => NOTICE,
        };
        self.templates.render(&template, page.view())
    }

    fn try_out(&self) -> Result<(), Error> {
        let (nobody, token) = (User::new(UserId::stored("sample")), "sample");
        let unsubscribed = User {
            unsubscribed: Some(DateTime::UNIX_EPOCH),
            ..nobody.clone()
        };
        let notice = Page::Notice {
            heading: "Sample",
            text: "This is a sample.",
        };
        self.render(&notice)?;
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
            self.render(&Page::Unsubscribe {
                user,
                token,
                policies,
            })?;
            self.render(&Page::Unsubscribed {
                user,
                token,
                policies,
            })?;
            for saved in [false, true] {
                let default = &Schedule {
                    cadence: Cadence::Weekly,
                    weekday: Weekday::Mon,
                    hour: 9,
                    tz: chrono_tz::UTC,
                };
                self.render(&Page::Preferences {
                    user,
                    token,
                    default,
                    policies,
                    seen: &[],
                    saved,
                    next: Some(DateTime::UNIX_EPOCH),
                })?;
            }
        }
        Ok(())
    }
}

/// What the pages about one person see.
#[derive(Serialize)]
struct PersonView {
    /// Masked.
    address: Option<String>,
    /// The day on which they unsubscribed.
    unsubscribed: Option<String>,
    /// The headings of what is mailed to them all the same.
    kept: Vec<String>,
    links: LinksView,
    #[serde(flatten)]
    choices: Option<ChoicesView>,
}

#[derive(Serialize)]
struct LinksView {
    unsubscribe: String,
    preferences: String,
}

/// What the preferences page sees besides.
#[derive(Serialize)]
struct ChoicesView {
    saved: bool,
    /// Whether no mail leaves for a reason that is not theirs to change here.
    stopped: bool,
    /// As it holds now.
    schedule: ScheduleView,
    cadences: Vec<OptionView>,
    weekdays: Vec<OptionView>,
    hours: Vec<OptionView>,
    zones: Vec<RegionView>,
    groups: Vec<GroupView>,
}

#[derive(Serialize)]
struct ScheduleView {
    cadence: &'static str,
    weekday: String,
    hour: String,
    tz: &'static str,
    /// The day and the hour of the next digest, in that zone.
    next: Option<String>,
}

#[derive(Serialize)]
struct OptionView {
    value: String,
    label: String,
    chosen: bool,
}

impl OptionView {
    fn plain(value: &str, chosen: bool) -> Self {
        Self {
            value: value.to_owned(),
            label: value.to_owned(),
            chosen,
        }
    }
}

#[derive(Serialize)]
struct RegionView {
    label: &'static str,
    options: Vec<OptionView>,
}

/// The types of a category.
#[derive(Serialize)]
struct GroupView {
    /// `None` for types of no category.
    category: Option<String>,
    types: Vec<TypeView>,
}

#[derive(Serialize)]
struct TypeView {
    /// The name of the form field.
    field: String,
    heading: String,
    /// Where there is a choice.
    options: Vec<OptionView>,
    /// Where there is none.
    locked: Option<LockView>,
}

#[derive(Serialize)]
struct LockView {
    route: &'static str,
    reason: String,
}

#[derive(Serialize)]
struct NoticeView<'a> {
    heading: &'a str,
    text: &'a str,
}

impl Page<'_> {
    fn view(&self) -> Value {
        match *self {
            Self::Notice { heading, text } => Value::from(Serde(NoticeView { heading, text })),
            Self::Unsubscribe {
                user,
                token,
                policies,
            }
            | Self::Unsubscribed {
                user,
                token,
                policies,
            } => {
                let links = LinksView {
                    unsubscribe: token.to_owned(),
                    preferences: format!("{token}/preferences"),
                };
                Value::from(Serde(person(user, links, policies, None)))
            }
            Self::Preferences {
                user,
                token,
                default,
                policies,
                seen,
                saved,
                next,
            } => {
                let links = LinksView {
                    unsubscribe: format!("../{token}"),
                    preferences: String::new(),
                };
                let schedule = user.schedule(default);
                let next = next.filter(|_| user.unsubscribed.is_none());
                let next = next.map(|at| {
                    let at = at.with_timezone(&schedule.tz);
                    at.format("%A %-d %B %Y, %H:%M").to_string()
                });
                let kinds = policies.offered(user.types.keys(), seen);
                let mut choices = choices(user, &schedule, policies, &kinds, saved);
                choices.schedule.next = next;
                Value::from(Serde(person(user, links, policies, Some(choices))))
            }
        }
    }
}

fn person(
    user: &User,
    links: LinksView,
    policies: &Policies,
    choices: Option<ChoicesView>,
) -> PersonView {
    let kept = policies.always_mailed();
    let day = |at: DateTime<Utc>| day_in_full(at, user.tz.unwrap_or(chrono_tz::UTC));
    PersonView {
        address: user.email.as_ref().map(ToString::to_string),
        unsubscribed: user.unsubscribed.map(day),
        kept: kept
            .map(|kind| heading_of(policies.heading(kind), kind))
            .collect(),
        links,
        choices,
    }
}

fn choices(
    user: &User,
    schedule: &Schedule,
    policies: &Policies,
    kinds: &[&EventType],
    saved: bool,
) -> ChoicesView {
    let weekday = |n| Weekday::try_from(n).unwrap_or(Weekday::Mon);
    ChoicesView {
        saved,
        stopped: user.suppressed.is_some() || !user.confirmed || user.email.is_none(),
        schedule: ScheduleView {
            cadence: schedule.cadence.as_str(),
            weekday: name(schedule.weekday),
            hour: format!("{:02}", schedule.hour),
            tz: schedule.tz.name(),
            next: None,
        },
        cadences: [Cadence::Daily, Cadence::Weekly, Cadence::Never]
            .map(|cadence| OptionView::plain(cadence.as_str(), cadence == schedule.cadence))
            .into(),
        weekdays: (0..7)
            .map(weekday)
            .map(|day| OptionView::plain(&name(day), day == schedule.weekday))
            .collect(),
        hours: (0..24)
            .map(|hour| OptionView {
                value: hour.to_string(),
                label: format!("{hour:02}"),
                chosen: hour == schedule.hour,
            })
            .collect(),
        zones: zones(schedule.tz),
        groups: groups(user, policies, kinds),
    }
}

fn name(weekday: Weekday) -> String {
    weekday.to_string().to_lowercase()
}

/// Places by region, each by its name; and the chosen zone, whatever kind of name it has.
fn zones(chosen: chrono_tz::Tz) -> Vec<RegionView> {
    const REGIONS: [&str; 9] = [
        "Africa",
        "America",
        "Antarctica",
        "Asia",
        "Atlantic",
        "Australia",
        "Europe",
        "Indian",
        "Pacific",
    ];
    let mut regions: BTreeMap<&str, Vec<OptionView>> = BTreeMap::new();
    for zone in chrono_tz::TZ_VARIANTS {
        let (region, place) = match zone.name().split_once('/') {
            Some((region, place)) if REGIONS.contains(&region) => (region, place),
            _ if zone == chrono_tz::UTC || zone == chosen => ("Other", zone.name()),
            _ => continue,
        };
        regions.entry(region).or_default().push(OptionView {
            value: zone.name().to_owned(),
            label: place.replace('_', " ").replace('/', ", "),
            chosen: zone == chosen,
        });
    }
    let region = |(label, options)| RegionView { label, options };
    regions.into_iter().map(region).collect()
}

fn groups(user: &User, policies: &Policies, kinds: &[&EventType]) -> Vec<GroupView> {
    let groups = policies.by_category(kinds).into_iter();
    let group = |(category, kinds): (Option<&Category>, Vec<&EventType>)| GroupView {
        category: category.map(|category| category.as_str().to_owned()),
        types: kinds
            .into_iter()
            .map(|kind| shown(user, policies, kind))
            .collect(),
    };
    groups.map(group).collect()
}

/// It can go where it goes by default, where it goes now, into the digest, or nowhere; unless it is
/// mandatory.
fn shown(user: &User, policies: &Policies, kind: &EventType) -> TypeView {
    let policy = policies.of(kind);
    let default = policy.route;
    let route = user.types.get(kind).map_or(default, |chosen| chosen.route);
    let possible = [default, route, Route::Digest, Route::Never];
    let offered = [Route::Immediate, Route::Batch, Route::Digest, Route::Never];
    let offered = offered.iter().filter(|one| possible.contains(one));
    let options = offered.map(|one| OptionView::plain(one.as_str(), *one == route));
    let locked = policy.mandatory.as_ref().map(|mandate| LockView {
        route: default.as_str(),
        reason: mandate.as_str().to_owned(),
    });
    TypeView {
        field: format!("{TYPE_FIELD}{kind}"),
        heading: heading_of(policies.heading(kind), kind),
        options: match locked {
            Some(_) => Vec::new(),
            None => options.collect(),
        },
        locked,
    }
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
