//! A cluster whose pods run, which the tests of this file share. They are skipped where there is no root.

use std::{path::Path, time::Duration};

use anyhow::{Result, bail};
use testcluster::{Cluster, Component, Namespace, Program, SAMPLE_IMAGE, Unavailable, wait_for};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

const SOON: Duration = Duration::from_secs(90);
const CLIENT_IMAGE: &str = "testcluster.local/client:1";

static CLUSTER: OnceCell<Option<Cluster>> = OnceCell::const_new();
/// One test at a time: some restart a part of the cluster.
static ALONE: Mutex<()> = Mutex::const_new(());

/// The cluster and a namespace in it, for one test; nothing where a real node cannot be.
async fn set_up() -> Result<Option<(&'static Cluster, Namespace, MutexGuard<'static, ()>)>> {
    let alone = ALONE.lock().await;
    let started = CLUSTER.get_or_try_init(async || match Cluster::builder().real_node().fake_node().start().await {
        Err(error) if error.downcast_ref::<Unavailable>().is_some() => {
            eprintln!("skipped: {error:#}");
            Ok(None)
        }
        started => started.map(Some),
    });
    let Some(cluster) = started.await? else { return Ok(None) };
    Ok(Some((cluster, cluster.namespace("real").create().await?, alone)))
}

/// A pod on the real node; `container` is the rest of its only container.
fn pod(name: &str, image: &str, container: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeSelector: {{testcluster/node: real}}
  tolerations: [{{key: testcluster/node, operator: Exists}}]
  containers: [{{name: main, image: "{image}", imagePullPolicy: IfNotPresent, {container}}}]
  volumes: [{{name: settings, configMap: {{name: settings, optional: true}}}}]
"#
    )
}

/// A pod that reads the ConfigMap `settings`, and the ConfigMap.
fn reader() -> String {
    let container = r#"
    command: [sh, -c, 'echo "colour is $COLOUR"; exec sleep 3600'],
    env: [{name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}],
    volumeMounts: [{name: settings, mountPath: /settings}]
"#;
    let settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {colour: blue}\n";
    format!("{settings}---{}", pod("reader", SAMPLE_IMAGE, container))
}

async fn apply(cluster: &Cluster, namespace: &str, manifests: String) -> Result<()> {
    cluster.kubectl(["--namespace", namespace, "apply", "-f", "-"]).stdin(manifests).run().await.map(drop)
}

async fn wait_for_pod(cluster: &Cluster, namespace: &str, name: &str) -> Result<()> {
    wait_for(&format!("the pod {name} to run"), SOON, async || {
        let pod = cluster.kubectl(["--namespace", namespace, "get", "pod", name]).run().await?;
        if !pod.contains("1/1") {
            bail!("{pod}");
        }
        Ok(Some(()))
    })
    .await
}

#[tokio::test]
async fn a_test_sees_what_a_container_sees() -> Result<()> {
    let Some((cluster, namespace, _alone)) = set_up().await? else { return Ok(()) };
    let (node, namespace) = (cluster.node()?, namespace.name());
    apply(cluster, namespace, reader()).await?;
    wait_for_pod(cluster, namespace, "reader").await?;

    assert_eq!(node.environment(namespace, "reader").await?["COLOUR"], "blue");
    assert_eq!(node.read_volume_file(namespace, "reader", "/settings/colour").await?, "blue");
    assert_eq!(node.pod_logs(namespace, "reader").await?, "colour is blue\n");
    Ok(())
}

#[tokio::test]
async fn a_restarted_container_gets_the_changed_value() -> Result<()> {
    let Some((cluster, namespace, _alone)) = set_up().await? else { return Ok(()) };
    let (node, namespace) = (cluster.node()?, namespace.name());
    apply(cluster, namespace, reader()).await?;
    wait_for_pod(cluster, namespace, "reader").await?;

    let edit = r#"{"data": {"colour": "green"}}"#;
    cluster.kubectl(["--namespace", namespace, "patch", "configmap", "settings", "--patch", edit]).run().await?;
    node.restart_container(namespace, "reader").await?;

    assert_eq!(node.environment(namespace, "reader").await?["COLOUR"], "green");
    Ok(())
}

#[tokio::test]
async fn an_installed_component_calls_the_api_server_by_its_service() -> Result<()> {
    let Some((cluster, namespace, _alone)) = set_up().await? else { return Ok(()) };
    let (node, namespace) = (cluster.node()?, namespace.name());
    let kubectl = Program::Kubectl.path().await?;
    let files = [("/bin/kubectl", kubectl.as_path()), ("/bin/with-libraries", Path::new("/usr/bin/env"))];
    node.load_image(CLIENT_IMAGE, &files).await?;
    apply(cluster, namespace, pod("client", CLIENT_IMAGE, "")).await?;
    wait_for_pod(cluster, namespace, "client").await?;

    let who = node.exec(namespace, "client", &["kubectl", "auth", "whoami"]).await?;
    assert!(who.contains(&format!("system:serviceaccount:{namespace}:default")), "{who}");
    let environment = node.exec(namespace, "client", &["with-libraries"]).await?;
    assert!(environment.contains("KUBERNETES_SERVICE_HOST="), "{environment}");
    Ok(())
}

#[tokio::test]
async fn a_frozen_kubelet_goes_on_and_can_be_restarted() -> Result<()> {
    let Some((cluster, namespace, _alone)) = set_up().await? else { return Ok(()) };
    cluster.pause(Component::Kubelet)?;
    cluster.resume(Component::Kubelet)?;
    cluster.restart(Component::Kubelet).await?;

    apply(cluster, namespace.name(), pod("after", SAMPLE_IMAGE, "")).await?;
    wait_for_pod(cluster, namespace.name(), "after").await
}

#[tokio::test]
async fn argo_rollouts_can_come_to_a_running_cluster() -> Result<()> {
    let Some((cluster, namespace, _alone)) = set_up().await? else { return Ok(()) };
    cluster.install_rollouts().await?;
    let rollout = r#"
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: late}
spec:
  replicas: 1
  strategy: {canary: {}}
  selector: {matchLabels: {app: late}}
  template:
    metadata: {labels: {app: late}}
    spec: {containers: [{name: late, image: "example.invalid/late:1"}]}
"#;
    apply(cluster, namespace.name(), rollout.into()).await?;

    let replica_sets = ["--namespace", namespace.name(), "get", "replicasets", "--output=name"];
    wait_for("the Rollout's ReplicaSet", SOON, async || {
        Ok((!cluster.kubectl(replica_sets).run().await?.is_empty()).then_some(()))
    })
    .await
}
