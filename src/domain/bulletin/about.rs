//! What an object is about: the document that a comment stands on, or the object itself.
//!
//! The rule: `data.about` says it, as a title or as `{"title", "url"}`. Where it says nothing, an
//! object of a type with a phrase is about the page it is on, so that four comments whose objects
//! are called `Budget` are about one budget; any other object stands for itself.

use serde_json::Value;

use crate::domain::name::ObjectId;
use crate::domain::object::Object;

/// Whether objects are what somebody did to something ("commented on"), or things themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Deed,
    Thing,
}

/// What something is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// What it is called; it tells groups apart together with the address.
    pub subject: Subject,
    /// Where it can be looked at; `None` where the object's record does not say.
    pub url: Option<String>,
}

/// What it is called, and whether it is the objects themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// Another thing than the objects, by its title.
    Other(String),
    /// The page that all the objects are on, by the title they share.
    Page(String),
    /// The one object with this id.
    Itself(ObjectId),
}

impl About {
    pub(super) fn of(id: &ObjectId, object: &Object, kind: Kind) -> Self {
        if let Some(other) = other(&object.data) {
            return other;
        }
        let title = object.title.as_deref().map(str::trim);
        match title.filter(|title| !title.is_empty()) {
            Some(title) if kind == Kind::Deed => Self {
                subject: Subject::Page(title.to_owned()),
                url: object.url.as_deref().map(|url| page(url).to_owned()),
            },
            _ => Self {
                subject: Subject::Itself(id.clone()),
                url: object.url.clone(),
            },
        }
    }
}

fn other(data: &Value) -> Option<About> {
    let text = |value: &Value| {
        let text = value.as_str()?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    };
    let about = data.get("about")?;
    let field = |name: &str| about.get(name).and_then(text);
    let (title, url) = (text(about).or_else(|| field("title"))?, field("url"));
    Some(About {
        subject: Subject::Other(title),
        url,
    })
}

/// A link without the place on its page. What begins with `#/` or `#!` is the page itself, in an
/// application that routes so.
fn page(url: &str) -> &str {
    match url.split_once('#') {
        Some((page, place)) if !place.starts_with(['/', '!']) => page,
        _ => url,
    }
}
