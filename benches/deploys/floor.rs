//! The least that pinning can take: confpin's own requests to the API server, made directly, as many at a time.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use crate::objects::{configmap, source_name};

/// What is done with each snapshot after it was looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// It is not there, and is created.
    Create,
    /// It is there, and is claimed.
    Claim,
    /// It is there, and nothing changes.
    Look,
}

/// A client with connections of its own, as confpin has, and a namespace that confpin leaves alone.
pub struct Floor {
    pub client: Client,
    pub namespace: String,
}

impl Floor {
    /// Makes the snapshots that [`Use::Claim`] and [`Use::Look`] find.
    pub async fn prepare(&self, sources: usize, bytes: usize) -> Result<()> {
        for index in 0..sources {
            let snapshot = configmap(&snapshot_name(index, 0), bytes, 0)?;
            crate::objects::put(&self.client, &self.namespace, &snapshot).await?;
        }
        Ok(())
    }

    /// How long the requests take: the namespace and the sources first, then each snapshot. `version` (from 1 on) is
    /// new each time.
    pub async fn time(&self, sources: usize, bytes: usize, version: usize, made: Use) -> Result<Duration> {
        let configmaps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let named = if made == Use::Create { version } else { 0 };
        let snapshots: Vec<_> =
            (0..sources).map(|index| configmap(&snapshot_name(index, named), bytes, version)).collect::<Result<_>>()?;
        let claim = json!({"metadata": {"ownerReferences": null, "annotations": {
            format!("claims.example/{}", version % 8): format!("a text as long as that of a claim, which is made anew: {version}"),
        }}});

        let begin = Instant::now();
        let read = try_join_all((0..sources).map(async |index| configmaps.get(&source_name(index)).await));
        tokio::try_join!(namespaces.get_metadata(&self.namespace), read)?;
        try_join_all(snapshots.iter().map(async |snapshot| {
            let name = snapshot.metadata.name.as_deref().unwrap_or_default();
            configmaps.get_opt(name).await?;
            match made {
                Use::Create => drop(configmaps.create(&PostParams::default(), snapshot).await?),
                Use::Claim => {
                    drop(configmaps.patch_metadata(name, &PatchParams::default(), &Patch::Merge(&claim)).await?);
                }
                Use::Look => {}
            }
            Ok::<_, kube::Error>(())
        }))
        .await?;
        Ok(begin.elapsed())
    }
}

fn snapshot_name(index: usize, version: usize) -> String {
    format!("{}-{version}", source_name(index))
}
