//! One workload with its revisions, for the commands that are about one.

use anyhow::{Context, Result};
use kube::api::{DynamicObject, ListParams};

use super::Error;
use super::connection::{Connection, ConnectionArgs};
use crate::cluster::workloads::replica_sets;
use crate::inspect::facts::Facts;
use crate::inspect::history::{Revision, history};
use crate::inspect::target::WorkloadTarget;
use crate::pin::objects::WorkloadState;

/// A workload that a command is about.
#[derive(Debug, Clone, clap::Args)]
pub struct WorkloadArgs {
    /// The workload, as TYPE/NAME or TYPE NAME.
    #[arg(value_name = "WORKLOAD", num_args = 1..=2, required = true)]
    workload: Vec<String>,

    #[command(flatten)]
    connection: ConnectionArgs,
}

/// A workload, and what is around it.
pub struct Around {
    /// The cluster and namespace.
    pub connection: Connection,
    /// Which workload it is.
    pub target: WorkloadTarget,
    /// The workload.
    pub object: DynamicObject,
    /// The metadata of the namespace's ConfigMaps, and the workload alone.
    pub facts: Facts,
    /// The workload's revisions, the newest first.
    pub revisions: Vec<Revision>,
}

impl WorkloadArgs {
    /// Reads the workload and what is around it.
    ///
    /// # Errors
    /// When it is no workload, there is none, or it may not be read.
    pub async fn read(&self) -> Result<Around, Error> {
        let target = WorkloadTarget::parse(&self.workload)?;
        let connection = self.connection.connect().await?;
        let (cluster, namespace) = (&connection.cluster, connection.namespace.as_str());
        let object = cluster.workload_object(target.kind, namespace, &target.name).await?;
        let object =
            object.with_context(|| format!("failed to find {target}: there is none in namespace {namespace}"))?;
        let state = WorkloadState::new(target.kind, &object);
        let params = state.selector.map_or_else(ListParams::default, |it| ListParams::default().labels(&it));
        let (resource, mut sets) = (replica_sets(), Vec::new());
        let each = |set: DynamicObject| sets.push(set);
        let (mut facts, listed) = tokio::join!(
            Facts::around(cluster, namespace, target.kind, &object),
            cluster.each_object(&resource, Some(namespace), params, each)
        );
        facts.gaps.extend(listed.err());
        let revisions = history(target.kind, &object, &sets, &facts);
        Ok(Around { connection, target, object, facts, revisions })
    }
}
