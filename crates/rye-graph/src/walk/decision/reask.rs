//! Gates whose question changed since they were opened.

use rye_engine::audit::CHAIN_HASH;
use rye_protocol::{Gate, GateId};

/// Whether two gates have the same question, answers and graph.
pub(super) fn is_same(one: &Gate, other: &Gate) -> bool {
    one.kind == other.kind
        && one.title == other.title
        && one.body == other.body
        && one.actions == other.actions
        && one.context.get(CHAIN_HASH) == other.context.get(CHAIN_HASH)
        && one.origin == other.origin
}

/// Creates a gate that replaces `former` and shows why.
pub(super) fn replacement(gate: &Gate, former: &Gate, round: u32) -> Gate {
    let mut gate = gate.clone();
    let (before, now) = (question_text(former), question_text(&gate));
    let what = if before != now {
        let diff = similar::TextDiff::from_lines(&before, &now);
        let diff = diff.unified_diff().context_radius(0).to_string();
        let lines = diff.lines().filter(|line| !line.starts_with("@@"));
        let lines: Vec<_> = lines.collect();
        format!("the question changed.\n{}", lines.join("\n"))
    } else if former.context.get(CHAIN_HASH) != gate.context.get(CHAIN_HASH) {
        "the graph changed.".to_owned()
    } else {
        "it is not signed by a trusted key.".to_owned()
    };
    let origin = &mut gate.origin;
    origin.resume_key = format!("{}:{round}", origin.resume_key);
    gate.id = GateId::new(
        &origin.session,
        &origin.thread,
        &origin.prompt,
        &origin.resume_key,
    );
    let space = if gate.body.is_empty() { "" } else { "\n\n" };
    let note = format!("The previous answer is void: {what}");
    gate.body = format!("{}{space}{note}", gate.body);
    gate
}

/// The question as text, one line per part.
fn question_text(gate: &Gate) -> String {
    let answers: Vec<_> = gate.actions.iter().map(|it| it.id.as_str()).collect();
    let answers = answers.join(", ");
    format!("{}\n{}\n{answers}\n", gate.title, gate.body)
}
