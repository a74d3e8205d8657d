//! Calls that are refused before anything runs, with stable error codes.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{BASH, CREATE_MARKER, TestEnv, hint_command};
use rye_executor::ErrorInfo;
use rye_items::UserKeys;
use serde_json::{Value, json};

fn assert_error(error: &ErrorInfo, code: &str, parts: &[&str]) {
    assert_eq!(error.code, code, "{}", error.message);
    for part in parts {
        assert!(
            error.message.contains(part),
            "missing `{part}` in: {}",
            error.message
        );
    }
}

/// A tool with [`CREATE_MARKER`] and this executor.
fn run_by(executor: &str) -> String {
    format!("# executor_id: {executor}\n# version: \"1.0.0\"\n{CREATE_MARKER}")
}

/// A runtime that runs the tool with a shell, with additional metadata.
fn runtime(more: &str) -> String {
    format!(
        "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: rye/core/primitives/execute\n{more}\n\
         config:\n  command: /bin/sh\n  args: [\"{{tool_path}}\", \"{{project_path}}\"]\n"
    )
}

/// An environment with a runtime `rt` and the tool `pack/it` that it runs.
fn with_runtime(more: &str) -> TestEnv {
    let env = TestEnv::new();
    env.signed("tools/rt.yaml", &runtime(more));
    env.signed("tools/pack/it.sh", &run_by("rt"));
    env
}

#[tokio::test]
async fn cycle_is_reported() {
    let env = TestEnv::new();
    for (tool, executor) in [("a", "x/b"), ("x/b", "c"), ("c", "x/b")] {
        let text = format!("version: \"1.0.0\"\nexecutor_id: {executor}\n");
        env.signed(&format!("tools/{tool}.yaml"), &text);
    }
    let error = env.refused("a", json!({})).await;
    assert_error(&error, "cycle", &["x/b → c → x/b"]);
}

#[tokio::test]
async fn chain_has_at_most_ten_links() {
    let env = TestEnv::new();
    for number in 0..10 {
        let executor = match number {
            9 => "subprocess".to_owned(),
            _ => format!("t{}", number + 1),
        };
        let text = format!(
            "version: \"1.0.0\"\nexecutor_id: {executor}\nconfig: {{command: touch, args: [\"{{project_path}}/ran\"]}}\n"
        );
        env.signed(&format!("tools/t{number}.yaml"), &text);
    }
    let error = env.refused("t0", json!({})).await;
    assert_error(
        &error,
        "too_deep",
        &["t0 → t1 → ", "t9 → rye/core/primitives/execute"],
    );
    let result = env.run("t1", json!({})).await;
    assert_eq!(result.chain.len(), 10, "{result:?}");
    assert!(env.ran());
}

#[tokio::test]
async fn missing_executor_is_reported_with_similar_names() {
    let env = TestEnv::new();
    env.signed("tools/it.sh", &run_by("rye/core/runtimes/bash/bsh"));
    let error = env.refused("it", json!({})).await;
    assert_error(
        &error,
        "executor_not_found",
        &["tool:it", "`rye/core/runtimes/bash/bsh`"],
    );
    let hint = error.hint.unwrap();
    assert!(hint.contains("rye/core/runtimes/bash/bash"), "{hint}");

    env.signed("tools/bad.sh", &run_by("../../x"));
    let error = env.refused("bad", json!({})).await;
    assert_error(&error, "invalid_executor_id", &["tool:bad", "`../../x`"]);
    let error = env.refused("its", json!({})).await;
    assert_error(&error, "not_found", &["tool:its not found"]);
}

#[tokio::test]
async fn tool_without_an_executor_is_refused() {
    let env = TestEnv::new();
    env.signed(
        "tools/it.sh",
        &format!("# version: \"1.0.0\"\n{CREATE_MARKER}"),
    );
    let error = env.refused("it", json!({})).await;
    assert_error(&error, "no_executor", &["tool:it", "`executor_id`"]);
    env.signed("tools/misspelt.yaml", "exectuor_id: subprocess\n");
    let error = env.refused("misspelt", json!({})).await;
    assert_error(&error, "no_executor", &["`exectuor_id`", "`executor_id`"]);
    env.signed("knowledge/k.md", "---\nname: k\n---\nText.\n");
    let error = env.refused("knowledge:k", json!({})).await;
    assert_error(&error, "not_a_tool", &["knowledge:k is not a tool"]);
}

#[tokio::test]
async fn user_tool_cannot_depend_on_the_project() {
    let env = TestEnv::new();
    env.signed("tools/rt.yaml", &runtime(""));
    env.signed_for_user("tools/it.sh", &run_by("rt"));
    let error = env.refused("it", json!({})).await;
    assert_error(
        &error,
        "invalid_chain",
        &["it run by rt: ", "user space", "project space"],
    );
    // A system runtime uses the primitive of the system, even if the project shadows it.
    let env = TestEnv::new();
    env.signed("tools/rye/core/primitives/execute.yaml", &runtime(""));
    env.script("it", CREATE_MARKER);
    let result = env.run("it", json!({})).await;
    assert!(env.ran(), "{result:?}");
}

#[tokio::test]
async fn version_out_of_range_is_refused() {
    let env = with_runtime("child_constraints: {min_version: \"2.0.0\"}");
    let error = env.refused("pack/it", json!({})).await;
    assert_error(&error, "invalid_chain", &["1.0.0", "2.0.0"]);
    let env = with_runtime("child_constraints: {max_version: \"0.9.0\"}");
    let error = env.refused("pack/it", json!({})).await;
    assert_error(&error, "invalid_chain", &["1.0.0", "0.9.0"]);
    let env = with_runtime("inputs: [x]");
    env.signed(
        "tools/gives.yaml",
        "version: \"1.0.0\"\nexecutor_id: rt\noutputs: [y]\n",
    );
    let error = env.refused("gives", json!({})).await;
    assert_error(&error, "invalid_chain", &["requires x"]);
}

const STRICT: &str = "__executor_id__ = \"rye/core/runtimes/python/function\"\n\
    CONFIG_SCHEMA = {\"type\": \"object\", \"additionalProperties\": False, \"required\": [\"name\"],\n\
    \"properties\": {\"name\": {\"type\": \"string\"}, \"count\": {\"type\": \"integer\"},\n\
    \"deep\": {\"type\": \"object\", \"properties\": {\"a/b\": {\"enum\": [1, 2]}}}}}\n\
    def execute(params, project_path):\n    open(project_path + \"/ran\", \"w\")\n";

#[tokio::test]
async fn all_parameter_errors_are_reported_at_once() {
    let env = TestEnv::new();
    env.signed("tools/strict.py", STRICT);
    let wrong = json!({"count": "many", "deep": {"a/b": 3}, "other": 1});
    let error = env.refused("strict", wrong).await;
    assert_error(
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
        let error = env.refused("strict", odd).await;
        assert_error(&error, "invalid_parameters", &[kind]);
    }
    env.signed(
        "tools/schema.sh",
        &format!("{BASH}# config_schema: {{type: nonsense}}\n{CREATE_MARKER}"),
    );
    let error = env.refused("schema", json!({})).await;
    assert_error(&error, "bad_schema", &["`config_schema`"]);
}

#[tokio::test]
async fn missing_interpreter_lists_all_attempts() {
    let local = "{type: local_binary, var: X, binary: xx, candidates: [yy], search_paths: [v/bin], fallback: zz-none}";
    let env = with_runtime(&format!("env_config: {{interpreter: {local}}}"));
    let error = env.refused_by_call("pack/it", json!({})).await;
    let tried = env.project().join("v/bin");
    assert_error(
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
    let env = with_runtime(&format!("env_config: {{interpreter: {asked}}}"));
    let error = env.refused_by_call("pack/it", json!({})).await;
    assert_error(&error, "interpreter_not_found", &["`sh -c echo"]);
}

#[tokio::test]
async fn invalid_env_config_is_refused() {
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
        let env = with_runtime(&format!("env_config: {config}"));
        let error = env.refused("pack/it", json!({})).await;
        assert_error(&error, code, &[part]);
    }
}

#[tokio::test]
async fn missing_anchor_marker_is_refused() {
    let env = with_runtime("anchor: {mode: always, markers_any: [Gemfile, x.toml]}");
    let error = env.refused("pack/it", json!({})).await;
    assert_error(
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
        let env = with_runtime(&format!("anchor: {anchor}"));
        let error = env.refused("pack/it", json!({})).await;
        assert_error(&error, "no_anchor", &["rt: `anchor`: ", part]);
    }
}

#[tokio::test]
async fn invalid_verify_deps_is_refused() {
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
        let env = with_runtime(&format!("verify_deps: {deps}"));
        let error = env.refused("pack/it", json!({})).await;
        assert_error(&error, "bad_verify_deps", &["`verify_deps`: ", part]);
    }
    let env = with_runtime(
        "anchor: {mode: always, root: project_path}\nverify_deps: {scope: anchor, extensions: [.py]}",
    );
    let error = env.refused("pack/it", json!({})).await;
    assert_error(&error, "bad_verify_deps", &["outside the space"]);
}

#[tokio::test]
async fn dependencies_must_be_signed_and_unchanged() {
    let env = with_runtime(
        "anchor: {markers_any: [mark]}\nverify_deps: {scope: anchor, exclude_dirs: [out]}",
    );
    env.write("tools/pack/mark", "");
    env.write("tools/pack/lib/a.py", "A = 1\n");
    env.write("tools/pack/out/made.py", "unsigned");
    let error = env.refused("pack/it", json!({})).await;
    assert_error(&error, "unsigned", &["lib/a.py", "mark", "it."]);
    assert_eq!(hint_command(&error), "rye sign pack/it");
    env.sign_dependencies("pack/it");

    // All differences are reported at once.
    env.write("tools/pack/lib/a.py", "A = 2\n");
    env.write("tools/pack/data.json", "{}");
    fs::remove_file(env.project_path("tools/pack/mark")).unwrap();
    let error = env.refused("pack/it", json!({})).await;
    let all = ["changed lib/a.py", "added data.json", "missing mark"];
    assert_error(&error, "content_changed", &all);
    assert_eq!(hint_command(&error), "rye sign pack/it");
    env.sign_dependencies("pack/it");
    env.run("pack/it", json!({})).await;
    assert!(env.ran());
}

#[tokio::test]
async fn link_out_of_the_anchor_is_refused() {
    let env = with_runtime("anchor: {markers_any: [mark]}\nverify_deps: {scope: anchor}");
    env.write("tools/pack/mark", "");
    env.signed("tools/other/a.py", "A = 1\n");
    env.sign_dependencies("pack/it");
    for target in ["../other/a.py", "../other", "/", "../../../../.."] {
        symlink(target, env.project_path("tools/pack/lib")).unwrap();
        let error = env.refused("pack/it", json!({})).await;
        assert_error(
            &error,
            "content_changed",
            &["link out of the directory: lib"],
        );
        fs::remove_file(env.project_path("tools/pack/lib")).unwrap();
    }
}

#[tokio::test]
async fn unknown_placeholder_in_a_command_is_refused() {
    let env = TestEnv::new();
    env.signed(
        "tools/it.yaml",
        "version: \"1.0.0\"\nexecutor_id: subprocess\nconfig: {command: \"{nothing}/touch\", args: [\"{project_path}/ran\"]}\n",
    );
    let error = env.refused_by_call("it", json!({})).await;
    assert_error(&error, "unknown_placeholder", &["`{nothing}`"]);
    env.signed(
        "tools/args.yaml",
        "version: \"1.0.0\"\nexecutor_id: subprocess\nconfig: {command: echo, args: [\"{nothing}\"]}\n",
    );
    let result = env.run("args", json!({})).await;
    assert_eq!(result.data["stdout"], "{nothing}\n", "{result:?}");
}

#[tokio::test]
async fn unsigned_link_in_the_chain_is_refused() {
    let env = TestEnv::new();
    env.write("tools/rt.yaml", &runtime(""));
    env.signed("tools/it.sh", &run_by("rt"));
    let error = env.refused("it", json!({})).await;
    assert_error(&error, "unsigned", &["rt"]);
    assert!(error.hint.unwrap().contains("rye sign"));
    env.sign(&env.project_path("tools/rt.yaml"));
    env.write("tools/it.sh", &run_by("rt"));
    let error = env.refused("it", json!({})).await;
    assert_error(&error, "unsigned", &["it"]);
}

#[tokio::test]
async fn revoked_key_is_refused_by_the_next_call() {
    let env = TestEnv::new();
    env.script("it", "echo '{}'");
    assert!(env.run("it", json!({})).await.error.is_none());
    let (keys, key) = (UserKeys::new(&env.user()), env.key());
    let fingerprint = key.public().fingerprint();
    keys.revoke(fingerprint, Some("lost"), Some(key.public()), key)
        .unwrap();
    let error = env.refused("it", json!({})).await;
    assert_error(&error, "revoked_key", &[&fingerprint.to_string(), "lost"]);
}

#[tokio::test]
async fn required_variables_must_be_set() {
    let env = TestEnv::new();
    env.signed(
        "tools/it.sh",
        &format!("{BASH}# requires_env: [NEEDED_A, NEEDED_B]\n{CREATE_MARKER}"),
    );
    fs::write(env.project().join(".env"), "NEEDED_A=1\n").unwrap();
    let error = env.refused_by_call("it", json!({})).await;
    assert_error(&error, "missing_variables", &["NEEDED_B"]);
    assert!(error.hint.unwrap().contains("export NEEDED_B="));
}

#[tokio::test]
async fn configuration_must_match_the_primitive() {
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
        let env = TestEnv::new();
        let text = format!("version: \"1.0.0\"\nexecutor_id: subprocess\nconfig: {config}\n");
        env.signed("tools/it.yaml", &text);
        let error = env.refused_by_call("it", json!({})).await;
        assert_error(&error, "invalid_config", &[part]);
    }
}

fn resolving(resolve: &str) -> String {
    format!(
        "version: \"1.0.0\"\nexecutor_id: subprocess\nconfig_resolve: {resolve}\n\
         config: {{command: cat, input_data: \"{{params_json}}\"}}\n"
    )
}

#[tokio::test]
async fn config_files_of_the_project_must_be_signed() {
    let env = TestEnv::new();
    env.signed(
        "tools/both.yaml",
        &resolving("{path: a/limits.yaml, mode: deep_merge}"),
    );
    env.signed(
        "tools/first.yaml",
        &resolving("[{path: a/limits.yaml, mode: first_match}]"),
    );
    let user = env.user_path("config/a");
    fs::create_dir_all(&user).unwrap();
    fs::write(user.join("limits.yaml"), "x: 1\ndeep: {a: 1, b: 1}\n").unwrap();
    env.write("config/a/limits.yaml", "x: 2\ndeep: {b: 2}\n");

    let result = env.run("both", json!({"p": 0})).await;
    let expected = json!({"p": 0, "resolved_config": {"x": 1, "deep": {"a": 1, "b": 1}}});
    assert_eq!(result.data, expected);
    let warning = result.metadata["warnings"].to_string();
    assert!(
        warning.contains("config/a/limits.yaml") && warning.contains("rye sign"),
        "{warning}"
    );
    let result = env.run("first", json!({})).await;
    assert_eq!(result.data["resolved_config"]["x"], 1);

    env.sign(&env.project_path("config/a/limits.yaml"));
    let result = env.run("both", json!({})).await;
    assert_eq!(
        result.data["resolved_config"],
        json!({"x": 2, "deep": {"a": 1, "b": 2}})
    );
    assert!(!result.metadata.contains_key("warnings"));
    let result = env.run("first", json!({})).await;
    assert_eq!(
        result.data["resolved_config"],
        json!({"x": 2, "deep": {"b": 2}})
    );
}

#[tokio::test]
async fn config_resolve_checks_path_and_mode() {
    for (resolve, part) in [
        ("{path: ../../secret.yaml}", "`../../secret.yaml`"),
        ("{path: /etc/passwd}", "`/etc/passwd`"),
        ("{mode: deep_merge}", "`path`"),
        ("{path: a.yaml, mode: all}", "`all`"),
    ] {
        let env = TestEnv::new();
        env.signed("tools/it.yaml", &resolving(resolve));
        let error = env.refused_by_call("it", json!({})).await;
        assert_error(&error, "invalid_config", &[part]);
    }
    let env = TestEnv::new();
    env.signed("tools/it.yaml", &resolving("{path: broken.yaml}"));
    let user = env.user_path("config");
    fs::create_dir_all(&user).unwrap();
    fs::write(user.join("broken.yaml"), "a: [1\n").unwrap();
    let error = env.refused_by_call("it", json!({})).await;
    assert_error(&error, "invalid_config", &["broken.yaml:"]);
    // A link out of the config directory is ignored.
    fs::remove_file(user.join("broken.yaml")).unwrap();
    fs::write(env.dir().join("outside.yaml"), "a: 1\n").unwrap();
    symlink(env.dir().join("outside.yaml"), user.join("broken.yaml")).unwrap();
    let result = env.run("it", json!({})).await;
    assert_eq!(result.data["resolved_config"], json!({}));
    assert!(result.metadata.contains_key("warnings"));
}
