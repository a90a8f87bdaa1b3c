//! What admission is asked about: a workload before and after a change.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::pin::kinds::WorkloadKind;
use crate::pin::meta;

/// A workload as it stands in an admission request. `status` and `managedFields` are not even decoded: they can be
/// most of a request's size and decide nothing.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Workload {
    /// The metadata that decisions use.
    #[serde(default)]
    pub metadata: WorkloadMetadata,
    /// The whole spec.
    #[serde(default)]
    pub spec: Value,
}

/// The part of a workload's metadata that decisions use.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct WorkloadMetadata {
    /// Name; absent on a CREATE with `generateName`.
    pub name: Option<String>,
    /// UID; absent on CREATE.
    pub uid: Option<String>,
    /// Generation: the API server counts it up with each change of the spec.
    pub generation: Option<i64>,
    /// Annotations.
    pub annotations: Option<BTreeMap<String, String>>,
}

impl Workload {
    /// The pod template, or `null` where there is none (a Rollout with `workloadRef`).
    #[must_use]
    pub fn template(&self, kind: &WorkloadKind) -> &Value {
        // The path starts at the object's root with `spec`, which is a field here.
        kind.template.iter().skip(1).fold(&self.spec, |value, field| &value[*field])
    }

    /// The value of an annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }
}

/// One question to the decision.
#[derive(Debug, Clone)]
pub struct Request {
    /// The workload's kind.
    pub kind: &'static WorkloadKind,
    /// The workload's name; empty when the API server has yet to generate it.
    pub name: String,
    /// The workload as it is to be stored.
    pub new: Workload,
    /// The stored workload; `None` on CREATE.
    pub old: Option<Workload>,
    /// Whether the workload's namespace opts out by annotation.
    pub namespace_opts_out: bool,
}

impl Request {
    /// The pod template as it is to be stored.
    #[must_use]
    pub fn template(&self) -> &Value {
        self.new.template(self.kind)
    }

    /// The stored pod template.
    #[must_use]
    pub fn old_template(&self) -> Option<&Value> {
        self.old.as_ref().map(|old| old.template(self.kind))
    }

    /// Whether the template is another one than the stored.
    #[must_use]
    pub fn changes_template(&self) -> bool {
        self.old_template() != Some(self.template())
    }

    /// Whether nothing but a refresh is asked for.
    #[must_use]
    pub fn is_refresh(&self) -> bool {
        self.old.is_some()
            && !self.changes_template()
            && self.old_annotation(meta::REFRESH) != self.new.annotation(meta::REFRESH)
    }

    /// The value of an annotation of the stored workload.
    #[must_use]
    pub fn old_annotation(&self, key: &str) -> Option<&str> {
        self.old.as_ref().and_then(|old| old.annotation(key))
    }
}
