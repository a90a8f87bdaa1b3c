//! Events on workloads, and on what the installation itself consists of.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use crate::cluster::Cluster;
use crate::pin::kinds::WorkloadKind;
use crate::pin::meta;
use crate::pin::notice::Notice;

/// Publishes Events. Repeated ones are counted up in one Event object.
#[derive(Clone)]
pub struct Events(Recorder);

/// The workload that an Event is about.
#[derive(Debug, Clone)]
pub struct About<'a> {
    /// Its kind.
    pub kind: &'a WorkloadKind,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UID, if it has one yet.
    pub uid: Option<&'a str>,
}

impl Events {
    /// Events of confpin in `cluster`.
    #[must_use]
    pub fn new(cluster: &Cluster) -> Self {
        // The pod's name in a cluster, the machine's outside of one.
        let instance = std::env::var("HOSTNAME").ok();
        Self(Recorder::new(cluster.client(), Reporter { controller: meta::FIELD_MANAGER.to_owned(), instance }))
    }

    /// Publishes a notice. A failure is only logged: nothing depends on the Event.
    pub async fn publish(&self, about: &About<'_>, notice: &Notice) {
        let reference = ObjectReference {
            api_version: Some(about.kind.api_version()),
            kind: Some(about.kind.kind.to_owned()),
            namespace: Some(about.namespace.to_owned()),
            name: Some(about.name.to_owned()),
            uid: about.uid.map(str::to_owned),
            ..ObjectReference::default()
        };
        let event = Event {
            type_: if notice.reason.is_warning() { EventType::Warning } else { EventType::Normal },
            reason: format!("{:?}", notice.reason),
            note: Some(cut(&notice.note)),
            action: "Pin".to_owned(),
            secondary: None,
        };
        self.send(&event, &reference).await;
    }

    /// Publishes a warning about an object of the installation itself.
    pub async fn warn(&self, about: &ObjectReference, reason: &str, note: &str) {
        let event = Event {
            type_: EventType::Warning,
            reason: reason.to_owned(),
            note: Some(cut(note)),
            action: "Serve".to_owned(),
            secondary: None,
        };
        self.send(&event, about).await;
    }

    async fn send(&self, event: &Event, about: &ObjectReference) {
        if let Err(error) = self.0.publish(event, about).await {
            tracing::debug!(%error, "an Event was not published");
        }
    }
}

/// The API server refuses notes over 1024 bytes.
fn cut(note: &str) -> String {
    let end = (0..=note.len().min(1000)).rev().find(|end| note.is_char_boundary(*end)).unwrap_or_default();
    note[..end].to_owned()
}
