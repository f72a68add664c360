//! What an item is about: the document that a comment stands on, or the item's object itself.
//!
//! The rule: `data.about` says it, as a title or as `{"title", "url"}`, for mails and feeds alike
//! ([`Said`]); it is known by its address, or by its title where it has none. Where it says
//! nothing, mails take an object of a type with a phrase to be about the page it is on, so that
//! four comments whose objects are called `Budget` are about one budget, and any other to stand for
//! itself ([`About::of`]); feeds take it to be about who it is by ([`key`]).

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::json::fields;
use super::object::Object;
use super::policy::Phrase;

/// What all items of a group are about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// Another thing than the objects, and where it can be looked at.
    Other {
        /// What it is called; it tells groups apart where there is no address.
        title: String,
        /// `None` where the object's record does not say.
        url: Option<String>,
    },
    /// The page that all the objects are on.
    Page {
        /// The title that the objects share.
        title: String,
        /// Their address without the place on the page.
        url: Option<String>,
    },
    /// The group's one object.
    Itself,
}

/// What an object says that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Said<'a> {
    title: Cow<'a, str>,
    url: Option<Cow<'a, str>>,
}

/// The part of an object's `data` that says what the object is about. The rest is passed over.
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

/// A text in JSON; borrowed where it has no escapes.
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

    /// What tells it from anything else.
    fn key(self) -> Cow<'a, str> {
        self.url.unwrap_or(self.title)
    }
}

/// Returns a text without the spaces around it; `None` for an empty text and any other value.
pub fn text(value: &RawValue) -> Option<Cow<'_, str>> {
    let Text(text) = serde_json::from_str(value.get()).ok()?;
    let text = match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
        Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
    };
    (!text.is_empty()).then_some(text)
}

/// What to call an object, or what it is about where nobody gave it a title.
fn title(object: &Object) -> Option<Cow<'_, str>> {
    let own = object.title.as_deref().map(Cow::Borrowed);
    own.or_else(|| Said::of(object).map(|said| said.title))
}

impl Object {
    /// What to call it: its title, or that of what it is about, or its key.
    pub fn label(&self) -> Cow<'_, str> {
        title(self).unwrap_or(Cow::Borrowed(self.key.as_str()))
    }
}

/// What an object is about, for groups of feeds: what it says; else who it is by; else itself, by
/// its key. Marks of groups and requests for their items name them so.
pub fn key(object: &Object) -> Cow<'_, str> {
    let said = Said::of(object).map(Said::key);
    let by = || object.by.as_deref().filter(|by| !by.is_empty());
    let own = || Cow::Borrowed(by().unwrap_or(object.key.as_str()));
    said.unwrap_or_else(own)
}

impl About {
    /// What an object of a type with this phrase is about, in a mail.
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

    /// What names it where it is another thing than the object: its address, or its title where it
    /// has none.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Other { title, url } | Self::Page { title, url } => {
                Some(url.as_deref().unwrap_or(title))
            }
            Self::Itself => None,
        }
    }

    /// Whether both are the same thing; an object that stands for itself is like no other.
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

/// A link without the place on its page. What begins with `#/` or `#!` is the page itself, in an
/// application that routes so.
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

    fn told(data: Value) -> (String, About) {
        let object = Object {
            by: Some("Ada".into()),
            data: data.into(),
            ..Object::bare(ObjectKey::stored("Comment:c1"))
        };
        (key(&object).into_owned(), About::of(&object, None))
    }

    #[test]
    fn mails_and_feeds_read_the_same_in_what_an_object_says() {
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
            // Nothing is said by these.
            (json!({"url": url}), "Ada", About::Itself),
            (json!({"title": ""}), "Ada", About::Itself),
            (json!(""), "Ada", About::Itself),
            (json!(7), "Ada", About::Itself),
            (json!(["Budget"]), "Ada", About::Itself),
            (json!(null), "Ada", About::Itself),
        ] {
            let expected = (key.to_owned(), about);
            assert_eq!(told(json!({"about": said})), expected, "{said}");
        }
        assert_eq!(told(Value::Null), ("Ada".to_owned(), About::Itself));
    }

    #[test]
    fn who_it_is_by_comes_after_what_it_says_and_before_itself() {
        let mut object = Object::bare(ObjectKey::stored("Comment:c1"));
        assert_eq!(key(&object), "Comment:c1");
        object.by = Some(String::new());
        assert_eq!(key(&object), "Comment:c1");
        object.by = Some("Ada".into());
        assert_eq!(key(&object), "Ada");
    }
}
