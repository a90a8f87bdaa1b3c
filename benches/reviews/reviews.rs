//! The reviews that are sent.

use std::fmt;

use anyhow::Result;
use confpin::pin::meta;
use confpin::pin::record::Record;
use confpin::pin::snapshot::{Source, names};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

/// What a review is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A template without ConfigMaps.
    Nothing,
    /// A pinned workload whose template does not change.
    Unchanged,
    /// The manifest of a pinned workload is applied again.
    Again,
    /// A new workload with a source whose snapshot is not there yet.
    New,
    /// Like [`Kind::Nothing`], but as large as can be.
    Large,
}

impl Kind {
    /// Those that are compared.
    pub const ALL: [Self; 4] = [Self::Nothing, Self::Unchanged, Self::Again, Self::New];

    /// Whether the answer has a patch.
    pub fn is_patched(self) -> bool {
        matches!(self, Self::Again | Self::New)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Nothing => "nothing to pin",
            Self::Unchanged => "pinned, same template",
            Self::Again => "same manifest again: 3 reads",
            Self::New => "one new source: 3 reads, 1 creation",
            Self::Large => "nothing to pin, large",
        })
    }
}

/// A source of 2 KB.
pub fn source(name: &str) -> Result<ConfigMap> {
    let value: String = "setting = a value as they are\n".chars().cycle().take(2_000).collect();
    Ok(serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "uid": "source", "resourceVersion": "1"}, "data": {"application.properties": value},
    }))?)
}

/// The source of the workloads that are pinned already, and its snapshot.
pub fn pinned_source() -> Result<(ConfigMap, ConfigMap)> {
    let configmap = source("pinned")?;
    let source = Source::new("pinned", &configmap);
    let mut snapshot = source.snapshot(&names("pinned", &source.hash)[0], None);
    snapshot.metadata.uid = Some("snapshot".to_owned());
    Ok((configmap, snapshot))
}

/// The review's text, with about `filling` bytes in each object that do not concern confpin.
pub fn review(kind: Kind, filling: usize) -> Result<Vec<u8>> {
    let (configmap, snapshot) = pinned_source()?;
    let snapshot = snapshot.metadata.name.unwrap_or_default();
    let source = Source::new("pinned", &configmap);
    let record = Record([("pinned".to_owned(), Some(source.hash))].into()).text();
    let pinned = deployment(&[&snapshot], Some(&record), filling);
    let (operation, object, old) = match kind {
        Kind::Nothing => ("CREATE", deployment(&[], None, filling), Value::Null),
        Kind::Large => ("UPDATE", deployment(&[], None, filling), deployment(&[], None, filling)),
        Kind::New => ("CREATE", deployment(&["new"], None, filling), Value::Null),
        Kind::Again => ("UPDATE", deployment(&["pinned"], Some(&record), filling), pinned),
        Kind::Unchanged => {
            let mut object = pinned.clone();
            object["metadata"]["labels"]["changed"] = "yes".into();
            ("UPDATE", object, pinned)
        }
    };
    let deployments = json!({"group": "apps", "version": "v1", "resource": "deployments"});
    let kind = json!({"group": "apps", "version": "v1", "kind": "Deployment"});
    Ok(serde_json::to_vec(&json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "5d9a4d1e-0000-4000-8000-000000000000", "kind": kind, "resource": deployments,
            "requestKind": kind, "requestResource": deployments, "name": "web", "namespace": "shop",
            "operation": operation, "userInfo": {"username": "somebody"}, "object": object, "oldObject": old,
            "dryRun": false, "options": {"apiVersion": "meta.k8s.io/v1", "kind": "UpdateOptions"},
        },
    }))?)
}

/// A Deployment as an API server shows it, with the fields that it fills in.
fn deployment(configmaps: &[&str], record: Option<&str>, filling: usize) -> Value {
    let volumes: Vec<_> = (0..)
        .zip(configmaps)
        .map(|(index, name)| json!({"name": format!("v{index}"), "configMap": {"name": name, "defaultMode": 420}}))
        .collect();
    let environment: Vec<_> =
        (0..20).map(|index| json!({"name": format!("SETTING_{index}"), "value": "a value as they are"})).collect();
    let filler: Vec<_> = (0..filling / 100).map(|index| format!("{index:-<97}")).collect();
    let container = |name: &str| {
        json!({"name": name, "image": format!("shop.example/{name}:1"), "imagePullPolicy": "IfNotPresent",
               "env": environment, "args": filler, "ports": [{"containerPort": 8080, "protocol": "TCP"}],
               "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}, "terminationMessagePolicy": "File",
               "livenessProbe": {"httpGet": {"path": "/livez", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10}})
    };
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "uid": "web", "generation": 3, "resourceVersion": "7",
                     "labels": {"app": "web"}, "annotations": {"deployment.kubernetes.io/revision": "3"},
                     "managedFields": [{"manager": "kubectl", "operation": "Apply", "apiVersion": "apps/v1",
                                        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]},
        "spec": {
            "replicas": 3, "revisionHistoryLimit": 10, "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": {"metadata": {"labels": {"app": "web"}},
                         "spec": {"containers": [container("web")], "volumes": volumes, "restartPolicy": "Always",
                                  "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}},
        },
        "status": {"observedGeneration": 3, "replicas": 3, "readyReplicas": 3},
    });
    if let Some(record) = record {
        object["metadata"]["annotations"][meta::RECORD] = record.into();
    }
    object
}
