//! Gates of graph runs in all projects.

use std::path::{Path, PathBuf};

use rye_engine::arguments::ARGUMENTS;
use rye_engine::audit;
use rye_engine::protocol::{Gate, Millis, Resolution, short_id};
use rye_engine::store::PostOutcome;
use rye_graph::{GateFile, PendingIndex, ResolveOutcome, RunStore};
use rye_host::engine::{answer_command, current_user};
use rye_host::{PENDING_INDEX, TrustedKeys};
use serde_json::{Value, json};

use super::{Answer, fixed_arguments, is_repeated, no_key};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::printer::Outcome;

/// A gate of a graph run.
pub(super) struct GraphGate {
    pub(super) question: GateFile,
    /// The project, if it is not the current one.
    pub(super) other_project: Option<PathBuf>,
    trust: TrustedKeys,
}

impl GraphGate {
    pub(super) fn is_pending(&self) -> bool {
        self.question.status(&self.trust).is_pending()
    }

    /// The gate with its current status.
    pub(super) fn current_gate(&self) -> Gate {
        Gate {
            status: self.question.status(&self.trust),
            ..self.question.gate.clone()
        }
    }

    pub(super) fn json(&self, here: &Path) -> Value {
        let mut gate = json!(self.question.gate);
        gate["graph"] = json!(self.question.gate.origin.tool);
        let project = self.other_project.as_deref().unwrap_or(here);
        gate["project"] = json!(project.to_string_lossy());
        gate
    }

    /// The graph, run and project, for people.
    pub(super) fn origin(&self) -> String {
        let origin = &self.question.gate.origin;
        let text = format!("graph {}, run {}", origin.tool, origin.session.short());
        match &self.other_project {
            Some(project) => format!("{text}, in {}", project.display()),
            None => text,
        }
    }
}

/// The gates of all projects, those of the current one first.
pub(super) fn all(context: &Context) -> Result<Vec<GraphGate>, Failure> {
    let here = context.settings.project();
    let mut all = of_project(here, None, context)?;
    let state = context.settings.state_dir.as_ref();
    let others = state.map(|state| PendingIndex::projects(&state.value.join(PENDING_INDEX)));
    let own = here.canonicalize().ok();
    for other in others.into_iter().flatten() {
        if own.as_ref() != Some(&other) {
            // Skip projects that can no longer be read.
            all.extend(of_project(&other, Some(&other), context).unwrap_or_default());
        }
    }
    Ok(all)
}

fn of_project(
    project: &Path,
    other_project: Option<&Path>,
    context: &Context,
) -> Result<Vec<GraphGate>, Failure> {
    let questions = RunStore::new(project).gate_files()?.into_iter();
    let gates = questions.map(|question| {
        Ok(GraphGate {
            question,
            other_project: other_project.map(Path::to_owned),
            trust: trust(project, context)?,
        })
    });
    gates.collect()
}

/// The keys whose decisions count in a project.
pub(in crate::cli::commands) fn trust(
    project: &Path,
    context: &Context,
) -> Result<TrustedKeys, Failure> {
    let mut roots = context.roots()?;
    project.clone_into(&mut roots.project);
    Ok(TrustedKeys::new(&roots))
}

/// Stores the answer. The process that runs the graph notices it.
pub(super) fn answer(
    graph_gate: &GraphGate,
    action: &str,
    value: Value,
    context: &Context,
) -> Outcome {
    let gate = &graph_gate.question.gate;
    if value.get(ARGUMENTS).is_some() {
        return Err(fixed_arguments());
    }
    let actions: Vec<_> = gate.actions.iter().map(|it| it.id.as_str()).collect();
    if !actions.is_empty() && !actions.contains(&action) {
        let message = format!(
            "unknown action `{action}`; expected one of {}",
            actions.join(", ")
        );
        return Err(Failure::usage(message).hint(answer_command(gate)));
    }
    let Some(key) = context.signing_key()? else {
        return Err(no_key("a decision about a graph"));
    };
    let millis = u64::try_from(lillux::time::now().epoch_ms).unwrap_or_default();
    let mut resolution = Resolution {
        action: action.to_owned(),
        value,
        by: current_user(),
        at: Millis(millis),
        source: "cli".to_owned(),
        receipt: None,
    };
    let receipt = audit::receipt(gate, &resolution, key);
    resolution.receipt = Some(Box::new(receipt));
    let posted = match graph_gate
        .question
        .resolve(&resolution, &graph_gate.trust)?
    {
        ResolveOutcome::Recorded => PostOutcome::Written,
        ResolveOutcome::AlreadyRecorded => PostOutcome::Duplicate,
        ResolveOutcome::Conflict(first) => PostOutcome::Conflict(*first),
        ResolveOutcome::Closed(status) => PostOutcome::GateClosed(status),
    };
    let repeated = is_repeated(posted)?;
    // A nested run is resumed with its outermost run.
    let run = gate.origin.session.as_str();
    let run = run.split('.').next().unwrap_or(run);
    let other_project = graph_gate.other_project.as_deref();
    let project = other_project.unwrap_or_else(|| context.settings.project());
    let found = RunStore::new(project).find(run)?.load()?;
    let resume = resume_command(run, other_project);
    let next = (!found.state().is_live()).then_some(resume);
    let gate = graph_gate.current_gate();
    Ok(Box::new(Answer::new(&gate, action, repeated, next)))
}

/// The command that resumes a run from the current project.
pub(in crate::cli::commands) fn resume_command(run: &str, other_project: Option<&Path>) -> String {
    let run = short_id(run);
    match other_project {
        Some(project) => {
            let project = lillux::shell_word(project);
            format!("rye --project {project} graph run --resume {run}")
        }
        None => format!("rye graph run --resume {run}"),
    }
}
