//! How much longer a request for a Deployment takes with confpin, and what of that is not confpin's to save.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use testcluster::{Cluster, wait_for};

use crate::confpin::Confpin;
use crate::figures::Sample;
use crate::floor::{Floor, Use};
use crate::objects::{configmap, deployment, names, put, source_name};

const SOON: Duration = Duration::from_secs(30);

/// A request that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// A new Deployment with new content.
    Create,
    /// Another image and another content.
    Update,
    /// Another image and the same content.
    Image,
    /// The same manifest again.
    Again,
    /// Another number of replicas.
    Scale,
    /// A new Deployment that names just a ConfigMap which is never pinned: the API server asks, and confpin answers
    /// at once. What that takes is the price of any webhook.
    Exempt,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub act: Act,
    pub sources: usize,
    pub bytes: usize,
    pub repetitions: usize,
}

impl Case {
    /// Whether a few repetitions of it take little time.
    pub fn is_small(self) -> bool {
        self.bytes < 10_000 && self.sources <= 3
    }

    /// Whether the medians are within some times the aims: what is asked of a program that is not optimised, on a
    /// machine that has much else to do.
    pub fn is_near(self, times: &Times) -> bool {
        const CALL: f64 = 30.0;
        let (most, is_asked) = match self.floor() {
            Some(_) => (4.0 * times.floor.median() + CALL, true),
            None if self.act == Act::Exempt => (CALL, true),
            None => (0.5 * times.without.median() + 5.0, false),
        };
        times.added(0.5) <= most && times.inside.is_some() == is_asked
    }

    /// What confpin has to do with the snapshots; `None` where the API server does not ask it.
    fn floor(self) -> Option<Use> {
        match self.act {
            _ if self.sources == 0 => None,
            Act::Create => Some(Use::Create),
            Act::Update => Some(Use::Replace),
            Act::Image => Some(Use::Claim),
            Act::Again => Some(Use::Look),
            Act::Scale | Act::Exempt => None,
        }
    }
}

/// One case's times.
#[derive(Debug, Default)]
pub struct Times {
    pub with: Sample,
    pub without: Sample,
    pub floor: Sample,
    /// The mean time, in milliseconds, that confpin itself took for an answer; `None` where it was not asked.
    pub inside: Option<f64>,
}

impl Times {
    /// By how much the requests that the quantiles tell of are longer with confpin, in milliseconds.
    pub fn added(&self, quantile: f64) -> f64 {
        self.with.quantile(quantile) - self.without.quantile(quantile)
    }

    /// How often the floor's time is added; `None` without a floor.
    pub fn ratio(&self, quantile: f64) -> Option<f64> {
        let floor = self.floor.quantile(quantile);
        (floor > 0.0).then(|| self.added(quantile) / floor)
    }
}

/// Measures one case: each repetition with confpin, without, and the floor, in turns.
pub async fn measure(cluster: &Cluster, confpin: &Confpin<'_>, case: Case) -> Result<Times> {
    let namespace = async |enabled: &str| {
        Ok::<_, anyhow::Error>(
            cluster.namespace("deploys").label("confpin.dev/pin", enabled).create().await?.name().to_owned(),
        )
    };
    let with = Site::new(cluster.client(), namespace("enabled").await?, case).await?;
    let without = Site::new(cluster.client(), namespace("none").await?, case).await?;
    let floor = Floor { client: cluster.client(), namespace: namespace("none").await? };
    floor.prepare(case.sources, case.bytes).await?;
    put_sources(&floor.client, &floor.namespace, case, 0).await?;

    let mut times = Times::default();
    let before = confpin.admissions().await?;
    // The first one opens connections and is not counted.
    for round in 0..=case.repetitions {
        let version = round + 1;
        with.prepare(version).await?;
        without.prepare(version).await?;
        let mut took = [Duration::ZERO; 3];
        for turn in 0..took.len() {
            // Whoever is first may find the machine in another state than the last one does.
            let arm = (turn + round) % took.len();
            took[arm] = match (arm, case.floor()) {
                (0, _) => with.time(version).await?,
                (1, _) => without.time(version).await?,
                (_, Some(made)) => floor.time(case.sources, case.bytes, version, made).await?,
                (_, None) => Duration::ZERO,
            };
        }
        if round > 0 {
            times.with.push(took[0]);
            times.without.push(took[1]);
            times.floor.push(took[2]);
        }
    }
    times.inside = confpin.admissions().await?.mean_since(before);
    let last = case.repetitions + 1;
    ensure!(
        with.is_pinned(last).await? == (case.act != Act::Exempt && case.sources > 0),
        "not what was measured: {case:?}"
    );
    ensure!(!without.is_pinned(last).await?, "pinned without confpin: {case:?}");
    Ok(times)
}

/// A namespace in which the case's request is made, over one connection that is kept.
struct Site {
    client: Client,
    namespace: String,
    case: Case,
}

impl Site {
    async fn new(client: Client, namespace: String, case: Case) -> Result<Self> {
        let site = Self { client, namespace, case };
        put_sources(&site.client, &site.namespace, case, 0).await?;
        if !matches!(case.act, Act::Create | Act::Exempt) {
            site.apply("web", 0).await?;
        }
        Ok(site)
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn manifest(&self, name: &str, version: usize) -> Result<Deployment> {
        let sources: Vec<_> = match self.case.act {
            Act::Exempt => vec!["kube-root-ca.crt".to_owned()],
            _ => (0..self.case.sources).map(source_name).collect(),
        };
        deployment(name, &sources, version)
    }

    /// Server-side apply, as GitOps controllers do it.
    async fn apply(&self, name: &str, version: usize) -> Result<Duration> {
        let manifest = self.manifest(name, version)?;
        let begin = Instant::now();
        self.deployments().patch(name, &PatchParams::apply("deploys").force(), &Patch::Apply(&manifest)).await?;
        Ok(begin.elapsed())
    }

    /// Whether the Deployment that was last measured names snapshots.
    async fn is_pinned(&self, version: usize) -> Result<bool> {
        let name = match self.case.act {
            Act::Create | Act::Exempt => format!("web-{version}"),
            _ => "web".to_owned(),
        };
        let stored = self.deployments().get(&name).await?;
        Ok(names(&stored) != names(&self.manifest(&name, version)?))
    }

    /// Waits until nothing is left to do of the last request, and edits the sources where the case is about new content.
    async fn prepare(&self, version: usize) -> Result<()> {
        self.wait_owned().await?;
        match self.case.act {
            Act::Create | Act::Update => put_sources(&self.client, &self.namespace, self.case, version).await,
            _ => Ok(()),
        }
    }

    /// People do not deploy a workload again before it owns its snapshots; claims would meet the reconciler's writes.
    async fn wait_owned(&self) -> Result<()> {
        let snapshots: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let selected = ListParams::default().labels("confpin.dev/snapshot=true");
        wait_for("the snapshots to be owned", SOON, async || {
            let found = snapshots.list_metadata(&selected).await?;
            Ok(found.iter().all(|it| it.metadata.owner_references.is_some()).then_some(()))
        })
        .await
    }

    async fn time(&self, version: usize) -> Result<Duration> {
        match self.case.act {
            Act::Create | Act::Exempt => {
                let manifest = self.manifest(&format!("web-{version}"), version)?;
                let begin = Instant::now();
                self.deployments().create(&PostParams::default(), &manifest).await?;
                Ok(begin.elapsed())
            }
            Act::Update | Act::Image => self.apply("web", version).await,
            Act::Again => self.apply("web", 0).await,
            Act::Scale => {
                let patch = json!({"spec": {"replicas": 1 + version % 2}});
                let begin = Instant::now();
                self.deployments().patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await?;
                Ok(begin.elapsed())
            }
        }
    }
}

async fn put_sources(client: &Client, namespace: &str, case: Case, version: usize) -> Result<()> {
    for index in 0..case.sources {
        put(client, namespace, &configmap(&source_name(index), case.bytes, version)?).await?;
    }
    Ok(())
}
