//! The appearance of the service in emails and pages.
//!
//! The accent color is adjusted so that it is legible on light and dark backgrounds. The adjusted
//! color has the contrast ratio that WCAG 2 requires of text, at least 4.5 to 1.

use std::fmt;

use serde::Serialize;

use super::safe_text::{MAX_NAME, MAX_SHORT_NAME, link, shorten};
use crate::domain::{InvalidValue, Site};

/// The most lines of a postal address.
const MAX_ADDRESS_LINES: usize = 8;

/// `site` in every template.
#[derive(Serialize)]
pub(super) struct SiteView {
    name: String,
    url: Option<String>,
    /// The URL of an image that shows the name.
    logo: Option<String>,
    /// The lines of the address.
    postal_address: Vec<String>,
    /// The accent color, legible on a light background.
    accent: String,
    /// The accent color, legible on a dark background.
    accent_dark: String,
}

impl SiteView {
    pub(super) fn of(site: &Site) -> Result<Self, InvalidValue> {
        let accent = Color::parse(&site.accent)?;
        let postal = site.postal_address.as_deref().unwrap_or_default();
        Ok(Self {
            name: shorten(&site.name, MAX_SHORT_NAME),
            url: site.url.as_deref().and_then(link).map(str::to_owned),
            logo: site.logo.as_deref().and_then(link).map(str::to_owned),
            postal_address: postal
                .lines()
                .map(|line| shorten(line, MAX_NAME))
                .filter(|line| !line.is_empty())
                .take(MAX_ADDRESS_LINES)
                .collect(),
            accent: accent.readable_on(PAPER).to_string(),
            accent_dark: accent.readable_on(NIGHT).to_string(),
        })
    }
}

/// A color, written `#rrggbb`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Color([u8; 3]);

/// The light and dark backgrounds of emails, as in `body.html`.
pub(super) const PAPER: Color = Color([0xff, 0xff, 0xff]);
pub(super) const NIGHT: Color = Color([0x1b, 0x1a, 0x19]);

impl Color {
    const BLACK: Self = Self([0; 3]);
    const WHITE: Self = Self([0xff; 3]);
    const READABLE: f64 = 4.5;

    pub(super) fn parse(text: &str) -> Result<Self, InvalidValue> {
        let refuse = || InvalidValue::new("accent color", text, "is not written as #rrggbb");
        let digits = text.strip_prefix('#').ok_or_else(refuse)?;
        let mut channels = [0; 3];
        hex::decode_to_slice(digits, &mut channels).map_err(|_| refuse())?;
        Ok(Self(channels))
    }

    /// Returns this color, or the nearest shade of it that is legible on the background.
    pub(super) fn readable_on(self, ground: Self) -> Self {
        let toward = if ground.luminance() > 0.5 { Self::BLACK } else { Self::WHITE };
        (0..=20)
            .map(|step| self.mixed(toward, f64::from(step) / 20.0))
            .find(|shade| shade.contrast(ground) >= Self::READABLE)
            .unwrap_or(toward)
    }

    fn mixed(self, other: Self, share: f64) -> Self {
        let mix = |a: u8, b: u8| f64::from(a) * (1.0 - share) + f64::from(b) * share;
        Self([0, 1, 2].map(|n| mix(self.0[n], other.0[n]).round() as u8))
    }

    /// The relative luminance as defined by WCAG 2.
    fn luminance(self) -> f64 {
        let [r, g, b] = self.0.map(|channel| {
            let c = f64::from(channel) / 255.0;
            if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * r + 0.7152 * g + 0.0722 * b
    }

    fn contrast(self, other: Self) -> f64 {
        let (a, b) = (self.luminance(), other.luminance());
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }
}

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", hex::encode(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_color_is_a_hash_and_six_hex_digits() {
        assert_eq!(Color::parse("#1F4e79").unwrap().to_string(), "#1f4e79");
        for text in ["", "#", "1f4e79", "#fff", "#1f4e7", "#1f4e7g", "red", "#1f4e79;}", "#é4e79"]
        {
            assert!(Color::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn any_accent_is_readable_on_both_backgrounds() {
        for text in ["#1f4e79", "#000000", "#ffffff", "#ffff00", "#ff0000", "#808080", "#00ff88"] {
            let accent = Color::parse(text).unwrap();
            for ground in [PAPER, NIGHT] {
                let shade = accent.readable_on(ground);
                assert!(shade.contrast(ground) >= 4.5, "{text} on {ground} is {shade}");
            }
        }
    }

    #[test]
    fn a_readable_color_is_not_changed() {
        let accent = Color::parse("#1f4e79").unwrap();
        assert_eq!(accent.readable_on(PAPER), accent);
    }
}
