//! Waiting for a state, by polling, with the last state in the error.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

/// Pause between two looks.
const INTERVAL: Duration = Duration::from_millis(50);

/// Looks until `state` returns a value, and returns it.
///
/// `Ok(None)` means "not yet". So does an error, whose text is the last state that the timeout's message tells: return
/// `bail!("has {ready} of 3 replicas")` where a reader would want to know.
///
/// # Errors
/// If there is no value by `deadline` from now.
pub async fn wait_for<T>(
    what: &str,
    deadline: Duration,
    mut state: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let end = Instant::now() + deadline;
    let mut last = String::from("nothing to see yet");
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left, state()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => last = format!("{error:#}"),
            Err(_) => return Err(anyhow!("waited {deadline:?} for {what}; last state: {last}")),
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
