//! What is kept here, and written and told besides.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A thing of which there may be many at the cost of one: only one that is changed while
/// others have it is copied.
#[derive(Debug, PartialEq)]
pub(crate) struct Kept<T>(Arc<T>);

impl<T> Kept<T> {
    pub(super) fn new(thing: T) -> Self {
        Self(Arc::new(thing))
    }

    /// As it is now, whatever becomes of this one.
    pub(super) fn share(&self) -> Arc<T> {
        Arc::clone(&self.0)
    }

    /// Whether nothing has changed it since the other was made of it.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Self {
        Self(self.share())
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Kept<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_have_stays_as_it_was() {
        let mut kept = Kept::new(vec![1]);
        let (before, written) = (kept.clone(), kept.share());
        assert!(kept.is(&before));
        kept.push(2);
        assert_eq!(
            (&*kept, &*before, &*written),
            (&vec![1, 2], &vec![1], &vec![1])
        );
        assert!(!kept.is(&before));
    }

    #[test]
    fn what_nobody_else_has_is_changed_where_it_is() {
        let mut kept = Kept::new(vec![1]);
        let place = std::ptr::from_ref::<Vec<i32>>(&kept);
        kept.push(2);
        assert_eq!(std::ptr::from_ref::<Vec<i32>>(&kept), place);
    }
}
