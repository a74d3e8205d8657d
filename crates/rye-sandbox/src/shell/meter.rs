//! Limits the work and the run time of a script.

use std::time::Duration;

use tokio::time::Instant;

/// Total work budget of a script, roughly in bytes processed.
const WORK_LIMIT: u64 = 1 << 27;
/// Error at the limit.
const WORK_LIMIT_EXCEEDED: &str = "the script exceeds its work limit; does a loop never end?";
/// Fixed cost of each step.
const STEP_COST: u64 = 32;
/// Amount of work between yields to the runtime.
const YIELD_INTERVAL: u64 = 1 << 18;

/// Why a command cannot continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Halt {
    /// The command failed with this message; the script continues.
    Fail(String),
    /// The script cannot continue for this reason.
    Abort(String),
    /// The script called `exit`.
    Exit(i32),
    /// A function called `return`.
    Return(i32),
    /// Leave this number of loops.
    Break(u32),
    /// Continue the loop this number of levels up.
    Continue(u32),
    /// The run time limit was reached.
    Timeout,
    /// A resource limit was exceeded.
    LimitExceeded(&'static str),
}

impl<E: std::error::Error> From<E> for Halt {
    fn from(error: E) -> Self {
        Self::Fail(error.to_string())
    }
}

/// Counts work, and yields to the runtime regularly.
#[derive(Debug)]
pub(crate) struct Meter {
    spent: u64,
    last_yield: u64,
    pub(super) deadline: Instant,
}

impl Meter {
    pub(crate) fn new(time: Duration) -> Self {
        Self {
            spent: 0,
            last_yield: 0,
            deadline: Instant::now() + time,
        }
    }

    /// Charges work synchronously; for operations too small to yield in.
    pub(crate) fn charge(&mut self, work: usize) -> Result<(), Halt> {
        self.spent = self
            .spent
            .saturating_add(work as u64)
            .saturating_add(STEP_COST);
        if self.spent > WORK_LIMIT {
            return Err(Halt::LimitExceeded(WORK_LIMIT_EXCEEDED));
        }
        if Instant::now() >= self.deadline {
            return Err(Halt::Timeout);
        }
        Ok(())
    }

    /// Charges work and yields regularly, so that dropping the future stops the script.
    pub(crate) async fn spend(&mut self, work: usize) -> Result<(), Halt> {
        self.charge(work)?;
        if self.spent - self.last_yield > YIELD_INTERVAL {
            self.last_yield = self.spent;
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}
