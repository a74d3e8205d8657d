//! `rye mcp serve` on standard input and output: invalid input, disconnection and shutdown.

use std::collections::BTreeSet;
use std::fs;

use crate::mcp_support::stdio::Client;
use crate::mcp_support::{env, execute, processes_in, wait_for_exit, wait_for_file};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Checks that the server still answers.
fn assert_responds(client: &mut Client) {
    let answer = client.request_and_wait("tools/call", &execute("greet"));
    assert_eq!(answer["result"]["isError"], false, "{answer}");
}

#[test]
fn disconnect_ends_the_tools_process_tree() {
    let env = env();
    let mut client = Client::connect(&env);
    client.request("tools/call", &execute("slow"));
    let pid = wait_for_file(&env.path("project/pid"));
    client.disconnect();
    wait_for_exit(&pid);
    assert!(client.status().success());
    assert_eq!(processes_in(&env.path("project")), [""; 0]);
}

#[test]
fn silent_client_is_not_a_failure() {
    let env = env();
    let mut client = Client::start(&env);
    client.disconnect();
    assert!(client.next().is_none());
    assert!(client.status().success());
}

#[test]
fn invalid_json_is_skipped_and_the_next_call_answered() {
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
    assert_responds(&mut client);
}

#[test]
fn line_of_20_mib_is_refused() {
    let env = env();
    let mut client = Client::connect(&env);
    let long = "x".repeat(20 * 1024 * 1024);
    client.write(long.as_bytes());
    client.write(b"\n");
    assert_responds(&mut client);
    let ask = json!({ "name": "help", "arguments": { "topic": long } });
    let answer = client.request_and_wait("tools/call", &ask);
    assert_eq!(answer["result"]["isError"], true);
    assert_responds(&mut client);
}

#[test]
fn invalid_requests_are_refused_with_a_code() {
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
        let answer = client.request_and_wait(method, &params);
        if answer["error"]["code"] != code {
            wrong.push(format!("{method} {params} gives {answer}, not {code}"));
        }
    }
    assert_eq!(wrong, [""; 0]);
    // An error that the model can correct is a result.
    let ask = call(json!("search"), json!({ "query": 5, "nope": true }));
    let answer = client.request_and_wait("tools/call", &ask);
    let code = &answer["result"]["structuredContent"]["error"]["code"];
    assert_eq!(*code, "invalid_arguments", "{answer}");
}

#[test]
fn integer_beyond_64_bits_reaches_the_tool() {
    let env = env();
    let header = "# executor_id: rye/core/runtimes/bash/bash\n# version: \"1.0.0\"\n\
        # config_schema: {properties: {n: {type: integer}}}\n";
    // The pipe makes the output plain text.
    env.write(
        "project/.ai/tools/it.sh",
        &format!("{header}echo got \"$(cat)\"\n"),
    );
    assert!(env.run(&["sign", "it"]).status.success());
    let mut client = Client::connect(&env);
    let ask = "{\"jsonrpc\":\"2.0\",\"id\":4711,\"method\":\"tools/call\",\"params\":{\"name\":\"execute\",\
        \"arguments\":{\"item_type\":\"tool\",\"item_id\":\"it\",\"parameters\":{\"n\":123456789012345678901234567890}}}}\n";
    client.write(ask.as_bytes());
    let answer = client.wait_for_answer(4711).to_string();
    assert!(
        answer.contains("\\\"n\\\":123456789012345678901234567890"),
        "{answer}"
    );
}

#[test]
fn hundred_concurrent_calls_are_answered() {
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
fn sigterm_lets_the_running_call_finish() {
    let env = env();
    let mut client = Client::connect(&env);
    let held = client.request("tools/call", &execute("held"));
    wait_for_file(&env.path("project/held"));
    client.signal(Signal::TERM);
    // The server refuses new calls once the signal has arrived.
    loop {
        let answer = client.request_and_wait("tools/call", &execute("fails"));
        if answer["error"].is_object() {
            break;
        }
    }
    fs::write(env.path("project/go"), "").unwrap();
    let answer = client.wait_for_answer(held);
    let text = &answer["result"]["content"][0]["text"];
    assert_eq!(*text, "done\n", "{answer}");
    assert!(client.next().is_none());
    assert_eq!(client.status().code(), Some(0));
}

#[test]
fn second_sigterm_ends_at_once_and_leaves_no_process() {
    let env = env();
    let mut client = Client::connect(&env);
    client.request("tools/call", &execute("slow"));
    let pid = wait_for_file(&env.path("project/pid"));
    client.signal(Signal::TERM);
    loop {
        let answer = client.request_and_wait("tools/call", &execute("fails"));
        if answer["error"].is_object() {
            break;
        }
    }
    client.signal(Signal::TERM);
    assert_eq!(client.status().code(), Some(0));
    wait_for_exit(&pid);
    assert_eq!(processes_in(&env.path("project")), [""; 0]);
}
