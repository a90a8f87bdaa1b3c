//! A cluster whose pods run.

use std::{path::Path, time::Duration};

use anyhow::{Result, bail};
use testcluster::{Cluster, Component, Program, SAMPLE_IMAGE, Unavailable, wait_for};

const SOON: Duration = Duration::from_secs(90);

fn manifests() -> String {
    format!(
        r#"
apiVersion: v1
kind: ConfigMap
metadata: {{name: settings}}
data: {{colour: blue}}
---
apiVersion: v1
kind: Pod
metadata: {{name: reader}}
spec:
  nodeSelector: {{testcluster/node: real}}
  tolerations: [{{key: testcluster/node, operator: Exists}}]
  containers:
    - name: reader
      image: {SAMPLE_IMAGE}
      imagePullPolicy: IfNotPresent
      command: [sh, -c, 'echo "colour is $COLOUR"; exec sleep 3600']
      env: [{{name: COLOUR, valueFrom: {{configMapKeyRef: {{name: settings, key: colour}}}}}}]
      volumeMounts: [{{name: settings, mountPath: /settings}}]
  volumes: [{{name: settings, configMap: {{name: settings}}}}]
"#
    )
}

const CLIENT: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  nodeSelector: {testcluster/node: real}
  tolerations: [{key: testcluster/node, operator: Exists}]
  containers: [{name: client, image: "testcluster.local/client:1", imagePullPolicy: IfNotPresent}]
"#;

const ROLLOUT: &str = r#"
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
async fn a_pods_environment_and_files_can_be_read() -> Result<()> {
    let cluster = match Cluster::builder().real_node().fake_node().start().await {
        Ok(cluster) => cluster,
        Err(error) if error.downcast_ref::<Unavailable>().is_some() => {
            eprintln!("skipped: {error:#}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let namespace = cluster.namespace("real").create().await?;
    let name = namespace.name();
    cluster.kubectl(["--namespace", name, "apply", "-f", "-"]).stdin(manifests()).run().await?;
    wait_for_pod(&cluster, name, "reader").await?;

    let node = cluster.node()?;
    assert_eq!(node.environment(name, "reader").await?["COLOUR"], "blue");
    assert_eq!(node.read_volume_file(name, "reader", "/settings/colour").await?, "blue");
    assert_eq!(node.pod_logs(name, "reader").await?, "colour is blue\n");

    let edit = r#"{"data": {"colour": "green"}}"#;
    cluster.kubectl(["--namespace", name, "patch", "configmap", "settings", "--patch", edit]).run().await?;
    node.restart_container(name, "reader").await?;
    assert_eq!(node.environment(name, "reader").await?["COLOUR"], "green");

    cluster.pause(Component::Kubelet)?;
    cluster.resume(Component::Kubelet)?;
    cluster.restart(Component::Kubelet).await?;
    wait_for("the new kubelet to know the pod", SOON, async || Ok(Some(node.pod_logs(name, "reader").await?))).await?;

    // What an installed component does: call the API server by its Service, as its ServiceAccount.
    let kubectl = Program::Kubectl.path().await?;
    let files = [("/bin/kubectl", kubectl.as_path()), ("/bin/with-libraries", Path::new("/usr/bin/env"))];
    node.load_image("testcluster.local/client:1", &files).await?;
    cluster.kubectl(["--namespace", name, "apply", "-f", "-"]).stdin(CLIENT).run().await?;
    wait_for_pod(&cluster, name, "client").await?;
    let who = node.exec(name, "client", &["kubectl", "auth", "whoami"]).await?;
    assert!(who.contains(&format!("system:serviceaccount:{name}:default")), "{who}");

    assert!(node.exec(name, "client", &["with-libraries"]).await?.contains("KUBERNETES_SERVICE_HOST="));

    // Argo Rollouts can also come to a cluster that runs.
    cluster.install_rollouts().await?;
    cluster.kubectl(["--namespace", name, "apply", "-f", "-"]).stdin(ROLLOUT).run().await?;
    let replica_sets = ["--namespace", name, "get", "replicasets", "--output=name"];
    wait_for("the Rollout's ReplicaSet", SOON, async || {
        Ok((!cluster.kubectl(replica_sets).run().await?.is_empty()).then_some(()))
    })
    .await?;
    Ok(())
}
