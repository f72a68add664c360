//! What the writer of an event says of it beyond its type and its objects: in which words, and
//! whatever else the feed is to show.
//!
//! The rule: they are kept once an event, in the journal, and found by the `i` of its entries;
//! stacks hold nothing of them. So a million people cost no more than one, and what is said is gone
//! with the event's day.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::audience::{Audience, Selector};
use super::name::Invalid;

/// The longest text, in characters.
pub const MAX_TEXT: usize = 500;
/// The most `data`, in bytes of JSON.
pub const MAX_DATA: usize = 2 << 10;

/// What is said of an event.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Details {
    /// What was said or done, in plain words: up to [`MAX_TEXT`] characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Whatever else the application's feed shows, passed through: up to [`MAX_DATA`] bytes.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub data: Value,
    /// Why it concerns people: see [`Details::reason_of`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Details {
    /// Whether a journal can keep them and a feed can show them.
    pub fn check(&self) -> Result<(), Invalid> {
        if let Some(text) = &self.text {
            let characters = text.chars().count();
            if characters > MAX_TEXT {
                let why =
                    format!("characters are more than the {MAX_TEXT} that an event's text has");
                return Err(Invalid::limit("text of", characters, why));
            }
            let odd = |c: char| c.is_control() && c != '\n' && c != '\t';
            if text.trim().is_empty() || text.contains(odd) {
                let why = "is not a text without control characters; leave it out if there is none";
                return Err(Invalid::new("text", text.escape_debug(), why));
            }
        }
        let bytes = if self.data.is_null() {
            0
        } else {
            self.data.to_string().len()
        };
        if bytes > MAX_DATA {
            let why = format!("bytes are more than the {MAX_DATA} that an event's data has");
            return Err(Invalid::limit("data of", bytes, why));
        }
        Ok(())
    }

    /// Why an event of this audience concerns people, in a feed's words: `named`, `near`, or whose
    /// follower somebody is. Of several keys it is not said which.
    pub fn reason_of(audience: &Audience) -> String {
        match &audience.to {
            Selector::Users(_) => "named".to_owned(),
            Selector::Near { .. } => "near".to_owned(),
            Selector::FollowersOf(keys) => match keys.as_slice() {
                [key] => format!("follows {key}"),
                _ => "follows".to_owned(),
            },
        }
    }

    /// Whether its writer said the same; the reason is not its writer's.
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.text == other.text && self.data == other.data
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(text: Option<&str>, data: Value) -> Option<String> {
        let details = Details {
            text: text.map(str::to_owned),
            data,
            reason: None,
        };
        details.check().err().map(|why| why.to_string())
    }

    #[test]
    fn as_much_as_is_allowed_is_taken_and_no_more() {
        let longest = "ü".repeat(MAX_TEXT);
        let data = |bytes: usize| json!("x".repeat(bytes - 2));

        assert_eq!(refused(Some(&longest), data(MAX_DATA)), None);
        assert_eq!(refused(None, Value::Null), None);
        assert_eq!(refused(Some("a\n\tb"), json!({"a": 1})), None);
        let text = refused(Some(&format!("{longest}u")), Value::Null).unwrap();
        assert!(text.contains("501") && text.contains("500"), "{text}");
        let data = refused(None, data(MAX_DATA + 1)).unwrap();
        assert!(data.contains("2049") && data.contains("2048"), "{data}");
    }

    #[test]
    fn what_is_no_text_is_refused() {
        for odd in ["", " \n", "a\u{0}b", "\u{1b}[2J"] {
            let why = refused(Some(odd), Value::Null).unwrap();
            assert!(why.contains("leave it out"), "{why}");
        }
    }
}
