//! Items of a feed that are shown as one: of a day, of a type, about one thing.
//!
//! The rule: a group stands at the place of its newest item, and holds items of its day alone, so
//! those of past days stand still. Pages of groups are cut from what stood when the first of them
//! was asked for: a group that grows meanwhile does not move from one page to another.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use super::day::Day;
use super::feed::{Cursor, MAX_TEXT};
use super::name::{EventType, Invalid};
use super::stack::Position;

/// Which group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GroupKey {
    /// The day on which its items stand.
    pub day: Day,
    /// What happened.
    pub kind: EventType,
    /// What their objects are about ([`super::about::key`]).
    pub about: String,
}

/// Where a page ended: `20140422.17`, or of groups `20140422.17~c20140421.3-20140422.18`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageEnd {
    /// The last item, or the newest of the last group.
    pub place: Position,
    /// Of groups: what stood when the first page was asked for.
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

/// Sorts into groups, by these keys, what comes newest first: groups, newest first, and what is in
/// each.
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
    fn where_a_page_ended_is_read_as_it_was_written() {
        for text in ["20140422.17~c20140421.3-20140422.18", "20140422.17"] {
            assert_eq!(text.parse::<PageEnd>().unwrap().to_string(), text);
        }
        for garbled in ["", "20140422.17~", "~c", "x~c", "20140422.17~c~c"] {
            assert!(garbled.parse::<PageEnd>().is_err(), "{garbled}");
        }
    }
}
