//! What the demo tells, in order. Each step does something, waits for what that should cause, and shows it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testcluster::{Cluster, Mark, wait_for};

use crate::objects::{Objects, text};
use crate::output::{heading, say, table};
use crate::pods::{self, Pod};
use crate::terminal::Terminal;

/// How long a step may take to show its effect.
const DEADLINE: Duration = Duration::from_secs(90);
/// Replicas of the sample's Rollout and of its Deployment.
const SHOP: usize = 3;
const WEB: usize = 2;

const SNAPSHOTS: &str = "kubectl get configmaps --selector confpin.dev/snapshot -o custom-columns=\
    'SNAPSHOT:.metadata.name,COLOUR:.data.COLOUR,OWNED BY:.metadata.ownerReferences[*].name'";
const ROLLED_OUT: &str = "kubectl rollout status deployment/web --timeout=90s | tail -n 1";

struct Story<'a> {
    cluster: &'a Cluster,
    terminal: &'a Terminal<'a>,
    objects: Objects,
}

/// Tells it all.
pub async fn tell(cluster: &Cluster, terminal: &Terminal<'_>) -> Result<()> {
    let story = Story { cluster, terminal, objects: Objects(cluster.client()) };
    story.deploy().await?;
    story.start_a_canary().await?;
    story.kill_a_stable_pod().await?;
    story.abort().await?;
    story.undo().await?;
    story.collect().await?;
    story.delete().await
}

impl Story<'_> {
    async fn deploy(&self) -> Result<()> {
        heading("Deploy: the manifests name their ConfigMaps as ever");
        self.terminal.run("kubectl apply -f manifests/samples/00-namespace.yaml").await?;
        self.wait("the API server to call confpin", async || self.is_called().await).await?;
        self.terminal.run("kubectl apply -f manifests/samples/").await?;
        self.wait("the Rollout to be healthy", async || self.rollout_is("Healthy").await).await?;
        let shop = self.pods("shop", SHOP).await?;
        let web = self.pods("web", WEB).await?;
        self.wait("the snapshots to have owners", async || self.all_owned().await).await?;
        say("\nEach ConfigMap has an immutable copy, its snapshot, and the pods name the snapshot:");
        self.terminal.run(SNAPSHOTS).await?;
        self.show(&[shop, web].concat(), |_| ("first", "blue")).await
    }

    async fn start_a_canary(&self) -> Result<()> {
        heading("Edit the Rollout's ConfigMap and apply it: a canary starts, and pauses at 20 %");
        self.terminal.run("sed 's/blue/green/' manifests/samples/rollout.yaml | kubectl apply -f -").await?;
        self.wait("the canary to pause", async || self.rollout_is("Paused").await).await?;
        let pods = self.canary_pods().await?;
        self.show_canary(&pods).await
    }

    async fn kill_a_stable_pod(&self) -> Result<()> {
        heading("In the middle of it, a stable pod dies");
        let before = self.canary_pods().await?;
        let stable = self.stable_hash().await?;
        let victim = before.iter().find(|pod| pod.hash == stable).context("there is no stable pod")?;
        self.terminal.run(&format!("kubectl delete pod {}", victim.name)).await?;
        let pods = self.pods("shop", before.len()).await?;
        let is_new = |pod: &&Pod| before.iter().all(|old| old.name != pod.name);
        let new = pods.iter().find(is_new).context("no pod took its place")?;
        ensure!(new.hash == stable, "{} took its place, and is not of the stable revision", new.name);
        say(&format!("\nThe ConfigMap of the manifest is green. The pod that took its place, {}, is blue:", new.name));
        self.terminal.run("kubectl get configmap shop-config -o jsonpath='{.data.COLOUR}{\"\\n\"}'").await?;
        self.show_canary(&pods).await
    }

    async fn abort(&self) -> Result<()> {
        heading("Abort: all pods are as they were before the edit");
        self.terminal.run("kubectl argo rollouts abort shop").await?;
        self.wait("the Rollout to be aborted", async || self.rollout_is("Degraded").await).await?;
        let pods = self.pods("shop", SHOP).await?;
        self.show(&pods, |_| ("stable", "blue")).await
    }

    async fn undo(&self) -> Result<()> {
        heading("The Deployment: a new configuration, and back by undo");
        self.terminal.run("sed 's/blue/green/' manifests/samples/deployment.yaml | kubectl apply -f -").await?;
        self.terminal.run(ROLLED_OUT).await?;
        let pods = self.pods("web", WEB).await?;
        self.show(&pods, |_| ("second", "green")).await?;
        self.terminal.run("kubectl rollout undo deployment/web").await?;
        self.terminal.run(ROLLED_OUT).await?;
        let pods = self.pods("web", WEB).await?;
        self.show(&pods, |_| ("first", "blue")).await
    }

    async fn collect(&self) -> Result<()> {
        heading("Three more configurations: Kubernetes collects the snapshots of ReplicaSets that are gone");
        let mark = self.cluster.audit().mark().await?;
        for colour in ["red", "white", "black"] {
            let edit = format!("sed 's/blue/{colour}/' manifests/samples/deployment.yaml | kubectl apply -f -");
            self.terminal.run(&edit).await?;
            self.terminal.output(ROLLED_OUT).await?;
        }
        self.wait("the old snapshots to be collected", async || self.collected().await).await?;
        say("\nrevisionHistoryLimit is 1: the current ReplicaSet and one old one are left, and their snapshots.");
        self.terminal.run("kubectl get replicasets --selector app=web").await?;
        self.terminal.run(SNAPSHOTS).await?;
        self.show_deletions(&mark).await
    }

    async fn delete(&self) -> Result<()> {
        heading("Delete the workloads: the last snapshots go with them");
        self.terminal.run("kubectl delete deployment/web rollout/shop").await?;
        self.wait("the last snapshots to be collected", async || {
            let left = self.objects.snapshots().await?.len();
            ensure!(left == 0, "{left} are left");
            Ok(Some(()))
        })
        .await?;
        self.terminal.run("kubectl get configmaps").await
    }
}

/// What the steps show.
impl Story<'_> {
    async fn show(&self, pods: &[Pod], expected: impl Fn(&Pod) -> (&'static str, &'static str)) -> Result<()> {
        say("");
        pods::show(self.cluster, &self.objects, pods, expected).await
    }

    async fn show_canary(&self, pods: &[Pod]) -> Result<()> {
        let stable = self.stable_hash().await?;
        let expected = |pod: &Pod| if pod.hash == stable { ("stable", "blue") } else { ("canary", "green") };
        let canaries = pods.iter().filter(|pod| pod.hash != stable).count();
        ensure!(canaries == 1 && pods.len() > 1, "{canaries} of {} pods are canaries", pods.len());
        self.show(pods, expected).await
    }

    /// By the audit log, which tells who deleted what.
    async fn show_deletions(&self, mark: &Mark) -> Result<()> {
        let events = self.cluster.audit().since(mark).await?;
        let deletions = events.into_iter().filter(|event| event.is("delete", "configmaps"));
        let rows: Vec<_> = deletions
            .filter_map(|event| Some([event.object_ref?.name, event.user.username]))
            .filter(|[name, _]| name.starts_with("web-config-"))
            .collect();
        say("\nThe API server's audit log says who deleted the others:");
        table(["CONFIGMAP", "DELETED BY"], &rows);
        let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
        ensure!(rows.len() == 3 && rows.iter().all(|[_, user]| user == collector), "three, by the collector");
        Ok(())
    }
}

/// What the steps wait for.
impl Story<'_> {
    async fn wait<T>(&self, what: &str, state: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
        wait_for(what, DEADLINE, state).await
    }

    /// The API server learns of a webhook by a watch, a moment after it was registered. A dry run shows that it has.
    async fn is_called(&self) -> Result<Option<()>> {
        let ask = "kubectl apply --dry-run=server -f manifests/samples/deployment.yaml -o yaml";
        let answer = self.terminal.output(ask).await?;
        Ok(answer.contains("confpin.dev/record").then_some(()))
    }

    async fn rollout(&self) -> Result<Value> {
        self.objects.get("apis/argoproj.io/v1alpha1", "rollouts", "shop").await
    }

    async fn rollout_is(&self, phase: &str) -> Result<Option<()>> {
        let rollout = self.rollout().await?;
        let status = &rollout["status"];
        // A number in the metadata, and a text in the status.
        let generation = rollout["metadata"]["generation"].as_i64();
        let observed = text(&status["observedGeneration"]).parse().ok() == generation;
        ensure!(observed && status["phase"] == phase, "it is {}, {}", status["phase"], status["message"]);
        Ok(Some(()))
    }

    async fn stable_hash(&self) -> Result<String> {
        Ok(text(&self.rollout().await?["status"]["stableRS"]))
    }

    async fn pods(&self, app: &str, count: usize) -> Result<Vec<Pod>> {
        let what = format!("{count} ready pods of {app}");
        self.wait(&what, async || pods::ready(&self.objects, app, count).await.map(Some)).await
    }

    /// The pods of the Rollout, once the controller has settled on a number of them.
    async fn canary_pods(&self) -> Result<Vec<Pod>> {
        self.wait("the pods of the canary", async || {
            let count = self.rollout().await?["status"]["replicas"].as_u64().context("there is no count yet")?;
            pods::ready(&self.objects, "shop", count.try_into()?).await.map(Some)
        })
        .await
    }

    async fn all_owned(&self) -> Result<Option<()>> {
        let snapshots = self.objects.snapshots().await?;
        Ok(snapshots.iter().all(|it| it["metadata"]["ownerReferences"].is_array()).then_some(()))
    }

    /// Whether exactly the snapshots are left that a ReplicaSet names, of the Deployment's.
    async fn collected(&self) -> Result<Option<()>> {
        let holders = self.objects.list("apis/apps/v1", "replicasets", "app=web").await?;
        let volume = |it: &Value| text(&it["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"]);
        let named: BTreeSet<_> = holders.iter().map(volume).collect();
        let name = |it: &Value| text(&it["metadata"]["name"]);
        let snapshots = self.objects.snapshots().await?;
        let left: BTreeSet<_> = snapshots.iter().map(name).filter(|name| name.starts_with("web-config-")).collect();
        ensure!(holders.len() == 2 && named == left, "ReplicaSets name {named:?}, there are {left:?}");
        self.all_owned().await
    }
}
