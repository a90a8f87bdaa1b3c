//! What people read in a workload's Events.

use crate::pin::meta;
use crate::pin::objects::WorkloadState;
use crate::pin::record::Record;
use crate::pin::snapshot;

/// One Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Its reason, in one word.
    pub reason: Reason,
    /// Its text.
    pub note: String,
}

/// The reasons of confpin's Events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A source name became a snapshot name.
    Pinned,
    /// A snapshot name moved to the newest snapshot.
    Refreshed,
    /// A rollback kept an older snapshot.
    Kept,
    /// A source does not exist.
    SourceMissing,
    /// A deleted snapshot was recreated.
    Healed,
    /// A deleted snapshot cannot be recreated.
    SnapshotLost,
    /// The workload was admitted without being pinned.
    NotPinned,
    /// The workload was refused.
    Refused,
}

impl Reason {
    /// Whether the notice calls for action.
    #[must_use]
    pub fn is_warning(self) -> bool {
        matches!(self, Self::SourceMissing | Self::SnapshotLost | Self::NotPinned | Self::Refused)
    }
}

/// What to say about a workload whose template or record has changed from `old`, or that is new.
///
/// Everything follows from what is stored, so that it is true: a request that was refused after us tells nothing.
#[must_use]
pub fn notices(old: Option<&WorkloadState>, new: &WorkloadState) -> Vec<Notice> {
    let Some(record) = new.annotation(meta::RECORD).map(Record::parse) else { return Vec::new() };
    let mut notices = Vec::new();
    for (source, hash) in &record.0 {
        let source = source.as_str();
        let of_source = |name: &&str| *name == source || snapshot::may_be_of(name, source);
        for name in new.configmaps.iter().map(|name| &**name).filter(of_source) {
            let was_there = old.is_some_and(|old| old.names(name));
            if was_there {
                continue;
            }
            let before = old.and_then(|old| old.configmaps.iter().map(|name| &**name).find(of_source));
            let newest = hash.is_some_and(|hash| snapshot::names(source, &hash).iter().any(|own| own == name));
            let (reason, note) = match (name == source, before) {
                (true, _) if hash.is_none() => (
                    Reason::SourceMissing,
                    format!("ConfigMap {source} not found: pods wait for it, confpin pins it once it is there"),
                ),
                (true, _) => continue,
                (false, _) if !newest => {
                    (Reason::Kept, format!("rollback: kept {name}, though ConfigMap {source} is newer"))
                }
                (false, Some(before)) if before != source => (Reason::Refreshed, format!("moved {before} to {name}")),
                (false, _) => (Reason::Pinned, format!("pinned ConfigMap {source} to {name}")),
            };
            notices.push(Notice { reason, note });
        }
    }
    notices
}

#[cfg(test)]
mod tests {
    use kube::api::DynamicObject;
    use serde_json::json;

    use super::*;
    use crate::pin::content::Content;
    use crate::pin::kinds::DEPLOYMENT;

    fn name(value: &str) -> String {
        snapshot::names("app", &content(value))[0].clone()
    }

    fn content(value: &str) -> crate::pin::content::ContentHash {
        Content { data: [("k".to_owned(), value.to_owned())].into(), ..<_>::default() }.hash("app")
    }

    fn workload(name: &str, current: Option<&str>) -> WorkloadState {
        let record = Record([("app".to_owned(), current.map(content))].into()).text();
        let object: DynamicObject = serde_json::from_value(json!({
            "metadata": {"annotations": {meta::RECORD: record}},
            "spec": {"template": {"spec": {"volumes": [{"configMap": {"name": name}}]}}}}))
        .expect("an object");
        WorkloadState::new(&DEPLOYMENT, &object)
    }

    #[test]
    fn what_stops_pods_is_a_warning() {
        use Reason::{Healed, Kept, NotPinned, Pinned, Refreshed, Refused, SnapshotLost, SourceMissing};
        assert!([SourceMissing, SnapshotLost, NotPinned, Refused].into_iter().all(Reason::is_warning));
        assert!(![Pinned, Refreshed, Kept, Healed].into_iter().any(Reason::is_warning));
    }

    #[test]
    fn tells_what_became_of_each_source() {
        let first = workload(&name("1"), Some("1"));
        let second = workload(&name("2"), Some("2"));
        let undone = workload(&name("1"), Some("2"));
        let missing = workload("app", None);
        let reasons = |old, new| notices(old, new).into_iter().map(|notice| notice.reason).collect::<Vec<_>>();
        assert_eq!(reasons(None, &first), [Reason::Pinned]);
        assert_eq!(reasons(Some(&first), &second), [Reason::Refreshed]);
        assert_eq!(reasons(Some(&second), &undone), [Reason::Kept]);
        assert_eq!(reasons(None, &missing), [Reason::SourceMissing]);
        assert_eq!(reasons(Some(&missing), &first), [Reason::Pinned]);
        assert_eq!(reasons(Some(&first), &first), []);
        let unpinned = workload("app", Some("1"));
        assert_eq!(reasons(None, &unpinned), [], "admitted unpinned, and the source is there");
        let bare = WorkloadState { annotations: <_>::default(), ..first.clone() };
        assert_eq!(reasons(None, &bare), []);
    }
}
