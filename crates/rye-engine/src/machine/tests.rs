//! A thread in a world of its own: a record that batches are applied to, a model and
//! tools that answer when the test says, and hosts that die.

mod dead_hosts;
mod legal;
mod stories;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rye_protocol::{
    CallId, Entry, EntryId, EntryKind, ErrorCode, ErrorInfo, EventKind, Gate, GateId, GateStatus,
    Limits, Message, Millis, Op, Part, PromptId, PromptStatus, QueueMode, QueuedPrompt, Resolution,
    ResultStatus, Role, SessionId, SuspendedTurn, Thread, ThreadId, ThreadStatus, Usage,
};
use serde_json::{Map, Value, json};

use super::{CallLimits, Children, Effect, Env, Fact, Facts, Input, Machine};
use crate::compaction::Settings;
use crate::model::ModelAnswer;
use crate::tool::{DecisionRequest, Effect as ToolEffect, ToolError, ToolOutput};

/// Tools whose names say what they are.
struct Named;

impl Facts for Named {
    fn of(&self, tool: &str) -> Option<Fact> {
        let effect = match tool {
            "pure" => ToolEffect::Pure,
            "once" | "asks" => ToolEffect::AtMostOnce,
            "ask" => ToolEffect::Ask,
            "alone" | "task" => ToolEffect::Idempotent,
            _ => return None,
        };
        Some(Fact {
            effect,
            exclusive: tool == "alone",
            is_task: tool == "task",
            may_request_decision: tool == "asks",
        })
    }
}

/// Models that can read anything.
struct Endless;

impl super::Windows for Endless {
    fn usable(&self, _: &str) -> Option<u64> {
        None
    }
}

/// Children that have used up a turn each.
struct Frugal;

impl Children for Frugal {
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

/// What is written down.
#[derive(Debug, Clone)]
struct SessionSnapshot {
    thread: Thread,
    entries: Vec<Entry>,
    prompts: BTreeMap<PromptId, QueuedPrompt>,
    gates: BTreeMap<GateId, Gate>,
    suspended: BTreeMap<GateId, SuspendedTurn>,
    events: Vec<EventKind>,
    usage: Usage,
}

impl SessionSnapshot {
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
            Op::PutSuspendedTurn(suspended) => {
                let suspended = Arc::unwrap_or_clone(suspended);
                self.suspended.insert(suspended.gate.clone(), suspended);
            }
            Op::RemoveSuspendedTurn(gate) => drop(self.suspended.remove(&gate)),
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

/// A thread with all that is around it.
struct World {
    record: SessionSnapshot,
    machine: Machine,
    now: Millis,
    until: Option<Millis>,
    /// What was begun and has not ended, in this process.
    model: bool,
    tools: BTreeMap<CallId, String>,
    /// How often each call's tool was begun, by whatever host.
    begun: BTreeMap<CallId, u32>,
    replies: Vec<(CallId, GateStatus)>,
    prompts: u32,
    calls: u32,
}

impl World {
    fn new() -> Self {
        let thread = Thread {
            id: "thread".parse::<ThreadId>().unwrap(),
            session: "session".parse::<SessionId>().unwrap(),
            key: "default".to_owned(),
            status: ThreadStatus::Active,
            leaf: None,
            leaf_hash: String::new(),
            events_hash: String::new(),
            usage: Usage::default(),
            seal: String::new(),
            mode: QueueMode::Followup,
            model: None,
            summary: None,
            tokens: 0,
            compaction: None,
            turn: None,
            last_command: None,
            metadata: Map::new(),
            created_at: Millis(0),
            updated_at: Millis(0),
        };
        let record = SessionSnapshot {
            thread,
            entries: Vec::new(),
            prompts: BTreeMap::new(),
            gates: BTreeMap::new(),
            suspended: BTreeMap::new(),
            events: Vec::new(),
            usage: Usage::default(),
        };
        Self {
            machine: record.machine(),
            record,
            now: Millis(1_000_000),
            until: None,
            model: false,
            tools: BTreeMap::new(),
            begun: BTreeMap::new(),
            replies: Vec::new(),
            prompts: 0,
            calls: 0,
        }
    }

    fn input(&mut self, input: Input) -> Option<PromptId> {
        let env = Env {
            now: self.now,
            calls: CallLimits {
                per_answer: 5,
                parallel: 4,
            },
            collect: Duration::from_secs(5),
            model: "test",
            paused: false,
            reserve: TURN,
            until: self.until,
            limits: Limits::default(),
            asks_for_more: false,
            signer: None,
            last_seal: None,
            prompted: None,
            compaction: &Settings::default(),
            windows: &Endless,
            tools: &Named,
            children: &Frugal,
        };
        let output = self.machine.handle(input, &env);
        for op in output.batch.ops {
            self.record.apply(op);
        }
        for effect in output.effects {
            match effect {
                Effect::CallModel { .. } => self.model = true,
                Effect::StopModel => self.model = false,
                Effect::Compact { .. } => panic!("nobody asked for it"),
                Effect::RunTool { call, tool, .. } => {
                    *self.begun.entry(call.clone()).or_default() += 1;
                    self.tools.insert(call, tool);
                }
                Effect::StopTool(call) => drop(self.tools.remove(&call)),
                Effect::Reply(call, gate) => self.replies.push((call, gate.status)),
                Effect::WakeAt(_) => {}
            }
        }
        legal::check(self);
        output.accepted
    }

    /// The host is killed, and another goes on.
    fn die(&mut self) {
        self.machine = self.record.machine();
        self.model = false;
        self.tools.clear();
        self.replies.clear();
        self.input(Input::Restored);
    }

    fn queued_prompt(&mut self, mode: QueueMode) -> Box<QueuedPrompt> {
        self.prompts += 1;
        Box::new(QueuedPrompt {
            id: format!("prompt-{}", self.prompts).parse().unwrap(),
            session: self.record.thread.session.clone(),
            thread: self.record.thread.id.clone(),
            order: 0,
            content: format!("prompt {}", self.prompts),
            attachments: Vec::new(),
            author: None,
            reply_to: None,
            model: None,
            role: None,
            limits: Limits::default(),
            mode,
            status: PromptStatus::Waiting,
            collect_until: None,
            metadata: Map::new(),
            created_at: self.now,
        })
    }

    fn prompt(&mut self, mode: QueueMode) -> Option<PromptId> {
        let prompt = self.queued_prompt(mode);
        let busy = self.record.thread.turn.is_some();
        if mode == QueueMode::Steer && busy {
            let partial = "so far".to_owned();
            self.input(Input::Steer { prompt, partial })
        } else {
            self.input(Input::Prompt(prompt))
        }
    }

    fn say(&mut self, text: &str) {
        let part = Part::Text {
            text: text.to_owned(),
        };
        self.answer(vec![part]);
    }

    /// The model wants these tools.
    fn want(&mut self, tools: &[&str]) -> Vec<CallId> {
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
        self.answer(parts);
        ids
    }

    fn answer(&mut self, parts: Vec<Part>) {
        assert!(std::mem::take(&mut self.model), "nobody asked the model");
        self.input(Input::Answered(Ok(Box::new(ModelAnswer {
            parts,
            stop_reason: None,
            usage: TURN,
        }))));
    }

    fn end(&mut self, call: &CallId, text: &str) {
        self.tools.remove(call);
        let output = Box::new(ToolOutput::text(text));
        self.input(Input::Ended(call.clone(), Ok(output)));
    }

    /// A tool that does not know what became of it.
    fn cut_off(&mut self, call: &CallId) {
        self.tools.remove(call);
        let error = ErrorInfo::new(ErrorCode::Interrupted, "its keeper is gone");
        self.input(Input::Ended(call.clone(), Err(ToolError(error))));
    }

    fn ask(&mut self, call: &CallId, key: &str) -> GateId {
        let mut request = DecisionRequest::approval(key, "May it?");
        request.expires_in = Some(Duration::from_mins(10));
        self.input(Input::Ask(call.clone(), Box::new(request)));
        let thread = &self.record.thread;
        let prompt = &thread.turn.as_ref().unwrap().prompt;
        GateId::new(&thread.session, &thread.id, prompt, key)
    }

    /// Somebody decides, in the store.
    fn resolve(&mut self, gate: &GateId, action: &str) -> bool {
        let at = self.now;
        let Some(open) = self.record.gates.get_mut(gate) else {
            return false;
        };
        if !open.status.is_pending() {
            return false;
        }
        open.status = GateStatus::Resolved {
            resolution: Resolution {
                action: action.to_owned(),
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
            let gate = Box::new(self.record.gates[gate].clone());
            self.input(Input::Decided(gate));
        }
    }

    /// The history, for people.
    fn story(&self) -> Vec<String> {
        let lines = self.record.entries.iter().map(|entry| match &entry.kind {
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
