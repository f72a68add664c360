//! Bars, one panel a policy: in the terminal by block characters, or as an SVG that needs nothing
//! else.
//!
//! The rule: all panels have one scale, so that policies can be compared by eye.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use super::super::ink::Ink;
use super::super::table::cut;
use super::super::words;
use crate::wire::simulation::{Comparison, Reach, Report};

/// A chart.
pub(super) struct Bars {
    title: &'static str,
    labels: Vec<String>,
    panels: Vec<Panel>,
}

struct Panel {
    name: String,
    /// Shares of the panel's whole, or numbers, by `labels`.
    values: Vec<f64>,
    told: Vec<String>,
}

impl Bars {
    /// How long events wait for their mail; without the times that nothing waits under any policy.
    pub(super) fn of_delays(comparison: &Comparison) -> Self {
        let limit = |reach: &Reach| match reach.up_to_seconds {
            Some(0) => "at once".to_owned(),
            Some(seconds) => format!("≤ {}", words::duration(seconds)),
            None => "longer".to_owned(),
        };
        let reports = &comparison.policies;
        let steps = reports.first().map_or(0, |report| report.delays.len());
        let waits = |step: &usize| reports.iter().any(|one| one.delays[*step].events > 0);
        let steps: Vec<usize> = (0..steps).filter(waits).collect();
        let panel = |report: &Report| {
            let all: u64 = report.delays.iter().map(|reach| reach.events).sum();
            let share = |step: &usize| report.delays[*step].events as f64 / all.max(1) as f64;
            let values: Vec<f64> = steps.iter().map(share).collect();
            let told = values.iter().map(|value| format!("{:.1}%", value * 100.0));
            Panel {
                name: report.policy.clone(),
                told: told.collect(),
                values,
            }
        };
        Self {
            title: "How long events wait for their mail",
            labels: steps
                .iter()
                .map(|step| limit(&reports[0].delays[*step]))
                .collect(),
            panels: reports.iter().map(panel).collect(),
        }
    }

    /// How many mails leave by the hour of the day.
    pub(super) fn of_hours(comparison: &Comparison) -> Self {
        let panel = |report: &Report| Panel {
            name: report.policy.clone(),
            values: report.mails_by_hour.iter().map(|n| *n as f64).collect(),
            told: report
                .mails_by_hour
                .iter()
                .map(|n| super::words::number(*n))
                .collect(),
        };
        Self {
            title: "Mails by the hour of the day (UTC)",
            labels: (0..24).map(|hour| format!("{hour:02}")).collect(),
            panels: comparison.policies.iter().map(panel).collect(),
        }
    }

    fn most(&self) -> f64 {
        let values = self.panels.iter().flat_map(|panel| &panel.values);
        values.copied().fold(0.0, f64::max).max(f64::MIN_POSITIVE)
    }

    /// The chart in lines of at most so many columns.
    pub(super) fn lines(
        &self,
        width: Option<usize>,
        paint: impl Fn(Ink, &str) -> String,
    ) -> Vec<String> {
        let widest = |texts: &[String]| texts.iter().map(|text| text.width()).max().unwrap_or(0);
        let labels = widest(&self.labels);
        let told = self.panels.iter().map(|panel| widest(&panel.told));
        let told = told.max().unwrap_or(0);
        // Two spaces before and between.
        let taken = 2 + labels + 2 + 2 + told;
        let room = width.unwrap_or(80).saturating_sub(taken).clamp(8, 50);
        let most = self.most();
        let mut lines = vec![String::new(), paint(Ink::Strong, self.title)];
        for panel in &self.panels {
            let name: String = panel.name.chars().map(plain).collect();
            lines.push(String::new());
            lines.push(cut(&name, width.unwrap_or(80)));
            for ((label, value), number) in self.labels.iter().zip(&panel.values).zip(&panel.told) {
                let before = " ".repeat(labels - label.width());
                let bar = paint(Ink::Accent, &bar(value / most, room));
                let line = format!("  {before}{label}  {number:>told$}  {bar}");
                lines.push(line.trim_end().to_owned());
            }
        }
        lines
    }

    /// The chart as an SVG of its own.
    pub(super) fn svg(&self) -> String {
        let (left, gap, height, panel_height) = (20, 6, 120.0, 190);
        // Few bars are broad enough for their numbers above them.
        let step = if self.labels.len() > 12 { 32 } else { 64 };
        let width = left * 2 + (self.labels.len() * step).max(NARROWEST);
        let whole = 40 + self.panels.len() * panel_height;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{whole}\" \
             viewBox=\"0 0 {width} {whole}\" font-family=\"sans-serif\" font-size=\"11\" fill=\"#333\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"{left}\" y=\"24\" font-size=\"15\" font-weight=\"bold\">{}</text>\n",
            escaped(self.title)
        );
        let most = self.most();
        for (index, panel) in self.panels.iter().enumerate() {
            let top = 40 + index * panel_height;
            let ground = top + 30 + height as usize;
            let name = escaped(&panel.name);
            let _ = writeln!(
                svg,
                "<text x=\"{left}\" y=\"{}\" font-weight=\"bold\">{name}</text>",
                top + 12
            );
            for (place, ((label, value), told)) in self
                .labels
                .iter()
                .zip(&panel.values)
                .zip(&panel.told)
                .enumerate()
            {
                let (x, tall) = (left + place * step, value / most * height);
                let (y, middle) = (ground as f64 - tall, x + step / 2);
                let (label, told) = (escaped(label), escaped(told));
                let broad = step - gap;
                let _ = writeln!(
                    svg,
                    "<rect x=\"{x}\" y=\"{y:.1}\" width=\"{broad}\" height=\"{tall:.1}\" fill=\"#1f4e79\">\
                     <title>{label}: {told}</title></rect>\
                     <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
                    ground + 14
                );
                if step == 64 {
                    let above = y - 4.0;
                    let _ = writeln!(
                        svg,
                        "<text x=\"{middle}\" y=\"{above:.1}\" text-anchor=\"middle\">{told}</text>"
                    );
                }
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// An SVG's bars have at least so much room, for the title above them.
const NARROWEST: usize = 320;

/// A bar of this share of the room, to an eighth of a column; what is not nothing is seen.
fn bar(share: f64, room: usize) -> String {
    const PARTS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
    let eighths = (share.clamp(0.0, 1.0) * room as f64 * 8.0).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    let mut bar = "█".repeat(eighths / 8);
    if eighths % 8 > 0 {
        bar.push(PARTS[eighths % 8 - 1]);
    }
    bar
}

/// Control characters cannot be let onto a terminal, nor into XML.
fn plain(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().map(plain) {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(name: &str) -> Bars {
        Bars {
            title: "Title",
            labels: vec!["≤ 1m".into(), "longer".into()],
            panels: vec![Panel {
                name: name.into(),
                values: vec![0.5, 0.001],
                told: vec!["50.0%".into(), "0.1%".into()],
            }],
        }
    }

    #[test]
    fn bars_are_drawn_to_one_scale_and_what_is_not_nothing_is_seen() {
        let lines = bars("a\x1b[2Jb").lines(Some(31), |_, text| text.to_owned());

        assert_eq!(
            lines,
            [
                "",
                "Title",
                "",
                "a [2Jb",
                "    ≤ 1m  50.0%  ██████████████",
                "  longer   0.1%  ▏"
            ]
        );
        assert_eq!(bar(0.0, 10), "");
        assert_eq!(bar(0.55, 10), "█████▌");
    }

    #[test]
    fn names_cannot_break_out_of_an_svg() {
        let svg = bars("<script>\"&\u{0}").svg();

        assert!(svg.contains("&lt;script&gt;&quot;&amp; </text>"), "{svg}");
        assert!(!svg.contains("<script"));
        assert_eq!(svg.matches("<rect").count(), 3);
    }
}
