//! Objects of events: an artwork, a show, a document.
//!
//! An event names its object by id, and the type's policy names the model. The object's key is
//! `Model:id`. Whether an object still applies is checked whenever it is shown or emailed (P6).
//! Stacks do not store it.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use compact_str::{CompactString, format_compact};
use serde::{Deserialize, Serialize};

use super::audience::Point;
use super::json::Json;
use super::link;
use super::moment;
use super::name::{Invalid, ModelName, ObjectId};

/// The key of an object: `Model:id`, or the id alone if the object has no model.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ObjectKey(CompactString);

impl ObjectKey {
    /// Returns the key of an id. The id may already include the model.
    pub fn new(model: Option<&ModelName>, id: &ObjectId) -> Self {
        match model {
            Some(model) => {
                let id = without_model(model, id.as_str()).unwrap_or(id.as_str());
                Self(format_compact!("{model}:{id}"))
            }
            None => Self(CompactString::new(id.as_str())),
        }
    }

    /// Wraps a key from the store.
    pub fn stored(text: impl AsRef<str>) -> Self {
        Self(CompactString::new(text))
    }

    /// Returns the key as it is stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the model and the id, if the key has a colon.
    pub fn parts(&self) -> Option<(&str, &str)> {
        self.0.split_once(':')
    }
}

/// Returns the id in `Model:id`, if the model is this one.
fn without_model<'a>(model: &ModelName, id: &'a str) -> Option<&'a str> {
    let id = id.strip_prefix(model.as_str())?.strip_prefix(':')?;
    (!id.is_empty()).then_some(id)
}

impl ObjectId {
    /// Returns the id as events store it: with the model `Artwork`, `A1` for both `A1` and
    /// `Artwork:A1`.
    pub fn of_model(self, model: Option<&ModelName>) -> Self {
        let bare = model.and_then(|model| without_model(model, self.as_str()));
        bare.map(Self::stored).unwrap_or(self)
    }
}

impl FromStr for ObjectKey {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Ok(Self(CompactString::new(ObjectId::new(text)?.as_str())))
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0.as_str(), f)
    }
}

impl<'de> Deserialize<'de> for ObjectKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        CompactString::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// The longest title, byline or link, in bytes.
pub const MAX_TEXT: usize = 16 << 10;
/// The most `data`, in bytes of JSON. It keeps every record below MongoDB's limit of 16 MB.
pub const MAX_DATA: usize = 1 << 20;

/// The record of an object, as feeds and emails show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Object {
    /// The `_id` of the record, derived from an event's type and object id.
    #[serde(rename(serialize = "_id", deserialize = "id"), alias = "_id")]
    pub key: ObjectKey,
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
        deserialize_with = "moment::read_if_any"
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

impl Object {
    /// Creates an object with nothing but a key.
    pub fn bare(key: ObjectKey) -> Self {
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
    pub fn check(&self) -> Result<(), Invalid> {
        self.check_size()?;
        for (what, link) in [("object url", &self.url), ("object image", &self.image)] {
            if let Some(link) = link {
                link::check(link).map_err(|why| Invalid::new(what, link, why))?;
            }
        }
        Ok(())
    }

    fn check_size(&self) -> Result<(), Invalid> {
        let texts = [
            ("object title of", &self.title),
            ("object url of", &self.url),
            ("object image of", &self.image),
            ("object by of", &self.by),
        ];
        for (what, text) in texts {
            let bytes = text.as_ref().map_or(0, String::len);
            if bytes > MAX_TEXT {
                let why = format!("bytes is more than the {MAX_TEXT} that can be kept; shorten it");
                return Err(Invalid::limit(what, bytes, why));
            }
        }
        let bytes = self.data.bytes();
        if bytes > MAX_DATA {
            let why = format!(
                "bytes of JSON is more than the {MAX_DATA} that can be kept; keep there what mails show, and the rest elsewhere"
            );
            return Err(Invalid::limit("object data of", bytes, why));
        }
        Ok(())
    }

    /// Returns the number of bytes in all texts, for the limits of caches.
    pub fn bytes(&self) -> usize {
        let texts = [&self.title, &self.url, &self.image, &self.by];
        let texts = texts.into_iter().flatten().map(String::len);
        self.key.as_str().len() + texts.sum::<usize>() + self.data.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_model_and_the_id() {
        let key = ObjectKey::new(
            Some(&ModelName::new("Artwork").unwrap()),
            &ObjectId::new("A:1").unwrap(),
        );
        assert_eq!(key.as_str(), "Artwork:A:1");
        assert_eq!(key.parts(), Some(("Artwork", "A:1")));
        assert_eq!(
            ObjectKey::new(None, &ObjectId::new("0").unwrap()).as_str(),
            "0"
        );
    }

    #[test]
    fn an_id_means_the_same_with_and_without_its_model() {
        let model = ModelName::new("Artwork").unwrap();
        let id = |text: &str| ObjectId::new(text).unwrap();
        for text in ["A1", "Artwork:A1"] {
            assert_eq!(
                ObjectKey::new(Some(&model), &id(text)).as_str(),
                "Artwork:A1"
            );
            assert_eq!(id(text).of_model(Some(&model)), id("A1"));
        }
        for text in ["Artwork:", "Show:A1", "ArtworkA1"] {
            assert_eq!(id(text).of_model(Some(&model)), id(text));
        }
        assert_eq!(id("Artwork:A1").of_model(None), id("Artwork:A1"));
    }

    #[test]
    fn a_link_that_is_not_a_web_address_is_rejected() {
        let mut object = Object::bare("Artwork:1".parse().unwrap());
        object.url = Some("javascript:alert(1)".into());
        assert!(
            object
                .check()
                .unwrap_err()
                .to_string()
                .contains("object url")
        );
    }
}
