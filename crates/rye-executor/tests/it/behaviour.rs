//! Unusual tools and calls: output, timeouts, environment, concurrent changes.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use crate::support::{BASH, TestEnv};
use lillux::Hash;
use lillux::cas::Cas;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rye_executor::{ExecutionResult, Request, Status, Trace, TraceStepKind};
use serde_json::{Value, json};

async fn with_timeout(env: &TestEnv, tool: &str, timeout: Duration) -> ExecutionResult {
    let mut request = Request::new(tool.parse().unwrap());
    request.timeout = Some(timeout);
    env.executor.execute(request).await
}

#[tokio::test]
async fn output_that_is_not_json_is_returned_as_text() {
    let env = TestEnv::new();
    for (number, (script, stdout)) in [
        ("echo hello; echo aside >&2", "hello\n"),
        ("printf '{\"a\": 1} and more'", "{\"a\": 1} and more"),
        ("printf '{\"a\": 1}{\"a\": 2}'", "{\"a\": 1}{\"a\": 2}"),
        ("printf '{\"a\": 1'", "{\"a\": 1"),
        ("true", ""),
    ]
    .into_iter()
    .enumerate()
    {
        env.script(&format!("t{number}"), script);
        let result = env.run(&format!("t{number}"), json!({})).await;
        assert_eq!(result.status, Status::Success, "{script}");
        assert_eq!(result.data["stdout"], stdout, "{script}");
        assert_eq!(result.data["exit_code"], 0, "{script}");
    }
    let result = env.run("t0", json!({})).await;
    assert_eq!(result.data["stderr"], "aside\n");
    env.script("bytes", "printf '\\377\\376x'");
    let result = env.run("bytes", json!({})).await;
    assert_eq!(result.data["stdout"], "\u{fffd}\u{fffd}x");
}

#[tokio::test]
async fn long_output_is_truncated_and_stored_by_hash() {
    const SIZE: usize = 64 << 20;
    let env = TestEnv::new();
    env.script("it", &format!("head -c {SIZE} /dev/zero; echo end >&2"));
    let result = env.run("it", json!({})).await;
    assert_eq!(result.status, Status::Success);
    assert_eq!(result.data["stdout"].as_str().unwrap().len(), 1 << 20);
    assert_eq!(result.data["stderr"], "end\n");
    assert_eq!(result.metadata["stdout_truncated"], true);
    assert_eq!(result.metadata["stdout_bytes"], SIZE);
    let hash: Hash = result.metadata["stdout_hash"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(hash, Hash::digest(vec![0; SIZE]));
    let store = Cas::open(env.cache().join("output")).unwrap();
    assert!(store.has(&hash).unwrap());
}

#[tokio::test]
async fn killed_tool_has_no_exit_code() {
    let env = TestEnv::new();
    env.script("it", "echo '{\"a\": 1}'; kill -9 $$\n");
    let result = env.run("it", json!({})).await;
    assert_eq!(result.error.unwrap().code, "signal");
    assert_eq!(result.metadata["signal"], 9);
    assert_eq!(result.metadata["exit_code"], Value::Null);
    assert_eq!(result.data, json!({"a": 1}));
}

#[tokio::test]
async fn timeout_ends_the_whole_process_tree() {
    let env = TestEnv::new();
    let wild = "trap '' TERM\n(setsid sh -c 'trap \"\" TERM; sleep 300; sleep 300' &)\n\
                sleep 300 &\necho begun\nwhile true; do sleep 300; done\n";
    env.script("it", wild);
    env.signed("tools/own.sh", &format!("{BASH}# timeout: 3\n{wild}"));
    for own in [false, true] {
        let start = Instant::now();
        let result = if own {
            env.run("own", json!({})).await
        } else {
            with_timeout(&env, "it", Duration::from_secs(3)).await
        };
        assert!(start.elapsed() < Duration::from_mins(1), "{result:?}");
        assert_eq!(env.processes(), [""; 0]);
        let error = result.error.unwrap();
        assert_eq!(error.code, "timeout", "{}", error.message);
        assert_eq!(result.data["stdout"], "begun\n");
    }
}

#[tokio::test]
async fn aborted_call_leaves_no_processes() {
    let env = TestEnv::new();
    env.script("it", "(setsid sleep 300 &)\ntouch \"$1/ran\"\nsleep 300\n");
    let executor = env.executor.clone();
    let call =
        tokio::spawn(async move { executor.execute(Request::new("it".parse().unwrap())).await });
    while !env.ran() {
        tokio::task::yield_now().await;
    }
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    while !env.processes().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn background_processes_end_with_the_tool() {
    let env = TestEnv::new();
    env.script(
        "it",
        "(setsid sleep 300 &)\nsleep 300 &\necho '{\"a\": 1}'\n",
    );
    let result = env.run("it", json!({})).await;
    assert_eq!(result.status, Status::Success, "{result:?}");
    assert_eq!(result.data, json!({"a": 1}));
    assert_eq!(env.processes(), [""; 0]);
}

#[tokio::test]
async fn parameters_can_be_large_and_unread() {
    let env = TestEnv::new();
    env.script("count", "wc -c\n");
    env.script("deaf", "exec <&-\necho '{\"heard\": false}'\n");
    let huge = json!({"x": "y".repeat(100 << 20)});
    let size = huge.to_string().len();
    let result = env.run("count", huge.clone()).await;
    assert_eq!(result.data, json!(size));
    let result = env.run("deaf", huge).await;
    assert_eq!(result.status, Status::Success);
    assert_eq!(result.data, json!({"heard": false}));
}

#[tokio::test]
async fn single_placeholder_keeps_its_type() {
    let env = TestEnv::new();
    env.signed(
        "tools/it.yaml",
        "version: \"1.0.0\"\nexecutor_id: subprocess\n\
         config: {command: sh, args: [-c, 'printf \"%s|\" \"$@\"; cat; printf \"|$N\"', sh, \"{count}\", \"{list}\", 7, true], input_data: \"{list}\", env: {N: 5}}\n",
    );
    let result = env.run("it", json!({"count": 3, "list": ["a", 1]})).await;
    assert_eq!(
        result.data["stdout"], "3|[\"a\",1]|7|true|[\"a\",1]|5",
        "{result:?}"
    );
}

#[tokio::test]
async fn project_path_can_contain_special_characters() {
    let env = TestEnv::with_project_named("a 'b' \"c\"\n$(touch ran) {tool_path} é ${HOME}");
    env.script("sh", "printf '%s' \"$1\"; pwd >&2\n");
    env.signed(
        "tools/py.py",
        "__executor_id__ = \"rye/core/runtimes/python/function\"\nimport os\n\
         def execute(params, project_path):\n    return {\"given\": project_path, \"cwd\": os.getcwd()}\n",
    );
    env.signed(
        "tools/js.mjs",
        "export const __executor_id__ = \"rye/core/runtimes/node/node\";\n\
         console.log(JSON.stringify({ given: process.argv[3] }));\n",
    );
    env.signed(
        "tools/said.yaml",
        "version: \"1.0.0\"\nexecutor_id: rye/core/runtimes/bash/bash\nconfig: {command: \"printf %s {project_path}\"}\n",
    );
    let path = json!(env.project());
    let result = env.run("sh", json!({})).await;
    assert_eq!(result.data["stdout"], path, "{result:?}");
    let cwd = format!("{}\n", path.as_str().unwrap());
    assert_eq!(result.data["stderr"], cwd.as_str());
    assert_eq!(env.run("said", json!({})).await.data["stdout"], path);
    assert_eq!(
        env.run("py", json!({})).await.data,
        json!({"given": path, "cwd": path})
    );
    assert_eq!(env.run("js", json!({})).await.data["given"], path);
    assert!(!env.ran());
}

/// Runs a tool that prints its variables, with these inherited variables.
async fn variables(env: &TestEnv, tool: &str, inherited: &[(&str, &str)]) -> Vec<String> {
    let mut request = Request::new(tool.parse().unwrap());
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    request.environment = Some(inherited.iter().map(own).collect());
    let result = env.executor.execute(request).await;
    let printed = result.data["stdout"].as_str().unwrap().to_owned();
    printed.split('\0').map(str::to_owned).collect()
}

#[tokio::test]
async fn tool_gets_dotenv_variables_but_no_withheld_secrets() {
    let env = TestEnv::new();
    env.signed(
        "tools/env.yaml",
        "version: \"1.0.0\"\nexecutor_id: subprocess\nrequires_env: [A, B, D, E, G, OPENAI_API_KEY]\n\
         config: {command: env, args: [\"-0\"]}\n",
    );
    fs::write(
        env.project().join(".env"),
        "\u{feff}# strange\n\nnot a line\nexport A=\"1\n2\" # two lines\nB='$(touch ran)'\n=x\n1C=x\nD=`touch ran`\nX Y=z\nE=${HOME}\nOPENAI_API_KEY=theirs\nF=\"open\nG=1\n",
    )
    .unwrap();
    let inherited = [
        ("PATH", "/usr/bin:/bin"),
        ("ANTHROPIC_API_KEY", "mine"),
        ("OPENAI_API_KEY", "mine"),
        ("RYE_VAULT_KEY", "mine"),
        ("MORE", "yes"),
        ("A", "0"),
    ];
    let found = variables(&env, "env", &inherited).await;
    for expected in [
        "A=1\n2",
        "B=$(touch ran)",
        "D=`touch ran`",
        "E=${HOME}",
        "OPENAI_API_KEY=theirs",
        "G=1",
        "MORE=yes",
    ] {
        assert!(
            found.contains(&expected.to_owned()),
            "{expected}: {found:?}"
        );
    }
    assert!(!found.iter().any(|line| line.contains("mine")), "{found:?}");
    assert!(!env.ran());
}

#[tokio::test]
async fn invalid_dotenv_lines_are_reported() {
    let env = TestEnv::new();
    env.script(
        "it",
        "# requires_env: [A]\necho \"{\\\"a\\\": \\\"$A\\\", \\\"b\\\": \\\"$B\\\"}\"\n",
    );
    let file = env.project().join(".env");
    let warnings = |result: &ExecutionResult| result.metadata["warnings"].to_string();
    fs::write(&file, b"A=1\nnonsense\nB=\xff\n").unwrap();
    let result = env.run("it", json!({})).await;
    assert_eq!(result.data, json!({"a": "1", "b": ""}));
    let told = warnings(&result);
    assert!(
        told.contains(".env:2: ") && told.contains(".env: "),
        "{told}"
    );
    // A pipe without a writer or an endless file does not block a call.
    env.script("plain", "echo 1\n");
    for odd in ["pipe", "endless"] {
        fs::remove_file(&file).unwrap();
        match odd {
            "pipe" => mknodat(CWD, &file, FileType::Fifo, Mode::RUSR, 0).unwrap(),
            _ => symlink("/dev/zero", &file).unwrap(),
        }
        let result = env.run("plain", json!({})).await;
        assert_eq!(result.status, Status::Success, "{odd}");
        let told = warnings(&result);
        assert!(told.contains(".env"), "{told}");
    }
}

#[tokio::test]
async fn tool_can_request_a_minimal_environment() {
    let env = TestEnv::new();
    env.signed(
        "tools/env.yaml",
        "version: \"1.0.0\"\nexecutor_id: subprocess\nenv_config: {inherit: minimal, env: {OWN: \"${MORE:-none} ${LANG}\"}}\n\
         config: {command: env, args: [\"-0\"]}\n",
    );
    let inherited = [
        ("PATH", "/usr/bin:/bin"),
        ("LANG", "C"),
        ("LC_ALL", "C.UTF-8"),
        ("MORE", "yes"),
        ("LD_PRELOAD", "/nowhere.so"),
    ];
    let mut found = variables(&env, "env", &inherited).await;
    found.retain(|line| !line.is_empty());
    found.sort();
    assert_eq!(
        found,
        [
            "LANG=C",
            "LC_ALL=C.UTF-8",
            "OWN=none C",
            "PATH=/usr/bin:/bin"
        ]
    );
}

/// While a thread signs a tool repeatedly with two alternating contents, every call runs exactly
/// one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_being_signed_runs_completely_or_not_at_all() {
    let env = TestEnv::new();
    let content = |word: &str| {
        let padding = "# x\n".repeat(500);
        format!("{BASH}printf '{{\"is\": \"{word}\"'\n{padding}printf ', \"end\": \"{word}\"}}'\n")
    };
    env.signed("tools/it.sh", &content("a"));
    let (mut ran, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        let signer = scope.spawn(|| {
            for round in 0..40 {
                env.signed(
                    "tools/it.sh",
                    &content(if round % 2 == 0 { "b" } else { "a" }),
                );
            }
        });
        let handle = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| {
            while !signer.is_finished() {
                let both =
                    async { tokio::join!(env.run("it", json!({})), env.run("it", json!({}))) };
                let (one, other) = handle.block_on(both);
                for result in [one, other] {
                    match &result.error {
                        None => {
                            let word = &result.data["is"];
                            assert!(word == "a" || word == "b", "{result:?}");
                            assert_eq!(&result.data["end"], word);
                            ran += 1;
                        }
                        Some(error) => {
                            let clean = [
                                "unsigned",
                                "content_changed",
                                "unusable_file",
                                "not_found",
                                "no_executor",
                            ];
                            assert!(clean.contains(&error.code.as_str()), "{error:?}");
                            refused += 1;
                        }
                    }
                }
            }
        });
        signer.join().unwrap();
    });
    assert!(ran + refused > 0);
    let result = env.run("it", json!({})).await;
    assert_eq!(result.data, json!({"is": "a", "end": "a"}));
}

#[tokio::test]
async fn verified_bytes_are_the_bytes_that_run() {
    let env = TestEnv::new();
    // Both the search for the interpreter and the interpreter itself replace the tool's file.
    env.signed(
        "tools/rt.yaml",
        "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: subprocess\n\
         env_config: {interpreter: {type: command, var: SH, resolve_cmd: [sh, -c, 'echo \"echo swapped\" > .ai/tools/it.sh; command -v sh']}}\n\
         config: {command: \"${SH}\", args: [-c, 'cp /dev/null {tool_source}; exec sh {tool_path}']}\n",
    );
    env.signed("tools/it.sh", "# executor_id: rt\necho verified\n");
    let result = env.run("it", json!({})).await;
    assert_eq!(result.data["stdout"], "verified\n", "{result:?}");
    assert_eq!(fs::read(env.project_path("tools/it.sh")).unwrap(), b"");
}

#[tokio::test]
async fn modified_copy_is_replaced() {
    let env = TestEnv::new();
    env.script("it", "echo \"{\\\"at\\\": \\\"$0\\\"}\"\n");
    let result = env.run("it", json!({})).await;
    let copy = result.data["at"].as_str().unwrap().to_owned();
    fs::remove_file(&copy).unwrap();
    fs::write(&copy, "echo '{\"at\": \"elsewhere\"}'\n").unwrap();
    let result = env.run("it", json!({})).await;
    assert_eq!(result.data["at"], copy);
    // Also if its size and modification time are the same.
    let (bytes, about) = (fs::read(&copy).unwrap(), fs::metadata(&copy).unwrap());
    let changed = String::from_utf8(bytes).unwrap().replace("at", "no");
    fs::remove_file(&copy).unwrap();
    fs::write(&copy, changed).unwrap();
    let file = fs::File::options().write(true).open(&copy).unwrap();
    file.set_modified(about.modified().unwrap()).unwrap();
    let result = env.run("it", json!({})).await;
    assert_eq!(result.data["at"], copy);
}

#[tokio::test]
async fn changes_between_calls_are_detected() {
    let env = TestEnv::new();
    let script = |word: &str| format!("{BASH}echo '{{\"is\": \"{word}\"}}'\n");
    let is = |result: ExecutionResult| result.data["is"].clone();
    env.signed_for_user("tools/it.sh", &script("user"));
    assert_eq!(is(env.run("it", json!({})).await), "user");
    env.signed("tools/it.sh", &script("project"));
    assert_eq!(is(env.run("it", json!({})).await), "project");
    env.signed("tools/it.sh", &script("PROJECT"));
    assert_eq!(is(env.run("it", json!({})).await), "PROJECT");
    fs::remove_file(env.project_path("tools/it.sh")).unwrap();
    assert_eq!(is(env.run("it", json!({})).await), "user");
    // A system runtime can be shadowed as well.
    env.signed(
        "tools/rye/core/runtimes/bash/bash.yaml",
        "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: subprocess\nconfig: {command: echo, args: [\"{\\\"is\\\": 1}\"]}\n",
    );
    env.signed("tools/other.sh", &script("other"));
    assert_eq!(is(env.run("other", json!({})).await), 1);
}

#[tokio::test]
async fn python_tool_imports_only_signed_siblings() {
    let env = TestEnv::new();
    env.signed("tools/pack/__init__.py", "\n");
    env.signed("tools/pack/sibling.py", "WORD = 'good'\n");
    env.signed(
        "tools/pack/deep/it.py",
        "__executor_id__ = \"rye/core/runtimes/python/function\"\nimport sibling\n\
         def execute(params, project_path):\n    return {\"word\": sibling.WORD}\n",
    );
    env.sign_dependencies("pack/deep/it");
    let result = env.run("pack/deep/it", json!({})).await;
    assert_eq!(result.data, json!({"word": "good"}), "{result:?}");
    // With a warm cache, and then with a change that keeps size and time.
    for _ in 0..2 {
        assert!(env.run("pack/deep/it", json!({})).await.error.is_none());
    }
    let path = env.project_path("tools/pack/sibling.py");
    let signed = fs::read_to_string(&path).unwrap();
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, signed.replace("good", "evil")).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(time).unwrap();
    let error = env.refused("pack/deep/it", json!({})).await;
    assert_eq!(error.code, "content_changed", "{}", error.message);
    fs::write(&path, signed).unwrap();
    assert!(env.run("pack/deep/it", json!({})).await.error.is_none());
}

#[tokio::test]
async fn trace_shows_the_effective_timeout() {
    let env = TestEnv::new();
    env.script("plain", "echo\n");
    env.signed("tools/own.sh", &format!("{BASH}# timeout: 7\necho\n"));
    for (tool, given, shown) in [
        ("plain", None, json!(300)),
        ("own", None, json!(7)),
        ("own", Some(Duration::from_millis(2500)), json!(2.5)),
    ] {
        let mut request = Request::new(tool.parse().unwrap());
        request.timeout = given;
        let mut trace = Trace::enabled();
        env.executor.try_execute(request, &mut trace).await.unwrap();
        let config = trace.steps().iter().find_map(|step| match &step.kind {
            TraceStepKind::Rendered { config } => Some(config),
            _ => None,
        });
        assert_eq!(config.unwrap()["timeout"], shown, "{tool}");
    }
}
