//! The input of the templates: an email, the recipient's links, and the data of objects.
//!
//! An object's `data` is parsed on first use: the parsed tree takes far more memory than its text.

use std::sync::{Arc, OnceLock};

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use form_urlencoded::byte_serialize;
use minijinja::value::{Enumerator, Object, Serde};
use minijinja::{Value, context};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::safe_text::{MAX_NAME, link, non_empty};
use crate::domain::object::parse_text;
use crate::domain::{DeliverySource, EmailContent, Json, StopAction, User};

/// An email to be rendered.
#[derive(Debug, Clone)]
pub struct EmailInput<'a> {
    /// The recipient. Templates see the id, name and locale.
    pub user: &'a User,
    /// The included events.
    pub content: &'a EmailContent,
    /// The digest or batch. Templates see no cadence if it is `never`.
    pub occasion: &'a DeliverySource,
    /// The time of the email. Times on its day omit the date, and dates in its year omit the year.
    pub at: DateTime<Utc>,
    /// The time zone of its dates and times.
    pub tz: Tz,
    /// The recipient's own links, or placeholders for them.
    pub links: EmailLinks,
    /// The effect of the unsubscribe link. `None` means all email.
    pub stop: Option<&'a StopAction>,
}

/// Links to reduce or stop emails. Templates show those that are set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EmailLinks {
    /// The preference page.
    pub preferences: Option<String>,
    /// The page that unsubscribes from emails like this one, after a confirmation.
    pub unsubscribe: Option<String>,
    /// The page that mutes the subject, if the email has only one.
    pub mute: Option<String>,
}

/// The query parameter of the preference page that names the follow to end.
pub const UNFOLLOW: &str = "unfollow";

/// Returns the follows of an email that have a printable name.
///
/// The link to unfollow is a fixed suffix of the recipient's preference link. Recipients of the
/// same content can therefore share the rendered email.
pub(super) fn follow_views(email: &EmailInput<'_>) -> Vec<Value> {
    let preferences = email.links.preferences.as_deref().and_then(link);
    let followed = email.content.follow_reasons.iter().filter_map(|followed| {
        let key = followed.key.as_str();
        let encoded: String = byte_serialize(key.as_bytes()).collect();
        let name = non_empty(&followed.name, MAX_NAME)?;
        Some(context! {
            key,
            name,
            url => followed.url.as_deref().and_then(link),
            // The page asks for confirmation.
            unfollow => preferences.map(|page| format!("{page}?{UNFOLLOW}={encoded}")),
        })
    });
    followed.collect()
}

/// The largest `data` of an object that templates see, in bytes. Larger data is treated as missing,
/// because a parsed tree takes far more memory than its text.
const MAX_DATA: usize = 64 << 10;

/// The field of `data` with the place of an object.
#[derive(Deserialize)]
struct PlaceField<'a> {
    #[serde(borrow)]
    place: &'a RawValue,
}

/// Returns the name of the place in `data`.
pub(super) fn place_in(json: &Json) -> Option<String> {
    parse_text(json.parse_object::<PlaceField<'_>>()?.place)
}

/// Returns `data` as a template value. An object is parsed when a template reads it.
pub(super) fn data_value(json: &Json) -> Value {
    if json.bytes() > MAX_DATA {
        return Value::from(());
    }
    if json.text().starts_with('{') {
        return Value::from_object(Data { json: json.clone(), tree: OnceLock::new() });
    }
    parse(json)
}

fn parse(json: &Json) -> Value {
    let tree: serde_json::Value = serde_json::from_str(json.text()).unwrap_or_default();
    Value::from(Serde(tree))
}

/// A JSON object.
#[derive(Debug)]
struct Data {
    json: Json,
    tree: OnceLock<Value>,
}

impl Data {
    fn tree(&self) -> &Value {
        self.tree.get_or_init(|| parse(&self.json))
    }
}

impl Object for Data {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.tree().get_item(key).ok().filter(|value| !value.is_undefined())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        match self.tree().try_iter() {
            Ok(keys) => Enumerator::Values(keys.collect()),
            Err(_) => Enumerator::Empty,
        }
    }
}

#[cfg(test)]
mod tests {
    use minijinja::{Environment, context};
    use serde_json::json;

    use super::*;

    fn render(template: &str, data: serde_json::Value) -> String {
        let data = data_value(&Json::from(data));
        let env = Environment::new();
        env.render_str(template, context!(data)).unwrap()
    }

    #[test]
    fn templates_read_application_data_like_other_values() {
        let whole = json!({"about": {"title": "Budget"}, "n": [1, {"a": null}], "t": "x"});
        for (template, text) in [
            ("{{ data.about.title }} {{ data.n[1].a is none }} {{ data['t'] }}", "Budget True x"),
            ("{{ data|length }} {{ data.none is undefined }} {{ data is mapping }}", "3 True True"),
            ("{% for name in data %}{{ name }},{% endfor %}", "about,n,t,"),
            ("{% for name, value in data|items %}{{ name }},{% endfor %}", "about,n,t,"),
            ("{{ data.about|tojson }}", r#"{"title": "Budget"}"#),
            ("{{ data.n|tojson }}", r#"[1, {"a": null}]"#),
        ] {
            assert_eq!(render(template, whole.clone()), text, "{template}");
        }
        let list = json!([3, 4]);
        assert_eq!(render("{{ data[1] }}{{ data|length }}{{ data|sum }}", list), "427");
        for (data, expected) in [(json!({}), "no"), (json!([]), "no"), (json!(1), "yes")] {
            assert_eq!(render("{{ 'yes' if data else 'no' }}", data), expected);
        }
        assert_eq!(render("{{ data is none }}", json!(null)), "True");
    }

    #[test]
    fn data_that_is_too_long_is_none() {
        let text = |bytes: usize| json!("x".repeat(bytes - 2));
        assert_eq!(render("{{ data|length }}", text(MAX_DATA)), "65534");
        assert_eq!(render("{{ data is none }}", text(MAX_DATA + 1)), "True");
    }
}
