//! Whose turn is next: keys of one group must not keep those of others waiting, however many there are or how long each
//! takes. The reconciler's groups are namespaces, which are different people's.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

/// How many turns may be under way at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Most {
    /// Of all groups together.
    pub(super) all: usize,
    /// Of one group.
    pub(super) of_group: usize,
}

/// What has a turn and what waits for one. Groups take turns; within one, the key that asked first is first.
#[derive(Debug)]
pub(super) struct Fair<K> {
    most: Most,
    groups: HashMap<Arc<str>, Group<K>>,
    /// The groups from which a key can be taken: that have one, and are not at their limit.
    open: VecDeque<Arc<str>>,
    waiting: HashSet<K>,
    /// What has a turn, and whether it was asked for again meanwhile.
    busy: HashMap<K, bool>,
}

#[derive(Debug)]
struct Group<K> {
    waiting: VecDeque<K>,
    busy: usize,
}

impl<K: Clone + Eq + Hash> Fair<K> {
    /// Nothing waits, and nothing has a turn.
    pub(super) fn new(most: Most) -> Self {
        let (groups, open) = (HashMap::new(), VecDeque::new());
        Self { most, groups, open, waiting: HashSet::new(), busy: HashMap::new() }
    }

    /// Asks for a turn of `key`. One that has a turn gets another afterwards.
    pub(super) fn ask(&mut self, group: &Arc<str>, key: K) {
        if let Some(again) = self.busy.get_mut(&key) {
            *again = true;
            return;
        }
        if !self.waiting.insert(key.clone()) {
            return;
        }
        let entry = self.groups.entry(group.clone()).or_insert_with(|| Group { waiting: VecDeque::new(), busy: 0 });
        if entry.waiting.is_empty() && entry.busy < self.most.of_group {
            self.open.push_back(group.clone());
        }
        entry.waiting.push_back(key);
    }

    /// Begins the next turn, if there is room for one.
    pub(super) fn begin(&mut self) -> Option<K> {
        if self.busy.len() >= self.most.all {
            return None;
        }
        let name = self.open.pop_front()?;
        let group = self.groups.get_mut(&name)?;
        let key = group.waiting.pop_front()?;
        group.busy += 1;
        if !group.waiting.is_empty() && group.busy < self.most.of_group {
            self.open.push_back(name);
        }
        self.waiting.remove(&key);
        self.busy.insert(key.clone(), false);
        Some(key)
    }

    /// Ends a turn.
    pub(super) fn end(&mut self, name: &Arc<str>, key: &K) {
        let Some(again) = self.busy.remove(key) else { return };
        if let Some(group) = self.groups.get_mut(name) {
            if !group.waiting.is_empty() && group.busy == self.most.of_group {
                self.open.push_back(name.clone());
            }
            group.busy -= 1;
            if group.waiting.is_empty() && group.busy == 0 {
                self.groups.remove(name);
            }
        }
        if again {
            self.ask(name, key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Key = (&'static str, u32);

    fn ask(fair: &mut Fair<Key>, key: Key) {
        fair.ask(&key.0.into(), key);
    }

    fn end(fair: &mut Fair<Key>, key: Key) {
        fair.end(&key.0.into(), &key);
    }

    fn begin_all(fair: &mut Fair<Key>) -> Vec<Key> {
        std::iter::from_fn(|| fair.begin()).collect()
    }

    #[test]
    fn a_group_with_much_to_do_leaves_room_for_others() {
        let mut fair = Fair::new(Most { all: 4, of_group: 2 });
        (0..9).for_each(|number| ask(&mut fair, ("much", number)));
        assert_eq!(begin_all(&mut fair), [("much", 0), ("much", 1)]);
        ask(&mut fair, ("a", 0));
        ask(&mut fair, ("b", 0));
        ask(&mut fair, ("b", 1));
        assert_eq!(begin_all(&mut fair), [("a", 0), ("b", 0)]);
        end(&mut fair, ("much", 0));
        assert_eq!(begin_all(&mut fair), [("b", 1)], "who waited longer is first");
        end(&mut fair, ("a", 0));
        assert_eq!(begin_all(&mut fair), [("much", 2)]);
    }

    #[test]
    fn a_key_that_is_asked_for_in_its_turn_has_another() {
        let mut fair = Fair::new(Most { all: 4, of_group: 2 });
        ask(&mut fair, ("a", 0));
        ask(&mut fair, ("a", 0));
        assert_eq!(begin_all(&mut fair), [("a", 0)]);
        ask(&mut fair, ("a", 0));
        ask(&mut fair, ("a", 0));
        assert_eq!(begin_all(&mut fair), []);
        end(&mut fair, ("a", 0));
        assert_eq!(begin_all(&mut fair), [("a", 0)]);
        end(&mut fair, ("a", 0));
        assert_eq!(begin_all(&mut fair), []);
        assert!(fair.groups.is_empty());
    }

    proptest! {
        /// Whatever is asked for has a turn, within the limits, and nothing is kept afterwards.
        #[test]
        fn every_key_has_its_turn(asked in prop::collection::vec((0_usize..4, 0_u32..6, any::<bool>()), 0..200)) {
            let most = Most { all: 3, of_group: 2 };
            let (mut fair, mut busy, mut owed) = (Fair::new(most), Vec::new(), HashSet::new());
            for (group, number, ends) in asked {
                let key = (["a", "b", "c", "d"][group], number);
                ask(&mut fair, key);
                owed.insert(key);
                begin(&mut fair, &mut busy, &mut owed, most);
                if ends {
                    end(&mut fair, busy.remove(0));
                    begin(&mut fair, &mut busy, &mut owed, most);
                }
            }
            while !busy.is_empty() {
                end(&mut fair, busy.remove(0));
                begin(&mut fair, &mut busy, &mut owed, most);
            }
            prop_assert!(owed.is_empty(), "no turn of {owed:?}");
            prop_assert!(fair.groups.is_empty() && fair.open.is_empty() && fair.waiting.is_empty());
        }
    }

    fn begin(fair: &mut Fair<Key>, busy: &mut Vec<Key>, owed: &mut HashSet<Key>, most: Most) {
        for key in begin_all(fair) {
            assert!(!busy.contains(&key), "two turns of {key:?} at a time");
            owed.remove(&key);
            busy.push(key);
            assert!(busy.len() <= most.all);
            assert!(busy.iter().filter(|other| other.0 == key.0).count() <= most.of_group);
        }
    }
}
