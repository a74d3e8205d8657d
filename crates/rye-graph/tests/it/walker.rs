//! Semantics of graphs, with in-memory runs and tools that are functions.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rye_graph::{
    DispatchFuture, Dispatcher, EffectClass, Graph, Limits, NodeError, RunResult, RunStatus,
    ToolCall, ToolTraits, run_in_memory,
};
use rye_items::ItemId;
use serde_json::{Value, json};

/// Tools: `echo` returns its parameters, `fail` fails, `flaky` fails twice, `slow` yields to
/// other calls.
#[derive(Default)]
struct Tools {
    calls: Mutex<Vec<(String, Value)>>,
    flaky: AtomicUsize,
    running: AtomicUsize,
    max_running: AtomicUsize,
}

impl Dispatcher for Tools {
    fn traits(&self, _: &ItemId) -> Result<ToolTraits, NodeError> {
        Ok(ToolTraits {
            effect: EffectClass::Pure,
            is_graph: false,
            hash: None,
        })
    }

    fn call(&self, call: ToolCall) -> DispatchFuture<'_> {
        let (name, params) = (call.item.to_string(), call.params);
        self.calls
            .lock()
            .unwrap()
            .push((name.clone(), params.clone()));
        Box::pin(async move {
            match name.as_str() {
                "echo" => Ok(params),
                "flaky" if self.flaky.fetch_add(1, Ordering::Relaxed) < 2 => {
                    Err(NodeError::new("tool_failed", "not yet"))
                }
                "flaky" => Ok(json!("at last")),
                "slow" => {
                    let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
                    self.max_running.fetch_max(running, Ordering::SeqCst);
                    for _ in 0..3 {
                        tokio::task::yield_now().await;
                    }
                    self.running.fetch_sub(1, Ordering::SeqCst);
                    if params["n"] == 3 {
                        return Err(NodeError::new("tool_failed", "three is too many"));
                    }
                    Ok(params["n"].clone())
                }
                _ => Err(NodeError::new("tool_failed", "it failed")),
            }
        })
    }
}

fn graph(nodes: &str, more: &str) -> Graph {
    let text = format!(
        "permissions: [\"rye.execute.tool.*\"]\nconfig:\n  start: a\n{more}\n  nodes:\n{nodes}"
    );
    let parsed = Graph::parse(text.as_bytes()).unwrap();
    let problems = parsed.problems;
    parsed
        .graph
        .unwrap_or_else(|| panic!("{problems:?}\n{text}"))
}

async fn run_graph(nodes: &str, more: &str, inputs: Value) -> (RunResult, Tools) {
    let tools = Tools::default();
    let result = run_in_memory(&graph(nodes, more), &tools, inputs, Limits::default()).await;
    (result, tools)
}

#[tokio::test]
async fn call_lists_interpolated_parameters() {
    struct Names(Mutex<Vec<Vec<String>>>);
    impl Dispatcher for Names {
        fn traits(&self, item: &ItemId) -> Result<ToolTraits, NodeError> {
            Tools::default().traits(item)
        }
        fn call(&self, call: ToolCall) -> DispatchFuture<'_> {
            self.0.lock().unwrap().push(call.interpolated);
            Box::pin(async { Ok(json!({})) })
        }
    }
    let nodes = "    a: { action: { item_id: echo, params: { x: \"ls ${inputs.d}\", y: ls, \
                 z: [\"${inputs.d}\"] } }, next: b }\n    \
                 b: { action: { item_id: echo, params: \"${inputs.all}\" }, next: c }\n    \
                 c: { type: foreach, over: [1], as: n, action: { item_id: echo, params: { n: \"${n}\" } } }\n";
    let names = Names(Mutex::default());
    let inputs = json!({"d": "x", "all": {"p": 1}});
    run_in_memory(&graph(nodes, ""), &names, inputs, Limits::default()).await;
    let names = names.0.into_inner().unwrap();
    assert_eq!(names, [vec!["x", "z"], vec!["p"], vec!["n"]]);
}

#[tokio::test]
async fn results_are_assigned_and_edges_are_selected() {
    let nodes = r#"
    a: { action: { item_id: echo, params: { n: "${inputs.n}" } }, assign: { n: "${result.n}" },
         next: [{ to: big, when: { path: state.n, op: gt, value: 3 } }, { to: small }] }
    big: { type: return, output: { size: "big", n: "${state.n}" } }
    small: { type: return, output: { size: "small" } }
"#;
    let (result, _) = run_graph(nodes, "", json!({"n": 5})).await;
    assert_eq!(result.output, json!({"size": "big", "n": 5}));
    let (result, _) = run_graph(nodes, "", json!({"n": 1})).await;
    assert_eq!(result.output, json!({"size": "small"}));
    assert_eq!((result.status, result.steps), (RunStatus::Completed, 2));
}

#[tokio::test]
async fn loop_ends_by_condition_or_max_steps() {
    let nodes = r#"
    a: { action: { item_id: echo, params: { s: "${state.s || ''}x" } }, assign: { s: "${result.s}" },
         next: [{ to: a, when: { not: { path: state.s, op: matches, value: "^x{4}$" } } }, { to: z }] }
    z: { type: return, output: "${state.s}" }
"#;
    let (result, _) = run_graph(nodes, "", json!({})).await;
    assert_eq!(result.output, json!("xxxx"));
    let (result, _) = run_graph(nodes, "  max_steps: 2", json!({})).await;
    assert_eq!(result.status, RunStatus::Limit);
    assert_eq!(result.state["s"], "xx");
    assert_eq!(result.node.as_deref(), Some("a"));
}

#[tokio::test]
async fn errors_are_handled_by_on_error_and_then_by_the_policy() {
    let routed = r#"
    a: { action: { item_id: fail }, on_error: b, next: c }
    b: { type: return, output: "${state._last_error}" }
    c: { type: return }
"#;
    let (result, _) = run_graph(routed, "", json!({})).await;
    let last = json!({"node": "a", "error": "it failed", "code": "tool_failed"});
    assert_eq!(result.output, last);
    let plain =
        "    a: { action: { item_id: fail }, next: b }\n    b: { type: return, output: 1 }\n";
    let (result, _) = run_graph(plain, "", json!({})).await;
    assert_eq!(
        (result.status, result.node.as_deref()),
        (RunStatus::Failed, Some("a"))
    );
    let (result, _) = run_graph(plain, "  on_error: continue", json!({})).await;
    assert_eq!(
        (result.status, result.output),
        (RunStatus::Completed, json!(1))
    );
}

#[tokio::test]
async fn call_is_retried_according_to_the_node() {
    let nodes =
        "    a: { action: { item_id: flaky }, retry: { max: 2 }, assign: { r: \"${result}\" } }\n";
    let (result, tools) = run_graph(nodes, "", json!({})).await;
    assert_eq!(result.output, json!({"r": "at last"}));
    assert_eq!(tools.calls.lock().unwrap().len(), 3);
    let nodes = nodes.replace("max: 2", "max: 1");
    let (result, tools) = run_graph(&nodes, "", json!({})).await;
    assert_eq!(result.status, RunStatus::Failed);
    assert_eq!(tools.calls.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn foreach_keeps_order_and_concurrency_and_isolates_failures() {
    let nodes = |parallel: bool| {
        format!(
            "    a: {{ type: foreach, over: \"${{inputs.l}}\", as: n, parallel: {parallel}, max_concurrency: 4,\n\
             \x20        action: {{ item_id: slow, params: {{ n: \"${{n}}\" }} }}, collect: r, on_error: z, next: z }}\n\
             \x20   z: {{ type: return, output: \"${{state.r}}\" }}\n"
        )
    };
    let list: Vec<_> = (10..40).collect();
    let (result, tools) = run_graph(&nodes(true), "", json!({"l": list})).await;
    assert_eq!(result.output, json!(list));
    assert_eq!(tools.max_running.load(Ordering::SeqCst), 4);
    let (result, tools) = run_graph(&nodes(false), "", json!({"l": [2, 3, 4]})).await;
    let failed = json!({"error": "three is too many", "code": "tool_failed"});
    assert_eq!(result.output, json!([2, failed, 4]));
    let message = &result.state["_last_error"]["error"];
    assert_eq!(
        message,
        "1 of 3 elements failed; element 1: three is too many"
    );
    assert_eq!(tools.max_running.load(Ordering::SeqCst), 1);
    let (result, _) = run_graph(&nodes(true), "", json!({"l": []})).await;
    assert_eq!(result.output, json!([]));
    let (result, _) = run_graph(&nodes(true), "", json!({"l": "text"})).await;
    assert_eq!(result.state["_last_error"]["code"], "not_a_list");
}

#[tokio::test]
async fn missing_permission_always_fails_the_run() {
    let text = "permissions: [\"rye.execute.tool.echo\"]\nconfig: { start: a, on_error: continue, \
                nodes: { a: { action: { item_id: \"${inputs.tool}\" }, on_error: b }, b: { type: return } } }";
    let graph = Graph::parse(text.as_bytes()).unwrap().graph.unwrap();
    let tools = Tools::default();
    let result = run_in_memory(&graph, &tools, json!({"tool": "fail"}), Limits::default()).await;
    assert_eq!(result.status, RunStatus::Failed);
    assert_eq!(result.error.unwrap().code, "not_permitted");
    assert!(tools.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn hooks_run_on_their_events_and_failures_are_warnings() {
    let hooks = r#"  hooks:
    - { event: graph_started, action: { item_id: echo, params: { at: start } } }
    - { event: after_step, condition: { path: state.n, op: eq, value: 2 }, action: { item_id: echo, params: { at: "step ${result.step}" } } }
    - { event: error, action: { item_id: echo, params: { at: "${result.error.message}" } } }
    - { event: graph_completed, action: { item_id: fail } }"#;
    let nodes = r"
    a: { type: gate, assign: { n: 1 }, next: b }
    b: { type: gate, assign: { n: 2 }, next: c }
    c: { action: { item_id: fail }, on_error: d }
    d: { type: gate, assign: { n: 3 } }
";
    let (result, tools) = run_graph(nodes, hooks, json!({})).await;
    assert_eq!(result.output, json!({"n": 3}));
    let calls = tools.calls.lock().unwrap();
    let hooks: Vec<_> = calls
        .iter()
        .map(|(_, params)| params["at"].clone())
        .collect();
    assert_eq!(
        hooks,
        [
            json!("start"),
            json!("step 2"),
            Value::Null,
            json!("it failed"),
            json!("step 3"),
            Value::Null
        ]
    );
    assert_eq!(result.warnings.len(), 1, "{:?}", result.warnings);
}

#[tokio::test]
async fn missing_value_is_a_warning_and_single_steps_pause() {
    let nodes = "    a: { type: gate, assign: { b: \"${inputs.name2}\" }, next: c }\n    c: { type: return }\n";
    let graph = graph(nodes, "");
    let limits = Limits {
        steps: Some(1),
        timeout: None,
    };
    let result = run_in_memory(&graph, &Tools::default(), json!({"name": 1}), limits).await;
    assert_eq!(
        (result.status, result.node.as_deref()),
        (RunStatus::Paused, Some("c"))
    );
    assert_eq!(
        result.warnings,
        ["a: `inputs.name2` has no value; did you mean `inputs.name`?"]
    );
}
