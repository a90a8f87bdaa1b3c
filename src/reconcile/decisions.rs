//! The decisions of the last moments: for a short while after one, a workload follows its sources, so that a ConfigMap
//! which is applied just after its Deployment, in one `kubectl apply`, is not missed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::pin::record::{Decided, Record};
use crate::reconcile::index::{Key, WorkloadKey};

/// What was decided of late, and which sources changed of late.
#[derive(Debug)]
pub(super) struct Decisions {
    settle: Option<Duration>,
    decided: HashMap<WorkloadKey, (Instant, Record)>,
    changed: HashMap<Key, (Instant, String)>,
}

impl Decisions {
    /// Remembers decisions for the time of `settle`; none at all without.
    pub(super) fn new(settle: Option<Duration>) -> Self {
        Self { settle, decided: HashMap::new(), changed: HashMap::new() }
    }

    fn forget_old(&mut self, now: Instant) {
        let Some(settle) = self.settle else { return };
        self.decided.retain(|_, (at, _)| now.duration_since(*at) < settle);
        self.changed.retain(|_, (at, _)| now.duration_since(*at) < settle);
    }

    /// Notes a decision. Returns whether one of its sources has changed since it was read: its event came first.
    pub(super) fn decided(&mut self, decided: Decided, now: Instant) -> bool {
        if self.settle.is_none() {
            return false;
        }
        self.forget_old(now);
        let Decided { kind, namespace, name, sources, versions, is_refresh } = decided;
        let workload = (kind, Key::new(&namespace, &name));
        let is_newer = |(source, version): (&String, &Option<String>)| {
            let changed = self.changed.get(&Key::new(&workload.1.namespace, source));
            changed.is_some_and(|(_, changed)| number(changed) > version.as_deref().map_or(0, number))
        };
        let outdated = versions.iter().any(is_newer);
        self.note(workload, sources, is_refresh, now);
        outdated
    }

    /// Notes a decision that was seen stored, if it was not noted before: another replica's. Returns whether one of its
    /// sources has changed of late, of which the decision may not have known.
    pub(super) fn seen(&mut self, workload: &WorkloadKey, record: &Record, is_refresh: bool, now: Instant) -> bool {
        if self.settle.is_none() || self.decided.get(workload).is_some_and(|(_, known)| known == record) {
            return false;
        }
        self.forget_old(now);
        self.note(workload.clone(), record.clone(), is_refresh, now);
        record.0.keys().any(|source| self.changed.contains_key(&Key::new(&workload.1.namespace, source)))
    }

    fn note(&mut self, workload: WorkloadKey, sources: Record, is_refresh: bool, now: Instant) {
        // A refresh does not begin a new time of its own: a source that changes again and again would be followed for
        // ever. It keeps the time of its workload.
        let at = match self.decided.get(&workload) {
            Some((at, _)) if is_refresh => *at,
            None if is_refresh => return,
            _ => now,
        };
        self.decided.insert(workload, (at, sources));
    }

    /// Notes that a source changed.
    pub(super) fn changed(&mut self, source: Key, resource_version: String, now: Instant) {
        if self.settle.is_some() {
            self.forget_old(now);
            self.changed.insert(source, (now, resource_version));
        }
    }

    /// Whether a workload whose record this is was decided a moment ago. A decision that another record followed, or
    /// that was never stored because the request was refused after us, counts for nothing.
    pub(super) fn is_settling(&self, workload: &WorkloadKey, record: &Record, now: Instant) -> bool {
        let Some(settle) = self.settle else { return false };
        let decided = self.decided.get(workload);
        decided.is_some_and(|(at, decided)| decided == record && now.duration_since(*at) < settle)
    }
}

/// resourceVersions are numbers that grow
/// (<https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>).
fn number(resource_version: &str) -> u128 {
    resource_version.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::pin::kinds::DEPLOYMENT;

    const SETTLE: Duration = Duration::from_secs(30);

    fn workload() -> WorkloadKey {
        (&DEPLOYMENT, Key::new("n", "web"))
    }

    fn record() -> Record {
        Record(BTreeMap::from([("app".to_owned(), None)]))
    }

    fn decided(version: &str) -> Decided {
        let versions = BTreeMap::from([("app".to_owned(), Some(version.to_owned()))]);
        let (kind, Key { namespace, name }) = workload();
        let (namespace, name) = (namespace.to_string(), name.to_string());
        Decided { kind, namespace, name, sources: record(), versions, is_refresh: false }
    }

    #[test]
    fn a_workload_settles_for_a_while() {
        let (mut decisions, now) = (Decisions::new(Some(SETTLE)), Instant::now());
        assert!(!decisions.is_settling(&workload(), &record(), now));
        assert!(!decisions.decided(decided("9"), now));
        assert!(decisions.is_settling(&workload(), &record(), now + SETTLE / 2));
        assert!(!decisions.is_settling(&workload(), &Record::default(), now), "another record has been stored");
        assert!(!decisions.is_settling(&workload(), &record(), now + SETTLE));
    }

    #[test]
    fn a_refresh_neither_begins_nor_prolongs_it() {
        let (mut decisions, now) = (Decisions::new(Some(SETTLE)), Instant::now());
        let refresh = |sources| Decided { sources, is_refresh: true, ..decided("10") };
        decisions.decided(refresh(record()), now);
        assert!(!decisions.is_settling(&workload(), &record(), now));
        decisions.decided(decided("9"), now);
        decisions.decided(refresh(Record::default()), now + SETTLE / 2);
        assert!(decisions.is_settling(&workload(), &Record::default(), now + SETTLE / 2));
        assert!(!decisions.is_settling(&workload(), &Record::default(), now + SETTLE));
    }

    #[test]
    fn a_change_that_came_before_its_decision_is_seen() {
        let (mut decisions, now) = (Decisions::new(Some(SETTLE)), Instant::now());
        decisions.changed(Key::new("n", "app"), "10".into(), now);
        assert!(decisions.decided(decided("9"), now));
        assert!(!decisions.decided(decided("10"), now));
        assert!(!decisions.decided(decided("9"), now + SETTLE), "forgotten");
    }

    #[test]
    fn a_decision_of_another_replica_settles_too() {
        let (mut decisions, now) = (Decisions::new(Some(SETTLE)), Instant::now());
        assert!(!decisions.seen(&workload(), &record(), false, now));
        assert!(decisions.is_settling(&workload(), &record(), now + SETTLE / 2));
        assert!(!decisions.is_settling(&workload(), &record(), now + SETTLE));
    }

    #[test]
    fn a_change_just_before_a_decision_of_another_replica_is_looked_at_once() {
        let (mut decisions, now) = (Decisions::new(Some(SETTLE)), Instant::now());
        decisions.changed(Key::new("n", "app"), "10".into(), now);
        assert!(decisions.seen(&workload(), &record(), false, now));
        assert!(!decisions.seen(&workload(), &record(), false, now));
    }

    #[test]
    fn ones_own_decision_is_not_news() {
        let (mut decisions, now) = (Decisions::new(Some(SETTLE)), Instant::now());
        decisions.decided(decided("10"), now);
        decisions.changed(Key::new("n", "app"), "10".into(), now);
        assert!(!decisions.seen(&workload(), &record(), false, now));
    }

    #[test]
    fn it_can_be_turned_off() {
        let (mut decisions, now) = (Decisions::new(None), Instant::now());
        decisions.changed(Key::new("n", "app"), "10".into(), now);
        assert!(!decisions.decided(decided("9"), now));
        assert!(!decisions.seen(&workload(), &record(), false, now));
        assert!(!decisions.is_settling(&workload(), &record(), now));
    }
}
