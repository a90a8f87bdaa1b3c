//! Whether the process lives and whether it is ready: named conditions, each set by whoever knows.
//!
//! How it is asked over HTTP is [`crate::webhook::server::admin`]'s.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Readiness. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct Health {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    conditions: BTreeMap<&'static str, bool>,
    draining: bool,
}

/// One condition of readiness, to be reported by the part of the program that it is about.
#[derive(Debug, Clone)]
pub struct Condition {
    name: &'static str,
    health: Health,
}

impl Health {
    /// Adds a condition that is not met yet. `name` completes "waiting for …".
    pub fn condition(&self, name: &'static str) -> Condition {
        let condition = Condition { name, health: self.clone() };
        condition.set(false);
        condition
    }

    /// The process is about to end: it is never ready again.
    pub fn drain(&self) {
        self.state().draining = true;
    }

    /// Ready, or what is waited for.
    ///
    /// # Errors
    ///
    /// The reasons why not, each a few words.
    pub fn ready(&self) -> Result<(), Vec<String>> {
        let state = self.state();
        let draining = state.draining.then(|| "draining".to_owned());
        let unmet = state.conditions.iter().filter(|(_, met)| !**met);
        let reasons: Vec<_> =
            draining.into_iter().chain(unmet.map(|(name, _)| format!("waiting for {name}"))).collect();
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
        self.health.state().conditions.insert(self.name, met);
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
    fn draining_is_for_good() {
        let health = Health::default();
        health.drain();
        assert_eq!(health.ready().unwrap_err(), ["draining"]);
    }
}
