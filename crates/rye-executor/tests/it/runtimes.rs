//! The bundled runtimes and a custom one, with real interpreters.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::support::{TestEnv, hint_command};
use lillux::Hash;
use rye_executor::{ExecutionResult, Request, Status};
use serde_json::{Value, json};

fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs a tool with a directory first on `PATH`.
async fn run_with_path(
    env: &TestEnv,
    tool: &str,
    parameters: Value,
    first: &Path,
) -> ExecutionResult {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut request = Request::new(tool.parse().unwrap()).with_parameters(parameters);
    let path = format!("{}:{path}", first.display());
    request.environment = Some(vec![("PATH".to_owned(), path)]);
    env.executor.execute(request).await
}

#[tokio::test]
async fn python_script_gets_parameters_and_project_path() {
    let env = TestEnv::new();
    env.signed(
        "tools/sum.py",
        "__version__ = \"1.0.0\"\n__executor_id__ = \"rye/core/runtimes/python/script\"\n\
         import argparse, json, sys\n\
         if __name__ == \"__main__\":\n    parser = argparse.ArgumentParser()\n    \
         parser.add_argument(\"--project-path\")\n    given = json.load(sys.stdin)\n    \
         print(json.dumps({\"sum\": sum(given[\"of\"]), \"project\": parser.parse_args().project_path}))\n",
    );
    let result = env.run("sum", json!({"of": [1, 2, 3]})).await;
    let expected = json!({"sum": 6, "project": env.project()});
    assert_eq!(result.data, expected, "{result:?}");
}

#[tokio::test]
async fn project_python_environment_is_used_once_signed() {
    let env = TestEnv::new();
    let environment = env.project().join(".venv");
    let stand_in = "#!/bin/sh\nexport STAND_IN=yes\nexec python3 \"$@\"\n";
    program(&environment.join("bin/python"), stand_in);
    let tool = "__executor_id__ = \"rye/core/runtimes/python/function\"\nimport os\n\
         async def main(**given):\n    return {\"own\": os.environ.get(\"STAND_IN\"), **given}\n";
    env.signed("tools/which.py", tool);
    env.signed_for_user("tools/mine.py", tool);
    let result = env.run("which", json!({"a": 1})).await;
    assert_eq!(result.data, json!({"own": null, "a": 1}), "{result:?}");
    let hint = format!("rye sign --manifest {}", environment.display());
    assert!(
        crate::support::warnings(&result)
            .iter()
            .any(|text| text.contains(&hint)),
        "{result:?}"
    );

    env.sign_environment(&environment);
    let result = env.run("which", json!({"a": 1})).await;
    assert_eq!(result.data, json!({"own": "yes", "a": 1}), "{result:?}");
    assert!(crate::support::warnings(&result).is_empty(), "{result:?}");
    // Only tools of the project use it.
    let result = env.run("mine", json!({})).await;
    assert_eq!(result.data, json!({"own": null}), "{result:?}");

    program(&environment.join("bin/python"), "#!/bin/sh\ntouch ran\n");
    let error = env.refused_by_call("which", json!({})).await;
    assert_eq!(error.code, "content_changed", "{error:?}");
    assert!(error.message.contains("changed bin/python"), "{error:?}");
    assert_eq!(hint_command(&error), hint);
    let result = env.run("rye/file-system/list", json!({"path": "."})).await;
    assert_eq!(result.status, Status::Success, "{result:?}");
    assert!(!env.ran());
}

/// Two Node tools, each in a directory with a helper and an installed package.
fn node_tools() -> TestEnv {
    let env = TestEnv::new();
    env.signed(
        "tools/esm/tool.mjs",
        "export const __executor_id__ = \"rye/core/runtimes/node/node\";\n\
         import { word } from \"./lib/word.mjs\";\nimport other from \"other\";\n\
         console.log(JSON.stringify({ word, other }));\n",
    );
    env.write("tools/esm/lib/word.mjs", "export const word = \"esm\";\n");
    env.signed(
        "tools/cjs/tool.cjs",
        "/** @executor_id rye/core/runtimes/node/node */\n\
         const word = require(\"./word.cjs\");\n\
         if (require.main === module) console.log(JSON.stringify({ word, other: require(\"other\") }));\n",
    );
    env.write("tools/cjs/word.cjs", "module.exports = \"cjs\";\n");
    env
}

fn install(env: &TestEnv, dir: &str, text: &str) {
    let package = format!("{dir}/node_modules/other");
    let about = "{\"name\": \"other\", \"main\": \"index.js\"}";
    env.write(&format!("{package}/package.json"), about);
    env.write(&format!("{package}/index.js"), text);
}

const INSTALLED: &str = "module.exports = \"installed\";";
const PLANTED: &str =
    "require(\"fs\").writeFileSync(process.argv.at(-1) + \"/ran\", \"\"); module.exports = 1;";

#[tokio::test]
async fn node_tool_imports_only_signed_files() {
    let env = node_tools();
    for dir in ["esm", "cjs"] {
        let tool = format!("{dir}/tool");
        let tool_dir = env.project_path(&format!("tools/{dir}"));
        install(&env, &format!("tools/{dir}"), INSTALLED);
        let fails = env.run(&tool, json!({})).await;
        let text = fails.data["stderr"].as_str().unwrap().to_owned();
        let hint = format!("rye sign --manifest '{}'", tool_dir.display());
        assert!(text.contains(&hint), "{text}");
        env.sign_directory(&format!("tools/{dir}"));
        let fails = env.run(&tool, json!({})).await;
        let text = fails.data["stderr"].as_str().unwrap().to_owned();
        let hint = format!("rye sign --manifest '{}/node_modules'", tool_dir.display());
        assert!(text.contains(&hint), "{text}");
        env.sign_environment(&tool_dir.join("node_modules"));
        let result = env.run(&tool, json!({})).await;
        let expected = json!({"word": dir, "other": "installed"});
        assert_eq!(result.data, expected, "{result:?}");

        install(&env, &format!("tools/{dir}"), PLANTED);
        let error = env.refused(&tool, json!({})).await;
        assert_eq!(error.code, "content_changed", "{error:?}");
        assert!(error.message.contains("other/index.js"), "{error:?}");
    }
}

#[tokio::test]
async fn node_tool_does_not_load_from_parent_directories() {
    for above in ["tools", ".", "..", "../.."] {
        let env = node_tools();
        install(&env, above, PLANTED);
        for dir in ["esm", "cjs"] {
            env.sign_directory(&format!("tools/{dir}"));
            let result = env.run(&format!("{dir}/tool"), json!({})).await;
            assert_eq!(result.status, Status::Error, "{result:?}");
            // Neither from a signed package.
            let nested = format!("tools/{dir}/node_modules/other");
            env.write(&format!("{nested}/package.json"), "{}");
            env.write(&format!("{nested}/index.js"), "require(\"third\");");
            let third = format!("{above}/node_modules/third");
            env.write(&format!("{third}/index.js"), PLANTED);
            env.sign_environment(&env.project_path(&format!("tools/{dir}/node_modules")));
            let result = env.run(&format!("{dir}/tool"), json!({})).await;
            assert_eq!(result.status, Status::Error, "{result:?}");
            assert!(!env.ran(), "{above} {dir}");
        }
    }
}

#[tokio::test]
async fn file_without_extension_does_not_shadow_a_signed_one() {
    let env = TestEnv::new();
    env.signed(
        "tools/pack/tool.cjs",
        "/** @executor_id rye/core/runtimes/node/node */\n\
         console.log(JSON.stringify({ word: require(\"./helper\") }));\n",
    );
    env.write("tools/pack/helper.js", "module.exports = \"signed\";\n");
    env.write("tools/pack/package.json", "{}");
    env.sign_dependencies("pack/tool");
    let result = env.run("pack/tool", json!({})).await;
    assert_eq!(result.data, json!({"word": "signed"}), "{result:?}");
    env.write("tools/pack/helper", PLANTED);
    let error = env.refused("pack/tool", json!({})).await;
    assert!(error.message.contains("added helper"), "{error:?}");
    fs::remove_file(env.project_path("tools/pack/helper")).unwrap();
    // Without the marker and the manifest, neither is loaded.
    fs::remove_file(env.project_path("tools/pack/package.json")).unwrap();
    fs::remove_file(env.project_path("tools/pack/rye.manifest")).unwrap();
    env.write("tools/pack/helper.js", PLANTED);
    let result = env.run("pack/tool", json!({})).await;
    assert_eq!(result.status, Status::Error, "{result:?}");
    assert!(!env.ran());
}

#[tokio::test]
async fn package_type_decides_whether_scripts_are_modules() {
    let env = TestEnv::new();
    env.write("tools/pack/package.json", "{\"type\": \"module\"}");
    env.signed(
        "tools/pack/tool.js",
        "export const __executor_id__ = \"rye/core/runtimes/node/node\";\n\
         import fs from \"node:fs\";\n\
         console.log(JSON.stringify({ given: JSON.parse(fs.readFileSync(0, \"utf8\")) }));\n",
    );
    env.sign_dependencies("pack/tool");
    let result = env.run("pack/tool", json!({"a": 1})).await;
    assert_eq!(result.data, json!({"given": {"a": 1}}), "{result:?}");
    // An unsigned helper.
    env.write("tools/pack/dist/helper.js", "");
    let error = env.fails("pack/tool", json!({})).await;
    assert!(error.starts_with("content_changed: "), "{error}");
}

#[tokio::test]
async fn typescript_runs_or_reports_what_to_install() {
    let env = TestEnv::new();
    env.signed(
        "tools/typed.ts",
        "export const __executor_id__: string = \"rye/core/runtimes/node/node\";\n\
         const answer: number = 42;\nconsole.log(JSON.stringify({ answer }));\n",
    );
    let result = env.run("typed", json!({})).await;
    match &result.error {
        None => assert_eq!(result.data, json!({"answer": 42})),
        Some(error) => {
            assert_eq!(error.code, "tool_failed", "{result:?}");
            assert!(error.message.contains("npm install tsx"), "{error:?}");
        }
    }
}

#[tokio::test]
async fn tsx_of_the_package_is_used_once_signed() {
    let env = TestEnv::new();
    env.signed(
        "tools/typed.ts",
        "export const __executor_id__: string = \"rye/core/runtimes/node/node\";\n",
    );
    let tsx = env.project_path("tools/node_modules/.bin/tsx");
    program(&tsx, "#!/bin/sh\nprintf '{\"tsx\": \"%s\"}' \"$3\"\n");
    let result = env.run("typed", json!({})).await;
    assert!(result.data.get("tsx").is_none(), "{result:?}");
    env.sign_environment(&env.project_path("tools/node_modules"));
    let result = env.run("typed", json!({})).await;
    let file = result.data["tsx"].as_str().unwrap_or_default();
    assert!(file.ends_with("/typed.ts"), "{result:?}");
}

/// The example of the runtime guide.
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
async fn project_can_add_a_ruby_runtime() {
    let env = TestEnv::new();
    env.signed("tools/rye/core/runtimes/ruby/ruby.yaml", RUBY);
    env.write("tools/text/Gemfile", "");
    env.signed("tools/text/greet.rb", RUBY_TOOL);
    let helper = "module Helper\n  def self.processed(name) = \"Processed #{name}\"\nend\n";
    env.write("tools/text/lib/ruby/helper.rb", helper);
    env.sign_dependencies("text/greet");
    let result = env.run("text/greet", json!({"name": "#{`id`} Ada"})).await;
    let expected = json!({
        "success": true,
        "output": "Processed #{`id`} Ada",
        "project": env.project(),
        "env": "production",
    });
    assert_eq!(result.data, expected, "{result:?}");
    env.write("tools/text/lib/ruby/helper.rb", "exit\n");
    let error = env.fails("text/greet", json!({"name": "x"})).await;
    assert!(error.starts_with("content_changed: "), "{error}");
}

#[tokio::test]
async fn runtime_can_be_a_python_file_named_by_its_bare_name() {
    let env = TestEnv::new();
    env.signed(
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
    env.signed(
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
    let result = env.run("git", given).await;
    assert_eq!(result.status, Status::Success, "{result:?}");
    assert_eq!(result.data["result"], json!(["git", "status"]));
    assert_eq!(
        result.chain,
        [
            "rye/agent/threads/capabilities/git",
            "rye/core/runtimes/python_runtime",
            "rye/core/primitives/execute"
        ]
    );
}

#[tokio::test]
async fn rust_runtime_runs_lillux_by_default() {
    let env = TestEnv::new();
    let bin = env.project().join("bin");
    program(
        &bin.join("lillux"),
        "#!/bin/sh\nprintf '{\"words\": \"%s\"}' \"$*\"\n",
    );
    env.signed(
        "tools/wait.yaml",
        "version: \"1.0.0\"\nexecutor_id: rye/core/runtimes/rust/runtime\n",
    );
    let given = json!({"db_path": "/a b", "thread_id": "t", "timeout": 5});
    let result = run_with_path(&env, "wait", given, &bin).await;
    let words = "watch --db /a b --thread-id t --timeout 5";
    assert_eq!(result.data, json!({ "words": words }), "{result:?}");
    // Without a parameter, the timeout is that of the runtime.
    let given = json!({"db_path": "/a", "thread_id": "t"});
    let result = run_with_path(&env, "wait", given, &bin).await;
    let words = "watch --db /a --thread-id t --timeout 600";
    assert_eq!(result.data, json!({ "words": words }), "{result:?}");

    // The program never gets a placeholder.
    let result = run_with_path(&env, "wait", json!({"thread_id": "t"}), &bin).await;
    let error = result.error.unwrap();
    assert_eq!(error.code, "unknown_placeholder", "{error:?}");
    assert!(error.message.contains("`db_path`"), "{error:?}");

    program(
        &bin.join("other"),
        "#!/bin/sh\nprintf '{\"other\": %s}' \"$(cat)\"\n",
    );
    let tool = "version: \"1.0.0\"\nexecutor_id: rye/core/runtimes/rust/runtime\n\
        config: { binary: other, args: [], input_data: \"{params_json}\" }\n";
    env.signed("tools/named.yaml", tool);
    // A parameter with the name of a configuration key is data.
    let given = json!({"binary": "sh"});
    let result = run_with_path(&env, "named", given, &bin).await;
    assert_eq!(
        result.data,
        json!({"other": {"binary": "sh"}}),
        "{result:?}"
    );
}

#[tokio::test]
async fn absent_parameter_in_the_arguments_of_a_tool_is_an_error() {
    let env = TestEnv::new();
    env.signed(
        "tools/say.yaml",
        "version: \"1.0.0\"\nexecutor_id: rye/core/primitives/execute\n\
         config: { command: echo, args: [\"{word}\", \"{{}}\", \"{print}\"] }\n\
         config_schema: { type: object, properties: { word: { type: string } } }\n",
    );
    let error = env.refused_by_call("say", json!({})).await;
    assert_eq!(error.code, "unknown_placeholder", "{error:?}");
    // Braces that no parameter has are meant literally.
    let result = env.run("say", json!({"word": "hi"})).await;
    let printed = result.data["stdout"].as_str().unwrap();
    assert!(
        printed.starts_with("hi ") && printed.ends_with("{print}\n"),
        "{result:?}"
    );
}

#[tokio::test]
async fn program_in_the_tool_directory_needs_a_matching_hash() {
    let env = TestEnv::new();
    let text = "#!/bin/sh\nprintf '{\"beside\": \"%s\"}' \"$1\"\n";
    let path = env.project_path("tools/greet/greet-bin");
    program(&path, text);
    let tool = |binary: &str, hash: &str| {
        format!(
            "version: \"1.0.0\"\nexecutor_id: rye/core/runtimes/rust/runtime\n\
             config:\n  binary: {binary}\n  args: [\"{{name}}\"]\n{hash}"
        )
    };
    let hash = format!("  sha256: {}\n", Hash::digest(text).to_hex());
    env.signed("tools/greet/greet.yaml", &tool("./greet-bin", &hash));
    let result = env.run("greet/greet", json!({"name": "Ada"})).await;
    assert_eq!(result.data, json!({"beside": "Ada"}), "{result:?}");

    program(&path, "#!/bin/sh\necho planted\n");
    let error = env.refused("greet/greet", json!({"name": "Ada"})).await;
    assert_eq!(error.code, "content_changed", "{error:?}");
    env.signed("tools/greet/bare.yaml", &tool("./greet-bin", ""));
    let error = env.refused("greet/bare", json!({"name": "Ada"})).await;
    assert_eq!(error.code, "unsigned", "{error:?}");
    for out in ["../greet/greet-bin", "/bin/sh", "greet/../greet-bin"] {
        env.signed("tools/greet/out.yaml", &tool(out, &hash));
        let error = env.refused("greet/out", json!({"name": "Ada"})).await;
        assert_eq!(error.code, "interpreter_not_found", "{error:?}");
    }
}

#[tokio::test]
async fn colon_in_the_project_path_does_not_redirect_imports() {
    let env = TestEnv::with_project_named("co:lon");
    env.signed(
        "tools/pk/tool.py",
        "__executor_id__ = \"rye/core/runtimes/python/script\"\nimport helper\n",
    );
    env.write("tools/pk/helper.py", "print('{\"own\": true}')\n");
    env.write("tools/pk/pyproject.toml", "");
    env.sign_dependencies("pk/tool");
    let planted = env.project().join("lon/.ai/tools/pk/helper.py");
    fs::create_dir_all(planted.parent().unwrap()).unwrap();
    fs::write(&planted, "open('ran', 'w')\n").unwrap();
    let result = env.run("pk/tool", json!({})).await;
    assert_eq!(result.data, json!({"own": true}), "{result:?}");
    assert!(!env.ran());
}

#[tokio::test]
async fn missing_interpreter_is_named() {
    let env = TestEnv::new();
    env.signed(
        "tools/lua.yaml",
        "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: subprocess\n\
         env_config: { interpreter: { type: system_binary, binary: no-such-lua, var: L } }\n\
         config: { command: \"${L}\" }\n",
    );
    env.signed("tools/x.lua", "-- executor_id: lua\n");
    let error = env.fails("x", json!({})).await;
    assert!(error.starts_with("interpreter_not_found: "), "{error}");
    assert!(error.contains("no-such-lua"), "{error}");
}
