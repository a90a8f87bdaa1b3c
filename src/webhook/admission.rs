//! One admission: gathers the facts that the pure decision asks for, and makes its snapshots.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use jiff::Timestamp;
use json_patch::Patch;
use k8s_openapi::api::core::v1::ConfigMap;
use tokio::time::Instant;

use crate::cluster::{self, Cluster};
use crate::pin::claim::Claim;
use crate::pin::decision::{Assessment, Facts, Outcome, Plan, Rename, assess};
use crate::pin::exempt::Exemptions;
use crate::pin::patch::patch;
use crate::pin::record::Record;
use crate::pin::request::Request;
use crate::pin::scope::Scope;
use crate::pin::warning::Warning;
use crate::webhook::claims::Claims;
use crate::webhook::refusal::Refusal;
use crate::webhook::review::Question;
use crate::webhook::snapshots::{Made, Snapshots};

/// How many requests to the API server one admission has under way at a time.
const PARALLEL: usize = 16;

/// Decides admissions against a cluster.
pub struct Admission {
    /// The cluster.
    pub cluster: Cluster,
    /// The claims of all requests that are under way.
    pub claims: Claims,
    /// The namespaces whose workloads can be pinned.
    pub scope: Scope,
    /// What is never pinned.
    pub exemptions: Exemptions,
    /// The most ConfigMaps of one template.
    pub max_references: usize,
}

/// What was decided and done.
#[derive(Debug)]
pub struct Admitted {
    /// In one word.
    pub outcome: Outcome,
    /// The change to the workload.
    pub patch: Patch,
    /// The names that it changes.
    pub renames: Vec<Rename>,
    /// What the client should know.
    pub warnings: Vec<Warning>,
    /// What each source contained.
    pub sources: Record,
    /// The resourceVersion of each source; `None` for one that does not exist.
    pub versions: BTreeMap<String, Option<String>>,
    /// The snapshots that the workload now names, and how they came to be.
    pub snapshots: Vec<(String, Made)>,
}

impl Admitted {
    fn unchanged(outcome: Outcome) -> Self {
        Self {
            outcome,
            patch: Patch(Vec::new()),
            renames: Vec::new(),
            warnings: Vec::new(),
            sources: Record::default(),
            versions: BTreeMap::new(),
            snapshots: Vec::new(),
        }
    }
}

impl Admission {
    /// Admits a workload, by `deadline`. In a dry run nothing is written and the answer is the same.
    ///
    /// # Errors
    /// When it cannot be pinned as a whole: then nothing of it is.
    pub async fn admit(&self, question: &mut Question, now: Timestamp, deadline: Instant) -> Result<Admitted, Refusal> {
        let cluster = &self.cluster.until(deadline);
        let namespace = question.namespace.clone();
        let (names, likely) = match assess(&question.request, &self.exemptions) {
            Assessment::NoReferences => return Ok(Admitted::unchanged(Outcome::NoReferences)),
            Assessment::Unchanged { record } => {
                let request = &question.request;
                let patch = patch(request.kind, &request.new, &[], record.as_deref());
                return Ok(Admitted { patch, ..Admitted::unchanged(Outcome::Unchanged) });
            }
            // All that follows needs rights in the namespace.
            Assessment::Ask(_) if !self.scope.contains(&namespace) => return Err(Refusal::NotWatched { namespace }),
            Assessment::Ask(asked) => (asked.names(), asked.likely_snapshots()),
        };
        self.check_number(names.len())?;
        let names = names.into_iter().chain(likely).collect();
        let (state, configmaps) = tokio::try_join!(cluster.namespace(&namespace), read(cluster, &namespace, names))?;
        if state.terminating {
            // Whatever would be created is refused, and a refused workload could hold up the deletion.
            return Ok(Admitted::unchanged(Outcome::NoReferences));
        }
        question.request.namespace_opts_out = state.opts_out;
        let mut facts = Facts { configmaps, rollback: false };
        let Assessment::Ask(asked) = assess(&question.request, &self.exemptions) else {
            return Ok(Admitted::unchanged(Outcome::OptedOut));
        };
        let sources = asked.further_sources(&facts);
        self.check_number(sources.len())?;
        let (sources, rollback) = tokio::try_join!(read(cluster, &namespace, sources), async {
            match asked.may_be_rollback(&facts) {
                true => cluster.is_rollback(&namespace, &question.request).await,
                false => Ok(false),
            }
        })?;
        facts.configmaps.extend(sources);
        facts.rollback = rollback;
        let plan = asked.plan(&facts);
        let snapshots = Snapshots { cluster, claims: &self.claims, namespace: &namespace, known: &facts.configmaps };
        let made = match make_snapshots(&question.request, &plan, &snapshots, question.dry_run, now).await {
            // It began to be deleted while we looked.
            Err(Refusal::Cluster { cause }) if cause.is_namespace_terminating() => {
                return Ok(Admitted::unchanged(Outcome::NoReferences));
            }
            made => made?,
        };

        let names: Vec<_> = made.iter().map(|(name, _)| name.clone()).collect();
        let decision = plan.decide(&names);
        let request = &question.request;
        Ok(Admitted {
            outcome: decision.outcome,
            patch: patch(request.kind, &request.new, &decision.renames, decision.record.as_deref()),
            renames: decision.renames,
            warnings: decision.warnings,
            sources: decision.sources,
            versions: decision.versions,
            snapshots: made,
        })
    }

    fn check_number(&self, found: usize) -> Result<(), Refusal> {
        let most = self.max_references;
        if found > most { Err(Refusal::TooManyReferences { found, most }) } else { Ok(()) }
    }
}

async fn read(
    cluster: &Cluster,
    namespace: &str,
    names: BTreeSet<String>,
) -> Result<BTreeMap<String, Option<ConfigMap>>, cluster::Error> {
    let reads = names.into_iter().map(|name| async move {
        let found = cluster.configmap(namespace, &name).await?;
        Ok((name, found))
    });
    at_once(reads).try_collect().await
}

/// Makes sure of the plan's snapshots and returns their names, in the order of its pins.
async fn make_snapshots(
    request: &Request,
    plan: &Plan<'_>,
    snapshots: &Snapshots<'_>,
    dry_run: bool,
    now: Timestamp,
) -> Result<Vec<(String, Made)>, Refusal> {
    let preferred: Vec<_> = plan.pins.iter().filter_map(|pin| pin.candidates.first().cloned()).collect();
    if !plan.decide(&preferred).changes_template {
        // The usual `kubectl apply` of an unchanged manifest. All its snapshots exist, unless one was deleted.
        let stand: Vec<_> = at_once(plan.pins.iter().map(|pin| snapshots.stands(pin))).try_collect().await?;
        if !stand.contains(&false) {
            return Ok(preferred.into_iter().map(|name| (name, Made::Nothing)).collect());
        }
    }
    let claim = Claim {
        kind: request.kind.qualified(),
        name: request.name.clone(),
        uid: request.old.as_ref().and_then(|old| old.metadata.uid.clone()),
        generation: request.old.as_ref().and_then(|old| old.metadata.generation).unwrap_or_default() + 1,
        at: now,
    };
    let made = plan.pins.iter().map(|pin| async {
        match dry_run {
            true => snapshots.foresee(pin).await.map(|name| (name, Made::Nothing)),
            false => snapshots.make(pin, &claim).await,
        }
    });
    Ok(at_once(made).try_collect().await?)
}

/// Runs requests to the API server side by side, some at a time, and gives their results in order.
fn at_once<F: Future>(requests: impl Iterator<Item = F>) -> impl Stream<Item = F::Output> {
    // The futures are made first: as a closure in the stream, their lifetimes are beyond the compiler.
    stream::iter(requests.collect::<Vec<_>>()).buffered(PARALLEL)
}
