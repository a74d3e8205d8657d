//! `rye mcp serve` on standard input and output: what it does when things go wrong.

use std::collections::BTreeSet;
use std::fs;

use crate::mcp_support::stdio::Client;
use crate::mcp_support::{appears, ends, env, execute, processes_in};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Shows that a server goes on.
fn is_well(client: &mut Client) {
    let answer = client.ask("tools/call", &execute("greet"));
    assert_eq!(answer["result"]["isError"], false, "{answer}");
}

#[test]
fn when_the_client_is_gone_the_tool_ends_with_all_it_started() {
    let env = env();
    let mut client = Client::connect(&env);
    client.request("tools/call", &execute("slow"));
    let pid = appears(&env.path("project/pid"));
    client.hang_up();
    ends(&pid);
    assert!(client.status().success());
    assert_eq!(processes_in(&env.path("project")), [""; 0]);
}

#[test]
fn a_client_that_never_says_anything_is_no_failure() {
    let env = env();
    let mut client = Client::start(&env);
    client.hang_up();
    assert!(client.next().is_none());
    assert!(client.status().success());
}

#[test]
fn what_is_no_json_is_passed_over_and_the_next_call_answered() {
    let env = env();
    let mut client = Client::connect(&env);
    let garbage: [&[u8]; 6] = [
        b"{not json\n",
        b"\n",
        b"\xff\xfe\x00\n",
        b"[]\n",
        b"42\n",
        b"{\"jsonrpc\":\"1.0\",\"id\":7,\"method\":\"ping\"}\n",
    ];
    for line in garbage {
        client.write(line);
    }
    is_well(&mut client);
}

#[test]
fn a_line_of_20_mib_does_no_harm() {
    let env = env();
    let mut client = Client::connect(&env);
    let long = "x".repeat(20 * 1024 * 1024);
    client.write(long.as_bytes());
    client.write(b"\n");
    is_well(&mut client);
    let ask = json!({ "name": "help", "arguments": { "topic": long } });
    let answer = client.ask("tools/call", &ask);
    assert_eq!(answer["result"]["isError"], true);
    is_well(&mut client);
}

#[test]
fn requests_that_make_no_sense_are_refused_by_code() {
    let env = env();
    let mut client = Client::connect(&env);
    let call = |name: Value, arguments: Value| json!({ "name": name, "arguments": arguments });
    let asks = [
        ("nope/nope", json!({}), -32601),
        ("tools/call", call(json!("nope"), json!({})), -32602),
        ("tools/call", call(json!(5), json!({})), -32602),
        ("tools/call", call(json!("help"), json!("text")), -32602),
        ("tools/call", json!([]), -32602),
        ("prompts/get", json!({ "name": "nope" }), -32602),
        ("resources/read", json!({ "uri": 5 }), -32602),
    ];
    let mut wrong = Vec::new();
    for (method, params, code) in asks {
        let answer = client.ask(method, &params);
        if answer["error"]["code"] != code {
            wrong.push(format!("{method} {params} gives {answer}, not {code}"));
        }
    }
    assert_eq!(wrong, [""; 0]);
    // What a model can put right is a result, which it sees.
    let ask = call(json!("search"), json!({ "query": 5, "nope": true }));
    let answer = client.ask("tools/call", &ask);
    let code = &answer["result"]["structuredContent"]["error"]["code"];
    assert_eq!(*code, "invalid_arguments", "{answer}");
}

#[test]
fn a_hundred_calls_at_once_are_all_answered() {
    let env = env();
    let mut client = Client::connect(&env);
    let asked: BTreeSet<u64> = (0..100)
        .map(|_| client.request("tools/call", &execute("greet")))
        .collect();
    let mut answered = BTreeSet::new();
    while answered.len() < asked.len() {
        let answer = client.next().expect("the server hung up");
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        answered.insert(answer["id"].as_u64().unwrap());
    }
    assert_eq!(answered, asked);
}

#[test]
fn told_to_end_it_lets_the_running_call_be_answered() {
    let env = env();
    let mut client = Client::connect(&env);
    let held = client.request("tools/call", &execute("held"));
    appears(&env.path("project/held"));
    client.signal(Signal::TERM);
    // From now on it takes no more calls; once one is refused, the signal has arrived.
    loop {
        let answer = client.ask("tools/call", &execute("fails"));
        if answer["error"].is_object() {
            break;
        }
    }
    fs::write(env.path("project/go"), "").unwrap();
    let answer = client.answer(held);
    let text = &answer["result"]["content"][0]["text"];
    assert_eq!(*text, "done\n", "{answer}");
    assert!(client.next().is_none());
    assert_eq!(client.status().code(), Some(0));
}

#[test]
fn told_to_end_twice_it_ends_at_once_and_leaves_no_process() {
    let env = env();
    let mut client = Client::connect(&env);
    client.request("tools/call", &execute("slow"));
    let pid = appears(&env.path("project/pid"));
    client.signal(Signal::TERM);
    loop {
        let answer = client.ask("tools/call", &execute("fails"));
        if answer["error"].is_object() {
            break;
        }
    }
    client.signal(Signal::TERM);
    assert_eq!(client.status().code(), Some(0));
    ends(&pid);
    assert_eq!(processes_in(&env.path("project")), [""; 0]);
}
