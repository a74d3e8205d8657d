//! `rye session`: lists, shows, resumes and removes sessions.

mod artifacts;
mod changes;
mod compaction;
mod control;
mod export;
mod fork;
mod import;
mod list;
mod review;
mod state;
mod thread;
mod title;
mod verify;
mod watch;

pub(super) use verify::verify;

use std::collections::BTreeMap;

use rye_engine::Engine;
use rye_engine::protocol::{
    Entry, EntryKind, Gate, GateId, PromptStatus, QueuedPrompt, Session, SessionId, Thread,
};
use rye_engine::store::{Claim, SessionFilter, StoreError};
use rye_host::engine::{EngineOptions, answer_command, with_engine};
use rye_host::follower::Follower;
use rye_host::lookup::{find_session, find_session_to_remove};
use rye_host::session_engine::with_session_or_root;
use serde_json::{Value, json};

use self::control::Control;
use self::state::State;
use super::prompt::now;
use crate::cli::args::{ResumeArgs, SessionArgs, SessionCommand, ShowSessionArgs};
use crate::cli::context::Context;
use crate::cli::entry_line::{describe_decision, first_line, full_text, line};
use crate::cli::failure::Failure;
use crate::cli::observer::{SOURCE, TerminalObserver};
use crate::cli::page::{BAD, BOLD, DIM, Page, WARN, one_line, paint, sanitize};
use crate::cli::printer::{Outcome, Report};
use crate::cli::signal_notice::SignalNotice;

/// How many sessions are listed.
const MAX_LISTED: usize = 200;

pub(crate) fn run(command: &SessionCommand, context: &Context) -> Outcome {
    match command {
        SessionCommand::List => list::run(context),
        SessionCommand::Show(args) => show(args, context),
        SessionCommand::Resume(args) => resume(args, context),
        SessionCommand::Abort(args) => control::run(args, Control::Abort, context),
        SessionCommand::Pause(args) => control::run(args, Control::Pause, context),
        SessionCommand::ResumeQueue(args) => control::run(args, Control::ResumeQueue, context),
        SessionCommand::Watch(args) => watch::run(args, context),
        SessionCommand::Verify(args) => verify::verify(args, context),
        SessionCommand::Export(args) => export::export(args, context),
        SessionCommand::Import(args) => import::import(args, context),
        SessionCommand::Fork(args) => fork::fork(args, context),
        SessionCommand::Compact(args) => compaction::run(args, context),
        SessionCommand::Thread(args) => thread::run(args, context),
        SessionCommand::Title(args) => title::run(args, context),
        SessionCommand::Artifacts(args) => artifacts::run(args, context),
        SessionCommand::Review(args) => review::run(args, context),
        SessionCommand::Diff(args) => changes::diff(args, context),
        SessionCommand::Undo(args) => changes::undo(args, context),
        SessionCommand::Rm(args) => rm(args, context),
    }
}

fn show(args: &ShowSessionArgs, context: &Context) -> Outcome {
    with_engine(context, EngineOptions::default(), async |engine| {
        let id = find_session(engine, &args.session.id).await?;
        let show = Show::load(engine, id, context).await?;
        let full = args.full;
        Ok(Box::new(Show { full, ..show }) as Box<dyn Report>)
    })
}

struct Show {
    id: SessionId,
    state: State,
    /// Why the import could not be verified, if it could not.
    unverified: Option<String>,
    children: Vec<(Session, State)>,
    threads: Vec<(Thread, Vec<Entry>)>,
    /// All gates in the history.
    gates: BTreeMap<GateId, Gate>,
    /// How those gates were closed.
    decisions: BTreeMap<GateId, String>,
    /// Pending gates of the session and its tasks.
    pending: Vec<Gate>,
    /// Unfinished prompts.
    queue: Vec<QueuedPrompt>,
    /// The failure of a resumed prompt.
    failure: Option<Failure>,
    /// Whether to show all text of the entries.
    full: bool,
}

impl Show {
    async fn load(engine: &Engine, id: SessionId, context: &Context) -> Result<Self, Failure> {
        let filter = SessionFilter {
            parent: Some(id.clone()),
            limit: MAX_LISTED,
            ..SessionFilter::default()
        };
        let mut children = engine.sessions(filter).await?;
        children.reverse();
        let mut pending = engine.pending_gates(Some(&id)).await?;
        for child in &children {
            pending.extend(engine.pending_gates(Some(&child.id)).await?);
        }
        let threads = engine.history(&id).await?;
        let mut gates = BTreeMap::new();
        for entry in threads.iter().flat_map(|(_, entries)| entries) {
            if let EntryKind::DecisionGate { gate, .. } = &entry.kind
                && let Some(gate) = engine.gate(gate).await?
            {
                gates.insert(gate.id.clone(), gate);
            }
        }
        let keys = context.trusted_keys();
        let decisions = gates
            .iter()
            .filter_map(|(id, gate)| Some((id.clone(), describe_decision(gate, &keys)?)))
            .collect();
        let queue = engine.unfinished_prompts(&id).await?;
        let session = engine.session_data(&id).await?;
        let session = session.ok_or_else(|| StoreError::NotFound {
            kind: "session",
            id: id.to_string(),
        })?;
        let holders = engine.holders().await?;
        let state = State::new(&session, &children, &pending, &holders, queue.len());
        let unverified = session.unverified_import;
        let mut tasks = Vec::new();
        for child in &children {
            // An unreadable task is marked.
            let unfinished = engine
                .unfinished_prompts(&child.id)
                .await
                .unwrap_or_default();
            let state = State::new(child, &children, &pending, &holders, unfinished.len());
            tasks.push((child.clone(), state));
        }
        Ok(Self {
            id,
            state,
            unverified,
            children: tasks,
            threads,
            gates,
            decisions,
            pending,
            queue,
            failure: None,
            full: false,
        })
    }
}

impl Report for Show {
    fn json(&self) -> Value {
        let threads = self.threads.iter();
        let threads: Vec<_> = threads
            .map(|(thread, entries)| json!({ "thread": thread, "entries": entries }))
            .collect();
        let children = self.children.iter();
        let children: Vec<_> = children
            .map(|(child, state)| state.session_json(child))
            .collect();
        json!({
            "session": self.id,
            "state": self.state.name(),
            "unverified_import": self.unverified,
            "threads": threads,
            "children": children,
            "gates": self.gates.values().collect::<Vec<_>>(),
            "pending_gates": self.pending,
            "queue": self.queue,
        })
    }

    fn failure(&self) -> Option<Failure> {
        self.failure.clone()
    }

    fn show(&self, page: &mut Page) {
        page.line(paint(BOLD, format_args!("session {}", self.id.short())));
        if let Some(why) = &self.unverified {
            page.line(paint(
                BAD,
                format_args!("imported unverified: {}", sanitize(why)),
            ));
        }
        for (thread, entries) in &self.threads {
            page.line(paint(DIM, format_args!("thread {}", sanitize(&thread.key))));
            for entry in entries {
                if self.full {
                    show_entry(entry, page);
                } else {
                    page.line(format_args!("  {}", sanitize(&line(entry))));
                }
                if let EntryKind::DecisionGate { gate, .. } = &entry.kind
                    && let Some(decision) = self.decisions.get(gate)
                {
                    let decision = one_line(decision);
                    page.line(paint(DIM, format_args!("             {decision}")));
                }
            }
        }
        for (child, state) in &self.children {
            page.line(paint(
                DIM,
                format_args!("task {}: {}", child.id.short(), state.name()),
            ));
        }
        for gate in &self.pending {
            let title = one_line(&gate.title);
            page.line(paint(WARN, format_args!("pending gate: {title}")));
            page.line(paint(DIM, format_args!("  {}", answer_command(gate))));
        }
        // A running prompt that waits at a gate is shown above.
        let is_shown = |prompt: &&QueuedPrompt| {
            prompt.status == PromptStatus::Running && !self.pending.is_empty()
        };
        for prompt in self.queue.iter().filter(|prompt| !is_shown(prompt)) {
            let state = match prompt.status {
                PromptStatus::Running => "unfinished prompt",
                _ => "queued prompt",
            };
            let text = one_line(&first_line(&prompt.content));
            page.line(paint(WARN, format_args!("{state}: {text}")));
        }
        if !self.queue.is_empty() && self.pending.is_empty() {
            let next = format!("  rye session resume {}", self.id.short());
            page.line(paint(DIM, next));
        }
    }
}

/// Shows an entry with its id and its whole text.
fn show_entry(entry: &Entry, page: &mut Page) {
    let (label, text) = full_text(entry);
    page.line(format_args!(
        "  {} {}",
        paint(DIM, entry.id.short()),
        paint(BOLD, label)
    ));
    for line in text.lines() {
        page.line(format_args!("    {}", sanitize(line)));
    }
}

fn resume(args: &ResumeArgs, context: &Context) -> Outcome {
    let options = EngineOptions {
        sandbox: args.sandbox.map(Into::into),
        ..EngineOptions::default()
    };
    let part = &args.session.id;
    with_session_or_root(context, part, options, async |it| {
        let (engine, id) = (it.engine, it.session);
        // Opening a session resumes it: print everything from here on.
        let before = engine.last_event(id).await?;
        let prompts = engine.unfinished_prompts(id).await?;
        engine.open_session(id, Claim::IfFree).await?;
        let follower = Follower {
            engine,
            session: id,
            observer: &TerminalObserver {
                printer: context.printer,
                events: false,
                stream: None,
            },
            source: SOURCE,
            by: &context.user_name()?,
            yes: args.yes,
            wait: !args.no_wait,
        };
        let signal_notice = SignalNotice::install(context.printer, id, None)?;
        let finished = follower.until_idle(before).await?;
        drop(signal_notice);
        let mut failures = finished.iter().filter_map(|it| {
            let prompt = prompts.iter().find(|prompt| prompt.id == it.prompt);
            let until = prompt.and_then(|prompt| prompt.limits.until);
            it.failure(id, until.is_some_and(|until| until <= now()))
        });
        let failure = failures.next();
        let show = Show::load(engine, id.clone(), context).await?;
        Ok(Box::new(Show { failure, ..show }) as Box<dyn Report>)
    })
}

fn rm(args: &SessionArgs, context: &Context) -> Outcome {
    with_engine(context, EngineOptions::default(), async |engine| {
        let id = find_session_to_remove(engine, &args.id).await?;
        engine.remove_session(&id).await?;
        Ok(Box::new(RemovedSession(id)) as Box<dyn Report>)
    })
}

struct RemovedSession(SessionId);

impl Report for RemovedSession {
    fn json(&self) -> Value {
        json!({ "removed": self.0 })
    }

    fn show(&self, page: &mut Page) {
        page.line(format_args!("removed session {}", self.0.short()));
    }
}
