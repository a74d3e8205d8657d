//! What is done about a model that does not answer: ask again after a while, ask another
//! one, or say why not.

use std::fmt::Write as _;
use std::time::Duration;

use rye_protocol::{ErrorCode, ErrorInfo, EventKind};

use super::Runner;
use crate::machine::Input;
use crate::model::{ModelError, RetryPolicy};
use crate::store::StoreError;
use lillux::redact::Redactor;

/// What was tried for the answer that is being waited for. A restart forgets it, and
/// simply asks again.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Failover {
    /// How often the model of now has been asked.
    tries: u32,
    /// Those that were given up, and why.
    given_up: Vec<(String, String)>,
    /// How long to wait before the next call.
    wait: Duration,
}

/// What comes next.
#[derive(Debug, Clone, PartialEq)]
enum Next {
    /// Something that is told, and then the call.
    Again(EventKind),
    GiveUp(ErrorInfo),
}

impl Failover {
    /// How long to wait before the call that is made now.
    pub(super) fn wait(&mut self) -> Duration {
        std::mem::take(&mut self.wait)
    }

    /// Decides, after a model has failed. `others` may answer in its place, in order.
    fn after(
        &mut self,
        model: &str,
        error: &ModelError,
        retry: RetryPolicy,
        others: &[String],
    ) -> Next {
        self.tries += 1;
        if !error.is_retriable() {
            return Next::GiveUp(self.explain(error, None));
        }
        let doubled = 2_u32.saturating_pow(self.tries - 1);
        let backoff = retry
            .initial_delay
            .saturating_mul(doubled)
            .min(retry.max_delay);
        let wait = error.retry_after().unwrap_or(backoff);
        let too_long = wait > retry.max_delay;
        if self.tries < retry.max_attempts && !too_long {
            self.wait = wait;
            return Next::Again(EventKind::ModelRetry {
                model: model.to_owned(),
                attempts: self.tries,
                wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                reason: error.to_string(),
            });
        }
        let was_tried = |other: &str| {
            let given_up = self.given_up.iter().any(|(before, _)| before == other);
            given_up || other == model
        };
        if let Some(to) = others.iter().find(|other| !was_tried(other)) {
            self.given_up.push((model.to_owned(), error.to_string()));
            self.tries = 0;
            return Next::Again(EventKind::ModelSwitched {
                from: model.to_owned(),
                to: to.clone(),
                reason: error.to_string(),
            });
        }
        Next::GiveUp(self.explain(error, too_long.then_some(wait)))
    }

    /// What went wrong, and what somebody can do about it.
    fn explain(&self, error: &ModelError, wait: Option<Duration>) -> ErrorInfo {
        let code = match error {
            ModelError::ContextOverflow(_) => ErrorCode::ContextOverflow,
            _ => ErrorCode::Model,
        };
        let mut text = error.to_string();
        if let Some(wait) = wait {
            let _ = write!(text, "; it is to be asked again in {} s", wait.as_secs());
        } else if self.tries > 1 {
            let _ = write!(text, "; it was asked {} times", self.tries);
        }
        for (model, why) in &self.given_up {
            let _ = write!(text, "; before, {model}: {why}");
        }
        if error.is_retriable() && self.given_up.is_empty() {
            text += "; later it may answer, and `failover` in models.yaml names others to ask";
        }
        ErrorInfo::new(code, text)
    }
}

impl Runner {
    /// The model has failed. Whatever is done about it is written down first.
    pub(super) async fn unanswered(&mut self, error: ModelError) -> Result<(), StoreError> {
        self.model = None;
        self.partial.clear();
        if let ModelError::Told(error) = error {
            return self.step(Input::Answered(Err(error))).await.map(drop);
        }
        let turn = self.machine.thread.turn.as_ref();
        let model = turn.map(|turn| turn.model.clone()).unwrap_or_default();
        let models = &self.shared.models;
        let others = models.failover(&model);
        let input = match self.failover.after(&model, &error, models.retry(), &others) {
            Next::Again(mut told) => {
                redact(&mut told, &self.shared.redactor);
                Input::Again(Box::new(told))
            }
            Next::GiveUp(mut error) if error.code == ErrorCode::ContextOverflow => {
                self.shared.redactor.redact_in_place(&mut error.message);
                self.failover = Failover::default();
                Input::Overflow(error)
            }
            Next::GiveUp(mut error) => {
                self.shared.redactor.redact_in_place(&mut error.message);
                self.failover = Failover::default();
                Input::Answered(Err(error))
            }
        };
        self.step(input).await.map(drop)
    }
}

/// A provider may say a key back that it does not know.
fn redact(told: &mut EventKind, redactor: &Redactor) {
    if let EventKind::ModelRetry { reason, .. } | EventKind::ModelSwitched { reason, .. } = told {
        redactor.redact_in_place(reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: RetryPolicy = RetryPolicy {
        max_attempts: 3,
        initial_delay: Duration::from_millis(500),
        max_delay: Duration::from_mins(1),
    };

    fn busy(retry_after: Option<u64>) -> ModelError {
        ModelError::Overloaded {
            message: "busy".to_owned(),
            retry_after: retry_after.map(Duration::from_secs),
        }
    }

    fn others() -> Vec<String> {
        ["b", "c"].map(str::to_owned).to_vec()
    }

    /// What is told of failure after failure, in short, until it is given up.
    fn told(errors: impl IntoIterator<Item = ModelError>, others: &[String]) -> Vec<String> {
        let (mut failover, mut model, mut all) = (Failover::default(), "a".to_owned(), Vec::new());
        for error in errors {
            match failover.after(&model, &error, RETRY, others) {
                Next::Again(EventKind::ModelRetry { model, wait_ms, .. }) => {
                    all.push(format!("{model} again in {wait_ms}"));
                    assert_eq!(failover.wait(), Duration::from_millis(wait_ms));
                }
                Next::Again(EventKind::ModelSwitched { from, to, .. }) => {
                    all.push(format!("{from} to {to}"));
                    assert_eq!(failover.wait(), Duration::ZERO);
                    model = to;
                }
                Next::Again(other) => panic!("{other:?}"),
                Next::GiveUp(error) => {
                    all.push(error.message);
                    return all;
                }
            }
        }
        all
    }

    #[test]
    fn each_model_is_asked_so_often_and_then_the_next() {
        let all = told((0..20).map(|_| busy(None)), &others());
        assert_eq!(
            all,
            [
                "a again in 500",
                "a again in 1000",
                "a to b",
                "b again in 500",
                "b again in 1000",
                "b to c",
                "c again in 500",
                "c again in 1000",
                "the model is overloaded: busy; it was asked 3 times; \
                 before, a: the model is overloaded: busy; \
                 before, b: the model is overloaded: busy",
            ]
        );
    }

    #[test]
    fn when_it_says_when_that_is_when() {
        assert_eq!(told([busy(Some(7))], &[]), ["a again in 7000"]);
        // Nobody waits for an hour.
        assert_eq!(told([busy(Some(3600))], &others()), ["a to b"]);
        let alone = told([busy(Some(3600))], &[]);
        assert!(alone[0].contains("asked again in 3600 s"), "{alone:?}");
        assert!(alone[0].contains("`failover` in models.yaml"), "{alone:?}");
    }

    #[test]
    fn what_would_be_the_same_the_next_time_is_not_tried_again() {
        let refused = ModelError::Unauthorized("wrong key".to_owned());
        let all = told([refused], &others());
        assert_eq!(all, ["the model may not be asked: wrong key"]);
        let overflow = ModelError::ContextOverflow("9 > 8".to_owned());
        let next = Failover::default().after("a", &overflow, RETRY, &others());
        assert!(matches!(next, Next::GiveUp(error) if error.code == ErrorCode::ContextOverflow));
    }
}
