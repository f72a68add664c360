//! Adds the words of a locale to templates: `t("message", name=value)`, filters and globals.
//!
//! In HTML templates `t` returns HTML: the message and its values are escaped, except values that
//! are HTML already. A missing message is an error, found when the samples are rendered on loading.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use minijinja::value::{Kwargs, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State};

use super::voice::{Direction, Filled, Medium, Voice, plain};

/// Returns a copy of the environment with the words of this locale.
pub(super) fn spoken(env: &Environment<'static>, voice: &Arc<Voice>) -> Environment<'static> {
    let mut env = env.clone();
    let rtl = voice.direction() == Direction::Rtl;
    env.add_global("lang", voice.tag());
    env.add_global("dir", voice.direction().as_str());
    env.add_global("left", if rtl { "right" } else { "left" });
    env.add_global("right", if rtl { "left" } else { "right" });
    let grouping = Arc::clone(voice);
    env.add_filter("grouped", move |n: u64| grouping.grouped(n));
    let saying = Arc::clone(voice);
    env.add_function("t", move |state: &State, id: &str, filled: Kwargs| {
        say(&saying, state, id, &filled)
    });
    let joining = Arc::clone(voice);
    env.add_filter("commas", move |state: &State, names: Vec<String>| {
        let comma = joining.say("comma", &[], Medium::Text).unwrap_or_default();
        let mut out = String::new();
        for (n, name) in names.iter().enumerate() {
            if n > 0 {
                out.push_str(&comma);
            }
            joining.isolate(name, medium(state), &mut out);
        }
        given(out, medium(state))
    });
    // Formatted values of the locale itself, such as a date, in a context of either direction.
    env.add_filter("told", move |state: &State, words: Value| {
        match medium(state) {
            Medium::Html if rtl => {
                let mut out = String::from("<span dir=\"rtl\">");
                plain(words.as_str().unwrap_or_default(), Medium::Html, &mut out);
                out.push_str("</span>");
                Value::from_safe_string(out)
            }
            _ => words,
        }
    });
    let telling = Arc::clone(voice);
    env.add_filter("day", move |at: &str, zone: &str| {
        moment(at, zone).map(|(at, zone)| telling.day_in_full(at, zone))
    });
    let timing = Arc::clone(voice);
    env.add_filter("time", move |at: &str, zone: &str| {
        moment(at, zone).map(|(at, zone)| timing.time(at, zone))
    });
    let isolating = Arc::clone(voice);
    env.add_filter("iso", move |state: &State, words: Value| {
        let Some(text) = words.as_str().filter(|_| !words.is_safe()) else {
            return words;
        };
        let mut out = String::new();
        isolating.isolate(text, medium(state), &mut out);
        given(out, medium(state))
    });
    env
}

/// Parses a time in ISO 8601, and a time zone.
fn moment(at: &str, zone: &str) -> Result<(DateTime<Utc>, Tz), Error> {
    let wrong = |what: &str| Error::new(ErrorKind::InvalidOperation, what.to_owned());
    let at = at
        .parse()
        .map_err(|_| wrong("this is no moment by ISO 8601"))?;
    let zone = zone.parse().map_err(|_| wrong("this is no time zone"))?;
    Ok((at, zone))
}

fn medium(state: &State) -> Medium {
    match state.auto_escape() {
        AutoEscape::Html => Medium::Html,
        _ => Medium::Text,
    }
}

fn given(said: String, medium: Medium) -> Value {
    match medium {
        Medium::Html => Value::from_safe_string(said),
        Medium::Text => Value::from(said),
    }
}

fn say(voice: &Voice, state: &State, id: &str, filled: &Kwargs) -> Result<Value, Error> {
    let values: Vec<(&str, Value)> = filled
        .args()
        .map(|name| Ok((name, filled.get(name)?)))
        .collect::<Result<_, Error>>()?;
    let filled: Vec<(&str, Filled<'_>)> = values
        .iter()
        .map(|(name, value)| Ok((*name, of(value, medium(state))?)))
        .collect::<Result<_, Error>>()?;
    let said = voice.say(id, &filled, medium(state));
    let said = said.ok_or_else(|| {
        let why = format!("there is no message {id}, or it cannot be said with these values");
        Error::new(ErrorKind::InvalidOperation, why)
    })?;
    Ok(given(said, medium(state)))
}

fn of(value: &Value, medium: Medium) -> Result<Filled<'_>, Error> {
    if let Some(words) = value.as_str() {
        let ready = value.is_safe() && medium == Medium::Html;
        return Ok(match ready {
            true => Filled::Ready(words.into()),
            false => Filled::Words(words.into()),
        });
    }
    if value.is_number() {
        return u64::try_from(value.clone()).map(Filled::Count);
    }
    match value.is_undefined() || value.is_none() {
        true => Err(Error::new(
            ErrorKind::UndefinedError,
            "what is to be filled in is not there",
        )),
        false => Ok(Filled::Words(value.to_string().into())),
    }
}
