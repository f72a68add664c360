//! What the metrics of processes come to.

use tidings::metrics::Gauges;

use super::town::Town;

impl Town {
    /// What all processes together have counted under this name, where its labels hold this.
    pub fn counted(&self, name: &str, label: &str) -> u64 {
        let counts = self.counts.lock().unwrap();
        let texts = counts
            .iter()
            .map(|metrics| metrics.text(&Gauges::default()).unwrap());
        texts.map(|text| sum(&text, name, label)).sum()
    }
}

/// The sum of a metric's values in a text of metrics, where its labels hold this.
pub fn sum(text: &str, name: &str, label: &str) -> u64 {
    let values = text.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (found, labels) = series.split_once('{').unwrap_or((series, ""));
        (found == name && labels.contains(label)).then(|| value.parse::<u64>().unwrap())
    });
    values.sum()
}
