//! Output of slash commands that need no I/O.

use rye_engine::Engine;
use rye_engine::model::ToolSpec;
use rye_engine::protocol::{Gate, Usage};

use crate::app::{App, dollars};
use crate::block::Block;
use crate::command::{COMMANDS, KEYS, PLAIN_KEYS};
use crate::completion::Choice;
use crate::pane::Pane;
use crate::text::{BOLD, DIM, Line, PLAIN, YELLOW};

pub(crate) fn help(app: &mut App) {
    let command = |(name, arguments, what): (&str, &str, &str)| {
        let name = format!("/{name} {arguments}");
        (name.trim().to_owned(), what.to_owned())
    };
    let commands = COMMANDS.map(command).to_vec();
    app.add_block(Block::List("commands", commands));
    let key = |(key, what): &(&str, &str)| ((*key).to_owned(), (*what).to_owned());
    let keys = if app.plain {
        &PLAIN_KEYS[..]
    } else {
        &KEYS[..]
    };
    app.add_block(Block::List("keys", keys.iter().map(key).collect()));
}

/// Names to choose from, for a terminal on which the menu cannot be shown.
pub(crate) fn choices(command: &str, choices: &[Choice]) -> Block {
    if choices.is_empty() {
        return Block::notice("there is nothing to choose from");
    }
    let row = |choice: &Choice| (choice.text.clone(), choice.description.clone());
    let mut rows: Vec<_> = choices.iter().map(row).collect();
    rows.push((format!("/{command} NAME"), "to choose one".to_owned()));
    Block::List("", rows)
}

/// What the status line has no room for.
pub(crate) fn status(app: &App) -> Block {
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
    let mut rows = crate::welcome::rows(&app.info, home.as_deref());
    let pane = app.pane();
    let context = match app.info.context_window {
        Some(window) if window > 0 => format!(
            "{} of {window} tokens ({} %)",
            pane.context_tokens,
            pane.context_tokens * 100 / window
        ),
        _ => format!("{} tokens", pane.context_tokens),
    };
    rows.push(("context", context));
    let all = app.panes.iter().map(|pane| pane.usage);
    let usage = all.fold(Usage::default(), Usage::plus);
    let (input, output) = (usage.input_tokens, usage.output_tokens);
    let cost = dollars(usage.micro_dollars);
    rows.push((
        "usage",
        format!("{input} input and {output} output tokens, {cost}"),
    ));
    if let Some(branch) = &app.info.branch {
        rows.push(("branch", branch.clone()));
    }
    if let Some(role) = &app.role {
        rows.push(("role", role.clone()));
    }
    if let Some(plan) = &pane.plan {
        rows.push(("plan", format!("{} steps done", plan.progress())));
    }
    for command in &app.background {
        rows.push(("background", format!("{} {}", command.id, command.command)));
    }
    Block::Notice(
        rows.iter()
            .map(|(name, value)| crate::welcome::row(name, value))
            .collect(),
    )
}

/// The approvals of this session that hold for more than one call.
pub(crate) fn permissions(app: &App) -> Block {
    let mut lines: Vec<_> = app
        .approvals
        .iter()
        .map(|it| Line::new("✓ ", crate::text::GREEN).with(it, PLAIN))
        .collect();
    if lines.is_empty() {
        lines.push(Line::new("nothing is approved for more than one call", DIM));
    }
    lines.push(Line::new(
        "rules for all sessions: approvals.yaml, see `rye help approvals`",
        DIM,
    ));
    Block::Notice(lines)
}

/// The threads, for a terminal on which the menu cannot be shown.
pub(crate) fn threads(app: &App) -> Block {
    choices("threads", &thread_choices(app))
}

/// The threads and what they do.
pub(crate) fn thread_choices(app: &App) -> Vec<Choice> {
    let choice = |pane: &Pane| {
        let current = if pane.key == app.pane().key {
            ", current"
        } else {
            ""
        };
        Choice {
            text: pane.key.clone(),
            description: format!("{}{current}", app.state(pane)),
        }
    };
    app.panes.iter().map(choice).collect()
}

/// The tools of an agent, each with the first sentence of its description.
pub(crate) fn tools(engine: &Engine) -> Block {
    let row = |tool: &ToolSpec| {
        let first = tool.description.split_inclusive(". ").next();
        let first = first.unwrap_or_default().trim();
        (tool.name.clone(), first.to_owned())
    };
    Block::List("", engine.tools().iter().map(row).collect())
}

pub(crate) fn costs(app: &App) -> Block {
    let line = |name: &str, usage: &Usage| {
        let text = format!(
            "{name}: {}, {} input tokens ({} cached), {} output tokens, {}",
            match usage.turns {
                1 => "1 model call".to_owned(),
                calls => format!("{calls} model calls"),
            },
            usage.input_tokens,
            usage.cached_tokens,
            usage.output_tokens,
            dollars(usage.micro_dollars),
        );
        Line::plain(&text)
    };
    let all = app.panes.iter();
    let mut lines: Vec<_> = all.map(|pane| line(&pane.key, &pane.usage)).collect();
    if app.panes.len() > 1 {
        let all = app.panes.iter().map(|pane| pane.usage);
        lines.push(line("total", &all.fold(Usage::default(), Usage::plus)));
    }
    Block::Notice(lines)
}

pub(crate) fn gates(gates: &[Gate]) -> Block {
    if gates.is_empty() {
        return Block::notice("no pending gates");
    }
    let line = |gate: &Gate| {
        let line = Line::new("◆ ", YELLOW).with(&gate.title, BOLD);
        line.with(&format!("  {}", gate.id.short()), DIM)
    };
    Block::Notice(gates.iter().map(line).collect())
}
