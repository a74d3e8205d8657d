//! A map that remembers in which order things were first put into it, and can take back
//! what was done to it.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

#[derive(Debug)]
pub(super) struct Shelf<K, V> {
    places: HashMap<K, u64>,
    things: BTreeMap<u64, V>,
    next: u64,
}

/// How a thing stood before it was changed.
#[derive(Debug)]
pub(super) struct Before<K, V> {
    key: K,
    was: Option<(u64, V)>,
}

impl<K, V> Default for Shelf<K, V> {
    fn default() -> Self {
        Self {
            places: HashMap::new(),
            things: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<K: Eq + Hash + Clone, V> Shelf<K, V> {
    pub(super) fn place(&self, key: &K) -> Option<u64> {
        self.places.get(key).copied()
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.things.get(self.places.get(key)?)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.things.get_mut(self.places.get(key)?)
    }

    pub(super) fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.things.values()
    }

    /// Those behind a place.
    pub(super) fn after(&self, place: Option<u64>) -> impl Iterator<Item = &V> {
        let first = place.map_or(0, |place| place + 1);
        self.things.range(first..).map(|(_, thing)| thing)
    }

    /// Those in front of a place, the last first.
    pub(super) fn before(&self, place: Option<u64>) -> impl Iterator<Item = &V> {
        let end = place.unwrap_or(u64::MAX);
        self.things.range(..end).rev().map(|(_, thing)| thing)
    }

    /// Puts a thing at the end, or in the place of the one that has its key.
    pub(super) fn put(&mut self, key: K, thing: V) -> Before<K, V> {
        let place = self.place(&key).unwrap_or_else(|| {
            let place = self.next;
            self.next += 1;
            self.places.insert(key.clone(), place);
            place
        });
        let was = self.things.insert(place, thing).map(|was| (place, was));
        Before { key, was }
    }

    pub(super) fn remove(&mut self, key: K) -> Before<K, V> {
        let place = self.places.remove(&key);
        let was = place.and_then(|place| Some((place, self.things.remove(&place)?)));
        Before { key, was }
    }

    pub(super) fn take_back(&mut self, before: Before<K, V>) {
        let Before { key, was } = before;
        match was {
            Some((place, thing)) => {
                self.things.insert(place, thing);
                self.places.insert(key, place);
            }
            None => {
                self.remove(key);
            }
        }
    }
}
