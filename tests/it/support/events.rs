//! The Events that people see on their workloads.

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use testcluster::wait_for;

use super::{SOON, Shop, Workload};

impl Shop<'_> {
    /// Whether an object of this name has an Event of this reason.
    pub async fn has_event(&self, name: &str, reason: &str) -> Result<bool> {
        let events = self.api::<Event>().list(&ListParams::default()).await?.items;
        Ok(events.iter().any(|event| {
            event.involved_object.name.as_deref() == Some(name) && event.reason.as_deref() == Some(reason)
        }))
    }
}

impl Workload<'_> {
    /// Waits for an Event of this reason on it whose text has `part`.
    pub async fn wait_event(&self, reason: &str, part: &str) -> Result<Event> {
        wait_for(&format!("the Event {reason} on {self}"), SOON, async || {
            let mut events = self.shop.api::<Event>().list(&ListParams::default()).await?.items;
            events.retain(|event| event.involved_object.name.as_ref() == Some(&self.name));
            let told: Vec<_> = events.iter().map(|event| (event.reason.clone(), event.message.clone())).collect();
            let mut wanted = events.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
            match wanted.find(|event| event.message.as_ref().is_some_and(|text| text.contains(part))) {
                Some(event) => Ok(Some(event)),
                None => bail!("the Events on it are {told:?}"),
            }
        })
        .await
    }
}
