//! Direct calls of runtimes and primitives, and what may be an executor.

use crate::support::server::{Reply, Server};
use crate::support::{TestEnv, warnings};
use rye_executor::Status;
use serde_json::json;

#[tokio::test]
async fn primitive_runs_with_its_parameters_as_configuration() {
    let env = TestEnv::new();
    let call = json!({"command": "printf", "args": ["%s %s", "hi", "{project_path} ${HOME}"]});
    for id in [
        "rye/core/primitives/execute",
        "rye/core/primitives/subprocess",
        "subprocess",
    ] {
        let result = env.run(id, call.clone()).await;
        assert_eq!(
            result.data["stdout"], "hi {project_path} ${HOME}",
            "{result:?}"
        );
    }
    let error = env.refused("rye/core/primitives/execute", json!({})).await;
    assert_eq!(error.code, "invalid_parameters", "{error:?}");
}

#[tokio::test]
async fn http_primitive_sends_the_given_request() {
    let env = TestEnv::new();
    let server = Server::start(|_, _| Reply::json("{}")).await;
    let call =
        json!({"url": format!("{}/echo", server.address), "method": "POST", "body": {"a": "{b}"}});
    let result = env.run("http_client", call).await;
    assert_eq!(result.status, Status::Success, "{result:?}");
    let requests = server.requests();
    assert!(requests[0].contains("{\"a\":\"{b}\"}"), "{requests:?}");
}

#[tokio::test]
async fn runtime_that_needs_a_file_is_refused_without_one() {
    let env = TestEnv::new();
    for runtime in ["python/function", "python/script", "node/node", "bash/bash"] {
        let error = env
            .refused(&format!("rye/core/runtimes/{runtime}"), json!({}))
            .await;
        assert_eq!(error.code, "needs_tool", "{runtime}: {error:?}");
    }
    let call = json!({"command": "echo \"${0##*/}\" | wc -c; echo done"});
    let result = env.run("rye/core/runtimes/bash/bash", call).await;
    assert_eq!(result.status, Status::Success, "{result:?}");
}

#[tokio::test]
async fn executor_that_is_a_tool_is_refused() {
    let env = TestEnv::new();
    env.signed(
        "tools/other.py",
        "__executor_id__ = \"rye/core/runtimes/python/function\"\n__tool_type__ = \"python\"\n\
         def execute(params, project_path):\n    return {}\n",
    );
    env.signed("tools/it.py", "__executor_id__ = \"other\"\n");
    let error = env.refused("it", json!({})).await;
    assert_eq!(error.code, "not_a_runtime", "{error:?}");
}

#[tokio::test]
async fn primitive_can_be_described_again_but_not_invented() {
    let env = TestEnv::new();
    // The file that the executor overview shows.
    env.signed(
        "tools/rye/core/primitives/subprocess.py",
        "__tool_type__ = \"primitive\"\n__executor_id__ = None\n__category__ = \"primitives\"\n\
         CONFIG_SCHEMA = {\"type\": \"object\", \"properties\": {\"command\": {\"type\": \"string\"}, \
         \"timeout\": {\"type\": \"integer\", \"default\": 300}}, \"required\": [\"command\"]}\n",
    );
    env.signed(
        "tools/it.yaml",
        "executor_id: rye/core/primitives/subprocess\nconfig: {command: echo, args: [hi]}\n",
    );
    let result = env.run("it", json!({})).await;
    assert_eq!(result.data["stdout"], "hi\n", "{result:?}");
    env.signed(
        "tools/mine.yaml",
        "tool_type: primitive\nexecutor_id: null\n",
    );
    env.signed(
        "tools/uses.yaml",
        "executor_id: mine\nconfig: {command: echo}\n",
    );
    for tool in ["uses", "mine"] {
        let error = env.refused(tool, json!({})).await;
        assert_eq!(error.code, "unknown_primitive", "{error:?}");
    }
}

#[tokio::test]
async fn project_override_of_a_runtime_affects_only_the_project() {
    let env = TestEnv::new();
    env.signed(
        "tools/rye/core/runtimes/bash/bash.yaml",
        "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: rye/core/primitives/execute\n\
         config: {command: echo, args: [overridden]}\n",
    );
    env.script("mine", "echo script\n");
    env.signed_for_user(
        "tools/theirs.sh",
        "# executor_id: rye/core/runtimes/bash/bash\n# version: \"1.0.0\"\necho script\n",
    );
    let result = env.run("mine", json!({})).await;
    assert_eq!(result.data["stdout"], "overridden\n", "{result:?}");
    let result = env.run("theirs", json!({})).await;
    assert_eq!(result.data["stdout"], "script\n", "{result:?}");
    // If the override fails, a warning names the file and what it shadows.
    let runtime = "tools/rye/core/runtimes/bash/bash.yaml";
    env.signed(
        runtime,
        "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: rye/core/primitives/execute\n\
         config: {command: no-such-program-anywhere}\n",
    );
    let result = env.run("mine", json!({})).await;
    assert_eq!(result.status, Status::Error, "{result:?}");
    let warnings = warnings(&result).join("\n");
    let path = env.project_path(runtime);
    assert!(
        warnings.contains(&path.display().to_string()) && warnings.contains("embedded:"),
        "{warnings}"
    );
    // A tool of the system, with an override of its runtime that cannot even be verified.
    env.write(
        "tools/rye/core/runtimes/python/function.yaml",
        "tool_type: runtime\nexecutor_id: subprocess\nconfig: {command: echo}\n",
    );
    env.write("a.txt", "text");
    let result = env
        .run("rye/file-system/read", json!({"path": ".ai/a.txt"}))
        .await;
    assert_eq!(result.status, Status::Success, "{result:?}");
}

#[tokio::test]
async fn configuration_values_are_placeholders_and_parameters_stay_literal() {
    let env = TestEnv::new();
    env.signed(
        "tools/it.yaml",
        "executor_id: subprocess\nconfig_schema: {type: object, properties: {name: {type: string}}}\n\
         config:\n  command: echo\n  args: [\"{timeout}\", \"{greeting}\", \"{name}\"]\n  timeout: 7\n  \
         greeting: \"hello {who}\"\n  who: \"{name}!\"\n",
    );
    let result = env.run("it", json!({"name": "{timeout}"})).await;
    assert_eq!(
        result.data["stdout"], "7 hello {timeout}! {timeout}\n",
        "{result:?}"
    );
}

#[tokio::test]
async fn arguments_of_a_tool_are_added_if_the_runtime_declares_them() {
    let env = TestEnv::new();
    env.signed(
        "tools/rt.yaml",
        "tool_type: runtime\nexecutor_id: rye/core/primitives/execute\nversion: \"1.0.0\"\n\
         config: {command: echo, args: [first]}\n\
         config_schema: {type: object, properties: {args: {type: array}}}\n",
    );
    env.signed(
        "tools/it.yaml",
        "executor_id: rt\nconfig: {args: [second]}\n",
    );
    let result = env.run("it", json!({})).await;
    assert_eq!(result.data["stdout"], "first second\n", "{result:?}");
}

#[tokio::test]
async fn arguments_of_a_tool_are_added_to_those_of_a_shipped_runtime() {
    let env = TestEnv::new();
    env.signed(
        "tools/py.py",
        "__executor_id__ = \"rye/core/runtimes/python/script\"\nCONFIG = {\"args\": [\"--mine\", \"v\"]}\n\
         import json, sys\nprint(json.dumps(sys.argv[1:]))\n",
    );
    env.signed(
        "tools/js.mjs",
        "export const __executor_id__ = \"rye/core/runtimes/node/node\";\n\
         export const CONFIG = { args: [\"--mine\", \"v\"] };\n\
         console.log(JSON.stringify(process.argv.slice(2)));\n",
    );
    env.signed(
        "tools/sh.yaml",
        "executor_id: rye/core/runtimes/bash/bash\n\
         config: {command: 'printf \"[\\\"%s\\\",\\\"%s\\\"]\" \"$2\" \"$3\"', args: [--mine, v]}\n",
    );
    // A parameter of the tool with the same name is data, as before.
    env.signed(
        "tools/named.yaml",
        "executor_id: rye/core/runtimes/bash/bash\n\
         config_schema: {type: object, properties: {args: {type: string}}}\n\
         config: {command: 'echo \"$ARGS\"', env: {ARGS: \"{args}\"}}\n",
    );
    let result = env.run("named", json!({"args": "mine"})).await;
    assert_eq!(result.data["stdout"], "mine\n", "{result:?}");
    let project = env.project().to_str().unwrap();
    let own = json!(["--project-path", project, "--mine", "v"]);
    for (tool, arguments) in [("py", &own), ("js", &own), ("sh", &json!(["--mine", "v"]))] {
        let result = env.run(tool, json!({})).await;
        assert_eq!(&result.data, arguments, "{tool}: {result:?}");
    }
}

#[tokio::test]
async fn parameter_named_like_the_code_of_a_runtime_is_refused() {
    let env = TestEnv::new();
    let schema = "config_schema: {type: object, properties: {command: {type: string}}}\n";
    let head = "executor_id: rye/core/runtimes/bash/bash\nversion: \"1.0.0\"\n";
    env.signed("tools/plain.yaml", &format!("{head}{schema}"));
    env.signed(
        "tools/refers.yaml",
        &format!("{head}{schema}config: {{command: \"{{command}}\"}}\n"),
    );
    env.signed("tools/any.yaml", head);
    for tool in ["plain", "refers", "any"] {
        let error = env.refused(tool, json!({"command": "touch ran"})).await;
        assert_eq!(error.code, "value_as_code", "{tool}: {error:?}");
    }
    // A script reads the parameter as data.
    env.script("script", "cat\n");
    let result = env.run("script", json!({"command": "ls"})).await;
    assert_eq!(result.data, json!({"command": "ls"}), "{result:?}");
}

#[tokio::test]
async fn dry_run_finds_what_a_run_would_hit() {
    let env = TestEnv::new();
    let tool = |name: &str, text: &str| {
        env.signed(
            &format!("tools/{name}.yaml"),
            &format!("version: \"1.0.0\"\n{text}\n"),
        );
    };
    let executed = "executor_id: subprocess\n";
    tool("no_command", &format!("{executed}config: {{args: [x]}}"));
    tool(
        "unset",
        &format!("{executed}config: {{command: \"${{NOT_SET_ANYWHERE}}\"}}"),
    );
    tool(
        "absent",
        &format!("{executed}config: {{command: no-such-program-anywhere}}"),
    );
    tool(
        "args",
        &format!("{executed}config: {{command: echo, args: x}}"),
    );
    tool(
        "timeout",
        &format!("{executed}config: {{command: echo, timeout: soon}}"),
    );
    tool(
        "mode",
        &format!(
            "{executed}config: {{command: echo}}\nconfig_resolve: {{path: a.yaml, mode: all}}"
        ),
    );
    tool(
        "variable",
        &format!("{executed}config: {{command: echo}}\nrequires_env: [NOT_SET_ANYWHERE]"),
    );
    tool(
        "url",
        "executor_id: http_client\nconfig: {url: \"ftp://x\"}",
    );
    let interpreter = "{type: system_binary, binary: no-such-interpreter, var: RYE_IT}";
    tool(
        "interpreter",
        &format!(
            "{executed}env_config: {{interpreter: {interpreter}}}\nconfig: {{command: \"${{RYE_IT}}\"}}"
        ),
    );
    tool("script", "executor_id: rye/core/runtimes/bash/bash");
    for (name, code) in [
        ("script", "no_command"),
        ("interpreter", "interpreter_not_found"),
        ("no_command", "invalid_config"),
        ("unset", "no_command"),
        ("absent", "cannot_start"),
        ("args", "invalid_config"),
        ("timeout", "invalid_config"),
        ("mode", "invalid_config"),
        ("variable", "missing_variables"),
        ("url", "invalid_request"),
    ] {
        let request = |dry_run| {
            let mut request = rye_executor::Request::new(name.parse().unwrap());
            request.dry_run = dry_run;
            request
        };
        let dry = env.executor.execute(request(true)).await;
        let run = env.executor.execute(request(false)).await;
        assert_eq!(dry.error, run.error, "{name}");
        assert_eq!(dry.error.unwrap().code, code, "{name}");
    }
}
