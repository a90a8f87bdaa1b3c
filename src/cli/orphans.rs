//! `kubectl confpin orphans`: the snapshots that nothing owns.

use std::collections::BTreeSet;

use anyhow::Context;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ApiResource, DynamicObject, ListParams, ObjectMeta, PartialObjectMeta};

use super::connection::ScopeArgs;
use super::output::{FAINT, OutputArgs, WARN};
use super::table::{Cell, Table};
use super::{End, Error, complete, examine, gaps};
use crate::cluster::workloads::{api_resource, replica_sets};
use crate::cluster::{self, Cluster};
use crate::config::Period;
use crate::inspect::age::age;
use crate::inspect::orphans::{Names, Unowned, Verdict, judge};
use crate::pin::kinds::WORKLOADS;
use crate::pin::meta;
use crate::pin::objects::{Holder, WorkloadState};
use crate::pin::references;
use crate::reconcile::index::Key;

/// Arguments of `orphans`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    scope: ScopeArgs,

    /// How long `confpin serve` keeps a snapshot that nothing names.
    #[arg(
        long,
        env = "CONFPIN_ORPHAN_GRACE",
        value_name = "DURATION",
        default_value = "10m",
        help_heading = "Pinning"
    )]
    orphan_grace: Period,

    #[command(flatten)]
    output: OutputArgs,
}

/// Prints the snapshots that nothing owns, and what becomes of them.
///
/// # Errors
/// When the cluster cannot be asked.
pub async fn run(args: Args) -> Result<End, Error> {
    let grace = SignedDuration::try_from(args.orphan_grace.get()).context("--orphan-grace is too long")?;
    let (cluster, namespace) = args.scope.connect().await?;
    let snapshots = unowned(&cluster, namespace.as_deref()).await?;
    let namespaces: BTreeSet<_> = snapshots.iter().filter_map(|meta| meta.namespace.as_deref()).collect();
    let (mut names, mut missing) = (Names::default(), Vec::new());
    for namespace in namespaces {
        missing.extend(add_names(&cluster, namespace, &mut names).await);
    }
    // Whatever could name a snapshot has to be known before it is called an orphan.
    gaps(&missing)?;
    let now = Timestamp::now();
    let mut omitted = 0;
    let mut found = Vec::new();
    for snapshot in &snapshots {
        let name = snapshot.name.as_deref().unwrap_or_default();
        let verdict = examine(format_args!("snapshot {name}"), &mut omitted, || judge(snapshot, &names, grace, now));
        found.extend(verdict.flatten());
    }
    args.output.print(&found, |wide| text(&found, namespace.is_none() || wide, now))?;
    complete(omitted)?;
    if found.is_empty() && args.output.output.is_none() {
        eprintln!("Every snapshot has an owner.");
    }
    Ok(End::Fine)
}

async fn unowned(cluster: &Cluster, namespace: Option<&str>) -> Result<Vec<ObjectMeta>, cluster::Error> {
    let mut found = Vec::new();
    let each = |object: PartialObjectMeta<DynamicObject>| {
        if object.metadata.owner_references.as_ref().is_none_or(Vec::is_empty) {
            found.push(object.metadata);
        }
    };
    let params = ListParams::default().labels(&format!("{}={}", meta::SNAPSHOT, meta::TRUE));
    cluster.each_metadata(&ApiResource::erase::<ConfigMap>(&()), namespace, params, each).await?;
    Ok(found)
}

/// Adds what names ConfigMaps in a namespace. Returns what could not be listed.
async fn add_names(cluster: &Cluster, namespace: &str, names: &mut Names) -> Vec<cluster::Error> {
    let (mut missing, all, of) = (Vec::new(), ListParams::default(), Some(namespace));
    for kind in WORKLOADS {
        let each = |object: DynamicObject| {
            names.index.put_workload(WorkloadState::new(kind, &object));
        };
        missing.extend(cluster.each_object(&api_resource(kind), of, all.clone(), each).await.err());
    }
    let each = |object: DynamicObject| {
        names.index.put_holder(Holder::new(&object));
    };
    missing.extend(cluster.each_object(&replica_sets(), of, all.clone(), each).await.err());
    let each = |pod: DynamicObject| {
        for name in references::names(&pod.data) {
            let pods = names.pods.entry(Key::new(namespace, &name)).or_default();
            pods.extend(pod.metadata.name.clone());
        }
    };
    missing.extend(cluster.each_object(&ApiResource::erase::<Pod>(&()), of, all, each).await.err());
    missing
}

fn text(found: &[Unowned], with_namespace: bool, now: Timestamp) -> String {
    if found.is_empty() {
        return String::new();
    }
    let head = ["NAMESPACE"].into_iter().filter(|_| with_namespace);
    let mut table = Table::new(head.chain(["SNAPSHOT", "REMOVED", "WHY"]));
    for Unowned { namespace, snapshot, verdict, .. } in found {
        let (removed, why) = match verdict {
            Verdict::Due => (Cell::styled("now", WARN), "nothing names it".to_owned()),
            Verdict::Grace { until } => {
                (Cell::styled("later", WARN), format!("nothing names it; in {}", age(now, *until)))
            }
            Verdict::Claimed { by, until } => {
                let why = format!("claimed by {} for {} at most", by.join(", "), age(now, *until));
                (Cell::styled("later", WARN), why)
            }
            Verdict::Named { by } => (Cell::styled("no", FAINT), format!("named by {}", by.join(", "))),
        };
        let namespace = Some(Cell::from(namespace.as_str())).filter(|_| with_namespace);
        table.row(namespace.into_iter().chain([snapshot.as_str().into(), removed, why.into()]));
    }
    table.text()
}
