//! Which mails are on one thread: those of batches that tell of one thing and of nothing else.
//!
//! The rule: what names a thread is said by the object's record, so it is the same for everybody
//! and in every mail. Where a mail may tell of something else as well, it is on no thread.

use super::{Content, Group};

impl Content {
    /// The name of the one thing that all of it is about: its address, or its title where it has
    /// none, or the key of the object that stands for itself. `None` where it is about several, or
    /// where something is counted that is not shown by its thing.
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
