//! Model failover: decides whether a failed model call is retried and after which delay, whether
//! the next model is called instead, or whether the turn fails.

use std::fmt::Write as _;
use std::time::Duration;

use rye_protocol::{ErrorCode, ErrorInfo, EventKind};

use super::Runner;
use crate::machine::Input;
use crate::model::{ModelError, RetryPolicy};
use crate::store::StoreError;
use lillux::redact::Redactor;

/// Attempts made for the pending answer. Not stored: after a restart the engine starts over.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Failover {
    /// Attempts with the current model.
    attempts: u32,
    /// Models that were given up, with the reason.
    given_up: Vec<(String, String)>,
    /// Delay before the next call.
    wait: Duration,
}

/// What to do after a failure.
#[derive(Debug, Clone, PartialEq)]
enum Next {
    /// Publish this event, then call the model it names.
    Retry(EventKind),
    GiveUp(ErrorInfo),
}

impl Failover {
    /// Takes the delay before the current call.
    pub(super) fn wait(&mut self) -> Duration {
        std::mem::take(&mut self.wait)
    }

    /// Decides what to do after a model has failed. `others` are the fallbacks, in order.
    fn after(
        &mut self,
        model: &str,
        error: &ModelError,
        retry: RetryPolicy,
        others: &[String],
    ) -> Next {
        self.attempts += 1;
        if !error.allows_failover() {
            return Next::GiveUp(self.explain(error, None));
        }
        let doubled = 2_u32.saturating_pow(self.attempts - 1);
        let backoff = retry
            .initial_delay
            .saturating_mul(doubled)
            .min(retry.max_delay);
        let wait = error.retry_after().unwrap_or(backoff);
        let too_long = wait > retry.max_delay;
        if error.is_retriable() && self.attempts < retry.max_attempts && !too_long {
            self.wait = wait;
            return Next::Retry(EventKind::ModelRetry {
                model: model.to_owned(),
                attempts: self.attempts,
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
            self.attempts = 0;
            return Next::Retry(EventKind::ModelSwitched {
                from: model.to_owned(),
                to: to.clone(),
                reason: error.to_string(),
            });
        }
        Next::GiveUp(self.explain(error, too_long.then_some(wait)))
    }

    /// The error for the user: what was tried and what they can do.
    fn explain(&self, error: &ModelError, wait: Option<Duration>) -> ErrorInfo {
        let code = match error {
            ModelError::ContextOverflow(_) => ErrorCode::ContextOverflow,
            _ => ErrorCode::Model,
        };
        let mut text = error.to_string();
        if let Some(wait) = wait {
            let _ = write!(text, "; the provider asks to retry in {} s", wait.as_secs());
        } else if self.attempts > 1 {
            let _ = write!(text, "; tried {} times", self.attempts);
        }
        for (model, reason) in &self.given_up {
            let _ = write!(text, "; {model} failed before: {reason}");
        }
        if !error.is_retriable() && error.allows_failover() && self.given_up.is_empty() {
            text += "; or list fallback models under `failover` in models.yaml";
        } else if error.is_retriable() && self.given_up.is_empty() {
            text += "; try again later, or list fallback models under `failover` in models.yaml";
        }
        ErrorInfo::new(code, text)
    }
}

impl Runner {
    /// Handles a failed model call. The decision is committed before the next call.
    pub(super) async fn on_model_failed(&mut self, error: ModelError) -> Result<(), StoreError> {
        self.model = None;
        self.partial.clear();
        if let ModelError::Recorded(error) = error {
            return self.step(Input::ModelAnswered(Err(error))).await.map(drop);
        }
        let turn = self.machine.thread.turn.as_ref();
        let model = turn.map(|turn| turn.model.clone()).unwrap_or_default();
        let models = &self.shared.setup.models;
        let others = match &self.shared.data().settings.failover {
            Some(others) => others.clone(),
            None => models.failover(&model),
        };
        let input = match self.failover.after(&model, &error, models.retry(), &others) {
            Next::Retry(mut event) => {
                redact_reason(&mut event, &self.shared.setup.redactor);
                Input::RetryModel(Box::new(event))
            }
            Next::GiveUp(mut error) if error.code == ErrorCode::ContextOverflow => {
                self.shared
                    .setup
                    .redactor
                    .redact_in_place(&mut error.message);
                self.failover = Failover::default();
                Input::ContextOverflow(error)
            }
            Next::GiveUp(mut error) => {
                self.shared
                    .setup
                    .redactor
                    .redact_in_place(&mut error.message);
                self.failover = Failover::default();
                Input::ModelAnswered(Err(error))
            }
        };
        self.step(input).await.map(drop)
    }
}

/// Redacts the reason: a provider may echo a rejected key.
fn redact_reason(event: &mut EventKind, redactor: &Redactor) {
    if let EventKind::ModelRetry { reason, .. } | EventKind::ModelSwitched { reason, .. } = event {
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

    /// The decisions for a series of failures, in short, until the model is given up.
    fn decisions(errors: impl IntoIterator<Item = ModelError>, others: &[String]) -> Vec<String> {
        let (mut failover, mut model, mut all) = (Failover::default(), "a".to_owned(), Vec::new());
        for error in errors {
            match failover.after(&model, &error, RETRY, others) {
                Next::Retry(EventKind::ModelRetry { model, wait_ms, .. }) => {
                    all.push(format!("{model} retry in {wait_ms}"));
                    assert_eq!(failover.wait(), Duration::from_millis(wait_ms));
                }
                Next::Retry(EventKind::ModelSwitched { from, to, .. }) => {
                    all.push(format!("{from} to {to}"));
                    assert_eq!(failover.wait(), Duration::ZERO);
                    model = to;
                }
                Next::Retry(other) => panic!("{other:?}"),
                Next::GiveUp(error) => {
                    all.push(error.message);
                    return all;
                }
            }
        }
        all
    }

    #[test]
    fn response_that_is_no_stream_switches_without_retry() {
        let page = || ModelError::NotAStream("page".to_owned());
        let all = decisions([page(), busy(None), page(), page()], &others());
        assert_eq!(all[..3], ["a to b", "b retry in 500", "b to c"]);
        assert_eq!(all.len(), 4);
    }

    #[test]
    fn retries_each_model_then_switches_to_the_next() {
        let all = decisions((0..20).map(|_| busy(None)), &others());
        assert_eq!(
            all,
            [
                "a retry in 500",
                "a retry in 1000",
                "a to b",
                "b retry in 500",
                "b retry in 1000",
                "b to c",
                "c retry in 500",
                "c retry in 1000",
                "the model is overloaded: busy; tried 3 times; \
                 a failed before: the model is overloaded: busy; \
                 b failed before: the model is overloaded: busy",
            ]
        );
    }

    #[test]
    fn waits_as_long_as_the_provider_asks() {
        assert_eq!(decisions([busy(Some(7))], &[]), ["a retry in 7000"]);
        // More than `max_delay`: switch at once.
        assert_eq!(decisions([busy(Some(3600))], &others()), ["a to b"]);
        let alone = decisions([busy(Some(3600))], &[]);
        assert!(alone[0].contains("retry in 3600 s"), "{alone:?}");
        assert!(alone[0].contains("`failover` in models.yaml"), "{alone:?}");
    }

    #[test]
    fn permanent_errors_are_not_retried() {
        let refused = ModelError::Unauthorized("wrong key".to_owned());
        let message = refused.to_string();
        assert!(message.ends_with("wrong key"), "{message}");
        assert_eq!(decisions([refused], &others()), [message]);
        let overflow = ModelError::ContextOverflow("9 > 8".to_owned());
        let next = Failover::default().after("a", &overflow, RETRY, &others());
        assert!(matches!(next, Next::GiveUp(error) if error.code == ErrorCode::ContextOverflow));
    }
}
