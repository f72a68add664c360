//! Finds the messages that appear in English because the folder's catalogs lack them.
//!
//! A language with a built-in catalog has no gaps, because that catalog supplies the missing
//! messages.

use std::collections::{BTreeMap, BTreeSet};

use super::super::bundle::{OURS, truncated};
use super::file::{self, Own};

/// The missing messages of a catalog whose language has no built-in catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The file name in the `locales` folder.
    pub file: String,
    /// The locale of the catalog.
    pub locale: String,
    /// The messages that neither it nor a fallback of its language has.
    pub missing: Vec<String>,
    /// The number of messages in the English catalog.
    pub of: usize,
}

pub(super) fn find(own: &BTreeMap<String, Own>) -> Vec<Gap> {
    /// Optional: the default is left to right.
    const DIRECTION: &str = "direction";
    let is_ours = |tag: &String| OURS.iter().any(|(ours, _)| ours == tag);
    let theirs = own
        .iter()
        .filter(|(tag, _)| !truncated(tag).any(|tag| is_ours(&tag)));
    let gap = |(tag, catalog): (&String, &Own)| {
        let said = truncated(tag).filter_map(|tag| own.get(&tag));
        let said: BTreeSet<String> = said
            .flat_map(|said| file::messages(&said.resource).into_keys())
            .collect();
        let missing = file::KNOWN.keys().filter(|name| !said.contains(*name));
        Gap {
            file: catalog.file.clone(),
            locale: tag.clone(),
            missing: missing.filter(|name| *name != DIRECTION).cloned().collect(),
            of: file::KNOWN.len(),
        }
    };
    let gaps = theirs.map(gap);
    gaps.filter(|gap| !gap.missing.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Catalogs;
    use crate::render::bundle::{BUILT_IN, ENGLISH};

    #[test]
    fn missing_messages_of_a_folders_catalogs_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let locales = folder.path().join("locales");
        std::fs::create_dir(&locales).unwrap();
        let english = BUILT_IN.iter().find(|(tag, _)| *tag == ENGLISH).unwrap().1;
        let but = english.replace("see-online = See it online\n", "");
        let all = but.replace("direction = ltr\n", "");
        for (name, text) in [
            ("sv.ftl", all.as_str()),
            ("sv-FI.ftl", "see-online = Se den\n"),
            ("DA.ftl", "own-hello = Hej\n"),
            // Built-in catalogs supply the messages that these two lack.
            ("de.ftl", "see-online = Ansehen\n"),
            ("pt-PT.ftl", "see-online = Ver\n"),
        ] {
            std::fs::write(locales.join(name), text).unwrap();
        }

        let catalogs = Catalogs::load(Some(folder.path())).unwrap();

        let gaps: Vec<(&str, usize)> = catalogs
            .gaps()
            .iter()
            .map(|gap| (gap.locale.as_str(), gap.missing.len()))
            .collect();
        let [all, _] = catalogs.gaps() else {
            panic!("{gaps:?}")
        };
        assert_eq!(gaps, [("da", all.of - 1), ("sv", 1)]);
        assert_eq!(catalogs.gaps()[0].file, "DA.ftl");
        assert_eq!(catalogs.gaps()[1].missing, ["see-online"]);
        assert!(Catalogs::load(None).unwrap().gaps().is_empty());
    }
}
