//! Exposes an object's `data` to templates, parsed on first use and limited in size.
//!
//! The parsed tree takes far more memory than its text. `data` of more than [`MAX_VALUES`] values
//! is therefore treated as missing.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use minijinja::Value;
use minijinja::value::{Enumerator, Object, ObjectRepr, Serde};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::domain::Json;
use crate::domain::object::json_text;

/// The most values in one object's `data`.
pub(super) const MAX_VALUES: usize = 10_000;

/// The field of `data` with the place of an object.
#[derive(Deserialize)]
struct PlaceField<'a> {
    #[serde(borrow)]
    place: &'a RawValue,
}

/// Returns the name of the place in `data`.
pub(super) fn place_in(json: &Json) -> Option<Cow<'_, str>> {
    json_text(json.fields::<PlaceField<'_>>()?.place)
}

/// Returns `data` as a template value.
pub(super) fn value_of(json: &Json) -> Value {
    let kind = match json.text().as_bytes().first() {
        _ if json.values() > MAX_VALUES => return Value::from(()),
        Some(b'{') => ObjectRepr::Map,
        Some(b'[') => ObjectRepr::Seq,
        _ => return tree(json),
    };
    Value::from_object(Data {
        json: json.clone(),
        kind,
        tree: OnceLock::new(),
    })
}

fn tree(json: &Json) -> Value {
    let tree: serde_json::Value = serde_json::from_str(json.text()).unwrap_or_default();
    Value::from(Serde(tree))
}

/// An array or object.
#[derive(Debug)]
struct Data {
    json: Json,
    kind: ObjectRepr,
    tree: OnceLock<Value>,
}

impl Data {
    fn tree(&self) -> &Value {
        self.tree.get_or_init(|| tree(&self.json))
    }
}

impl Object for Data {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        self.kind
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let found = self.tree().get_item(key).ok()?;
        (!found.is_undefined()).then_some(found)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        match (self.kind, self.tree().try_iter()) {
            (ObjectRepr::Seq, _) => Enumerator::Seq(self.tree().len().unwrap_or_default()),
            (_, Ok(keys)) => Enumerator::Values(keys.collect()),
            (_, Err(_)) => Enumerator::Empty,
        }
    }
}

#[cfg(test)]
mod tests {
    use minijinja::{Environment, context};
    use serde_json::json;

    use super::*;

    fn filled(template: &str, data: serde_json::Value) -> String {
        let data = value_of(&Json::from(data));
        let env = Environment::new();
        env.render_str(template, context!(data)).unwrap()
    }

    #[test]
    fn templates_read_application_data_like_other_values() {
        let whole = json!({"about": {"title": "Budget"}, "n": [1, {"a": null}], "t": "x"});
        for (template, text) in [
            (
                "{{ data.about.title }} {{ data.n[1].a is none }} {{ data['t'] }}",
                "Budget True x",
            ),
            (
                "{{ data|length }} {{ data.none is undefined }} {{ data is mapping }}",
                "3 True True",
            ),
            (
                "{% for name in data %}{{ name }},{% endfor %}",
                "about,n,t,",
            ),
            (
                "{% for name, value in data|items %}{{ name }},{% endfor %}",
                "about,n,t,",
            ),
            ("{{ data.about|tojson }}", r#"{"title": "Budget"}"#),
            ("{{ data.n|tojson }}", r#"[1, {"a": null}]"#),
        ] {
            assert_eq!(filled(template, whole.clone()), text, "{template}");
        }
        let list = json!([3, 4]);
        assert_eq!(
            filled("{{ data[1] }}{{ data|length }}{{ data|sum }}", list),
            "427"
        );
        for (data, is) in [(json!({}), "no"), (json!([]), "no"), (json!(1), "yes")] {
            assert_eq!(filled("{{ 'yes' if data else 'no' }}", data), is);
        }
        assert_eq!(filled("{{ data is none }}", json!(null)), "True");
    }

    #[test]
    fn data_with_too_many_values_is_none() {
        let list = |values: usize| json!(vec![0; values]);
        assert_eq!(filled("{{ data|length }}", list(MAX_VALUES - 1)), "9999");
        assert_eq!(filled("{{ data is none }}", list(MAX_VALUES)), "True");
    }
}
