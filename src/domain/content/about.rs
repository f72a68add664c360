//! What an item is about: the document that a comment stands on, or the item's object itself.
//!
//! The rule: `data.about` says it, as a title or as `{"title", "url"}`. Where it says nothing, an
//! object of a type with a phrase is about the page it is on, so that four comments whose objects
//! are called `Budget` are about one budget; any other object stands for itself.

use serde_json::Value;

use crate::domain::object::Object;
use crate::domain::policy::Phrase;

/// What all items of a group are about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// Another thing than the objects, and where it can be looked at.
    Other {
        /// What it is called; it tells groups apart together with the address.
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

impl About {
    /// What an object of a type with this phrase is about.
    pub(super) fn of(object: &Object, phrase: Option<&Phrase>) -> Self {
        if let Some(other) = other(&object.data) {
            return other;
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
}

fn other(data: &Value) -> Option<About> {
    let text = |value: &Value| {
        let text = value.as_str()?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    };
    let about = data.get("about")?;
    let field = |name: &str| about.get(name).and_then(text);
    let (title, url) = (text(about).or_else(|| field("title"))?, field("url"));
    Some(About::Other { title, url })
}

/// A link without the place on its page. What begins with `#/` or `#!` is the page itself, in an
/// application that routes so.
fn page(url: &str) -> &str {
    match url.split_once('#') {
        Some((page, place)) if !place.starts_with(['/', '!']) => page,
        _ => url,
    }
}
