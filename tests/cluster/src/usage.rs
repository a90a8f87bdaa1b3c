//! What the system knows of a child process that a test or a benchmark started.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::process::Child;

/// The processor time that a child has taken so far, by user and system, see proc_pid_stat(5). It can be asked of one
/// that has ended until it is waited for.
///
/// # Errors
/// When the child was waited for.
pub fn processor_time(child: &Child) -> Result<Duration> {
    let stat = fs::read_to_string(file(child, "stat")?)?;
    // The fields before them end with the name in parentheses.
    let fields = stat.rsplit_once(')').context("a name in parentheses")?.1.split_whitespace().skip(11).take(2);
    let ticks: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>()?;
    let ticks = ticks.iter().sum::<u64>() as f64;
    Ok(Duration::from_secs_f64(ticks / rustix::param::clock_ticks_per_second() as f64))
}

/// The memory of a running child, in MiB: what it has (`VmRSS:`), or the most that it has had (`VmHWM:`), see
/// proc_pid_status(5).
///
/// # Errors
/// When the child has ended.
pub fn memory_mib(child: &Child, field: &str) -> Result<u64> {
    let status = fs::read_to_string(file(child, "status")?)?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).context("a process has a size")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? / 1024)
}

/// A child that `setpriv` or `taskset` started is the program itself: they become it.
fn file(child: &Child, name: &str) -> Result<String> {
    Ok(format!("/proc/{}/{name}", child.id().context("the process has ended")?))
}
