//! Determines which emails form a thread: those of batches with a single topic.
//!
//! The topic comes from the object's record, so it is the same for every user and email. An email
//! that may have other topics belongs to no thread.

use super::{Content, Group};

impl Content {
    /// Returns the topic of all events: its URL, its title, or the key of an object that is its own
    /// topic.
    ///
    /// `None` if there are several topics, or if events are counted without being shown in a
    /// section.
    pub fn thread(&self) -> Option<&str> {
        let counted: u64 = self.sections.iter().map(|section| section.total).sum();
        if self.not_kept > 0 || counted != self.total {
            return None;
        }
        let mut sections = self.sections.iter();
        let only = |section: &'_ super::Section| section.abouts == 1;
        let first = sections.next().filter(|section| only(section))?;
        let name = first.groups.first()?.known_as()?;
        let is_same = |section: &super::Section| {
            let group = section.groups.first().filter(|_| only(section));
            group.and_then(Group::known_as) == Some(name)
        };
        sections.all(is_same).then_some(name)
    }
}

impl Group {
    fn known_as(&self) -> Option<&str> {
        let itself = || Some(self.items.first()?.object.key.as_str());
        self.about.name().or_else(itself)
    }
}
