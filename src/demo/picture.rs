//! Draws pictures of works and portraits of users from their names alone.
//!
//! The same name gives the same picture, and the picture does not contain the name.

use super::PEOPLE;
use crate::domain::coordination::fnv1a;

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

/// A sequence of numbers from a name (FNV-1a, then xorshift).
struct Dice(u64);

impl Dice {
    fn of(name: &str) -> Self {
        Self(fnv1a(name) | 1)
    }

    /// Returns a number in `from..to`.
    fn roll(&mut self, from: u32, to: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let span = u64::from(to.saturating_sub(from).max(1));
        from + ((self.0 >> 20) % span) as u32
    }
}

/// Returns the picture of this name, as SVG.
pub(crate) fn of(name: &str) -> String {
    let mut dice = Dice::of(name);
    let palette = PALETTES[dice.roll(0, PALETTES.len() as u32) as usize];
    match PEOPLE.contains(&name) {
        true => portrait(&mut dice, palette),
        false => hills(&mut dice, palette),
    }
}

/// Returns the SVG of a drawing. It is twice as large as its coordinates.
fn framed((width, height): (u32, u32), ground: &str, drawn: &str) -> String {
    let (wide, high) = (width * 2, height * 2);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide}\" height=\"{high}\" viewBox=\"0 0 {width} {height}\">\
         <rect width=\"{width}\" height=\"{height}\" fill=\"{ground}\"/>{drawn}</svg>"
    )
}

/// Land behind land, and a sun.
fn hills(dice: &mut Dice, [ground, a, b, c, dark]: [&str; 5]) -> String {
    let (x, y, r) = (dice.roll(60, 260), dice.roll(46, 96), dice.roll(22, 44));
    let mut drawn = format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{r}\" fill=\"{c}\"/>");
    for (base, color) in [(110, b), (148, a), (186, dark)] {
        let [p, q, s] = [0; 3].map(|_| base + dice.roll(0, 46));
        let (above_p, above_s) = (p - 40, s - 26);
        drawn += &format!(
            "<path d=\"M0 {p}C80 {above_p} 130 {q} 180 {s}S270 {above_s} 320 {q}V240H0Z\" fill=\"{color}\"/>"
        );
    }
    framed((320, 240), ground, &drawn)
}

/// A head, hair and shoulders.
fn portrait(dice: &mut Dice, [ground, a, _, c, dark]: [&str; 5]) -> String {
    let skins = ["#f1c9a5", "#d99f74", "#b97a50", "#8d5a3b", "#6a4028"];
    let skin = skins[dice.roll(0, skins.len() as u32) as usize];
    let hair = [dark, a, "#4a3427", "#1d1a1a"][dice.roll(0, 4) as usize];
    let (fringe, long) = (dice.roll(34, 46), dice.roll(58, 104));
    let drawn = format!(
        "<path d=\"M26 62a34 36 0 0 1 68 0V{long}H26Z\" fill=\"{hair}\"/>\
         <rect x=\"51\" y=\"72\" width=\"18\" height=\"26\" fill=\"{skin}\"/>\
         <path d=\"M14 120a46 32 0 0 1 92 0Z\" fill=\"{c}\"/>\
         <circle cx=\"60\" cy=\"60\" r=\"26\" fill=\"{skin}\"/>\
         <path d=\"M33 58a27 29 0 0 1 54 0Q74 {fringe} 60 {fringe}T33 58Z\" fill=\"{hair}\"/>"
    );
    framed((120, 120), ground, &drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_its_own_picture_that_does_not_contain_it() {
        assert_eq!(of("W01"), of("W01"));
        assert_ne!(of("W01"), of("W02"));
        assert_ne!(of("ada"), of("mara"));
        assert!(!of("<script>").contains("script"));
        let drawn: Vec<String> = (0..99).map(|n| of(&format!("N{n}"))).collect();
        assert!(
            drawn
                .iter()
                .all(|drawn| drawn.starts_with("<svg ") && drawn.len() < 4_000)
        );
    }
}
