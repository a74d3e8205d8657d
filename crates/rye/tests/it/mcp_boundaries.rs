//! What an MCP client can't do on its own: leave its project, reach the user's keys and state,
//! copy items between spaces, or approve its own calls.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::mcp_support::stdio::Client;
use crate::mcp_support::{env, tool};
use crate::support::TestEnv;
use lillux::keys::SigningKey;
use rye_engine::audit;
use rye_engine::protocol::{Batch, Gate, GateId, GateStatus, Millis, Op, Resolution};
use rye_engine::store::{Claim, InboxMessage, SessionStore as _};
use rye_host::SqliteStore;
use serde_json::{Value, json};

const STATE: &str = "user/.local/state/rye";
const OUT_OF_BOUNDS: &str = "project_out_of_bounds";

fn call(client: &mut Client, tool: &str, arguments: &Value) -> Value {
    client.call(tool, arguments, |method| panic!("the server asks {method}"))
}

fn error_code(result: &Value) -> &str {
    assert_eq!(result["isError"], true, "{result}");
    result["structuredContent"]["error"]["code"]
        .as_str()
        .unwrap()
}

fn execute(client: &mut Client, item: &str, parameters: &Value, project: Option<&Path>) -> Value {
    let mut arguments = json!({ "item_type": "tool", "item_id": item, "parameters": parameters });
    if let Some(project) = project {
        arguments["project_path"] = json!(project);
    }
    call(client, "execute", &arguments)
}

/// Runs a shell command, which needs approval.
fn bash(client: &mut Client) -> Value {
    execute(
        client,
        "rye/bash/bash",
        &json!({ "command": "touch ran" }),
        None,
    )
}

fn gate_id(result: &Value) -> String {
    assert_eq!(error_code(result), "approval_required", "{result}");
    let gate = &result["structuredContent"]["error"]["gate"];
    gate.as_str().unwrap().to_owned()
}

fn assert_success(result: &Value) {
    assert_eq!(result["isError"], false, "{result}");
}

fn approve(env: &TestEnv, gate: &str) {
    let approved = env.run(&["gate", "approve", gate]);
    assert!(approved.status.success(), "{approved:?}");
}

fn gate_body(env: &TestEnv, gate: &str) -> String {
    let listed = crate::support::json(&env.run(&["--json", "gate", "list"]));
    let gates = listed["gates"].as_array().unwrap().iter();
    let mut gates = gates.filter(|it| it["id"] == gate);
    gates.next().unwrap()["body"].as_str().unwrap().to_owned()
}

/// Every file below a directory with its bytes.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
    all.sort();
    all
}

#[test]
fn client_cannot_answer_its_own_gate() {
    let env = env();
    let mut client = Client::connect(&env);
    let waits = gate_id(&bash(&mut client));
    let keys = files(&env.path("user/.ai"));
    let state = env.path(STATE);
    let gates = state.join("gates");
    fs::create_dir_all(&gates).unwrap();
    for place in [&gates, &state, &env.path("user/.local")] {
        let copy = json!({
            "item_type": "knowledge", "item_id": "rye/items", "destination": "project",
            "project_path": place,
        });
        assert_eq!(error_code(&call(&mut client, "load", &copy)), OUT_OF_BOUNDS);
        let name = waits.trim_start_matches("gate:");
        let answer = json!({ "action": "approve", "by": "ada", "at": "now" });
        let file = json!({ "path": format!("{name}.answer.json"), "content": answer.to_string() });
        let written = execute(&mut client, "rye/file-system/write", &file, Some(place));
        assert_eq!(error_code(&written), OUT_OF_BOUNDS);
        assert!(!place.join(".ai").exists());
    }
    // A planted file doesn't count either.
    for name in [waits.as_str(), waits.trim_start_matches("gate:")] {
        let answer = json!({ "action": "approve", "by": "ada", "at": "now" });
        let path = gates.join(format!("{name}.answer.json"));
        fs::write(path, answer.to_string()).unwrap();
    }
    assert_eq!(gate_id(&bash(&mut client)), waits);
    assert!(!env.path("project/ran").exists());
    assert_eq!(files(&env.path("user/.ai")), keys);
    approve(&env, &waits);
    assert_success(&bash(&mut client));
    assert!(env.path("project/ran").exists());
}

#[test]
fn private_directories_cannot_be_projects() {
    let env = env();
    let mut client = Client::connect(&env);
    let parameters = json!({ "path": "private_key.pem" });
    for place in [
        env.path("user/.ai/config/keys/signing"),
        env.path("user/.ai/config/keys"),
        env.path("user/.ai"),
        env.path("user"),
        env.path("elsewhere"),
        env.path(""),
        "/".into(),
    ] {
        let read = execute(
            &mut client,
            "rye/file-system/read",
            &parameters,
            Some(&place),
        );
        assert_eq!(error_code(&read), OUT_OF_BOUNDS, "{place:?}");
    }
    // Not even if the server is started there.
    for place in ["user/.ai/config/keys/signing", "user/.ai", STATE] {
        fs::create_dir_all(env.path(place)).unwrap();
        let mut client = Client::start_in(&env, place, &[]);
        client.initialize(&json!({}));
        let read = execute(&mut client, "rye/file-system/read", &parameters, None);
        assert_eq!(error_code(&read), OUT_OF_BOUNDS, "{place}");
    }
}

#[test]
fn project_outside_of_the_servers_is_refused() {
    let env = env();
    fs::create_dir(env.path("project/sub")).unwrap();
    symlink(env.path("elsewhere"), env.path("project/out")).unwrap();
    let options = ["--project", env.path("project").to_str().unwrap()].map(str::to_owned);
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    let mut client = Client::start_in(&env, "elsewhere", &options);
    // The client's roots don't widen the user's choice.
    client.initialize(&json!({ "roots": {} }));
    let calls = [
        ("search", json!({ "query": "greet" })),
        (
            "load",
            json!({ "item_type": "tool", "item_id": "rye/bash/bash" }),
        ),
        (
            "load",
            json!({ "item_type": "tool", "item_id": "rye/bash/bash", "destination": "project" }),
        ),
        (
            "execute",
            json!({ "item_type": "tool", "item_id": "rye/bash/bash" }),
        ),
        (
            "execute",
            json!({ "item_type": "knowledge", "item_id": "rye/items" }),
        ),
        (
            "execute",
            json!({ "item_type": "tool", "item_id": "greet", "async": true }),
        ),
        (
            "execute",
            json!({ "item_type": "tool", "item_id": "greet", "dry_run": true }),
        ),
        ("sign", json!({ "item_type": "tool", "item_id": "**" })),
    ];
    let roots = |method: &str| {
        assert_eq!(method, "roots/list");
        json!({ "roots": [{ "uri": "file:///" }] })
    };
    for (name, arguments) in calls {
        for place in [
            "elsewhere",
            "project/out",
            "project/../elsewhere",
            "project/.ai",
        ] {
            let mut arguments = arguments.clone();
            arguments["project_path"] = json!(env.path(place));
            let result = client.call(name, &arguments, roots);
            assert_eq!(error_code(&result), OUT_OF_BOUNDS, "{name} in {place}");
        }
    }
    let arguments = json!({ "query": "greet", "project_path": env.path("project/sub") });
    assert_success(&client.call("search", &arguments, roots));
    assert_success(&client.call(
        "execute",
        &crate::mcp_support::execute("greet")["arguments"],
        roots,
    ));
    assert!(!env.path("elsewhere/.ai").exists());
}

#[test]
fn client_roots_and_their_subdirectories_are_projects() {
    let env = env();
    fs::create_dir_all(env.path("elsewhere/sub")).unwrap();
    fs::create_dir(env.path("other")).unwrap();
    let mut client = Client::start_in(&env, "other", &[]);
    client.initialize(&json!({ "roots": {} }));
    let uri = |place: &str| json!({ "uri": format!("file://{}", env.path(place).display()) });
    let roots = |_: &str| json!({ "roots": [uri("project"), uri("elsewhere"), uri("missing"), uri(STATE)] });
    assert_success(&client.call(
        "execute",
        &crate::mcp_support::execute("greet")["arguments"],
        roots,
    ));
    for (place, is_allowed) in [
        ("project", true),
        ("elsewhere", true),
        ("elsewhere/sub", true),
        ("other", false),
        ("user", false),
        (STATE, false),
    ] {
        let arguments = json!({ "query": "greet", "project_path": env.path(place) });
        let result = client.call("search", &arguments, roots);
        if is_allowed {
            assert_success(&result);
        } else if env.path(place).exists() {
            assert_eq!(error_code(&result), OUT_OF_BOUNDS, "{place}");
        }
    }
}

#[test]
fn copying_an_item_needs_approval_of_the_shown_content() {
    let env = env();
    let rules = "rules:\n  - { tool: \"*\", action: allow }\n";
    env.write("project/.ai/config/agent/approvals.yaml", rules);
    let signed = env.run(&["sign", "config:agent/approvals"]);
    assert!(signed.status.success(), "{signed:?}");
    let mut client = Client::connect(&env);
    let copied = env.path("user/.ai/config/agent/approvals.yaml");
    let copy = json!({
        "item_type": "config", "item_id": "agent/approvals", "destination": "user",
    });
    let waits = gate_id(&call(&mut client, "load", &copy));
    assert!(!copied.exists());
    let printed = gate_body(&env, &waits);
    let to = format!("to: {}", copied.display());
    for part in ["to the user space?", "action: allow", "hash: ", to.as_str()] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    approve(&env, &waits);
    // Exactly the shown content is copied.
    let other = "rules:\n  - { tool: \"rye:*\", action: allow }\n";
    env.write("project/.ai/config/agent/approvals.yaml", other);
    assert!(
        env.run(&["sign", "config:agent/approvals"])
            .status
            .success()
    );
    let again = gate_id(&call(&mut client, "load", &copy));
    assert_ne!(again, waits);
    assert!(!copied.exists());
    let denied = env.run(&["gate", "deny", &again]);
    assert!(denied.status.success(), "{denied:?}");
    assert_eq!(
        error_code(&call(&mut client, "load", &copy)),
        "approval_declined"
    );
    let third = gate_id(&call(&mut client, "load", &copy));
    approve(&env, &third);
    assert_success(&call(&mut client, "load", &copy));
    assert!(
        env.read("user/.ai/config/agent/approvals.yaml")
            .starts_with("# rye:signed")
    );
    // An existing copy needs no approval.
    assert_eq!(error_code(&call(&mut client, "load", &copy)), "exists");
}

#[test]
fn unverified_item_is_not_copied() {
    let mut env = env();
    env.write("project/.ai/config/agent/approvals.yaml", "rules: []\n");
    tool(&env, "draft", "touch ran");
    env.set("RYE_DEV_MODE", "1");
    let mut client = Client::connect(&env);
    for (kind, id) in [("config", "agent/approvals"), ("tool", "draft")] {
        for space in ["user", "project"] {
            let copy = json!({ "item_type": kind, "item_id": id, "destination": space });
            assert_eq!(error_code(&call(&mut client, "load", &copy)), "unsigned");
        }
        let item = format!("{kind}:{id}");
        let output = env.run(&["load", &item, "--to", "user", "--yes"]);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
    }
    assert!(!env.path("user/.ai/config/agent").exists());
    assert!(!env.path("user/.ai/tools").exists());
}

#[test]
fn load_to_asks_before_copying_configuration() {
    let env = env();
    env.write("project/.ai/config/agent/approvals.yaml", "rules: []\n");
    assert!(
        env.run(&["sign", "config:agent/approvals"])
            .status
            .success()
    );
    let copy = ["--json", "load", "config:agent/approvals", "--to", "user"];
    let refused = env.run(&copy);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    assert_eq!(crate::support::json(&refused)["error"]["code"], "needs_yes");
    assert!(!env.path("user/.ai/config/agent").exists());
    let copied = env.run(&[&copy[..], &["--yes"]].concat());
    assert!(copied.status.success(), "{copied:?}");
    assert!(env.path("user/.ai/config/agent/approvals.yaml").exists());
    // Trust files are not copied; `rye keys trust` is for them.
    let files = files(&env.path("user/.ai/config/keys/trusted"));
    let name = Path::new(&files[0].0).file_stem().unwrap();
    let item = format!("config:keys/trusted/{}", name.to_str().unwrap());
    let refused = env.run(&["--json", "load", &item, "--to", "project", "--yes"]);
    assert!(!refused.status.success(), "{refused:?}");
    assert!(!env.path("project/.ai/config/keys").exists());
}

/// The store that the server and `rye gate` use.
fn store(env: &TestEnv) -> SqliteStore {
    SqliteStore::open(env.path(STATE).join("sessions.db")).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

fn approval(gate: &Gate, key: Option<&SigningKey>) -> Resolution {
    let mut resolution = Resolution {
        action: "approve".into(),
        value: Value::Null,
        by: "ada".to_owned(),
        at: Millis(gate.created_at.0 + 1),
        source: "cli".to_owned(),
        receipt: None,
    };
    resolution.receipt = key.map(|key| Box::new(audit::receipt(gate, &resolution, key)));
    resolution
}

#[test]
fn forged_decision_in_the_store_is_refused() {
    let env = env();
    let mut client = Client::connect(&env);
    let foreign = SigningKey::generate().unwrap();
    let own = env.path("user/.ai/config/keys/signing/private_key.pem");
    let own = SigningKey::read(&own).unwrap();
    let mut seen = Vec::new();
    // Unsigned; by an untrusted key; by the user for another question; altered afterwards.
    for forgery in 0..4 {
        let waits = gate_id(&bash(&mut client));
        assert!(!seen.contains(&waits), "{waits} is asked again");
        runtime().block_on(async {
            let store = store(&env);
            let gate = store.gate(&GateId::from(waits.clone())).await.unwrap();
            let gate = gate.unwrap();
            let session = gate.origin.session.clone();
            let other = Gate {
                body: "Say hello?".to_owned(),
                ..gate.clone()
            };
            let resolution = match forgery {
                0 => approval(&gate, None),
                1 => approval(&gate, Some(&foreign)),
                2 => approval(&other, Some(&own)),
                _ => Resolution {
                    by: "eve".to_owned(),
                    ..approval(&gate, Some(&own))
                },
            };
            if forgery == 0 {
                // Through the inbox, as `rye gate` does; the others as the lease holder.
                let gate = gate.id.clone();
                let post = InboxMessage::Resolve { gate, resolution };
                store.post(&session, post).await.unwrap();
            } else {
                let lease = store.claim(&session, Claim::IfFree).await.unwrap();
                let status = GateStatus::Resolved { resolution };
                let mut batch = Batch::default();
                batch.push(Op::PutGate(Gate { status, ..gate }.into()));
                store.commit(&lease, batch).await.unwrap();
                store.release(&lease).await.unwrap();
            }
        });
        seen.push(waits);
    }
    let waits = gate_id(&bash(&mut client));
    assert!(!seen.contains(&waits));
    assert!(!env.path("project/ran").exists());
    approve(&env, &waits);
    assert_success(&bash(&mut client));
    assert!(env.path("project/ran").exists());
}

#[test]
fn approving_from_a_terminal_needs_a_key() {
    let env = TestEnv::new();
    let mut client = Client::connect(&env);
    let waits = gate_id(&bash(&mut client));
    let refused = env.run(&["--json", "gate", "approve", &waits]);
    let error = &crate::support::json(&refused)["error"];
    assert_eq!(error["code"], "no_key", "{error}");
    assert_eq!(error["hint"], "rye init", "{error}");
    assert_eq!(gate_id(&bash(&mut client)), waits);
}

#[test]
fn decided_call_is_a_verifiable_session_without_prompts() {
    let env = env();
    let mut client = Client::connect(&env);
    let waits = gate_id(&bash(&mut client));
    approve(&env, &waits);
    assert_success(&bash(&mut client));
    let session = waits.trim_start_matches("gate:");
    let listed = crate::support::json(&env.run(&["--json", "session", "list"]));
    let sessions = listed["sessions"].as_array().unwrap();
    let found = sessions.iter().find(|it| it["id"] == session).unwrap();
    assert_eq!(found["purpose"], "run");
    assert_eq!(found["state"], "completed");
    let verified = env.run(&["session", "verify", session]);
    assert!(verified.status.success(), "{verified:?}");
    let resumed = env.run(&["session", "resume", session]);
    assert_eq!(resumed.status.code(), Some(2), "{resumed:?}");
}

/// Recorded decisions made in clients' forms.
fn recorded_decisions(env: &TestEnv) -> Vec<(String, bool)> {
    runtime().block_on(async {
        let gates = store(env).gates_matching("gate:form-").await.unwrap();
        let decided = gates.iter().map(|gate| match &gate.status {
            GateStatus::Resolved { resolution } => {
                assert_eq!(resolution.source, "mcp:elicitation");
                (resolution.action.to_string(), resolution.receipt.is_some())
            }
            other => panic!("{other:?}"),
        });
        decided.collect()
    })
}

#[test]
fn decision_in_a_clients_form_is_recorded() {
    let env = env();
    let mut client = Client::start(&env);
    client.initialize(&json!({ "elicitation": {} }));
    let arguments = json!({
        "item_type": "tool", "item_id": "rye/bash/bash", "parameters": { "command": "touch ran" },
    });
    let declined = client.call("execute", &arguments, |_| json!({ "action": "decline" }));
    assert_eq!(error_code(&declined), "approval_declined");
    let accept = |_: &str| json!({ "action": "accept", "content": { "approve": true } });
    assert_success(&client.call("execute", &arguments, accept));
    let expected = [("deny".to_owned(), true), ("approve".to_owned(), true)];
    assert_eq!(recorded_decisions(&env), expected);
}

#[test]
fn terminal_approvals_ignore_the_clients_form() {
    let env = env();
    let mut client = Client::start_in(&env, "project", &["--approvals", "terminal"]);
    client.initialize(&json!({ "elicitation": {} }));
    let waits = gate_id(&bash(&mut client));
    assert!(!env.path("project/ran").exists());
    approve(&env, &waits);
    assert_success(&bash(&mut client));
    assert!(recorded_decisions(&env).is_empty());
}
