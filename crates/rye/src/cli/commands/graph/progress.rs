//! How a walk goes, a line a step, on standard error.

use std::io::{self, IsTerminal as _};
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rye_graph::{Event, EventListener, JournalLine, NodeOutcome, RunStatus};

use crate::cli::engine::how_to_answer;
use crate::cli::gate_words;
use crate::cli::page::{BAD, BOLD, DIM, GOOD, HELP, WARN, one_line, paint};
use crate::cli::printer::Printer;
use crate::settings;

/// Silences it.
const QUIET: &str = "RYE_GRAPH_QUIET";

/// Somebody who tells a person how a walk goes.
pub(super) fn watcher(printer: Printer) -> EventListener {
    let quiet = printer.quiet || settings::variable(QUIET).is_some_and(|it| it == "1");
    let bar = Mutex::new(None::<ProgressBar>);
    let wants_bar = io::stderr().is_terminal();
    EventListener::new(move |line| {
        if quiet {
            return;
        }
        let Ok(mut bar) = bar.lock() else {
            return;
        };
        if let Event::ItemBegin { .. } | Event::ItemEnd { .. } = line.event {
            if wants_bar && let Event::ItemEnd { .. } = line.event {
                bar.get_or_insert_with(items).inc(1);
            }
            return;
        }
        if let Some(bar) = bar.take() {
            bar.finish_and_clear();
        }
        if let Some(words) = told(line) {
            printer.aside(&format!("{words}\n"));
        }
    })
}

fn items() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("  {spinner} {pos} items, {per_sec}") {
        bar.set_style(style);
    }
    bar
}

/// A line of the record in words, if it is one that people want to read.
pub(crate) fn told(line: &JournalLine) -> Option<String> {
    Some(match &line.event {
        Event::Started(started) => {
            let name = paint(BOLD, one_line(&started.graph));
            format!("{name} {}", paint(DIM, &started.run))
        }
        Event::Resumed { changed, .. } => {
            let how = match changed {
                Some(_) => "resumed, with the graph as it is now",
                None => "resumed",
            };
            paint(DIM, how).to_string()
        }
        Event::Step {
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
            let mut words = format!(
                "{mark} {:<16} {} {}",
                one_line(node),
                paint(DIM, format!("{:>8}", time(*duration_us))),
                keys.join(" ")
            );
            if *outcome == NodeOutcome::Cached {
                words.push_str(" kept from before");
            }
            if let Some(error) = error {
                let gap = if words.ends_with(' ') { "" } else { " " };
                words.push_str(gap);
                words.push_str(&one_line(&error.message));
            }
            words.trim_end().to_owned()
        }
        Event::Retry { attempt, error } => {
            let why = one_line(&error.message);
            format!("{} attempt {attempt}: {why}", paint(WARN, "↻"))
        }
        Event::Gate { gate } => {
            // With the mark before it.
            let width = Printer::width_of_questions().map(|it| it.saturating_sub(2));
            let lines = gate_words::lines(&gate.title, &gate.body, width);
            let words = format!("{} {}", paint(HELP, "?"), lines.join("\n"));
            let answer = paint(DIM, format!("  {}", how_to_answer(gate)));
            format!("{words}\n{answer}")
        }
        Event::Warning { node, message } => {
            let warn = paint(WARN, "warning");
            format!("{warn}: {}: {}", one_line(node), one_line(message))
        }
        Event::HookEnd {
            error: Some(error), ..
        } => {
            let warn = paint(WARN, "warning");
            format!("{warn}: a hook failed: {}", one_line(&error.message))
        }
        Event::End { status, error, .. } => {
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

/// A time, short enough for a column.
fn time(micros: u64) -> String {
    let time = Duration::from_micros(micros);
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{} ms", time.as_millis()),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}
