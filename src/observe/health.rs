//! Whether the process lives and whether it is ready: named conditions, each set by the part of the program that knows.
//!
//! How it is asked over HTTP is [`crate::webhook::server::admin`]'s.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Readiness. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct Health {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    conditions: Vec<(&'static str, bool)>,
    draining: bool,
}

/// One condition of readiness, to be reported by the part of the program that it is about.
#[derive(Debug, Clone)]
pub struct Condition {
    place: usize,
    health: Health,
}

impl Health {
    /// Adds a condition that is not met yet. `name` completes "waiting for …", and several may have the same.
    pub fn condition(&self, name: &'static str) -> Condition {
        let mut state = self.state();
        state.conditions.push((name, false));
        Condition { place: state.conditions.len() - 1, health: self.clone() }
    }

    /// The process is about to end: it is never ready again.
    pub fn drain(&self) {
        self.state().draining = true;
    }

    /// Whether the process is about to end.
    pub fn is_draining(&self) -> bool {
        self.state().draining
    }

    /// Ready, or what is waited for.
    ///
    /// # Errors
    ///
    /// The reasons why not, each a few words.
    pub fn ready(&self) -> Result<(), Vec<String>> {
        let state = self.state();
        let draining = state.draining.then(|| "draining".to_owned());
        let unmet: BTreeSet<_> = state.conditions.iter().filter(|(_, met)| !met).map(|(name, _)| name).collect();
        let reasons: Vec<_> =
            draining.into_iter().chain(unmet.into_iter().map(|name| format!("waiting for {name}"))).collect();
        if reasons.is_empty() { Ok(()) } else { Err(reasons) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock can leave the state half-changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Condition {
    /// Reports whether the condition is met.
    pub fn set(&self, met: bool) {
        if let Some((_, is_met)) = self.health.state().conditions.get_mut(self.place) {
            *is_met = met;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ready_when_every_condition_is_met() {
        let health = Health::default();
        let (watches, server) = (health.condition("watches"), health.condition("a certificate"));
        assert_eq!(health.ready().unwrap_err(), ["waiting for a certificate", "waiting for watches"]);
        server.set(true);
        assert_eq!(health.ready().unwrap_err(), ["waiting for watches"]);
        watches.set(true);
        assert_eq!(health.ready(), Ok(()));
        watches.set(false);
        assert!(health.ready().is_err());
    }

    #[test]
    fn conditions_of_one_name_are_each_to_be_met_and_are_told_once() {
        let health = Health::default();
        let (one, other) = (health.condition("watches"), health.condition("watches"));
        assert_eq!(health.ready().unwrap_err(), ["waiting for watches"]);
        one.set(true);
        assert_eq!(health.ready().unwrap_err(), ["waiting for watches"]);
        other.set(true);
        assert_eq!(health.ready(), Ok(()));
    }

    #[test]
    fn draining_is_for_good() {
        let health = Health::default();
        health.drain();
        assert_eq!(health.ready().unwrap_err(), ["draining"]);
    }
}
