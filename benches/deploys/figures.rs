//! Medians and percentiles of durations.

use std::time::Duration;

/// Durations of one kind, in the order of their repetitions.
#[derive(Debug, Default, Clone)]
pub struct Sample(Vec<Duration>);

impl Sample {
    /// Adds one.
    pub fn push(&mut self, duration: Duration) {
        self.0.push(duration);
    }

    /// The value, in milliseconds, that `part` (0 to 1) of them do not exceed (nearest rank); 0 when there is none.
    pub fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort();
        let rank = (part * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).map_or(0.0, |value| value.as_secs_f64() * 1e3)
    }

    /// The median, in milliseconds.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The 99th percentile, in milliseconds; the largest where there are fewer than a hundred.
    pub fn p99(&self) -> f64 {
        self.quantile(0.99)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}
