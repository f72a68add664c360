//! How large mails are, and which of them to show, in memory that does not grow with their number.
//!
//! The rule: what is measured of a million people is a sample that depends on the deliveries' ids
//! alone. Each mail has a level that half as many mails reach as the one below; when too many were
//! measured, the lowest level is given up, with all that is known of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::domain::{BrandName, DeliveryId};
use crate::render::CLIP_BYTES;
use crate::render::report::Bar;

/// A number that is drawn for a delivery, the same each time.
pub(super) fn draw(id: &DeliveryId) -> u64 {
    let tag = id.tag();
    u64::from_str_radix(&tag.as_str()[..16], 16).unwrap_or_default()
}

/// What a size is counted by.
const KILOBYTE: usize = 1_000;
/// Sizes up to what is clipped, and one for all above.
const KILOBYTES: usize = CLIP_BYTES / KILOBYTE + 1;

/// What is known of some mails.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub mails: u64,
    /// By the size of their HTML.
    pub kilobytes: [u64; KILOBYTES],
    pub html: u64,
    pub text: u64,
    pub smallest: u64,
    pub largest: u64,
    pub capped: u64,
    pub cut: u64,
    pub over: u64,
    pub failed: u64,
}

impl Default for Measured {
    fn default() -> Self {
        Self {
            mails: 0,
            kilobytes: [0; KILOBYTES],
            html: 0,
            text: 0,
            smallest: u64::MAX,
            largest: 0,
            capped: 0,
            cut: 0,
            over: 0,
            failed: 0,
        }
    }
}

/// Whether a mail shows all there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    All,
    /// The rest is "+N more", as the configuration says.
    Capped,
    /// The same, and it shows less than that, as it would have been too long.
    Cut,
}

impl Measured {
    pub(super) fn add(&mut self, html: usize, text: usize, shown: Shown) {
        self.mails += 1;
        self.kilobytes[kilobyte(html)] += 1;
        self.html += html as u64;
        self.text += text as u64;
        self.smallest = self.smallest.min(html as u64);
        self.largest = self.largest.max(html as u64);
        self.capped += u64::from(shown != Shown::All);
        self.cut += u64::from(shown == Shown::Cut);
        self.over += u64::from(html > CLIP_BYTES);
    }

    fn join(&mut self, other: &Self) {
        self.mails += other.mails;
        for (ours, theirs) in self.kilobytes.iter_mut().zip(other.kilobytes) {
            *ours += theirs;
        }
        self.html += other.html;
        self.text += other.text;
        self.smallest = self.smallest.min(other.smallest);
        self.largest = self.largest.max(other.largest);
        self.capped += other.capped;
        self.cut += other.cut;
        self.over += other.over;
        self.failed += other.failed;
    }

    /// How many mails there are of each size, in steps that make about ten of what there is.
    pub(super) fn bars(&self) -> Vec<(String, u64)> {
        let filled = |count: &u64| *count > 0;
        let (Some(first), Some(last)) = (
            self.kilobytes.iter().position(filled),
            self.kilobytes.iter().rposition(filled),
        ) else {
            return Vec::new();
        };
        let fits = |step: &usize| last / step - first / step < 12;
        let step = [1, 2, 5, 10].into_iter().find(fits).unwrap_or(10);
        let bar = |n: usize| {
            let (from, to) = (n * step, (n + 1) * step);
            let counts = &self.kilobytes[from..to.min(KILOBYTES)];
            let label = if to < KILOBYTES {
                format!("{from} to {to} kB")
            } else {
                format!("{from} kB and more")
            };
            (label, counts.iter().sum())
        };
        (first / step..=last / step).map(bar).collect()
    }

    /// In which thousand of bytes the median is.
    pub(super) fn median(&self) -> usize {
        let mut below = 0;
        let is_median = |count: &u64| {
            below += count;
            2 * below >= self.mails
        };
        self.kilobytes.iter().position(is_median).unwrap_or(0)
    }
}

pub(super) fn kilobyte(bytes: usize) -> usize {
    (bytes / KILOBYTE).min(KILOBYTES - 1)
}

/// Measures by level, of which only so many mails' worth are kept.
#[derive(Debug)]
pub(super) struct Levels {
    levels: Vec<Measured>,
    /// The lowest level that is kept.
    lowest: usize,
    most: u64,
}

impl Levels {
    pub(super) fn new(most: u64) -> Self {
        Self {
            levels: vec![Measured::default(); u64::BITS as usize + 1],
            lowest: 0,
            most,
        }
    }

    /// Whether a mail that was drawn so is measured.
    pub(super) fn takes(&self, drawn: u64) -> bool {
        drawn.trailing_zeros() as usize >= self.lowest
    }

    /// Where to note it.
    pub(super) fn of(&mut self, drawn: u64) -> &mut Measured {
        let sum = |levels: &[Measured]| -> u64 {
            let each = levels.iter().map(|level| level.mails + level.failed);
            each.sum()
        };
        while self.lowest + 1 < self.levels.len() && sum(&self.levels[self.lowest..]) >= self.most {
            self.lowest += 1;
        }
        &mut self.levels[drawn.trailing_zeros() as usize]
    }

    /// Whether some mails were left out.
    pub(super) fn sampled(&self) -> bool {
        self.lowest > 0
    }

    /// All that is kept.
    pub(super) fn sum(&self) -> Measured {
        let mut all = Measured::default();
        for level in &self.levels[self.lowest..] {
            all.join(level);
        }
        all
    }
}

/// A mail that may be shown.
#[derive(Debug)]
pub(super) struct Candidate {
    pub drawn: u64,
    pub brand: Option<BrandName>,
    /// Masked.
    pub to: String,
    pub subject: String,
    pub html: String,
    pub text: String,
    pub bytes: usize,
    pub events: u64,
    pub types: usize,
}

/// So many mails are shown.
const SAMPLES: usize = 5;

/// The mails to show: the smallest, one of the median, the largest, the one with most types where
/// there are several, and drawn ones.
#[derive(Debug, Default)]
pub(super) struct Picks {
    smallest: Option<Arc<Candidate>>,
    largest: Option<Arc<Candidate>>,
    most_types: Option<Arc<Candidate>>,
    /// One of each size.
    sizes: BTreeMap<usize, Arc<Candidate>>,
    drawn: BTreeMap<u64, Arc<Candidate>>,
}

impl Picks {
    /// Keeps it if it may be one of them.
    pub(super) fn offer(
        &mut self,
        drawn: u64,
        bytes: usize,
        types: usize,
        make: impl FnOnce() -> Candidate,
    ) {
        let beats =
            |standing: &Option<Arc<Candidate>>, better: fn(&Candidate, usize) -> bool, by| {
                standing
                    .as_ref()
                    .is_none_or(|standing| better(standing, by))
            };
        let smallest = beats(
            &self.smallest,
            |standing, bytes| bytes < standing.bytes,
            bytes,
        );
        let largest = beats(
            &self.largest,
            |standing, bytes| bytes > standing.bytes,
            bytes,
        );
        let most_types =
            types > 1 && beats(&self.most_types, |standing, n| n > standing.types, types);
        let size = !self.sizes.contains_key(&kilobyte(bytes));
        let lucky = self.drawn.len() < SAMPLES
            || self
                .drawn
                .last_key_value()
                .is_some_and(|(last, _)| drawn < *last);
        if !(smallest || largest || most_types || size || lucky) {
            return;
        }
        let candidate = Arc::new(make());
        if smallest {
            self.smallest = Some(Arc::clone(&candidate));
        }
        if largest {
            self.largest = Some(Arc::clone(&candidate));
        }
        if most_types {
            self.most_types = Some(Arc::clone(&candidate));
        }
        if size {
            self.sizes.insert(kilobyte(bytes), Arc::clone(&candidate));
        }
        if lucky {
            self.drawn.insert(drawn, candidate);
            if self.drawn.len() > SAMPLES {
                self.drawn.pop_last();
            }
        }
    }

    /// The mails to show, each once, and why each.
    pub(super) fn chosen(&self, median: usize) -> Vec<(Arc<Candidate>, Vec<&'static str>)> {
        let mut chosen: Vec<(Arc<Candidate>, Vec<&'static str>)> = Vec::new();
        let roles = [
            (&self.smallest, "the smallest"),
            (&self.sizes.get(&median).cloned(), "of the median size"),
            (&self.largest, "the largest"),
            (&self.most_types, "with the most types"),
        ]
        .map(|(candidate, why)| Some((candidate.clone()?, why)));
        for (candidate, why) in roles.into_iter().flatten() {
            match chosen
                .iter_mut()
                .find(|(one, _)| one.drawn == candidate.drawn)
            {
                Some((_, whys)) => whys.push(why),
                None => chosen.push((candidate, vec![why])),
            }
        }
        for (drawn, candidate) in &self.drawn {
            if chosen.len() < SAMPLES && chosen.iter().all(|(one, _)| one.drawn != *drawn) {
                chosen.push((Arc::clone(candidate), vec!["drawn at random"]));
            }
        }
        chosen
    }
}

/// What of `whole` has what `part` of `looked_at` have.
pub(super) fn scaled(part: u64, looked_at: u64, whole: u64) -> u64 {
    if looked_at == 0 || looked_at == whole {
        return part;
    }
    let product = u128::from(part) * u128::from(whole);
    u64::try_from(product.div_ceil(u128::from(looked_at))).unwrap_or(u64::MAX)
}

pub(super) fn percent(part: u64, of: u64) -> f64 {
    if of == 0 {
        return 0.0;
    }
    (part as f64 * 1_000.0 / of as f64).round() / 10.0
}

pub(super) fn bars(counts: Vec<(String, u64)>) -> Vec<Bar> {
    let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(0);
    let bar = |(label, count)| Bar {
        label,
        count,
        percent: percent(count, most),
    };
    counts.into_iter().map(bar).collect()
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod tests;
