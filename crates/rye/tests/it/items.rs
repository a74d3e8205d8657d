//! `rye init`, `sign`, `verify`, `load` and `system export`.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{TestEnv, assert_transcript, json};

const TOOL: &str = "__version__ = \"1.0.0\"\n\
    __executor_id__ = \"rye/core/runtimes/python/script\"\n\
    __tool_description__ = \"Counts words\"\n\
    print(1)\n";

/// A `TestEnv` after `rye init`.
fn env_after_init() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    assert!(env.run(&["init"]).status.success());
    env
}

#[test]
fn init_creates_what_is_missing_and_keeps_the_rest() {
    let mut env = TestEnv::bare();
    env.set("USER", "ada");
    let mut transcript = env.transcript(&["init", "init", "init --json", "verify hello"]);
    env.write("project/.ai/tools/hello.py", "mine");
    transcript += &env.transcript(&["init", "init --project ../another --quiet"]);
    assert_eq!(env.read("project/.ai/tools/hello.py"), "mine");
    assert!(env.path("another/.ai/tools/hello.py").exists());
    assert_transcript!(transcript);
}

#[test]
fn init_for_agents_writes_files_that_are_used_and_kept() {
    let mut env = TestEnv::bare();
    env.set("USER", "ada");
    env.write("project/Cargo.toml", "[package]\n");
    let mut transcript = env.transcript(&["init --agents"]);
    transcript += &env.read("project/AGENTS.md");
    // The file with rules is signed and accepted, and the roles can be used.
    env.write("project/agent.yaml", "steps: [{ text: done }]");
    for role in ["planner", "reviewer"] {
        let args = [
            "prompt",
            "go",
            "--role",
            role,
            "--model",
            "scripted:agent.yaml",
        ];
        let output = env.run(&args);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{printed}");
        assert!(!printed.contains("approvals.yaml"), "{printed}");
    }
    env.write("project/AGENTS.md", "mine");
    env.write("project/.ai/config/agent/approvals.yaml", "rules: []\n");
    transcript += &env.transcript(&["init --agents --json"]);
    assert_eq!(env.read("project/AGENTS.md"), "mine");
    let rules = env.read("project/.ai/config/agent/approvals.yaml");
    assert_eq!(rules, "rules: []\n");
    // An AGENTS.md would replace it.
    env.write("another/CLAUDE.md", "mine");
    let other = env.run(&["init", "--agents", "--project", "../another"]);
    assert!(other.status.success(), "{other:?}");
    assert!(!env.path("another/AGENTS.md").exists());
    assert!(env.path("another/.ai/roles/reviewer.md").exists());
    assert_transcript!(transcript);
}

#[test]
fn concurrent_inits_create_one_of_each() {
    let env = TestEnv::bare();
    let calls: Vec<_> = (0..6)
        .filter_map(|_| env.command().arg("init").spawn().ok())
        .collect();
    for call in calls {
        let output = call.wait_with_output();
        assert!(
            output.as_ref().is_ok_and(|o| o.status.success()),
            "{output:?}"
        );
    }
    let output = env.run(&["verify", "hello"]);
    assert!(output.status.success(), "{output:?}");
    let trusted = fs::read_dir(env.path("user/.ai/config/keys/trusted"));
    assert_eq!(trusted.map(Iterator::count).ok(), Some(1));
}

#[test]
fn init_in_the_home_directory_creates_one_space() {
    let env = TestEnv::bare();
    let output = env
        .command()
        .arg("init")
        .current_dir(env.path("user"))
        .output();
    assert!(output.is_ok_and(|output| output.status.success()));
    let output = env.command().args(["load", "hello", "--json"]).output();
    let document = output.map(|output| json(&output));
    assert_eq!(
        document.map(|d| d["space"].clone()).ok(),
        Some("user".into())
    );
}

#[test]
fn init_does_not_write_through_a_link_out_of_the_project() {
    let env = TestEnv::new();
    let outside = env.path("outside");
    fs::create_dir(&outside).ok();
    symlink(&outside, env.path("project/.ai/tools")).ok();
    let output = env.run(&["init"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(fs::read_dir(outside).map(Iterator::count).ok(), Some(0));
}

#[test]
fn verification_results() {
    let env = env_after_init();
    env.write("project/.ai/tools/text/count.py", TOOL);
    let mut transcript = env.transcript(&[
        "verify text/count",
        "sign text/count",
        "sign text/count",
        "verify text/count --json",
    ]);
    let signed = env.read("project/.ai/tools/text/count.py");
    env.write(
        "project/.ai/tools/text/count.py",
        &signed.replace("print(1)", "print(2)"),
    );
    transcript += &env.transcript(&["verify text/count", "verify text/count --json"]);
    let (_, unsigned) = signed.split_once('\n').unwrap_or_default();
    let malformed = format!("# rye:signed:yesterday\n{unsigned}");
    env.write("project/.ai/tools/text/count.py", &malformed);
    transcript += &env.transcript(&["verify text/count hello", "verify text/count --json"]);
    transcript += &env.transcript(&["verify cuont", "verify ../x", "verify --all text/count"]);
    assert_transcript!(transcript);
}

#[test]
fn untrusted_key_is_reported_with_the_trusted_ones() {
    let (env, stranger) = (env_after_init(), env_after_init());
    stranger.write("project/.ai/tools/gift.py", TOOL);
    stranger.run(&["sign", "gift"]);
    env.write(
        "project/.ai/tools/gift.py",
        &stranger.read("project/.ai/tools/gift.py"),
    );
    assert_transcript!(env.transcript(&["verify gift", "load gift", "load gift --json"]));
}

#[test]
fn items_are_signed_by_glob_path_and_all() {
    let env = env_after_init();
    for name in ["a", "deep/b", "deep/er/c"] {
        env.write(&format!("project/.ai/tools/{name}.py"), TOOL);
    }
    env.write(
        "project/.ai/knowledge/style.md",
        "# Style\n\nPlain words.\n",
    );
    env.write("project/.ai/tools/broken.py", "__version__ = compute()\n");
    env.write("elsewhere.py", TOOL);
    assert_transcript!(env.transcript(&[
        "sign a",
        "sign deep/*",
        "sign none/*",
        "sign .ai/tools/deep/er/c.py",
        "sign ../elsewhere.py",
        "verify ../elsewhere.py",
        "sign broken",
        "sign broken --json",
        "sign --all",
        "verify --all --space project",
        "verify knowledge:* .ai/tools/deep",
        "sign --all --space user",
        "sign rye/core/runtimes/bash/bash",
        "sign",
    ]));
}

#[test]
fn sign_all_does_not_sign_trust_files() {
    let (env, stranger) = (env_after_init(), env_after_init());
    let keys = json(&stranger.run(&["keys", "list", "--json"]));
    let own = keys["keys"]
        .as_array()
        .and_then(|keys| keys.iter().find(|key| key["own"] == true));
    let own = own
        .and_then(|key| key["fingerprint"].as_str())
        .unwrap_or_default();
    let file = format!(".ai/config/keys/trusted/{own}.toml");
    let text = stranger.read(&format!("user/{file}"));
    env.write(&format!("project/{file}"), &text);
    stranger.write("project/.ai/tools/gift.py", TOOL);
    stranger.run(&["sign", "gift"]);
    let gift = stranger.read("project/.ai/tools/gift.py");
    env.write("project/.ai/tools/gift.py", &gift);

    for call in [
        &["sign", "hello"][..],
        &["sign", "config:**"],
        &["sign", ".ai/config"],
    ] {
        env.run(call);
        assert_eq!(env.read(&format!("project/{file}")), text, "{call:?}");
    }
    let transcript = env.transcript(&["verify gift", &format!("sign {file}")]);
    assert_eq!(env.read(&format!("project/{file}")), text);
    env.run(&["sign", "--all"]);
    assert_eq!(env.read(&format!("project/{file}")), text);
    assert_transcript!(transcript);
}

#[test]
fn sign_needs_a_key_and_creates_none() {
    let env = TestEnv::new();
    env.write("project/.ai/tools/a.py", TOOL);
    assert_transcript!(env.transcript(&["sign a", "sign a --json"]));
    assert_eq!(env.read("project/.ai/tools/a.py"), TOOL);
    assert!(!env.path("user/.ai").exists());
}

#[test]
fn link_named_rye_sign_runs_that_command() {
    let env = env_after_init();
    env.write("project/.ai/tools/a.py", TOOL);
    let link = env.path("rye_sign");
    symlink(env!("CARGO_BIN_EXE_rye"), &link).ok();
    let home = env.path("user");
    let output = std::process::Command::new(&link)
        .arg("a")
        .env_clear()
        .env("HOME", home)
        .current_dir(env.path("project"))
        .output();
    assert!(output.is_ok_and(|output| output.status.success()));
    assert!(env.run(&["verify", "a"]).status.success());
    let help = std::process::Command::new(&link).arg("--help").output();
    let help = help.map(|help| String::from_utf8_lossy(&help.stdout).into_owned());
    let usage = help.unwrap_or_default();
    assert!(usage.contains("Usage: rye sign [OPTIONS]"), "{usage}");
}

#[test]
fn signature_can_have_a_provenance() {
    let env = env_after_init();
    let transcript = env.transcript(&[
        "sign hello --provenance github@ada",
        "sign hello",
        "sign hello --provenance gitlab@ada",
        "sign hello --provenance nobody",
        "load hello",
    ]);
    let line = env.read("project/.ai/tools/hello.py");
    let line = line.lines().next().unwrap_or_default();
    assert!(line.ends_with("|gitlab@ada"), "{line}");
    let (shown, _) = transcript.split_once("\"\"\"").unwrap_or_default();
    assert_transcript!(shown);
}

#[test]
fn integrity_failure_determines_the_exit_code() {
    let env = env_after_init();
    env.write("project/.ai/tools/unsigned.py", TOOL);
    let output = env.run(&["verify", "unsigned", "../x", "nothing"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}

#[test]
fn load_shows_the_signer() {
    let env = env_after_init();
    env.write("user/.ai/tools/hello.py", TOOL);
    let mut transcript = env.transcript(&["load hello", "load hello --json"]);
    transcript += &env.transcript(&[
        "load hullo",
        "load tool:hello --content",
        "load rye/core/runtimes/bash/bash --to project",
        "load rye/core/runtimes/bash/bash --to project",
        "verify rye/core/runtimes/bash/bash",
        "load nothing:x",
    ]);
    assert_transcript!(transcript);
}

#[test]
fn development_mode_warns_and_does_not_affect_the_system_space() {
    let mut env = env_after_init();
    env.write("project/.ai/tools/a.py", TOOL);
    env.run(&["system", "export", "../system"]);
    let bash = "system/.ai/tools/rye/core/runtimes/bash/bash.yaml";
    let text = env.read(bash);
    env.write(bash, &(text + "# more\n"));
    env.set("RYE_DEV_MODE", "1");
    env.set("RYE_SYSTEM_SPACE", "../system");
    assert_transcript!(env.transcript(&["load a", "verify a", "load rye/core/runtimes/bash/bash"]));
}

#[test]
fn exported_system_space_replaces_the_embedded_one() {
    let mut env = env_after_init();
    let first = env.transcript(&["system export ../system", "system export ../system --json"]);
    env.set("RYE_SYSTEM_SPACE", "../system");
    let document = json(&env.run(&["load", "rye/core/runtimes/bash/bash", "--json"]));
    let path = document["path"].as_str().unwrap_or_default().to_owned();
    assert!(path.contains("/system/.ai/tools/"), "{path}");
    assert!(env.run(&["verify", "--all"]).status.success());
    assert_transcript!(first);
}

#[test]
fn problems_of_one_space_are_not_reported_for_another() {
    let env = env_after_init();
    symlink("/etc", env.path("project/.ai/tools/out")).unwrap();
    let output = env.run(&["verify", "--all", "--space", "system"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = env.run(&["verify", "--all", "--space", "project"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}

#[test]
fn dependencies_are_signed_with_the_tool() {
    let env = env_after_init();
    let tool = "__version__ = \"1.0.0\"\n__executor_id__ = \"rye/core/runtimes/python/function\"\n\
        import helper\n\ndef execute(params, project_path):\n    return helper.WORD\n";
    env.write("project/.ai/tools/pack/it.py", tool);
    env.write("project/.ai/tools/pack/__init__.py", "");
    env.write("project/.ai/tools/pack/helper.py", "WORD = 1\n");
    let mut transcript = env.transcript(&[
        "sign pack/it",
        "sign pack/it",
        "verify pack/it",
        "execute pack/it",
    ]);
    env.write("project/.ai/tools/pack/helper.py", "WORD = 2\n");
    env.write("project/.ai/tools/pack/helper", "planted");
    std::fs::remove_file(env.path("project/.ai/tools/pack/__init__.py")).unwrap();
    transcript += &env.transcript(&["verify pack/it", "execute pack/it", "sign pack/it"]);
    assert_transcript!(transcript);
}

#[test]
fn directory_is_signed_with_a_manifest() {
    let env = env_after_init();
    env.write("project/env/bin/python", "");
    env.write(
        "project/.ai/tools/nm/it.sh",
        "# executor_id: rye/core/runtimes/bash/bash\n",
    );
    let mut transcript = env.transcript(&[
        "sign --manifest env",
        "sign --manifest env --json",
        "sign --manifest .ai/tools/nm",
        "sign --manifest .",
        "sign --manifest nowhere",
        "sign --manifest /etc",
    ]);
    std::os::unix::fs::symlink("../..", env.path("project/env/bin/out")).unwrap();
    transcript += &env.transcript(&["sign --manifest env"]);
    assert_transcript!(transcript);
}

#[test]
fn path_of_another_project_is_signed_in_that_project() {
    let env = env_after_init();
    env.write("other/.ai/tools/it.py", TOOL);
    env.write("other/.ai/tools/pack/it.py", TOOL);
    env.write("other/.venv/bin/python", "");
    env.write("project/.ai/tools/own.py", TOOL);
    let output = env.run(&[
        "sign",
        "../other/.ai/tools/it.py",
        "own",
        "../other/.ai/tools/pack",
        "--manifest",
        "../other/.venv",
    ]);
    assert!(output.status.success(), "{output:?}");
    assert!(env.path("other/.venv/rye.manifest").exists());
    let project = env.path("other");
    let project = project.to_str().unwrap();
    for id in ["it", "pack/it"] {
        let output = env.run(&["--project", project, "verify", id]);
        assert!(output.status.success(), "{output:?}");
    }
    assert!(env.run(&["verify", "own"]).status.success());
    env.write("loose.py", TOOL);
    let output = env.run(&["sign", "../loose.py"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn everything_unsigned_in_a_call_is_signed_by_the_hint() {
    let env = env_after_init();
    let runtime = "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: subprocess\n\
        anchor: { markers_any: [package.json] }\nconfig: { command: echo, args: [hi] }\n";
    env.write("project/.ai/tools/rt.yaml", runtime);
    env.write(
        "project/.ai/tools/pack/it.sh",
        "# executor_id: rt\n# version: \"1.0.0\"\n",
    );
    env.write("project/.ai/tools/pack/package.json", "{}");
    env.write("project/.ai/tools/pack/node_modules/x.js", "");
    let output = env.run(&["execute", "pack/it", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let hint = json(&output)["error"]["hint"].as_str().unwrap().to_owned();
    let (command, _) = hint.split_once(" # ").unwrap();
    let words: Vec<_> = command.split(' ').skip(1).collect();
    let output = env.run(&words);
    assert!(output.status.success(), "{hint}: {output:?}");
    let output = env.run(&["execute", "pack/it"]);
    assert_eq!(output.stdout, b"hi\n", "{output:?}");
}

#[test]
fn misspelt_tool_is_not_signed() {
    let env = env_after_init();
    env.write(
        "project/.ai/tools/it.yaml",
        "version: \"1.0.0\"\nexecutor_id: subprocess\nconfig: { command: echo, tiemout: 5 }\n",
    );
    env.write(
        "project/.ai/tools/it.js",
        "const __executor_id__ = \"rye/core/runtimes/node/node\";\n",
    );
    for (file, code) in [("it.yaml", "unknown_name"), ("it.js", "bad_metadata")] {
        let path = format!(".ai/tools/{file}");
        let before = env.read(&format!("project/{path}"));
        let output = env.run(&["sign", &path, "--json"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let error = json(&output)["items"][0]["error"].clone();
        assert_eq!(error["code"], code, "{error}");
        assert_eq!(env.read(&format!("project/{path}")), before);
    }
}

#[test]
fn error_in_yaml_keeps_the_excerpt_with_its_caret() {
    let env = env_after_init();
    let text = "steps:\n  - text: [unclosed\n";
    env.write("project/script.yaml", text);
    env.write("project/.ai/tools/it.yaml", text);
    let shows = |call: &str, line: &str| {
        let words: Vec<_> = call.split(' ').collect();
        let shown = String::from_utf8(env.run(&words).stderr).unwrap();
        let lines: Vec<_> = shown.lines().collect();
        let source = lines.iter().position(|shown| shown.ends_with(line));
        let caret = source.and_then(|at| lines.get(at + 1));
        let has_caret = caret.is_some_and(|caret| caret.contains('^'));
        assert!(has_caret, "{call}:\n{shown}");
    };
    shows("prompt hi --model scripted:script.yaml", "text: [unclosed");
    shows("sign it", "text: [unclosed");
    let approvals = "rules:\n  - { tool: x, action: maybe }\n";
    env.write("user/.ai/config/agent/approvals.yaml", approvals);
    shows("prompt hi --model scripted:demo", "action: maybe }");
    env.write("user/.ai/config/agent/models.yaml", "providers: [\n");
    shows("models list", "providers: [");
}
