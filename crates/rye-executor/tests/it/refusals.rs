//! What is refused: each with a word for scripts and a sentence for people, and
//! nothing runs.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{BASH, MARK, World};
use rye_executor::ErrorInfo;
use rye_items::UserKeys;
use serde_json::{Value, json};

fn says(error: &ErrorInfo, code: &str, parts: &[&str]) {
    assert_eq!(error.code, code, "{}", error.message);
    for part in parts {
        assert!(
            error.message.contains(part),
            "`{part}` is not in: {}",
            error.message
        );
    }
}

/// A tool that leaves a mark, run by what is named.
fn run_by(executor: &str) -> String {
    format!("# executor_id: {executor}\n# version: \"1.0.0\"\n{MARK}")
}

/// A runtime that runs the tool with a shell, and says more about itself.
fn runtime(more: &str) -> String {
    format!(
        "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: rye/core/primitives/execute\n{more}\n\
         config:\n  command: /bin/sh\n  args: [\"{{tool_path}}\", \"{{project_path}}\"]\n"
    )
}

/// A world with a runtime `rt` and the tool `pack/it` that it runs.
fn with_runtime(more: &str) -> World {
    let world = World::new();
    world.signed("tools/rt.yaml", &runtime(more));
    world.signed("tools/pack/it.sh", &run_by("rt"));
    world
}

#[tokio::test]
async fn a_loop_is_printed() {
    let world = World::new();
    for (tool, executor) in [("a", "x/b"), ("x/b", "c"), ("c", "x/b")] {
        let text = format!("version: \"1.0.0\"\nexecutor_id: {executor}\n");
        world.signed(&format!("tools/{tool}.yaml"), &text);
    }
    let error = world.refused("a", json!({})).await;
    says(&error, "cycle", &["x/b → c → x/b"]);
}

#[tokio::test]
async fn ten_links_are_enough() {
    let world = World::new();
    for number in 0..10 {
        let executor = match number {
            9 => "subprocess".to_owned(),
            _ => format!("t{}", number + 1),
        };
        let text = format!(
            "version: \"1.0.0\"\nexecutor_id: {executor}\nconfig: {{command: touch, args: [\"{{project_path}}/ran\"]}}\n"
        );
        world.signed(&format!("tools/t{number}.yaml"), &text);
    }
    let error = world.refused("t0", json!({})).await;
    says(
        &error,
        "too_deep",
        &["t0 → t1 → ", "t9 → rye/core/primitives/execute"],
    );
    let envelope = world.run("t1", json!({})).await;
    assert_eq!(envelope.chain.len(), 10, "{envelope:?}");
    assert!(world.ran());
}

#[tokio::test]
async fn a_missing_executor_names_who_asked_and_what_resembles_it() {
    let world = World::new();
    world.signed("tools/it.sh", &run_by("rye/core/runtimes/bash/bsh"));
    let error = world.refused("it", json!({})).await;
    says(
        &error,
        "executor_not_found",
        &["tool:it", "`rye/core/runtimes/bash/bsh`"],
    );
    let hint = error.hint.unwrap();
    assert!(hint.contains("rye/core/runtimes/bash/bash"), "{hint}");

    world.signed("tools/bad.sh", &run_by("../../x"));
    let error = world.refused("bad", json!({})).await;
    says(&error, "invalid_executor_id", &["tool:bad", "`../../x`"]);
    let error = world.refused("its", json!({})).await;
    says(&error, "not_found", &["tool:its not found"]);
}

#[tokio::test]
async fn a_tool_without_an_executor_is_no_primitive() {
    let world = World::new();
    world.signed("tools/it.sh", &format!("# version: \"1.0.0\"\n{MARK}"));
    let error = world.refused("it", json!({})).await;
    says(&error, "no_executor", &["tool:it", "`executor_id`"]);
    world.signed("knowledge/k.md", "---\nname: k\n---\nText.\n");
    let error = world.refused("knowledge:k", json!({})).await;
    says(&error, "not_a_tool", &["knowledge:k is not a tool"]);
}

#[tokio::test]
async fn a_tool_of_the_user_does_not_depend_on_the_project() {
    let world = World::new();
    world.signed("tools/rt.yaml", &runtime(""));
    world.signed_for_user("tools/it.sh", &run_by("rt"));
    let error = world.refused("it", json!({})).await;
    says(
        &error,
        "invalid_chain",
        &["it run by rt: ", "user space", "project space"],
    );
    // Nor does a runtime of the system, though a project shadows what it needs.
    let world = World::new();
    world.signed("tools/rye/core/primitives/execute.yaml", &runtime(""));
    world.script("it", MARK);
    world.refused("it", json!({})).await;
}

#[tokio::test]
async fn a_version_out_of_range_is_told() {
    let world = with_runtime("child_constraints: {min_version: \"2.0.0\"}");
    let error = world.refused("pack/it", json!({})).await;
    says(&error, "invalid_chain", &["1.0.0", "2.0.0"]);
    let world = with_runtime("child_constraints: {max_version: \"0.9.0\"}");
    let error = world.refused("pack/it", json!({})).await;
    says(&error, "invalid_chain", &["1.0.0", "0.9.0"]);
    let world = with_runtime("inputs: [x]");
    world.signed(
        "tools/gives.yaml",
        "version: \"1.0.0\"\nexecutor_id: rt\noutputs: [y]\n",
    );
    let error = world.refused("gives", json!({})).await;
    says(&error, "invalid_chain", &["requires x"]);
}

const STRICT: &str = "__executor_id__ = \"rye/core/runtimes/python/function\"\n\
    CONFIG_SCHEMA = {\"type\": \"object\", \"additionalProperties\": False, \"required\": [\"name\"],\n\
    \"properties\": {\"name\": {\"type\": \"string\"}, \"count\": {\"type\": \"integer\"},\n\
    \"deep\": {\"type\": \"object\", \"properties\": {\"a/b\": {\"enum\": [1, 2]}}}}}\n\
    def execute(params, project_path):\n    open(project_path + \"/ran\", \"w\")\n";

#[tokio::test]
async fn all_that_is_wrong_with_the_parameters_is_told_at_once() {
    let world = World::new();
    world.signed("tools/strict.py", STRICT);
    let wrong = json!({"count": "many", "deep": {"a/b": 3}, "other": 1});
    let error = world.refused("strict", wrong).await;
    says(
        &error,
        "invalid_parameters",
        &["/count: ", "/deep/a~1b: ", "name", "other"],
    );
    let violations = error.violations.as_array().unwrap();
    let mut pointers: Vec<_> = violations
        .iter()
        .map(|violation| violation["pointer"].as_str().unwrap())
        .collect();
    pointers.sort_unstable();
    assert_eq!(pointers, ["", "", "/count", "/deep/a~1b"]);
    for (odd, kind) in [
        (json!([1]), "an array"),
        (json!("x"), "a string"),
        (Value::Null, "null"),
    ] {
        let error = world.refused("strict", odd).await;
        says(&error, "invalid_parameters", &[kind]);
    }
    world.signed(
        "tools/schema.sh",
        &format!("{BASH}# config_schema: {{type: nonsense}}\n{MARK}"),
    );
    let error = world.refused("schema", json!({})).await;
    says(&error, "bad_schema", &["`config_schema`"]);
}

#[tokio::test]
async fn an_interpreter_that_is_not_there_is_told_with_all_that_was_tried() {
    let local = "{type: local_binary, var: X, binary: xx, candidates: [yy], search_paths: [v/bin], fallback: zz-none}";
    let world = with_runtime(&format!("env_config: {{interpreter: {local}}}"));
    let error = world.refused_at_last("pack/it", json!({})).await;
    let tried = world.project().join("v/bin");
    says(
        &error,
        "interpreter_not_found",
        &[
            "rt: ",
            tried.join("xx").to_str().unwrap(),
            tried.join("yy").to_str().unwrap(),
            "/zz-none",
        ],
    );
    let asked = "{type: command, var: X, resolve_cmd: [sh, -c, \"echo /no/where; exit 1\"]}";
    let world = with_runtime(&format!("env_config: {{interpreter: {asked}}}"));
    let error = world.refused_at_last("pack/it", json!({})).await;
    says(&error, "interpreter_not_found", &["`sh -c echo"]);
}

#[tokio::test]
async fn a_wrong_env_config_is_told() {
    for (config, code, part) in [
        (
            "{interpreter: {type: magic, var: X}}",
            "bad_env_config",
            "`magic`",
        ),
        (
            "{interpreter: {type: system_binary, binary: sh}}",
            "bad_env_config",
            "`var`",
        ),
        (
            "{interpreter: {var: X, binary: sh}}",
            "bad_env_config",
            "`type`",
        ),
        ("{interpreter: sh}", "bad_env_config", "interpreter"),
        ("{env: [A, B]}", "bad_env_config", "env_config.env"),
        ("{inherit: nothing}", "bad_env_config", "env_config.inherit"),
    ] {
        let world = with_runtime(&format!("env_config: {config}"));
        let error = world.refused("pack/it", json!({})).await;
        says(&error, code, &[part]);
    }
}

#[tokio::test]
async fn an_anchor_that_must_be_marked_and_is_not_is_told() {
    let world = with_runtime("anchor: {mode: always, markers_any: [Gemfile, x.toml]}");
    let error = world.refused("pack/it", json!({})).await;
    says(
        &error,
        "no_anchor",
        &["rt: ", "Gemfile, x.toml", "tools/pack"],
    );
    for (anchor, part) in [
        ("{mode: sometimes}", "`sometimes`"),
        ("{root: moon}", "`moon`"),
        ("{mode: 3}", "`mode`"),
        ("{markers_any: Gemfile}", "`markers_any`"),
        ("{markers_any: [../Gemfile]}", "`../Gemfile`"),
    ] {
        let world = with_runtime(&format!("anchor: {anchor}"));
        let error = world.refused("pack/it", json!({})).await;
        says(&error, "no_anchor", &["rt: `anchor`: ", part]);
    }
}

#[tokio::test]
async fn a_wrong_verify_deps_is_told() {
    for (deps, part) in [
        ("{scope: everything, extensions: [.py]}", "`everything`"),
        ("{scope: tool_dir, extensions: .py}", "`extensions`"),
        (
            "{scope: tool_dir, extensions: [.py], exclude_dirs: x}",
            "`exclude_dirs`",
        ),
        (
            "{scope: tool_dir, extensions: [.py], recursive: maybe}",
            "`recursive`",
        ),
        (
            "{scope: tool_dir, extensions: [.py], enabled: maybe}",
            "`enabled`",
        ),
    ] {
        let world = with_runtime(&format!("verify_deps: {deps}"));
        let error = world.refused("pack/it", json!({})).await;
        says(&error, "bad_verify_deps", &["`verify_deps`: ", part]);
    }
    let world = with_runtime(
        "anchor: {mode: always, root: project_path}\nverify_deps: {scope: anchor, extensions: [.py]}",
    );
    let error = world.refused("pack/it", json!({})).await;
    says(&error, "bad_verify_deps", &["outside the space"]);
}

#[tokio::test]
async fn what_a_tool_brings_along_must_be_signed_and_unchanged() {
    let world = with_runtime(
        "anchor: {markers_any: [mark]}\nverify_deps: {scope: anchor, exclude_dirs: [out]}",
    );
    world.write("tools/pack/mark", "");
    world.write("tools/pack/lib/a.py", "A = 1\n");
    world.write("tools/pack/out/made.py", "unsigned");
    let error = world.refused("pack/it", json!({})).await;
    says(&error, "unsigned", &["lib/a.py", "mark", "it."]);
    assert!(error.hint.unwrap().ends_with("rye sign pack/it"));
    world.sign_dependencies("pack/it");

    // All differences at once.
    world.write("tools/pack/lib/a.py", "A = 2\n");
    world.write("tools/pack/data.json", "{}");
    fs::remove_file(world.at("tools/pack/mark")).unwrap();
    let error = world.refused("pack/it", json!({})).await;
    let all = ["changed lib/a.py", "added data.json", "missing mark"];
    says(&error, "content_changed", &all);
    assert!(error.hint.unwrap().ends_with("rye sign pack/it"));
    world.sign_dependencies("pack/it");
    world.run("pack/it", json!({})).await;
    assert!(world.ran());
}

#[tokio::test]
async fn a_link_out_of_the_anchor_is_refused() {
    let world = with_runtime("anchor: {markers_any: [mark]}\nverify_deps: {scope: anchor}");
    world.write("tools/pack/mark", "");
    world.signed("tools/other/a.py", "A = 1\n");
    world.sign_dependencies("pack/it");
    for target in ["../other/a.py", "../other", "/", "../../../../.."] {
        symlink(target, world.at("tools/pack/lib")).unwrap();
        let error = world.refused("pack/it", json!({})).await;
        says(
            &error,
            "content_changed",
            &["link out of the directory: lib"],
        );
        fs::remove_file(world.at("tools/pack/lib")).unwrap();
    }
}

#[tokio::test]
async fn a_command_with_an_unknown_placeholder_is_not_run() {
    let world = World::new();
    world.signed(
        "tools/it.yaml",
        "version: \"1.0.0\"\nexecutor_id: subprocess\nconfig: {command: \"{nothing}/touch\", args: [\"{project_path}/ran\"]}\n",
    );
    let error = world.refused_at_last("it", json!({})).await;
    says(&error, "unknown_placeholder", &["`{nothing}`"]);
    world.signed(
        "tools/args.yaml",
        "version: \"1.0.0\"\nexecutor_id: subprocess\nconfig: {command: echo, args: [\"{nothing}\"]}\n",
    );
    let envelope = world.run("args", json!({})).await;
    assert_eq!(envelope.data["stdout"], "{nothing}\n", "{envelope:?}");
}

#[tokio::test]
async fn an_unsigned_link_anywhere_in_the_chain_is_refused() {
    let world = World::new();
    world.write("tools/rt.yaml", &runtime(""));
    world.signed("tools/it.sh", &run_by("rt"));
    let error = world.refused("it", json!({})).await;
    says(&error, "unsigned", &["rt"]);
    assert!(error.hint.unwrap().contains("rye sign"));
    world.sign(&world.at("tools/rt.yaml"));
    world.write("tools/it.sh", &run_by("rt"));
    let error = world.refused("it", json!({})).await;
    says(&error, "unsigned", &["it"]);
}

#[tokio::test]
async fn what_a_revoked_key_signed_is_refused_by_the_next_call() {
    let world = World::new();
    world.script("it", "echo '{}'");
    assert!(world.run("it", json!({})).await.error.is_none());
    let (keys, key) = (UserKeys::new(&world.user()), world.key());
    let fingerprint = key.public().fingerprint();
    keys.revoke(fingerprint, Some("lost"), Some(key.public()), key)
        .unwrap();
    let error = world.refused("it", json!({})).await;
    says(&error, "revoked_key", &[&fingerprint.to_string(), "lost"]);
}

#[tokio::test]
async fn variables_that_a_tool_needs_must_be_set() {
    let world = World::new();
    world.signed(
        "tools/it.sh",
        &format!("{BASH}# requires_env: [NEEDED_A, NEEDED_B]\n{MARK}"),
    );
    fs::write(world.project().join(".env"), "NEEDED_A=1\n").unwrap();
    let error = world.refused_at_last("it", json!({})).await;
    says(&error, "missing_variables", &["NEEDED_B"]);
    assert!(error.hint.unwrap().contains("export NEEDED_B="));
}

#[tokio::test]
async fn a_configuration_that_does_not_fit_the_primitive_is_refused() {
    for (config, part) in [
        ("{args: [x]}", "command"),
        ("{command: 5}", "/command"),
        ("{command: touch, args: ran}", "/args"),
        ("{command: touch, args: [[1]]}", "/args/0"),
        ("{command: touch, timeout: 0}", "/timeout"),
        ("{command: touch, timeout: soon}", "/timeout"),
        ("{command: touch, cwd: 7}", "/cwd"),
        ("{command: touch, env: {A: [1]}}", "/env/A"),
        ("{command: touch, env: A}", "/env"),
    ] {
        let world = World::new();
        let text = format!("version: \"1.0.0\"\nexecutor_id: subprocess\nconfig: {config}\n");
        world.signed("tools/it.yaml", &text);
        let error = world.refused_at_last("it", json!({})).await;
        says(&error, "invalid_config", &[part]);
    }
}

fn resolving(resolve: &str) -> String {
    format!(
        "version: \"1.0.0\"\nexecutor_id: subprocess\nconfig_resolve: {resolve}\n\
         config: {{command: cat, input_data: \"{{params_json}}\"}}\n"
    )
}

#[tokio::test]
async fn configuration_of_the_spaces_counts_when_it_is_signed() {
    let world = World::new();
    world.signed(
        "tools/both.yaml",
        &resolving("{path: a/limits.yaml, mode: deep_merge}"),
    );
    world.signed(
        "tools/first.yaml",
        &resolving("[{path: a/limits.yaml, mode: first_match}]"),
    );
    let user = world.at_user("config/a");
    fs::create_dir_all(&user).unwrap();
    fs::write(user.join("limits.yaml"), "x: 1\ndeep: {a: 1, b: 1}\n").unwrap();
    world.write("config/a/limits.yaml", "x: 2\ndeep: {b: 2}\n");

    let envelope = world.run("both", json!({"p": 0})).await;
    let expected = json!({"p": 0, "resolved_config": {"x": 1, "deep": {"a": 1, "b": 1}}});
    assert_eq!(envelope.data, expected);
    let warning = envelope.metadata["warnings"].to_string();
    assert!(
        warning.contains("config/a/limits.yaml") && warning.contains("rye sign"),
        "{warning}"
    );
    let envelope = world.run("first", json!({})).await;
    assert_eq!(envelope.data["resolved_config"]["x"], 1);

    world.sign(&world.at("config/a/limits.yaml"));
    let envelope = world.run("both", json!({})).await;
    assert_eq!(
        envelope.data["resolved_config"],
        json!({"x": 2, "deep": {"a": 1, "b": 2}})
    );
    assert!(!envelope.metadata.contains_key("warnings"));
    let envelope = world.run("first", json!({})).await;
    assert_eq!(
        envelope.data["resolved_config"],
        json!({"x": 2, "deep": {"b": 2}})
    );
}

#[tokio::test]
async fn configuration_is_asked_for_in_its_folder_and_by_its_modes() {
    for (resolve, part) in [
        ("{path: ../../secret.yaml}", "`../../secret.yaml`"),
        ("{path: /etc/passwd}", "`/etc/passwd`"),
        ("{mode: deep_merge}", "`path`"),
        ("{path: a.yaml, mode: all}", "`all`"),
    ] {
        let world = World::new();
        world.signed("tools/it.yaml", &resolving(resolve));
        let error = world.refused_at_last("it", json!({})).await;
        says(&error, "invalid_config", &[part]);
    }
    let world = World::new();
    world.signed("tools/it.yaml", &resolving("{path: broken.yaml}"));
    let user = world.at_user("config");
    fs::create_dir_all(&user).unwrap();
    fs::write(user.join("broken.yaml"), "a: [1\n").unwrap();
    let error = world.refused_at_last("it", json!({})).await;
    says(&error, "invalid_config", &["broken.yaml:"]);
    // What leads out of the folder is no configuration of the space's.
    fs::remove_file(user.join("broken.yaml")).unwrap();
    fs::write(world.folder().join("outside.yaml"), "a: 1\n").unwrap();
    symlink(
        world.folder().join("outside.yaml"),
        user.join("broken.yaml"),
    )
    .unwrap();
    let envelope = world.run("it", json!({})).await;
    assert_eq!(envelope.data["resolved_config"], json!({}));
    assert!(envelope.metadata.contains_key("warnings"));
}
