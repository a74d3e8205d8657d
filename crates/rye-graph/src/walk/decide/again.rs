//! What was asked before, and is asked otherwise now.

use rye_protocol::{Gate, GateId};

use crate::gates::{QUESTION, question_hash};

/// Where a gate keeps the hash of the graph that asks.
const GRAPH: &str = "chain_hash";

/// Whether two gates ask the same: the same words and answers, of the same graph.
pub(super) fn is_same(one: &Gate, other: &Gate) -> bool {
    question_hash(one) == question_hash(other)
        && one.context.get(GRAPH) == other.context.get(GRAPH)
        && one.origin == other.origin
}

/// A gate in the place of a former one, which says what has changed.
pub(super) fn changed(gate: &Gate, former: &Gate, round: u32) -> Gate {
    let mut gate = gate.clone();
    let origin = &mut gate.origin;
    origin.resume_key = format!("{}:{round}", origin.resume_key);
    gate.id = GateId::new(
        &origin.session,
        &origin.thread,
        &origin.prompt,
        &origin.resume_key,
    );
    let (before, now) = (words(former), words(&gate));
    let what = if before == now {
        "the graph has changed since.".to_owned()
    } else {
        let diff = similar::TextDiff::from_lines(&before, &now);
        let diff = diff.unified_diff().context_radius(0).to_string();
        let lines = diff.lines().filter(|line| !line.starts_with("@@"));
        let lines: Vec<_> = lines.collect();
        format!("it was another question.\n{}", lines.join("\n"))
    };
    let space = if gate.body.is_empty() { "" } else { "\n\n" };
    let note = format!("What was said to this before does not count: {what}");
    gate.body = format!("{}{space}{note}", gate.body);
    let shown = question_hash(&gate);
    gate.context.insert(QUESTION.to_owned(), shown.into());
    gate
}

/// A question as text, a line for each thing.
fn words(gate: &Gate) -> String {
    let answers: Vec<_> = gate.actions.iter().map(|it| it.id.as_str()).collect();
    let answers = answers.join(", ");
    format!("{}\n{}\n{answers}\n", gate.title, gate.body)
}
