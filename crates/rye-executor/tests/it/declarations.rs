//! Checks of an item's declarations, when it is signed and when it runs.

use crate::support::{TestEnv, warnings};
use rye_executor::Status;
use serde_json::json;

const BASH_TOOL: &str = "version: \"1.0.0\"\nexecutor_id: rye/core/runtimes/bash/bash\n";
const RUNTIME: &str = "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: subprocess\n\
    env_config:\n  interpreter: {type: system_binary, binary: sh, var: RYE_SH}\n\
    config: {command: \"${RYE_SH}\", args: [\"{tool_path}\"]}\n";

/// Asserts that an item is refused when it is signed, with this text in the message.
fn refused(env: &TestEnv, id: &str, code: &str, part: &str) {
    let error = env.check_before_signing(id).unwrap_err();
    assert_eq!(error.code(), code, "{id}: {error}");
    assert!(error.to_string().contains(part), "{id}: {error}");
}

#[tokio::test]
async fn unknown_key_is_refused_when_signed_and_warned_about_when_run() {
    let env = TestEnv::new();
    for (index, (text, unknown)) in [
        (format!("{BASH_TOOL}env_confg: {{}}\n"), "`env_config`"),
        (
            format!("{BASH_TOOL}config: {{command: echo, tiemout: 5}}\n"),
            "`timeout`",
        ),
        (
            RUNTIME.replace("binary: sh", "binary: sh, fallbck: sh"),
            "`fallback`",
        ),
        (
            format!("{RUNTIME}anchor: {{mode: auto, marker_any: [x]}}\n"),
            "`markers_any`",
        ),
        (
            format!("{RUNTIME}anchor: {{env_paths: {{A: {{prepnd: [x]}}}}}}\n"),
            "`prepend`",
        ),
        (
            format!("{RUNTIME}verify_deps: {{scop: anchor}}\n"),
            "`scope`",
        ),
        (
            format!("{BASH_TOOL}config_resolve: {{path: a.yaml, mod: deep_merge}}\n"),
            "`mode`",
        ),
        (
            RUNTIME.replace("env_config:\n", "env_config:\n  inherti: minimal\n"),
            "inherti",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("it{index}");
        env.write(&format!("tools/{id}.yaml"), &text);
        let error = env.check_before_signing(&id).unwrap_err();
        assert!(error.to_string().contains(unknown), "{text}: {error}");
    }
    env.signed(
        "tools/runs.yaml",
        &format!("{BASH_TOOL}env_confg: {{}}\nconfig: {{command: \"echo ran\", tiemout: 5}}\n"),
    );
    let result = env.run("runs", json!({})).await;
    assert_eq!(result.data["stdout"], "ran\n", "{result:?}");
    let warnings = warnings(&result).join("\n");
    assert!(
        warnings.contains("`env_confg`") && warnings.contains("`config.tiemout`"),
        "{warnings}"
    );
}

#[tokio::test]
async fn misspelt_name_in_a_program_is_refused_when_signed_and_warned_about_when_run() {
    let env = TestEnv::new();
    let python = "__executor_id__ = \"rye/core/runtimes/python/function\"\n";
    let body = "def execute(params, project_path):\n    return {}\n";
    for (file, text, part) in [
        (
            "executor.py",
            format!("{}{body}", python.replace("executor", "excutor")),
            "`__executor_id__`",
        ),
        (
            "schema.py",
            format!("{python}CONFIG_SHEMA = {{}}\n{body}"),
            "`CONFIG_SCHEMA`",
        ),
        (
            "approval.py",
            format!("{python}__requires_aproval__ = True\n{body}"),
            "`__requires_approval__`",
        ),
        (
            "exported.mjs",
            "export const __exectuor_id__ = \"rye/core/runtimes/node/node\";\n".to_owned(),
            "`__executor_id__`",
        ),
        (
            "tag.mjs",
            "/**\n * @excutor_id rye/core/runtimes/node/node\n */\n".to_owned(),
            "`@executor_id`",
        ),
        (
            "comment.sh",
            "# exectuor_id: rye/core/runtimes/bash/bash\n".to_owned(),
            "`executor_id`",
        ),
        (
            "key.yaml",
            BASH_TOOL.replace("executor_id", "exectuor_id"),
            "`executor_id`",
        ),
    ] {
        env.write(&format!("tools/{file}"), &text);
        let (id, _) = file.split_once('.').unwrap();
        refused(&env, id, "unknown_name", part);
    }
    // Libraries, data, and names that are similar to a short word.
    for (file, text) in [
        ("library.py", "CONFIG_SHEMA = {}\n".to_owned()),
        ("data.yaml", "descripton: text\n".to_owned()),
        (
            "words.py",
            format!("{python}__all__ = []\nCONFIGS = INPUT = OUTPUT = 1\n{body}"),
        ),
        (
            "comments.sh",
            "# executor_id: rye/core/runtimes/bash/bash\n# note: a\n# output: b\n# session: c\n"
                .to_owned(),
        ),
    ] {
        env.write(&format!("tools/{file}"), &text);
    }
    for id in ["library", "data", "words", "comments"] {
        env.check_before_signing(id).unwrap();
    }
    env.signed(
        "tools/runs.py",
        &format!("{python}__requires_aproval__ = True\n{body}"),
    );
    let result = env.run("runs", json!({})).await;
    assert_eq!(result.status, Status::Success, "{result:?}");
    let warnings = warnings(&result).join("\n");
    assert!(warnings.contains("`__requires_aproval__`"), "{warnings}");
}

#[tokio::test]
async fn unknown_placeholder_is_refused_when_signed_and_warned_about_when_run() {
    let env = TestEnv::new();
    let schema = "config_schema: {type: object, properties: {name: {type: string}}}\n";
    let tool = |args: &str| {
        format!(
            "version: \"1.0.0\"\nexecutor_id: subprocess\n{schema}config: {{command: echo, args: {args}}}\n"
        )
    };
    for (id, args, part) in [
        ("similar", "[\"{project_pth}\"]", "`project_path`"),
        ("other", "[\"{surname}\"]", "{surname}"),
    ] {
        env.write(&format!("tools/{id}.yaml"), &tool(args));
        refused(&env, id, "unknown_name", part);
    }
    // A parameter, a value of the configuration, and braces in the code of a shell.
    env.write("tools/known.yaml", &tool("[\"{name}\", \"{command}\"]"));
    env.write(
        "tools/code.yaml",
        &format!("{BASH_TOOL}{schema}config: {{command: 'echo {{a,b}} {{count}}'}}\n"),
    );
    // The parameters of a runtime are those of the tools that use it.
    env.write(
        "tools/runtime.yaml",
        &RUNTIME.replace("{tool_path}", "{any_parameter}"),
    );
    for id in ["known", "code", "runtime"] {
        env.check_before_signing(id).unwrap();
    }
    env.signed("tools/runs.yaml", &tool("[\"{surname}\"]"));
    let result = env.run("runs", json!({})).await;
    assert_eq!(result.data["stdout"], "{surname}\n", "{result:?}");
    assert!(warnings(&result).join("\n").contains("{surname}"));
    // Passed, although the schema does not declare it.
    let result = env.run("runs", json!({"surname": "L"})).await;
    assert_eq!(result.data["stdout"], "L\n", "{result:?}");
    assert_eq!(warnings(&result), Vec::<String>::new());
}

#[test]
fn shipped_items_have_no_unknown_names() {
    let env = TestEnv::new();
    for id in env.system_tools() {
        if let Err(error) = env.check_before_signing(&id) {
            panic!("{id}: {error}");
        }
    }
}

#[test]
fn parameter_that_would_be_code_is_refused_when_signed() {
    let env = TestEnv::new();
    let schema = "config_schema: {type: object, properties: {command: {type: string}}}\n";
    env.write("tools/plain.yaml", &format!("{BASH_TOOL}{schema}"));
    env.write(
        "tools/refers.yaml",
        &format!("{BASH_TOOL}{schema}config: {{command: \"{{command}}\"}}\n"),
    );
    for id in ["plain", "refers"] {
        refused(&env, id, "value_as_code", "command");
    }
}

#[test]
fn javascript_tool_must_export_its_metadata() {
    let env = TestEnv::new();
    let executor = "const __executor_id__ = \"rye/core/runtimes/node/node\";\n";
    env.write("tools/private.js", &format!("{executor}console.log(1);\n"));
    refused(&env, "private", "bad_metadata", "__executor_id__");
    env.write(
        "tools/schema.js",
        &format!("export {executor}const CONFIG_SCHEMA = {{ type: \"object\" }};\n"),
    );
    refused(&env, "schema", "bad_metadata", "CONFIG_SCHEMA");
    // A module that is no tool, and both ways to export.
    env.write(
        "tools/helper.js",
        "const CONFIG = { a: 1 };\nexport const b = CONFIG;\n",
    );
    env.write(
        "tools/common.cjs",
        &format!("{executor}module.exports = {{ __executor_id__ }};\n"),
    );
    env.write("tools/module.mjs", &format!("export {executor}"));
    for id in ["helper", "common", "module"] {
        env.check_before_signing(id).unwrap();
    }
}

#[tokio::test]
async fn large_integers_in_a_result_keep_their_digits() {
    let env = TestEnv::new();
    let large = "123456789012345678901234567890";
    env.script("it", &format!("echo '{{\"n\": {large}, \"m\": 1}}'\n"));
    let result = env.run("it", json!({})).await;
    assert_eq!(result.status, Status::Success);
    assert_eq!(result.data, json!({"n": large, "m": 1}), "{result:?}");
    assert_eq!(warnings(&result).len(), 1);
}
