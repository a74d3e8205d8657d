//! One server that runs sessions of several projects, each with its own configuration.

use rustix::process::Signal;

use crate::serve::env_with;
use crate::serve_support::{Server, create_token};
use crate::support::TestEnv;
use serde_json::{Value, json};

const READS: &str = "steps:
  - tool_calls: [{ name: read, args: { path: notes.txt } }]
  - { text: '${last_tool_result}' }
";

/// A project, and another one beside it in `work`.
fn env() -> TestEnv {
    let env = env_with(READS);
    env.write("project/notes.txt", "notes of the project\n");
    env.write(
        "work/other/.ai/config/agent/compaction.yaml",
        "auto: true\n",
    );
    env.write("work/other/agent.yaml", READS);
    env.write("work/other/notes.txt", "notes of the other\n");
    env.write("work/other/deep/notes.txt", "notes below\n");
    env.write("outside/agent.yaml", READS);
    env
}

fn server(env: &TestEnv) -> Server {
    let work = env.path("work");
    let work = work.to_str().unwrap();
    let options = ["--model", "scripted:agent.yaml", "--sandbox", "local"];
    Server::start_with(env, &[&options[..], &["--allow-project", work]].concat())
}

async fn create(server: &Server, new: &Value) -> (u16, Value) {
    let (status, body) = server.post("/api/sessions", new).await;
    (status.as_u16(), body)
}

#[tokio::test]
async fn sessions_work_in_their_own_project_and_workspace() {
    let env = env();
    let server = server(&env);
    let other = env.path("work/other");
    let other = other.to_str().unwrap();
    for (new, notes) in [
        (json!({}), "notes of the project"),
        (json!({ "project": other }), "notes of the other"),
        (
            json!({ "project": other, "workspace": "deep" }),
            "notes below",
        ),
    ] {
        let (status, state) = create(&server, &new).await;
        assert_eq!(status, 201, "{state}");
        let session = state["session"]["id"].as_str().unwrap();
        let item = server.prompt(session, "go").await;
        let answer = server.answer(&item).await;
        let text = answer["text"].as_str().unwrap();
        assert!(text.contains(notes), "{new}: {answer}");
    }
}

#[tokio::test]
async fn session_in_memory_does_not_see_the_files_of_a_local_one() {
    let env = env();
    let server = server(&env);
    let (status, state) = create(&server, &json!({ "sandbox": "virtual" })).await;
    assert_eq!(status, 201, "{state}");
    assert_eq!(state["session"]["sandbox"]["kind"], "virtual");
    let session = state["session"]["id"].as_str().unwrap();
    let item = server.prompt(session, "go").await;
    let answer = server.answer(&item).await.to_string();
    assert!(!answer.contains("notes of the project"), "{answer}");
}

#[tokio::test]
async fn place_and_settings_that_are_not_permitted_are_refused() {
    let env = env();
    let mut server = server(&env);
    let path = |relative: &str| env.path(relative).to_str().unwrap().to_owned();
    let inside = path("work/other");
    for (new, expected) in [
        (
            json!({ "project": path("outside") }),
            (403, "foreign_project"),
        ),
        (
            json!({ "project": path("missing") }),
            (403, "foreign_project"),
        ),
        (
            json!({ "project": format!("{inside}/../../outside") }),
            (403, "foreign_project"),
        ),
        (json!({ "project": "work/other" }), (422, "invalid_project")),
        (
            json!({ "project": inside, "workspace": "/" }),
            (403, "foreign_workspace"),
        ),
        (
            json!({ "workspace": "../outside" }),
            (403, "foreign_workspace"),
        ),
        (json!({ "tools": ["reed"] }), (422, "unknown_tool")),
        (json!({ "failover": ["no/such"] }), (422, "unknown_model")),
        (
            json!({ "compaction": { "tail_share": 7 } }),
            (422, "invalid_compaction"),
        ),
        (json!({ "sandbox": "cloud" }), (400, "invalid_body")),
    ] {
        let (status, problem) = create(&server, &new).await;
        let code = problem["code"].as_str().unwrap();
        assert_eq!((status, code), expected, "{new}: {problem}");
    }
    assert_eq!(server.get("/api/sessions").await.1["sessions"], json!([]));
    // Only an administrator weakens the sandbox.
    server.token = create_token(&env, &["--scope", "prompt"]);
    for new in [json!({ "sandbox": "local" }), json!({ "review": false })] {
        let (status, problem) = create(&server, &new).await;
        assert_eq!((status, &problem["code"]), (403, &json!("missing_scope")));
    }
    let bound = ["--scope", "prompt", "--only-this-project"];
    server.token = create_token(&env, &bound);
    let (status, problem) = create(&server, &json!({ "project": inside })).await;
    assert_eq!((status, &problem["code"]), (403, &json!("foreign_project")));
    assert_eq!(create(&server, &json!({})).await.0, 201);
}

const DEPLOYS: &str = "steps:
  - tool_calls: [{ name: call_tool, args: { tool_id: 'rye:deploy', params: {}, summary: ship } }]
  - { text: '${last_tool_result}' }
";

const DEPLOY: &str = "version: \"1.0.0\"\ndescription: Puts it into production\nrisk_level: high\n\
    executor_id: rye/core/runtimes/bash/bash\nconfig:\n  command: 'echo deployed the other'\n";

/// The other project has a tool, a rule that allows it, and instructions; this one has none.
#[tokio::test]
async fn session_has_the_items_rules_and_instructions_of_its_project() {
    let env = env();
    env.write("project/agent.yaml", DEPLOYS);
    assert!(env.run(&["init"]).status.success());
    env.write("work/other/agent.yaml", DEPLOYS);
    env.write("work/other/AGENTS.md", "Be brief in the other project.\n");
    env.write("work/other/.ai/tools/deploy.yaml", DEPLOY);
    let rules = "rules:\n  - { tool: 'rye:deploy', action: allow }\n";
    env.write("work/other/.ai/config/agent/approvals.yaml", rules);
    let other = env.path("work/other");
    for item in ["deploy", "config:agent/approvals"] {
        let mut sign = env.command();
        let signed = sign.current_dir(&other).args(["sign", item]).output();
        assert!(signed.as_ref().unwrap().status.success(), "{signed:?}");
    }
    let server = server(&env);
    let (_, there) = create(&server, &json!({ "project": other })).await;
    let (_, here) = create(&server, &json!({})).await;
    let mut answers = Vec::new();
    for state in [&there, &here] {
        let session = state["session"]["id"].as_str().unwrap();
        let item = server.prompt(session, "go").await;
        let answer = server.answer(&item).await;
        let mut events = server.events(session, "?after=0").await;
        let context = events.until("context_changed").await.data.to_string();
        answers.push((answer["text"].as_str().unwrap().to_owned(), context));
    }
    let [(there, there_context), (here, here_context)] = <[_; 2]>::try_from(answers).unwrap();
    assert!(there.contains("deployed the other"), "{there}");
    assert!(there_context.contains("Be brief in the other project."));
    assert!(
        here.contains("not found") || here.contains("no tool"),
        "{here}"
    );
    assert!(!here_context.contains("Be brief in the other project."));
}

/// Sessions of a project that a server does not serve stay as they are.
#[tokio::test]
async fn session_of_a_project_that_is_not_served_is_refused() {
    let env = env();
    let mut first = server(&env);
    let other = env.path("work/other");
    let (_, state) = create(&first, &json!({ "project": other })).await;
    let session = state["session"]["id"].as_str().unwrap().to_owned();
    first.signal(Signal::TERM);
    assert!(first.status().success());
    let options = ["--model", "scripted:agent.yaml", "--sandbox", "local"];
    let second = Server::start_with(&env, &options);
    let path = format!("/api/sessions/{session}/threads/default/prompts");
    let (status, problem) = second.post(&path, &json!({ "text": "go" })).await;
    assert_eq!(status, 422, "{problem}");
    assert_eq!(problem["code"], "invalid_project");
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("does not serve")
    );
    let (status, state) = second.get(&format!("/api/sessions/{session}")).await;
    assert_eq!(status, 200, "{state}");
}
