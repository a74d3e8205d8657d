//! A turn: what the model says, what it uses up, and how it ends.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rye_protocol::{
    Call, CallState, CompactionReason, EntryKind, ErrorCode, ErrorInfo, EventKind, Message, Op,
    Part, Phase, PromptStatus, QueuedPrompt, ResultStatus, Role, Thread, Turn, TurnEnd, Usage,
};
use serde_json::{Value, json};

use super::continuation::Continuation;
use super::drive::MOST_ROUNDS;
use super::kept::Kept;
use super::{Effect, Live, Step};
use crate::compaction::CONTINUE;
use crate::model::ModelAnswer;

/// How many calls of one answer get a result that says that they were not run. Those beyond
/// are not even written down.
const MOST_REFUSED: usize = 256;

impl Step<'_> {
    /// The model's answer, or why there is none.
    pub(super) fn answered(&mut self, answer: Result<Box<ModelAnswer>, ErrorInfo>) {
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
                // What it cost nobody tells; that it was called is known.
                self.use_up(Usage {
                    turns: 1,
                    ..Usage::default()
                });
                return self.fail(error, TurnEnd::Error);
            }
        };
        let mut parts = answer.parts;
        let wanted = drop_calls(
            &mut parts,
            self.env.calls.per_answer.saturating_add(MOST_REFUSED),
        );
        let mut message = Message::new(Role::Assistant, parts);
        message.model = Some(model);
        message.stop_reason = answer.stop_reason;
        let calls: Vec<_> = message.parts.iter().filter_map(requested).collect();
        let wrong = if calls.is_empty() {
            self.result_of(&mut message)
        } else {
            None
        };
        let entry = self.append(EntryKind::Message(message));
        if answer.usage.input_tokens > 0 {
            self.machine.thread.tokens = answer.usage.tokens();
        }
        self.tell_prompt();
        self.use_up(answer.usage);
        self.tell(EventKind::Usage {
            usage: answer.usage,
        });
        if let Some(wrong) = wrong {
            return self.no_result(&wrong);
        }
        if calls.is_empty() {
            return self.finish(PromptStatus::Done, TurnEnd::EndTurn);
        }
        let (calls, args): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
        let ids = calls.iter().map(|call: &Call| call.id.clone());
        self.machine.args = Kept::new(ids.zip(args).collect());
        if let Some(turn) = &mut self.machine.thread.turn {
            turn.phase = Phase::Tools { entry, calls };
        }
        self.refuse_excess(wanted);
    }

    /// Ends the calls of an answer that has too many of them: each has a result, as providers
    /// demand, and none is run.
    fn refuse_excess(&mut self, wanted: usize) {
        let most = self.env.calls.per_answer;
        let excess: Vec<_> = self.machine.calls().iter().skip(most).cloned().collect();
        for call in excess {
            let message = format!(
                "not run: the answer has {wanted} tool calls, and only the first {most} are run. \
                 Ask for the others again, a few at a time."
            );
            self.refuse(&call, ResultStatus::Error, ErrorCode::Limit, message);
        }
    }

    /// Writes down what the model was told beside the history, where that is news.
    pub(super) fn tell_prompt(&mut self) {
        const PROMPTED: &str = "prompted";
        let Some((prompted, hash)) = self.env.prompted else {
            return;
        };
        let metadata = &mut self.machine.thread.metadata;
        if metadata.get(PROMPTED).and_then(Value::as_str) != Some(hash) {
            metadata.insert(PROMPTED.to_owned(), json!(hash));
            let context = Box::new(prompted.clone());
            self.tell(EventKind::ContextChanged { context });
        }
    }

    /// Counts what was used up, for the prompt and for the session.
    pub(super) fn use_up(&mut self, usage: Usage) {
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

    /// A limit ends the turn, wherever it is.
    pub(super) fn limit(&mut self, limit: &str) {
        let Some(turn) = &self.machine.thread.turn else {
            return;
        };
        let phase = turn.phase.clone();
        self.cancel_compaction("limit");
        match phase {
            Phase::Model => self.stop_model(),
            Phase::Tools { calls, .. } => self.stop_calls(&calls, "limit"),
        }
        self.withdraw_gates("limit", |_| true);
        let mut message = format!("the limit of {limit} is reached");
        if limit == "turns" && self.is_endless() {
            let _ = write!(
                message,
                ": the model was called {MOST_ROUNDS} times for one prompt, and it sets no \
                 limit of its own. What was done is kept: ask it to go on, or set a limit"
            );
        }
        self.fail(ErrorInfo::new(ErrorCode::Limit, message), TurnEnd::Limit);
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

    /// An error that says where it was.
    pub(super) fn placed(&self, mut error: ErrorInfo) -> ErrorInfo {
        let thread = &self.machine.thread;
        let ids = &mut error.ids;
        ids.session = Some(thread.session.clone());
        ids.thread = Some(thread.id.clone());
        ids.prompt = thread.turn.as_ref().map(|turn| turn.prompt.clone());
        error
    }

    /// Ends the turn with what went wrong; the next prompt may begin.
    pub(super) fn fail(&mut self, error: ErrorInfo, reason: TurnEnd) {
        let error = self.placed(error);
        let part = Part::Error {
            error: error.clone(),
        };
        self.append(EntryKind::Message(Message::new(
            Role::Assistant,
            vec![part],
        )));
        self.tell(EventKind::Error { error });
        self.finish(PromptStatus::Failed, reason);
    }

    /// Ends what runs. What was done stays in the history.
    pub(super) fn abort(&mut self, reason: &str, partial: &str) {
        self.cancel_compaction(reason);
        let Some(turn) = self.machine.thread.turn.clone() else {
            return;
        };
        match turn.phase {
            Phase::Model => {
                if !partial.is_empty() {
                    let mut message = Message::text(Role::Assistant, partial);
                    message.model = Some(turn.model);
                    message.metadata.insert("aborted".into(), json!(reason));
                    self.append(EntryKind::Message(message));
                }
                self.stop_model();
            }
            Phase::Tools { calls, .. } => self.stop_calls(&calls, reason),
        }
        self.withdraw_gates(reason, |_| true);
        self.finish(PromptStatus::Aborted, TurnEnd::Abort);
    }

    /// The turn is over.
    pub(super) fn finish(&mut self, status: PromptStatus, reason: TurnEnd) {
        let Some(turn) = self.machine.thread.turn.take() else {
            return;
        };
        // A call of the model that was cut off was paid for.
        if !turn.reserved.is_zero() {
            let used = &mut self.machine.thread.usage;
            *used = used.plus(turn.reserved);
            self.out.batch.push(Op::AddUsage(turn.reserved));
        }
        self.withdraw_gates("ended", |_| true);
        self.machine.gates.clear();
        if !self.machine.args.is_empty() {
            self.machine.args = Kept::new(BTreeMap::new());
        }
        self.machine.live = Live::default();
        let mut begins = None;
        let mut prompts = self.machine.prompts.iter();
        if let Some(at) = prompts.position(|prompt| prompt.id == turn.prompt) {
            let mut prompt = self.machine.prompts.remove(at);
            prompt.status = status;
            if status == PromptStatus::Done && !turn.skip_size_check && self.is_full(&turn.model) {
                begins = Some(Continuation::of(&prompt, &turn));
            }
            self.out.batch.push(Op::PutPrompt(prompt.share()));
        }
        let prompt = turn.prompt;
        self.tell(EventKind::TurnEnd { prompt, reason });
        if let Some(continuation) = begins {
            continuation.keep(&mut self.machine.thread);
            self.begin_compaction(CompactionReason::Threshold);
        }
    }
}

/// Drops the calls of an answer beyond the first `most`. Gives how many there were.
fn drop_calls(parts: &mut Vec<Part>, most: usize) -> usize {
    let mut count = 0;
    parts.retain(|part| {
        let is_call = matches!(part, Part::ToolCall { .. });
        count += usize::from(is_call);
        !is_call || count <= most
    });
    count
}

/// A call of an assistant's message, with its arguments.
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

/// A turn for a prompt.
pub(super) fn turn(prompt: &QueuedPrompt, thread: &Thread, default: &str) -> Turn {
    let model = prompt.model.clone().or_else(|| thread.model.clone());
    Turn {
        prompt: prompt.id.clone(),
        model: model.unwrap_or_else(|| default.to_owned()),
        round: 0,
        phase: Phase::Model,
        reserved: Usage::default(),
        usage: Usage::default(),
        skip_size_check: prompt.metadata.contains_key(CONTINUE),
        overflowed: false,
        correction_requested: false,
    }
}
