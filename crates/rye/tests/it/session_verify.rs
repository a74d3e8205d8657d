//! `rye session verify`, `export`, `import` and `fork`.

use crate::support::{TestEnv, assert_transcript, json, kill_at_gate, outcome};
use rye_engine::protocol::short_id;
use serde_json::Value;

const SCRIPT: &str = "\
steps:
  - tool_calls: [{ name: bash, args: { command: 'echo hi' } }]
  - text: 'It said: ${last_tool_result}'
  - text: 'And again.'
";

fn env_after_init() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    env.write("project/agent.yaml", SCRIPT);
    assert!(env.run(&["init"]).status.success());
    env
}

/// A session with one answered prompt.
fn answered_session(env: &TestEnv) -> String {
    let output = env.run(&["prompt", "go", "--model", "scripted:agent.yaml", "--json"]);
    outcome(&output)["session"].as_str().unwrap().to_owned()
}

#[test]
fn export_replaces_only_an_earlier_export() {
    let env = env_after_init();
    let id = answered_session(&env);
    env.write("project/precious.txt", "years of work\n");
    for more in [&[][..], &["--script"]] {
        let export = |file: &str| {
            let args = [&["session", "export", &id, "--output", file], more].concat();
            env.run(&args)
        };
        let refused = export("precious.txt");
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let printed = String::from_utf8_lossy(&refused.stderr);
        let command = format!("rye session export {} --output precious.txt", short_id(&id));
        let command = [&[command.as_str()], more, &["--force\n"]]
            .concat()
            .join(" ");
        assert!(printed.contains(&command), "{printed}");
        assert_eq!(env.read("project/precious.txt"), "years of work\n");
        let file = format!("o{}", more.len());
        for _ in 0..2 {
            assert!(export(&file).status.success());
        }
    }
    let forced = [
        "session",
        "export",
        &id,
        "--output",
        "precious.txt",
        "--force",
    ];
    assert!(env.run(&forced).status.success());
    assert!(
        env.run(&["session", "verify", "precious.txt"])
            .status
            .success()
    );
}

#[test]
fn session_is_verified_locally_and_from_a_file() {
    let env = env_after_init();
    let id = answered_session(&env);
    let mut transcript = env.transcript(&[
        &format!("session verify {id}"),
        &format!("session export {id} --output work.jsonl"),
        "session verify work.jsonl",
        "session import work.jsonl",
    ]);
    let text = env.read("project/work.jsonl").replace("It said", "It sang");
    env.write("project/sung.jsonl", &text);
    let cut: Vec<_> = text.lines().take(3).collect();
    env.write("project/cut.jsonl", &cut.join("\n"));
    let more = format!("{}x", env.read("project/work.jsonl"));
    env.write("project/more.jsonl", &more);
    transcript += &env.transcript(&[
        "session verify more.jsonl",
        "session verify sung.jsonl",
        "session verify cut.jsonl",
        "session import cut.jsonl",
        "session verify agent.yaml",
        "session verify none",
    ]);
    assert_transcript!(transcript);
}

#[test]
fn altered_database_is_detected() {
    let env = env_after_init();
    let id = answered_session(&env);
    execute_sql(
        &env,
        "UPDATE engine_log SET doc = replace(doc, 'echo hi', 'echo ho') WHERE kind = 'entry'",
    );
    let output = env.run(&["session", "verify", &id, "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let faults = &json(&output)["sessions"][0]["findings"];
    assert_eq!(faults[0]["kind"], "altered", "{faults}");
    assert_eq!(faults.as_array().unwrap().len(), 1);
}

#[test]
fn altered_rows_are_detected() {
    let env = env_after_init();
    let id = answered_session(&env);
    assert!(env.run(&["session", "verify", &id]).status.success());
    let sessions = "UPDATE engine_sessions SET doc = json_set(doc, ";
    let threads = "UPDATE engine_threads SET doc = json_set(doc, ";
    let prompts = "UPDATE engine_log SET doc = json_set(doc, ";
    for (statement, back) in [
        (sessions, "'$.workspace', '/elsewhere')"),
        (sessions, "'$.sandbox.kind', 'local')"),
        (sessions, "'$.model', 'other')"),
        (sessions, "'$.role', 'other')"),
        (sessions, "'$.limits.turns', 1000)"),
        (sessions, "'$.status', 'paused')"),
        (threads, "'$.model', 'other')"),
        (threads, "'$.role', 'other')"),
        (threads, "'$.status', 'archived')"),
        (threads, "'$.usage.micro_dollars', 7)"),
        (
            prompts,
            "'$.content', 'something else') WHERE kind = 'prompt'",
        ),
        (
            prompts,
            "'$.author', json_object('name', 'bob')) WHERE kind = 'prompt'",
        ),
    ] {
        let copy = ["engine_sessions", "engine_threads", "engine_log"];
        let copies = copy.map(|it| format!("CREATE TABLE copy_{it} AS SELECT * FROM {it};"));
        execute_sql_batch(&env, &copies.concat());
        execute_sql(&env, &format!("{statement}{back}"));
        let output = env.run(&["session", "verify", &id]);
        assert_eq!(output.status.code(), Some(3), "{statement}{back}");
        let restore = |it: &str| {
            let key = "number";
            format!(
                "UPDATE {it} SET doc = (SELECT doc FROM copy_{it} AS c WHERE c.{key} = {it}.{key}); \
                 DROP TABLE copy_{it};"
            )
        };
        execute_sql_batch(&env, &copy.map(restore).concat());
        let output = env.run(&["session", "verify", &id]);
        assert!(output.status.success(), "{output:?}");
    }
    execute_sql(
        &env,
        "UPDATE engine_threads SET usage = json_set(usage, '$.micro_dollars', 9)",
    );
    let output = env.run(&["session", "verify", &id]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}

#[test]
fn altered_file_is_imported_only_with_permission() {
    let env = env_after_init();
    let id = answered_session(&env);
    let file = env.run(&["session", "export", &id]).stdout;
    assert!(env.run(&["session", "rm", &id]).status.success());
    // The checksum is correct, but the signatures are not.
    let text = String::from_utf8(file).unwrap();
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    let mut session: Value = serde_json::from_str(&lines[1]).unwrap();
    session["session"]["sandbox"]["kind"] = "local".into();
    lines[1] = session.to_string();
    let last = lines.pop().unwrap();
    let body = lines.join("\n") + "\n";
    let mut end: Value = serde_json::from_str(&last).unwrap();
    end["end"]["hash"] = lillux::Hash::digest(&body).to_hex().into();
    let altered = format!("{body}{end}\n");
    let refused = env.feed(&["session", "import", "-", "--json"], altered.as_bytes());
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    assert!(!env.run(&["session", "show", &id]).status.success());
    let allow = ["session", "import", "-", "--allow-unverified"];
    let imported = env.feed(&allow, altered.as_bytes());
    assert!(imported.status.success(), "{imported:?}");
    for args in [&["session", "list"][..], &["session", "show", &id]] {
        let shown = env.run(args);
        let shown = String::from_utf8_lossy(&shown.stdout);
        assert!(shown.contains("imported unverified"), "{shown}");
    }
    // It stays unverified, whatever is signed later.
    let more = [
        "prompt",
        "more",
        "--session",
        &id,
        "--model",
        "scripted:agent.yaml",
    ];
    env.run(&more);
    let output = env.run(&["session", "verify", &id]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}

#[test]
fn concurrent_prompts_on_one_database_succeed() {
    const COUNT: usize = 32;
    let env = env_after_init();
    env.write("project/agent.yaml", "steps: [{ text: hello }]\n");
    let start = |_| {
        let mut prompt = env.command();
        prompt.args(["prompt", "go", "--model", "scripted:agent.yaml"]);
        let piped = std::process::Stdio::piped;
        prompt.stdout(piped()).stderr(piped()).spawn().unwrap()
    };
    let all: Vec<_> = (0..COUNT).map(start).collect();
    for one in all {
        let output = one.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let listed = json(&env.run(&["session", "list", "--json"]));
    assert_eq!(listed["sessions"].as_array().unwrap().len(), COUNT);
}

#[test]
fn unreadable_record_is_reported_with_its_location() {
    let env = env_after_init();
    let id = answered_session(&env);
    execute_sql(
        &env,
        "UPDATE engine_log SET doc = '{' || doc WHERE kind = 'entry' AND doc LIKE '%echo hi%'",
    );
    let shown = env.run(&["session", "verify", &id]);
    let reply = String::from_utf8_lossy(&shown.stderr);
    assert_eq!(shown.status.code(), Some(3), "{reply}");
    assert!(
        reply.contains("the store cannot be read: entry "),
        "{reply}"
    );
}

#[test]
fn unreadable_session_does_not_hide_others() {
    let env = env_after_init();
    let (broken, whole) = (answered_session(&env), answered_session(&env));
    execute_sql(
        &env,
        &format!(
            "UPDATE engine_sessions SET doc = replace(doc, 'status', 'x') WHERE id = '{broken}'"
        ),
    );
    let listed = env.run(&["session", "list"]);
    let listed = String::from_utf8_lossy(&listed.stdout);
    let line = |id: &str| {
        let mut lines = listed.lines();
        lines.find(|line| line.contains(short_id(id))).unwrap()
    };
    assert!(line(&broken).contains("unreadable"), "{listed}");
    assert!(!line(&whole).contains("unreadable"), "{listed}");
    assert!(env.run(&["session", "verify", &whole]).status.success());
    let shown = env.run(&["session", "verify", &broken]);
    let reply = String::from_utf8_lossy(&shown.stderr);
    assert_eq!(shown.status.code(), Some(3), "{reply}");
    assert!(reply.contains(&format!("session {broken}: ")), "{reply}");
}

#[test]
fn removed_gate_or_task_is_detected() {
    let env = env_after_init();
    let tasks = "\
steps:
  - tool_calls:
      - { name: task, args: { prompt: x, model: 'scripted:other.yaml' } }
      - { name: bash, args: { command: 'echo hi' } }
  - text: done
";
    env.write("project/agent.yaml", tasks);
    env.write("project/other.yaml", "steps: [{ text: ok }]\n");
    let args = ["prompt", "go", "--model", "scripted:agent.yaml", "--json"];
    let mut command = env.command();
    let command = command.args(args).args(["--sandbox", "local", "--yes"]);
    let output = command.output().unwrap();
    let id = outcome(&output)["session"].as_str().unwrap().to_owned();
    let missing = || {
        let verified = env.run(&["session", "verify", &id, "--json"]);
        let faults = json(&verified)["sessions"][0]["findings"].clone();
        let faults = faults.as_array().unwrap().clone();
        let troubles = faults.iter().map(|it| it["kind"].clone());
        (verified.status.code(), troubles.collect::<Vec<_>>())
    };
    assert_eq!(missing(), (Some(0), vec![]));
    execute_sql(&env, "DELETE FROM engine_decision_gates");
    assert_eq!(missing(), (Some(3), vec!["missing".into()]));
    let removed = env.run(&["session", "list", "--json"]);
    let listed = json(&removed)["sessions"].as_array().unwrap().clone();
    let mut ids = listed.iter().map(|it| it["id"].as_str().unwrap());
    let task = ids.find(|it| it.starts_with("task-")).unwrap();
    let removed = env.run(&["session", "rm", task]);
    assert!(removed.status.success(), "{removed:?}");
    assert_eq!(missing(), (Some(3), vec!["missing".into(); 2]));
}

/// Tasks are imported before their parent.
#[test]
fn interrupted_import_can_be_repeated() {
    let env = env_after_init();
    let tasks = "\
steps:
  - tool_calls:
      - { name: task, args: { prompt: x, model: 'scripted:other.yaml' } }
      - { name: task, args: { prompt: y, model: 'scripted:other.yaml' } }
  - text: done
";
    env.write("project/agent.yaml", tasks);
    env.write("project/other.yaml", "steps: [{ text: ok }]\n");
    let output = env.run(&["prompt", "go", "--model", "scripted:agent.yaml", "--json"]);
    let id = outcome(&output)["session"].as_str().unwrap().to_owned();
    let listed = json(&env.run(&["session", "list", "--json"]));
    let mut listed = listed["sessions"].as_array().unwrap().iter();
    let task = listed.find_map(|it| it["id"].as_str().filter(|id| id.starts_with("task-")));
    let well = |args: &[&str]| {
        let output = env.run(args);
        assert!(output.status.success(), "{output:?}");
    };
    well(&["session", "export", &id, "--output", "it.jsonl"]);
    well(&["session", "export", task.unwrap(), "--output", "task.jsonl"]);
    well(&["session", "rm", &id]);
    // As if the import had been killed after the first session.
    well(&["session", "import", "task.jsonl"]);
    well(&["session", "import", "it.jsonl"]);
    well(&["session", "verify", &id]);
    let twice = env.run(&["session", "import", "it.jsonl"]);
    assert_eq!(twice.status.code(), Some(1), "{twice:?}");
}

/// Runs several SQL statements.
fn execute_sql_batch(env: &TestEnv, statements: &str) {
    let database = find(&env.path("user"), "sessions.db").unwrap();
    let db = rusqlite::Connection::open(database).unwrap();
    db.execute_batch(statements).unwrap();
}

/// Modifies the database directly.
fn execute_sql(env: &TestEnv, statement: &str) {
    let database = find(&env.path("user"), "sessions.db").unwrap();
    let db = rusqlite::Connection::open(database).unwrap();
    assert!(db.execute(statement, []).unwrap() > 0);
}

/// An unreadable record stops the session; once repaired, it continues with all queued
/// prompts.
#[test]
fn unreadable_session_reports_an_error_until_repaired() {
    let env = env_after_init();
    let id = answered_session(&env);
    let stdout_text =
        |output: &std::process::Output| String::from_utf8_lossy(&output.stdout).into_owned();
    execute_sql(
        &env,
        "UPDATE engine_log SET doc = '{' || doc WHERE kind = 'entry' AND doc LIKE '%echo hi%'",
    );
    let output = env.run(&["prompt", "more", "--session", &id]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("the store cannot be read"), "{printed}");
    let listed = env.run(&["session", "list"]);
    let next = String::from_utf8_lossy(&listed.stderr);
    let resume = format!("rye session resume {}\n", short_id(&id));
    assert!(next.contains(&resume), "{listed:?}");
    let listed = json(&env.run(&["session", "list", "--json"]));
    assert_eq!(listed["sessions"][0]["state"], "failed");

    execute_sql(
        &env,
        "UPDATE engine_log SET doc = substr(doc, 2) WHERE doc LIKE '{{%'",
    );
    let resumed = env.run(&["session", "resume", &id]);
    assert!(stdout_text(&resumed).contains("And again."), "{resumed:?}");
    let listed = json(&env.run(&["session", "list", "--json"]));
    assert_eq!(listed["sessions"][0]["state"], "idle");
    assert!(env.run(&["session", "verify", &id]).status.success());
}

/// Every line of an export matches the protocol's schema.
#[test]
fn exported_records_match_the_published_schema() {
    let env = env_after_init();
    let failing = "steps:\n  - tool_calls: [{ name: task, args: { prompt: x, model: 'scripted:none' } }, { name: none }]\n  - error: invalid_request\n";
    env.write("project/agent.yaml", failing);
    let output = env.run(&["prompt", "go", "--model", "scripted:agent.yaml"]);
    assert_eq!(output.status.code(), Some(1));
    let listed = json(&env.run(&["session", "list", "--json"]));
    let sessions = listed["sessions"].as_array().unwrap();
    let id = sessions.last().unwrap()["id"].as_str().unwrap();
    let file = env.run(&["session", "export", id]).stdout;
    let schema = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/protocol.schema.json"
    );
    let mut schema: Value = serde_json::from_slice(&std::fs::read(schema).unwrap()).unwrap();
    let defs = schema["$defs"].take();
    let mut kinds = std::collections::BTreeSet::new();
    for line in String::from_utf8(file).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let (kind, thing) = line.as_object().unwrap().iter().next().unwrap();
        let of = match kind.as_str() {
            "session" => "Session",
            "thread" => "Thread",
            "entry" => "Entry",
            "prompt" => "QueuedPrompt",
            "event" => "Event",
            _ => continue,
        };
        kinds.insert(of);
        let only = serde_json::json!({ "$ref": format!("#/$defs/{of}"), "$defs": defs });
        let validator = jsonschema::validator_for(&only).unwrap();
        let wrong: Vec<_> = validator
            .iter_errors(thing)
            .map(|it| it.to_string())
            .collect();
        assert!(wrong.is_empty(), "{kind} {thing}: {wrong:?}");
    }
    assert_eq!(kinds.len(), 5, "{kinds:?}");
}

fn find(folder: &std::path::Path, name: &str) -> Option<std::path::PathBuf> {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if let Some(found) = find(&path, name) {
                return Some(found);
            }
        } else if path.ends_with(name) {
            return Some(path);
        }
    }
    None
}

#[test]
fn session_resumes_on_another_machine() {
    let here = env_after_init();
    let id = answered_session(&here);
    let file = here.run(&["session", "export", &id]).stdout;
    let there = env_after_init();
    // The signer's key is not trusted here.
    let refused = there.feed(&["session", "import", "-"], &file);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    assert!(!there.run(&["session", "show", &id]).status.success());
    trust_key_of(&there, &here);
    let imported = there.feed(&["session", "import", "-"], &file);
    assert!(imported.status.success(), "{imported:?}");
    let output = there.run(&["session", "verify", &id]);
    assert!(output.status.success(), "{output:?}");
    let more = there.run(&[
        "prompt",
        "more",
        "--session",
        &id,
        "--model",
        "scripted:agent.yaml",
    ]);
    assert_eq!(String::from_utf8_lossy(&more.stdout), "And again.\n");
    assert!(there.run(&["session", "verify", &id]).status.success());
}

/// An exported session with an approved call that has not run yet. It keeps its
/// workspace.
fn export_with_approval(here: &TestEnv) -> (String, Vec<u8>) {
    let script = SCRIPT.replace("echo hi", "touch ran");
    here.write("project/agent.yaml", &script);
    let asked = ["prompt", "go", "--model", "scripted:agent.yaml"];
    let output = here
        .command()
        .args(asked)
        .args(["--sandbox", "local", "--no-wait"])
        .output()
        .unwrap();
    assert!(!here.path("project/ran").exists(), "{output:?}");
    let gates = json(&here.run(&["gate", "list", "--json"]));
    let gate = &gates["gates"][0];
    let approved = here.run(&["gate", "approve", gate["id"].as_str().unwrap()]);
    assert!(approved.status.success(), "{approved:?}");
    let id = gate["origin"]["session"].as_str().unwrap().to_owned();
    let file = here.run(&["session", "export", &id]).stdout;
    (id, file)
}

/// The sender of a file can't approve for the recipient.
#[test]
fn approval_of_an_untrusted_key_is_asked_again() {
    let mut nobody = TestEnv::new();
    nobody.set("USER", "mallory");
    for (here, why) in [
        (nobody, "the decision is not signed"),
        (env_after_init(), "which is not trusted"),
    ] {
        let (id, file) = export_with_approval(&here);
        let there = env_after_init();
        let script = here.read("project/agent.yaml");
        there.write("project/agent.yaml", &script);
        there.write("project/work.jsonl", std::str::from_utf8(&file).unwrap());
        let verified = there.run(&["session", "verify", "work.jsonl"]);
        assert_eq!(verified.status.code(), Some(3));
        let printed = String::from_utf8_lossy(&verified.stdout);
        assert!(printed.contains(why), "{printed}");
        let refused = there.feed(&["session", "import", "-"], &file);
        assert_eq!(refused.status.code(), Some(3), "{refused:?}");
        let allow = ["session", "import", "-", "--allow-unverified"];
        let imported = there.feed(&allow, &file);
        assert!(imported.status.success(), "{imported:?}");
        let printed = String::from_utf8_lossy(&imported.stdout);
        assert!(printed.contains("1 gate reopened:"), "{printed}");
        assert!(printed.contains(why), "{printed}");
        let mut resumed = there.command();
        let resumed = resumed.args(["session", "resume", &id]).spawn().unwrap();
        kill_at_gate(&there, resumed);
        assert!(!here.path("project/ran").exists());
        let gates = json(&there.run(&["gate", "list", "--json"]));
        let gate = gates["gates"][0]["id"].as_str().unwrap();
        let approved = there.run(&["gate", "approve", gate]);
        assert!(approved.status.success(), "{approved:?}");
        let output = there.run(&["session", "resume", &id]);
        assert!(here.path("project/ran").exists(), "{output:?}");
    }
}

/// Decisions of a trusted key count.
#[test]
fn approval_of_a_trusted_key_counts() {
    let here = env_after_init();
    let (id, file) = export_with_approval(&here);
    let there = env_after_init();
    trust_key_of(&there, &here);
    let script = here.read("project/agent.yaml");
    there.write("project/agent.yaml", &script);
    let imported = there.feed(&["session", "import", "-", "--json"], &file);
    assert_eq!(
        json(&imported)["untrusted_decisions"],
        serde_json::json!([])
    );
    let output = there.run(&["session", "resume", &id]);
    assert!(here.path("project/ran").exists(), "{output:?}");
}

/// Trusts the key of another machine.
fn trust_key_of(there: &TestEnv, here: &TestEnv) {
    let key = here.run(&["keys", "show"]).stdout;
    let shown = String::from_utf8(key).unwrap();
    let start = shown.find("-----BEGIN").unwrap();
    there.write("project/ada.pem", &shown[start..]);
    let trusted = there.run(&["keys", "trust", "ada.pem", "--yes"]);
    assert!(trusted.status.success(), "{trusted:?}");
}

#[test]
fn fork_shares_the_history_up_to_an_entry() {
    let env = env_after_init();
    let id = answered_session(&env);
    let shown = json(&env.run(&["session", "show", &id, "--json"]));
    let entries = shown["threads"][0]["entries"].as_array().unwrap();
    let first = entries[0]["id"].as_str().unwrap();
    let forked = env.run(&["session", "fork", &id, "--at", first, "--json"]);
    let fork = json(&forked)["session"].as_str().unwrap().to_owned();
    assert!(env.run(&["session", "verify", &fork]).status.success());
    let shown = json(&env.run(&["session", "show", &fork, "--json"]));
    let own = shown["threads"][0]["entries"].as_array().unwrap();
    assert_eq!(own.len(), 1);
    assert_eq!(own[0]["hash"], entries[0]["hash"]);
    let unknown = env.run(&["session", "fork", &id, "--at", "nothing"]);
    assert_eq!(unknown.status.code(), Some(1));
}

#[test]
fn verify_reports_an_unsigned_session() {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    env.write("project/agent.yaml", SCRIPT);
    let id = answered_session(&env);
    let output = env.run(&["session", "verify", &id]);
    assert_eq!(output.status.code(), Some(3));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        printed.contains("not signed") && printed.contains("signed by no key"),
        "{printed}"
    );
    for word in ["altered", "added"] {
        assert!(!printed.contains(word), "it was not altered: {printed}");
    }
    let verified = json(&env.run(&["session", "verify", &id, "--json"]));
    let faults = verified["sessions"][0]["findings"].as_array().unwrap();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!(faults[0]["kind"], "signature");
    // A seal covers everything before it.
    assert!(env.run(&["init"]).status.success());
    let more = [
        "prompt",
        "more",
        "--session",
        &id,
        "--model",
        "scripted:agent.yaml",
    ];
    assert!(env.run(&more).status.success());
    assert!(env.run(&["session", "verify", &id]).status.success());
    execute_sql(
        &env,
        "UPDATE engine_log SET doc = replace(doc, 'hi', 'ho') WHERE kind = 'entry'",
    );
    let output = env.run(&["session", "verify", &id]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("altered"));
}
