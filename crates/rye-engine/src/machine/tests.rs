//! Test harness: a thread with an in-memory store, a model and tools that answer on demand, and
//! hosts that die.

mod invariants;
mod recovery;
mod scenarios;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rye_protocol::{
    CallId, Entry, EntryId, EntryKind, ErrorCode, ErrorInfo, EventKind, Gate, GateId, GateStatus,
    LimitKind, Limits, Message, Millis, Op, Part, PromptId, PromptStatus, QueueMode, QueuedPrompt,
    Resolution, ResultStatus, Role, SessionId, Thread, ThreadId, Usage,
};
use serde_json::{Value, json};

use super::{CallLimits, ChildUsage, Effect, Input, Machine, StepContext, ToolLookup, ToolTraits};
use crate::compaction::Settings;
use crate::model::ModelAnswer;
use crate::review::REVIEW;
use crate::tool::{DecisionRequest, EffectClass, ToolError, ToolOutput};

/// Tools whose names state their traits.
struct ToolsByName;

impl ToolLookup for ToolsByName {
    fn traits(&self, tool: &str) -> Option<ToolTraits> {
        let effect = match tool {
            "pure" => EffectClass::Pure,
            "once" | "asks" => EffectClass::AtMostOnce,
            "ask" => EffectClass::Ask,
            "alone" | "task" | REVIEW => EffectClass::Idempotent,
            _ => return None,
        };
        Some(ToolTraits {
            effect,
            exclusive: tool == "alone",
            is_task: tool == "task",
            may_request_decision: tool == "asks",
        })
    }
}

/// Models with unlimited context.
struct UnlimitedWindows;

impl super::ContextWindows for UnlimitedWindows {
    fn usable_tokens(&self, _: &str) -> Option<u64> {
        None
    }
}

/// Children that have used one turn each.
struct OneTurnEach;

impl ChildUsage for OneTurnEach {
    fn used(&self, _: &CallId) -> Usage {
        TURN
    }
}

const TURN: Usage = Usage {
    turns: 1,
    input_tokens: 0,
    cached_tokens: 0,
    cache_write_tokens: 0,
    output_tokens: 0,
    micro_dollars: 0,
};

/// The stored state.
#[derive(Debug, Clone)]
struct StoredState {
    thread: Thread,
    entries: Vec<Entry>,
    prompts: BTreeMap<PromptId, QueuedPrompt>,
    gates: BTreeMap<GateId, Gate>,
    events: Vec<EventKind>,
    usage: Usage,
}

impl StoredState {
    fn apply(&mut self, op: Op) {
        match op {
            Op::PutThread(thread) => self.thread = Arc::unwrap_or_clone(thread),
            Op::AppendEntry(entry) => self.entries.push(Arc::unwrap_or_clone(entry)),
            Op::PutPrompt(prompt) => {
                self.prompts
                    .insert(prompt.id.clone(), Arc::unwrap_or_clone(prompt));
            }
            Op::PutGate(gate) => {
                let before = self
                    .gates
                    .insert(gate.id.clone(), Arc::unwrap_or_clone(gate));
                let ended = before.is_some_and(|gate| !gate.status.is_pending());
                assert!(!ended, "a gate that had ended was changed");
            }
            Op::Event(_, kind) => self.events.push(Arc::unwrap_or_clone(kind)),
            Op::AddUsage(usage) => self.usage = self.usage.plus(usage),
            other => panic!("a thread does not write {other:?}"),
        }
    }

    /// The thread as another host finds it.
    fn machine(&self) -> Machine {
        let mut prompts: Vec<_> = self.prompts.values().cloned().collect();
        prompts.retain(|prompt| !prompt.status.is_finished());
        prompts.sort_by_key(|prompt| prompt.order);
        let turn = self.thread.turn.as_ref();
        let gates = self
            .gates
            .values()
            .filter(|gate| turn.is_some_and(|turn| turn.prompt == gate.origin.prompt));
        let entry = turn.and_then(|turn| match &turn.phase {
            rye_protocol::Phase::Tools { entry, .. } => self.entry(entry),
            rye_protocol::Phase::Model => None,
        });
        Machine::new(
            self.thread.clone(),
            prompts,
            gates.cloned().collect(),
            entry,
        )
    }

    fn entry(&self, id: &EntryId) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.id == *id)
    }
}

/// A thread with its store, model and tools.
struct Harness {
    stored: StoredState,
    machine: Machine,
    now: Millis,
    until: Option<Millis>,
    /// Whether the sandbox keeps changes for a review.
    reviews_changes: bool,
    restored_files: Vec<String>,
    /// Work that was started in this process and has not ended.
    model: bool,
    tools: BTreeMap<CallId, String>,
    /// How often each call's tool was started, by any host.
    started: BTreeMap<CallId, u32>,
    replies: Vec<(CallId, GateStatus)>,
    prompts: u32,
    calls: u32,
}

impl Harness {
    fn new() -> Self {
        let session = "session".parse::<SessionId>().unwrap();
        let thread = Thread {
            id: "thread".parse::<ThreadId>().unwrap(),
            ..Thread::new(session, "default", Millis(0))
        };
        let stored = StoredState {
            thread,
            entries: Vec::new(),
            prompts: BTreeMap::new(),
            gates: BTreeMap::new(),
            events: Vec::new(),
            usage: Usage::default(),
        };
        Self {
            machine: stored.machine(),
            stored,
            now: Millis(1_000_000),
            until: None,
            reviews_changes: false,
            restored_files: Vec::new(),
            model: false,
            tools: BTreeMap::new(),
            started: BTreeMap::new(),
            replies: Vec::new(),
            prompts: 0,
            calls: 0,
        }
    }

    fn input(&mut self, input: Input) -> Option<PromptId> {
        let context = StepContext {
            now: self.now,
            calls: CallLimits {
                per_answer: 5,
                parallel: 4,
            },
            collect_window: Duration::from_secs(5),
            model: "test",
            partial: "",
            paused: false,
            reserve: TURN,
            until: self.until,
            limits: Limits::default(),
            prompt_on_limit: false,
            reviews_changes: self.reviews_changes,
            restored_files: self.restored_files.clone(),
            signer: None,
            last_seal: None,
            model_context: None,
            compaction: &Settings::default(),
            windows: &UnlimitedWindows,
            tools: &ToolsByName,
            children: &OneTurnEach,
        };
        let output = self.machine.handle(input, &context);
        for op in output.batch.ops {
            self.stored.apply(op);
        }
        for effect in output.effects {
            match effect {
                Effect::CallModel { .. } => self.model = true,
                Effect::StopModel => self.model = false,
                Effect::Compact { .. } => panic!("unexpected compaction"),
                Effect::RunTool { call, tool, .. } => {
                    *self.started.entry(call.clone()).or_default() += 1;
                    self.tools.insert(call, tool);
                }
                Effect::StopTool(call) => drop(self.tools.remove(&call)),
                Effect::Reply(call, gate) => self.replies.push((call, gate.status)),
                Effect::WakeAt(_) => {}
            }
        }
        invariants::check(self);
        output.accepted
    }

    /// Kills the host and restores the thread in another one.
    fn restart(&mut self) {
        self.machine = self.stored.machine();
        self.model = false;
        self.tools.clear();
        self.replies.clear();
        self.input(Input::Restored);
    }

    fn queued_prompt(&mut self, mode: QueueMode) -> Box<QueuedPrompt> {
        self.prompts += 1;
        let thread = &self.stored.thread;
        let (session, thread) = (thread.session.clone(), thread.id.clone());
        let content = format!("prompt {}", self.prompts);
        Box::new(QueuedPrompt {
            id: format!("prompt-{}", self.prompts).parse().unwrap(),
            mode,
            ..QueuedPrompt::new(session, thread, content, self.now)
        })
    }

    fn prompt(&mut self, mode: QueueMode) -> Option<PromptId> {
        let prompt = self.queued_prompt(mode);
        let busy = self.stored.thread.turn.is_some();
        if mode == QueueMode::Steer && busy {
            let partial = "so far".to_owned();
            self.input(Input::Steer { prompt, partial })
        } else {
            self.input(Input::Prompt(prompt))
        }
    }

    fn answer_text(&mut self, text: &str) {
        let part = Part::Text {
            text: text.to_owned(),
        };
        self.answer_parts(vec![part]);
    }

    /// The model requests these tools.
    fn request_tools(&mut self, tools: &[&str]) -> Vec<CallId> {
        let mut ids = Vec::new();
        let parts = tools.iter().map(|tool| {
            self.calls += 1;
            let call_id: CallId = format!("call-{}", self.calls).parse().unwrap();
            ids.push(call_id.clone());
            Part::ToolCall {
                call_id,
                tool: (*tool).to_owned(),
                args: json!({}),
            }
        });
        let parts = parts.collect();
        self.answer_parts(parts);
        ids
    }

    fn answer_parts(&mut self, parts: Vec<Part>) {
        assert!(std::mem::take(&mut self.model), "the model was not called");
        self.input(Input::ModelAnswered(Ok(Box::new(ModelAnswer {
            parts,
            stop_reason: None,
            incomplete: None,
            usage: TURN,
        }))));
    }

    fn end_tool(&mut self, call: &CallId, text: &str) {
        self.tools.remove(call);
        let output = Box::new(ToolOutput::text(text));
        self.input(Input::ToolEnded(call.clone(), Ok(output)));
    }

    /// A tool reports that it was interrupted.
    fn interrupt(&mut self, call: &CallId) {
        self.tools.remove(call);
        let error = ErrorInfo::new(ErrorCode::Interrupted, "the supervisor has died");
        self.input(Input::ToolEnded(call.clone(), Err(ToolError(error))));
    }

    fn request_decision(&mut self, call: &CallId, key: &str) -> GateId {
        let mut request = DecisionRequest::approval(key, "Approve?");
        request.expires_in = Some(Duration::from_mins(10));
        self.input(Input::RequestDecision(call.clone(), Box::new(request)));
        let thread = &self.stored.thread;
        let prompt = &thread.turn.as_ref().unwrap().prompt;
        GateId::new(&thread.session, &thread.id, prompt, key)
    }

    /// Resolves a gate in the store.
    fn resolve(&mut self, gate: &GateId, action: &str) -> bool {
        let at = self.now;
        let Some(open) = self.stored.gates.get_mut(gate) else {
            return false;
        };
        if !open.status.is_pending() {
            return false;
        }
        open.status = GateStatus::Resolved {
            resolution: Resolution {
                action: action.into(),
                value: Value::Null,
                by: "ada".to_owned(),
                at,
                source: "test".to_owned(),
                receipt: None,
            },
        };
        true
    }

    fn decide(&mut self, gate: &GateId, action: &str) {
        if self.resolve(gate, action) {
            let gate = Box::new(self.stored.gates[gate].clone());
            self.input(Input::GateClosed(gate));
        }
    }

    /// The history as readable lines.
    fn history(&self) -> Vec<String> {
        let lines = self.stored.entries.iter().map(|entry| match &entry.kind {
            EntryKind::Message(message) => line(message),
            EntryKind::DecisionGate { title, .. } => format!("gate: {title}"),
            other => format!("{other:?}"),
        });
        lines.collect()
    }
}

fn line(message: &Message) -> String {
    let parts = message.parts.iter().map(|part| match part {
        Part::Text { text } => text.clone(),
        Part::ToolCall { tool, .. } => format!("→{tool}"),
        Part::ToolResult { status, text, .. } => match status {
            ResultStatus::Success => text.clone(),
            other => format!("{other:?}"),
        },
        Part::Error { error } => format!("!{:?}", error.code),
        other => format!("{other:?}"),
    });
    let parts: Vec<_> = parts.collect();
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "model",
        Role::Tool => "tool",
        Role::System => "system",
    };
    format!("{role}: {}", parts.join(" "))
}
