//! Gates of graphs, of all projects whose runs have asked something.

use std::path::{Path, PathBuf};

use rye_engine::arguments::ARGUMENTS;
use rye_engine::audit;
use rye_engine::protocol::{Gate, Millis, Resolution};
use rye_engine::store::PostOutcome;
use rye_graph::{GateFile, PendingIndex, ResolveOutcome, RunStore};
use rye_host::{ASKING, Trusted};
use serde_json::{Value, json};

use super::{Answered, accepted, fixed, no_key};
use crate::cli::commands::execute;
use crate::cli::context::Context;
use crate::cli::engine::{how_to_answer, person, signing_key};
use crate::cli::failure::Failure;
use crate::cli::printer::Outcome;

/// A question, and where it is asked.
pub(super) struct Asked {
    pub(super) question: GateFile,
    /// The project, where that is not the current one.
    pub(super) elsewhere: Option<PathBuf>,
    trust: Trusted,
}

impl Asked {
    pub(super) fn is_pending(&self) -> bool {
        self.question.status(&self.trust).is_pending()
    }

    /// Its gate as it stands now.
    pub(super) fn as_it_stands(&self) -> Gate {
        Gate {
            status: self.question.status(&self.trust),
            ..self.question.gate.clone()
        }
    }

    pub(super) fn json(&self, here: &Path) -> Value {
        let mut gate = json!(self.question.gate);
        gate["graph"] = json!(self.question.gate.origin.tool);
        let project = self.elsewhere.as_deref().unwrap_or(here);
        gate["project"] = json!(project.to_string_lossy());
        gate
    }

    /// Where it is from, in words.
    pub(super) fn origin(&self) -> String {
        let origin = &self.question.gate.origin;
        let words = format!("graph {}, run {}", origin.tool, origin.session);
        match &self.elsewhere {
            Some(project) => format!("{words}, in {}", project.display()),
            None => words,
        }
    }
}

/// The questions of all projects, those of this one first.
pub(super) fn all(context: &Context) -> Result<Vec<Asked>, Failure> {
    let here = context.settings.project();
    let mut all = of_project(here, None, context)?;
    let state = context.settings.state_dir.as_ref();
    let others = state.map(|state| PendingIndex::projects(&state.value.join(ASKING)));
    let own = here.canonicalize().ok();
    for other in others.into_iter().flatten() {
        if own.as_ref() != Some(&other) {
            // One that cannot be read any more asks nothing.
            all.extend(of_project(&other, Some(&other), context).unwrap_or_default());
        }
    }
    Ok(all)
}

fn of_project(
    project: &Path,
    elsewhere: Option<&Path>,
    context: &Context,
) -> Result<Vec<Asked>, Failure> {
    let questions = RunStore::new(project).gate_files()?.into_iter();
    let asked = questions.map(|question| {
        Ok(Asked {
            question,
            elsewhere: elsewhere.map(Path::to_owned),
            trust: trust(project, context)?,
        })
    });
    asked.collect()
}

/// Whose word counts in a project.
pub(in crate::cli::commands) fn trust(
    project: &Path,
    context: &Context,
) -> Result<Trusted, Failure> {
    let mut roots = execute::roots(context)?;
    project.clone_into(&mut roots.project);
    Ok(Trusted::of(&roots))
}

/// Answers it. Whoever walks the run hears of it by itself.
pub(super) fn answer(asked: &Asked, action: &str, value: Value, context: &Context) -> Outcome {
    let gate = &asked.question.gate;
    if value.get(ARGUMENTS).is_some() {
        return Err(fixed());
    }
    let actions: Vec<_> = gate.actions.iter().map(|it| it.id.as_str()).collect();
    if !actions.is_empty() && !actions.contains(&action) {
        let message = format!(
            "`{action}` is no answer to it; there are {}",
            actions.join(", ")
        );
        return Err(Failure::usage(message).hint(how_to_answer(gate)));
    }
    let Some(key) = signing_key(context)? else {
        return Err(no_key("a decision in a graph"));
    };
    let millis = u64::try_from(lillux::time::now().epoch_ms).unwrap_or_default();
    let mut resolution = Resolution {
        action: action.to_owned(),
        value,
        by: person(),
        at: Millis(millis),
        source: "cli".to_owned(),
        receipt: None,
    };
    let receipt = audit::receipt(gate, &resolution, &key);
    resolution.receipt = Some(Box::new(receipt));
    let posted = match asked.question.resolve(&resolution, &asked.trust)? {
        ResolveOutcome::Recorded => PostOutcome::Written,
        ResolveOutcome::AlreadyRecorded => PostOutcome::Duplicate,
        ResolveOutcome::Conflict(first) => PostOutcome::Conflict(*first),
        ResolveOutcome::Closed(status) => PostOutcome::GateClosed(status),
    };
    let before = accepted(posted)?;
    // A part of a run goes on with the whole.
    let run = gate.origin.session.as_str();
    let run = run.split('.').next().unwrap_or(run);
    let project = asked.elsewhere.as_deref();
    let project = project.unwrap_or_else(|| context.settings.project());
    let found = RunStore::new(project).find(run)?.read()?;
    let resume = resume(run, asked.elsewhere.as_deref());
    let next = (!found.state().is_live()).then_some(resume);
    let gate = asked.as_it_stands();
    Ok(Box::new(Answered::of(&gate, action, before, next)))
}

/// How a run goes on, from here.
pub(in crate::cli::commands) fn resume(run: &str, elsewhere: Option<&Path>) -> String {
    match elsewhere {
        Some(project) => {
            let project = lillux::shell_word(project);
            format!("rye --project {project} graph run --resume {run}")
        }
        None => format!("rye graph run --resume {run}"),
    }
}
