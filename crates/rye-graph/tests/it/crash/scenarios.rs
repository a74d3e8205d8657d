//! Graphs of the crash tests.

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(super) nodes: &'static str,
}

/// One scenario per node type, and one for hooks and nesting. The output contains the result of
/// each node under its name.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "actions",
        nodes: r#"
    pure: { action: { item_id: pure, params: { node: pure } }, assign: { pure: "${result}" }, next: same }
    same: { action: { item_id: idempotent, params: { node: same } }, assign: { same: "${result}" }, next: once }
    once: { action: { item_id: once, params: { node: once } }, assign: { once: "${result}" }, on_error: twice, next: twice }
    twice: { action: { item_id: once, params: { node: twice } }, assign: { twice: "${result}" }, on_error: end, next: end }
    end: { type: return, output: { pure: "${state.pure}", same: "${state.same}", once: "${state.once}", twice: "${state.twice}" } }
"#,
    },
    Scenario {
        name: "foreach",
        nodes: r#"
    start: { type: foreach, over: [1, 2, 3], as: n, collect: start, on_error: many, next: many,
             action: { item_id: once, params: { node: start, n: "${n}" } } }
    many: { type: foreach, over: [1, 2, 3, 4, 5], as: n, parallel: true, max_concurrency: 3, collect: many, on_error: end, next: end,
             action: { item_id: once, params: { node: many, n: "${n}" } } }
    end: { type: return, output: { start: "${state.start}", many: "${state.many}" } }
"#,
    },
    Scenario {
        name: "repeatable",
        nodes: r#"
    start: { type: foreach, over: [1, 2, 3], as: n, parallel: true, collect: start, next: end,
             action: { item_id: idempotent, params: { node: start, n: "${n}" } } }
    end: { type: return, output: { start: "${state.start}" } }
"#,
    },
    Scenario {
        name: "gates",
        nodes: r#"
    start: { type: gate, assign: { start: "${state.start || ''}x" },
             next: [{ to: start, when: { path: state.start, op: ne, value: xxx } }, { to: end }] }
    end: { type: return, output: { start: "${state.start}" } }
"#,
    },
    Scenario {
        name: "decision",
        nodes: r#"
    start: { type: decision, title: "Approve?", assign: { start: "${result.action}" }, next: once }
    once: { action: { item_id: once, params: { node: once } }, assign: { once: "${result}" }, on_error: end, next: end }
    end: { type: return, output: { start: "${state.start}", once: "${state.once}" } }
"#,
    },
    Scenario {
        name: "ask",
        nodes: r#"
    start: { action: { item_id: ask, params: { node: start } }, assign: { start: "${result}" }, next: end }
    end: { type: return, output: { start: "${state.start}" } }
"#,
    },
    Scenario {
        name: "nested",
        nodes: r#"
    start: { action: { item_id: graph, params: { node: start } }, assign: { start: "${result}" }, next: end }
    end: { type: return, output: { start: "${state.start}" } }
"#,
    },
    Scenario {
        name: "retry",
        nodes: r#"
    start: { action: { item_id: second, params: { node: start } }, retry: { max: 3 }, assign: { start: "${result}" }, next: end }
    end: { type: return, output: { start: "${state.start}" } }
"#,
    },
    Scenario {
        name: "hooks",
        nodes: r#"
    start: { type: gate, assign: { start: 1 }, next: end }
    end: { type: return, output: { start: "${state.start}" } }
  hooks:
    - { event: graph_started, action: { item_id: hook, params: { node: hook, n: started } } }
    - { event: after_step, action: { item_id: hook, params: { node: hook, n: "${result.step}" } } }
    - { event: graph_completed, action: { item_id: hook, params: { node: hook, n: completed } } }
"#,
    },
    Scenario {
        name: "ask_each",
        nodes: r#"
    start: { type: foreach, over: [1, 2, 3], as: n, parallel: true, max_concurrency: 2, collect: start, next: end,
             action: { item_id: ask, params: { node: start, n: "${n}" } } }
    end: { type: return, output: { start: "${state.start}" } }
"#,
    },
    Scenario {
        name: "graph_each",
        nodes: r#"
    start: { type: foreach, over: [1, 2], parallel: true, collect: start, next: end,
             action: { item_id: graph, params: { node: start } } }
    end: { type: return, output: { start: "${state.start}" } }
"#,
    },
    Scenario {
        name: "any_each",
        nodes: r#"
    start: { type: foreach, over: [pure, once, graph, ask, idempotent], as: tool, parallel: true, max_concurrency: 2,
             collect: start, on_error: end, next: end, action: { item_id: "${tool}", params: { node: start, n: 1 } } }
    end: { type: return, output: { start: "${state.start}" } }
"#,
    },
    Scenario {
        name: "error_hooks",
        nodes: r"
    start: { type: gate, assign: { start: 1 }, next: fails }
    fails: { action: { item_id: fails-asked, params: { node: fails, n: 0 } } }
  hooks:
    - { event: error, action: { item_id: hook, params: { node: hook, n: first } } }
    - { event: error, action: { item_id: hook-ask, params: { node: hook, n: second } } }
    - { event: error, action: { item_id: idempotent, params: { n: third } } }
    - { event: error, action: { item_id: hook, params: { node: hook, n: fourth } } }
    - { event: after_step, condition: { path: result.step, op: eq, value: 2 }, action: { item_id: hook, params: { node: hook, n: after } } }
",
    },
    Scenario {
        name: "error_route",
        nodes: r#"
    start: { action: { item_id: fails, params: { node: start, n: 0 } }, on_error: end }
    end: { type: return, output: { start: "${state._last_error.node}" } }
  hooks:
    - { event: error, action: { item_id: hook, params: { node: hook, n: first } } }
    - { event: error, action: { item_id: graph, params: { node: hook } } }
    - { event: error, action: { item_id: hook, params: { node: hook, n: third } } }
"#,
    },
    Scenario {
        name: "limit",
        nodes: r#"
    start: { type: gate, assign: { start: "${state.start || ''}x" }, next: [{ to: start, when: { path: state.start, op: ne, value: xxxxx } }] }
  max_steps: 3
  hooks:
    - { event: limit, action: { item_id: hook, params: { node: hook, n: first } } }
    - { event: limit, action: { item_id: hook, params: { node: hook, n: second } } }
"#,
    },
    Scenario {
        name: "nothing",
        nodes: r#"
    start: { type: foreach, over: [], collect: start, action: { item_id: once, params: { node: start } }, next: end }
    end: { type: return, output: { start: "${state.start}" } }
"#,
    },
];
