//! Security properties: trust, signatures, injection through parameters and `.env`, output.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{BASH, CREATE_MARKER, TestEnv};
use lillux::durable::IfExists;
use rye_executor::{Request, Status};
use rye_items::{CommentStyle, ItemRef, UserKeys, signature};
use serde_json::{Value, json};

/// Script that returns its parameters.
const ECHO: &str = "cat\n";

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[tokio::test]
async fn project_trust_file_does_not_add_trusted_keys() {
    let env = TestEnv::new();
    let eve = env.dir().join("eve");
    let key = UserKeys::new(&eve).generate("Eve", IfExists::Fail).unwrap();
    let signed = |text: &str| {
        let time = "2026-01-01T00:00:00Z";
        let binding = signature::Binding::item("tools/it.sh");
        signature::sign(
            text.as_bytes(),
            &CommentStyle::HASH,
            &binding,
            &key,
            time,
            None,
        )
        .unwrap()
    };
    env.write("tools/it.sh", "");
    fs::write(
        env.project_path("tools/it.sh"),
        signed(&format!("{BASH}{CREATE_MARKER}")),
    )
    .unwrap();
    // Signed with its own key, and then unsigned.
    let trusted = env.project_path("config/keys/trusted");
    copy_all(&eve.join(".ai/config/keys/trusted"), &trusted);
    let file = trusted.join(format!("{}.toml", key.public().fingerprint()));
    for unsigned in [false, true] {
        if unsigned {
            let text = signature::strip_signature(&fs::read(&file).unwrap());
            fs::write(&file, text).unwrap();
        }
        let error = env.refused("it", json!({})).await;
        assert_eq!(error.code, "untrusted_key");
        let ignored = format!("{} was ignored", file.display());
        assert!(error.message.contains(&ignored), "{}", error.message);
    }
}

#[tokio::test]
async fn unsigned_extractor_table_is_ignored() {
    let env = TestEnv::new();
    let table = "extensions:\n  .txt: { parser: header, comment: '#', kinds: [tool] }\n\
                 fields:\n  header:\n    executor_id: [executor_id]\n";
    env.write("tools/it.txt", &format!("{BASH}{CREATE_MARKER}"));
    env.write("tools/rye/core/extractors/tool_extractor.yaml", table);
    let error = env.refused("it", json!({})).await;
    assert_eq!(error.code, "not_found", "{}", error.message);
}

#[tokio::test]
async fn dry_run_refuses_an_unsigned_runtime() {
    let env = TestEnv::new();
    let runtime = "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: subprocess\n\
                   config: {command: /bin/sh, args: [\"{tool_path}\", \"{project_path}\"]}\n";
    env.write("tools/rt.yaml", runtime);
    let tool = format!("# executor_id: rt\n# version: \"1.0.0\"\n{CREATE_MARKER}");
    env.signed("tools/it.sh", &tool);
    assert_eq!(env.refused("it", json!({})).await.code, "unsigned");
}

#[tokio::test]
async fn names_and_links_cannot_leave_a_space() {
    for name in [
        "tool:../../../outside/x",
        "../x",
        "/etc/passwd",
        "tool:/tmp/x",
        "a/../../x",
        "a\\b",
        "a\0b",
        "",
    ] {
        assert!(name.parse::<ItemRef>().is_err(), "{name:?}");
    }
    let env = TestEnv::new();
    env.script("good", CREATE_MARKER);
    let outside = env.dir().join("outside.sh");
    fs::rename(env.project_path("tools/good.sh"), &outside).unwrap();
    symlink(&outside, env.project_path("tools/it.sh")).unwrap();
    let error = env.refused("it", json!({})).await;
    assert_eq!(error.code, "leaves_space", "{}", error.message);
}

#[tokio::test]
async fn ambiguous_id_names_both_files() {
    let env = TestEnv::new();
    env.script("it", CREATE_MARKER);
    env.signed("tools/it.py", "__executor_id__ = \"subprocess\"\n");
    let error = env.refused("it", json!({})).await;
    assert_eq!(error.code, "ambiguous");
    for name in ["tools/it.sh", "tools/it.py"] {
        assert!(error.message.contains(name), "{}", error.message);
    }
}

#[tokio::test]
async fn all_parameter_violations_are_reported() {
    let env = TestEnv::new();
    let schema = "# config_schema: {type: object, required: [a, b], additionalProperties: false, properties: {a: {type: string}, b: {type: string}}}\n";
    env.signed("tools/it.sh", &format!("{BASH}{schema}{CREATE_MARKER}"));
    let error = env.refused("it", json!({"a": 1, "c": 2})).await;
    assert_eq!(error.code, "invalid_parameters");
    assert_eq!(
        error.violations.as_array().unwrap().len(),
        3,
        "{}",
        error.message
    );
}

#[tokio::test]
async fn template_syntax_in_parameters_is_literal() {
    let env = TestEnv::new();
    env.script("echo", ECHO);
    env.signed(
        "tools/words.yaml",
        "version: \"1.0.0\"\nexecutor_id: subprocess\n\
         config: {command: printf, args: [\"%s\\n\", \"{a}\", \"<{b}>\", \"{c}\"]}\n",
    );
    let odd = json!({
        "a": "${HOME} ${NONE:-x} {b} {tool_path}",
        "b": "{project_path} $(touch ran) `touch ran`",
        "c": "{a}; touch ran",
    });
    let result = env.run("echo", odd.clone()).await;
    assert_eq!(result.data, odd);
    let result = env.run("words", odd).await;
    assert_eq!(
        result.data["stdout"],
        "${HOME} ${NONE:-x} {b} {tool_path}\n<{project_path} $(touch ran) `touch ran`>\n{a}; touch ran\n"
    );
    assert!(!env.ran());
}

#[tokio::test]
async fn parameters_named_like_options_reach_the_tool() {
    let env = TestEnv::new();
    env.script("echo", ECHO);
    let named = json!({
        "timeout": 0.001, "cwd": "/nowhere", "env": {"PATH": "/nowhere"},
        "input_data": "other", "tool_path": "/etc/passwd", "command": "touch ran",
        "args": ["x"], "dry_run": true, "params_json": "{}", "project_path": "/",
    });
    let result = env.run("echo", named.clone()).await;
    assert_eq!(result.status, Status::Success, "{result:?}");
    assert_eq!(result.data, named);
    assert!(!env.ran());
}

#[tokio::test]
async fn command_substitution_in_a_parameter_is_data() {
    let env = TestEnv::new();
    env.script("echo", ECHO);
    // Passed as a variable.
    env.signed(
        "tools/said.yaml",
        "version: \"1.0.0\"\nexecutor_id: rye/core/runtimes/bash/bash\n\
         config: {command: 'printf \"%s\\n\" \"$X\" \"${FROM_ENV}\"', env: {X: \"{x}\"}}\n",
    );
    // Passed as an argument.
    env.signed(
        "tools/argument.yaml",
        "version: \"1.0.0\"\nexecutor_id: subprocess\n\
         config: {command: bash, args: [-c, 'printf \"%s\\n\" \"$1\"', bash, \"{x}\"]}\n",
    );
    let value = "$(touch ran) `touch ran` '; touch ran; ' \"; touch ran; \"";
    fs::write(
        env.project().join(".env"),
        "FROM_ENV=$(touch ran)\"\\\";touch ran\n",
    )
    .unwrap();
    let odd = json!({"x": value});
    assert_eq!(env.run("echo", odd.clone()).await.data, odd);
    let result = env.run("said", odd.clone()).await;
    let printed = result.data["stdout"].as_str().unwrap();
    assert!(
        printed.starts_with(&format!("{value}\n$(touch ran)")),
        "{result:?}"
    );
    let result = env.run("argument", odd.clone()).await;
    assert_eq!(result.data["stdout"], format!("{value}\n"));
    assert!(!env.ran());
}

#[tokio::test]
async fn parameter_in_inline_code_is_refused() {
    let schema = "config_schema: {type: object, properties: {p: {type: string}}}\n";
    for config in [
        "{command: bash, args: [-c, 'echo $(( {p} ))']}",
        "{command: bash, args: [-c, '[[ {p} -eq 1 ]] || true']}",
        "{command: bash, args: [-c, 'let x={p}']}",
        "{command: bash, args: [-c, 'a=(1); echo ${a[{p}]}']}",
        "{command: bash, args: [-c, 'printf -v {p} x']}",
        "{command: bash, args: [-c, 'test -v {p} || true']}",
        "{command: bash, args: [-c, 'declare {p}=1']}",
        "{command: bash, args: [-c, 'read {p} < /dev/null || true']}",
        "{command: bash, args: [-c, 'unset {p}']}",
        "{command: bash, args: [-c, 'echo \"{p}\"']}",
        "{command: bash, args: [-c, '{p}']}",
        "{command: bash, args: [-c, 'echo {params_json}']}",
        "{command: /bin/sh, args: [-ec, 'echo {p}']}",
        "{command: bash, args: [-ce, 'echo {p}']}",
        "{command: bash, args: [-c, -o, pipefail, 'echo {p}']}",
        "{command: bash, args: [-o, pipefail, -c, 'echo {p}']}",
        "{command: bash, args: ['{p}', 'echo {p}']}",
        "{command: env, args: [A=1, bash, -c, 'echo {p}']}",
        "{command: timeout, args: [5, sh, -c, 'echo {p}']}",
        "{command: python3, args: [-c, 'print({p})']}",
        "{command: python3, args: [-u, -c, 'print({p})']}",
        "{command: python3, args: [-X, dev, '-cprint({p})']}",
        "{command: /usr/bin/python3.12, args: [-Ic, 'print(\"{project_path}\")']}",
        "{command: perl, args: [-ne, '{p}']}",
        "{command: node, args: [--eval, '{p}']}",
        "{command: node, args: ['--eval={p}']}",
        "{command: ruby, args: [-e, 'puts {p}']}",
        "{command: '{p}'}",
        "{command: 'git-{p}'}",
    ] {
        let env = TestEnv::new();
        let text =
            format!("version: \"1.0.0\"\nexecutor_id: subprocess\n{schema}config: {config}\n");
        env.signed("tools/it.yaml", &text);
        let hostile = if config.contains("['{p}'") {
            "-c"
        } else {
            "a[$(touch ran)]"
        };
        let refused = env.refused_by_call("it", json!({"p": hostile})).await;
        assert_eq!(refused.code, "value_as_code", "{config}: {refused:?}");
        assert!(refused.hint.is_some(), "{config}");
    }
}

#[tokio::test]
async fn dry_run_refuses_a_parameter_in_inline_code() {
    let env = TestEnv::new();
    let schema = "config_schema: {type: object, properties: {p: {type: string}}}\n";
    let bash = "version: \"1.0.0\"\nexecutor_id: rye/core/runtimes/bash/bash\n";
    let config = "config: {command: 'touch $(( {p} ))'}\n";
    env.signed("tools/it.yaml", &format!("{bash}{schema}{config}"));
    let refused = env.refused("it", json!({"p": "1"})).await;
    assert_eq!(refused.code, "value_as_code", "{refused:?}");
}

#[tokio::test]
async fn parameter_cannot_reach_inline_code_through_a_variable() {
    let env = TestEnv::new();
    env.signed(
        "tools/it.yaml",
        "version: \"1.0.0\"\nexecutor_id: subprocess\nenv_config: {env: {ONE: \"{p}\", TWO: \"${ONE}\"}}\n\
         config: {command: bash, args: [-c, 'echo $(( ${TWO} ))']}\n",
    );
    let refused = env.refused_by_call("it", json!({"p": "1"})).await;
    assert_eq!(refused.code, "value_as_code", "{refused:?}");
}

#[tokio::test]
async fn code_parameter_rejects_interpolated_values() {
    let env = TestEnv::new();
    let run = async |tool: &str, interpolated: &str| {
        let parameters = json!({"command": "touch ran"});
        let mut request = Request::new(tool.parse().unwrap()).with_parameters(parameters);
        request.interpolated = vec![interpolated.to_owned()];
        env.executor.execute(request).await
    };
    for tool in ["rye/bash/bash", "rye/core/runtimes/bash/bash"] {
        let refused = run(tool, "command").await.error.unwrap();
        assert_eq!(refused.code, "value_as_code", "{refused:?}");
        assert!(!env.ran());
    }
    let result = run("rye/bash/bash", "args").await;
    assert_eq!(result.status, Status::Success, "{result:?}");
}

#[tokio::test]
async fn dotenv_value_cannot_become_code_or_choose_the_program() {
    let env = TestEnv::new();
    fs::write(env.project().join(".env"), "CHOSEN=a[$(touch ran)]\n").unwrap();
    for config in [
        "{command: bash, args: [-c, 'echo $(( ${CHOSEN} ))']}",
        "{command: '${CHOSEN:-true}'}",
    ] {
        let text = "version: \"1.0.0\"\nexecutor_id: subprocess\nrequires_env: [CHOSEN]\n";
        env.signed("tools/it.yaml", &format!("{text}config: {config}\n"));
        let refused = env.refused_by_call("it", json!({})).await;
        assert_eq!(refused.code, "value_as_code", "{config}: {refused:?}");
    }
    // A variable that only `command` refers to is not read from `.env`.
    env.signed(
        "tools/it.yaml",
        "version: \"1.0.0\"\nexecutor_id: subprocess\nconfig: {command: '${CHOSEN:-true}'}\n",
    );
    let result = env.run("it", json!({})).await;
    assert_eq!(result.status, Status::Success, "{result:?}");
}

#[tokio::test]
async fn parameter_cannot_choose_where_code_is_loaded_from() {
    let env = TestEnv::new();
    for about in [
        "anchor: {mode: always, env_paths: {PYTHONPATH: {prepend: [\"{p}\"]}}}\n",
        "env_config: {interpreter: {type: local_binary, binary: sh, search_paths: [bin], search_roots: [\"{p}\"], var: SH, fallback: sh}}\n",
    ] {
        let text = "version: \"1.0.0\"\nexecutor_id: subprocess\nconfig: {command: \"true\"}\n";
        env.signed("tools/it.yaml", &format!("{text}{about}"));
        let refused = env.refused_by_call("it", json!({"p": "/tmp"})).await;
        assert_eq!(refused.code, "value_as_code", "{about}: {refused:?}");
    }
}

#[tokio::test]
async fn parameters_are_allowed_in_other_options() {
    let env = TestEnv::new();
    for config in [
        "{command: grep, args: [-c, \"{p}\", /etc/passwd]}",
        "{command: python3, args: [no_such_tool.py, -c, \"{p}\"]}",
        "{command: bash, args: [no_such_tool.sh, -c, \"{p}\"]}",
        "{command: echo, args: [-e, \"{p}\"]}",
        "{command: echo, args: [\"{q}\", -c, \"{p}\"]}",
        "{command: python3, args: ['-Xpycache_prefix={private_cache}', --version]}",
    ] {
        let text = "version: \"1.0.0\"\nexecutor_id: subprocess\n";
        env.signed("tools/it.yaml", &format!("{text}config: {config}\n"));
        let result = env.run("it", json!({"p": "root", "q": "bash"})).await;
        let refused = result.error.filter(|error| error.code == "value_as_code");
        assert_eq!(refused, None, "{config}");
    }
}

#[tokio::test]
async fn dotenv_passes_only_declared_variables() {
    let env = TestEnv::new();
    let file = "TAR_OPTIONS=--checkpoint-action=exec=x\nPYTEST_ADDOPTS=-p x\nVIMINIT=x\n\
                RSYNC_RSH=x\nRIPGREP_CONFIG_PATH=x\nhttps_proxy=http://127.0.0.1:1\n\
                SSL_CERT_FILE=x\nA=1\nB=2\nC=3\nD=4\nPATH=/nowhere\nLD_PRELOAD=x\nNODE_OPTIONS=x\n";
    fs::write(env.project().join(".env"), file).unwrap();
    env.signed(
        "tools/rt.yaml",
        "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: subprocess\nrequires_env: [A]\n\
         env_config: {env: {FROM_B: \"${B}\", PATH: \"${PATH}\"}}\n\
         config: {command: env, args: [\"-0\", \"FROM_C=${C}\"]}\n",
    );
    env.signed(
        "tools/it.yaml",
        "version: \"1.0.0\"\nexecutor_id: rt\nrequires_env: [LD_PRELOAD]\n",
    );
    // `LD_PRELOAD` is reserved, so it counts as missing.
    let refused = env.refused_by_call("it", json!({})).await;
    assert_eq!(refused.code, "missing_variables", "{refused:?}");
    env.signed("tools/it.yaml", "version: \"1.0.0\"\nexecutor_id: rt\n");
    let result = env.run("it", json!({})).await;
    let printed = result.data["stdout"].as_str().unwrap();
    let found: Vec<_> = printed.split('\0').collect();
    for expected in ["A=1", "B=2", "C=3", "FROM_B=2", "FROM_C=3"] {
        assert!(found.contains(&expected), "{expected}: {found:?}");
    }
    for name in [
        "D",
        "TAR_OPTIONS",
        "PYTEST_ADDOPTS",
        "VIMINIT",
        "RSYNC_RSH",
        "RIPGREP_CONFIG_PATH",
        "https_proxy",
        "SSL_CERT_FILE",
        "LD_PRELOAD",
        "NODE_OPTIONS",
        "PATH",
    ] {
        let set = file.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(!found.contains(&set), "{name}: {found:?}");
    }
}

#[tokio::test]
async fn failed_tool_lists_undeclared_dotenv_variables() {
    let env = TestEnv::new();
    fs::write(env.project().join(".env"), "NEEDED=1\nPATH=/x\n").unwrap();
    env.script("it", "test -n \"$NEEDED\"\n");
    let result = env.run("it", json!({})).await;
    assert_eq!(result.status, Status::Error);
    let warnings = result.metadata["warnings"].to_string();
    for part in ["NEEDED", "requires_env", "PATH"] {
        assert!(warnings.contains(part), "{part}: {warnings}");
    }
    env.signed(
        "tools/it.sh",
        &format!("{BASH}# requires_env: [NEEDED]\ntest -n \"$NEEDED\"\n"),
    );
    let result = env.run("it", json!({})).await;
    assert_eq!(result.status, Status::Success, "{result:?}");
}

#[tokio::test]
async fn grandchild_that_holds_the_output_ends_at_the_timeout() {
    let env = TestEnv::new();
    env.script("it", "(setsid sleep 300 &) ; sleep 300\n");
    let mut request = Request::new("it".parse().unwrap());
    request.timeout = Some(Duration::from_secs(1));
    let start = Instant::now();
    let result = env.executor.execute(request).await;
    let took = start.elapsed();
    assert_eq!(result.error.unwrap().code, "timeout");
    assert!(took < Duration::from_secs(6), "{took:?}");
}

#[tokio::test]
async fn large_input_and_output_flow_concurrently() {
    let env = TestEnv::new();
    env.script("echo", ECHO);
    let much = json!({"x": "y".repeat(200_000)});
    assert_eq!(env.run("echo", much.clone()).await.data, much);
}

#[tokio::test]
async fn any_json_output_is_data() {
    let env = TestEnv::new();
    for (number, value) in [
        json!([1, {"a": 2}]),
        json!(7),
        json!("text"),
        json!(true),
        json!({}),
    ]
    .into_iter()
    .enumerate()
    {
        env.script(&format!("t{number}"), &format!("echo '{value}'\n"));
        let result = env.run(&format!("t{number}"), json!({})).await;
        assert_eq!(result.status, Status::Success);
        assert_eq!(result.data, value);
    }
}

#[tokio::test]
async fn tool_that_reports_failure_fails() {
    let env = TestEnv::new();
    env.script(
        "it",
        "echo '{\"success\": false, \"error\": \"no luck\"}'\n",
    );
    let result = env.run("it", json!({})).await;
    assert_eq!(result.status, Status::Error);
    let error = result.error.unwrap();
    assert_eq!(
        (error.code.as_str(), error.message.as_str()),
        ("tool_failed", "no luck")
    );
    assert_eq!(result.data["error"], "no luck");
}

#[tokio::test]
async fn exit_code_is_reported_with_json_output() {
    let env = TestEnv::new();
    env.script("it", "echo '{\"a\": 1}'; echo why >&2; exit 3\n");
    let result = env.run("it", json!({})).await;
    assert_eq!(result.status, Status::Error);
    assert_eq!(result.metadata["exit_code"], 3);
    assert_eq!(result.metadata["stderr"], "why\n");
    assert_eq!(result.data, json!({"a": 1}));
    assert_eq!(result.error.unwrap().code, "exit_code");
}

#[tokio::test]
async fn empty_parameters_are_an_empty_object() {
    let env = TestEnv::new();
    let tool = |executor: &str| {
        format!(
            "__executor_id__ = \"{executor}\"\nCONFIG = {{\"input_data\": \"\"}}\n\
             def execute(params, project_path):\n    return {{\"params\": params}}\n"
        )
    };
    env.signed("tools/it.py", &tool("rye/core/runtimes/python/function"));
    let result = env.run("it", json!({"x": 1})).await;
    assert_eq!(result.data, json!({"params": {}}), "{result:?}");
    env.signed(
        "tools/none.yaml",
        "version: \"1.0.0\"\nexecutor_id: subprocess\nconfig: {command: cat}\n",
    );
    let result = env.run("none", Value::Object(serde_json::Map::new())).await;
    assert_eq!(result.data["stdout"], "");
}

/// No call ends before all have started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_calls_run_concurrently() {
    let env = TestEnv::new();
    let wait = "mkdir -p begun; touch begun/$$; \
                until [ $(ls begun | wc -l) = 32 ]; do sleep 0.05; done";
    env.script("wait", &format!("{wait}\n"));
    let calls = (0..32).map(|_| {
        let executor = env.executor.clone();
        let mut request = Request::new("wait".parse().unwrap());
        request.timeout = Some(Duration::from_mins(2));
        tokio::spawn(async move { executor.execute(request).await })
    });
    for call in calls.collect::<Vec<_>>() {
        let result = call.await.unwrap();
        assert!(result.error.is_none(), "{result:?}");
    }
}
