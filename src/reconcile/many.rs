//! A map from one key to many values that keeps no empty entries.

use std::collections::HashMap;
use std::hash::Hash;

/// The values are in order. Most keys have one or two, for which a tree would take ten times the memory.
#[derive(Debug)]
pub(super) struct Many<K, V>(HashMap<K, Vec<V>>);

impl<K, V> Default for Many<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Hash + Eq, V: Ord> Many<K, V> {
    pub(super) fn insert(&mut self, key: K, value: V) {
        let values = self.0.entry(key).or_default();
        if let Err(place) = values.binary_search(&value) {
            if values.is_empty() {
                values.reserve_exact(1);
            }
            values.insert(place, value);
        }
    }

    pub(super) fn remove(&mut self, key: &K, value: &V) {
        if let Some(values) = self.0.get_mut(key) {
            if let Ok(place) = values.binary_search(value) {
                values.remove(place);
            }
            if values.is_empty() {
                self.0.remove(key);
            }
        }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }

    pub(super) fn get<Q>(&self, key: &Q) -> impl Iterator<Item = &V> + use<'_, K, V, Q>
    where
        K: std::borrow::Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.0.get(key).into_iter().flatten()
    }
}
