//! `rye eval`: runs tasks with a model and reports how many it solved.

use std::time::Duration;

use clap::ValueEnum as _;
use rye_host::eval::{EvalOptions, TaskResult, load_tasks, run as run_tasks};
use serde_json::{Value, json};

use crate::cli::args::{EvalArgs, SandboxChoice};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, GOOD, Page, paint, sanitize};
use crate::cli::printer::{Outcome, Report};
use crate::cli::table::{Cell, Table};

pub(crate) fn run(args: &EvalArgs, context: &Context) -> Outcome {
    let tasks = load_tasks(&args.files)?;
    let sandbox = args.sandbox.unwrap_or(SandboxChoice::Confined);
    let sandbox = sandbox.to_possible_value();
    let options = EvalOptions {
        model: args.model.clone(),
        scripted: args.scripted,
        sandbox: sandbox
            .map(|it| it.get_name().to_owned())
            .unwrap_or_default(),
        only: args.tasks.clone(),
        jobs: args.jobs,
    };
    let reporter = context.reporter();
    let progress = |result: &TaskResult| {
        let verdict = if result.failures.is_empty() {
            "passed"
        } else {
            "failed"
        };
        reporter.info(&format!("{} {verdict}", result.id));
    };
    let results = run_tasks(&tasks, &options, context, &progress)?;
    Ok(Box::new(EvalReport(results)))
}

struct EvalReport(Vec<TaskResult>);

impl EvalReport {
    fn passed(&self) -> usize {
        self.0.iter().filter(|it| it.failures.is_empty()).count()
    }

    fn sum(&self, value: impl Fn(&TaskResult) -> u64) -> u64 {
        self.0.iter().map(value).sum()
    }
}

fn tokens(result: &TaskResult) -> u64 {
    result.usage.input_tokens + result.usage.output_tokens
}

/// Millionths of a dollar as dollars.
fn dollars(micro_dollars: u64) -> String {
    format!(
        "${}.{:04}",
        micro_dollars / 1_000_000,
        micro_dollars % 1_000_000 / 100
    )
}

fn seconds(duration_ms: u64) -> String {
    format!("{:.1} s", Duration::from_millis(duration_ms).as_secs_f64())
}

impl Report for EvalReport {
    fn json(&self) -> Value {
        json!({
            "tasks": self.0,
            "passed": self.passed(),
            "total": self.0.len(),
            "turns": self.sum(|it| it.usage.turns),
            "tokens": self.sum(tokens),
            "micro_dollars": self.sum(|it| it.usage.micro_dollars),
            "duration_ms": self.sum(|it| it.duration_ms),
        })
    }

    fn show(&self, page: &mut Page) {
        let mut table = Table::new(["TASK", "RESULT", "TURNS", "TOKENS", "COST", "TIME"]);
        for result in &self.0 {
            let verdict = if result.failures.is_empty() {
                Cell::styled(GOOD, "passed")
            } else {
                Cell::styled(BAD, "failed")
            };
            table.row([
                Cell::new(&result.id),
                verdict,
                result.usage.turns.to_string().into(),
                tokens(result).to_string().into(),
                dollars(result.usage.micro_dollars).into(),
                seconds(result.duration_ms).into(),
            ]);
        }
        page.table(&table);
        for result in &self.0 {
            for failure in &result.failures {
                page.line(format_args!(
                    "{}: {}",
                    paint(BAD, sanitize(&result.id)),
                    sanitize(failure)
                ));
            }
        }
        page.line(format_args!(
            "{} of {} passed, {} turns, {} tokens, {}, {}",
            self.passed(),
            self.0.len(),
            self.sum(|it| it.usage.turns),
            self.sum(tokens),
            dollars(self.sum(|it| it.usage.micro_dollars)),
            seconds(self.sum(|it| it.duration_ms)),
        ));
    }

    fn failure(&self) -> Option<Failure> {
        let failed = self.0.len() - self.passed();
        let message = format!("{failed} of {} tasks failed", self.0.len());
        (failed > 0).then(|| Failure::failed("tasks_failed", message))
    }
}
