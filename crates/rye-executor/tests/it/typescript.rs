//! TypeScript through what really runs it: tsx, and a Node that strips types.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::World;
use rye_executor::{Envelope, Request};
use serde_json::{Value, json};

/// A tool with types in every place, a helper of its own folder, and no syntax
/// that types alone do not explain.
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
fn package() -> World {
    let world = World::new();
    world.write("tools/pack/package.json", "{\"type\": \"module\"}");
    world.signed("tools/pack/words.ts", WORDS);
    world.signed("tools/pack/say.ts", TOOL);
    world.sign_dependencies("pack/say");
    world
}

/// Puts tsx where `npm install tsx` puts it.
fn with_tsx(world: &World) {
    let tsx = crate::support::kept("tsx-", "tsx");
    let modules = world.at("tools/pack/node_modules");
    let kept = tsx.parent().unwrap().parent().unwrap().join("node_modules");
    let copied = Command::new("cp")
        .arg("-a")
        .args([&kept, &modules])
        .status();
    assert!(copied.unwrap().success());
    world.sign_environment(&modules);
}

/// Runs the tool with the node of a folder.
async fn run_with_node(world: &World, parameters: Value, node: &Path) -> Envelope {
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", node.parent().unwrap().display());
    let mut request = Request::new("pack/say".parse().unwrap()).with_parameters(parameters);
    request.environment = Some(vec![("PATH".to_owned(), path)]);
    world.executor.execute(request).await
}

#[tokio::test]
async fn a_typescript_tool_runs_with_tsx() {
    let world = package();
    with_tsx(&world);
    // An enum is more than types: no Node strips it away.
    let tool = TOOL.replace("interface", "enum Loud { Yes }\n\ninterface");
    world.signed("tools/pack/say.ts", &tool);
    world.sign_dependencies("pack/say");
    let envelope = world
        .run("pack/say", json!({"word": "hi", "times": 2}))
        .await;
    assert_eq!(envelope.data["said"], json!(["HI", "HI"]), "{envelope:?}");
    assert_eq!(envelope.metadata["exit_code"], 0);
}

#[tokio::test]
async fn a_typescript_tool_runs_where_node_strips_types() {
    let world = package();
    let node = crate::support::kept("node-22", "node");
    let envelope = run_with_node(&world, json!({"word": "hi"}), &node).await;
    assert_eq!(envelope.data["said"], json!(["HI"]), "{envelope:?}");
    let version = envelope.data["node"].as_str().unwrap();
    assert!(version.starts_with("22."), "{version}");
}

#[tokio::test]
async fn changed_typescript_is_refused_and_does_not_run() {
    for changed in ["say.ts", "words.ts"] {
        let world = package();
        with_tsx(&world);
        let path = world.at("tools/pack").join(changed);
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("fs.writeFileSync(process.argv.at(-1) + \"/ran\", \"\");\n");
        fs::write(&path, text).unwrap();
        let error = world.refused("pack/say", json!({"word": "hi"})).await;
        assert_eq!(error.code, "content_changed", "{error:?}");
    }
}

#[tokio::test]
async fn changed_javascript_is_refused_and_does_not_run() {
    for name in ["mark.mjs", "mark.cjs", "mark.js"] {
        let world = World::new();
        let tool = "/** @executor_id rye/core/runtimes/node/node */\nprocess.exit(0);\n";
        world.signed(&format!("tools/{name}"), tool);
        let path = world.at("tools").join(name);
        fs::write(
            &path,
            fs::read_to_string(&path)
                .unwrap()
                .replace("exit(0)", "exit(1)"),
        )
        .unwrap();
        let error = world.refused("mark", json!({})).await;
        assert_eq!(error.code, "content_changed", "{error:?}");
    }
}

#[tokio::test]
async fn hidden_files_and_those_with_strange_names_count_and_can_be_signed() {
    let world = package();
    let node = crate::support::kept("node-22", "node");
    for name in [".eslintrc.yaml", ".config/rules.js", "[page].ts", "a b.mjs"] {
        world.write(&format!("tools/pack/{name}"), "\n");
        let error = world.refused("pack/say", json!({"word": "hi"})).await;
        assert_eq!(error.code, "content_changed", "{error:?}");
        assert!(
            error.message.contains(&format!("added {name}")),
            "{error:?}"
        );
        world.sign_dependencies("pack/say");
        world.write(&format!("tools/pack/{name}"), "\n\n");
        let error = world.refused("pack/say", json!({"word": "hi"})).await;
        assert!(
            error.message.contains(&format!("changed {name}")),
            "{error:?}"
        );
        world.sign_dependencies("pack/say");
    }
    let envelope = run_with_node(&world, json!({"word": "hi"}), &node).await;
    assert_eq!(envelope.data["said"], json!(["HI"]), "{envelope:?}");
}
