//! Pauses between the attempts of a watch.

use std::time::Duration;

use kube::runtime::utils::Backoff;

/// Short at first, then a few seconds, so that what is installed later is found soon and an API server that is down is not
/// stormed.
#[derive(Debug, Clone, Default)]
pub struct Pauses(u32);

impl Pauses {
    const FIRST: Duration = Duration::from_millis(250);
    const LONGEST: Duration = Duration::from_secs(5);
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = Self::FIRST.saturating_mul(1 << self.0.min(8)).min(Self::LONGEST);
        self.0 += 1;
        Some(pause)
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        self.0 = 0;
    }
}
