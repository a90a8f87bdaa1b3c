//! Manifests, as JSON.

use serde_json::{Value, json};
use testcluster::{NODE_LABEL, SAMPLE_IMAGE};

/// A kind of workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Deployment,
    Rollout,
}

impl Kind {
    /// As `kubectl` takes it.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Deployment => "deployments.apps",
            Self::Rollout => "rollouts.argoproj.io",
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::Deployment => "apps/v1",
            Self::Rollout => "argoproj.io/v1alpha1",
        }
    }
}

/// A ConfigMap with one value.
pub fn configmap(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}})
}

/// A Deployment that names no ConfigMap yet.
pub fn deployment(name: &str) -> Manifest {
    Manifest::new(Kind::Deployment, name)
}

/// A Rollout that names no ConfigMap yet and moves on without pauses.
pub fn rollout(name: &str) -> Manifest {
    Manifest::new(Kind::Rollout, name).with(|object| object["spec"]["strategy"] = json!({"canary": {"maxSurge": 1}}))
}

/// A workload of either kind that names no ConfigMap yet.
pub fn workload(kind: Kind, name: &str) -> Manifest {
    match kind {
        Kind::Deployment => deployment(name),
        Kind::Rollout => rollout(name),
    }
}

/// A workload's manifest.
#[derive(Debug, Clone)]
pub struct Manifest(Value);

impl Manifest {
    fn new(kind: Kind, name: &str) -> Self {
        // The controller of Rollouts writes `resources: {}` where it is missing, and every application of the manifest
        // would take it away again, with or without confpin.
        let container = json!({"name": "main", "image": "shop.example/web:1", "resources": {}});
        Self(json!({
            "apiVersion": kind.api_version(),
            "kind": format!("{kind:?}"),
            "metadata": {"name": name},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
                },
            },
        }))
    }

    /// Any change.
    pub fn with(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.0);
        self
    }

    /// Any change of the pod template's spec.
    pub fn with_pod(self, change: impl FnOnce(&mut Value)) -> Self {
        self.with(|object| change(&mut object["spec"]["template"]["spec"]))
    }

    /// Mounts a ConfigMap at `/etc/NAME`.
    pub fn uses(self, configmap: &str) -> Self {
        self.with_pod(|pod| {
            let volume = format!("v{}", pod["volumes"].as_array().map_or(0, Vec::len));
            push(&mut pod["volumes"], json!({"name": volume, "configMap": {"name": configmap}}));
            let mount = json!({"name": volume, "mountPath": format!("/etc/{configmap}")});
            push(&mut pod["containers"][0]["volumeMounts"], mount);
        })
    }

    /// Takes the environment from a ConfigMap.
    pub fn env_from(self, configmap: &str) -> Self {
        self.with_pod(|pod| push(&mut pod["containers"][0]["envFrom"], json!({"configMapRef": {"name": configmap}})))
    }

    /// Names a ConfigMap at each kind of place that confpin knows.
    pub fn uses_everywhere(self, configmap: &str) -> Self {
        let key = json!({"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": configmap, "key": "value"}}});
        let all = json!({"configMapRef": {"name": configmap}});
        let init = json!({"name": "init", "image": "shop.example/init:1", "envFrom": [all], "env": [key]});
        self.uses(configmap).env_from(configmap).with_pod(|pod| {
            let labels = json!({"path": "labels", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.labels"}});
            let sources = json!([{"configMap": {"name": configmap}}, {"downwardAPI": {"items": [labels]}}]);
            push(&mut pod["volumes"], json!({"name": "projected", "projected": {"sources": sources}}));
            push(&mut pod["volumes"], json!({"name": "empty", "emptyDir": {}}));
            push(&mut pod["containers"][0]["env"], json!({"name": "PLAIN", "value": "plain"}));
            push(&mut pod["containers"][0]["env"], key);
            pod["initContainers"] = json!([init]);
        })
    }

    /// With another image.
    pub fn image(self, image: &str) -> Self {
        self.with_pod(|pod| pod["containers"][0]["image"] = image.into())
    }

    /// One that follows its sources.
    pub fn on_change(self) -> Self {
        self.with(|object| object["metadata"]["annotations"]["confpin.dev/rollout"] = "on-change".into())
    }

    /// With another number of pods.
    pub fn replicas(self, replicas: u32) -> Self {
        self.with(|object| object["spec"]["replicas"] = replicas.into())
    }

    /// With another number of old ReplicaSets to keep.
    pub fn history(self, limit: u32) -> Self {
        self.with(|object| object["spec"]["revisionHistoryLimit"] = limit.into())
    }

    /// With pods that run.
    pub fn on_real_node(self) -> Self {
        self.image(SAMPLE_IMAGE).with_pod(|pod| {
            pod["nodeSelector"] = json!({NODE_LABEL: "real"});
            pod["tolerations"] = json!([{"key": NODE_LABEL, "operator": "Exists"}]);
            pod["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
        })
    }

    /// The object.
    pub fn json(&self) -> Value {
        self.0.clone()
    }
}

fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = json!([item]),
    }
}
