//! The last decision about a workload, in sentences: from its record, its template and what the cluster shows.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use serde::Serialize;

use crate::inspect::facts::{Facts, Seen};
use crate::inspect::status::{State, Use, WorkloadStatus};
use crate::pin::meta;
use crate::pin::record::Record;
use crate::pin::snapshot;

/// What `explain` tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The workload, `deployment/app`.
    pub workload: String,
    /// Its namespace.
    pub namespace: String,
    /// What holds for the workload as a whole.
    pub about: Vec<String>,
    /// By ConfigMap that the template names.
    pub sources: Vec<About>,
    /// confpin's Events on it, the oldest first.
    pub events: Vec<Told>,
}

/// What is to be said of one ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct About {
    /// How it stands.
    #[serde(flatten)]
    pub using: Use,
    /// The same in sentences.
    pub text: Vec<String>,
}

/// An Event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Told {
    /// When it was last seen.
    pub at: Option<Timestamp>,
    /// Its reason.
    pub reason: String,
    /// Its text.
    pub note: String,
    /// Whether it is a warning.
    pub warning: bool,
}

/// Explains the one workload of `facts`, whose status is `status`.
#[must_use]
pub fn explain(facts: &Facts, seen: &Seen, status: &WorkloadStatus, events: &[Event]) -> Explanation {
    let record = seen.state.annotation(meta::RECORD).map(Record::parse);
    let follows = follows(facts, seen);
    let about =
        |using: &Use| About { using: using.clone(), text: sentences(facts, seen, using, record.as_ref(), follows) };
    let mut events: Vec<_> = events.iter().filter(|event| is_ours(event)).map(told).collect();
    events.sort_by_key(|event| event.at);
    Explanation {
        workload: status.workload.clone(),
        namespace: status.namespace.clone(),
        about: whole(facts, seen, record.is_some(), follows),
        sources: status.uses.iter().map(about).collect(),
        events,
    }
}

fn follows(facts: &Facts, seen: &Seen) -> bool {
    facts.namespace(&seen.state.namespace).on_change || seen.state.annotation(meta::ROLLOUT) == Some(meta::ON_CHANGE)
}

fn whole(facts: &Facts, seen: &Seen, decided: bool, follows: bool) -> Vec<String> {
    let (state, namespace) = (&seen.state, facts.namespace(&seen.state.namespace));
    let mut text = Vec::new();
    match () {
        () if !facts.namespaces.contains_key(&*state.namespace) => {
            text.push("The namespace could not be read; it is taken for opted in.".to_owned());
        }
        () if !namespace.enabled => {
            text.push(format!("The namespace has no label {}={}: nothing is pinned.", meta::PIN, meta::ENABLED));
        }
        () if namespace.opts_out => {
            text.push(format!("The namespace opts out by its annotation {}={}.", meta::PIN, meta::DISABLED));
        }
        () if state.opts_out() => {
            text.push(format!("The workload opts out by its annotation {}={}.", meta::PIN, meta::DISABLED));
        }
        () if !decided => {
            text.push(
                "It has no record: confpin has never decided it. It was there before the namespace was opted in, and is \
                 pinned with its next template change."
                    .to_owned(),
            );
        }
        () => {}
    }
    if follows {
        text.push(format!("It follows its sources ({}={}).", meta::ROLLOUT, meta::ON_CHANGE));
    }
    if let Some(refresh) = state.annotation(meta::REFRESH) {
        text.push(format!("The last refresh was asked for by {refresh}."));
    }
    if state.observed_generation < state.generation {
        text.push("Its controller has not seen the last change yet.".to_owned());
    }
    text
}

fn sentences(facts: &Facts, seen: &Seen, using: &Use, record: Option<&Record>, follows: bool) -> Vec<String> {
    let Use { source, snapshot, state, reason, .. } = using;
    let name = snapshot.as_deref().unwrap_or(source);
    let reason = reason.unwrap_or_default();
    let found = snapshot.as_ref().and_then(|name| facts.configmap(&seen.state.namespace, name));
    let hash = found.and_then(snapshot::recognise_metadata).map(|provenance| provenance.hash);
    let recorded = record.and_then(|record| record.0.get(source));
    let kept = matches!((recorded, hash), (Some(Some(recorded)), Some(hash)) if *recorded != hash);
    let next = "the next apply, `set image` or `rollout restart` takes the newest";
    let mut text = vec![match state {
        State::Newest => format!("Pinned to {name}, which has what {source} contains now."),
        State::Behind => format!("Pinned to {name}; {source} contains something else now."),
        State::Unknown => format!("Pinned to {name}; {source} could not be read."),
        State::SourceGone => {
            format!("Pinned to {name}; {source} is gone. Pods run, restart and scale on the snapshot.")
        }
        State::Lost => {
            format!(
                "The template references {name}, which was deleted: new pods cannot start. Roll out the workload again."
            )
        }
        State::Missing => format!("{source} does not exist: pods wait for it. confpin pins it once it is there."),
        State::Absent => format!("{source} does not exist, and the reference is optional."),
        State::Unpinned => format!("The template names {source} itself: pods read what it contains when they start."),
        State::Exempt => format!("{source} is never pinned, by its {reason}."),
        State::OptedOut if snapshot.is_some() => {
            format!("Still pinned to {name}; the next template change puts {source} back.")
        }
        State::OptedOut if reason == "configmap" => {
            format!("{source} opts out by its annotation {}={}, so it stays live.", meta::PIN, meta::DISABLED)
        }
        State::OptedOut | State::NotEnabled => format!("The template names {source} itself."),
    }];
    match (state, kept) {
        (_, true) => text.push(format!(
            "{source} was newer already when this was decided: a rollback kept the snapshot. It stays so through scaling \
             and pausing; {next}."
        )),
        (State::Behind, false) if follows => {
            text.push("As the workload follows its sources, confpin refreshes it within moments.".to_owned());
        }
        (State::Behind, false) => text.push(format!("It has changed since this was decided; {next}.")),
        _ => {}
    }
    text
}

fn is_ours(event: &Event) -> bool {
    event.reporting_component.as_deref() == Some(meta::FIELD_MANAGER)
}

fn told(event: &Event) -> Told {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0);
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    Told {
        at: series.or(last).or(event.event_time.as_ref().map(|time| time.0)),
        reason: event.reason.clone().unwrap_or_default(),
        note: event.message.clone().unwrap_or_default(),
        warning: event.type_.as_deref() == Some("Warning"),
    }
}
