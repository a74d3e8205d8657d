//! TypeScript tools with tsx and with a Node that strips types.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::TestEnv;
use rye_executor::{ExecutionResult, Request};
use serde_json::{Value, json};

/// A tool with type annotations only (no syntax that needs a transformation) and a helper.
const TOOL: &str = r#"export const __version__: string = "1.0.0";
export const __executor_id__: string = "rye/core/runtimes/node/node";
import fs from "node:fs";
import { shout, type Word } from "./words.ts";

interface Given { word: Word; times?: number }

const given = JSON.parse(fs.readFileSync(0, "utf8")) as Given;
const said: Word[] = Array.from({ length: given.times ?? 1 }, (): Word => shout(given.word));
console.log(JSON.stringify({ said, node: process.versions.node }));
"#;
const WORDS: &str = "export type Word = string;\n\
    export const shout = (word: Word): Word => word.toUpperCase();\n";

/// A package with the tool and its helper.
fn package() -> TestEnv {
    let env = TestEnv::new();
    env.write("tools/pack/package.json", "{\"type\": \"module\"}");
    env.signed("tools/pack/words.ts", WORDS);
    env.signed("tools/pack/say.ts", TOOL);
    env.sign_dependencies("pack/say");
    env
}

/// Installs tsx like `npm install tsx`.
fn with_tsx(env: &TestEnv) {
    let tsx = crate::support::installed_tool("tsx-", "tsx");
    let modules = env.project_path("tools/pack/node_modules");
    let kept = tsx.parent().unwrap().parent().unwrap().join("node_modules");
    let copied = Command::new("cp")
        .arg("-a")
        .args([&kept, &modules])
        .status();
    assert!(copied.unwrap().success());
    env.sign_environment(&modules);
}

/// Runs the tool with the `node` of a directory.
async fn run_with_node(env: &TestEnv, parameters: Value, node: &Path) -> ExecutionResult {
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", node.parent().unwrap().display());
    let mut request = Request::new("pack/say".parse().unwrap()).with_parameters(parameters);
    request.environment = Some(vec![("PATH".to_owned(), path)]);
    env.executor.execute(request).await
}

#[tokio::test]
async fn typescript_tool_runs_with_tsx() {
    let env = package();
    with_tsx(&env);
    // An enum needs a transformation, which Node does not do.
    let tool = TOOL.replace("interface", "enum Loud { Yes }\n\ninterface");
    env.signed("tools/pack/say.ts", &tool);
    env.sign_dependencies("pack/say");
    let result = env.run("pack/say", json!({"word": "hi", "times": 2})).await;
    assert_eq!(result.data["said"], json!(["HI", "HI"]), "{result:?}");
    assert_eq!(result.metadata["exit_code"], 0);
}

#[tokio::test]
async fn typescript_tool_runs_with_type_stripping_node() {
    let env = package();
    let node = crate::support::installed_tool("node-22", "node");
    let result = run_with_node(&env, json!({"word": "hi"}), &node).await;
    assert_eq!(result.data["said"], json!(["HI"]), "{result:?}");
    let version = result.data["node"].as_str().unwrap();
    assert!(version.starts_with("22."), "{version}");
}

#[tokio::test]
async fn changed_typescript_is_refused_and_does_not_run() {
    for changed in ["say.ts", "words.ts"] {
        let env = package();
        with_tsx(&env);
        let path = env.project_path("tools/pack").join(changed);
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("fs.writeFileSync(process.argv.at(-1) + \"/ran\", \"\");\n");
        fs::write(&path, text).unwrap();
        let error = env.refused("pack/say", json!({"word": "hi"})).await;
        assert_eq!(error.code, "content_changed", "{error:?}");
    }
}

#[tokio::test]
async fn changed_javascript_is_refused_and_does_not_run() {
    for name in ["mark.mjs", "mark.cjs", "mark.js"] {
        let env = TestEnv::new();
        let tool = "/** @executor_id rye/core/runtimes/node/node */\nprocess.exit(0);\n";
        env.signed(&format!("tools/{name}"), tool);
        let path = env.project_path("tools").join(name);
        fs::write(
            &path,
            fs::read_to_string(&path)
                .unwrap()
                .replace("exit(0)", "exit(1)"),
        )
        .unwrap();
        let error = env.refused("mark", json!({})).await;
        assert_eq!(error.code, "content_changed", "{error:?}");
    }
}

#[tokio::test]
async fn hidden_and_unusual_files_are_verified_and_signable() {
    let env = package();
    let node = crate::support::installed_tool("node-22", "node");
    for name in [".eslintrc.yaml", ".config/rules.js", "[page].ts", "a b.mjs"] {
        env.write(&format!("tools/pack/{name}"), "\n");
        let error = env.refused("pack/say", json!({"word": "hi"})).await;
        assert_eq!(error.code, "content_changed", "{error:?}");
        assert!(
            error.message.contains(&format!("added {name}")),
            "{error:?}"
        );
        env.sign_dependencies("pack/say");
        env.write(&format!("tools/pack/{name}"), "\n\n");
        let error = env.refused("pack/say", json!({"word": "hi"})).await;
        assert!(
            error.message.contains(&format!("changed {name}")),
            "{error:?}"
        );
        env.sign_dependencies("pack/say");
    }
    let result = run_with_node(&env, json!({"word": "hi"}), &node).await;
    assert_eq!(result.data["said"], json!(["HI"]), "{result:?}");
}
