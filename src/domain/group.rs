//! Groups feed items of one day, one type and one topic.
//!
//! A group has the position of its newest item. It contains items of one day, so new events do not
//! move the groups of past days. All pages show the state at the first request. A group that grows
//! meanwhile therefore does not move to another page.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use super::day::Day;
use super::feed::{Cursor, MAX_TEXT};
use super::name::{EventType, Invalid};
use super::stack::Position;

/// The identity of a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GroupKey {
    /// The day of the items.
    pub day: Day,
    /// The event type.
    pub kind: EventType,
    /// The topic of the objects ([`super::about::key`]).
    pub about: String,
}

/// The end of a page: `20140422.17`, or `20140422.17~c20140421.3-20140422.18` if it lists groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageEnd {
    /// The position of the last item, or of the newest item in the last group.
    pub place: Position,
    /// For groups, the cursor of the first page.
    pub cursor: Option<Cursor>,
}

impl fmt::Display for PageEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place)?;
        match &self.cursor {
            Some(cursor) => write!(f, "~{cursor}"),
            None => Ok(()),
        }
    }
}

impl FromStr for PageEnd {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let Some((place, cursor)) = text.split_once('~') else {
            let (place, cursor) = (text.parse()?, None);
            return Ok(Self { place, cursor });
        };
        let refuse = || Invalid::new("before", text, "is no `next` that a page gave");
        if text.len() > MAX_TEXT {
            return Err(refuse());
        }
        Ok(Self {
            place: place.parse().map_err(|_| refuse())?,
            cursor: Some(cursor.parse().map_err(|_| refuse())?),
        })
    }
}

impl serde::Serialize for PageEnd {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Groups items that are ordered newest first. Groups and their items keep that order.
pub fn grouped<T>(items: impl IntoIterator<Item = (GroupKey, T)>) -> Vec<(GroupKey, Vec<T>)> {
    let mut places: HashMap<GroupKey, usize> = HashMap::new();
    let mut groups: Vec<(GroupKey, Vec<T>)> = Vec::new();
    for (key, item) in items {
        match places.get(&key) {
            Some(&place) => groups[place].1.push(item),
            None => {
                places.insert(key.clone(), groups.len());
                groups.push((key, vec![item]));
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_page_round_trips() {
        for text in ["20140422.17~c20140421.3-20140422.18", "20140422.17"] {
            assert_eq!(text.parse::<PageEnd>().unwrap().to_string(), text);
        }
        for garbled in ["", "20140422.17~", "~c", "x~c", "20140422.17~c~c"] {
            assert!(garbled.parse::<PageEnd>().is_err(), "{garbled}");
        }
    }
}
