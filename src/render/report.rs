//! The report of a rehearsal, as one HTML page that can be passed around.
//!
//! The rule: it needs no scripts and loads nothing but the sample mails' own pictures, and nobody's
//! address is in it. Sample mails stand in frames that can neither run nor open anything.
//! [`Rehearsed`] is all that its template sees.

use minijinja::Value;
use minijinja::value::Serde;
use serde::Serialize;

use super::catalogs::Catalogs;
use super::parts::{Template, template};
use super::templates::Templates;
use super::{Error, Site};

pub use super::naming::heading_of;

const PAGE: Template = template!("report/rehearsal.html");

/// What a rehearsal found, in words and numbers ready to be shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rehearsed {
    /// The moment it is of, such as `21 April 2014, 09:30 UTC`.
    pub at: String,
    /// What narrowed it down, such as `at most 100 mails`.
    pub scope: Vec<String>,
    /// What should be seen to before anything leaves.
    pub warnings: Vec<String>,
    /// How many mails would leave.
    pub mails: u64,
    /// Events these tell of.
    pub events: u64,
    /// Everybody with a stack in the window, by what becomes of them; those who would be mailed
    /// first.
    pub people: Vec<Bar>,
    /// What the mails tell of.
    pub types: Vec<TypeBar>,
    /// How large those mails are.
    pub sizes: Sizes,
    /// How long they take to leave.
    pub pace: Pace,
    /// Each period that is due, beside the one before it.
    pub comparisons: Vec<Comparison>,
    /// A few of the mails, chosen by size, by types and by lot.
    pub samples: Vec<Sample>,
    /// Mails of batches, where these were looked at.
    pub batches: Option<OfBatches>,
}

/// Mails of batches that have not left, as they would be if the batches closed as they are.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OfBatches {
    /// How many mails.
    pub mails: u64,
    /// Events these tell of.
    pub events: u64,
    /// What becomes of all batches, and of leads that wait; those that are mailed first.
    pub what: Vec<Bar>,
    /// When those close that are mailed.
    pub when: Vec<Bar>,
    /// When the next closes, such as `21 April, 10:00 UTC`, where one closes later.
    pub next: Option<String>,
    /// What the mails tell of; people are counted once a mail.
    pub types: Vec<TypeBar>,
    /// How large the mails are.
    pub sizes: Sizes,
    /// A few of them, chosen as those of digests.
    pub samples: Vec<Sample>,
}

/// A count with a bar.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bar {
    /// What is counted.
    pub label: String,
    /// How many there are.
    pub count: u64,
    /// How long the bar is, of the longest beside it.
    pub percent: f64,
}

/// Events of one type.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TypeBar {
    /// What mails call the type.
    pub heading: String,
    /// The type's own name.
    #[serde(rename = "type")]
    pub kind: String,
    /// Events of the type that the mails tell of.
    pub events: u64,
    /// People who are told of any.
    pub people: u64,
    /// How long the bar is, of that of the type with the most events.
    pub percent: f64,
}

/// How large the mails are; of their HTML, in bytes, with each person's links in it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sizes {
    /// Mails that were rendered for this.
    pub measured: u64,
    /// Whether these are only some of the mails, so that the counts below are estimates.
    pub estimated: bool,
    /// The smallest mail; 0 where none was measured.
    pub smallest: u64,
    /// The median, rounded down to a thousand bytes; 0 where none was measured.
    pub median: u64,
    /// The mean; 0 where none was measured.
    pub mean: u64,
    /// The largest mail; 0 where none was measured.
    pub largest: u64,
    /// All mails together, HTML and text.
    pub total: u64,
    /// How many mails there are of each size, from the smallest on.
    pub bars: Vec<Bar>,
    /// Mails whose sections end in "+N more", as `digest.section_items` or `digest.items` say.
    pub capped: u64,
    /// Mails that show fewer than that, as they would have been too long.
    pub cut: u64,
    /// Mails that mail programs would clip.
    pub over: u64,
    /// From how many bytes on mail programs clip a mail.
    pub clip: usize,
    /// Mails that cannot be rendered.
    pub failed: u64,
}

/// How long it takes until all mails have left.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pace {
    /// How many calls to the provider; nothing where there is none.
    pub calls: Option<u64>,
    /// The longest of the bounds that are known; nothing where there is none.
    pub seconds: Option<u64>,
    /// The same in words.
    pub takes: String,
    /// What limits are known; the one that takes longest rules.
    pub bounds: Vec<Bound>,
    /// What these limits leave out, in a sentence or a few.
    pub note: String,
}

/// Something that keeps mails from leaving faster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bound {
    /// The option's path, such as `delivery.mails_per_hour`.
    pub option: &'static str,
    /// What it is set to.
    pub value: u64,
    /// How long the mails take at it, in words.
    pub takes: String,
    /// Whether it is the one that tells.
    pub rules: bool,
}

/// A period's mails beside those of the period before it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Both periods are of this cadence.
    pub cadence: &'static str,
    /// The period that is due, such as `2014-W17`.
    pub period: String,
    /// What would be mailed now.
    pub mails: u64,
    /// Events that these mails would tell of.
    pub events: u64,
    /// What has been mailed of this period already.
    pub already: Mailed,
    /// The period before it, such as `2014-W16`.
    pub before: String,
    /// What was mailed of that one.
    pub then: Mailed,
    /// How many more mails there are, with those that left already, such as `+12%`.
    pub change: Option<String>,
}

/// What the ledger says of a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Mailed {
    /// Mails that were sent; a person gets one a period.
    pub sent: u64,
    /// Events in them.
    pub events: u64,
    /// Mails that were refused for good, or given up.
    pub failed: u64,
    /// Mails that were not made, as nothing was left to tell or the person could not be mailed.
    pub canceled: u64,
    /// Mails that may have been taken, or not.
    pub unknown: u64,
}

/// A mail as somebody would get it, but for their links.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sample {
    /// Why it is shown, such as `the largest`.
    pub why: String,
    /// The sender's name and address; the address masked.
    pub from: String,
    /// Masked.
    pub to: String,
    /// The subject as it would be.
    pub subject: String,
    /// What mail programs show beside the subject.
    pub preheader: String,
    /// The HTML body, with links that lead nowhere in its places.
    pub html: String,
    /// The text body, with links that lead nowhere in its places.
    pub text: String,
    /// How long the HTML is, with a person's own links in it.
    pub bytes: u64,
    /// How many events it tells of, shown or counted.
    pub events: u64,
    /// How many types of events.
    pub types: u64,
}

/// The page's template, compiled.
pub struct ReportPage {
    templates: Templates,
}

impl ReportPage {
    /// Compiles the page's template, which is always the built-in one.
    pub fn new(site: &Site) -> Result<Self, Error> {
        let templates = Templates::load([&PAGE], None, site, Catalogs::load(None)?)?;
        Ok(Self { templates })
    }

    /// The page as HTML, whole in itself.
    pub fn render(&self, rehearsed: &Rehearsed) -> Result<String, Error> {
        let english = self.templates.catalogs().voice(None);
        self.templates
            .render(&PAGE, english, Value::from(Serde(rehearsed)))
    }
}

/// The longest preheader that any mail program shows, in characters.
const PREHEADER: usize = 140;

/// What mail programs show of a mail beside its subject: the first words of its body, hidden or
/// not.
pub fn preheader(html: &str) -> String {
    let mut rest = html.find("<body").map_or(html, |at| &html[at..]);
    let mut words = String::new();
    while let Some(open) = rest.find('<') {
        words.push_str(&rest[..open]);
        words.push(' ');
        if words.len() > 8 * PREHEADER {
            break;
        }
        rest = &rest[open..];
        let end = if rest.starts_with("<!--") {
            "-->"
        } else if rest.starts_with("<style") {
            "</style>"
        } else {
            ">"
        };
        rest = rest
            .find(end)
            .map_or("", |close| &rest[close + end.len()..]);
    }
    let words = words
        .replace("&nbsp;", " ")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&amp;", "&");
    // What is not seen fills the line, so that nothing that follows is shown beside the preheader.
    let unseen = ['\u{34f}', '\u{200c}', '\u{a0}'];
    let seen = words.trim_start_matches(|c: char| c.is_whitespace() || unseen.contains(&c));
    let seen = seen.split('\u{34f}').next().unwrap_or_default();
    super::text::clamp(&super::text::clean(seen), PREHEADER).into_owned()
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
