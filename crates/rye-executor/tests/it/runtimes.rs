//! The runtimes that ship, and one that a project adds, with real interpreters.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::support::World;
use lillux::Hash;
use rye_executor::{Envelope, Request, Status};
use serde_json::{Value, json};

fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs a tool with a folder before all others on `PATH`.
async fn run_with_path(world: &World, tool: &str, parameters: Value, first: &Path) -> Envelope {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut request = Request::new(tool.parse().unwrap()).with_parameters(parameters);
    let path = format!("{}:{path}", first.display());
    request.environment = Some(vec![("PATH".to_owned(), path)]);
    world.executor.execute(request).await
}

#[tokio::test]
async fn a_python_script_reads_parameters_and_knows_the_project() {
    let world = World::new();
    world.signed(
        "tools/sum.py",
        "__version__ = \"1.0.0\"\n__executor_id__ = \"rye/core/runtimes/python/script\"\n\
         import argparse, json, sys\n\
         if __name__ == \"__main__\":\n    parser = argparse.ArgumentParser()\n    \
         parser.add_argument(\"--project-path\")\n    given = json.load(sys.stdin)\n    \
         print(json.dumps({\"sum\": sum(given[\"of\"]), \"project\": parser.parse_args().project_path}))\n",
    );
    let envelope = world.run("sum", json!({"of": [1, 2, 3]})).await;
    let expected = json!({"sum": 6, "project": world.project()});
    assert_eq!(envelope.data, expected, "{envelope:?}");
}

#[tokio::test]
async fn the_python_of_the_projects_own_environment_is_used_once_it_is_signed() {
    let world = World::new();
    let environment = world.project().join(".venv");
    let stand_in = "#!/bin/sh\nexport STAND_IN=yes\nexec python3 \"$@\"\n";
    program(&environment.join("bin/python"), stand_in);
    let tool = "__executor_id__ = \"rye/core/runtimes/python/function\"\nimport os\n\
         async def main(**given):\n    return {\"own\": os.environ.get(\"STAND_IN\"), **given}\n";
    world.signed("tools/which.py", tool);
    world.signed_for_user("tools/mine.py", tool);
    let envelope = world.run("which", json!({"a": 1})).await;
    assert_eq!(envelope.data, json!({"own": null, "a": 1}), "{envelope:?}");
    let hint = format!("rye sign --manifest {}", environment.display());
    assert!(
        crate::support::warnings(&envelope)
            .iter()
            .any(|text| text.contains(&hint)),
        "{envelope:?}"
    );

    world.sign_environment(&environment);
    let envelope = world.run("which", json!({"a": 1})).await;
    assert_eq!(envelope.data, json!({"own": "yes", "a": 1}), "{envelope:?}");
    assert!(
        crate::support::warnings(&envelope).is_empty(),
        "{envelope:?}"
    );
    // It is for the project's own tools only.
    let envelope = world.run("mine", json!({})).await;
    assert_eq!(envelope.data, json!({"own": null}), "{envelope:?}");

    program(&environment.join("bin/python"), "#!/bin/sh\ntouch ran\n");
    let error = world.refused_at_last("which", json!({})).await;
    assert_eq!(error.code, "content_changed", "{error:?}");
    assert!(error.message.contains("changed bin/python"), "{error:?}");
    assert!(error.hint.unwrap().ends_with(&hint));
    let envelope = world
        .run("rye/file-system/list", json!({"path": "."}))
        .await;
    assert_eq!(envelope.status, Status::Success, "{envelope:?}");
    assert!(!world.ran());
}

/// Two tools for Node, each in a folder with a helper and an installed package.
fn node_tools() -> World {
    let world = World::new();
    world.signed(
        "tools/esm/tool.mjs",
        "export const __executor_id__ = \"rye/core/runtimes/node/node\";\n\
         import { word } from \"./lib/word.mjs\";\nimport other from \"other\";\n\
         console.log(JSON.stringify({ word, other }));\n",
    );
    world.write("tools/esm/lib/word.mjs", "export const word = \"esm\";\n");
    world.signed(
        "tools/cjs/tool.cjs",
        "/** @executor_id rye/core/runtimes/node/node */\n\
         const word = require(\"./word.cjs\");\n\
         if (require.main === module) console.log(JSON.stringify({ word, other: require(\"other\") }));\n",
    );
    world.write("tools/cjs/word.cjs", "module.exports = \"cjs\";\n");
    world
}

fn install(world: &World, folder: &str, text: &str) {
    let package = format!("{folder}/node_modules/other");
    let about = "{\"name\": \"other\", \"main\": \"index.js\"}";
    world.write(&format!("{package}/package.json"), about);
    world.write(&format!("{package}/index.js"), text);
}

const INSTALLED: &str = "module.exports = \"installed\";";
const PLANTED: &str =
    "require(\"fs\").writeFileSync(process.argv.at(-1) + \"/ran\", \"\"); module.exports = 1;";

#[tokio::test]
async fn a_node_tool_imports_what_was_signed_with_it() {
    let world = node_tools();
    for folder in ["esm", "cjs"] {
        let tool = format!("{folder}/tool");
        let place = world.at(&format!("tools/{folder}"));
        install(&world, &format!("tools/{folder}"), INSTALLED);
        let fails = world.run(&tool, json!({})).await;
        let text = fails.data["stderr"].as_str().unwrap().to_owned();
        let hint = format!("rye sign --manifest '{}'", place.display());
        assert!(text.contains(&hint), "{text}");
        world.sign_directory(&format!("tools/{folder}"));
        let fails = world.run(&tool, json!({})).await;
        let text = fails.data["stderr"].as_str().unwrap().to_owned();
        let hint = format!("rye sign --manifest '{}/node_modules'", place.display());
        assert!(text.contains(&hint), "{text}");
        world.sign_environment(&place.join("node_modules"));
        let envelope = world.run(&tool, json!({})).await;
        let expected = json!({"word": folder, "other": "installed"});
        assert_eq!(envelope.data, expected, "{envelope:?}");

        install(&world, &format!("tools/{folder}"), PLANTED);
        let error = world.refused(&tool, json!({})).await;
        assert_eq!(error.code, "content_changed", "{error:?}");
        assert!(error.message.contains("other/index.js"), "{error:?}");
    }
}

#[tokio::test]
async fn a_node_tool_loads_nothing_from_directories_above_it() {
    for above in ["tools", ".", "..", "../.."] {
        let world = node_tools();
        install(&world, above, PLANTED);
        for folder in ["esm", "cjs"] {
            world.sign_directory(&format!("tools/{folder}"));
            let envelope = world.run(&format!("{folder}/tool"), json!({})).await;
            assert_eq!(envelope.status, Status::Error, "{envelope:?}");
            // Also from a package that was signed.
            let nested = format!("tools/{folder}/node_modules/other");
            world.write(&format!("{nested}/package.json"), "{}");
            world.write(&format!("{nested}/index.js"), "require(\"third\");");
            let third = format!("{above}/node_modules/third");
            world.write(&format!("{third}/index.js"), PLANTED);
            world.sign_environment(&world.at(&format!("tools/{folder}/node_modules")));
            let envelope = world.run(&format!("{folder}/tool"), json!({})).await;
            assert_eq!(envelope.status, Status::Error, "{envelope:?}");
            assert!(!world.ran(), "{above} {folder}");
        }
    }
}

#[tokio::test]
async fn a_file_without_extension_does_not_take_the_place_of_a_signed_one() {
    let world = World::new();
    world.signed(
        "tools/pack/tool.cjs",
        "/** @executor_id rye/core/runtimes/node/node */\n\
         console.log(JSON.stringify({ word: require(\"./helper\") }));\n",
    );
    world.write("tools/pack/helper.js", "module.exports = \"signed\";\n");
    world.write("tools/pack/package.json", "{}");
    world.sign_dependencies("pack/tool");
    let envelope = world.run("pack/tool", json!({})).await;
    assert_eq!(envelope.data, json!({"word": "signed"}), "{envelope:?}");
    world.write("tools/pack/helper", PLANTED);
    let error = world.refused("pack/tool", json!({})).await;
    assert!(error.message.contains("added helper"), "{error:?}");
    fs::remove_file(world.at("tools/pack/helper")).unwrap();
    // Without the marker and the manifest, neither is loaded.
    fs::remove_file(world.at("tools/pack/package.json")).unwrap();
    fs::remove_file(world.at("tools/pack/rye.manifest")).unwrap();
    world.write("tools/pack/helper.js", PLANTED);
    let envelope = world.run("pack/tool", json!({})).await;
    assert_eq!(envelope.status, Status::Error, "{envelope:?}");
    assert!(!world.ran());
}

#[tokio::test]
async fn a_package_says_whether_its_scripts_are_modules() {
    let world = World::new();
    world.write("tools/pack/package.json", "{\"type\": \"module\"}");
    world.signed(
        "tools/pack/tool.js",
        "export const __executor_id__ = \"rye/core/runtimes/node/node\";\n\
         import fs from \"node:fs\";\n\
         console.log(JSON.stringify({ given: JSON.parse(fs.readFileSync(0, \"utf8\")) }));\n",
    );
    world.sign_dependencies("pack/tool");
    let envelope = world.run("pack/tool", json!({"a": 1})).await;
    assert_eq!(envelope.data, json!({"given": {"a": 1}}), "{envelope:?}");
    // A helper that nothing vouches for.
    world.write("tools/pack/dist/helper.js", "");
    let error = world.fails("pack/tool", json!({})).await;
    assert!(error.starts_with("content_changed: "), "{error}");
}

#[tokio::test]
async fn typescript_runs_or_says_what_to_install() {
    let world = World::new();
    world.signed(
        "tools/typed.ts",
        "export const __executor_id__: string = \"rye/core/runtimes/node/node\";\n\
         const answer: number = 42;\nconsole.log(JSON.stringify({ answer }));\n",
    );
    let envelope = world.run("typed", json!({})).await;
    match &envelope.error {
        None => assert_eq!(envelope.data, json!({"answer": 42})),
        Some(error) => {
            assert_eq!(error.code, "tool_failed", "{envelope:?}");
            assert!(error.message.contains("npm install tsx"), "{error:?}");
        }
    }
}

#[tokio::test]
async fn typescript_is_run_by_the_tsx_of_its_package_once_it_is_signed() {
    let world = World::new();
    world.signed(
        "tools/typed.ts",
        "export const __executor_id__: string = \"rye/core/runtimes/node/node\";\n",
    );
    let tsx = world.at("tools/node_modules/.bin/tsx");
    program(&tsx, "#!/bin/sh\nprintf '{\"tsx\": \"%s\"}' \"$3\"\n");
    let envelope = world.run("typed", json!({})).await;
    assert!(envelope.data.get("tsx").is_none(), "{envelope:?}");
    world.sign_environment(&world.at("tools/node_modules"));
    let envelope = world.run("typed", json!({})).await;
    let file = envelope.data["tsx"].as_str().unwrap_or_default();
    assert!(file.ends_with("/typed.ts"), "{envelope:?}");
}

/// As the guide to writing runtimes has it.
const RUBY: &str = r#"version: "1.0.0"
tool_type: runtime
executor_id: rye/core/primitives/execute
category: rye/core/runtimes/ruby
description: "Ruby runtime executor - executes Ruby scripts with Bundler support"
env_config:
  interpreter:
    type: system_binary
    binary: ruby
    var: RYE_RUBY
    fallback: /usr/bin/ruby
  env:
    RUBY_ENV: production
anchor:
  enabled: true
  mode: auto
  markers_any: ["Gemfile", "Rakefile"]
  root: tool_dir
  lib: lib/ruby
  env_paths:
    RUBYLIB:
      prepend: ["{anchor_path}", "{anchor_path}/lib/ruby"]
verify_deps:
  enabled: true
  scope: anchor
  recursive: true
  extensions: [".rb", ".yaml", ".yml", ".gemspec"]
  exclude_dirs: ["vendor", ".git", ".bundle", ".venv"]
config:
  command: "${RYE_RUBY}"
  args:
    - "{tool_path}"
    - "--project-path"
    - "{project_path}"
  input_data: "{params_json}"
  timeout: 300
"#;

const RUBY_TOOL: &str = r#""""
Tool description
"""

__version__ = "1.0.0"
__tool_type__ = "ruby"
__executor_id__ = "rye/core/runtimes/ruby/ruby"
__category__ = "category/path"
__tool_description__ = "What this does"

require 'helper'

def execute(params, project_path)
  { success: true, output: Helper.processed(params["name"]), project: project_path, env: ENV["RUBY_ENV"] }
end

if __FILE__ == $0
  require 'json'
  require 'optparse'
  project_path = nil
  OptionParser.new do |opts|
    opts.on("--project-path PATH") { |v| project_path = v }
  end.parse!
  params = JSON.parse($stdin.read)
  puts JSON.generate(execute(params, project_path))
end
"#;

#[tokio::test]
async fn a_project_adds_ruby_with_one_file() {
    let world = World::new();
    world.signed("tools/rye/core/runtimes/ruby/ruby.yaml", RUBY);
    world.write("tools/text/Gemfile", "");
    world.signed("tools/text/greet.rb", RUBY_TOOL);
    let helper = "module Helper\n  def self.processed(name) = \"Processed #{name}\"\nend\n";
    world.write("tools/text/lib/ruby/helper.rb", helper);
    world.sign_dependencies("text/greet");
    let envelope = world
        .run("text/greet", json!({"name": "#{`id`} Ada"}))
        .await;
    let expected = json!({
        "success": true,
        "output": "Processed #{`id`} Ada",
        "project": world.project(),
        "env": "production",
    });
    assert_eq!(envelope.data, expected, "{envelope:?}");
    world.write("tools/text/lib/ruby/helper.rb", "exit\n");
    let error = world.fails("text/greet", json!({"name": "x"})).await;
    assert!(error.starts_with("content_changed: "), "{error}");
}

#[tokio::test]
async fn a_runtime_may_be_a_python_file_that_tools_name_by_its_bare_name() {
    let world = World::new();
    world.signed(
        "tools/rye/core/runtimes/python_runtime.py",
        r#"__version__ = "1.0.0"
__tool_type__ = "runtime"
__executor_id__ = "subprocess"
__category__ = "runtimes"

ENV_CONFIG = {
    "interpreter": {
        "type": "venv_python",
        "search": ["project", "user", "system"],
        "var": "RYE_PYTHON",
        "fallback": "python3",
    },
    "env": {
        "PYTHONUNBUFFERED": "1",
        "PROJECT_VENV_PYTHON": "${RYE_PYTHON}",
    },
}

CONFIG = {
    "command": "${RYE_PYTHON}",
    "args": [],
    "timeout": 300,
}
"#,
    );
    world.signed(
        "tools/rye/agent/threads/capabilities/git.py",
        r#"__tool_type__ = "python"
__executor_id__ = "python_runtime"
__category__ = "capabilities"

import os

def main(command: str, args: list = None) -> dict:
    """Execute git command."""
    return {"result": [command] + (args or []), "python": os.environ["PROJECT_VENV_PYTHON"]}
"#,
    );
    let given = json!({"command": "git", "args": ["status"]});
    let envelope = world.run("git", given).await;
    assert_eq!(envelope.status, Status::Success, "{envelope:?}");
    assert_eq!(envelope.data["result"], json!(["git", "status"]));
    assert_eq!(
        envelope.chain,
        [
            "rye/agent/threads/capabilities/git",
            "rye/core/runtimes/python_runtime",
            "rye/core/primitives/execute"
        ]
    );
}

#[tokio::test]
async fn the_rust_runtime_waits_with_lillux_unless_told_otherwise() {
    let world = World::new();
    let bin = world.project().join("bin");
    program(
        &bin.join("lillux"),
        "#!/bin/sh\nprintf '{\"words\": \"%s\"}' \"$*\"\n",
    );
    world.signed(
        "tools/wait.yaml",
        "version: \"1.0.0\"\nexecutor_id: rye/core/runtimes/rust/runtime\n",
    );
    let given = json!({"db_path": "/a b", "thread_id": "t", "timeout": 5});
    let envelope = run_with_path(&world, "wait", given, &bin).await;
    let words = "watch --db /a b --thread-id t --timeout 5";
    assert_eq!(envelope.data, json!({ "words": words }), "{envelope:?}");

    program(
        &bin.join("other"),
        "#!/bin/sh\nprintf '{\"other\": %s}' \"$(cat)\"\n",
    );
    let tool = "version: \"1.0.0\"\nexecutor_id: rye/core/runtimes/rust/runtime\n\
        config: { binary: other, args: [], input_data: \"{params_json}\" }\n";
    world.signed("tools/named.yaml", tool);
    // A parameter named as the configuration is data.
    let given = json!({"binary": "sh"});
    let envelope = run_with_path(&world, "named", given, &bin).await;
    assert_eq!(
        envelope.data,
        json!({"other": {"binary": "sh"}}),
        "{envelope:?}"
    );
}

#[tokio::test]
async fn a_program_beside_the_tool_runs_only_if_it_has_the_hash() {
    let world = World::new();
    let text = "#!/bin/sh\nprintf '{\"beside\": \"%s\"}' \"$1\"\n";
    let path = world.at("tools/greet/greet-bin");
    program(&path, text);
    let tool = |binary: &str, hash: &str| {
        format!(
            "version: \"1.0.0\"\nexecutor_id: rye/core/runtimes/rust/runtime\n\
             config:\n  binary: {binary}\n  args: [\"{{name}}\"]\n{hash}"
        )
    };
    let hash = format!("  sha256: {}\n", Hash::digest(text).to_hex());
    world.signed("tools/greet/greet.yaml", &tool("./greet-bin", &hash));
    let envelope = world.run("greet/greet", json!({"name": "Ada"})).await;
    assert_eq!(envelope.data, json!({"beside": "Ada"}), "{envelope:?}");

    program(&path, "#!/bin/sh\necho planted\n");
    let error = world.refused("greet/greet", json!({"name": "Ada"})).await;
    assert_eq!(error.code, "content_changed", "{error:?}");
    world.signed("tools/greet/bare.yaml", &tool("./greet-bin", ""));
    let error = world.refused("greet/bare", json!({"name": "Ada"})).await;
    assert_eq!(error.code, "unsigned", "{error:?}");
    for out in ["../greet/greet-bin", "/bin/sh", "greet/../greet-bin"] {
        world.signed("tools/greet/out.yaml", &tool(out, &hash));
        let error = world.refused("greet/out", json!({"name": "Ada"})).await;
        assert_eq!(error.code, "interpreter_not_found", "{error:?}");
    }
}

#[tokio::test]
async fn a_colon_in_the_projects_path_does_not_lead_imports_elsewhere() {
    let world = World::with_project_called("co:lon");
    world.signed(
        "tools/pk/tool.py",
        "__executor_id__ = \"rye/core/runtimes/python/script\"\nimport helper\n",
    );
    world.write("tools/pk/helper.py", "print('{\"own\": true}')\n");
    world.write("tools/pk/pyproject.toml", "");
    world.sign_dependencies("pk/tool");
    let planted = world.project().join("lon/.ai/tools/pk/helper.py");
    fs::create_dir_all(planted.parent().unwrap()).unwrap();
    fs::write(&planted, "open('ran', 'w')\n").unwrap();
    let envelope = world.run("pk/tool", json!({})).await;
    assert_eq!(envelope.data, json!({"own": true}), "{envelope:?}");
    assert!(!world.ran());
}

#[tokio::test]
async fn an_interpreter_that_is_not_there_is_named_with_what_was_tried() {
    let world = World::new();
    world.signed(
        "tools/lua.yaml",
        "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: subprocess\n\
         env_config: { interpreter: { type: system_binary, binary: no-such-lua, var: L } }\n\
         config: { command: \"${L}\" }\n",
    );
    world.signed("tools/x.lua", "-- executor_id: lua\n");
    let error = world.fails("x", json!({})).await;
    assert!(error.starts_with("interpreter_not_found: "), "{error}");
    assert!(error.contains("no-such-lua"), "{error}");
}
