//! Rule 3's question: is a template that of an older revision?

use crate::cluster::{Cluster, Error};
use crate::pin::kinds::ROLLOUT;
use crate::pin::objects::WorkloadState;
use crate::pin::request::Request;
use crate::pin::uid::Uid;

impl Cluster {
    /// Whether the template is that of one of the workload's ReplicaSets, or of a Rollout's that takes its template from
    /// this workload.
    ///
    /// # Errors
    /// When the API server refuses or cannot be asked.
    pub async fn is_rollback(&self, namespace: &str, request: &Request) -> Result<bool, Error> {
        let uid = request.old.as_ref().and_then(|old| old.metadata.uid.as_deref()).map(Uid::from);
        let wanted = request.template().digest();
        let holders = self.holders(namespace, request.new.selector.as_deref()).await?;
        let equal = holders.iter().filter(|holder| holder.template == wanted);
        for controller in equal.filter_map(|holder| holder.controller.as_ref()) {
            if uid.as_ref() == Some(&controller.uid) {
                return Ok(true);
            }
            if controller.kind == Some(&ROLLOUT) {
                let rollout = self.workload(&ROLLOUT, namespace, &controller.name).await?;
                let names_us = |rollout: &WorkloadState| {
                    rollout.uid == controller.uid && rollout.workload_ref.as_deref() == Some(request.name.as_str())
                };
                if rollout.as_ref().is_some_and(names_us) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}
