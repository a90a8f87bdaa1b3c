//! A cluster whose pods run.

use std::time::Duration;

use anyhow::{Result, bail};
use testcluster::{Cluster, SAMPLE_IMAGE, Unavailable, wait_for};

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
    wait_for("the pod to run", SOON, async || {
        let pod = cluster.kubectl(["--namespace", name, "get", "pod", "reader"]).run().await?;
        if !pod.contains("1/1") {
            bail!("{pod}");
        }
        Ok(Some(()))
    })
    .await?;

    let node = cluster.node()?;
    assert_eq!(node.environment(name, "reader").await?["COLOUR"], "blue");
    assert_eq!(node.read_volume_file(name, "reader", "/settings/colour").await?, "blue");
    assert_eq!(node.pod_logs(name, "reader").await?, "colour is blue\n");

    let edit = r#"{"data": {"colour": "green"}}"#;
    cluster.kubectl(["--namespace", name, "patch", "configmap", "settings", "--patch", edit]).run().await?;
    node.restart_container(name, "reader").await?;
    assert_eq!(node.environment(name, "reader").await?["COLOUR"], "green");

    // What a pod of an installed component does: call the API server by its Service.
    let call = "wget -q -O - --no-check-certificate https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/version";
    assert!(node.exec(name, "reader", &["sh", "-c", call]).await?.contains("v1.36.3"));
    Ok(())
}
