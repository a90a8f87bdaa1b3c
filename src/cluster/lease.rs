//! Leadership: which replica reconciles, by a Lease (<https://kubernetes.io/docs/concepts/architecture/leases/>).
//!
//! The rules are those of Kubernetes' own components (`client-go/tools/leaderelection`), and its times too: clocks of
//! different machines are never compared. A replica takes a Lease over when it has *seen* no change of it for the Lease's
//! duration; a holder that could not renew it stops itself well before that. Every write carries the resourceVersion that was
//! read, so of two that try one succeeds.
//!
//! Two leaders at a time would lose nothing: each write of the reconciler is judged by what it changes. They would work
//! twice.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::ObjectMeta;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cluster::{Error, creating};

/// How long after its last change others leave a Lease alone.
const DURATION: Duration = Duration::from_secs(15);
/// How long after its last renewal a holder still counts as one: the rest is for what is under way then.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Pause between two looks.
const RETRY: Duration = Duration::from_secs(2);

/// Whether this replica is the leader. Clones tell the same.
#[derive(Debug, Clone)]
pub struct Leadership(Option<watch::Receiver<Option<Instant>>>);

impl Leadership {
    /// That of a program that has no other replica.
    #[must_use]
    pub fn always() -> Self {
        Self(None)
    }

    /// Whether it is held at this moment.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.remaining().is_some()
    }

    /// Returns once it is held.
    pub async fn held(&self) {
        let Some(until) = &self.0 else { return };
        // The candidate is gone only with the program.
        let _ = until.clone().wait_for(|until| remaining(*until).is_some()).await;
    }

    /// Returns once it is not held, be it taken away or not renewed in time.
    pub async fn lost(&self) {
        let Some(until) = &self.0 else { return std::future::pending().await };
        let mut until = until.clone();
        loop {
            let Some(left) = remaining(*until.borrow_and_update()) else { return };
            if let Ok(Err(_)) = tokio::time::timeout(left, until.changed()).await {
                return;
            }
        }
    }

    /// For how long it is held, if nothing renews it; `None` if it is not held.
    fn remaining(&self) -> Option<Duration> {
        self.0.as_ref().map_or(Some(Duration::MAX), |until| remaining(*until.borrow()))
    }
}

fn remaining(until: Option<Instant>) -> Option<Duration> {
    until?.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
}

/// What the Lease said, and when that was first seen.
#[derive(Debug, Clone, PartialEq)]
struct Observed {
    spec: LeaseSpec,
    at: Instant,
}

/// Takes part in the election.
pub struct Candidate {
    api: Api<Lease>,
    name: String,
    identity: String,
    /// Until when this replica leads.
    until: watch::Sender<Option<Instant>>,
    observed: Option<Observed>,
}

impl Candidate {
    /// A candidate for the Lease `name`. `identity` is this replica's and no other's.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity: identity.to_owned(),
            until: watch::Sender::new(None),
            observed: None,
        }
    }

    /// Where it is told whether this replica leads.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        Leadership(Some(self.until.subscribe()))
    }

    /// Takes the Lease whenever it is free, and renews it, until `stop`; then gives it back, so that another need not wait.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            // Another attempt follows anyway, so one that hangs is given up.
            let attempt = tokio::time::timeout(RENEW_DEADLINE / 2, self.attempt());
            match stop.run_until_cancelled(attempt).await {
                None => break,
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => tracing::warn!(%error, "the Lease was neither taken nor renewed, trying again"),
                Some(Err(_)) => tracing::warn!("the API server did not answer for the Lease in time, trying again"),
            }
            if stop.run_until_cancelled(tokio::time::sleep(RETRY)).await.is_none() {
                break;
            }
        }
        let _ = tokio::time::timeout(RETRY, self.release()).await;
    }

    /// Looks at the Lease once, and takes or renews it if it may.
    async fn attempt(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        let action = format!("read Lease {}", self.name);
        let lease = self.api.get_opt(&self.name).await.map_err(|error| Error::new(&action, error))?;
        let spec = lease.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
        if self.observed.as_ref().is_none_or(|observed| observed.spec != spec) {
            self.observed = Some(Observed { spec, at: begun });
        }
        let Some(observed) = &self.observed else { return Ok(()) };
        let Some(wanted) = wanted(observed, &self.identity, begun, Timestamp::now()) else {
            self.until.send_replace(None);
            return Ok(());
        };
        match self.write(lease, wanted.clone()).await {
            Ok(()) => {
                self.observed = Some(Observed { spec: wanted, at: begun });
                self.until.send_replace(Some(begun + RENEW_DEADLINE));
                Ok(())
            }
            // Another was quicker.
            Err(error) if error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn write(&self, lease: Option<Lease>, spec: LeaseSpec) -> Result<(), Error> {
        let params = creating();
        let written = match lease {
            Some(lease) => {
                let lease = Lease { spec: Some(spec), ..lease };
                self.api.replace(&self.name, &params, &lease).await
            }
            None => {
                let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
                self.api.create(&params, &Lease { metadata, spec: Some(spec) }).await
            }
        };
        written.map(|_| ()).map_err(|error| Error::new(&format!("write Lease {}", self.name), error))
    }

    async fn release(&mut self) {
        self.until.send_replace(None);
        let Ok(Some(lease)) = self.api.get_opt(&self.name).await else { return };
        let Some(spec) = lease.spec.clone().filter(|spec| holder(spec) == Some(&self.identity)) else { return };
        let released = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..spec
        };
        if let Err(error) = self.write(Some(lease), released).await {
            tracing::debug!(%error, "the Lease was not given back; it expires");
        }
    }
}

fn holder(spec: &LeaseSpec) -> Option<&str> {
    spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// What `identity` should write: a renewal, or a taking over if nobody holds the Lease or its holder has let it expire.
fn wanted(observed: &Observed, identity: &str, now: Instant, time: Timestamp) -> Option<LeaseSpec> {
    let Observed { spec, at } = observed;
    let renewed = LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
        renew_time: Some(MicroTime(time)),
        ..spec.clone()
    };
    match holder(spec) {
        Some(holder) if holder == identity => Some(renewed),
        Some(_) => {
            let granted = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
            let expired = now.saturating_duration_since(*at) >= granted.map_or(DURATION, Duration::from_secs);
            expired.then(|| taken(renewed, spec, time))
        }
        None => Some(taken(renewed, spec, time)),
    }
}

fn taken(renewed: LeaseSpec, old: &LeaseSpec, time: Timestamp) -> LeaseSpec {
    let transitions = old.lease_transitions.unwrap_or(0);
    let transitions = if old.renew_time.is_some() { transitions.saturating_add(1) } else { transitions };
    LeaseSpec { acquire_time: Some(MicroTime(time)), lease_transitions: Some(transitions), ..renewed }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            lease_transitions: Some(3),
            acquire_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
            renew_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
            ..LeaseSpec::default()
        }
    }

    fn asked(spec: LeaseSpec, seconds_ago: u64) -> Option<LeaseSpec> {
        let at = Instant::now();
        wanted(&Observed { spec, at }, "me", at + Duration::from_secs(seconds_ago), Timestamp::now())
    }

    #[test]
    fn a_lease_that_nobody_holds_is_taken() {
        let first = asked(LeaseSpec::default(), 0).unwrap();
        assert_eq!((first.holder_identity.as_deref(), first.lease_transitions), (Some("me"), Some(0)));
        assert!(first.acquire_time.is_some() && first.renew_time.is_some());
        assert_eq!(asked(held_by(""), 0).unwrap().lease_transitions, Some(4), "one that was given back");
    }

    #[test]
    fn ones_own_lease_is_renewed_and_not_taken_again() {
        let spec = asked(held_by("me"), 14).unwrap();
        assert_eq!(spec.acquire_time, held_by("me").acquire_time);
        assert_eq!(spec.lease_transitions, Some(3));
        assert_ne!(spec.renew_time, held_by("me").renew_time);
    }

    #[test]
    fn anothers_lease_is_left_alone_until_it_was_seen_unchanged_for_its_duration() {
        assert_eq!(asked(held_by("other"), 14), None);
        let spec = asked(held_by("other"), 15).unwrap();
        assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("me"), Some(4)));
    }

    #[tokio::test]
    async fn leadership_ends_by_itself() {
        let until = watch::Sender::new(None);
        let leadership = Leadership(Some(until.subscribe()));
        assert!(!leadership.is_held());
        leadership.lost().await;
        until.send_replace(Some(Instant::now() + Duration::from_millis(20)));
        leadership.held().await;
        assert!(leadership.is_held());
        leadership.lost().await;
        assert!(!leadership.is_held());
    }

    #[tokio::test]
    async fn leadership_that_is_taken_away_ends_at_once() {
        let until = watch::Sender::new(Some(Instant::now() + Duration::from_secs(3600)));
        let leadership = Leadership(Some(until.subscribe()));
        tokio::join!(leadership.lost(), async { _ = until.send_replace(None) });
        assert!(!leadership.is_held());
    }

    #[tokio::test]
    async fn without_other_replicas_it_is_never_lost() {
        Leadership::always().held().await;
        assert!(tokio::time::timeout(Duration::from_millis(20), Leadership::always().lost()).await.is_err());
    }
}
