//! Sums of metrics.

use tidings::metrics::StoreGauges;

use super::town::Town;

impl Town {
    /// The sum of a counter over all processes, for series whose labels contain `label`.
    pub fn counted(&self, name: &str, label: &str) -> u64 {
        let counts = self.counts.lock().unwrap();
        let texts = counts.iter().map(|metrics| metrics.export(&StoreGauges::default()).unwrap());
        texts.map(|text| sum(&text, name, label)).sum()
    }
}

/// The sum of a metric in this text, for series whose labels contain `label`.
pub fn sum(text: &str, name: &str, label: &str) -> u64 {
    let values = text.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (found, labels) = series.split_once('{').unwrap_or((series, ""));
        (found == name && labels.contains(label)).then(|| value.parse::<u64>().unwrap())
    });
    values.sum()
}
