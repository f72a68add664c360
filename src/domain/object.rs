//! Objects that events refer to, and their topics, such as the document that a comment was posted
//! on.
//!
//! An object states its topic in `data.about`, as a title or as `{"title", "url"}`. A topic is
//! identified by its URL, or by its title if it has none. Emails group objects without a topic by
//! page if their type has a phrase: all comments on the page `Budget` share a topic
//! ([`GroupTopic::of`]). Feeds group them by the object's author ([`feed_topic`]).

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use compact_str::{CompactString, format_compact};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::audience::Point;
use super::durations_and_times;
use super::json_text::{Json, parse_object};
use super::name::{InvalidValue, ModelName, ObjectId, check_name, checked_texts};
use super::text_checks::Phrase;
use super::text_checks::check_link;

checked_texts! {
    /// The key of an object: `Model:id`, or the id alone if the object has no model.
    ObjectKey: |text| check_name("object id", text);
}

impl ObjectKey {
    /// Returns the key of an id. The id may already include the model.
    pub fn from_parts(model: Option<&ModelName>, id: &ObjectId) -> Self {
        match model {
            Some(model) => {
                let bare_id = without_model(model, id.as_str()).unwrap_or(id.as_str());
                Self(format_compact!("{model}:{bare_id}"))
            }
            None => Self(CompactString::new(id.as_str())),
        }
    }

    /// Returns the model and the id, if the key has a colon.
    pub fn split(&self) -> Option<(&str, &str)> {
        self.0.split_once(':')
    }
}

/// Returns the id in `Model:id`, if the model is this one.
fn without_model<'a>(model: &ModelName, id: &'a str) -> Option<&'a str> {
    id.strip_prefix(model.as_str())?.strip_prefix(':').filter(|bare_id| !bare_id.is_empty())
}

/// An application's collection that contains the objects of a model. A field may be a path
/// (`artist.name`).
#[derive(Debug, Clone, PartialEq)]
pub struct ModelMapping {
    /// The name of the collection.
    pub collection: String,
    /// The database; `None` for the store's own.
    pub database: Option<String>,
    /// The field with the object id of events; `_id` by default.
    pub id: String,
    /// The filter that an object must match to be notifiable; empty for all.
    pub filter: toml::Table,
    /// The field of the title.
    pub title: Option<String>,
    /// The field of the URL, or a template of one: `https://gallery.example/artwork/{slug}`. Values
    /// in a template are percent-encoded.
    pub url: Option<String>,
    /// The field of the image URL, or a template as for `url`.
    pub image: Option<String>,
    /// The field of the author's name.
    pub by: Option<String>,
    /// The field of the object's time: a date, or text in RFC 3339 format.
    pub at: Option<String>,
    /// The field of the location: a GeoJSON point or `[longitude, latitude]`.
    pub place: Option<String>,
}

impl ObjectId {
    /// Returns the id as events store it: with the model `Artwork`, `A1` for both `A1` and
    /// `Artwork:A1`.
    pub fn strip_model(self, model: Option<&ModelName>) -> Self {
        let bare_id = model.and_then(|model| without_model(model, self.as_str()));
        bare_id.map(Self::stored).unwrap_or(self)
    }
}

/// The longest title, byline or link, in bytes.
pub const MAX_TEXT_BYTES: usize = 16 << 10;
/// The most `data`, in bytes of JSON. It keeps every record below MongoDB's limit of 16 MB.
pub const MAX_DATA_BYTES: usize = 1 << 20;

/// The record of an object, as feeds and emails show it. Its key is optional in a request whose
/// path names it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Object<K = ObjectKey> {
    /// The `_id` of the record, derived from an event's type and object id.
    #[serde(rename(serialize = "_id", deserialize = "id"), alias = "_id")]
    pub key: K,
    /// Whether events about it may still notify users. A withdrawn object stays stored with
    /// `false`.
    #[serde(default = "yes")]
    pub notifiable: bool,
    /// The title. Without one, [`Object::label`] returns the topic's title or the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The URL of its page: `http` or `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The URL of a picture: `http` or `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The author, shown as a byline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// A date of the object, such as its opening or creation. The times of events do not depend on
    /// it.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "durations_and_times::deserialize_optional_time"
    )]
    pub at: Option<DateTime<Utc>>,
    /// The location of the object. Audiences near a point use the users' places, not this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Point>,
    /// Further data for the application's templates and feeds, passed through.
    #[serde(default, skip_serializing_if = "Json::is_null")]
    pub data: Json,
}

fn yes() -> bool {
    true
}

impl<K> Object<K> {
    /// Replaces the key by what `map` returns for it.
    pub fn map_key<L, E>(self, map: impl FnOnce(K) -> Result<L, E>) -> Result<Object<L>, E> {
        Ok(Object {
            key: map(self.key)?,
            notifiable: self.notifiable,
            title: self.title,
            url: self.url,
            image: self.image,
            by: self.by,
            at: self.at,
            place: self.place,
            data: self.data,
        })
    }
}

impl Object {
    /// Creates an object with nothing but a key.
    pub fn without_data(key: ObjectKey) -> Self {
        Self {
            key,
            notifiable: true,
            title: None,
            url: None,
            image: None,
            by: None,
            at: None,
            place: None,
            data: Json::default(),
        }
    }

    /// Checks that links are web addresses, because emails use them in `href` and `src`, and that
    /// the record fits on every store.
    pub fn check(&self) -> Result<(), InvalidValue> {
        let texts = [
            ("object title of", &self.title),
            ("object url of", &self.url),
            ("object image of", &self.image),
            ("object by of", &self.by),
        ];
        for (what, text) in texts {
            let bytes = text.as_ref().map_or(0, String::len);
            let why = format_args!(
                "bytes is more than the {MAX_TEXT_BYTES} that can be kept; shorten it"
            );
            InvalidValue::check_limit(what, bytes, MAX_TEXT_BYTES, why)?;
        }
        let why = format_args!(
            "bytes of JSON is more than the {MAX_DATA_BYTES} that can be kept; keep there what emails \
             show, and the rest elsewhere"
        );
        InvalidValue::check_limit("object data of", self.data.bytes(), MAX_DATA_BYTES, why)?;
        for (what, link) in [("object url", &self.url), ("object image", &self.image)] {
            if let Some(link) = link {
                check_link(link).map_err(|why| InvalidValue::new(what, link, why))?;
            }
        }
        Ok(())
    }

    /// Returns the title of the topic that the object states; `None` if it states none.
    pub fn topic_title(&self) -> Option<String> {
        Topic::stated_by(self).map(|topic| topic.title)
    }

    /// Returns the text to show for the object: its title, its topic's title, or its key.
    pub fn label(&self) -> Cow<'_, str> {
        match &self.title {
            Some(title) => title.into(),
            None => self.topic_title().map_or(self.key.as_str().into(), Cow::Owned),
        }
    }

    /// Returns the number of bytes in all texts, for the limits of caches.
    pub fn bytes(&self) -> usize {
        let texts = [&self.title, &self.url, &self.image, &self.by].into_iter().flatten();
        self.key.as_str().len() + texts.map(String::len).sum::<usize>() + self.data.bytes()
    }
}

/// The topic that all items of a group share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupTopic {
    /// A topic that the objects state in `data.about`.
    Stated(Topic),
    /// The page of all objects: their title, and their URL without its fragment.
    Page(Topic),
    /// The only object of the group.
    Object,
}

/// The title and the page of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// The title; it identifies the topic if there is no URL.
    pub title: String,
    /// The URL, if there is one.
    pub url: Option<String>,
}

/// The field of `data` that states the topic. All other fields are ignored.
#[derive(Deserialize)]
struct AboutField<'a> {
    #[serde(borrow)]
    about: &'a RawValue,
}

#[derive(Deserialize)]
struct TitleAndUrl<'a> {
    #[serde(borrow)]
    title: &'a RawValue,
    #[serde(borrow, default)]
    url: Option<&'a RawValue>,
}

impl Topic {
    fn name(&self) -> &str {
        self.url.as_deref().unwrap_or(&self.title)
    }

    /// Returns the topic that the object states.
    fn stated_by(object: &Object) -> Option<Self> {
        let about = object.data.parse_object::<AboutField<'_>>()?.about;
        if let Some(title) = parse_text(about) {
            return Some(Self { title, url: None });
        }
        let stated: TitleAndUrl<'_> = parse_object(about.get())?;
        Some(Self { title: parse_text(stated.title)?, url: stated.url.and_then(parse_text) })
    }
}

/// Returns a JSON string without surrounding white space; `None` if it is empty or not a string.
pub fn parse_text(value: &RawValue) -> Option<String> {
    let text: String = serde_json::from_str(value.get()).ok()?;
    let trimmed = text.trim();
    (!trimmed.is_empty()).then(|| trimmed.to_owned())
}

/// Returns the topic by which feeds group an object: the stated topic, the author, or the object's
/// key. Requests name a group by this text.
pub fn feed_topic(object: &Object) -> Cow<'_, str> {
    if let Some(topic) = Topic::stated_by(object) {
        return Cow::Owned(topic.url.unwrap_or(topic.title));
    }
    let author = object.by.as_deref().filter(|author| !author.is_empty());
    Cow::Borrowed(author.unwrap_or(object.key.as_str()))
}

impl GroupTopic {
    /// Returns the topic of an object in an email. `phrase` is the phrase of the event's type.
    pub(super) fn of(object: &Object, phrase: Option<&Phrase>) -> Self {
        if let Some(topic) = Topic::stated_by(object) {
            return Self::Stated(topic);
        }
        let title = object.title.as_deref().map_or("", str::trim);
        if phrase.is_none() || title.is_empty() {
            return Self::Object;
        }
        let url = object.url.as_deref().map(|url| without_fragment(url).to_owned());
        Self::Page(Topic { title: title.to_owned(), url })
    }

    /// Returns the text that identifies the topic: its URL or title. `None` if the topic is the
    /// object itself.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Stated(topic) | Self::Page(topic) => Some(topic.name()),
            Self::Object => None,
        }
    }

    /// Returns whether both are the same topic. Two objects that are their own topics never are.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stated(one), Self::Stated(other)) => one.name() == other.name(),
            (Self::Page(one), Self::Page(other)) => one == other,
            _ => false,
        }
    }
}

/// Returns a URL without its fragment. Fragments that start with `#/` or `#!` stay, because
/// single-page applications route by them.
fn without_fragment(url: &str) -> &str {
    match url.split_once('#') {
        Some((page, fragment)) if !fragment.starts_with(['/', '!']) => page,
        _ => url,
    }
}

#[cfg(test)]
#[path = "object_tests.rs"]
mod tests;
