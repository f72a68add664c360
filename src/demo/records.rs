//! Reads the gallery's works.

use crate::domain::{FollowKey, Invalid};
use crate::wire::local::Work;

pub(super) const WORKS: &str = include_str!("data/works.ndjson");
/// The work that the story withdraws.
const WITHDRAWN: &str = "W04";

/// Returns all works that can be shown, newest first.
pub(super) fn works() -> Vec<Work> {
    // A test reads every line.
    let works = WORKS.lines().rev();
    let works = works.filter_map(|line| serde_json::from_str::<Work>(line).ok());
    works.filter(|work| work.id != WITHDRAWN).collect()
}

/// Returns the follow key of an artist: `artist:` and the family name.
pub(super) fn key(artist: &str) -> Result<FollowKey, Invalid> {
    let name = artist.rsplit(' ').next().unwrap_or_default();
    format!("artist:{}", name.to_lowercase()).parse()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_artist_has_works_and_followers() {
        let works = works();
        let followed: BTreeSet<String> = include_str!("data/follows.ndjson")
            .lines()
            .map(|line| {
                let follow: serde_json::Value = serde_json::from_str(line).unwrap();
                follow["key"].as_str().unwrap().to_owned()
            })
            .collect();

        let keys = works.iter().map(|work| key(&work.artist).unwrap());
        let keys: BTreeSet<String> = keys.map(|key| key.to_string()).collect();

        assert_eq!((works.len(), keys.len()), (59, 12));
        assert_eq!(keys, followed);
    }
}
