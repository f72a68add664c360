//! What the languages of a folder's own leave to English.
//!
//! The rule: a language that we have a catalog of has no gaps, as ours says what the folder's
//! leaves out.

use std::collections::{BTreeMap, BTreeSet};

use super::super::bundle::{OURS, truncated};
use super::file::{self, Own};

/// What a folder's catalog of a language that we have none of leaves to English.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The file of the catalog, as it is called in its folder.
    pub file: String,
    /// The locale of the catalog.
    pub locale: String,
    /// The messages it has not, nor one that it falls back to.
    pub missing: Vec<String>,
    /// How many messages there are.
    pub of: usize,
}

/// The gaps of these catalogs of a folder.
pub(super) fn find(own: &BTreeMap<String, Own>) -> Vec<Gap> {
    /// Left out where words run from left to right.
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
    fn what_a_language_of_a_folders_own_lacks_is_known() {
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
            // What these leave out, ours say.
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
