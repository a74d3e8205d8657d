//! Gates whose question changed since they were opened.

use rye_protocol::{Gate, GateId};

use crate::gates::{QUESTION_HASH, question_hash};

/// Context key of the graph hash.
const GRAPH_HASH: &str = "chain_hash";

/// Whether two gates have the same question, answers and graph.
pub(super) fn is_same(one: &Gate, other: &Gate) -> bool {
    question_hash(one) == question_hash(other)
        && one.context.get(GRAPH_HASH) == other.context.get(GRAPH_HASH)
        && one.origin == other.origin
}

/// Creates a gate that replaces `former` and shows what changed.
pub(super) fn with_changes(gate: &Gate, former: &Gate, round: u32) -> Gate {
    let mut gate = gate.clone();
    let origin = &mut gate.origin;
    origin.resume_key = format!("{}:{round}", origin.resume_key);
    gate.id = GateId::new(
        &origin.session,
        &origin.thread,
        &origin.prompt,
        &origin.resume_key,
    );
    let (before, now) = (question_text(former), question_text(&gate));
    let what = if before == now {
        "the graph changed.".to_owned()
    } else {
        let diff = similar::TextDiff::from_lines(&before, &now);
        let diff = diff.unified_diff().context_radius(0).to_string();
        let lines = diff.lines().filter(|line| !line.starts_with("@@"));
        let lines: Vec<_> = lines.collect();
        format!("the question changed.\n{}", lines.join("\n"))
    };
    let space = if gate.body.is_empty() { "" } else { "\n\n" };
    let note = format!("The previous answer is void: {what}");
    gate.body = format!("{}{space}{note}", gate.body);
    let shown = question_hash(&gate);
    gate.context.insert(QUESTION_HASH.to_owned(), shown.into());
    gate
}

/// The question as text, one line per part.
fn question_text(gate: &Gate) -> String {
    let answers: Vec<_> = gate.actions.iter().map(|it| it.id.as_str()).collect();
    let answers = answers.join(", ");
    format!("{}\n{}\n{answers}\n", gate.title, gate.body)
}
