//! A call that needs an approval, of a client through which nobody can be asked.

use crate::mcp_support::stdio::Client;
use crate::mcp_support::{env, tool};
use crate::support::{TestEnv, assert_transcript, told};
use serde_json::{Value, json};

/// A tool that says how often it ran, and asks first.
fn careful(env: &TestEnv, command: &str) {
    tool(env, "count", command);
    let text = env.read("project/.ai/tools/count.yaml");
    let text = format!("requires_approval: true\n{text}");
    env.write("project/.ai/tools/count.yaml", &text);
    let signed = env.run(&["sign", "count"]);
    assert!(signed.status.success(), "{signed:?}");
}

fn ready() -> TestEnv {
    let env = env();
    careful(&env, "echo ran >>count");
    env
}

fn call(client: &mut Client, word: &str) -> Value {
    let arguments =
        json!({ "item_type": "tool", "item_id": "count", "parameters": { "word": word } });
    let params = json!({ "name": "execute", "arguments": arguments });
    client.ask("tools/call", &params)["result"].clone()
}

/// The gate at which a call waits, once it was refused.
fn gate(result: &Value) -> String {
    assert_eq!(result["isError"], true, "{result}");
    let error = &result["structuredContent"]["error"];
    assert_eq!(error["code"], "approval_required", "{result}");
    let gate = error["gate"].as_str().unwrap().to_owned();
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.contains(&format!("rye gate approve {gate}")), "{text}");
    gate
}

fn runs(env: &TestEnv) -> usize {
    let said = std::fs::read_to_string(env.path("project/count"));
    said.map_or(0, |said| said.lines().count())
}

fn gates(env: &TestEnv) -> Vec<Value> {
    let listed = crate::support::json(&env.run(&["--json", "gate", "list"]));
    listed["gates"].as_array().unwrap().clone()
}

fn approve(env: &TestEnv, gate: &str) {
    let approved = env.run(&["gate", "approve", gate]);
    assert!(approved.status.success(), "{approved:?}");
}

#[test]
fn an_approval_from_another_terminal_lets_the_same_call_run_once() {
    let env = ready();
    let mut client = Client::connect(&env);
    let waits = gate(&call(&mut client, "one"));
    assert_eq!(gate(&call(&mut client, "one")), waits);
    let listed = gates(&env);
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["id"], waits.as_str());
    assert_eq!(listed[0]["context"]["params"]["word"], "one");
    approve(&env, &waits);
    assert!(gates(&env).is_empty());
    assert_eq!(runs(&env), 0);
    // Another process of the same person's serves as well.
    drop(client);
    let mut client = Client::connect(&env);
    let result = call(&mut client, "one");
    assert_eq!(result["isError"], false, "{result}");
    assert_eq!(runs(&env), 1);
    gate(&call(&mut client, "one"));
    assert_eq!(runs(&env), 1);
}

#[test]
fn other_parameters_or_bytes_are_asked_about_again_with_what_changed() {
    let env = ready();
    let mut client = Client::connect(&env);
    let first = gate(&call(&mut client, "one"));
    approve(&env, &first);
    let second = gate(&call(&mut client, "two"));
    assert_ne!(second, first);
    let body = |gate: &str| {
        let listed = gates(&env);
        let found = listed.iter().find(|it| it["id"] == gate).cloned();
        found.unwrap()["body"].as_str().unwrap().to_owned()
    };
    let told = body(&second);
    assert!(
        told.contains("- parameter `word` was \"one\" and is \"two\""),
        "{told}"
    );
    careful(&env, "echo others >>count");
    let third = gate(&call(&mut client, "one"));
    let told = body(&third);
    assert!(
        told.starts_with("It was approved, and has changed since:\n- count was "),
        "{told}"
    );
    assert_eq!(runs(&env), 0);
    approve(&env, &third);
    assert_eq!(call(&mut client, "one")["isError"], false);
    assert_eq!(runs(&env), 1);
}

#[test]
fn the_order_of_the_parameters_does_not_matter() {
    let env = ready();
    let mut client = Client::connect(&env);
    let mut call = |parameters: Value| {
        let arguments =
            json!({ "item_type": "tool", "item_id": "count", "parameters": parameters });
        client.call("execute", &arguments, |method| panic!("asks {method}"))
    };
    let waits = gate(&call(json!({ "a": 1, "b": { "c": 1, "d": 2 } })));
    let reordered = json!({ "b": { "d": 2, "c": 1 }, "a": 1 });
    assert_eq!(gate(&call(reordered.clone())), waits);
    approve(&env, &waits);
    assert_eq!(call(reordered)["isError"], false);
    assert_eq!(runs(&env), 1);
}

#[test]
fn of_many_calls_at_once_an_approval_lets_one_run() {
    let env = ready();
    let mut client = Client::connect(&env);
    let waits = gate(&call(&mut client, "one"));
    approve(&env, &waits);
    let arguments =
        json!({ "item_type": "tool", "item_id": "count", "parameters": { "word": "one" } });
    let params = json!({ "name": "execute", "arguments": arguments });
    for _ in 0..20 {
        client.request("tools/call", &params);
    }
    let mut ran = 0;
    for _ in 0..20 {
        let answer = client.next().unwrap();
        if answer["result"]["isError"] == false {
            ran += 1;
        }
    }
    assert_eq!((ran, runs(&env)), (1, 1));
}

#[test]
fn a_gate_of_another_project_says_which() {
    let env = ready();
    let mut client = Client::connect(&env);
    gate(&call(&mut client, "one"));
    let project = env.path("project");
    let here = String::from_utf8(env.run(&["gate", "list"]).stdout).unwrap();
    let line = format!("\n  in {}\n", project.display());
    assert!(!here.contains(&line), "{here}");
    let mut elsewhere = env.command();
    elsewhere.current_dir(env.path("elsewhere"));
    let output = elsewhere.args(["gate", "list"]).output().unwrap();
    let there = String::from_utf8(output.stdout).unwrap();
    assert!(there.contains(&line), "{there}");
}

#[test]
fn what_a_person_sees_and_says() {
    let env = ready();
    let mut client = Client::connect(&env);
    let waits = gate(&call(&mut client, "one"));
    let mut seen = told("rye gate list", &env.run(&["gate", "list"]));
    let calls = [
        &["gate", "approve", "--for", "project", &waits][..],
        &["gate", "answer", "--action", "maybe", &waits],
        &["gate", "deny", &waits],
        &["gate", "approve", &waits],
    ];
    for args in calls {
        seen += &told(&format!("rye {}", args.join(" ")), &env.run(args));
    }
    let declined = call(&mut client, "one");
    let error = &declined["structuredContent"]["error"];
    assert_eq!(error["code"], "approval_declined", "{declined}");
    seen += &told(
        &format!("rye gate deny {waits}"),
        &env.run(&["gate", "deny", &waits]),
    );
    assert_eq!(runs(&env), 0);
    assert_transcript!(seen);
}
