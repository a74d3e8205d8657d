//! The walker, on tools that are functions: what a graph means.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rye_graph::{
    DispatchFuture, Dispatcher, Graph, Limits, NodeError, RunResult, RunStatus, ToolCall,
    ToolTraits, run_in_memory,
};
use rye_items::{ItemId, metadata::Effect};
use serde_json::{Value, json};

/// Tools: `echo` gives its parameters back, `fail` fails, `flaky` fails so many times, `slow`
/// lets others begin, `said` says of itself that it failed.
#[derive(Default)]
struct Tools {
    calls: Mutex<Vec<(String, Value)>>,
    flaky: AtomicUsize,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Dispatcher for Tools {
    fn traits(&self, _: &ItemId) -> Result<ToolTraits, NodeError> {
        Ok(ToolTraits {
            effect: Effect::Pure,
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
                    let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
                    self.most.fetch_max(now, Ordering::SeqCst);
                    for _ in 0..3 {
                        tokio::task::yield_now().await;
                    }
                    self.now.fetch_sub(1, Ordering::SeqCst);
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
    let reading = Graph::parse(text.as_bytes()).unwrap();
    let problems = reading.problems;
    reading
        .graph
        .unwrap_or_else(|| panic!("{problems:?}\n{text}"))
}

async fn walked(nodes: &str, more: &str, inputs: Value) -> (RunResult, Tools) {
    let tools = Tools::default();
    let ended = run_in_memory(&graph(nodes, more), &tools, inputs, Limits::default()).await;
    (ended, tools)
}

#[tokio::test]
async fn a_call_names_the_parameters_that_contain_values() {
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
async fn results_are_assigned_edges_are_chosen_and_the_output_returned() {
    let nodes = r#"
    a: { action: { item_id: echo, params: { n: "${inputs.n}" } }, assign: { n: "${result.n}" },
         next: [{ to: big, when: { path: state.n, op: gt, value: 3 } }, { to: small }] }
    big: { type: return, output: { size: "big", n: "${state.n}" } }
    small: { type: return, output: { size: "small" } }
"#;
    let (ended, _) = walked(nodes, "", json!({"n": 5})).await;
    assert_eq!(ended.output, json!({"size": "big", "n": 5}));
    let (ended, _) = walked(nodes, "", json!({"n": 1})).await;
    assert_eq!(ended.output, json!({"size": "small"}));
    assert_eq!((ended.status, ended.steps), (RunStatus::Completed, 2));
}

#[tokio::test]
async fn a_loop_ends_by_its_condition_and_at_max_steps_with_its_state() {
    let nodes = r#"
    a: { action: { item_id: echo, params: { s: "${state.s || ''}x" } }, assign: { s: "${result.s}" },
         next: [{ to: a, when: { not: { path: state.s, op: matches, value: "^x{4}$" } } }, { to: z }] }
    z: { type: return, output: "${state.s}" }
"#;
    let (ended, _) = walked(nodes, "", json!({})).await;
    assert_eq!(ended.output, json!("xxxx"));
    let (ended, _) = walked(nodes, "  max_steps: 2", json!({})).await;
    assert_eq!(ended.status, RunStatus::Limit);
    assert_eq!(ended.state["s"], "xx");
    assert_eq!(ended.node.as_deref(), Some("a"));
}

#[tokio::test]
async fn errors_go_to_the_node_that_sees_to_them_then_to_the_policy() {
    let routed = r#"
    a: { action: { item_id: fail }, on_error: b, next: c }
    b: { type: return, output: "${state._last_error}" }
    c: { type: return }
"#;
    let (ended, _) = walked(routed, "", json!({})).await;
    let last = json!({"node": "a", "error": "it failed", "code": "tool_failed"});
    assert_eq!(ended.output, last);
    let plain =
        "    a: { action: { item_id: fail }, next: b }\n    b: { type: return, output: 1 }\n";
    let (ended, _) = walked(plain, "", json!({})).await;
    assert_eq!(
        (ended.status, ended.node.as_deref()),
        (RunStatus::Failed, Some("a"))
    );
    let (ended, _) = walked(plain, "  on_error: continue", json!({})).await;
    assert_eq!(
        (ended.status, ended.output),
        (RunStatus::Completed, json!(1))
    );
}

#[tokio::test]
async fn a_call_is_tried_again_as_often_as_the_node_says() {
    let nodes =
        "    a: { action: { item_id: flaky }, retry: { max: 2 }, assign: { r: \"${result}\" } }\n";
    let (ended, tools) = walked(nodes, "", json!({})).await;
    assert_eq!(ended.output, json!({"r": "at last"}));
    assert_eq!(tools.calls.lock().unwrap().len(), 3);
    let nodes = nodes.replace("max: 2", "max: 1");
    let (ended, tools) = walked(&nodes, "", json!({})).await;
    assert_eq!(ended.status, RunStatus::Failed);
    assert_eq!(tools.calls.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_foreach_keeps_order_and_bound_and_one_failure_loses_no_other() {
    let nodes = |parallel: bool| {
        format!(
            "    a: {{ type: foreach, over: \"${{inputs.l}}\", as: n, parallel: {parallel}, max_concurrency: 4,\n\
             \x20        action: {{ item_id: slow, params: {{ n: \"${{n}}\" }} }}, collect: r, on_error: z, next: z }}\n\
             \x20   z: {{ type: return, output: \"${{state.r}}\" }}\n"
        )
    };
    let list: Vec<_> = (10..40).collect();
    let (ended, tools) = walked(&nodes(true), "", json!({"l": list})).await;
    assert_eq!(ended.output, json!(list));
    assert_eq!(tools.most.load(Ordering::SeqCst), 4);
    let (ended, tools) = walked(&nodes(false), "", json!({"l": [2, 3, 4]})).await;
    let failed = json!({"error": "three is too many", "code": "tool_failed"});
    assert_eq!(ended.output, json!([2, failed, 4]));
    let message = &ended.state["_last_error"]["error"];
    assert_eq!(message, "1 of 3 items failed; item 1: three is too many");
    assert_eq!(tools.most.load(Ordering::SeqCst), 1);
    let (ended, _) = walked(&nodes(true), "", json!({"l": []})).await;
    assert_eq!(ended.output, json!([]));
    let (ended, _) = walked(&nodes(true), "", json!({"l": "text"})).await;
    let message = ended.state["_last_error"]["error"].as_str().unwrap();
    assert!(
        message.contains("`over` gives a text, not a list"),
        "{message}"
    );
}

#[tokio::test]
async fn without_a_permission_nothing_runs_and_no_route_or_policy_helps() {
    let text = "permissions: [\"rye.execute.tool.echo\"]\nconfig: { start: a, on_error: continue, \
                nodes: { a: { action: { item_id: \"${inputs.tool}\" }, on_error: b }, b: { type: return } } }";
    let graph = Graph::parse(text.as_bytes()).unwrap().graph.unwrap();
    let tools = Tools::default();
    let ended = run_in_memory(&graph, &tools, json!({"tool": "fail"}), Limits::default()).await;
    assert_eq!(ended.status, RunStatus::Failed);
    assert_eq!(ended.error.unwrap().code, "not_permitted");
    assert!(tools.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn hooks_are_asked_at_their_moments_and_change_nothing_if_they_fail() {
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
    let (ended, tools) = walked(nodes, hooks, json!({})).await;
    assert_eq!(ended.output, json!({"n": 3}));
    let calls = tools.calls.lock().unwrap();
    let told: Vec<_> = calls
        .iter()
        .map(|(_, params)| params["at"].clone())
        .collect();
    assert_eq!(
        told,
        [
            json!("start"),
            json!("step 2"),
            Value::Null,
            json!("it failed"),
            json!("step 3"),
            Value::Null
        ]
    );
    assert_eq!(ended.warnings.len(), 1, "{:?}", ended.warnings);
}

#[tokio::test]
async fn what_is_nothing_warns_and_single_steps_pause() {
    let nodes = "    a: { type: gate, assign: { b: \"${inputs.name2}\" }, next: c }\n    c: { type: return }\n";
    let graph = graph(nodes, "");
    let limits = Limits {
        steps: Some(1),
        timeout: None,
    };
    let ended = run_in_memory(&graph, &Tools::default(), json!({"name": 1}), limits).await;
    assert_eq!(
        (ended.status, ended.node.as_deref()),
        (RunStatus::Paused, Some("c"))
    );
    assert_eq!(
        ended.warnings,
        ["a: `inputs.name2` is nothing here; the nearest is `inputs.name`"]
    );
}
