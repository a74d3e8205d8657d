//! Going on with a session: which one is meant, and where it works.

use std::process::Output;

use crate::support::{TestEnv, kill_at_gate, outcome, told};

const SCRIPT: &str = "\
steps:
  - tool_calls: [{ name: bash, args: { command: 'echo ran >> out.txt' } }]
  - text: 'It is done.'
";

const UNTIL_THE_GATE: &[&str] = &[
    "prompt",
    "go",
    "--model",
    "scripted:agent.yaml",
    "--sandbox",
    "local",
    "--no-wait",
    "--json",
];

/// A session that waits at a gate, and its id.
fn waiting(env: &TestEnv) -> String {
    env.write("project/agent.yaml", SCRIPT);
    let output = env.run(UNTIL_THE_GATE);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    outcome(&output)["session"].as_str().unwrap().to_owned()
}

#[test]
fn an_empty_id_means_nothing_though_there_is_only_one() {
    let env = TestEnv::new();
    let session = waiting(&env);
    for args in [
        &["gate", "approve", ""][..],
        &["gate", "deny", ""],
        &["gate", "answer", "", "--value", "x"],
        &["gate", "approve", " "],
        &["session", "rm", ""],
        &["session", "resume", ""],
        &["session", "show", ""],
        &["session", "verify", ""],
        &["session", "export", ""],
        &["session", "fork", ""],
        &["session", "fork", &session, "--at", ""],
        &["session", "compact", ""],
        &["prompt", "go", "--session", ""],
        &["chat", "--plain", "--session", ""],
        &["replay", ""],
        &["run", "cancel", ""],
        &["run", "rm", ""],
        &["graph", "run", "--resume", ""],
    ] {
        let output = env.run(args);
        let said = told(&args.join(" "), &output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("it is empty"), "{said}");
    }
    let listed = env.run(&["gate", "list"]);
    assert!(told("", &listed).contains(&session), "{listed:?}");
}

#[test]
fn a_session_is_named_by_the_beginning_or_the_end_of_its_id_and_no_other_part() {
    let env = TestEnv::new();
    let session = waiting(&env);
    let (beginning, middle) = (&session[..8], &session[9..18]);
    let end = &session[session.len() - 8..];
    for args in [
        &["session", "rm", "--", "-"][..],
        &["session", "rm", middle],
        &["session", "show", middle],
        &["session", "resume", middle],
        &["session", "fork", middle],
        &["session", "export", middle],
        &["prompt", "go", "--session", middle],
        &["chat", "--plain", "--session", middle],
        &["replay", middle],
    ] {
        let output = env.run(args);
        let said = told(&args.join(" "), &output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("not found"), "{said}");
    }
    for part in [beginning, end, &session] {
        let shown = told("", &env.run(&["session", "show", part]));
        assert!(shown.contains(&session), "{shown}");
    }
    // To remove one, a letter or two are too little.
    let output = env.run(&["session", "rm", &session[..3]]);
    let said = told("", &output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains(&format!("rye session rm {session}")),
        "{said}"
    );
    let removed = told("", &env.run(&["session", "rm", beginning]));
    assert!(removed.contains(&format!("removed {session}")), "{removed}");
}

/// `rye` as it is typed in another folder.
fn run_in(env: &TestEnv, folder: &str, args: &[&str]) -> Output {
    let mut command = env.command();
    command.current_dir(env.path(folder)).args(args);
    command.output().unwrap()
}

/// Another project, whose policy lets commands run.
fn with_a_lax_project() -> TestEnv {
    let env = TestEnv::new();
    assert!(env.run(&["keys", "generate"]).status.success());
    let rules = "rules:\n  - { tool: 'builtin:bash', action: allow }\n";
    env.write("other/.ai/config/agent/approvals.yaml", rules);
    let signed = run_in(&env, "other", &["sign", "--all"]);
    assert!(signed.status.success(), "{signed:?}");
    env
}

#[test]
fn a_session_goes_on_in_its_own_project_wherever_that_is_asked_for() {
    let env = with_a_lax_project();
    let session = waiting(&env);
    let approved = run_in(&env, "other", &["gate", "approve", &session]);
    assert!(approved.status.success(), "{approved:?}");
    let resumed = run_in(&env, "other", &["session", "resume", &session]);
    let said = told("", &resumed);
    assert!(said.contains("It is done."), "{said}");
    assert!(
        said.contains("/project, where the session was created"),
        "{said}"
    );
    assert_eq!(env.read("project/out.txt"), "ran\n");
    assert!(!env.path("other/out.txt").exists());
}

#[test]
fn the_policy_of_a_session_is_that_of_its_project() {
    let env = with_a_lax_project();
    let session = waiting(&env);
    env.run(&["gate", "approve", &session]);
    env.run(&["session", "resume", &session]);
    // The other project's policy does let it.
    env.write("other/agent.yaml", SCRIPT);
    let unasked = run_in(&env, "other", UNTIL_THE_GATE);
    assert_eq!(unasked.status.code(), Some(0), "{unasked:?}");
    // Another that asks for a command, in the project where nothing lets it run unasked.
    env.write("project/again.yaml", &format!("{SCRIPT}  - text: 'x'\n"));
    let args = [
        "prompt",
        "again",
        "--thread",
        "second",
        "--model",
        "scripted:again.yaml",
        "--no-wait",
        "--session",
        &session,
    ];
    let output = run_in(&env, "other", &args);
    assert_eq!(output.status.code(), Some(5), "{}", told("", &output));
    for folder in ["project", "other"] {
        assert_eq!(env.read(&format!("{folder}/out.txt")), "ran\n");
    }
}

#[test]
fn a_project_that_is_named_is_where_it_goes_on_and_that_is_said() {
    let env = with_a_lax_project();
    let session = waiting(&env);
    env.run(&["gate", "approve", &session]);
    env.write("other/agent.yaml", SCRIPT);
    let other = env.path("other");
    let args = ["session", "resume", &session, "--project"];
    let output = env.run(&[&args[..], &[other.to_str().unwrap()]].concat());
    let said = told("", &output);
    assert!(
        said.contains("/other; the session was created in "),
        "{said}"
    );
    assert_eq!(env.read("other/out.txt"), "ran\n");
    assert!(!env.path("project/out.txt").exists());
}

#[test]
fn a_chat_works_in_its_folder_and_goes_on_with_the_items_of_its_project() {
    let mut env = with_a_lax_project();
    env.set("USER", "ada");
    env.write("elsewhere/agent.yaml", SCRIPT);
    let folder = env.path("elsewhere");
    let args = [
        "chat",
        "--plain",
        "--model",
        "scripted:agent.yaml",
        "--sandbox",
        "local",
        "--workspace",
        folder.to_str().unwrap(),
    ];
    let chat = env.feed(&args, b"go\n");
    let said = told("", &chat);
    let (_, session) = said.split_once("rye chat --session ").unwrap();
    let session = session.split_whitespace().next().unwrap();
    let approved = run_in(&env, "other", &["gate", "approve", session]);
    assert!(approved.status.success(), "{said}{approved:?}");
    let resumed = run_in(&env, "other", &["session", "resume", session]);
    let said = told("", &resumed);
    assert!(
        said.contains("/project, where the session was created"),
        "{said}"
    );
    assert_eq!(env.read("elsewhere/out.txt"), "ran\n");
}

/// The one gate of a list.
fn waits(listed: &Output) -> String {
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let gates = listed["gates"].as_array().unwrap().clone();
    assert_eq!(gates.len(), 1, "{gates:?}");
    gates[0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_folder_that_is_gone_is_named_with_the_way_on() {
    let env = TestEnv::new();
    let session = waiting(&env);
    std::fs::rename(env.path("project"), env.path("moved")).unwrap();
    std::fs::create_dir(env.path("bare")).unwrap();
    let refused = run_in(&env, "bare", &["session", "resume", &session]);
    let said = told("", &refused);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("/project, which does not exist"), "{said}");
    let way_on = format!("rye session resume {session} --project DIR");
    assert!(said.contains(&way_on), "{said}");
    run_in(&env, "bare", &["gate", "approve", &session]);
    let moved = env.path("moved");
    let args = ["session", "resume", &session, "--project"];
    let args = [&args[..], &[moved.to_str().unwrap()]].concat();
    // What was approved was to be done in the folder that is gone.
    let mut asked = env.command();
    asked.current_dir(env.path("bare")).args(&args);
    kill_at_gate(&env, asked.spawn().unwrap());
    let listed = run_in(&env, "bare", &["gate", "list", "--json"]);
    run_in(&env, "bare", &["gate", "approve", &waits(&listed)]);
    let said = told("", &run_in(&env, "bare", &args));
    assert!(said.contains("It is done."), "{said}");
    assert_eq!(env.read("moved/out.txt"), "ran\n");
}

/// The same on another machine: nothing of the first is there but the file.
#[test]
fn a_session_whose_folder_is_not_there_goes_on_in_the_project_that_one_is_in() {
    let first = TestEnv::new();
    let session = waiting(&first);
    let file = first.path("work.jsonl");
    let file = file.to_str().unwrap();
    let exported = first.run(&["session", "export", &session, "--output", file]);
    assert!(exported.status.success(), "{exported:?}");
    std::fs::remove_dir_all(first.path("project")).unwrap();

    let second = TestEnv::new();
    second.write("project/agent.yaml", SCRIPT);
    let imported = second.run(&["session", "import", file, "--allow-unverified"]);
    assert!(imported.status.success(), "{imported:?}");
    let approved = second.run(&["gate", "approve", &session]);
    assert!(approved.status.success(), "{approved:?}");
    // That was for the other machine's folder.
    let mut asked = second.command();
    asked.args(["session", "resume", &session]);
    kill_at_gate(&second, asked.spawn().unwrap());
    let listed = second.run(&["gate", "list", "--json"]);
    second.run(&["gate", "approve", &waits(&listed)]);
    let said = told("", &second.run(&["session", "resume", &session]));
    assert!(
        said.contains("where the session was created, does not exist"),
        "{said}"
    );
    assert!(said.contains("It is done."), "{said}");
    assert_eq!(second.read("project/out.txt"), "ran\n");
}
