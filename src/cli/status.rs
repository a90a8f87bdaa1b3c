//! `kubectl confpin status`: which snapshot each workload is pinned to.

use jiff::Timestamp;

use super::connection::{ExemptArgs, ScopeArgs};
use super::output::{BAD, FAINT, GOOD, OutputArgs, WARN};
use super::table::{Cell, Table};
use super::{End, Error, gaps};
use crate::inspect::age::age;
use crate::inspect::facts::Facts;
use crate::inspect::status::{State, Status, sources_to_read, status};
use crate::inspect::target::WorkloadTarget;

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// One workload, as TYPE/NAME or TYPE NAME; all of the namespace without it.
    #[arg(value_name = "WORKLOAD", num_args = 0..=2)]
    workload: Vec<String>,

    #[command(flatten)]
    scope: ScopeArgs,

    #[command(flatten)]
    exempt: ExemptArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// Prints the status. Ends with [`End::Attention`] when something needs attention.
///
/// # Errors
/// When the workload is no workload, or the cluster cannot be asked.
pub async fn run(args: Args) -> Result<End, Error> {
    let target = match args.workload.as_slice() {
        [] => None,
        words => Some(WorkloadTarget::parse(words)?),
    };
    let (cluster, namespace) = args.scope.connect().await?;
    let mut facts = Facts::gather(&cluster, namespace.as_deref()).await;
    if let Some(target) = &target {
        facts.workloads.retain(|seen| seen.state.kind == target.kind && *seen.state.name == *target.name);
        if facts.workloads.is_empty() && facts.gaps.is_empty() {
            return Err(anyhow::anyhow!("failed to find {target}: there is none in {}", place(&namespace)).into());
        }
    }
    let sources = sources_to_read(&facts);
    facts.read(&cluster, sources).await;
    // One namespace is shown whole; of all namespaces, only those with pinned workloads or the label.
    let status = status(&facts, &args.exempt.exemptions(), namespace.is_some(), |_| true);
    let one = target.is_some();
    args.output.print(&status, |wide| text(&status, namespace.is_none(), one, wide))?;
    if status.workloads.iter().all(|workload| workload.uses.is_empty()) && args.output.output.is_none() {
        eprintln!("No workload in {} names a ConfigMap.", place(&namespace));
    }
    gaps(&facts.gaps)?;
    Ok(if status.needs_attention { End::Attention } else { End::Fine })
}

fn place(namespace: &Option<String>) -> String {
    namespace.as_ref().map_or_else(|| "any namespace".to_owned(), |name| format!("namespace {name}"))
}

fn text(status: &Status, all: bool, one: bool, wide: bool) -> String {
    let now = Timestamp::now();
    let head = ["NAMESPACE"].into_iter().filter(|_| all || wide);
    let mut table = Table::new(head.chain(["WORKLOAD", "SOURCE", "PINNED TO", "STATE", "SINCE"]));
    for workload in &status.workloads {
        let mut row = |cells: [Cell; 4]| {
            let namespace = Some(Cell::from(workload.namespace.as_str())).filter(|_| all || wide);
            table.row(namespace.into_iter().chain([workload.workload.as_str().into()]).chain(cells));
        };
        if let Some(deployment) = &workload.template_of {
            row([format!("(template of {deployment})").into(), "".into(), "".into(), "".into()]);
        }
        for using in &workload.uses {
            let state = match using.reason {
                Some(reason) => format!("{} ({reason})", using.state.text()),
                None => using.state.text().to_owned(),
            };
            row([
                using.source.as_str().into(),
                using.snapshot.as_deref().unwrap_or("-").into(),
                Cell::styled(state, style(using.state)),
                using.since.map(|since| age(since, now)).unwrap_or_default().into(),
            ]);
        }
    }
    if table.is_empty() {
        return String::new();
    }
    let mut text = table.text();
    if !one {
        text.push('\n');
        for (namespace, summary) in &status.namespaces {
            let counts: Vec<_> = summary.iter().map(|(state, count)| format!("{count} {}", state.text())).collect();
            if !counts.is_empty() {
                let counts = counts.join(", ");
                text.push_str(&if all { format!("{namespace}: {counts}\n") } else { format!("{counts}\n") });
            }
        }
    }
    text
}

fn style(state: State) -> anstyle::Style {
    match state {
        State::Newest => GOOD,
        State::Behind | State::Unpinned => WARN,
        State::Lost | State::Missing => BAD,
        _ => FAINT,
    }
}
