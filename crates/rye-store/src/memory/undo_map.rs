//! A map in insertion order whose changes can be undone.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

#[derive(Debug)]
pub(super) struct UndoMap<K, V> {
    positions: HashMap<K, u64>,
    values: BTreeMap<u64, V>,
    next: u64,
}

/// The previous value of a key and its position; none if the key was new.
#[derive(Debug)]
pub(super) struct Previous<K, V> {
    key: K,
    value: Option<(u64, V)>,
}

impl<K, V> Default for UndoMap<K, V> {
    fn default() -> Self {
        Self {
            positions: HashMap::new(),
            values: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<K: Eq + Hash + Clone, V> UndoMap<K, V> {
    pub(super) fn position(&self, key: &K) -> Option<u64> {
        self.positions.get(key).copied()
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.values.get(self.positions.get(key)?)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.values.get_mut(self.positions.get(key)?)
    }

    pub(super) fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.values.values()
    }

    /// Values after a position, or all.
    pub(super) fn after(&self, position: Option<u64>) -> impl Iterator<Item = &V> {
        let first = position.map_or(0, |position| position + 1);
        self.values.range(first..).map(|(_, value)| value)
    }

    /// Values before a position, or all, newest first.
    pub(super) fn before(&self, position: Option<u64>) -> impl Iterator<Item = &V> {
        let end = position.unwrap_or(u64::MAX);
        self.values.range(..end).rev().map(|(_, value)| value)
    }

    /// Appends a value, or replaces the one with the same key in its position.
    pub(super) fn insert(&mut self, key: K, value: V) -> Previous<K, V> {
        let position = self.position(&key).unwrap_or_else(|| {
            let position = self.next;
            self.next += 1;
            self.positions.insert(key.clone(), position);
            position
        });
        let previous = self.values.insert(position, value);
        let value = previous.map(|previous| (position, previous));
        Previous { key, value }
    }

    pub(super) fn remove(&mut self, key: K) -> Previous<K, V> {
        let position = self.positions.remove(&key);
        let value = position.and_then(|position| Some((position, self.values.remove(&position)?)));
        Previous { key, value }
    }

    /// Restores the value before an [`insert`](Self::insert) or [`remove`](Self::remove).
    pub(super) fn undo(&mut self, previous: Previous<K, V>) {
        let Previous { key, value } = previous;
        match value {
            Some((position, value)) => {
                self.values.insert(position, value);
                self.positions.insert(key, position);
            }
            None => {
                self.remove(key);
            }
        }
    }
}
