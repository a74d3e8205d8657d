//! `rye gate`: lists pending gates and answers them.

use std::path::{Path, PathBuf};

use rye_engine::arguments::ARGUMENTS;
use rye_engine::blob::SCHEME;
use rye_engine::protocol::{
    ActionId, CHANGE_SET, ChangeSet, Gate, GateId, Purpose, Resolution, Selection, Session,
    SessionId,
};
use rye_engine::store::PostOutcome;
use rye_engine::tool::CHANGES;
use rye_engine::{Decision, WithdrawError};
use rye_host::engine::{EngineOptions, answer_command, with_engine};
use rye_host::lookup::{is_expired, matching_gates, not_found};
use rye_host::session_engine::with_session_files;
use rye_host::{TrustedKeys, store_project_approval};
use serde_json::{Value, json};

use crate::cli::args::{ApprovalScope, GateArgs, GateCommand, SelectionArgs, WithdrawGateArgs};
use crate::cli::commands::graph::resume_command;
use crate::cli::context::Context;
use crate::cli::entry_line::{describe_action, describe_decision, edited_by_decision};
use crate::cli::failure::Failure;
use crate::cli::gate_render;
use crate::cli::observer::SOURCE;
use crate::cli::page::{DIM, GOOD, Page, one_line, paint};

use crate::cli::printer::{Outcome, Report};

pub(crate) fn run(command: &GateCommand, context: &Context) -> Outcome {
    match command {
        GateCommand::List => list(context),
        GateCommand::Show(args) => show(args, context),
        GateCommand::Approve(args) => {
            let action = match args.scope {
                ApprovalScope::Call => ActionId::Approve,
                ApprovalScope::Session => ActionId::ApproveSession,
                ApprovalScope::Prefix => ActionId::ApprovePrefix,
                ApprovalScope::Project => ActionId::ApproveProject,
            };
            let value = match &args.arguments {
                Some(arguments) => json!({ ARGUMENTS: arguments }),
                None => Value::Null,
            };
            let selection = select(&args.selection)?;
            answer(&args.gate, action, value, selection, context)
        }
        GateCommand::Deny(args) => {
            let reason = args.reason.clone().map_or(Value::Null, Value::String);
            answer(&args.gate, ActionId::Deny, reason, None, context)
        }
        GateCommand::Withdraw(args) => withdraw(args, context),
        GateCommand::Answer(args) => {
            let value = args.value.clone().map_or(Value::Null, Value::String);
            answer(
                &args.gate,
                args.action.as_str().into(),
                value,
                None,
                context,
            )
        }
    }
}

fn list(context: &Context) -> Outcome {
    let here = context.settings.project();
    with_engine(context, EngineOptions::default(), async |engine| {
        let mut gates = Vec::new();
        for gate in engine.pending_gates(None).await? {
            let session = engine.session_data(&gate.origin.session).await?;
            gates.push(ListedGate::new(gate, session, here));
        }
        Ok(Box::new(List(gates)) as Box<dyn Report>)
    })
}

struct ListedGate {
    gate: Gate,
    /// Whether a graph opened it.
    is_graph: bool,
    project: Option<PathBuf>,
    /// Whether the project is the current one.
    is_here: bool,
}

impl ListedGate {
    fn new(gate: Gate, session: Option<Session>, here: &Path) -> Self {
        let is_graph = session.as_ref().map(|it| it.purpose) == Some(Purpose::Workflow);
        let project = session.and_then(|session| session_project(&session));
        Self {
            is_here: project.as_deref().is_none_or(|project| project == here),
            gate,
            is_graph,
            project,
        }
    }

    /// Where the gate comes from, for people.
    fn origin(&self) -> Option<String> {
        let project = self.project.as_deref().filter(|_| !self.is_here);
        let project = project.map(|project| format!("in {}", project.display()));
        if !self.is_graph {
            return project;
        }
        let origin = &self.gate.origin;
        let text = format!("graph {}, run {}", origin.tool, origin.session.short());
        Some(match project {
            Some(project) => format!("{text}, {project}"),
            None => text,
        })
    }

    fn json(&self) -> Value {
        let mut gate = json!(self.gate);
        if self.is_graph {
            gate["graph"] = json!(self.gate.origin.tool);
        }
        if let Some(project) = self
            .project
            .as_ref()
            .filter(|_| self.is_graph || !self.is_here)
        {
            gate["project"] = json!(project.to_string_lossy());
        }
        gate
    }
}

/// The project that a session was created in.
fn session_project(session: &Session) -> Option<PathBuf> {
    let project = session.project.as_deref();
    project.or(session.workspace.as_deref()).map(PathBuf::from)
}

struct List(Vec<ListedGate>);

impl Report for List {
    fn json(&self) -> Value {
        let gates: Vec<_> = self.0.iter().map(ListedGate::json).collect();
        json!({ "gates": gates })
    }

    fn show(&self, page: &mut Page) {
        if self.0.is_empty() {
            page.line("no pending gates");
        }
        for listed in &self.0 {
            show_gate(page, &listed.gate, listed.origin());
        }
    }
}

fn show_gate(page: &mut Page, gate: &Gate, origin: Option<String>) {
    let title = format!("{}  {}", gate.id.short(), gate.title);
    for line in gate_render::lines(&title, &gate.body, page.width()) {
        page.line(line);
    }
    if let Some(origin) = origin {
        page.line(paint(DIM, format_args!("  {}", one_line(&origin))));
    }
    let command = answer_command(gate);
    page.line(paint(DIM, format_args!("  {command}")));
}

/// Whether the same decision was already made; fails if another one was.
fn is_repeated(posted: PostOutcome, keys: &TrustedKeys) -> Result<bool, Failure> {
    match posted {
        PostOutcome::Conflict(first) => Err(conflict(&first, keys)),
        PostOutcome::GateClosed(_) => Err(closed()),
        PostOutcome::Written => Ok(false),
        PostOutcome::Duplicate => Ok(true),
    }
}

fn conflict(first: &Resolution, keys: &TrustedKeys) -> Failure {
    let (decision, by) = (describe_action(&first.action), keys.approver(first));
    let message = format!("the gate is already closed: {decision} by {by}");
    Failure::failed("decision_gate_conflict", message)
}

fn fixed_arguments() -> Failure {
    Failure::usage("--arguments only applies to tool calls of agents")
}

fn closed() -> Failure {
    Failure::failed("gate_closed", "the gate is already closed").hint("rye gate list")
}

/// Finds the gate that `part` identifies: its id, its short id, or a unique part of it. Closed
/// gates count like pending ones: otherwise a part that was unique once could later select another
/// gate, which the user has not seen.
fn find(part: &str, context: &Context) -> Result<Gate, Failure> {
    let mut matches = matching_gates(context, part)?;
    if let Some(exact) = matches.iter().position(|gate| gate.id.as_str() == part) {
        return Ok(matches.swap_remove(exact));
    }
    if matches.len() > 1 {
        let message = format!("gate id {part} is ambiguous: {} match", matches.len());
        let failure = Failure::failed("ambiguous", message);
        let keys = context.trusted_keys();
        let failure = failure.candidates(matches.iter().map(|gate| describe(gate, &keys)));
        return Err(failure.hint("rye gate list"));
    }
    matches
        .pop()
        .ok_or_else(|| not_found("gate", part, "rye gate list"))
}

/// A line that distinguishes the gate from others. Shows the full id, because the short one may be
/// ambiguous.
fn describe(gate: &Gate, keys: &TrustedKeys) -> String {
    let state = if is_expired(gate) {
        "expired".to_owned()
    } else {
        describe_decision(gate, keys).unwrap_or_else(|| "pending".to_owned())
    };
    format!("{} ({state}): {}", gate.id, gate.title)
}

/// The selected changes, with the contents of edited ones.
type SelectedChanges = (Selection, Vec<(String, Vec<u8>)>);

/// Reads the files with edited contents. `None` if nothing is selected.
fn select(args: &SelectionArgs) -> Result<Option<SelectedChanges>, Failure> {
    if args.only.is_empty() && args.except.is_empty() && args.edit.is_empty() {
        return Ok(None);
    }
    let read = |(path, file): &(String, PathBuf)| {
        let bytes = std::fs::read(file).map_err(|error| {
            let message = format!("cannot read {}: {error}", file.display());
            Failure::usage(message)
        })?;
        Ok((path.clone(), bytes))
    };
    let contents = args.edit.iter().map(read);
    let contents = contents.collect::<Result<_, Failure>>()?;
    let selection = Selection {
        only: args.only.clone(),
        except: args.except.clone(),
        ..Selection::default()
    };
    Ok(Some((selection, contents)))
}

fn show(args: &GateArgs, context: &Context) -> Outcome {
    let gate = find(&args.gate, context)?;
    with_engine(context, EngineOptions::default(), async |engine| {
        let summary = gate.context.get(CHANGE_SET);
        let diff = match summary {
            Some(summary) => engine.change_set_diff(summary).await,
            None => None,
        };
        let changes = match summary {
            Some(summary) => engine.change_set(summary).await,
            None => None,
        };
        let shown = ShownGate {
            decision: describe_decision(&gate, &context.trusted_keys()),
            gate,
            diff,
            changes,
        };
        Ok(Box::new(shown) as Box<dyn Report>)
    })
}

/// A gate with everything that is known about it.
struct ShownGate {
    gate: Gate,
    /// The complete diff of a review.
    diff: Option<String>,
    changes: Option<ChangeSet>,
    /// How it was closed.
    decision: Option<String>,
}

impl Report for ShownGate {
    fn json(&self) -> Value {
        let mut json = json!({ "gate": self.gate });
        if let Some(changes) = &self.changes {
            json["changes"] = json!(changes);
        }
        if let Some(diff) = &self.diff {
            json["diff"] = json!(diff);
        }
        json
    }

    fn show(&self, page: &mut Page) {
        let gate = &self.gate;
        let title = format!("{}  {}", gate.id.short(), gate.title);
        let shown = gate.body.len();
        for line in gate_render::lines(&title, &gate.body, page.width()) {
            page.line(line);
        }
        // The gate itself contains a short diff.
        if let Some(diff) = self.diff.as_ref().filter(|diff| diff.len() > shown) {
            let diff = lillux::quote_block(diff);
            for line in gate_render::lines("all changes:", &diff, page.width()) {
                page.line(line);
            }
        }
        if let Some(changes) = gate.context.get(CHANGES).and_then(Value::as_str) {
            let changes = lillux::quote_block(changes);
            for line in
                gate_render::lines("changed since the last approval:", &changes, page.width())
            {
                page.line(line);
            }
        }
        if let Some(decision) = &self.decision {
            page.line(paint(DIM, format_args!("  {}", one_line(decision))));
        } else if !is_expired(gate) {
            page.line(paint(DIM, format_args!("  {}", answer_command(gate))));
        }
    }
}

fn withdraw(args: &WithdrawGateArgs, context: &Context) -> Outcome {
    let gate = find(&args.gate.gate, context)?;
    let session = &gate.origin.session;
    with_session_files(context, session.as_str(), async |engine, _| {
        let data = engine.session_data(session).await?;
        if data.is_some_and(|data| data.run.is_some()) {
            let message = "a gate of a run cannot be withdrawn; deny it instead";
            let hint = format!("rye gate deny {}", gate.id.short());
            return Err(Failure::usage(message).hint(hint));
        }
        let withdrawn = engine.withdraw_gate(&gate.id, &args.reason).await;
        withdrawn.map_err(|error| match error {
            WithdrawError::Store(error) => error.into(),
            _ => closed(),
        })?;
        let withdrawn = Withdrawn {
            gate: gate.id.clone(),
            title: gate.title.clone(),
            session: session.clone(),
        };
        Ok(Box::new(withdrawn) as Box<dyn Report>)
    })
}

/// A gate that was withdrawn.
struct Withdrawn {
    gate: GateId,
    title: String,
    session: SessionId,
}

impl Report for Withdrawn {
    fn json(&self) -> Value {
        json!({ "gate": self.gate, "session": self.session, "action": "withdrawn" })
    }

    fn show(&self, page: &mut Page) {
        page.line(format_args!("withdrawn: {}", one_line(&self.title)));
    }

    fn next_command(&self) -> Option<String> {
        Some(format!("rye session watch {}", self.session.short()))
    }
}

fn answer(
    args: &GateArgs,
    action: ActionId,
    mut value: Value,
    selection: Option<SelectedChanges>,
    context: &Context,
) -> Outcome {
    let gate = find(&args.gate, context)?;
    with_engine(context, EngineOptions::default(), async |engine| {
        if let Some((mut selection, contents)) = selection {
            if !gate.context.contains_key(CHANGE_SET) {
                let message = "--only, --except and --edit only apply to reviews of changes";
                return Err(Failure::usage(message));
            }
            for (path, bytes) in contents {
                let hash = engine.store_blob(bytes).await;
                let hash = hash.map_err(|error| Failure::failed("blobs", error))?;
                selection.edits.insert(path, format!("{SCHEME}{hash}"));
            }
            value = json!(selection);
        }
        let session = &gate.origin.session;
        let data = engine.session_data(session).await?;
        let purpose = data.as_ref().map(|data| data.purpose);
        // Graphs and the MCP server only accept decisions that are signed with the user's key.
        let must_sign = match purpose {
            Some(Purpose::Run) => Some("a decision about an MCP call"),
            Some(Purpose::Workflow) => Some("a decision about a graph"),
            _ => None,
        };
        if let Some(what) = must_sign {
            if value.get(ARGUMENTS).is_some() {
                return Err(fixed_arguments());
            }
            if engine.public_key().is_none() {
                return Err(no_key(what));
            }
        }
        let keys = context.trusted_keys();
        let by = context.user_name()?;
        let decision = Decision {
            action: action.clone(),
            value,
            by: by.clone(),
            source: SOURCE.to_owned(),
        };
        // A nested run is resumed with its outermost run.
        let run = session
            .as_str()
            .split('.')
            .next()
            .unwrap_or(session.as_str());
        // Asked before the decision, after which the run may end at once.
        let is_running = match run.parse() {
            Ok(id) => engine.is_held(&id).await?,
            Err(_) => false,
        };
        let repeated = is_repeated(engine.decide(&gate.id, decision).await?, &keys)?;
        let project = data.as_ref().and_then(session_project);
        if action == ActionId::ApproveProject {
            let project = project.as_deref().unwrap_or(context.settings.project());
            let key = context.signing_key()?.cloned();
            store_project_approval(&gate, project, key, &by)?;
        }
        let next = match purpose {
            Some(Purpose::Run) => None,
            Some(Purpose::Workflow) => {
                let project = project.filter(|project| project != context.settings.project());
                (!is_running).then(|| resume_command(run, project.as_deref()))
            }
            _ => (!repeated).then(|| format!("rye session resume {}", session.short())),
        };
        let gate = engine.gate(&gate.id).await?.unwrap_or(gate);
        Ok(Box::new(Answer::new(&gate, action, repeated, next)) as Box<dyn Report>)
    })
}

fn no_key(what: &str) -> Failure {
    let message = format!("{what} must be signed, but you have no signing key");
    Failure::failed("no_key", message).hint("rye init")
}

/// A decision that was made.
struct Answer {
    title: String,
    body: String,
    /// The arguments that replace those of the call.
    edited: Option<Value>,
    /// The gate after the decision, as JSON.
    gate: Value,
    action: ActionId,
    /// Whether the same decision was made before.
    repeated: bool,
    next: Option<String>,
}

impl Answer {
    fn new(gate: &Gate, action: ActionId, repeated: bool, next: Option<String>) -> Self {
        Self {
            title: gate.title.clone(),
            body: gate.body.clone(),
            edited: edited_by_decision(gate).cloned(),
            gate: json!(gate),
            action,
            repeated,
            next,
        }
    }
}

impl Report for Answer {
    fn json(&self) -> Value {
        let (gate, id) = (&self.gate, &self.gate["id"]);
        json!({ "gate": id, "action": self.action, "repeated": self.repeated, "decision_gate": gate })
    }

    fn show(&self, page: &mut Page) {
        let repeated = if self.repeated { " (repeated)" } else { "" };
        let decision = describe_action(&self.action);
        page.line(paint(GOOD, format_args!("{decision}{repeated}")));
        for line in gate_render::lines(&self.title, &self.body, page.width()) {
            page.line(line);
        }
        if let Some(edited) = &self.edited {
            let edited = lillux::quote_block(&format!("{edited:#}"));
            for line in gate_render::lines("with the edited arguments:", &edited, page.width()) {
                page.line(line);
            }
        }
    }

    fn next_command(&self) -> Option<String> {
        self.next.clone()
    }
}
