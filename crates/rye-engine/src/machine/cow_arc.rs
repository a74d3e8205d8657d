//! Copy-on-write state that is shared with committed batches and events.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Copy-on-write `Arc`: cheap to clone, copied when it is changed while shared.
#[derive(Debug, PartialEq)]
pub(crate) struct CowArc<T>(Arc<T>);

impl<T> CowArc<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Arc::new(value))
    }

    /// A snapshot of the current value.
    pub(super) fn share(&self) -> Arc<T> {
        Arc::clone(&self.0)
    }

    /// Whether neither was changed since one was cloned from the other.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Clone for CowArc<T> {
    fn clone(&self) -> Self {
        Self(self.share())
    }
}

impl<T> Deref for CowArc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for CowArc<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_do_not_affect_clones() {
        let mut value = CowArc::new(vec![1]);
        let (before, written) = (value.clone(), value.share());
        assert!(value.is_same(&before));
        value.push(2);
        assert_eq!(
            (&*value, &*before, &*written),
            (&vec![1, 2], &vec![1], &vec![1])
        );
        assert!(!value.is_same(&before));
    }

    #[test]
    fn unshared_value_is_changed_in_place() {
        let mut value = CowArc::new(vec![1]);
        let address = std::ptr::from_ref::<Vec<i32>>(&value);
        value.push(2);
        assert_eq!(std::ptr::from_ref::<Vec<i32>>(&value), address);
    }
}
