//! `kubectl confpin release`: moves workloads back to their sources, a few at a time, for leaving confpin.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use futures::stream::{self, StreamExt};
use tokio::time::{Instant, sleep};

use super::bar::Bar;
use super::connection::ScopeArgs;
use super::output::{BAD, WARN, print, warn};
use super::{End, Error, counted, gaps};
use crate::cluster::Cluster;
use crate::cluster::workloads::api_resource;
use crate::config::Period;
use crate::inspect::facts::{Facts, Seen};
use crate::inspect::release::{Progress, names_a_snapshot, progress, step};
use crate::inspect::status::{State, WorkloadStatus, sources_to_read, status};
use crate::inspect::target::title;
use crate::pin::exempt::Exemptions;

/// How often a rollout is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How often a workload is read again after a concurrent change.
const ATTEMPTS: usize = 5;

/// Arguments of `release`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    scope: ScopeArgs,

    /// Only check and show what would be done.
    #[arg(long)]
    dry_run: bool,

    /// How many workloads roll out at a time.
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = clap::value_parser!(u16).range(1..))]
    parallel: u16,

    /// How long one workload may take to roll out. Then no further one is begun.
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    timeout: Period,

    /// Whether to wait for each rollout before the next is begun.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    wait: bool,
}

/// What became of one workload.
enum Became {
    /// Released, except for these snapshots, whose sources are gone.
    Released(&'static str, Vec<String>),
    Failed(anyhow::Error),
    /// Not begun, as another one failed.
    Left,
}

/// Moves the workloads back. Ends with [`End::Attention`] where a snapshot's name had to stay.
///
/// # Errors
/// When a workload cannot be changed, or does not roll out in time. Another run continues.
pub async fn run(args: Args) -> Result<End, Error> {
    if !args.scope.is_explicit() {
        return Err(Error::NoScope);
    }
    let (cluster, namespace) = args.scope.connect().await?;
    let mut facts = Facts::gather(&cluster, namespace.as_deref()).await;
    gaps(&facts.gaps)?;
    let sources = sources_to_read(&facts);
    facts.read(&cluster, sources).await;
    let pinned: Vec<_> = facts.workloads.iter().filter(|seen| names_a_snapshot(&facts, seen)).collect();
    if pinned.is_empty() {
        eprintln!("No workload names a snapshot.");
        return Ok(End::Fine);
    }
    let newer = newer(&facts);
    let failed = AtomicBool::new(false);
    let work: Vec<_> = pinned.iter().map(|seen| one(&cluster, seen, &args, &failed)).collect();
    let mut work = stream::iter(work).buffer_unordered(usize::from(args.parallel));
    let mut bar = Bar::new(pinned.len());
    let (mut kept, mut failures, mut left) = (0, 0, 0);
    while let Some((seen, became)) = work.next().await {
        let name = format!("{}/{}", seen.state.namespace, title(seen.state.kind, &seen.state.name));
        match became {
            Became::Left => {
                left += 1;
                continue;
            }
            Became::Released(how, stays) => {
                let mut lines = format!("{name} {how}\n");
                for source in newer.get(&name).into_iter().flatten() {
                    lines.push_str(&format!("  takes newer content of {source}\n"));
                }
                for snapshot in &stays {
                    lines.push_str(&format!("  {WARN}stays on {snapshot}{WARN:#}, as its source is gone\n"));
                }
                kept += stays.len();
                bar.step(|| print(&lines))?;
            }
            Became::Failed(error) => {
                failures += 1;
                bar.step(|| print(&format!("{name} {BAD}failed{BAD:#}\n  {error:#}\n")))?;
            }
        }
    }
    drop(bar);
    if failures > 0 {
        let left = counted(left, "workload");
        return Err(anyhow!("{failures} failed, {left} not started; run the command again to continue").into());
    }
    if !args.dry_run {
        warn("the workloads are opted out by annotation; `opt-in` takes that back");
    }
    Ok(if kept > 0 { End::Attention } else { End::Fine })
}

/// The sources that have changed since a workload was pinned, by its name.
fn newer(facts: &Facts) -> BTreeMap<String, Vec<String>> {
    let status = status(facts, &Exemptions::default(), true, |_| true);
    let newer = |workload: WorkloadStatus| {
        let behind = workload.uses.iter().filter(|using| using.state == State::Behind);
        let sources: Vec<_> = behind.map(|using| using.source.clone()).collect();
        (!sources.is_empty()).then(|| (format!("{}/{}", workload.namespace, workload.workload), sources))
    };
    status.workloads.into_iter().filter_map(newer).collect()
}

async fn one<'a>(cluster: &Cluster, seen: &'a Seen, args: &Args, failed: &AtomicBool) -> (&'a Seen, Became) {
    if failed.load(Ordering::Relaxed) {
        return (seen, Became::Left);
    }
    let became = release(cluster, seen, args).await.unwrap_or_else(Became::Failed);
    if matches!(became, Became::Failed(_)) {
        failed.store(true, Ordering::Relaxed);
    }
    (seen, became)
}

async fn release(cluster: &Cluster, seen: &Seen, args: &Args) -> Result<Became> {
    let state = &seen.state;
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let Some(object) = cluster.workload_object(state.kind, &state.namespace, &state.name).await? else {
            return Ok(Became::Released("is gone", Vec::new()));
        };
        let Some(step) = step(cluster, state.kind, &object).await? else {
            return Ok(Became::Released("is released already", Vec::new()));
        };
        if step.renames.is_empty() {
            return Ok(Became::Released("cannot be released", step.stays));
        }
        let resource = api_resource(state.kind);
        let how = match cluster.json_patch(&resource, &state.namespace, &state.name, step.patch, args.dry_run).await {
            // Possibly one of the patch's tests: the workload has changed since it was read.
            Err(error) if error.is_conflict() || error.may_be_failed_test() => {
                last = Some(error);
                continue;
            }
            Err(error) => return Err(error.into()),
            Ok(()) if args.dry_run => "would be released",
            Ok(()) if args.wait => wait(cluster, seen, args.timeout.get()).await?,
            Ok(()) => "is released",
        };
        return Ok(Became::Released(how, step.stays));
    }
    Err(last.map_or_else(|| anyhow!("it changes too fast"), anyhow::Error::from))
}

/// Waits until a workload has rolled out.
async fn wait(cluster: &Cluster, seen: &Seen, timeout: Duration) -> Result<&'static str> {
    let state = &seen.state;
    // A timeout beyond what an instant can express is none.
    let deadline = Instant::now().checked_add(timeout);
    loop {
        let found = cluster.workload_object(state.kind, &state.namespace, &state.name).await?;
        let object = found.context("it was deleted meanwhile")?;
        match progress(state.kind, &object) {
            Progress::Done => return Ok("is released"),
            Progress::Paused => return Ok("is released, and rolls out when it is resumed"),
            Progress::Failed(why) => bail!("it was changed, and does not roll out: {why}"),
            Progress::Waiting(why) if deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                bail!("it was changed, and has not rolled out in time: {why}")
            }
            Progress::Waiting(_) => sleep(LOOK).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_namespace_has_to_be_named() {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            args: Args,
        }
        let Cli { args } = clap::Parser::parse_from(["release"]);
        assert!(matches!(run(args).await, Err(Error::NoScope)));
    }
}
