//! Progress of a graph on standard error, a line per step.

use std::io::{self, IsTerminal as _};
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rye_graph::{JournalLine, NodeOutcome, RunEvent, RunStatus};
use rye_host::engine::answer_command;
use rye_host::settings;

use crate::cli::gate_render;
use crate::cli::page::{BAD, BOLD, DIM, GOOD, HELP, WARN, one_line, paint};
use crate::cli::printer::Printer;

/// Variable that turns the progress off.
const QUIET: &str = "RYE_GRAPH_QUIET";

/// A function that prints the progress of a graph.
pub(super) fn watcher(printer: Printer) -> impl Fn(&JournalLine) + Send + Sync {
    let quiet = printer.quiet || settings::variable(QUIET).is_some_and(|it| it == "1");
    let bar = Mutex::new(None::<ProgressBar>);
    let wants_bar = io::stderr().is_terminal();
    move |line| {
        if quiet {
            return;
        }
        let Ok(mut bar) = bar.lock() else {
            return;
        };
        if let RunEvent::ItemBegin { .. } | RunEvent::ItemEnd { .. } = line.event {
            if wants_bar && let RunEvent::ItemEnd { .. } = line.event {
                bar.get_or_insert_with(item_counter).inc(1);
            }
            return;
        }
        if let Some(bar) = bar.take() {
            bar.finish_and_clear();
        }
        if let Some(text) = describe(line) {
            printer.print_stderr(&format!("{text}\n"));
        }
    }
}

fn item_counter() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("  {spinner} {pos} items, {per_sec}") {
        bar.set_style(style);
    }
    bar
}

/// Describes a line of the record; `None` for lines that only matter to rye.
pub(crate) fn describe(line: &JournalLine) -> Option<String> {
    Some(match &line.event {
        RunEvent::Started(started) => {
            let name = paint(BOLD, one_line(&started.graph));
            format!("{name} {}", paint(DIM, line.run.short()))
        }
        RunEvent::Resumed { changed, .. } => {
            let text = match changed {
                Some(_) => "resumed with the changed graph",
                None => "resumed",
            };
            paint(DIM, text).to_string()
        }
        RunEvent::Step {
            node,
            outcome,
            set,
            error,
            duration_us,
            ..
        } => {
            let mark = match outcome {
                NodeOutcome::Done => paint(GOOD, "✓"),
                NodeOutcome::Cached => paint(GOOD, "="),
                NodeOutcome::Failed => paint(BAD, "✗"),
                NodeOutcome::Interrupted => paint(WARN, "?"),
            };
            let keys = set.keys().filter(|key| !key.starts_with('_'));
            let keys: Vec<_> = keys.map(|key| format!("+{}", one_line(key))).collect();
            let mut text = format!(
                "{mark} {:<16} {} {}",
                one_line(node),
                paint(DIM, format!("{:>8}", duration(*duration_us))),
                keys.join(" ")
            );
            if *outcome == NodeOutcome::Cached {
                text.push_str(" cached");
            }
            if let Some(error) = error {
                let gap = if text.ends_with(' ') { "" } else { " " };
                text.push_str(gap);
                text.push_str(&one_line(&error.message));
            }
            text.trim_end().to_owned()
        }
        RunEvent::Retry { attempt, error } => {
            let why = one_line(&error.message);
            format!("{} attempt {attempt}: {why}", paint(WARN, "↻"))
        }
        RunEvent::Gate { .. } => {
            let gate = line.gate.as_ref()?;
            // Two columns for the mark.
            let width = Printer::stderr_width().map(|it| it.saturating_sub(2));
            let lines = gate_render::lines(&gate.title, &gate.body, width);
            let text = format!("{} {}", paint(HELP, "?"), lines.join("\n"));
            let answer = paint(DIM, format!("  {}", answer_command(gate)));
            format!("{text}\n{answer}")
        }
        RunEvent::Warning { node, message } => {
            let warn = paint(WARN, "warning");
            format!("{warn}: {}: {}", one_line(node), one_line(message))
        }
        RunEvent::HookEnd {
            error: Some(error), ..
        } => {
            let warn = paint(WARN, "warning");
            format!("{warn}: a hook failed: {}", one_line(&error.message))
        }
        RunEvent::End { status, error, .. } => {
            let style = match status {
                RunStatus::Completed => GOOD,
                RunStatus::Failed | RunStatus::TimedOut => BAD,
                _ => WARN,
            };
            let why = error
                .as_ref()
                .map(|error| format!(": {}", one_line(&error.message)));
            let word = paint(style, status.as_str());
            format!("{word}{}", why.unwrap_or_default())
        }
        _ => return None,
    })
}

/// A duration, short enough for a column.
fn duration(micros: u64) -> String {
    let time = Duration::from_micros(micros);
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{} ms", time.as_millis()),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}
