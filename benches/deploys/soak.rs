//! Deploys of all sorts at a steady pace, for long: memory must stay flat, and no snapshot may be left.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, PodTemplateSpec};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use testcluster::{Cluster, wait_for};
use tokio::time::{MissedTickBehavior, interval};

use crate::confpin::Confpin;
use crate::objects::{configmap, deployment, named, put};

const WORKLOADS: usize = 40;
/// How many workloads share a source, besides the one that each has for itself.
const SHARING: usize = 8;
const PACE: Duration = Duration::from_millis(500);
const REPORT: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(300);

/// What is done to one workload.
enum Act {
    Content,
    Shared,
    Image,
    Again,
    /// Something beside the template.
    Beside,
    /// It is deleted and made anew.
    Anew,
}

impl Act {
    /// In the order of their frequency in a cluster whose manifests are applied over and over.
    const MIX: [Self; 10] = [
        Self::Again,
        Self::Content,
        Self::Again,
        Self::Image,
        Self::Again,
        Self::Beside,
        Self::Again,
        Self::Shared,
        Self::Again,
        Self::Anew,
    ];
}

/// Deploys for that long, and reports in between.
pub async fn run(cluster: &Cluster, confpin: &Confpin<'_>, lasts: Duration) -> Result<()> {
    let namespace = cluster.namespace("soak").label("confpin.dev/pin", "enabled").create().await?;
    let mut site = Site { client: cluster.client(), namespace: namespace.name().to_owned(), versions: [1; WORKLOADS] };
    for index in 0..WORKLOADS {
        site.put_sources(index).await?;
        site.apply(index).await?;
    }
    println!(
        "| after | deploys | failed | snapshots | of these named | memory | processor time |\n|---|---|---|---|---|---|---|"
    );
    let (begin, mut reported) = (Instant::now(), Instant::now());
    let (mut deploys, mut failed) = (0_usize, 0_usize);
    let mut ticks = interval(PACE);
    // A machine that is busy for a moment is not caught up with in a burst.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while begin.elapsed() < lasts {
        ticks.tick().await;
        // Every workload meets every act: seven has no divisor with the mix.
        let (index, act) = (deploys * 7 % WORKLOADS, &Act::MIX[deploys / WORKLOADS % Act::MIX.len()]);
        deploys += 1;
        if let Err(error) = site.act(index, act).await {
            failed += 1;
            eprintln!("deploy {deploys} failed: {error:#}");
        }
        if reported.elapsed() >= REPORT {
            reported = Instant::now();
            site.report(begin.elapsed(), deploys, failed, confpin).await?;
        }
    }
    let left = wait_for("only named snapshots to be left", SOON, async || {
        let (snapshots, named) = site.snapshots().await?;
        let unused: Vec<_> = snapshots.difference(&named).collect();
        ensure!(unused.is_empty(), "{} are not named: {unused:?}", unused.len());
        Ok(Some(snapshots.len()))
    })
    .await?;
    site.report(begin.elapsed(), deploys, failed, confpin).await?;
    site.api::<Deployment>().delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    wait_for("no snapshot to be left", SOON, async || Ok(site.snapshots().await?.0.is_empty().then_some(()))).await?;
    println!("\n{left} snapshots were left, all of them named; none after all workloads were deleted.");
    ensure!(failed == 0, "{failed} of {deploys} deploys failed");
    Ok(())
}

struct Site {
    client: Client,
    namespace: String,
    /// Of each workload's image and content.
    versions: [usize; WORKLOADS],
}

impl Site {
    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn act(&mut self, index: usize, act: &Act) -> Result<()> {
        let name = workload(index);
        match act {
            Act::Again => {}
            Act::Beside => {
                let patch = json!({"spec": {"minReadySeconds": self.versions[index] % 3}});
                self.api::<Deployment>().patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
                return Ok(());
            }
            Act::Content => {
                self.versions[index] += 1;
                self.put_sources(index).await?;
            }
            // The others with it take it with their next change.
            Act::Shared => {
                let source = configmap(&shared(index), 2_000, self.versions[index] + index)?;
                put(&self.client, &self.namespace, &source).await?;
            }
            Act::Image => self.versions[index] += 1,
            Act::Anew => {
                let deployments = self.api::<Deployment>();
                deployments.delete(&name, &DeleteParams::background()).await?;
                wait_for("the workload to be gone", SOON, async || {
                    Ok(deployments.get_opt(&name).await?.is_none().then_some(()))
                })
                .await?;
            }
        }
        self.apply(index).await
    }

    async fn put_sources(&self, index: usize) -> Result<()> {
        for name in [workload(index), shared(index)] {
            put(&self.client, &self.namespace, &configmap(&name, 2_000, self.versions[index])?).await?;
        }
        Ok(())
    }

    async fn apply(&self, index: usize) -> Result<()> {
        let name = workload(index);
        let mut manifest = deployment(&name, &[name.clone(), shared(index)], self.versions[index])?;
        if let Some(spec) = &mut manifest.spec {
            spec.revision_history_limit = Some(2);
        }
        let params = PatchParams::apply("soak").force();
        self.api::<Deployment>().patch(&name, &params, &Patch::Apply(&manifest)).await?;
        Ok(())
    }

    /// The snapshots that there are, and the ConfigMaps that templates name.
    async fn snapshots(&self) -> Result<(BTreeSet<String>, BTreeSet<String>)> {
        let selected = ListParams::default().labels("confpin.dev/snapshot=true");
        let snapshots = self.api::<ConfigMap>().list_metadata(&selected).await?;
        let workloads = self.api::<Deployment>().list(&ListParams::default()).await?;
        let sets = self.api::<ReplicaSet>().list(&ListParams::default()).await?;
        let of_workload = |workload: Deployment| workload.spec.map(|spec| spec.template);
        let of_set = |set: ReplicaSet| set.spec.and_then(|spec| spec.template);
        let templates = workloads.into_iter().filter_map(of_workload).chain(sets.into_iter().filter_map(of_set));
        let named = templates.flat_map(|template: PodTemplateSpec| named(template.spec.as_ref())).collect();
        Ok((snapshots.iter().map(ResourceExt::name_any).collect(), named))
    }

    async fn report(&self, after: Duration, deploys: usize, failed: usize, confpin: &Confpin<'_>) -> Result<()> {
        let (snapshots, named) = self.snapshots().await?;
        println!(
            "| {:.0} min | {deploys} | {failed} | {} | {} | {} MiB | {:.1} s |",
            after.as_secs_f64() / 60.0,
            snapshots.len(),
            snapshots.intersection(&named).count(),
            confpin.memory_mib()?,
            confpin.processor_time()?.as_secs_f64(),
        );
        Ok(())
    }
}

fn workload(index: usize) -> String {
    format!("web-{index}")
}

fn shared(index: usize) -> String {
    format!("shared-{}", index / SHARING)
}
