//! Answers admission reviews: the shell around [`Admission`] that knows deadlines, metrics and what to do when a
//! workload cannot be pinned.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

use crate::cluster::events::{About, Events};
use crate::config::OnError;
use crate::observe::labels::{self, DenyReason, Part, SnapshotUse};
use crate::observe::metrics::Metrics;
use crate::pin::decision::Outcome;
use crate::pin::notice::{Notice, Reason};
use crate::pin::record::Decided;
use crate::pin::warning::Warning;
use crate::webhook::admission::{Admission, Admitted};
use crate::webhook::refusal::Refusal;
use crate::webhook::review::{Answer, Question, Review};
use crate::webhook::server;
use crate::webhook::snapshots::Made;

/// The webhook's handler.
pub struct Handler {
    /// Decides.
    pub admission: Admission,
    /// What becomes of a workload that cannot be pinned.
    pub on_error: OnError,
    /// Where it is counted.
    pub metrics: Metrics,
    /// Where a refusal is told, for workloads that exist.
    pub events: Events,
    /// Told of each decision that was not a dry run's and not a rollback's.
    pub on_decided: Box<dyn Fn(Decided) + Send + Sync>,
}

impl server::Handler for Handler {
    async fn review(&self, body: Bytes, deadline: Instant) -> Response {
        match Review::parse(&body) {
            Ok(Review { uid, question: None }) => Json(Answer::allow(uid)).into_response(),
            Ok(Review { uid, question: Some(question) }) => {
                drop(body);
                Json(self.answer(uid, question, deadline).await).into_response()
            }
            Err(error) => {
                self.metrics.not_pinned(DenyReason::InvalidRequest);
                (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response()
            }
        }
    }
}

impl Handler {
    async fn answer(&self, uid: String, mut question: Question, deadline: Instant) -> Answer {
        let begin = Instant::now();
        let (kind, dry_run) = (question.request.kind, question.dry_run);
        let span = tracing::info_span!(
            "admission",
            uid,
            kind = kind.kind,
            namespace = question.namespace,
            name = question.request.name,
            dry_run,
            outcome = tracing::field::Empty,
        );
        let admit = self.admission.admit(&mut question, Timestamp::now(), deadline);
        let result = timeout_at(deadline, admit.instrument(span.clone())).await;
        let result = result.unwrap_or(Err(Refusal::Deadline));
        let _entered = span.enter();
        let took = begin.elapsed();
        match result {
            Ok(admitted) => {
                let outcome = label(admitted.outcome);
                span.record("outcome", outcome.as_str());
                tracing::info!(?took, "admitted");
                self.count(&admitted);
                self.metrics.admitted(kind.kind, outcome, dry_run, took);
                let answer = answer(uid, outcome, &admitted);
                self.note(question, admitted);
                answer
            }
            Err(refusal) => self.refuse(uid, &refusal, question, took),
        }
    }

    fn note(&self, question: Question, admitted: Admitted) {
        if question.dry_run || admitted.outcome == Outcome::Kept || admitted.sources.0.is_empty() {
            return;
        }
        let Question { namespace, request, .. } = question;
        (self.on_decided)(Decided {
            kind: request.kind,
            namespace,
            is_refresh: request.is_refresh(),
            name: request.name,
            sources: admitted.sources,
            versions: admitted.versions,
        });
    }

    fn refuse(&self, uid: String, refusal: &Refusal, question: Question, took: Duration) -> Answer {
        tracing::warn!(error = %refusal, ?took, "not pinned");
        self.metrics.not_pinned(refusal.reason());
        let (kind, dry_run) = (question.request.kind.kind, question.dry_run);
        // Where confpin does not watch it may write no Event either.
        if !dry_run && refusal.reason() != DenyReason::NotWatched {
            self.tell(question, refusal);
        }
        let (outcome, answer) = match self.on_error {
            OnError::Deny => (labels::Outcome::Denied, Answer::deny(uid, refusal.code(), refusal.to_string())),
            OnError::Admit => {
                (labels::Outcome::AdmittedUnpinned, Answer::allow(uid).with_warnings(&[Warning::Unpinned]))
            }
        };
        self.metrics.admitted(kind, outcome, dry_run, took);
        answer.with_audit_annotation("outcome", outcome.to_string()).with_audit_annotation("error", refusal.to_string())
    }

    /// Tells of a refusal in an Event. In the background: the time for an answer may be over.
    fn tell(&self, question: Question, refusal: &Refusal) {
        let (events, metrics, note) = (self.events.clone(), self.metrics.clone(), refusal.to_string());
        let reason = match self.on_error {
            OnError::Deny => Reason::Refused,
            OnError::Admit => Reason::NotPinned,
        };
        tokio::spawn(async move {
            let request = &question.request;
            let uid = request.old.as_ref().and_then(|old| old.metadata.uid.as_deref());
            let about = About { kind: request.kind, namespace: &question.namespace, name: &request.name, uid };
            metrics.isolate(Part::Events, events.publish(&about, &Notice { reason, note })).await;
        });
    }

    fn count(&self, admitted: &Admitted) {
        for (_, made) in &admitted.snapshots {
            match made {
                Made::Created => self.metrics.snapshot_used(SnapshotUse::Created),
                Made::Reused => self.metrics.snapshot_used(SnapshotUse::Reused),
                Made::Nothing => {}
            }
        }
    }
}

fn answer(uid: String, outcome: labels::Outcome, admitted: &Admitted) -> Answer {
    let answer = Answer::allow(uid)
        .with_patch(&admitted.patch)
        .with_warnings(&admitted.warnings)
        .with_audit_annotation("outcome", outcome.to_string());
    if admitted.renames.is_empty() {
        return answer;
    }
    let mut names: Vec<_> = admitted.renames.iter().map(|rename| format!("{} -> {}", rename.from, rename.to)).collect();
    names.dedup();
    answer.with_audit_annotation("names", names.join(", "))
}

fn label(outcome: Outcome) -> labels::Outcome {
    match outcome {
        Outcome::NoReferences => labels::Outcome::NoReferences,
        Outcome::Unchanged => labels::Outcome::Unchanged,
        Outcome::OptedOut => labels::Outcome::OptedOut,
        Outcome::Pinned => labels::Outcome::Pinned,
        Outcome::Refreshed => labels::Outcome::Refreshed,
        Outcome::Current => labels::Outcome::Current,
        Outcome::Kept => labels::Outcome::Kept,
        Outcome::SourceMissing => labels::Outcome::SourceMissing,
    }
}
