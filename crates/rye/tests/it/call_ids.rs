//! Models that reuse call ids: each call is handled separately.

use std::process::Output;

use crate::support::{TestEnv, json, kill_at_gate};
use serde_json::Value;

fn env_with_script(script: &str) -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    env.write("project/agent.yaml", script);
    assert!(env.run(&["init"]).status.success());
    env
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn first_pending_gate(env: &TestEnv) -> Value {
    let mut listed = json(&env.run(&["gate", "list", "--json"]));
    listed["gates"].as_array_mut().unwrap().remove(0)
}

#[test]
fn commands_with_equal_call_ids_each_need_approval() {
    let pay =
        "  - tool_calls: [{ name: bash, id: call_0, args: { command: 'echo pay >> paid' } }]\n";
    let env = env_with_script(&format!("steps:\n{}  - text: done\n", pay.repeat(3)));
    let mut command = env.command();
    let args = ["prompt", "go", "--sandbox", "local"];
    command.args(args).args(["--model", "scripted:agent.yaml"]);
    kill_at_gate(&env, command.spawn().unwrap());
    let mut session = String::new();
    for times in 1..=3 {
        let gate = first_pending_gate(&env);
        session = gate["origin"]["session"].as_str().unwrap().to_owned();
        let yes = env.run(&["gate", "approve", gate["id"].as_str().unwrap()]);
        assert!(yes.status.success(), "{yes:?}");
        let mut resumed = env.command();
        resumed.args(["session", "resume", &session]);
        if times < 3 {
            kill_at_gate(&env, resumed.spawn().unwrap());
        } else {
            assert!(resumed.status().unwrap().success());
        }
        assert_eq!(env.read("project/paid"), "pay\n".repeat(times));
    }
    for check in ["verify", "show"] {
        let checked = env.run(&["session", check, &session]);
        assert!(checked.status.success(), "{checked:?}");
    }
    let replayed = env.run(&["replay", &session]);
    assert!(replayed.status.success(), "{replayed:?}");
}

#[test]
fn tasks_with_equal_call_ids_all_run() {
    let task = |what: &str| {
        format!(
            "  - tool_calls: [{{ name: task, id: call_0, \
             args: {{ prompt: {what}, model: 'scripted:{what}.yaml' }} }}]\n  \
             - text: '{what}: ${{last_tool_result}}'\n"
        )
    };
    let calls = ["apples", "pears", "nuts"].map(task).concat();
    // Two of them are in one prompt.
    let script = calls.replacen("  - text: 'apples: ${last_tool_result}'\n", "", 1);
    let env = env_with_script(&format!("steps:\n{script}"));
    for what in ["apples", "pears", "nuts"] {
        let answer = format!("steps:\n  - text: counted {what}\n");
        env.write(&format!("project/{what}.yaml"), &answer);
    }
    let first = env.run(&["prompt", "go", "--model", "scripted:agent.yaml"]);
    let reply = stdout(&first);
    assert!(reply.contains("pears: counted pears"), "{first:?}");
    let listed = json(&env.run(&["session", "list", "--json"]));
    let mut sessions = listed["sessions"].as_array().unwrap().iter();
    let own = sessions.find(|it| it["parent"].is_null()).unwrap();
    let id = own["id"].as_str().unwrap();
    let second = env.run(&["prompt", "more", "--session", id]);
    assert!(stdout(&second).contains("nuts: counted nuts"), "{second:?}");
}
