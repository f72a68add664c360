//! Determines the topic of an object, such as the document that a comment was posted on.
//!
//! An object states its topic in `data.about`, as a title or as `{"title", "url"}`. A topic is
//! identified by its URL, or by its title if it has none. Emails group objects without a topic by
//! page if their type has a phrase: all comments on the page `Budget` share a topic
//! ([`About::of`]). Feeds group them by the object's author ([`key`]).

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::json::fields;
use super::object::Object;
use super::policy::Phrase;

/// The topic that all items of a group share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// A topic that the objects state.
    Other {
        /// The title; it identifies the topic if there is no URL.
        title: String,
        /// The URL, or `None` if the object states none.
        url: Option<String>,
    },
    /// The page that all objects are on.
    Page {
        /// The title that the objects share.
        title: String,
        /// The objects' URL without its fragment.
        url: Option<String>,
    },
    /// The only object of the group.
    Itself,
}

/// The topic in an object's `data.about`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Said<'a> {
    title: Cow<'a, str>,
    url: Option<Cow<'a, str>>,
}

/// The field of `data` that states the topic. All other fields are ignored.
#[derive(Deserialize)]
struct AboutField<'a> {
    #[serde(borrow)]
    about: &'a RawValue,
}

#[derive(Deserialize)]
struct TitleAndUrl<'a> {
    #[serde(borrow, default)]
    title: Option<&'a RawValue>,
    #[serde(borrow, default)]
    url: Option<&'a RawValue>,
}

/// A JSON string, borrowed if it contains no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Said<'a> {
    fn of(object: &'a Object) -> Option<Self> {
        let about = object.data.fields::<AboutField<'_>>()?.about;
        if let Some(title) = text(about) {
            return Some(Self { title, url: None });
        }
        let TitleAndUrl { title, url } = fields(about.get())?;
        Some(Self {
            title: text(title?)?,
            url: url.and_then(text),
        })
    }

    /// Returns the text that identifies the topic.
    fn key(self) -> Cow<'a, str> {
        self.url.unwrap_or(self.title)
    }
}

/// Returns a JSON string without surrounding white space; `None` if it is empty or not a string.
pub fn text(value: &RawValue) -> Option<Cow<'_, str>> {
    let Text(text) = serde_json::from_str(value.get()).ok()?;
    let text = match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
        Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
    };
    (!text.is_empty()).then_some(text)
}

/// Returns the object's title, or its topic's title if it has none.
fn title(object: &Object) -> Option<Cow<'_, str>> {
    let own = object.title.as_deref().map(Cow::Borrowed);
    own.or_else(|| Said::of(object).map(|said| said.title))
}

impl Object {
    /// Returns the text to show for the object: its title, its topic's title, or its key.
    pub fn label(&self) -> Cow<'_, str> {
        title(self).unwrap_or(Cow::Borrowed(self.key.as_str()))
    }
}

/// Returns the topic by which feeds group an object: the stated topic, the author, or the object's
/// key. Requests name a group by this text.
pub fn key(object: &Object) -> Cow<'_, str> {
    let said = Said::of(object).map(Said::key);
    let by = || object.by.as_deref().filter(|by| !by.is_empty());
    let own = || Cow::Borrowed(by().unwrap_or(object.key.as_str()));
    said.unwrap_or_else(own)
}

impl About {
    /// Returns the topic of an object in an email. `phrase` is the phrase of the event's type.
    pub(super) fn of(object: &Object, phrase: Option<&Phrase>) -> Self {
        if let Some(Said { title, url }) = Said::of(object) {
            return Self::Other {
                title: title.into_owned(),
                url: url.map(Cow::into_owned),
            };
        }
        let title = object.title.as_deref().map(str::trim);
        match title.filter(|title| phrase.is_some() && !title.is_empty()) {
            Some(title) => Self::Page {
                title: title.to_owned(),
                url: object.url.as_deref().map(|url| page(url).to_owned()),
            },
            None => Self::Itself,
        }
    }

    /// Returns the text that identifies the topic: its URL or title. `None` if the topic is the
    /// object itself.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Other { title, url } | Self::Page { title, url } => {
                Some(url.as_deref().unwrap_or(title))
            }
            Self::Itself => None,
        }
    }

    /// Returns whether both are the same topic. Two objects that are their own topics never are.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Other { title, url }, Self::Other { title: t, url: u }) => {
                url.as_ref().unwrap_or(title) == u.as_ref().unwrap_or(t)
            }
            (Self::Page { .. }, Self::Page { .. }) => self == other,
            _ => false,
        }
    }
}

/// Returns a URL without its fragment. Fragments that start with `#/` or `#!` stay, because
/// single-page applications route by them.
fn page(url: &str) -> &str {
    match url.split_once('#') {
        Some((page, place)) if !place.starts_with(['/', '!']) => page,
        _ => url,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::domain::ObjectKey;

    fn key_and_topic(data: Value) -> (String, About) {
        let object = Object {
            by: Some("Ada".into()),
            data: data.into(),
            ..Object::bare(ObjectKey::stored("Comment:c1"))
        };
        (key(&object).into_owned(), About::of(&object, None))
    }

    #[test]
    fn emails_and_feeds_derive_the_same_topic_from_an_object() {
        let other = |title: &str, url: Option<&str>| About::Other {
            title: title.into(),
            url: url.map(str::to_owned),
        };
        let url = "https://a.example/1";
        for (said, key, about) in [
            (json!("thread:9"), "thread:9", other("thread:9", None)),
            (json!(" Budget "), "Budget", other("Budget", None)),
            (json!({"title": "Budget"}), "Budget", other("Budget", None)),
            (
                json!({"title": "Budget", "url": url}),
                url,
                other("Budget", Some(url)),
            ),
            (
                json!({"title": "Budget", "url": " "}),
                "Budget",
                other("Budget", None),
            ),
            // These state no topic.
            (json!({"url": url}), "Ada", About::Itself),
            (json!({"title": ""}), "Ada", About::Itself),
            (json!(""), "Ada", About::Itself),
            (json!(7), "Ada", About::Itself),
            (json!(["Budget"]), "Ada", About::Itself),
            (json!(null), "Ada", About::Itself),
        ] {
            let expected = (key.to_owned(), about);
            assert_eq!(key_and_topic(json!({"about": said})), expected, "{said}");
        }
        assert_eq!(
            key_and_topic(Value::Null),
            ("Ada".to_owned(), About::Itself)
        );
    }

    #[test]
    fn a_topic_key_is_the_stated_topic_then_the_author_then_the_object() {
        let mut object = Object::bare(ObjectKey::stored("Comment:c1"));
        assert_eq!(key(&object), "Comment:c1");
        object.by = Some(String::new());
        assert_eq!(key(&object), "Comment:c1");
        object.by = Some("Ada".into());
        assert_eq!(key(&object), "Ada");
    }
}
