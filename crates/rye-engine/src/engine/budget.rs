//! Usage budgets of sessions; the usage of children counts for all their ancestors.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rye_protocol::{CallId, LimitKind, Limits, Millis, ThreadId, Usage};

/// The budget of an open session.
pub(crate) struct Budget {
    limits: Mutex<Limits>,
    usage: Mutex<UsageState>,
    parent: Option<ParentBudget>,
}

/// A child's call in the budget of its parent.
#[derive(Clone)]
pub(crate) struct ParentBudget {
    pub(crate) budget: Arc<Budget>,
    pub(crate) thread: ThreadId,
    pub(crate) call: CallId,
}

#[derive(Default)]
struct UsageState {
    /// Committed usage.
    settled: Usage,
    /// Usage reserved by running model calls.
    admitted: HashMap<ThreadId, Usage>,
    /// Usage of children whose calls have not ended.
    children: HashMap<(ThreadId, CallId), Usage>,
}

impl UsageState {
    fn total(&self) -> Usage {
        let open = self.admitted.values().chain(self.children.values());
        open.fold(self.settled, |sum, more| sum.plus(*more))
    }
}

impl Budget {
    pub(crate) fn new(limits: Limits, settled: Usage, parent: Option<ParentBudget>) -> Self {
        let budget = Self {
            limits: Mutex::new(limits),
            usage: Mutex::new(UsageState {
                settled,
                ..UsageState::default()
            }),
            parent,
        };
        if let Some(parent) = &budget.parent {
            let key = (parent.thread.clone(), parent.call.clone());
            parent.budget.usage().children.insert(key, settled);
        }
        budget
    }

    /// The earliest deadline of this session and its ancestors.
    pub(crate) fn until(&self) -> Option<Millis> {
        let parent = self.parent.as_ref();
        let parent = parent.and_then(|parent| parent.budget.until());
        self.limits().until.into_iter().chain(parent).min()
    }

    /// The current limits.
    pub(crate) fn limits(&self) -> Limits {
        *self.limits.lock()
    }

    /// Replaces the limits.
    pub(crate) fn set_limits(&self, limits: Limits) {
        *self.limits.lock() = limits;
    }

    /// Whether the session is a child.
    pub(crate) fn is_child(&self) -> bool {
        self.parent.is_some()
    }

    /// The remaining limits for a child.
    pub(crate) fn remaining(&self) -> Limits {
        self.limits().remaining(&self.usage().total())
    }

    /// Reserves the usage of a model call until it is settled; the error is the limit that the call
    /// would exceed.
    pub(crate) fn admit(
        &self,
        thread: &ThreadId,
        reserve: Usage,
        now: Millis,
    ) -> Result<(), LimitKind> {
        let mut usage = self.usage();
        let before = usage.total();
        self.check(before, reserve, now)?;
        usage.admitted.insert(thread.clone(), reserve);
        drop(usage);
        self.update_parent();
        Ok(())
    }

    fn check(&self, before: Usage, more: Usage, now: Millis) -> Result<(), LimitKind> {
        let limits = self.limits();
        if let Some(limit) = limits.reached(&before, now) {
            return Err(limit);
        }
        let after = before.plus(more).tokens();
        if limits.tokens.is_some_and(|limit| after > limit) {
            return Err(LimitKind::Tokens);
        }
        match &self.parent {
            None => Ok(()),
            Some(ParentBudget { budget, .. }) => {
                let before = budget.usage().total();
                budget.check(before, more, now)
            }
        }
    }

    /// Replaces a thread's reservation by committed usage.
    pub(crate) fn settle(&self, thread: &ThreadId, added: Usage) {
        let mut usage = self.usage();
        usage.admitted.remove(thread);
        usage.settled = usage.settled.plus(added);
        drop(usage);
        self.update_parent();
    }

    /// Usage of a call's child so far.
    pub(crate) fn used_by(&self, thread: &ThreadId, call: &CallId) -> Usage {
        let key = (thread.clone(), call.clone());
        self.usage().children.get(&key).copied().unwrap_or_default()
    }

    /// Removes the child of an ended call, whose usage is settled.
    pub(crate) fn end_child(&self, thread: &ThreadId, call: &CallId) {
        let key = (thread.clone(), call.clone());
        self.usage().children.remove(&key);
        self.update_parent();
    }

    fn update_parent(&self) {
        let Some(parent) = &self.parent else {
            return;
        };
        let total = self.usage().total();
        let key = (parent.thread.clone(), parent.call.clone());
        // The child of an ended call was already counted.
        if let Some(used) = parent.budget.usage().children.get_mut(&key) {
            *used = total;
        }
        parent.budget.update_parent();
    }

    fn usage(&self) -> MutexGuard<'_, UsageState> {
        self.usage.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = Millis(1000);

    fn turns(turns: u64) -> Usage {
        Usage {
            turns,
            ..Usage::default()
        }
    }

    fn limited(turns: u64, parent: Option<ParentBudget>) -> Arc<Budget> {
        let limits = Limits {
            turns: Some(turns),
            ..Limits::default()
        };
        Arc::new(Budget::new(limits, Usage::default(), parent))
    }

    fn thread(name: &str) -> ThreadId {
        name.parse().unwrap()
    }

    #[test]
    fn threads_cannot_share_the_last_turn() {
        let budget = limited(1, None);
        assert_eq!(budget.admit(&thread("a"), turns(1), NOW), Ok(()));
        assert_eq!(
            budget.admit(&thread("b"), turns(1), NOW),
            Err(LimitKind::Turns)
        );
        budget.settle(&thread("a"), turns(1));
        assert_eq!(
            budget.admit(&thread("b"), turns(1), NOW),
            Err(LimitKind::Turns)
        );
    }

    #[test]
    fn call_exceeding_the_token_limit_is_refused() {
        let limits = Limits {
            tokens: Some(100),
            ..Limits::default()
        };
        let budget = Budget::new(limits, Usage::default(), None);
        let reserve = |input_tokens| Usage {
            input_tokens,
            ..turns(1)
        };
        assert_eq!(
            budget.admit(&thread("a"), reserve(101), NOW),
            Err(LimitKind::Tokens)
        );
        assert_eq!(budget.admit(&thread("a"), reserve(100), NOW), Ok(()));
    }

    #[test]
    fn usage_of_a_child_counts_once_for_its_parent() {
        let parent = limited(4, None);
        let call = ParentBudget {
            budget: Arc::clone(&parent),
            thread: thread("a"),
            call: "call".parse().unwrap(),
        };
        let child = limited(9, Some(call.clone()));
        for _ in 0..3 {
            assert_eq!(child.admit(&thread("x"), turns(1), NOW), Ok(()));
            child.settle(&thread("x"), turns(1));
        }
        let used = parent.used_by(&call.thread, &call.call);
        assert_eq!(used, turns(3));
        parent.settle(&call.thread, used);
        parent.end_child(&call.thread, &call.call);
        assert_eq!(parent.remaining().turns, Some(1));
        assert_eq!(child.admit(&thread("x"), turns(1), NOW), Ok(()));
        assert_eq!(parent.remaining().turns, Some(1), "its call has ended");
    }

    #[test]
    fn limit_of_a_parent_applies_to_its_child() {
        let parent = limited(1, None);
        let call = ParentBudget {
            budget: Arc::clone(&parent),
            thread: thread("a"),
            call: "call".parse().unwrap(),
        };
        let child = limited(9, Some(call));
        assert_eq!(child.admit(&thread("x"), turns(1), NOW), Ok(()));
        child.settle(&thread("x"), turns(1));
        assert_eq!(
            child.admit(&thread("x"), turns(1), NOW),
            Err(LimitKind::Turns)
        );
    }
}
