//! Details of an event beyond its type and objects: actor, text, brand and data for the feed.
//!
//! They are stored once per event, in the journal, and found by the `i` of the entries. The number
//! of recipients does not matter. Workers delete them with the journal entry, after the event has
//! expired.

use serde::{Deserialize, Serialize};

use super::audience::{Audience, Selector};
use super::json_text::Json;
use super::name::{BrandName, FollowKey, InvalidValue, UserId};
use super::text_checks::check_link;

/// The longest text, in characters.
pub const MAX_TEXT_CHARS: usize = 500;
/// The most `data`, in bytes of JSON.
pub const MAX_DATA_BYTES: usize = 2 << 10;

/// The most follow keys that are stored with an event's details. If it has more, none is stored.
pub const MAX_NAMED_KEYS: usize = 8;
/// The prefix of the reason of an event for the followers of one key.
const FOLLOWS: &str = "follows ";

/// The longest link of an actor, in bytes.
pub const MAX_LINK: usize = 2 << 10;

/// The person or machine that caused an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Actor {
    /// The id. A user with this id is not notified, unless the request asks for it.
    pub id: UserId,
    /// The name to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The URL of a page about the actor: `http` or `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The URL of a picture: `http` or `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

impl Actor {
    /// Creates an actor with nothing but an id.
    pub fn bare(id: UserId) -> Self {
        Self { id, name: None, url: None, image: None }
    }

    fn check(&self) -> Result<(), InvalidValue> {
        if let Some(name) = &self.name {
            // Actor names follow the rules of all names.
            UserId::new(name).map_err(|why| InvalidValue { what: "actor name", ..why })?;
        }
        for (what, link) in [("actor url", &self.url), ("actor image", &self.image)] {
            let Some(link) = link else { continue };
            if link.len() > MAX_LINK {
                let why = format!("is longer than {MAX_LINK} bytes");
                return Err(InvalidValue::new(what, link, why));
            }
            check_link(link).map_err(|why| InvalidValue::new(what, link, why))?;
        }
        Ok(())
    }
}

/// The details of an event.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Details {
    /// The actor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    /// The brand; `None` for the brand of each user. Digests exclude types whose events may name
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brand: Option<BrandName>,
    /// A message in plain text, up to [`MAX_TEXT_CHARS`] characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Further data for the application's feed, passed through: up to [`MAX_DATA_BYTES`] bytes.
    #[serde(default, skip_serializing_if = "Json::is_null")]
    pub data: Json,
    /// Why users get the event: see [`Details::reason_for`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The keys whose followers get the event, if there are several: see [`Details::follow_keys`].
    #[serde(skip)]
    pub keys: Vec<FollowKey>,
}

impl Details {
    /// Checks the actor, the text and the size of the data.
    pub fn check(&self) -> Result<(), InvalidValue> {
        if let Some(actor) = &self.actor {
            actor.check()?;
        }
        if let Some(text) = &self.text {
            let characters = text.chars().count();
            let why = format_args!(
                "characters is more than the {MAX_TEXT_CHARS} that an event's text has"
            );
            InvalidValue::check_limit("text of", characters, MAX_TEXT_CHARS, why)?;
            let is_forbidden = |c: char| c.is_control() && c != '\n' && c != '\t';
            if text.trim().is_empty() || text.contains(is_forbidden) {
                let why = "is not a text without control characters; leave it out if there is none";
                return Err(InvalidValue::new("text", text.escape_debug(), why));
            }
        }
        let why = format_args!("bytes is more than the {MAX_DATA_BYTES} that an event's data has");
        InvalidValue::check_limit("data of", self.data.bytes(), MAX_DATA_BYTES, why)
    }

    /// Returns why users get an event with this audience, in the words of the feed API: `named`,
    /// `near`, or `follows KEY`. With several keys it is `follows` alone.
    pub fn reason_for(audience: &Audience) -> String {
        match &audience.to {
            Selector::Users(_) => "named".to_owned(),
            Selector::Near { .. } => "near".to_owned(),
            Selector::FollowersOf(keys) => match keys.as_slice() {
                [key] => format!("{FOLLOWS}{key}"),
                _ => FOLLOWS.trim_end().to_owned(),
            },
        }
    }

    /// Returns the number of bytes in all texts, for the limits of caches.
    pub fn bytes(&self) -> usize {
        let sum = |texts: &[&Option<String>]| {
            texts.iter().copied().flatten().map(String::len).sum::<usize>()
        };
        let actor = self.actor.as_ref().map_or(0, |actor| {
            actor.id.as_str().len() + sum(&[&actor.name, &actor.url, &actor.image])
        });
        let keys: usize = self.keys.iter().map(|key| key.as_str().len()).sum();
        actor + sum(&[&self.text, &self.reason]) + keys + self.data.bytes()
    }

    /// Returns the key whose followers get the event, if there is exactly one.
    pub fn followed(&self) -> Option<&str> {
        self.reason.as_deref()?.strip_prefix(FOLLOWS)
    }

    /// Returns the keys of an audience that has 2 to [`MAX_NAMED_KEYS`] of them; otherwise none.
    pub fn named_keys(audience: &Audience) -> Vec<FollowKey> {
        match &audience.to {
            Selector::FollowersOf(keys) if (2..=MAX_NAMED_KEYS).contains(&keys.len()) => {
                keys.clone()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the keys whose followers get the event. Empty for other audiences and for more than
    /// [`MAX_NAMED_KEYS`] keys.
    pub fn follow_keys(&self) -> Vec<FollowKey> {
        match self.followed() {
            Some(key) => vec![FollowKey::stored(key)],
            None => self.keys.clone(),
        }
    }

    /// Returns whether the writer gave the same details. The reason is ignored, because it follows
    /// from the audience.
    pub fn has_same_content(&self, other: &Self) -> bool {
        self.actor == other.actor
            && self.brand == other.brand
            && self.text == other.text
            && self.data.is_equivalent(&other.data)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refused(text: Option<&str>, data: Value) -> Option<String> {
        let details =
            Details { text: text.map(str::to_owned), data: data.into(), ..Details::default() };
        details.check().err().map(|why| why.to_string())
    }

    #[test]
    fn details_up_to_the_limits_are_accepted() {
        let longest = "ü".repeat(MAX_TEXT_CHARS);
        let data = |bytes: usize| json!("x".repeat(bytes - 2));

        assert_eq!(refused(Some(&longest), data(MAX_DATA_BYTES)), None);
        assert_eq!(refused(None, Value::Null), None);
        assert_eq!(refused(Some("a\n\tb"), json!({"a": 1})), None);
        let text = refused(Some(&format!("{longest}u")), Value::Null).unwrap();
        assert_eq!(text, "text of 501 characters is more than the 500 that an event's text has");
        let data = refused(None, data(MAX_DATA_BYTES + 1)).unwrap();
        assert!(data.contains("2049") && data.contains("2048"), "{data}");
    }

    #[test]
    fn an_actor_needs_a_name_and_valid_links() {
        let actor = Actor::bare(UserId::stored("ada"));
        let refused = |actor: Actor| actor.check().map_err(|why| why.what);
        let link = |link: &str| Some(link.to_owned());

        assert_eq!(refused(actor.clone()), Ok(()));
        let image = link("javascript:alert(1)");
        assert_eq!(refused(Actor { image, ..actor.clone() }), Err("actor image"));
        let url = link(&format!("https://{}", "x".repeat(MAX_LINK)));
        assert_eq!(refused(Actor { url, ..actor.clone() }), Err("actor url"));
        let name = Some(" ".into());
        assert_eq!(refused(Actor { name, ..actor }), Err("actor name"));
    }

    #[test]
    fn empty_text_and_control_characters_are_rejected() {
        for odd in ["", " \n", "a\u{0}b", "\u{1b}[2J"] {
            let why = refused(Some(odd), Value::Null).unwrap();
            assert!(why.contains("leave it out"), "{why}");
        }
    }
}
