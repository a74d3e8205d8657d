//! Models that name a call as an earlier one was: each is a call of its own all the same.

use std::process::Output;

use crate::support::{TestEnv, json, kill_at_gate};
use serde_json::Value;

fn ready(script: &str) -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    env.write("project/agent.yaml", script);
    assert!(env.run(&["init"]).status.success());
    env
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn pending(env: &TestEnv) -> Value {
    let mut listed = json(&env.run(&["gate", "list", "--json"]));
    listed["gates"].as_array_mut().unwrap().remove(0)
}

#[test]
fn each_command_is_asked_about_whatever_its_call_is_named() {
    let pay =
        "  - tool_calls: [{ name: bash, id: call_0, args: { command: 'echo pay >> paid' } }]\n";
    let env = ready(&format!("steps:\n{}  - text: done\n", pay.repeat(3)));
    let mut command = env.command();
    let args = ["prompt", "go", "--sandbox", "local"];
    command.args(args).args(["--model", "scripted:agent.yaml"]);
    kill_at_gate(&env, command.spawn().unwrap());
    let mut session = String::new();
    for times in 1..=3 {
        let gate = pending(&env);
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
fn each_task_is_done_whatever_its_call_is_named() {
    let task = |what: &str| {
        format!(
            "  - tool_calls: [{{ name: task, id: call_0, \
             args: {{ prompt: {what}, model: 'scripted:{what}.yaml' }} }}]\n  \
             - text: '{what}: ${{last_tool_result}}'\n"
        )
    };
    let calls = ["apples", "pears", "nuts"].map(task).concat();
    // Two of them in one prompt.
    let script = calls.replacen("  - text: 'apples: ${last_tool_result}'\n", "", 1);
    let env = ready(&format!("steps:\n{script}"));
    for what in ["apples", "pears", "nuts"] {
        let answer = format!("steps:\n  - text: counted {what}\n");
        env.write(&format!("project/{what}.yaml"), &answer);
    }
    let first = env.run(&["prompt", "go", "--model", "scripted:agent.yaml"]);
    let said = stdout(&first);
    assert!(said.contains("pears: counted pears"), "{first:?}");
    let listed = json(&env.run(&["session", "list", "--json"]));
    let mut sessions = listed["sessions"].as_array().unwrap().iter();
    let own = sessions.find(|it| it["parent"].is_null()).unwrap();
    let id = own["id"].as_str().unwrap();
    let second = env.run(&["prompt", "more", "--session", id]);
    assert!(stdout(&second).contains("nuts: counted nuts"), "{second:?}");
}
