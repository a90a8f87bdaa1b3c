//! Pauses between the attempts of a watch.

use std::time::Duration;

use backon::ExponentialBuilder;
use kube::runtime::watcher::ExponentialBackoff;

/// Short at first, then a few seconds, so that what is installed later is found soon and an API server that is down is not
/// stormed. With jitter: an API server that restarts ends the watches of all replicas at once.
pub fn pauses() -> ExponentialBackoff {
    let builder = ExponentialBuilder::new().with_min_delay(FIRST).with_max_delay(LONGEST);
    builder.without_max_times().with_jitter().into()
}

const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(3);
