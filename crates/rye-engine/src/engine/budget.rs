//! What a session uses up, and what it may: children count for all that are above them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rye_protocol::{CallId, Limits, Millis, ThreadId, Usage};

/// The budget of a session that is open here.
pub(crate) struct Budget {
    limits: Mutex<Limits>,
    spent: Mutex<Spent>,
    above: Option<Above>,
}

/// The call that a child session is, in the budget of its parent.
#[derive(Clone)]
pub(crate) struct Above {
    pub(crate) budget: Arc<Budget>,
    pub(crate) thread: ThreadId,
    pub(crate) call: CallId,
}

#[derive(Default)]
struct Spent {
    /// As it is written down.
    settled: Usage,
    /// What calls of models that are under way have reserved.
    admitted: HashMap<ThreadId, Usage>,
    /// What children have used up whose calls have not ended.
    children: HashMap<(ThreadId, CallId), Usage>,
}

impl Spent {
    fn total(&self) -> Usage {
        let open = self.admitted.values().chain(self.children.values());
        open.fold(self.settled, |sum, more| sum.plus(*more))
    }
}

impl Budget {
    pub(crate) fn new(limits: Limits, settled: Usage, above: Option<Above>) -> Self {
        let budget = Self {
            limits: Mutex::new(limits),
            spent: Mutex::new(Spent {
                settled,
                ..Spent::default()
            }),
            above,
        };
        if let Some(above) = &budget.above {
            let key = (above.thread.clone(), above.call.clone());
            above.budget.spent().children.insert(key, settled);
        }
        budget
    }

    /// When the time of this session or of one above it is up.
    pub(crate) fn until(&self) -> Option<Millis> {
        let above = self.above.as_ref();
        let above = above.and_then(|above| above.budget.until());
        self.limits().until.into_iter().chain(above).min()
    }

    /// How much it may use up.
    pub(crate) fn limits(&self) -> Limits {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It may use up more.
    pub(crate) fn set_limits(&self, limits: Limits) {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// Whether it is that of a child.
    pub(crate) fn is_of_child(&self) -> bool {
        self.above.is_some()
    }

    /// What is left for a child.
    pub(crate) fn left(&self) -> Limits {
        self.limits().remaining(&self.spent().total())
    }

    /// Lets a call of a model be made, or says which limit it would pass. What is let is
    /// taken into account until it is settled.
    pub(crate) fn admit(
        &self,
        thread: &ThreadId,
        reserve: Usage,
        now: Millis,
    ) -> Result<(), &'static str> {
        let mut spent = self.spent();
        let before = spent.total();
        self.check(before, reserve, now)?;
        spent.admitted.insert(thread.clone(), reserve);
        drop(spent);
        self.tell_above();
        Ok(())
    }

    fn check(&self, before: Usage, more: Usage, now: Millis) -> Result<(), &'static str> {
        let limits = self.limits();
        if let Some(limit) = limits.reached(&before, now) {
            return Err(limit);
        }
        let after = before.plus(more).tokens();
        if limits.tokens.is_some_and(|limit| after > limit) {
            return Err("tokens");
        }
        match &self.above {
            None => Ok(()),
            Some(Above { budget, .. }) => {
                let before = budget.spent().total();
                budget.check(before, more, now)
            }
        }
    }

    /// What a thread has used up is written down.
    pub(crate) fn settle(&self, thread: &ThreadId, usage: Usage) {
        let mut spent = self.spent();
        spent.admitted.remove(thread);
        spent.settled = spent.settled.plus(usage);
        drop(spent);
        self.tell_above();
    }

    /// What the child of a call has used up so far.
    pub(crate) fn used_by(&self, thread: &ThreadId, call: &CallId) -> Usage {
        let key = (thread.clone(), call.clone());
        self.spent().children.get(&key).copied().unwrap_or_default()
    }

    /// A call has ended: what its child used up is settled by now.
    pub(crate) fn end_child(&self, thread: &ThreadId, call: &CallId) {
        let key = (thread.clone(), call.clone());
        self.spent().children.remove(&key);
        self.tell_above();
    }

    fn tell_above(&self) {
        let Some(above) = &self.above else {
            return;
        };
        let total = self.spent().total();
        let key = (above.thread.clone(), above.call.clone());
        // A child whose call has ended was counted then.
        if let Some(used) = above.budget.spent().children.get_mut(&key) {
            *used = total;
        }
        above.budget.tell_above();
    }

    fn spent(&self) -> MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn limited(turns: u64, above: Option<Above>) -> Arc<Budget> {
        let limits = Limits {
            turns: Some(turns),
            ..Limits::default()
        };
        Arc::new(Budget::new(limits, Usage::default(), above))
    }

    fn thread(name: &str) -> ThreadId {
        name.parse().unwrap()
    }

    #[test]
    fn two_threads_cannot_both_have_the_last_turn() {
        let budget = limited(1, None);
        assert_eq!(budget.admit(&thread("a"), turns(1), NOW), Ok(()));
        assert_eq!(budget.admit(&thread("b"), turns(1), NOW), Err("turns"));
        budget.settle(&thread("a"), turns(1));
        assert_eq!(budget.admit(&thread("b"), turns(1), NOW), Err("turns"));
    }

    #[test]
    fn a_call_that_would_pass_the_limit_of_tokens_is_not_made() {
        let limits = Limits {
            tokens: Some(100),
            ..Limits::default()
        };
        let budget = Budget::new(limits, Usage::default(), None);
        let reserve = |input_tokens| Usage {
            input_tokens,
            ..turns(1)
        };
        assert_eq!(budget.admit(&thread("a"), reserve(101), NOW), Err("tokens"));
        assert_eq!(budget.admit(&thread("a"), reserve(100), NOW), Ok(()));
    }

    #[test]
    fn what_a_child_uses_up_counts_above_it_once() {
        let parent = limited(4, None);
        let above = Above {
            budget: Arc::clone(&parent),
            thread: thread("a"),
            call: "call".parse().unwrap(),
        };
        let child = limited(9, Some(above.clone()));
        for _ in 0..3 {
            assert_eq!(child.admit(&thread("x"), turns(1), NOW), Ok(()));
            child.settle(&thread("x"), turns(1));
        }
        let used = parent.used_by(&above.thread, &above.call);
        assert_eq!(used, turns(3));
        parent.settle(&above.thread, used);
        parent.end_child(&above.thread, &above.call);
        assert_eq!(parent.left().turns, Some(1));
        assert_eq!(child.admit(&thread("x"), turns(1), NOW), Ok(()));
        assert_eq!(parent.left().turns, Some(1), "its call has ended");
    }

    #[test]
    fn the_limit_of_a_parent_holds_for_its_child() {
        let parent = limited(1, None);
        let above = Above {
            budget: Arc::clone(&parent),
            thread: thread("a"),
            call: "call".parse().unwrap(),
        };
        let child = limited(9, Some(above));
        assert_eq!(child.admit(&thread("x"), turns(1), NOW), Ok(()));
        child.settle(&thread("x"), turns(1));
        assert_eq!(child.admit(&thread("x"), turns(1), NOW), Err("turns"));
    }
}
