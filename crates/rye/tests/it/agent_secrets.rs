//! Redaction: plants secrets wherever an agent can read one, then searches everything that is
//! stored or printed.

use std::path::Path;
use std::process::Output;

use crate::support::{TestEnv, outcome};
use rye_testkit::provider::{MockProvider, Reply};
use serde_json::json as value;

/// Planted secrets: in the environment, in the vault, in the credentials of a
/// session and of an organisation, in the environment and in a header of an MCP server, in
/// the project's `.env`.
const PLANTED: [&str; 7] = [
    "planted-in-the-environment",
    "planted-in-the-vault",
    "planted-for-a-session",
    "planted-for-acme",
    "planted-for-a-process",
    "planted-in-a-header",
    "planted-in-a-file",
];

/// An MCP server whose tools leak their token.
const SERVER: &str = r#"
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, params = message["method"], message.get("params") or {}
    print("starting with", os.environ["TOKEN"], file=sys.stderr, flush=True)
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "test", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": name, "description": "Tells " + name, "annotations": {"readOnlyHint": True},
                  "inputSchema": {"type": "object"}} for name in ["well", "badly"]]}
    else:
        text = "my token is " + os.environ["TOKEN"]
        result = {"content": [{"type": "text", "text": text}], "isError": params["name"] == "badly"}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

const COMMANDS: &str = r#"
commands:
  tell: { description: tells, run: 'echo "$SECRET"; echo "$SECRET" >&2', risk: low, credentials: { SECRET: VAULTED } }
  fail: { description: fails, run: 'echo "no $SECRET here"; exit 3', risk: low, credentials: { SECRET: VAULTED } }
  code: { description: codes, run: 'printf %s "$SECRET" | base64', risk: low, credentials: { SECRET: VAULTED } }
  long: { description: tells long, run: 'i=0; while [ $i -lt 9000 ]; do echo "$i $SECRET"; i=$((i+1)); done', risk: low, credentials: { SECRET: VAULTED } }
  mine: { description: tells of a session, run: 'echo "$SECRET"', risk: low, credentials: { SECRET: OWN } }
  ours: { description: tells of all, run: 'echo "$SECRET"', risk: low, credentials: { SECRET: ORG } }
"#;

/// A script that makes one call after the other.
fn script(calls: &[(&str, &str)]) -> String {
    let calls = calls
        .iter()
        .map(|(tool, args)| format!("  - tool_calls: [{{ name: {tool}, args: {args} }}]\n"));
    let calls: String = calls.collect();
    format!("steps:\n{calls}  - text: 'it said ${{last_tool_result}}'\n")
}

fn call(id: &str) -> String {
    format!("{{ tool_id: '{id}', summary: look }}")
}

fn env_with_planted_secrets() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    env.set("LEAKY_API_KEY", PLANTED[0]);
    assert!(env.run(&["init"]).status.success());
    for (name, secret) in [
        ("VAULTED", PLANTED[1]),
        ("PROCESS", PLANTED[4]),
        ("HEADER", PLANTED[5]),
    ] {
        let set = env.feed(&["vault", "set", name], secret.as_bytes());
        assert!(set.status.success(), "{set:?}");
    }
    let set = env.feed(
        &["vault", "set", "ORG", "--org", "acme"],
        PLANTED[3].as_bytes(),
    );
    assert!(set.status.success(), "{set:?}");
    env.write("user/.ai/config/agent/commands.yaml", COMMANDS);
    env.write("server.py", SERVER);
    let variables = format!("# of the project\nDB_PASSPHRASE=\"{}\"\n", PLANTED[6]);
    env.write("project/.env", &variables);
    env
}

/// Fails if a file in this directory, or below it, contains a planted secret.
fn search(folder: &Path, searched: &mut usize) {
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.is_dir() {
            search(&path, searched);
        } else if let Ok(bytes) = std::fs::read(&path) {
            *searched += 1;
            assert_no_secret(&bytes, &path.display().to_string());
        }
    }
}

fn assert_no_secret(bytes: &[u8], place: &str) {
    use base64ct::{Base64, Encoding as _};
    for secret in PLANTED {
        let coded = Base64::encode_string(secret.as_bytes());
        let coded = coded.trim_end_matches('=');
        for form in [secret, coded] {
            let found = bytes.windows(form.len()).any(|it| it == form.as_bytes());
            assert!(!found, "{secret} lies in {place}");
        }
    }
}

fn assert_output_has_no_secret(output: Output) -> Output {
    assert_no_secret(&output.stdout, "standard output");
    assert_no_secret(&output.stderr, "standard error");
    output
}

/// A model and MCP servers that echo their input, and tools that leak.
fn plant_servers(env: &TestEnv, url: &str) {
    let models = format!(
        "providers:\n  local:\n    api: openai-chat\n    base_url: {url}/v1\n    api_key_env: LEAKY_API_KEY\n    \
         models: {{ x: {{ context_window: 8000, max_output: 1000 }} }}\n"
    );
    env.write("user/.ai/config/agent/models.yaml", &models);
    // A server that echoes its headers.
    let header = format!("{url}/mcp");
    let http = format!(
        "version: \"1.0.0\"\ntool_type: mcp_server\ncategory: mcp/servers\ndescription: Over HTTP\n\
         config:\n  url: {header}\n  headers: {{ Authorization: {{ vault: HEADER, prefix: 'Bearer ' }} }}\n"
    );
    env.write("project/.ai/tools/mcp/servers/http.yaml", &http);
    let server = env.path("server.py");
    let stdio = format!(
        "version: \"1.0.0\"\ntool_type: mcp_server\ncategory: mcp/servers\ndescription: Talks\n\
         config:\n  command: python3\n  args: ['{}']\n  env: {{ TOKEN: {{ vault: PROCESS }} }}\n",
        server.display()
    );
    env.write("project/.ai/tools/mcp/servers/talks.yaml", &stdio);
    let leak = "version: \"1.0.0\"\ndescription: Leaks\nrisk_level: low\n\
        executor_id: rye/core/runtimes/bash/bash\n\
        config:\n  command: 'echo \"$LEAKY_API_KEY\"; echo \"$LEAKY_API_KEY\" >&2; exit 1'\n";
    env.write("project/.ai/tools/leak.yaml", leak);
    let file = "version: \"1.0.0\"\ndescription: Leaks a file\nrisk_level: low\n\
        executor_id: rye/core/runtimes/bash/bash\n\
        config:\n  command: 'echo \"it is ${DB_PASSPHRASE}\"; echo \"$DB_PASSPHRASE\" | base64 >&2'\n";
    env.write("project/.ai/tools/leak_file.yaml", file);
    let signed = env.run(&["sign", "--all"]);
    assert!(signed.status.success(), "{signed:?}");
}

/// Tools that print a secret.
const LEAKING_TOOLS: [&str; 9] = [
    "command:tell",
    "command:fail",
    "command:code",
    "command:long",
    "command:ours",
    "rye:leak",
    "rye:leak_file",
    "mcp:talks/well",
    "mcp:talks/badly",
];

#[test]
fn planted_secrets_are_redacted_everywhere() {
    let env = env_with_planted_secrets();
    let refusing = MockProvider::new(|_, request| {
        let key = request.headers.get("authorization").cloned();
        let message = format!("wrong key: {}", key.unwrap_or_default());
        Reply::json(401, &value!({ "error": { "message": message } }))
    });
    plant_servers(&env, &refusing.url());
    let args: Vec<_> = LEAKING_TOOLS.iter().map(|id| call(id)).collect();
    let mut calls: Vec<_> = args
        .iter()
        .map(|args| ("call_tool", args.as_str()))
        .collect();
    calls.push(("list_tools", "{ query: tells }"));
    calls.push(("bash", "{ command: 'cat .env; grep DB .env | base64' }"));
    calls.push(("read", "{ path: .env }"));
    calls.push(("grep", "{ pattern: DB_PASS, path: .env }"));
    calls.push((
        "bash",
        "{ command: 'rye vault get VAULTED; printenv LEAKY_API_KEY' }",
    ));
    env.write("project/agent.yaml", &script(&calls));
    let model = [
        "--model",
        "scripted:agent.yaml",
        "--sandbox",
        "local",
        "--yes",
    ];
    let prompt = [&["prompt", "go", "--org", "acme", "--json"][..], &model].concat();
    let reply = outcome(&assert_output_has_no_secret(env.run(&prompt)));
    let session = reply["session"].as_str().unwrap();
    let own = ["vault", "set", "OWN", "--session", session];
    assert!(env.feed(&own, PLANTED[2].as_bytes()).status.success());
    // All calls ran, otherwise the search would prove nothing.
    let shown = assert_output_has_no_secret(env.run(&["session", "show", session, "--json"]));
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        shown.matches("[redacted]").count() >= LEAKING_TOOLS.len(),
        "{shown}"
    );
    assert!(!shown.contains("needs a credential"), "{shown}");
    // The session's own credential, after another prompt, and a model that echoes its key.
    let mine = call("command:mine");
    let more = script(
        &[
            &calls[..],
            &[("call_tool", "{ tool_id: 'command:none', summary: '' }")],
            &[("call_tool", &mine)],
        ]
        .concat(),
    );
    env.write("project/more.yaml", &more);
    let again = [
        "prompt",
        "again",
        "--session",
        session,
        "--model",
        "scripted:more.yaml",
    ];
    let reply = assert_output_has_no_secret(env.run(&again));
    // The last call printed the session's own credential, which is redacted.
    let reply = String::from_utf8_lossy(&reply.stdout).into_owned();
    assert_eq!(reply.trim(), "it said [redacted]");
    let refused = assert_output_has_no_secret(env.run(&[
        "prompt",
        "hello",
        "--session",
        session,
        "--model",
        "local/x",
    ]));
    let output_text = String::from_utf8_lossy(&refused.stderr);
    assert!(
        output_text.contains("wrong key: Bearer [redacted]"),
        "{output_text}"
    );
    assert!(
        refusing
            .requests()
            .iter()
            .any(|it| it.path.contains("/mcp"))
    );
    for args in [
        &["session", "export", session, "--output", "session.jsonl"][..],
        &["session", "show", session],
        &["session", "verify", session],
        &["gate", "list"],
        &["vault", "list"],
        &["vault", "list", "--json"],
        &["mcp", "list"],
        &["doctor"],
    ] {
        assert_output_has_no_secret(env.run(args));
    }
    // Secrets that the executor adds to a call are redacted in its output.
    assert!(shown.contains("it is [redacted]"), "{shown}");
    // The file itself contains its secret.
    std::fs::remove_file(env.path("project/.env")).unwrap();
    let mut searched = 0;
    search(&env.path(""), &mut searched);
    assert!(searched > 20, "only {searched} files");
    let state = env.path("user/.local/state/rye");
    assert!(state.join("blobs").exists() && state.join("sessions.db").exists());
}

#[test]
fn unused_credentials_are_redacted() {
    let env = TestEnv::new();
    assert!(env.run(&["init"]).status.success());
    let secret = "unused-credential-value";
    let set = ["vault", "set", "ORG", "--org", "acme"];
    assert!(env.feed(&set, secret.as_bytes()).status.success());
    let call = ("bash", "{ command: 'echo unused-credential-value' }");
    env.write("project/agent.yaml", &script(&[call]));
    let args = [
        "prompt",
        "go",
        "--model",
        "scripted:agent.yaml",
        "--org",
        "acme",
    ];
    let output = env.run(&args);
    assert!(output.status.success(), "{output:?}");
    let reply = String::from_utf8_lossy(&output.stdout);
    assert!(
        reply.contains("[redacted]") && !reply.contains(secret),
        "{reply}"
    );
}

/// A model that writes back what it read must not replace the secret by the redaction mark.
#[test]
fn redaction_mark_is_not_written_over_a_secret() {
    let env = TestEnv::new();
    assert!(env.run(&["init"]).status.success());
    let file = "PORT=80\nAPI_KEY=secret-of-the-file\n";
    env.write("project/.env", file);
    let write = r#"{ path: .env, content: "PORT=81\nAPI_KEY=[redacted]\n" }"#;
    let edit = r#"{ path: .env, old: "80\nAPI_KEY=[redacted]", new: "81\nAPI_KEY=[redacted]" }"#;
    let part = "{ path: .env, old: PORT=80, new: PORT=81 }";
    for (tool, args, says, changed) in [
        ("write", write, "the secret would be lost", false),
        ("edit", edit, "leave it out of `old` and `new`", false),
        ("edit", part, "1 replacement", true),
    ] {
        let calls = [("read", "{ path: .env }"), (tool, args)];
        env.write("project/agent.yaml", &script(&calls));
        let model = ["--model", "scripted:agent.yaml", "--sandbox", "local"];
        // Changing that file needs approval.
        let output = env.run(&[&["prompt", "go", "--yes"][..], &model].concat());
        let reply = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(reply.contains(says), "{args}: {output:?}");
        assert!(!reply.contains("secret-of-the-file"), "{reply}");
        let now = env.read("project/.env");
        assert_eq!(now != file, changed, "{args}: {now}");
        assert!(now.contains("API_KEY=secret-of-the-file"), "{now}");
    }
}
