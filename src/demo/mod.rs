//! A small invented gallery for trying tidings: 12 artists, 60 works, and 8 users who follow some
//! of them.
//!
//! It acts like an application: it publishes through the same engine as the HTTP API. `tidings
//! demo` tells a story in it, and `serve --demo` lets visitors try it ([`Gallery`]). Both use the
//! same [`folder`].

pub(crate) mod folder;
mod gallery;
mod picture;

pub use gallery::Gallery;
pub(crate) use picture::of as picture;

/// The ids in `people.ndjson`; a test compares them.
pub(crate) const PEOPLE: [&str; 8] = ["ada", "bo", "kenji", "lev", "mara", "nia", "otto", "uma"];

#[cfg(test)]
mod tests {
    #[test]
    fn the_id_of_every_user_is_the_lowercase_name() {
        let known: Vec<String> = include_str!("data/people.ndjson")
            .lines()
            .map(|line| {
                let user: serde_json::Value = serde_json::from_str(line).unwrap();
                let (id, name) = (user["id"].as_str(), user["name"].as_str());
                assert_eq!(id.map(str::to_owned), name.map(str::to_lowercase));
                id.unwrap().to_owned()
            })
            .collect();
        assert_eq!(known, super::PEOPLE);
    }
}
