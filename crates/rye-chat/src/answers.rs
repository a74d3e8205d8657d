//! What commands answer that can be read off at once.

use rye_engine::Engine;
use rye_engine::model::ToolSpec;
use rye_engine::protocol::{Gate, Usage};

use crate::app::{App, dollars};
use crate::block::Block;
use crate::command::{COMMANDS, KEYS, LINES};
use crate::pane::Pane;
use crate::text::{BOLD, CYAN, DIM, Line, PLAIN, YELLOW};

pub(crate) fn help(app: &mut App) {
    let command = |(name, arguments, what): (&str, &str, &str)| {
        let name = format!("/{name} {arguments}");
        (name.trim().to_owned(), what.to_owned())
    };
    let commands = COMMANDS.map(command).to_vec();
    app.tell(Block::Listed("commands", commands));
    let key = |(key, what): &(&str, &str)| ((*key).to_owned(), (*what).to_owned());
    let keys = if app.plain { &LINES[..] } else { &KEYS[..] };
    app.tell(Block::Listed("keys", keys.iter().map(key).collect()));
}

pub(crate) fn models(app: &App) -> Block {
    let mut lines: Vec<_> = app
        .known
        .models
        .iter()
        .map(|name| chosen(name, *name == app.facts.model))
        .collect();
    lines.push(Line::new("  /model NAME chooses one", DIM));
    Block::Told(lines)
}

pub(crate) fn threads(app: &App) -> Block {
    let line = |pane: &Pane| {
        let text = format!("{} {}", app.mark(pane), pane.key);
        chosen(&text, pane.key == app.pane().key)
    };
    let mut lines: Vec<_> = app.panes.iter().map(line).collect();
    let next = if app.plain {
        ""
    } else {
        "; Ctrl-T to the next"
    };
    lines.push(Line::new(&format!("  /thread KEY goes to one{next}"), DIM));
    Block::Told(lines)
}

/// One of several.
fn chosen(name: &str, is_it: bool) -> Line {
    let mark = if is_it { "▸ " } else { "  " };
    Line::new(mark, CYAN).with(name, if is_it { BOLD } else { PLAIN })
}

/// What an agent can call, each in a sentence.
pub(crate) fn tools(engine: &Engine) -> Block {
    let row = |tool: &ToolSpec| {
        let first = tool.description.split_inclusive(". ").next();
        let first = first.unwrap_or_default().trim();
        (tool.name.clone(), first.to_owned())
    };
    Block::Listed("", engine.tools().iter().map(row).collect())
}

pub(crate) fn costs(app: &App) -> Block {
    let line = |name: &str, used: &Usage| {
        let text = format!(
            "{name}: {} of the model, {} tokens read ({} of them cached), {} written, {}",
            match used.turns {
                1 => "1 call".to_owned(),
                calls => format!("{calls} calls"),
            },
            used.input_tokens,
            used.cached_tokens,
            used.output_tokens,
            dollars(used.micro_dollars),
        );
        Line::plain(&text)
    };
    let all = app.panes.iter();
    let mut lines: Vec<_> = all.map(|pane| line(&pane.key, &pane.used)).collect();
    if app.panes.len() > 1 {
        let all = app.panes.iter().map(|pane| pane.used);
        lines.push(line("all", &all.fold(Usage::default(), Usage::plus)));
    }
    Block::Told(lines)
}

pub(crate) fn gates(gates: &[Gate]) -> Block {
    if gates.is_empty() {
        return Block::told("nothing waits for a decision");
    }
    let line = |gate: &Gate| {
        let line = Line::new("◆ ", YELLOW).with(&gate.title, BOLD);
        line.with(&format!("  {}", gate.id), DIM)
    };
    Block::Told(gates.iter().map(line).collect())
}
