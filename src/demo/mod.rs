//! A small invented gallery for trying tidings: 12 artists, 60 works, and 8 users who follow some
//! of them.
//!
//! It acts like an application: it publishes through the same engine as the HTTP API. `tidings
//! demo` tells a story in it, and `serve --demo` lets visitors try it ([`Gallery`]). Both use the
//! same [`folder`].

pub(crate) mod folder;
mod gallery;

pub use gallery::Gallery;

use crate::domain::coordination::fnv1a;

/// The ids in `people.ndjson`; a test compares them.
pub(crate) const USER_IDS: [&str; 8] = ["ada", "bo", "kenji", "lev", "mara", "nia", "otto", "uma"];

/// A background, three colors, and a dark color.
const PALETTES: [[&str; 5]; 8] = [
    ["#f3e3cf", "#d9622b", "#2f5d62", "#e8b04b", "#23303a"],
    ["#e6ecef", "#3d6b8c", "#e07a5f", "#f2cc8f", "#1f2d3d"],
    ["#f6efe4", "#8a3b12", "#c98b5a", "#5f6f52", "#2b211b"],
    ["#e9e4f0", "#6b4e9b", "#d1677f", "#e9b872", "#2a2140"],
    ["#e3efe6", "#2d7a5f", "#9cc5a1", "#e2a03f", "#16352b"],
    ["#fbe9e3", "#c8553d", "#588b8b", "#ffd5c2", "#2d2a32"],
    ["#e8eef7", "#27476e", "#7aa6c2", "#f0a868", "#14213d"],
    ["#f4ecd8", "#a44a3f", "#6a8d73", "#d9ae61", "#33261d"],
];

/// A random number generator (xorshift).
struct Dice(u64);

impl Dice {
    /// Creates a generator that always returns the same numbers for this name.
    fn from_name(name: &str) -> Self {
        Self(fnv1a(name) | 1)
    }

    /// Returns a number in `start..end`.
    fn roll(&mut self, start: u32, end: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let span = u64::from(end.saturating_sub(start).max(1));
        start + ((self.0 >> 20) % span) as u32
    }
}

/// Returns the picture of this name, as SVG: three ranges of hills, and a sun.
pub(crate) fn picture(name: &str) -> String {
    let mut dice = Dice::from_name(name);
    let [ground, a, b, c, dark] = PALETTES[dice.roll(0, PALETTES.len() as u32) as usize];
    let (x, y, r) = (dice.roll(60, 260), dice.roll(46, 96), dice.roll(22, 44));
    let mut shapes = format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{r}\" fill=\"{c}\"/>");
    for (base, color) in [(110, b), (148, a), (186, dark)] {
        let [p, q, s] = [0; 3].map(|_| base + dice.roll(0, 46));
        let (above_p, above_s) = (p - 40, s - 26);
        shapes += &format!(
            "<path d=\"M0 {p}C80 {above_p} 130 {q} 180 {s}S270 {above_s} 320 {q}V240H0Z\" fill=\"{color}\"/>"
        );
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" height=\"480\" viewBox=\"0 0 320 240\" preserveAspectRatio=\"xMidYMid slice\">\
         <rect width=\"320\" height=\"240\" fill=\"{ground}\"/>{shapes}</svg>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(known, USER_IDS);
    }

    #[test]
    fn each_name_has_its_own_picture_that_does_not_contain_it() {
        assert_eq!(picture("W01"), picture("W01"));
        assert_ne!(picture("W01"), picture("W02"));
        assert_ne!(picture("ada"), picture("mara"));
        assert!(!picture("<script>").contains("script"));
        let pictures: Vec<String> = (0..99).map(|n| picture(&format!("N{n}"))).collect();
        assert!(pictures.iter().all(|svg| svg.starts_with("<svg ") && svg.len() < 4_000));
    }
}
