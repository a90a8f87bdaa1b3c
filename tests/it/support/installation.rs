//! confpin as an operator installs it: its image, its manifests, two replicas on the real node.

use std::{
    collections::BTreeMap,
    fs,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use confpin::install;
use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration,
    apps::v1::Deployment,
    coordination::v1::Lease,
    core::v1::{Pod, Secret},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;
use testcluster::{Cluster, NODE_LABEL, Program, wait_for};

use super::{
    SOON, World,
    confpin::{Confpin, ask},
    image,
    rendered::{chart, run_helm},
    world::LABEL,
};

/// Where confpin is installed.
pub const NAMESPACE: &str = install::NAMESPACE;
/// A share of the processors that counts beside a whole control plane on the same machine.
const SHARE: &str = "500m";
/// What it logs.
const LOG: &str = "--log=info,confpin=debug";

/// A cluster with an installation in it. Workloads run on the fake node, confpin on the real one.
pub struct Installation {
    pub world: World,
    folder: PathBuf,
}

impl Installation {
    /// Installs `manifests/overlays/self-managed`, with more arguments of confpin.
    pub async fn start(arguments: &[&str]) -> Result<Self> {
        Self::prepare().await?.install("self-managed", arguments).await
    }

    /// Installs cert-manager, and then `manifests/overlays/cert-manager`.
    pub async fn start_with_cert_manager() -> Result<Self> {
        let installation = Self::prepare().await?;
        installation.world.cluster.install_cert_manager().await?;
        installation.install("cert-manager", &[]).await
    }

    /// Installs a shipped overlay, and returns when the API server asks what it installed.
    async fn install(self, overlay: &str, arguments: &[&str]) -> Result<Self> {
        self.write_overlay(overlay, arguments)?;
        self.apply().await?;
        self.wait_ready().await?;
        self.world.wait_until_asked().await?;
        Ok(self)
    }

    /// Installs the two parts of the chart, for these namespaces only, which it makes.
    pub async fn start_namespaced(namespaces: &[&str]) -> Result<Self> {
        let installation = Self::prepare().await?;
        let cluster = &installation.world.cluster;
        for namespace in namespaces {
            cluster.kubectl(["create", "namespace", namespace]).run().await?;
            cluster.kubectl(["label", "namespace", namespace, &format!("{}={}", LABEL.0, LABEL.1)]).run().await?;
        }
        let (repository, tag) = image::IMAGE.rsplit_once(':').context("the image has a tag")?;
        let values = json!({
            "watchNamespaces": namespaces,
            "priorityClassName": "",
            "image": {"repository": repository, "tag": tag},
            "nodeSelector": {NODE_LABEL: "real"},
            "tolerations": [{"key": NODE_LABEL, "operator": "Exists"}],
            "resources": {"requests": {"cpu": SHARE}},
            "extraArgs": [LOG],
        });
        fs::create_dir_all(&installation.folder)?;
        let file = installation.folder.join("values.yaml");
        fs::write(&file, values.to_string())?;
        let (chart, values) = (chart(), format!("--values={}", file.display()));
        for part in ["administrator", "team"] {
            let (namespace, set) = (["--namespace", NAMESPACE, "--create-namespace"], format!("--set=part={part}"));
            let install = [&["install", part, &chart, &values, &set][..], &namespace].concat();
            run_helm(cluster, Program::Helm4, &install).await?;
        }
        installation.wait_ready().await?;
        Ok(installation)
    }

    /// A cluster that has the image.
    async fn prepare() -> Result<Self> {
        // First, since it tells whether this machine can have a real node, and brings what builds an image.
        let cluster = Cluster::builder().fake_node().real_node().start().await?;
        cluster.node()?.import_images(image::archive().await?).await?;
        let folder = cluster.folder().join("install");
        let confpin = Confpin::new(&cluster, &[])?;
        Ok(Self { world: World::new(cluster, confpin), folder })
    }

    /// An overlay of the shipped one with what differs here: the image, the node, and arguments.
    fn write_overlay(&self, shipped: &str, arguments: &[&str]) -> Result<()> {
        fs::create_dir_all(&self.folder)?;
        let add = |path: &str, value: serde_json::Value| json!({"op": "add", "path": path, "value": value});
        let pod = "/spec/template/spec";
        let toleration = json!([{"key": NODE_LABEL, "operator": "Exists"}]);
        let mut patch = vec![
            add(&format!("{pod}/tolerations"), toleration),
            add(&format!("{pod}/nodeSelector"), json!({NODE_LABEL: "real"})),
            add(&format!("{pod}/containers/0/resources/requests/cpu"), json!(SHARE)),
        ];
        let arguments = arguments.iter().chain(&[LOG]);
        patch.extend(arguments.map(|argument| add(&format!("{pod}/containers/0/args/-"), json!(argument))));
        let (name, tag) = image::IMAGE.rsplit_once(':').context("the image has a tag")?;
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/overlays").join(shipped);
        let overlay = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [relative(&self.folder, &shipped)],
            "images": [{"name": "confpin", "newName": name, "newTag": tag}],
            "patches": [{
                "target": {"kind": "Deployment", "name": "confpin"},
                "patch": serde_json::Value::Array(patch).to_string(),
            }],
        });
        Ok(fs::write(self.folder.join("kustomization.yaml"), overlay.to_string())?)
    }

    /// `kubectl apply -k`.
    pub async fn apply(&self) -> Result<()> {
        let folder = self.folder.display().to_string();
        self.world.cluster.kubectl(["apply", "--kustomize", &folder]).run().await.map(drop)
    }

    /// Waits until both replicas are ready and no other is left.
    pub async fn wait_ready(&self) -> Result<()> {
        let deployments: Api<Deployment> = self.api();
        wait_for("both replicas of confpin to be ready", SOON, async || {
            let deployment = deployments.get(install::NAME).await?;
            let status = deployment.status.unwrap_or_default();
            let counts = (status.ready_replicas, status.updated_replicas, status.replicas);
            let seen = status.observed_generation == deployment.metadata.generation;
            if !seen || counts != (Some(2), Some(2), Some(2)) {
                let pods = self.pods().await?;
                let states: Vec<_> = pods.iter().map(|pod| (pod.name_any(), pod.status.as_ref().map(brief))).collect();
                bail!("ready, updated and all are {counts:?}: {states:?}");
            }
            Ok(Some(()))
        })
        .await
    }

    /// Objects of the installation.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.world.client.clone(), NAMESPACE)
    }

    /// The replicas that are not about to end.
    pub async fn pods(&self) -> Result<Vec<Pod>> {
        let own = ListParams::default().labels("app.kubernetes.io/name=confpin");
        let pods = self.api::<Pod>().list(&own).await?;
        Ok(pods.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect())
    }

    /// Has this many replicas from now on; of none, waits until the last has ended.
    pub async fn scale(&self, replicas: usize) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.api::<Deployment>().patch(install::NAME, &PatchParams::default(), &patch).await?;
        if replicas > 0 {
            return Ok(());
        }
        wait_for("all replicas to have ended", SOON, async || {
            let pods = self.api::<Pod>().list(&ListParams::default()).await?;
            Ok(pods.items.is_empty().then_some(()))
        })
        .await
    }

    /// Who holds the Lease.
    pub async fn leader(&self) -> Result<String> {
        let lease = self.api::<Lease>().get(install::LEASE).await?;
        let holder = lease.spec.and_then(|spec| spec.holder_identity).filter(|holder| !holder.is_empty());
        holder.context("nobody holds the Lease")
    }

    /// Ends a replica by SIGKILL; the kubelet starts it again.
    pub async fn kill(&self, pod: &str) -> Result<()> {
        self.world.cluster.node()?.kill_container(NAMESPACE, pod).await
    }

    /// Takes a pod away without waiting for it to end; the ReplicaSet makes another.
    pub async fn take_away(&self, pod: &str) -> Result<()> {
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.api::<Pod>().delete(pod, &at_once).await?;
        Ok(())
    }

    /// The Secret of the CA.
    pub async fn secret(&self) -> Result<Secret> {
        Ok(self.api::<Secret>().get(install::CA_SECRET).await?)
    }

    /// A key of the Secret of the CA.
    pub async fn secret_value(&self, key: &str) -> Result<String> {
        self.value_of(install::CA_SECRET, key).await
    }

    /// A key of a Secret.
    pub async fn value_of(&self, secret: &str, key: &str) -> Result<String> {
        let values = self.api::<Secret>().get(secret).await?.data.unwrap_or_default();
        let value = values.get(key).with_context(|| format!("the Secret {secret} has no {key}"))?;
        Ok(String::from_utf8(value.0.clone())?)
    }

    /// The CA bundles of the webhook configuration, all of which are to be the same.
    pub async fn bundle(&self) -> Result<String> {
        let api: Api<MutatingWebhookConfiguration> = Api::all(self.world.client.clone());
        let webhooks = api.get(install::NAME).await?.webhooks.unwrap_or_default();
        let mut bundles = webhooks.into_iter().map(|webhook| webhook.client_config.ca_bundle.unwrap_or_default().0);
        let first = bundles.next().context("the configuration has webhooks")?;
        ensure!(bundles.all(|bundle| bundle == first), "the webhooks trust different CAs");
        Ok(String::from_utf8(first)?)
    }

    /// A metric of each replica, by pod.
    pub async fn metrics(&self, name: &str) -> Result<BTreeMap<String, f64>> {
        let mut values = BTreeMap::new();
        for pod in self.pods().await? {
            let address =
                pod.status.as_ref().and_then(|status| status.pod_ip.clone()).context("a pod has an address")?;
            let (_, text) = ask(&format!("http://{address}:8080/metrics")).await?;
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            values.insert(pod.name_any(), line.with_context(|| format!("no metric {name}"))?.parse()?);
        }
        Ok(values)
    }

    /// What all replicas have logged that still are there.
    pub async fn logs(&self) -> Result<String> {
        let mut logs = String::new();
        for pod in self.pods().await? {
            logs.push_str(&self.world.cluster.node()?.pod_logs(NAMESPACE, &pod.name_any()).await.unwrap_or_default());
        }
        Ok(logs)
    }
}

fn brief(status: &k8s_openapi::api::core::v1::PodStatus) -> String {
    let containers = status.container_statuses.iter().flatten();
    let states: Vec<_> = containers.map(|it| format!("{:?} restarts {}", it.state, it.restart_count)).collect();
    format!("{:?} {:?} {states:?}", status.phase, status.message)
}

/// The way from one folder to another, both absolute: kustomize takes no other.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let ups = from.components().filter(|part| matches!(part, Component::Normal(_))).map(|_| "..");
    ups.collect::<PathBuf>().join(to.strip_prefix("/").unwrap_or(to))
}
