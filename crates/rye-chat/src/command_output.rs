//! Output of slash commands that need no I/O.

use rye_engine::Engine;
use rye_engine::model::ToolSpec;
use rye_engine::protocol::{Gate, Usage};

use crate::app::{App, dollars};
use crate::block::Block;
use crate::command::{COMMANDS, KEYS, PLAIN_KEYS};
use crate::pane::Pane;
use crate::text::{BOLD, CYAN, DIM, Line, PLAIN, YELLOW};

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

pub(crate) fn models(app: &App) -> Block {
    let mut lines: Vec<_> = app
        .completions
        .models
        .iter()
        .map(|name| list_item(name, *name == app.info.model))
        .collect();
    lines.push(Line::new("  /model NAME to choose one", DIM));
    Block::Notice(lines)
}

pub(crate) fn threads(app: &App) -> Block {
    let line = |pane: &Pane| {
        let text = format!("{} {}", app.mark(pane), pane.key);
        list_item(&text, pane.key == app.pane().key)
    };
    let mut lines: Vec<_> = app.panes.iter().map(line).collect();
    let next = if app.plain {
        ""
    } else {
        "; Ctrl-T for the next"
    };
    lines.push(Line::new(&format!("  /thread KEY to switch{next}"), DIM));
    Block::Notice(lines)
}

/// A line of a list, marked if it is the current choice.
fn list_item(name: &str, is_current: bool) -> Line {
    let mark = if is_current { "▸ " } else { "  " };
    Line::new(mark, CYAN).with(name, if is_current { BOLD } else { PLAIN })
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
