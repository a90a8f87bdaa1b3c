//! What the decisions use of a snapshot: a small struct, made from its metadata as this comes in, for the same reason as
//! those of [`crate::pin::objects`]. A whole `ObjectMeta` is two kilobytes.

use std::sync::Arc;

use jiff::Timestamp;
use kube::api::ObjectMeta;

use crate::pin::claim::{self, Claim};
use crate::pin::snapshot::recognise_metadata;
use crate::pin::uid::Uid;

/// A snapshot as the API server stores it, without its content.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotState {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Uid,
    /// Its resourceVersion.
    pub version: Box<str>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether it is what it claims to be, by [`recognise_metadata`].
    pub recognised: bool,
    /// The UIDs of its owners, in order.
    pub owners: Box<[Uid]>,
    /// The claims on it, by annotation key. `None` for one that admission cannot have written, see [`claim::claims`].
    pub claims: Box<[(String, Option<Claim>)]>,
}

impl SnapshotState {
    /// Reads what is used of a snapshot's metadata as it is at `now`.
    #[must_use]
    pub fn new(metadata: &ObjectMeta, now: Timestamp) -> Self {
        let owners = metadata.owner_references.iter().flatten();
        let mut owners: Box<[Uid]> = owners.map(|owner| owner.uid.as_str().into()).collect();
        owners.sort_unstable();
        Self {
            namespace: metadata.namespace.as_deref().unwrap_or_default().into(),
            name: metadata.name.as_deref().unwrap_or_default().into(),
            uid: metadata.uid.as_deref().into(),
            version: metadata.resource_version.as_deref().unwrap_or_default().into(),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            deleting: metadata.deletion_timestamp.is_some(),
            recognised: recognise_metadata(metadata).is_some(),
            owners,
            claims: claim::claims(metadata, now).into_iter().collect(),
        }
    }

    /// Whether the object with this UID owns it.
    #[must_use]
    pub fn is_owned_by(&self, uid: &Uid) -> bool {
        self.owners.binary_search(uid).is_ok()
    }

    /// The claims on it that can be read.
    pub fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter_map(|(_, claim)| claim.as_ref())
    }

    /// How many annotations on it have a claim's key and are no claim.
    #[must_use]
    pub fn discarded_claims(&self) -> usize {
        self.claims.iter().filter(|(_, claim)| claim.is_none()).count()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;
    use crate::pin::snapshot::{Source, names};

    #[test]
    fn reads_a_snapshot() {
        let source = Source::new("app-config", &ConfigMap::default());
        let claim = Claim {
            kind: "Deployment.apps".into(),
            name: "web".into(),
            uid: None,
            generation: 1,
            at: Timestamp::UNIX_EPOCH,
        };
        let mut metadata = source.snapshot(&names("app-config", &source.hash)[0], Some(&claim)).metadata;
        let owner = |uid: &str| OwnerReference { uid: uid.into(), ..<_>::default() };
        metadata.owner_references = Some(vec![owner("b"), owner("a")]);
        let state = SnapshotState::new(&metadata, Timestamp::UNIX_EPOCH);
        assert!(state.recognised && !state.deleting);
        assert!(state.is_owned_by(&"a".into()) && state.is_owned_by(&"b".into()) && !state.is_owned_by(&"c".into()));
        assert_eq!(state.claims().collect::<Vec<_>>(), [&claim]);

        metadata.name = Some("app-config-0123456789".into());
        assert!(!SnapshotState::new(&metadata, Timestamp::UNIX_EPOCH).recognised);
    }
}
