//! The least that pinning can take: confpin's own requests to the API server, made directly, as many at a time.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use crate::objects::{configmap, source_name};

/// What is done with each snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// A new workload's: it is looked for and created.
    Create,
    /// One that takes the place of another, which is read along with the sources.
    Replace,
    /// The workload's own: it is read along with the sources, and claimed.
    Claim,
    /// The workload's own: it is read along with the sources, and nothing changes.
    Look,
}

/// A client with connections of its own, as confpin has, and a namespace that confpin leaves alone.
pub struct Floor {
    pub client: Client,
    pub namespace: String,
}

impl Floor {
    /// Makes the snapshots that a workload already names.
    pub async fn prepare(&self, sources: usize, bytes: usize) -> Result<()> {
        for index in 0..sources {
            let snapshot = configmap(&snapshot_name(index, STORED), bytes, STORED)?;
            crate::objects::put(&self.client, &self.namespace, &snapshot).await?;
        }
        Ok(())
    }

    /// How long the requests take: the namespace, the sources and the stored workload's snapshots first, then what is
    /// done with each snapshot. `version` (from 1 on) is new each time.
    pub async fn time(&self, sources: usize, bytes: usize, version: usize, made: Use) -> Result<Duration> {
        let configmaps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let stored = (0..sources).filter(|_| made != Use::Create).map(|index| snapshot_name(index, STORED));
        let first: Vec<_> = (0..sources).map(source_name).chain(stored).collect();
        let new: Vec<_> = (0..sources)
            .map(|index| configmap(&snapshot_name(index, version), bytes, version))
            .collect::<Result<_>>()?;
        let claim = json!({"metadata": {"ownerReferences": null, "annotations": {
            format!("claims.example/{}", version % 8): format!("a text as long as that of a claim, which is made anew: {version}"),
        }}});

        let begin = Instant::now();
        let read = try_join_all(first.iter().map(async |name| configmaps.get(name).await));
        tokio::try_join!(namespaces.get_metadata(&self.namespace), read)?;
        match made {
            Use::Create | Use::Replace => {
                try_join_all(new.iter().map(async |snapshot| {
                    configmaps.get_opt(snapshot.metadata.name.as_deref().unwrap_or_default()).await?;
                    configmaps.create(&PostParams::default(), snapshot).await
                }))
                .await?;
            }
            Use::Claim => {
                let (params, patch) = (PatchParams::default(), Patch::Merge(&claim));
                try_join_all((0..sources).map(async |index| {
                    configmaps.patch_metadata(&snapshot_name(index, STORED), &params, &patch).await
                }))
                .await?;
            }
            Use::Look => {}
        }
        Ok(begin.elapsed())
    }
}

/// The version of the snapshots that the workload names.
const STORED: usize = 0;

fn snapshot_name(index: usize, version: usize) -> String {
    format!("{}-{version}", source_name(index))
}
