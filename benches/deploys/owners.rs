//! How soon a ReplicaSet owns its snapshot when many workloads are rolled, at once or one after the other.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{PartialObjectMeta, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use testcluster::{Cluster, wait_for};
use tokio::task::JoinHandle;
use tokio::time::interval;

use crate::figures::Sample;
use crate::objects::{configmap, deployment, put};

/// How many clients deploy at a time.
const PARALLEL: usize = 32;
const LONG: Duration = Duration::from_secs(300);

/// How many workloads are rolled, and how.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    workloads: usize,
    /// So many a second; all at once without.
    rate: Option<u32>,
}

impl Pace {
    /// What a measurement takes.
    pub const LONG: &[Self] = &[
        Self { workloads: 100, rate: Some(5) },
        Self { workloads: 200, rate: Some(20) },
        Self { workloads: 300, rate: None },
    ];
    /// Enough to see that it works.
    pub const SHORT: &[Self] = &[Self { workloads: 10, rate: Some(5) }, Self { workloads: 20, rate: None }];
}

impl fmt::Display for Pace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rate {
            Some(rate) => write!(formatter, "{} at {rate} a second", self.workloads),
            None => write!(formatter, "{} at once", self.workloads),
        }
    }
}

/// What the rollouts came to.
pub struct Rolled {
    /// From the event of a ReplicaSet's creation to the event of its owner reference.
    pub delays: Sample,
    /// From the first request to the last reference.
    pub took: Duration,
    /// Writes of confpin to snapshots: each new one is created and then owned.
    pub writes: usize,
}

/// Rolls so many Deployments, each with a source of its own whose content is new.
pub async fn measure(cluster: &Cluster, pace: Pace) -> Result<Rolled> {
    let workloads = pace.workloads;
    let namespace = cluster.namespace("owners").label("confpin.dev/pin", "enabled").create().await?;
    let site = Site { client: cluster.client(), namespace: namespace.name().to_owned(), workloads };
    let (sets, owners) = (Moments::default(), Moments::default());
    let watched: Api<PartialObjectMeta<ReplicaSet>> = site.api();
    let watching = [
        watch(watched, watcher::Config::default(), sets.clone(), |set| vec![set.uid().unwrap_or_default()]),
        watch(
            site.api::<PartialObjectMeta<ConfigMap>>(),
            watcher::Config::default().labels("confpin.dev/snapshot=true"),
            owners.clone(),
            |snapshot| snapshot.owner_references().iter().map(|owner| owner.uid.clone()).collect(),
        ),
    ];
    site.roll(0).await?;
    wait_owned(&sets, &owners, workloads).await?;

    let before = sets.all();
    site.edit(1).await?;
    let mark = cluster.audit().mark().await?;
    let begin = Instant::now();
    site.deploy(1, pace.rate).await?;
    wait_owned(&sets, &owners, 2 * workloads).await?;
    watching.iter().for_each(JoinHandle::abort);
    let (sets, owners) = (sets.all(), owners.all());
    let mut delays = Sample::default();
    let mut took = Duration::ZERO;
    for (uid, made) in sets.iter().filter(|(uid, _)| !before.contains_key(*uid)) {
        let owned = owners.get(uid).context("all are owned")?;
        // Two watches: either may be the first to tell.
        delays.push(owned.saturating_duration_since(*made));
        took = took.max(*owned - begin);
    }
    ensure!(delays.len() == workloads, "{} ReplicaSets came of {workloads} rollouts", delays.len());
    let events = cluster.audit().since(&mark).await?;
    let own = events.iter().filter(|event| event.user_agent.starts_with("confpin/"));
    let writes = own.filter(|event| event.is("create", "configmaps") || event.is("patch", "configmaps")).count();
    Ok(Rolled { delays, took, writes })
}

struct Site {
    client: Client,
    namespace: String,
    workloads: usize,
}

impl Site {
    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn roll(&self, version: usize) -> Result<()> {
        self.edit(version).await?;
        self.deploy(version, None).await
    }

    async fn edit(&self, version: usize) -> Result<()> {
        let edit = async |name: String| put(&self.client, &self.namespace, &configmap(&name, 2_000, version)?).await;
        self.each(None, edit).await
    }

    async fn deploy(&self, version: usize, rate: Option<u32>) -> Result<()> {
        let api = self.api::<Deployment>();
        self.each(rate, async |name| {
            let manifest = deployment(&name, std::slice::from_ref(&name), version)?;
            api.patch(&name, &PatchParams::apply("deploys").force(), &Patch::Apply(&manifest)).await?;
            Ok(())
        })
        .await
    }

    /// Does something with each name, by so many clients, or begins with so many a second.
    async fn each(&self, rate: Option<u32>, act: impl AsyncFn(String) -> Result<()>) -> Result<()> {
        let ticks = rate.map(|rate| interval(Duration::from_secs(1) / rate));
        let names = stream::iter((0..self.workloads).map(|index| format!("web-{index}")));
        let paced = stream::unfold((names, ticks), async |(mut names, mut ticks)| {
            if let Some(ticks) = &mut ticks {
                ticks.tick().await;
            }
            Some((anyhow::Ok(names.next().await?), (names, ticks)))
        });
        paced.try_for_each_concurrent(PARALLEL, async |name| act(name).await).await
    }
}

/// When an identity was first seen.
#[derive(Clone, Default)]
struct Moments(Arc<Mutex<HashMap<String, Instant>>>);

impl Moments {
    fn see(&self, identity: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(identity).or_insert_with(Instant::now);
    }

    fn all(&self) -> HashMap<String, Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Notes when what `identities` finds in the objects of a watch was seen first.
fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
    moments: Moments,
    identities: impl Fn(&K) -> Vec<String> + Send + 'static,
) -> JoinHandle<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    tokio::spawn(async move {
        let mut objects = std::pin::pin!(watcher(api, config).default_backoff().applied_objects());
        while let Some(object) = objects.next().await {
            // One that fails is begun again by the watcher.
            object.iter().flat_map(&identities).for_each(|identity| moments.see(identity));
        }
    })
}

async fn wait_owned(sets: &Moments, owners: &Moments, count: usize) -> Result<()> {
    wait_for("the ReplicaSets to own their snapshots", LONG, async || {
        let (sets, owners) = (sets.all(), owners.all());
        let owned = sets.keys().filter(|uid| owners.contains_key(*uid)).count();
        ensure!(sets.len() == count && owned == count, "{} ReplicaSets of {count}, {owned} own theirs", sets.len());
        Ok(Some(()))
    })
    .await
}
