//! How much a script may do.

use std::time::Duration;

use tokio::time::Instant;

/// What all commands of a script may do together, in bytes looked at, about.
const MOST: u64 = 1 << 27;
/// What a step costs that looks at nothing.
const EACH: u64 = 32;
/// After how much others get their turn.
const BREATH: u64 = 1 << 18;

/// Why a command does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Halt {
    /// This command failed, in words; the script goes on.
    Fail(String),
    /// The script wants to end.
    Exit(i32),
    /// Its time is up.
    Timeout,
    /// It wants too much.
    TooMuch(&'static str),
}

impl<E: std::error::Error> From<E> for Halt {
    fn from(error: E) -> Self {
        Self::Fail(error.to_string())
    }
}

/// Counts what is done, and lets others have their turn.
#[derive(Debug)]
pub(crate) struct Meter {
    done: u64,
    breathed: u64,
    pub(super) deadline: Instant,
}

impl Meter {
    pub(crate) fn new(time: Duration) -> Self {
        Self {
            done: 0,
            breathed: 0,
            deadline: Instant::now() + time,
        }
    }

    /// Counts; for work that is too small to wait in.
    pub(crate) fn charge(&mut self, work: usize) -> Result<(), Halt> {
        self.done = self.done.saturating_add(work as u64).saturating_add(EACH);
        if self.done > MOST {
            return Err(Halt::TooMuch("it does too much"));
        }
        if Instant::now() >= self.deadline {
            return Err(Halt::Timeout);
        }
        Ok(())
    }

    /// Counts, and waits for others now and then. A script that nobody waits for any more
    /// ends here.
    pub(crate) async fn spend(&mut self, work: usize) -> Result<(), Halt> {
        self.charge(work)?;
        if self.done - self.breathed > BREATH {
            self.breathed = self.done;
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}
