//! Composition: client, watches, tasks, shutdown.

use crate::config::Config;

/// Runs confpin until a signal ends it.
///
/// # Errors
///
/// When it cannot start, or a part of it ends early.
pub async fn run(_config: Config) -> anyhow::Result<()> {
    Ok(())
}
