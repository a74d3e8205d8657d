//! A turn: the model's answers, retries with the same or another model, usage accounting, and how
//! the turn ends.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rye_protocol::{
    Call, CallId, CallState, CompactionReason, Continuation, EntryId, EntryKind, ErrorCode,
    ErrorInfo, EventKind, LimitKind, Limits, Message, Op, Part, Phase, PromptEnd, PromptStatus,
    QueuedPrompt, ResultStatus, Role, Synthetic, Thread, Turn, TurnEnd, Usage,
};
use serde_json::Value;

use super::advance::MAX_ROUNDS;
use super::cow_arc::CowArc;
use super::{Effect, Live, Step};
use crate::model::ModelAnswer;
use crate::result;
use crate::review::REVIEW;
use crate::tool::{ToolError, ToolOutput};

/// How many calls of one answer beyond the limit get an error result. Further calls are dropped.
const MAX_REFUSED: usize = 256;

impl Step<'_> {
    /// Handles the model's answer or final failure.
    pub(super) fn on_model_answer(&mut self, answer: Result<Box<ModelAnswer>, ErrorInfo>) {
        self.machine.live.model = false;
        let Some(turn) = &mut self.machine.thread.turn else {
            return;
        };
        if turn.phase != Phase::Model {
            return;
        }
        turn.round += 1;
        turn.reserved = Usage::default();
        let model = turn.model.clone();
        let answer = match answer {
            Ok(answer) => *answer,
            Err(error) => {
                // The cost of a failed call is unknown; the call itself counts.
                self.add_usage(Usage {
                    turns: 1,
                    ..Usage::default()
                });
                return self.fail_turn(error, TurnEnd::Error);
            }
        };
        let mut parts = answer.parts;
        let requested_count = drop_calls(
            &mut parts,
            self.context.calls.per_answer.saturating_add(MAX_REFUSED),
        );
        let mut message = Message::new(Role::Assistant, parts);
        message.model = Some(model);
        message.stop_reason = answer.stop_reason;
        message.incomplete = answer.incomplete;
        let calls: Vec<_> = message.parts.iter().filter_map(requested).collect();
        let problem = if calls.is_empty() {
            self.extract_result(&mut message)
        } else {
            None
        };
        let entry = self.append_answer(message);
        if answer.usage.input_tokens > 0 {
            self.machine.thread.tokens = answer.usage.tokens();
        }
        self.store_model_context();
        self.add_usage(answer.usage);
        self.emit(EventKind::Usage {
            usage: answer.usage,
        });
        if let Some(problem) = problem {
            return self.request_correction(&problem);
        }
        if calls.is_empty() {
            return self.review_changes(entry);
        }
        let (calls, args): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
        let ids = calls.iter().map(|call: &Call| call.id.clone());
        self.machine.args = CowArc::new(ids.zip(args).collect());
        if let Some(turn) = &mut self.machine.thread.turn {
            turn.phase = Phase::Tools { entry, calls };
        }
        self.refuse_excess(requested_count);
    }

    /// Reviews the changes of the turn before it ends, if the sandbox keeps them apart.
    pub(super) fn review_changes(&mut self, entry: EntryId) {
        if !self.context.reviews_changes {
            return self.finish(PromptStatus::Done, TurnEnd::EndTurn, None);
        }
        let call = Call {
            id: REVIEW.parse().unwrap_or_else(|_| CallId::new()),
            tool: REVIEW.to_owned(),
            state: CallState::Requested,
            processes: Vec::new(),
            effect: None,
        };
        self.machine.args = CowArc::new(BTreeMap::new());
        if let Some(turn) = &mut self.machine.thread.turn {
            let calls = vec![call];
            turn.phase = Phase::Tools { entry, calls };
        }
    }

    /// The review has ended: tells the model about it, and ends the turn.
    pub(super) fn on_review_ended(&mut self, outcome: Result<Box<ToolOutput>, ToolError>) {
        match outcome {
            Ok(output) => {
                if !output.text.is_empty() {
                    let mut message = Message::text(Role::User, output.text);
                    message.synthetic = Some(Synthetic::Review);
                    self.append(EntryKind::Message(message));
                }
                self.finish(PromptStatus::Done, TurnEnd::EndTurn, None);
            }
            Err(ToolError(error)) => self.fail_turn(error, TurnEnd::Error),
        }
    }

    /// Switches to the model of the prompt's role, before the first call.
    pub(super) fn switch_model(&mut self, model: String) {
        self.machine.live.model = false;
        if let Some(turn) = &mut self.machine.thread.turn {
            turn.model = model;
            // The reserved call was not made.
            turn.reserved = Usage::default();
        }
    }

    /// A model call failed. Commits the retry and, if it is another one, the model to use from now
    /// on; [`advance`](Step::advance) then makes the call as it does after a restart.
    pub(super) fn on_model_retry(&mut self, event: EventKind) {
        self.machine.live.model = false;
        let Some(turn) = &mut self.machine.thread.turn else {
            return;
        };
        if turn.phase != Phase::Model {
            return;
        }
        if let EventKind::ModelSwitched { to, .. } = &event {
            turn.model.clone_from(to);
        }
        self.emit(event);
    }

    /// Stores the required result with the answer. Returns what is wrong if it is missing.
    pub(super) fn extract_result(&self, message: &mut Message) -> Option<String> {
        let schema = self.running()?.result_schema.as_ref()?;
        match result::extract(&message.content(), schema) {
            Ok(value) => {
                message.result = Some(value);
                None
            }
            Err(problem) => Some(problem),
        }
    }

    /// Asks the model to correct its result, once; then the turn fails.
    pub(super) fn request_correction(&mut self, problem: &str) {
        let Some(turn) = &mut self.machine.thread.turn else {
            return;
        };
        if turn.correction_requested {
            let message = format!("invalid result after a correction: {problem}");
            let error = ErrorInfo::new(ErrorCode::InvalidResult, message);
            return self.fail_turn(error, TurnEnd::Error);
        }
        turn.correction_requested = true;
        let text = format!(
            "Your result could not be used: {problem}. Repeat your whole answer with a result \
             that matches the schema."
        );
        let mut message = Message::text(Role::User, text);
        message.synthetic = Some(Synthetic::ResultRetry);
        self.append(EntryKind::Message(message));
    }

    /// Gives each call beyond the limit an error result, because providers require a result for
    /// every call.
    fn refuse_excess(&mut self, requested_count: usize) {
        let max = self.context.calls.per_answer;
        let excess: Vec<_> = self.machine.calls().iter().skip(max).cloned().collect();
        for call in excess {
            let message = format!(
                "not run: the answer has {requested_count} tool calls, and only the first {max} are run. \
                 Ask for the others again, a few at a time."
            );
            self.append_error(&call, ResultStatus::Error, ErrorCode::Limit, message);
        }
    }

    /// Commits the model context of the call if it has changed.
    pub(super) fn store_model_context(&mut self) {
        let Some((model_context, hash)) = self.context.model_context else {
            return;
        };
        if self.machine.thread.model_context_hash != *hash {
            self.machine.thread.model_context_hash.clone_from(hash);
            let context = Box::new(model_context.clone());
            self.emit(EventKind::ContextChanged { context });
        }
    }

    /// Adds usage to the turn and the session.
    pub(super) fn add_usage(&mut self, usage: Usage) {
        if usage.is_zero() {
            return;
        }
        if let Some(turn) = &mut self.machine.thread.turn {
            turn.usage = turn.usage.plus(usage);
        }
        let used = &mut self.machine.thread.usage;
        *used = used.plus(usage);
        self.out.batch.push(Op::AddUsage(usage));
    }

    /// Ends the turn because a limit is reached.
    pub(super) fn end_at_limit(&mut self, limit: LimitKind) {
        let Some(turn) = &self.machine.thread.turn else {
            return;
        };
        let phase = turn.phase.clone();
        self.cancel_compaction("limit");
        match phase {
            Phase::Model => {
                self.append_partial(self.context.partial, "limit");
                self.stop_model();
            }
            Phase::Tools { calls, .. } => self.stop_calls(&calls, "limit"),
        }
        self.withdraw_gates("limit", |_| true);
        let mut message = format!("limit reached: {limit}");
        if limit == LimitKind::Turns && self.is_endless() {
            let _ = write!(
                message,
                ": {MAX_ROUNDS} model calls for one prompt without a limit. The work so far is \
                 kept: continue with another prompt, or set a limit"
            );
        }
        self.fail_turn(ErrorInfo::new(ErrorCode::Limit, message), TurnEnd::Limit);
    }

    pub(super) fn stop_model(&mut self) {
        self.out.effects.push(Effect::StopModel);
        self.machine.live.model = false;
    }

    pub(super) fn stop_calls(&mut self, calls: &[Call], reason: &str) {
        for call in calls.iter().filter(|call| call.state != CallState::Ended) {
            self.out.effects.push(Effect::StopTool(call.id.clone()));
            self.abort_call(call, reason);
        }
    }

    /// Adds the ids of the session, thread and prompt to an error.
    pub(super) fn with_ids(&self, mut error: ErrorInfo) -> ErrorInfo {
        let thread = &self.machine.thread;
        let ids = &mut error.ids;
        ids.session = Some(thread.session.clone());
        ids.thread = Some(thread.id.clone());
        ids.prompt = thread.turn.as_ref().map(|turn| turn.prompt.clone());
        error
    }

    /// Ends the turn with an error; the next prompt can start.
    pub(super) fn fail_turn(&mut self, error: ErrorInfo, reason: TurnEnd) {
        let error = self.with_ids(error);
        let part = Part::Error {
            error: error.clone(),
        };
        self.append(EntryKind::Message(Message::new(
            Role::Assistant,
            vec![part],
        )));
        self.emit(EventKind::Error {
            error: error.clone(),
        });
        self.finish(PromptStatus::Failed, reason, Some(error));
    }

    /// Aborts the turn. The history keeps what was done.
    pub(super) fn abort(&mut self, reason: &str, partial: &str) {
        self.cancel_compaction(reason);
        let Some(turn) = self.machine.thread.turn.clone() else {
            return;
        };
        match turn.phase {
            Phase::Model => {
                self.append_partial(partial, reason);
                self.stop_model();
            }
            Phase::Tools { calls, .. } => self.stop_calls(&calls, reason),
        }
        self.withdraw_gates(reason, |_| true);
        self.finish(PromptStatus::Aborted, TurnEnd::Abort, None);
    }

    /// Keeps the text of a model call that is stopped.
    fn append_partial(&mut self, partial: &str, reason: &str) {
        let turn = self.machine.thread.turn.as_ref();
        let Some(turn) = turn.filter(|_| !partial.is_empty()) else {
            return;
        };
        let mut message = Message::text(Role::Assistant, partial);
        message.model = Some(turn.model.clone());
        message.aborted = Some(reason.to_owned());
        self.append_answer(message);
    }

    /// Appends a message of the model.
    fn append_answer(&mut self, message: Message) -> EntryId {
        let has_text = !message.content().is_empty();
        let entry = self.append(EntryKind::Message(message));
        if let Some(turn) = &mut self.machine.thread.turn
            && has_text
        {
            turn.answer = Some(entry.clone());
        }
        entry
    }

    /// Ends the turn.
    pub(super) fn finish(
        &mut self,
        status: PromptStatus,
        reason: TurnEnd,
        error: Option<ErrorInfo>,
    ) {
        let Some(turn) = self.machine.thread.turn.take() else {
            return;
        };
        // An aborted model call was paid for.
        if !turn.reserved.is_zero() {
            let used = &mut self.machine.thread.usage;
            *used = used.plus(turn.reserved);
            self.out.batch.push(Op::AddUsage(turn.reserved));
        }
        self.withdraw_gates("ended", |_| true);
        self.machine.gates.clear();
        if !self.machine.args.is_empty() {
            self.machine.args = CowArc::new(BTreeMap::new());
        }
        self.machine.live = Live::default();
        let mut continuation = None;
        let mut prompts = self.machine.prompts.iter();
        if let Some(at) = prompts.position(|prompt| prompt.id == turn.prompt) {
            let mut prompt = self.machine.prompts.remove(at);
            prompt.status = status;
            prompt.end = Some(PromptEnd {
                reason,
                answer: turn.answer.clone(),
                error,
                at: self.context.now,
            });
            let limits = prompt.limits.remaining(&turn.usage);
            // The tokens of a summary count against the limits too, but it is not a turn. If none
            // are left, the next prompt compacts.
            let budget = Limits {
                turns: None,
                ..limits
            };
            let is_affordable = budget
                .reached(&Usage::default(), self.context.now)
                .is_none();
            let is_over = status == PromptStatus::Done && is_affordable;
            if is_over && !turn.skip_size_check && self.is_full(&turn.model) {
                continuation = Some(Continuation {
                    model: Some(turn.model.clone()),
                    role: prompt.role.clone(),
                    limits,
                });
            }
            self.out.batch.push(Op::PutPrompt(prompt.share()));
        }
        let prompt = turn.prompt;
        self.emit(EventKind::TurnEnd {
            prompt,
            reason,
            merged_into: None,
        });
        self.out.session.ends_turn = true;
        if continuation.is_some() {
            self.machine.thread.continuation = continuation;
            self.begin_compaction(CompactionReason::Threshold);
        }
    }
}

/// Drops tool calls after the first `max`. Returns how many there were.
fn drop_calls(parts: &mut Vec<Part>, max: usize) -> usize {
    let mut count = 0;
    parts.retain(|part| {
        let is_call = matches!(part, Part::ToolCall { .. });
        count += usize::from(is_call);
        !is_call || count <= max
    });
    count
}

/// A tool call of an assistant message, with its arguments.
fn requested(part: &Part) -> Option<(Call, Value)> {
    let Part::ToolCall {
        call_id,
        tool,
        args,
    } = part
    else {
        return None;
    };
    let call = Call {
        id: call_id.clone(),
        tool: tool.clone(),
        state: CallState::Requested,
        processes: Vec::new(),
        effect: None,
    };
    Some((call, args.clone()))
}

/// The initial turn state for a prompt.
pub(super) fn new_turn(prompt: &QueuedPrompt, thread: &Thread, default: &str) -> Turn {
    let model = prompt.model.clone().or_else(|| thread.model.clone());
    Turn {
        prompt: prompt.id.clone(),
        model: model.unwrap_or_else(|| default.to_owned()),
        round: 0,
        phase: Phase::Model,
        reserved: Usage::default(),
        usage: Usage::default(),
        skip_size_check: prompt.compaction_continue,
        overflowed: false,
        correction_requested: false,
        answer: None,
    }
}
