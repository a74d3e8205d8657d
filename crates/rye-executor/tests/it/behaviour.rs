//! Tools that behave oddly, and calls that do.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use crate::support::{BASH, World};
use lillux::Hash;
use lillux::cas::Cas;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rye_executor::{Envelope, Request, Status, Trace};
use serde_json::{Value, json};

async fn with_timeout(world: &World, tool: &str, timeout: Duration) -> Envelope {
    let mut request = Request::new(tool.parse().unwrap());
    request.timeout = Some(timeout);
    world.executor.execute(request).await
}

#[tokio::test]
async fn what_is_no_json_comes_as_text() {
    let world = World::new();
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
        world.script(&format!("t{number}"), script);
        let envelope = world.run(&format!("t{number}"), json!({})).await;
        assert_eq!(envelope.status, Status::Success, "{script}");
        assert_eq!(envelope.data["stdout"], stdout, "{script}");
        assert_eq!(envelope.data["exit_code"], 0, "{script}");
    }
    let envelope = world.run("t0", json!({})).await;
    assert_eq!(envelope.data["stderr"], "aside\n");
    world.script("bytes", "printf '\\377\\376x'");
    let envelope = world.run("bytes", json!({})).await;
    assert_eq!(envelope.data["stdout"], "\u{fffd}\u{fffd}x");
}

#[tokio::test]
async fn long_output_is_cut_and_kept_whole_under_its_hash() {
    const SIZE: usize = 64 << 20;
    let world = World::new();
    world.script("it", &format!("head -c {SIZE} /dev/zero; echo end >&2"));
    let envelope = world.run("it", json!({})).await;
    assert_eq!(envelope.status, Status::Success);
    assert_eq!(envelope.data["stdout"].as_str().unwrap().len(), 1 << 20);
    assert_eq!(envelope.data["stderr"], "end\n");
    assert_eq!(envelope.metadata["stdout_truncated"], true);
    assert_eq!(envelope.metadata["stdout_bytes"], SIZE);
    let hash: Hash = envelope.metadata["stdout_hash"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(hash, Hash::digest(vec![0; SIZE]));
    let store = Cas::open(world.cache().join("output")).unwrap();
    assert!(store.has(&hash).unwrap());
}

#[tokio::test]
async fn a_tool_that_is_killed_has_no_exit_code() {
    let world = World::new();
    world.script("it", "echo '{\"a\": 1}'; kill -9 $$\n");
    let envelope = world.run("it", json!({})).await;
    assert_eq!(envelope.error.unwrap().code, "signal");
    assert_eq!(envelope.metadata["signal"], 9);
    assert_eq!(envelope.metadata["exit_code"], Value::Null);
    assert_eq!(envelope.data, json!({"a": 1}));
}

#[tokio::test]
async fn a_tool_that_never_ends_is_ended_with_all_that_it_started() {
    let world = World::new();
    let wild = "trap '' TERM\n(setsid sh -c 'trap \"\" TERM; sleep 300; sleep 300' &)\n\
                sleep 300 &\necho begun\nwhile true; do sleep 300; done\n";
    world.script("it", wild);
    world.signed("tools/own.sh", &format!("{BASH}# timeout: 3\n{wild}"));
    for own in [false, true] {
        let start = Instant::now();
        let envelope = if own {
            world.run("own", json!({})).await
        } else {
            with_timeout(&world, "it", Duration::from_secs(3)).await
        };
        assert!(start.elapsed() < Duration::from_mins(1), "{envelope:?}");
        assert_eq!(world.processes(), [""; 0]);
        let error = envelope.error.unwrap();
        assert_eq!(error.code, "timeout", "{}", error.message);
        assert_eq!(envelope.data["stdout"], "begun\n");
    }
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_nothing_running() {
    let world = World::new();
    world.script("it", "(setsid sleep 300 &)\ntouch \"$1/ran\"\nsleep 300\n");
    let executor = world.executor.clone();
    let call =
        tokio::spawn(async move { executor.execute(Request::new("it".parse().unwrap())).await });
    while !world.ran() {
        tokio::task::yield_now().await;
    }
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    while !world.processes().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_a_tool_leaves_behind_ends_with_it() {
    let world = World::new();
    world.script(
        "it",
        "(setsid sleep 300 &)\nsleep 300 &\necho '{\"a\": 1}'\n",
    );
    let envelope = world.run("it", json!({})).await;
    assert_eq!(envelope.status, Status::Success, "{envelope:?}");
    assert_eq!(envelope.data, json!({"a": 1}));
    assert_eq!(world.processes(), [""; 0]);
}

#[tokio::test]
async fn a_parameter_may_have_a_hundred_megabytes_read_or_not() {
    let world = World::new();
    world.script("count", "wc -c\n");
    world.script("deaf", "exec <&-\necho '{\"heard\": false}'\n");
    let huge = json!({"x": "y".repeat(100 << 20)});
    let size = huge.to_string().len();
    let envelope = world.run("count", huge.clone()).await;
    assert_eq!(envelope.data, json!(size));
    let envelope = world.run("deaf", huge).await;
    assert_eq!(envelope.status, Status::Success);
    assert_eq!(envelope.data, json!({"heard": false}));
}

#[tokio::test]
async fn a_placeholder_alone_keeps_its_type_and_a_word_is_a_word() {
    let world = World::new();
    world.signed(
        "tools/it.yaml",
        "version: \"1.0.0\"\nexecutor_id: subprocess\n\
         config: {command: sh, args: [-c, 'printf \"%s|\" \"$@\"; cat; printf \"|$N\"', sh, \"{count}\", \"{list}\", 7, true], input_data: \"{list}\", env: {N: 5}}\n",
    );
    let envelope = world.run("it", json!({"count": 3, "list": ["a", 1]})).await;
    assert_eq!(
        envelope.data["stdout"], "3|[\"a\",1]|7|true|[\"a\",1]|5",
        "{envelope:?}"
    );
}

#[tokio::test]
async fn a_project_may_have_any_path() {
    let world = World::with_project_called("a 'b' \"c\"\n$(touch ran) {tool_path} é ${HOME}");
    world.script("sh", "printf '%s' \"$1\"; pwd >&2\n");
    world.signed(
        "tools/py.py",
        "__executor_id__ = \"rye/core/runtimes/python/function\"\nimport os\n\
         def execute(params, project_path):\n    return {\"given\": project_path, \"cwd\": os.getcwd()}\n",
    );
    world.signed(
        "tools/js.mjs",
        "export const __executor_id__ = \"rye/core/runtimes/node/node\";\n\
         console.log(JSON.stringify({ given: process.argv[3] }));\n",
    );
    world.signed(
        "tools/said.yaml",
        "version: \"1.0.0\"\nexecutor_id: rye/core/runtimes/bash/bash\nconfig: {command: \"printf %s {project_path}\"}\n",
    );
    let path = json!(world.project());
    let envelope = world.run("sh", json!({})).await;
    assert_eq!(envelope.data["stdout"], path, "{envelope:?}");
    let cwd = format!("{}\n", path.as_str().unwrap());
    assert_eq!(envelope.data["stderr"], cwd.as_str());
    assert_eq!(world.run("said", json!({})).await.data["stdout"], path);
    assert_eq!(
        world.run("py", json!({})).await.data,
        json!({"given": path, "cwd": path})
    );
    assert_eq!(world.run("js", json!({})).await.data["given"], path);
    assert!(!world.ran());
}

/// Runs the tool `env`, which prints its variables, with these.
async fn variables(world: &World, tool: &str, inherited: &[(&str, &str)]) -> Vec<String> {
    let mut request = Request::new(tool.parse().unwrap());
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    request.environment = Some(inherited.iter().map(own).collect());
    let envelope = world.executor.execute(request).await;
    let printed = envelope.data["stdout"].as_str().unwrap().to_owned();
    printed.split('\0').map(str::to_owned).collect()
}

#[tokio::test]
async fn a_tool_has_the_projects_variables_and_not_the_programs_secrets() {
    let world = World::new();
    world.signed(
        "tools/env.yaml",
        "version: \"1.0.0\"\nexecutor_id: subprocess\nrequires_env: [A, B, D, E, G, OPENAI_API_KEY]\n\
         config: {command: env, args: [\"-0\"]}\n",
    );
    fs::write(
        world.project().join(".env"),
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
    let found = variables(&world, "env", &inherited).await;
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
    assert!(!world.ran());
}

#[tokio::test]
async fn what_of_the_projects_variables_cannot_be_read_is_told() {
    let world = World::new();
    world.script(
        "it",
        "# requires_env: [A]\necho \"{\\\"a\\\": \\\"$A\\\", \\\"b\\\": \\\"$B\\\"}\"\n",
    );
    let file = world.project().join(".env");
    let warnings = |envelope: &Envelope| envelope.metadata["warnings"].to_string();
    fs::write(&file, b"A=1\nnonsense\nB=\xff\n").unwrap();
    let envelope = world.run("it", json!({})).await;
    assert_eq!(envelope.data, json!({"a": "1", "b": ""}));
    let told = warnings(&envelope);
    assert!(
        told.contains(".env:2: ") && told.contains(".env: "),
        "{told}"
    );
    // Nor does a pipe that nobody writes to, or a file without an end, hold up a call.
    world.script("plain", "echo 1\n");
    for odd in ["pipe", "endless"] {
        fs::remove_file(&file).unwrap();
        match odd {
            "pipe" => mknodat(CWD, &file, FileType::Fifo, Mode::RUSR, 0).unwrap(),
            _ => symlink("/dev/zero", &file).unwrap(),
        }
        let envelope = world.run("plain", json!({})).await;
        assert_eq!(envelope.status, Status::Success, "{odd}");
        let told = warnings(&envelope);
        assert!(told.contains(".env"), "{told}");
    }
}

#[tokio::test]
async fn a_tool_may_ask_for_the_least_environment() {
    let world = World::new();
    world.signed(
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
    let mut found = variables(&world, "env", &inherited).await;
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

/// One process signs a tool anew again and again, first with one content, then
/// with another; what calls run meanwhile is one of the two, whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_is_being_signed_runs_as_it_was_or_as_it_is_or_not_at_all() {
    let world = World::new();
    let content = |word: &str| {
        let padding = "# x\n".repeat(500);
        format!("{BASH}printf '{{\"is\": \"{word}\"'\n{padding}printf ', \"end\": \"{word}\"}}'\n")
    };
    world.signed("tools/it.sh", &content("a"));
    let (mut ran, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        let signer = scope.spawn(|| {
            for round in 0..40 {
                world.signed(
                    "tools/it.sh",
                    &content(if round % 2 == 0 { "b" } else { "a" }),
                );
            }
        });
        let handle = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| {
            while !signer.is_finished() {
                let both =
                    async { tokio::join!(world.run("it", json!({})), world.run("it", json!({}))) };
                let (one, other) = handle.block_on(both);
                for envelope in [one, other] {
                    match &envelope.error {
                        None => {
                            let word = &envelope.data["is"];
                            assert!(word == "a" || word == "b", "{envelope:?}");
                            assert_eq!(&envelope.data["end"], word);
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
    let envelope = world.run("it", json!({})).await;
    assert_eq!(envelope.data, json!({"is": "a", "end": "a"}));
}

#[tokio::test]
async fn the_bytes_that_were_verified_are_those_that_run() {
    let world = World::new();
    // Both the search for the interpreter and the interpreter itself replace the tool's file.
    world.signed(
        "tools/rt.yaml",
        "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: subprocess\n\
         env_config: {interpreter: {type: command, var: SH, resolve_cmd: [sh, -c, 'echo \"echo swapped\" > .ai/tools/it.sh; command -v sh']}}\n\
         config: {command: \"${SH}\", args: [-c, 'cp /dev/null {tool_source}; exec sh {tool_path}']}\n",
    );
    world.signed("tools/it.sh", "# executor_id: rt\necho verified\n");
    let envelope = world.run("it", json!({})).await;
    assert_eq!(envelope.data["stdout"], "verified\n", "{envelope:?}");
    assert_eq!(fs::read(world.at("tools/it.sh")).unwrap(), b"");
}

#[tokio::test]
async fn a_copy_that_somebody_changed_is_made_anew() {
    let world = World::new();
    world.script("it", "echo \"{\\\"at\\\": \\\"$0\\\"}\"\n");
    let envelope = world.run("it", json!({})).await;
    let copy = envelope.data["at"].as_str().unwrap().to_owned();
    fs::remove_file(&copy).unwrap();
    fs::write(&copy, "echo '{\"at\": \"elsewhere\"}'\n").unwrap();
    let envelope = world.run("it", json!({})).await;
    assert_eq!(envelope.data["at"], copy);
    // Also where it looks the same from outside: its size and time.
    let (bytes, about) = (fs::read(&copy).unwrap(), fs::metadata(&copy).unwrap());
    let changed = String::from_utf8(bytes).unwrap().replace("at", "no");
    fs::remove_file(&copy).unwrap();
    fs::write(&copy, changed).unwrap();
    let file = fs::File::options().write(true).open(&copy).unwrap();
    file.set_modified(about.modified().unwrap()).unwrap();
    let envelope = world.run("it", json!({})).await;
    assert_eq!(envelope.data["at"], copy);
}

#[tokio::test]
async fn what_is_added_changed_or_removed_between_calls_is_seen() {
    let world = World::new();
    let script = |word: &str| format!("{BASH}echo '{{\"is\": \"{word}\"}}'\n");
    let is = |envelope: Envelope| envelope.data["is"].clone();
    world.signed_for_user("tools/it.sh", &script("user"));
    assert_eq!(is(world.run("it", json!({})).await), "user");
    world.signed("tools/it.sh", &script("project"));
    assert_eq!(is(world.run("it", json!({})).await), "project");
    world.signed("tools/it.sh", &script("PROJECT"));
    assert_eq!(is(world.run("it", json!({})).await), "PROJECT");
    fs::remove_file(world.at("tools/it.sh")).unwrap();
    assert_eq!(is(world.run("it", json!({})).await), "user");
    // A runtime of the system is shadowed too.
    world.signed(
        "tools/rye/core/runtimes/bash/bash.yaml",
        "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: subprocess\nconfig: {command: echo, args: [\"{\\\"is\\\": 1}\"]}\n",
    );
    world.signed("tools/other.sh", &script("other"));
    assert_eq!(is(world.run("other", json!({})).await), 1);
}

#[tokio::test]
async fn a_python_tool_imports_what_is_beside_it_while_that_is_as_signed() {
    let world = World::new();
    world.signed("tools/pack/__init__.py", "\n");
    world.signed("tools/pack/sibling.py", "WORD = 'good'\n");
    world.signed(
        "tools/pack/deep/it.py",
        "__executor_id__ = \"rye/core/runtimes/python/function\"\nimport sibling\n\
         def execute(params, project_path):\n    return {\"word\": sibling.WORD}\n",
    );
    world.sign_dependencies("pack/deep/it");
    let envelope = world.run("pack/deep/it", json!({})).await;
    assert_eq!(envelope.data, json!({"word": "good"}), "{envelope:?}");
    // Warm, and then with a change that keeps the size.
    for _ in 0..2 {
        assert!(world.run("pack/deep/it", json!({})).await.error.is_none());
    }
    let path = world.at("tools/pack/sibling.py");
    let signed = fs::read_to_string(&path).unwrap();
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, signed.replace("good", "evil")).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(time).unwrap();
    let error = world.refused("pack/deep/it", json!({})).await;
    assert_eq!(error.code, "content_changed", "{}", error.message);
    fs::write(&path, signed).unwrap();
    assert!(world.run("pack/deep/it", json!({})).await.error.is_none());
}

#[tokio::test]
async fn the_trace_shows_the_timeout_that_holds() {
    let world = World::new();
    world.script("plain", "echo\n");
    world.signed("tools/own.sh", &format!("{BASH}# timeout: 7\necho\n"));
    for (tool, given, shown) in [
        ("plain", None, json!(300)),
        ("own", None, json!(7)),
        ("own", Some(Duration::from_millis(2500)), json!(2.5)),
    ] {
        let mut request = Request::new(tool.parse().unwrap());
        request.timeout = given;
        let mut trace = Trace::enabled();
        world
            .executor
            .try_execute(request, &mut trace)
            .await
            .unwrap();
        let step = trace.steps().iter().find(|step| step.name == "rendered");
        assert_eq!(step.unwrap().detail["timeout"], shown, "{tool}");
    }
}
