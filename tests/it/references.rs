//! Every kind of reference to a ConfigMap, all in one workload.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::{Value, json};

use crate::support::{Kind, World, configmap, configmaps, manifest, manifest::Manifest, tests};

tests! {
    Shared every_reference_is_pinned_and_nothing_else_differs,
    Shared each_source_is_read_once,
}

/// What the workload names.
const SOURCES: [&str; 9] =
    ["volume", "projected-a", "projected-b", "env", "env-from", "init", "sidecar", "items", "many"];

/// How often it names one of them in its environment.
const MANY: usize = 44;

fn everything(kind: Kind) -> Manifest {
    let variable = |name: &str, configmap: &str| json!({"name": name, "valueFrom": {"configMapKeyRef": {"name": configmap, "key": "value"}}});
    let environment: Vec<_> = (0..MANY).map(|index| variable(&format!("MANY_{index}"), "many")).collect();
    manifest::workload(kind, "web").with_pod(|pod| {
        pod["volumes"] = json!([
            {"name": "volume", "configMap": {"name": "volume", "defaultMode": 256, "optional": false}},
            {"name": "items", "configMap": {"name": "items", "items": [{"key": "value", "path": "a/b", "mode": 288}]}},
            {"name": "scratch", "emptyDir": {}},
            {"name": "projected", "projected": {"defaultMode": 292, "sources": [
                {"configMap": {"name": "projected-a"}},
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
                {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                {"configMap": {"name": "projected-b", "optional": true, "items": [{"key": "value", "path": "b"}]}},
            ]}},
        ]);
        pod["initContainers"] = json!([
            {"name": "init", "image": "web:1", "envFrom": [{"configMapRef": {"name": "init"}}]},
            {"name": "sidecar", "image": "web:1", "restartPolicy": "Always", "env": [variable("SIDECAR", "sidecar")]},
        ]);
        pod["containers"][0]["env"] = json!([
            {"name": "PLAIN", "value": "volume"},
            variable("ENV", "env"),
            {"name": "OPTIONAL", "valueFrom": {"configMapKeyRef": {"name": "env", "key": "none", "optional": true}}},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ]);
        pod["containers"][0]["envFrom"] = json!([{"prefix": "P_", "configMapRef": {"name": "env-from"}}]);
        pod["containers"][0]["volumeMounts"] = json!([
            {"name": "volume", "mountPath": "/etc/one", "subPath": "value"},
            {"name": "items", "mountPath": "/etc/items", "readOnly": true},
        ]);
        let mut second = json!({"name": "second", "image": "web:1", "env": environment});
        second["volumeMounts"] = json!([{"name": "projected", "mountPath": "/etc/projected"}]);
        if let Some(containers) = pod["containers"].as_array_mut() {
            containers.push(second);
        }
    })
}

fn sources() -> impl Iterator<Item = Value> {
    SOURCES.iter().map(|name| configmap(name, name))
}

async fn every_reference_is_pinned_and_nothing_else_differs(world: &World) -> Result<()> {
    let pinned = world.shop("references").await?;
    let plain = world.unlabelled_shop("plain").await?;
    for kind in [Kind::Deployment, Kind::Rollout] {
        for shop in [&pinned, &plain] {
            shop.apply(sources().chain([everything(kind).json()])).await?;
            shop.workload(kind, "web").wait_rolled_out().await?;
        }
        let mut sources_of = BTreeMap::new();
        for (name, snapshot) in pinned.snapshots().await? {
            let source = snapshot.metadata.annotations.unwrap_or_default().remove("confpin.dev/source");
            assert_eq!(snapshot.data.unwrap_or_default().get("value"), source.as_ref(), "{name}");
            sources_of.insert(name, source.unwrap_or_default());
        }
        let mut got = without_server_fields(serde_json::to_value(pinned.workload(kind, "web").object().await?)?);
        let expected = without_server_fields(serde_json::to_value(plain.workload(kind, "web").object().await?)?);

        let mut unpinned = Vec::new();
        configmaps::visit(&mut got, &mut |name| match name.as_str().and_then(|name| sources_of.get(name)) {
            Some(source) => *name = source.as_str().into(),
            None => unpinned.push(name.clone()),
        });
        assert_eq!(unpinned, Vec::<Value>::new());
        let record = got["metadata"]["annotations"].as_object_mut().and_then(|map| map.remove("confpin.dev/record"));
        assert!(record.is_some());
        assert_eq!(got, expected);
        pinned.run(&format!("delete {}", pinned.workload(kind, "web"))).await?;
    }
    Ok(())
}

/// The object less what differs between any two objects.
fn without_server_fields(mut object: Value) -> Value {
    let mut annotations = object["metadata"]["annotations"].take();
    if let Some(annotations) = annotations.as_object_mut() {
        // It has the namespace in it.
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    json!({
        "apiVersion": object["apiVersion"],
        "kind": object["kind"],
        "metadata": {"name": object["metadata"]["name"], "labels": object["metadata"]["labels"], "annotations": annotations},
        "spec": object["spec"],
    })
}

async fn each_source_is_read_once(world: &World) -> Result<()> {
    let shop = world.shop("reads").await?;
    shop.apply(sources()).await?;
    let mark = shop.mark().await?;
    shop.apply([everything(Kind::Deployment).json()]).await?;

    let mut reads = BTreeMap::new();
    for event in shop.since(&mark).await?.of_confpin() {
        if let (true, Some(object)) = (event.is("get", "configmaps"), &event.object_ref) {
            *reads.entry(object.name.clone()).or_insert(0) += 1;
        }
    }
    // Besides, one look for each snapshot.
    reads.retain(|name, _| SOURCES.contains(&name.as_str()));
    assert_eq!(reads, SOURCES.iter().map(|name| ((*name).to_owned(), 1)).collect());
    Ok(())
}
