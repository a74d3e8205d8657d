//! Direct calls of runtimes and primitives, and what may be an executor.

use crate::support::TestEnv;
use crate::support::server::{Reply, Server};
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
}
