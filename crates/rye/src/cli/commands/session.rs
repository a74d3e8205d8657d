//! `rye session`

mod compaction;
mod export;
mod fork;
mod import;
mod proof;
mod thread;

pub(super) use proof::failure as unreadable;

use std::collections::BTreeMap;

use rye_engine::Engine;
use rye_engine::audit::UNVERIFIED;
use rye_engine::protocol::{
    Entry, EntryKind, Gate, GateId, PromptStatus, QueuedPrompt, Session, SessionId, SessionStatus,
    Thread,
};
use rye_engine::store::{Claim, SessionFilter, UNREADABLE};
use serde_json::{Value, json};

use super::prompt::now;
use crate::cli::args::{ResumeArgs, SessionArgs, SessionCommand};
use crate::cli::context::Context;
use crate::cli::engine::{Wanted, find, find_to_remove, how_to_answer, with_engine};
use crate::cli::entry_line::{decided, first_line, line};
use crate::cli::failure::Failure;
use crate::cli::follower::Follower;
use crate::cli::going_on::with_session_above;
use crate::cli::last_words::LastWords;
use crate::cli::page::{BAD, BOLD, DIM, Page, WARN, one_line, paint, plain};
use crate::cli::printer::{Outcome, Report};
use crate::cli::table::{Cell, Table};

/// How many are listed.
const MOST: usize = 200;

pub(crate) fn run(command: &SessionCommand, context: &Context) -> Outcome {
    match command {
        SessionCommand::List => list(context),
        SessionCommand::Show(args) => show(args, context),
        SessionCommand::Resume(args) => resume(args, context),
        SessionCommand::Verify(args) => proof::verify(args, context),
        SessionCommand::Export(args) => export::export(args, context),
        SessionCommand::Import(args) => import::import(args, context),
        SessionCommand::Fork(args) => fork::fork(args, context),
        SessionCommand::Compact(args) => compaction::run(args, context),
        SessionCommand::Thread(args) => thread::run(args, context),
        SessionCommand::Rm(args) => rm(args, context),
    }
}

fn list(context: &Context) -> Outcome {
    with_engine(context, Wanted::default(), async |engine| {
        let filter = SessionFilter {
            limit: MOST,
            ..SessionFilter::default()
        };
        let sessions = engine.sessions(filter).await?;
        let gates = engine.pending_gates(None).await?;
        let mut queue = Vec::new();
        for session in sessions.iter().filter(|it| it.parent.is_none()) {
            // One that cannot be read says so by itself.
            queue.extend(
                engine
                    .unfinished_prompts(&session.id)
                    .await
                    .unwrap_or_default(),
            );
        }
        let list = List {
            sessions,
            gates,
            queue,
        };
        Ok(Box::new(list) as Box<dyn Report>)
    })
}

fn is_child(session: &Session, of: &SessionId) -> bool {
    let parent = session.parent.as_ref();
    parent.is_some_and(|parent| parent.session == *of)
}

struct List {
    sessions: Vec<Session>,
    gates: Vec<Gate>,
    /// Prompts that have not ended.
    queue: Vec<QueuedPrompt>,
}

impl List {
    /// How many decisions it waits for, and those below it.
    fn waiting(&self, session: &SessionId) -> usize {
        let own = |gate: &&Gate| gate.origin.session == *session;
        let children = self
            .sessions
            .iter()
            .filter(|other| is_child(other, session));
        let below: usize = children.map(|child| self.waiting(&child.id)).sum();
        self.gates.iter().filter(own).count() + below
    }
}

impl List {
    fn unfinished_prompts(&self, session: &SessionId) -> usize {
        let own = |prompt: &&QueuedPrompt| prompt.session == *session;
        self.queue.iter().filter(own).count()
    }
}

impl Report for List {
    fn json(&self) -> Value {
        let (sessions, gates, queue) = (&self.sessions, &self.gates, &self.queue);
        json!({ "sessions": sessions, "pending_gates": gates, "queue": queue })
    }

    fn show(&self, page: &mut Page) {
        if self.sessions.is_empty() {
            page.line("there are no sessions");
            return;
        }
        let mut table = Table::new(["SESSION", "TURNS", "WAITS FOR", "WORKSPACE"]);
        // Those below another are shown with it.
        for session in self.sessions.iter().filter(|it| it.parent.is_none()) {
            let waits = match self.waiting(&session.id) {
                _ if session.metadata.contains_key(UNREADABLE) => {
                    Cell::styled(BAD, "cannot be read")
                }
                0 if session.metadata.contains_key(UNVERIFIED) => {
                    Cell::styled(BAD, "imported unverified")
                }
                0 if session.status == SessionStatus::Error => {
                    Cell::styled(BAD, "rye session resume")
                }
                0 => match self.unfinished_prompts(&session.id) {
                    0 => Cell::new(""),
                    1 => Cell::styled(WARN, "a prompt to finish"),
                    many => Cell::styled(WARN, format!("{many} prompts to finish")),
                },
                1 => Cell::styled(WARN, "a decision"),
                many => Cell::styled(WARN, format!("{many} decisions")),
            };
            table.row([
                session.id.as_str().into(),
                session.usage.turns.to_string().into(),
                waits,
                session.workspace.as_deref().unwrap_or_default().into(),
            ]);
        }
        page.table(&table);
    }
}

fn show(args: &SessionArgs, context: &Context) -> Outcome {
    with_engine(context, Wanted::default(), async |engine| {
        let id = find(engine, &args.id).await?;
        Ok(Box::new(Show::of(engine, id).await?) as Box<dyn Report>)
    })
}

struct Show {
    id: SessionId,
    /// Why it could not be verified when it was imported, if it could not.
    unverified: Option<String>,
    children: Vec<Session>,
    threads: Vec<(Thread, Vec<Entry>)>,
    /// Those of the history, ended or not.
    gates: BTreeMap<GateId, Gate>,
    /// Those that wait, also below it.
    pending: Vec<Gate>,
    /// Prompts that have not ended.
    queue: Vec<QueuedPrompt>,
    /// Why what it went on with was not answered, if it was not.
    failure: Option<Failure>,
}

impl Show {
    async fn of(engine: &Engine, id: SessionId) -> Result<Self, Failure> {
        let filter = SessionFilter {
            parent: Some(id.clone()),
            limit: MOST,
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
        let queue = engine.unfinished_prompts(&id).await?;
        let session = engine.session_data(&id).await?;
        let unverified = session.as_ref().and_then(|it| it.metadata.get(UNVERIFIED));
        let unverified = unverified.map(|why| why.as_str().unwrap_or_default().to_owned());
        Ok(Self {
            id,
            unverified,
            children,
            threads,
            gates,
            pending,
            queue,
            failure: None,
        })
    }
}

impl Report for Show {
    fn json(&self) -> Value {
        let threads = self.threads.iter();
        let threads: Vec<_> = threads
            .map(|(thread, entries)| json!({ "thread": thread, "entries": entries }))
            .collect();
        json!({
            "session": self.id,
            "unverified_import": self.unverified,
            "threads": threads,
            "children": self.children,
            "gates": self.gates.values().collect::<Vec<_>>(),
            "pending_gates": self.pending,
            "queue": self.queue,
        })
    }

    fn failure(&self) -> Option<Failure> {
        self.failure.clone()
    }

    fn show(&self, page: &mut Page) {
        page.line(paint(BOLD, &self.id));
        if let Some(why) = &self.unverified {
            page.line(paint(
                BAD,
                format_args!("imported unverified: {}", plain(why)),
            ));
        }
        for (thread, entries) in &self.threads {
            page.line(paint(DIM, format_args!("thread {}", plain(&thread.key))));
            for entry in entries {
                page.line(format_args!("  {}", plain(&line(entry))));
                if let EntryKind::DecisionGate { gate, .. } = &entry.kind
                    && let Some(decided) = self.gates.get(gate).and_then(decided)
                {
                    let decided = one_line(&decided);
                    page.line(paint(DIM, format_args!("             {decided}")));
                }
            }
        }
        for child in &self.children {
            let state = match child.status {
                SessionStatus::Terminated => "has ended",
                SessionStatus::Error => "cannot go on",
                _ => "is at work",
            };
            page.line(paint(DIM, format_args!("task {} {state}", child.id)));
        }
        for gate in &self.pending {
            let title = one_line(&gate.title);
            page.line(paint(WARN, format_args!("waits for a decision: {title}")));
            page.line(paint(DIM, format_args!("  {}", how_to_answer(gate))));
        }
        // What waits for a decision is told already.
        let told = |prompt: &&QueuedPrompt| {
            prompt.status == PromptStatus::Running && !self.pending.is_empty()
        };
        for prompt in self.queue.iter().filter(|prompt| !told(prompt)) {
            let state = match prompt.status {
                PromptStatus::Running => "is not finished",
                _ => "waits for its turn",
            };
            let asked = one_line(&first_line(&prompt.content));
            page.line(paint(WARN, format_args!("{state}: {asked}")));
        }
        if !self.queue.is_empty() && self.pending.is_empty() {
            let next = format!("  rye session resume {}, if no process runs it", self.id);
            page.line(paint(DIM, next));
        }
    }
}

fn resume(args: &ResumeArgs, context: &Context) -> Outcome {
    let wanted = Wanted {
        sandbox: args.sandbox.map(Into::into),
        ..Wanted::default()
    };
    let meant = &args.session.id;
    with_session_above(context, meant, wanted, async |it| {
        let (engine, id) = (it.engine, it.session);
        // It goes on as soon as it is open: what comes of that is told from here on.
        let before = engine.last_event(id).await?;
        let asked = engine.unfinished_prompts(id).await?;
        let session = engine.open_session(id, Claim::IfFree).await?;
        let follower = Follower {
            engine,
            session: &session,
            printer: context.printer,
            yes: args.yes,
            waits: true,
            events: false,
        };
        let last_words = LastWords::prepare(context.printer, id, None)?;
        let ended = follower.until_idle(before).await?;
        drop(last_words);
        let mut failures = ended.iter().filter_map(|it| {
            let prompt = asked.iter().find(|prompt| prompt.id == it.prompt);
            let until = prompt.and_then(|prompt| prompt.limits.until);
            it.failure(id, until.is_some_and(|until| until <= now()))
        });
        let failure = failures.next();
        let show = Show::of(engine, id.clone()).await?;
        Ok(Box::new(Show { failure, ..show }) as Box<dyn Report>)
    })
}

fn rm(args: &SessionArgs, context: &Context) -> Outcome {
    with_engine(context, Wanted::default(), async |engine| {
        let id = find_to_remove(engine, &args.id).await?;
        engine.remove_session(&id).await?;
        Ok(Box::new(Removed(id)) as Box<dyn Report>)
    })
}

struct Removed(SessionId);

impl Report for Removed {
    fn json(&self) -> Value {
        json!({ "removed": self.0 })
    }

    fn show(&self, page: &mut Page) {
        page.line(format_args!("removed {}", self.0));
    }
}
