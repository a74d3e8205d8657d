use rye_items::Position;

use crate::definition::Graph;
use crate::problem::Severity;

/// Formats the problems of a graph as `line:column severity code: message (hint)`.
fn problems(text: &str) -> String {
    let parsed = Graph::parse(text.as_bytes()).unwrap();
    let lines = parsed.problems.iter().map(|problem| {
        let Position { line, column } = problem.excerpt(text.as_bytes()).position;
        let hint = problem.hint.as_ref().map(|hint| format!(" ({hint})"));
        let severity = problem.severity;
        format!(
            "{line}:{column} {severity} {}: {}{}",
            problem.code,
            problem.message,
            hint.unwrap_or_default()
        )
    });
    let problems = lines.collect::<Vec<_>>().join("\n");
    let has_errors = parsed.errors().any(|it| it.severity == Severity::Error);
    assert_eq!(parsed.graph.is_none(), has_errors, "{problems}");
    problems
}

#[test]
fn all_problems_are_reported_with_positions() {
    insta::assert_snapshot!(problems(
        r#"
permissions: ["rye.execute.tool.rye.bash.*", "rye.execute.tool.never.*"]
config:
  start: cout
  max_steps: none
  on_error: sometimes
  colour: red
  nodes:
    count:
      action: { item_id: rye/bash/bash, params: { command: "ls ${stat.x}" } }
      assigns: { files: 1 }
      next:
        - { to: manny, when: { path: state.files, op: gtt, value: 100 } }
        - { to: done }
        - { to: many }
    many: { type: foreach, as: state }
    other: { type: foreach, over: 3, action: { item_id: "a b" } }
    odd: { type: forech }
    nothing: { next: done }
    load: { action: { primary: load, item_id: x/y, params: 3 } }
    ask: { type: decision, kind: maybe, expires_in: soon }
    done: { type: return }
  hooks:
    - { event: before_step, action: { item_id: a } }
"#
    ));
}

#[test]
fn misspelt_reserved_state_key_is_reported() {
    let text = r#"
config:
  start: one
  nodes:
    one: { type: return, output: ["${state._last_error.code}", "${state._lasterror.code}"] }
"#;
    assert_eq!(
        problems(text),
        "5:64 warning never_assigned: `state._lasterror.code` is read, but `_lasterror` \
         is never assigned (did you mean `state._last_error`?)"
    );
}

#[test]
fn problems_of_the_whole_graph_are_reported_with_positions() {
    insta::assert_snapshot!(problems(
        r#"
permissions: ["rye.execute.tool.a", "rye.execute.tool.never.*"]
config:
  start: one
  nodes:
    one:
      action: { item_id: a, params: { x: "${state.lst}" } }
      assign: { list: "${result}", unread: 1 }
      next: two
    two: { action: { item_id: b }, on_error: three, next: three }
    three: { type: gate, next: two }
    dead: { type: gate, next: one }
"#
    ));
}

#[test]
fn incomplete_graphs_are_rejected() {
    for (text, code) in [
        ("[]", "wrong_type"),
        ("", "wrong_type"),
        ("config: 3", "wrong_type"),
        ("version: '1.0.0'", "no_config"),
        ("config: { start: a }", "no_nodes"),
        ("config: { start: a, nodes: [] }", "wrong_type"),
        ("config: { nodes: { a: { type: gate } } }", "no_start"),
        (
            "config: { start: b, nodes: { a: { type: gate } } }",
            "unknown_target",
        ),
    ] {
        let problems = problems(text);
        assert!(problems.contains(code), "{text}: {problems}");
    }
}

#[test]
fn valid_graph_has_no_problems() {
    let text = r#"
permissions: ["rye.execute.tool.*"]
config:
  start: list
  nodes:
    list: { action: { item_id: ls }, assign: { parts: "${result.files}" }, next: each }
    each: { type: foreach, over: "${state.parts}", as: part, parallel: true, collect: sizes,
            action: { item_id: "${part.tool}", params: { at: "${part}" } }, next: ask }
    ask: { type: decision, title: "go on with ${state.sizes.0}?", on_error: no,
           next: [{ to: list, when: { path: result.value, op: eq, value: again } }, { to: yes }] }
    "no": { type: return, output: { ok: false } }
    "yes": { type: return, output: { ok: true } }
"#;
    assert_eq!(problems(text), "");
}
