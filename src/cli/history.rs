//! `kubectl confpin history`: the configuration of each revision.

use jiff::Timestamp;

use super::output::{BAD, FAINT, GOOD, OutputArgs, WARN};
use super::table::{Cell, Table};
use super::workload::WorkloadArgs;
use super::{End, Error, gaps};
use crate::inspect::age::age;
use crate::inspect::history::{Configuration, Kind, Revision, Role};

/// Arguments of `history`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    workload: WorkloadArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// Prints the revisions, the newest first.
///
/// # Errors
/// When there is no such workload, or the cluster cannot be asked.
pub async fn run(args: Args) -> Result<End, Error> {
    let around = args.workload.read().await?;
    args.output.print(&around.revisions, |wide| text(&around.revisions, wide))?;
    if around.revisions.is_empty() && args.output.output.is_none() {
        eprintln!("{} has no revision yet.", around.target);
    }
    gaps(&around.facts.gaps)?;
    Ok(End::Fine)
}

/// The revisions as a table.
pub fn text(revisions: &[Revision], wide: bool) -> String {
    if revisions.is_empty() {
        return String::new();
    }
    let now = Timestamp::now();
    let set = ["REPLICASET"].into_iter().filter(|_| wide);
    let mut table = Table::new(["REVISION", "ROLE", "PODS", "IMAGE", "CONFIGURATION", "AGE"].into_iter().chain(set));
    for revision in revisions {
        let mut configuration = revision.configuration.iter().map(cell);
        let roles: Vec<_> = revision.roles.iter().map(role).collect();
        let cells = [
            revision.number.to_string().into(),
            Cell::styled(roles.join(","), if revision.roles == [Role::Canary] { WARN } else { GOOD }),
            revision.replicas.to_string().into(),
            revision.images.join(",").into(),
            configuration.next().unwrap_or_else(|| "-".into()),
            revision.created.map(|created| age(created, now)).unwrap_or_default().into(),
        ];
        table.row(cells.into_iter().chain(Some(Cell::from(revision.replica_set.as_str())).filter(|_| wide)));
        for more in configuration {
            table.row(["".into(), "".into(), "".into(), "".into(), more]);
        }
    }
    table.text()
}

fn role(role: &Role) -> &'static str {
    match role {
        Role::Current => "current",
        Role::Stable => "stable",
        Role::Canary => "canary",
    }
}

fn cell(configuration: &Configuration) -> Cell {
    let name = &configuration.name;
    match configuration.is {
        Kind::Snapshot => name.as_str().into(),
        Kind::Live => Cell::styled(format!("{name} (live)"), FAINT),
        Kind::Gone => Cell::styled(format!("{name} (gone)"), BAD),
    }
}
