//! What the audit log says about one namespace.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use testcluster::{AuditEvent, Mark};

use super::{Kind, Shop, workload::only};

/// Requests about the objects of one namespace.
#[derive(Debug)]
pub struct Traffic(pub Vec<AuditEvent>);

impl Shop<'_> {
    /// The end of the audit log.
    pub async fn mark(&self) -> Result<Mark> {
        self.world.cluster.audit().mark().await
    }

    /// The requests about this namespace since then.
    pub async fn since(&self, mark: &Mark) -> Result<Traffic> {
        let mut events = self.world.cluster.audit().since(mark).await?;
        events.retain(|event| event.object_ref.as_ref().is_some_and(|object| object.namespace == self.name()));
        Ok(Traffic(events))
    }
}

impl Traffic {
    /// Requests that changed something, or tried to: `patch configmaps/x by kubectl/v1.36.3: 200`. Events of others
    /// than confpin are left out: they tell only what was done before.
    pub fn writes(&self) -> Vec<String> {
        let writes = self.0.iter().filter(|event| !matches!(event.verb.as_str(), "get" | "list" | "watch"));
        let real = writes.filter(|event| !event.uri.contains("dryRun=All"));
        real.filter_map(|event| {
            let object = event.object_ref.as_ref()?;
            let counts = object.resource != "events" || event.user_agent.starts_with("confpin/");
            counts.then_some(())?;
            let (agent, code) = (&event.user_agent, event.response_status.code);
            Some(format!("{} {}/{} by {agent}: {code}", event.verb, object.resource, object.name))
        })
        .collect()
    }

    /// What confpin asked for here: nothing, where the API server did not ask it.
    pub fn of_confpin(&self) -> Vec<&AuditEvent> {
        self.0.iter().filter(|event| event.user_agent.starts_with("confpin/")).collect()
    }

    /// What confpin noted with the one request that it was asked about, by the key below its webhook's name.
    pub fn noted(&self, kind: Kind) -> Result<BTreeMap<String, String>> {
        let webhook = match kind {
            Kind::Deployment => "deployments.apps.confpin.dev/",
            Kind::Rollout => "rollouts.argoproj-io.confpin.dev/",
        };
        let noted = self.0.iter().map(|event| -> BTreeMap<_, _> {
            let own = |(key, text): (&String, &String)| Some((key.strip_prefix(webhook)?.to_owned(), text.clone()));
            event.annotations.iter().filter_map(own).collect()
        });
        only(noted.filter(|noted| !noted.is_empty())).context("confpin noted nothing, or with more than one request")
    }
}
