//! What the published implementation let happen, tried here.
//!
//! Each row of the design's table of holes is a test below, or is held where
//! the thing itself is:
//!
//! | hole | test |
//! |---|---|
//! | the text of a signed directive edited | rye-items, `of_a_partially_signed_directive_only_the_covered_element_is_there` |
//! | `sign` rewrote files outside | rye-items, `links_within_a_space_are_followed_and_links_out_of_it_are_refused` |
//! | a zombie counted as alive | lillux, `a_zombie_is_dead` |
//! | `status` and `kill` with pid 4294967295 | lillux, `wrong_usage_is_explained` |
//! | an object corrupted on disk | lillux, `corrupted_bytes_are_named_and_never_returned` |
//! | a tool error over MCP | here the envelope's `status`: `a_tool_that_says_it_failed_has_failed` |

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use lillux::durable::Existing;
use rye_executor::{Request, Status};
use rye_items::{Comment, ItemRef, OwnKeys, signature};
use serde_json::{Value, json};
use support::{BASH, MARK, World};

/// Gives its parameters back.
const ECHO: &str = "cat\n";

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[tokio::test]
async fn a_trust_file_in_a_project_makes_no_key_count() {
    let world = World::new();
    let eve = world.folder().join("eve");
    let key = OwnKeys::of(&eve).generate("Eve", Existing::Refuse).unwrap();
    let signed = |text: &str| {
        let time = "2026-01-01T00:00:00Z";
        let binding = signature::Binding::item("tools/it.sh");
        signature::sign(text.as_bytes(), &Comment::HASH, &binding, &key, time, None).unwrap()
    };
    world.write("tools/it.sh", "");
    fs::write(world.at("tools/it.sh"), signed(&format!("{BASH}{MARK}"))).unwrap();
    // Signed by itself, and then not signed at all.
    let trusted = world.at("config/keys/trusted");
    copy_all(&eve.join(".ai/config/keys/trusted"), &trusted);
    let file = trusted.join(format!("{}.toml", key.public().fingerprint()));
    for unsigned in [false, true] {
        if unsigned {
            let text = signature::unsigned(&fs::read(&file).unwrap());
            fs::write(&file, text).unwrap();
        }
        let error = world.refused("it", json!({})).await;
        assert_eq!(error.code, "untrusted_key");
        let ignored = format!("{} was ignored", file.display());
        assert!(error.message.contains(&ignored), "{}", error.message);
    }
}

#[tokio::test]
async fn an_unsigned_extractor_table_of_a_project_changes_nothing() {
    let world = World::new();
    let table = "extensions:\n  .txt: { parser: header, comment: '#', kinds: [tool] }\n\
                 fields:\n  header:\n    executor_id: [executor_id]\n";
    world.write("tools/it.txt", &format!("{BASH}{MARK}"));
    world.write("tools/rye/core/extractors/tool_extractor.yaml", table);
    let error = world.refused("it", json!({})).await;
    assert_eq!(error.code, "not_found", "{}", error.message);
}

#[tokio::test]
async fn an_unsigned_runtime_is_refused_in_a_dry_run_too() {
    let world = World::new();
    let runtime = "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: subprocess\n\
                   config: {command: /bin/sh, args: [\"{tool_path}\", \"{project_path}\"]}\n";
    world.write("tools/rt.yaml", runtime);
    let tool = format!("# executor_id: rt\n# version: \"1.0.0\"\n{MARK}");
    world.signed("tools/it.sh", &tool);
    assert_eq!(world.refused("it", json!({})).await.code, "unsigned");
}

#[tokio::test]
async fn names_and_links_do_not_lead_out_of_a_space() {
    for name in [
        "tool:../../../outside/x",
        "../x",
        "/etc/passwd",
        "tool:/tmp/x",
        "a/../../x",
        "a\\b",
        "a\0b",
        "",
    ] {
        assert!(name.parse::<ItemRef>().is_err(), "{name:?}");
    }
    let world = World::new();
    world.script("good", MARK);
    let outside = world.folder().join("outside.sh");
    fs::rename(world.at("tools/good.sh"), &outside).unwrap();
    symlink(&outside, world.at("tools/it.sh")).unwrap();
    let error = world.refused("it", json!({})).await;
    assert_eq!(error.code, "leaves_space", "{}", error.message);
}

#[tokio::test]
async fn two_files_of_one_id_are_both_named() {
    let world = World::new();
    world.script("it", MARK);
    world.signed("tools/it.py", "__executor_id__ = \"subprocess\"\n");
    let error = world.refused("it", json!({})).await;
    assert_eq!(error.code, "ambiguous");
    for name in ["tools/it.sh", "tools/it.py"] {
        assert!(error.message.contains(name), "{}", error.message);
    }
}

#[tokio::test]
async fn wrong_missing_and_extra_parameters_are_all_told() {
    let world = World::new();
    let schema = "# config_schema: {type: object, required: [a, b], additionalProperties: false, properties: {a: {type: string}, b: {type: string}}}\n";
    world.signed("tools/it.sh", &format!("{BASH}{schema}{MARK}"));
    let error = world.refused("it", json!({"a": 1, "c": 2})).await;
    assert_eq!(error.code, "invalid_parameters");
    assert_eq!(
        error.violations.as_array().unwrap().len(),
        3,
        "{}",
        error.message
    );
}

#[tokio::test]
async fn what_looks_like_a_template_in_a_parameter_is_passed_on() {
    let world = World::new();
    world.script("echo", ECHO);
    world.signed(
        "tools/words.yaml",
        "version: \"1.0.0\"\nexecutor_id: subprocess\n\
         config: {command: printf, args: [\"%s\\n\", \"{a}\", \"<{b}>\", \"{c}\"]}\n",
    );
    let odd = json!({
        "a": "${HOME} ${NONE:-x} {b} {tool_path}",
        "b": "{project_path} $(touch ran) `touch ran`",
        "c": "{a}; touch ran",
    });
    let envelope = world.run("echo", odd.clone()).await;
    assert_eq!(envelope.data, odd);
    let envelope = world.run("words", odd).await;
    assert_eq!(
        envelope.data["stdout"],
        "${HOME} ${NONE:-x} {b} {tool_path}\n<{project_path} $(touch ran) `touch ran`>\n{a}; touch ran\n"
    );
    assert!(!world.ran());
}

#[tokio::test]
async fn parameters_named_as_options_are_the_tools_own() {
    let world = World::new();
    world.script("echo", ECHO);
    let named = json!({
        "timeout": 0.001, "cwd": "/nowhere", "env": {"PATH": "/nowhere"},
        "input_data": "other", "tool_path": "/etc/passwd", "command": "touch ran",
        "args": ["x"], "dry_run": true, "params_json": "{}", "project_path": "/",
    });
    let envelope = world.run("echo", named.clone()).await;
    assert_eq!(envelope.status, Status::Success, "{envelope:?}");
    assert_eq!(envelope.data, named);
    assert!(!world.ran());
}

#[tokio::test]
async fn a_substitution_in_a_parameter_of_a_bash_tool_is_data() {
    let world = World::new();
    world.script("echo", ECHO);
    world.signed(
        "tools/said.yaml",
        "version: \"1.0.0\"\nexecutor_id: rye/core/runtimes/bash/bash\nconfig: {command: \"echo {x}\"}\n",
    );
    // Also where the author has put quotes around it.
    world.signed(
        "tools/quoted.yaml",
        "version: \"1.0.0\"\nexecutor_id: rye/core/runtimes/bash/bash\n\
         config: {command: \"printf '%s\\n' \\\"{x}\\\" '{x}' \\\"${FROM_ENV}\\\"\"}\n",
    );
    let value = "$(touch ran) `touch ran` '; touch ran; ' \"; touch ran; \"";
    fs::write(
        world.project().join(".env"),
        "FROM_ENV=$(touch ran)\"\\\";touch ran\n",
    )
    .unwrap();
    let odd = json!({"x": value});
    assert_eq!(world.run("echo", odd.clone()).await.data, odd);
    let envelope = world.run("said", odd.clone()).await;
    assert_eq!(envelope.data["stdout"], format!("{value}\n"));
    let envelope = world.run("quoted", odd.clone()).await;
    let printed = envelope.data["stdout"].as_str().unwrap();
    assert!(
        printed.starts_with(&format!("{value}\n{value}\n$(touch ran)")),
        "{envelope:?}"
    );
    assert!(!world.ran());
}

#[tokio::test]
async fn a_grandchild_that_holds_the_output_does_not_outlive_the_timeout() {
    let world = World::new();
    world.script("it", "(setsid sleep 300 &) ; sleep 300\n");
    let mut request = Request::new("it".parse().unwrap());
    request.timeout = Some(Duration::from_secs(1));
    let start = Instant::now();
    let envelope = world.executor.execute(request).await;
    let took = start.elapsed();
    assert_eq!(envelope.error.unwrap().code, "timeout");
    assert!(took < Duration::from_secs(6), "{took:?}");
}

#[tokio::test]
async fn much_input_and_much_output_flow_at_once() {
    let world = World::new();
    world.script("echo", ECHO);
    let much = json!({"x": "y".repeat(200_000)});
    assert_eq!(world.run("echo", much.clone()).await.data, much);
}

#[tokio::test]
async fn whatever_json_a_tool_prints_is_its_data() {
    let world = World::new();
    for (number, value) in [
        json!([1, {"a": 2}]),
        json!(7),
        json!("text"),
        json!(true),
        json!({}),
    ]
    .into_iter()
    .enumerate()
    {
        world.script(&format!("t{number}"), &format!("echo '{value}'\n"));
        let envelope = world.run(&format!("t{number}"), json!({})).await;
        assert_eq!(envelope.status, Status::Success);
        assert_eq!(envelope.data, value);
    }
}

#[tokio::test]
async fn a_tool_that_says_it_failed_has_failed() {
    let world = World::new();
    world.script(
        "it",
        "echo '{\"success\": false, \"error\": \"no luck\"}'\n",
    );
    let envelope = world.run("it", json!({})).await;
    assert_eq!(envelope.status, Status::Error);
    let error = envelope.error.unwrap();
    assert_eq!(
        (error.code.as_str(), error.message.as_str()),
        ("tool_failed", "no luck")
    );
    assert_eq!(envelope.data["error"], "no luck");
}

#[tokio::test]
async fn an_exit_code_together_with_json_is_kept() {
    let world = World::new();
    world.script("it", "echo '{\"a\": 1}'; echo why >&2; exit 3\n");
    let envelope = world.run("it", json!({})).await;
    assert_eq!(envelope.status, Status::Error);
    assert_eq!(envelope.metadata["exit_code"], 3);
    assert_eq!(envelope.metadata["stderr"], "why\n");
    assert_eq!(envelope.data, json!({"a": 1}));
    assert_eq!(envelope.error.unwrap().code, "exit_code");
}

#[tokio::test]
async fn empty_standard_input_is_no_parameters() {
    let world = World::new();
    let tool = |executor: &str| {
        format!(
            "__executor_id__ = \"{executor}\"\nCONFIG = {{\"input_data\": \"\"}}\n\
             def execute(params, project_path):\n    return {{\"params\": params}}\n"
        )
    };
    world.signed("tools/it.py", &tool("rye/core/runtimes/python/function"));
    let envelope = world.run("it", json!({"x": 1})).await;
    assert_eq!(envelope.data, json!({"params": {}}), "{envelope:?}");
    world.signed(
        "tools/none.yaml",
        "version: \"1.0.0\"\nexecutor_id: subprocess\nconfig: {command: cat}\n",
    );
    let envelope = world
        .run("none", Value::Object(serde_json::Map::new()))
        .await;
    assert_eq!(envelope.data["stdout"], "");
}

/// None of them ends before all have begun.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_calls_go_on_at_once() {
    let world = World::new();
    let wait = "mkdir -p begun; touch begun/$$; \
                until [ $(ls begun | wc -l) = 32 ]; do sleep 0.05; done";
    world.script("wait", &format!("{wait}\n"));
    let calls = (0..32).map(|_| {
        let executor = world.executor.clone();
        let mut request = Request::new("wait".parse().unwrap());
        request.timeout = Some(Duration::from_mins(2));
        tokio::spawn(async move { executor.execute(request).await })
    });
    for call in calls.collect::<Vec<_>>() {
        let envelope = call.await.unwrap();
        assert!(envelope.error.is_none(), "{envelope:?}");
    }
}
