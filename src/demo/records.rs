//! Reads the gallery's data for the page.

use serde::Deserialize;

use super::WORKS;
use crate::domain::{FollowKey, Invalid};
use crate::wire::demo::Work;

/// The work that the story withdraws.
pub(super) const WITHDRAWN: &str = "W04";

/// A line of `works.ndjson`.
#[derive(Deserialize)]
struct Line {
    id: String,
    title: String,
    artist: String,
    medium: String,
    year: u32,
}

/// Returns all works that can be shown, in their order.
pub(super) fn works() -> Vec<Work> {
    let lines = WORKS.lines();
    // A test reads every line.
    let lines = lines.filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let lines = lines.filter(|line| line.id != WITHDRAWN);
    let work = |line: Line| Work {
        picture: picture_path(&line.id),
        id: line.id,
        title: line.title,
        artist: line.artist,
        made: format!("{}, {}", line.medium, line.year),
    };
    lines.map(work).collect()
}

/// The path of a picture on the page's own server.
pub(crate) fn picture_path(id: &str) -> String {
    format!("/demo/pictures/{id}")
}

/// Returns the artists of these works, each once.
pub(super) fn artists(works: &[Work]) -> Vec<&str> {
    let mut artists: Vec<&str> = works.iter().map(|work| work.artist.as_str()).collect();
    artists.sort_unstable();
    artists.dedup();
    artists
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
    fn every_artist_has_works_and_is_followed_under_their_key() {
        let works = works();
        let artists = artists(&works);
        let followed: BTreeSet<String> = include_str!("data/follows.ndjson")
            .lines()
            .map(|line| {
                let follow: serde_json::Value = serde_json::from_str(line).unwrap();
                follow["key"].as_str().unwrap().to_owned()
            })
            .collect();

        let keys = artists.iter().map(|artist| key(artist).unwrap());
        let keys: BTreeSet<String> = keys.map(|key| key.to_string()).collect();

        assert_eq!((works.len(), artists.len()), (59, 12));
        assert_eq!(keys, followed);
    }
}
