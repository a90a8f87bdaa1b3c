//! Every label, annotation and name that confpin writes or reads on Kubernetes objects, once.

/// Prefix of all labels and annotations of confpin, except for claims.
pub const PREFIX: &str = "confpin.dev/";

/// Namespace label, and annotation on namespaces, workloads and ConfigMaps.
///
/// As a namespace *label* with the value [`ENABLED`] it opts a namespace in. As an *annotation* with the value
/// [`DISABLED`] it opts a namespace, a workload or a ConfigMap out.
pub const PIN: &str = "confpin.dev/pin";
/// Value of [`PIN`] that opts in.
pub const ENABLED: &str = "enabled";
/// Value of [`PIN`] that opts out.
pub const DISABLED: &str = "disabled";

/// Label of every snapshot, with the value [`TRUE`]: what the reconciler watches by.
pub const SNAPSHOT: &str = "confpin.dev/snapshot";
/// Value of [`SNAPSHOT`].
pub const TRUE: &str = "true";

/// Annotation of a snapshot: the full name of its source (a label value would be cut at 63 characters).
pub const SOURCE: &str = "confpin.dev/source";
/// Annotation of a snapshot: SHA-256 of the source's name and content, 64 hex digits.
pub const CONTENT_HASH: &str = "confpin.dev/content-hash";
/// Annotation of a snapshot, for people: the source's UID when the snapshot was made.
pub const SOURCE_UID: &str = "confpin.dev/source-uid";
/// Annotation of a snapshot, for people: the source's resourceVersion when the snapshot was made.
pub const SOURCE_RESOURCE_VERSION: &str = "confpin.dev/source-resource-version";
/// Prefix of a snapshot's claim annotations, see [`crate::pin::claim`].
pub const CLAIM_PREFIX: &str = "claims.confpin.dev/";

/// Annotation of a workload: what each source contained when its template was decided, see [`crate::pin::record`].
pub const RECORD: &str = "confpin.dev/record";
/// Annotation of a workload that only the reconciler sets: a new value asks admission to decide again.
pub const REFRESH: &str = "confpin.dev/refresh";
/// Annotation of a workload or a namespace: with the value [`ON_CHANGE`], any change of a source rolls the workload.
pub const ROLLOUT: &str = "confpin.dev/rollout";
/// Value of [`ROLLOUT`].
pub const ON_CHANGE: &str = "on-change";

/// Field manager of every write of the webhook and the reconciler.
pub const FIELD_MANAGER: &str = "confpin";
/// Field manager of the writes that people ask for by `kubectl confpin`.
pub const CLI_FIELD_MANAGER: &str = "kubectl-confpin";

/// The annotations of confpin on workloads.
pub const OWN: [&str; 4] = [PIN, RECORD, REFRESH, ROLLOUT];

/// Whether `annotations` opt their object out of pinning.
#[must_use]
pub fn opts_out(annotations: &std::collections::BTreeMap<String, String>) -> bool {
    annotations.get(PIN).is_some_and(|value| value == DISABLED)
}
