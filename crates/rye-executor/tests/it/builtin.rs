//! The bundled tools, run through the executor.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::{Duration, Instant};

use crate::support::TestEnv;
use crate::support::server::{Reply, Server};
use rye_executor::Status;
use serde_json::{Value, json};

const FILES: &str = "rye/file-system";

/// A project with some files.
fn project() -> TestEnv {
    let env = TestEnv::new();
    let root = env.project();
    fs::create_dir_all(root.join("src/deep")).unwrap();
    fs::create_dir_all(root.join(".git")).unwrap();
    fs::write(root.join("a.txt"), "one\ntwo\nthree\n").unwrap();
    fs::write(root.join("src/main.py"), "import os\nprint('Hello')\n").unwrap();
    fs::write(root.join("src/deep/x.ts"), "const hello = 1;\n").unwrap();
    fs::write(root.join(".git/hello.py"), "hello\n").unwrap();
    env
}

async fn run_ok(env: &TestEnv, tool: &str, parameters: Value) -> Value {
    let result = env.run(tool, parameters).await;
    assert_eq!(result.status, Status::Success, "{result:?}");
    result.data
}

#[tokio::test]
async fn file_is_read_completely_or_partially() {
    let env = project();
    let read = format!("{FILES}/read");
    let all = run_ok(&env, &read, json!({"path": "a.txt"})).await;
    let expected = json!({"path": "a.txt", "content": "one\ntwo\nthree\n", "lines": 3, "size": 14, "truncated": false});
    assert_eq!(all, expected);
    let some = json!({"path": "./src/../a.txt", "offset": 2, "limit": 1});
    let some = run_ok(&env, &read, some).await;
    assert_eq!(some["content"], "two\n");
    assert_eq!(some["next_offset"], 3);
    let rest = run_ok(&env, &read, json!({"path": "a.txt", "offset": 9})).await;
    assert_eq!(
        (&rest["lines"], &rest["truncated"]),
        (&json!(0), &json!(false))
    );
    // An absolute path inside the project is allowed.
    let absolute = json!({"path": env.project().join("a.txt")});
    assert_eq!(run_ok(&env, &read, absolute).await["lines"], 3);
}

#[tokio::test]
async fn large_file_is_read_in_parts_and_binary_files_are_rejected() {
    let env = project();
    let read = format!("{FILES}/read");
    let big: String = (1..=400_000).map(|n| n.to_string() + "\n").collect();
    fs::write(env.project().join("big.txt"), &big).unwrap();
    let first = run_ok(&env, &read, json!({"path": "big.txt", "limit": 1_000_000})).await;
    assert_eq!(first["truncated"], true);
    let next = first["next_offset"].as_u64().unwrap();
    let second = json!({"path": "big.txt", "offset": next, "limit": 2});
    let second = run_ok(&env, &read, second).await;
    assert_eq!(second["content"], format!("{next}\n{}\n", next + 1));

    fs::write(
        env.project().join("long"),
        "é".repeat(1_000_000) + "\nend\n",
    )
    .unwrap();
    let long = run_ok(&env, &read, json!({"path": "long"})).await;
    assert_eq!(
        (&long["lines"], &long["truncated"]),
        (&json!(2), &json!(true))
    );
    assert!(long["content"].as_str().unwrap().ends_with("\nend\n"));

    fs::write(env.project().join("latin"), b"x\xe9\n").unwrap();
    let latin = run_ok(&env, &read, json!({"path": "latin"})).await;
    assert_eq!(latin["content"], "x\u{fffd}\n");
    assert!(latin["note"].as_str().unwrap().contains("not UTF-8"));
    fs::write(env.project().join("binary"), b"\x7fELF\0\0").unwrap();
    let error = env.fails(&read, json!({"path": "binary"})).await;
    assert_eq!(error, "tool_failed: binary is binary, 6 bytes");
    let error = env.fails(&read, json!({"path": "src"})).await;
    assert_eq!(error, "tool_failed: src is a directory");
    let pipe = env.project().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let error = env.fails(&read, json!({"path": "pipe"})).await;
    assert_eq!(error, "tool_failed: pipe is not a regular file");
    let error = env.fails(&read, json!({"path": "none"})).await;
    assert_eq!(error, "tool_failed: none does not exist");
}

#[tokio::test]
async fn paths_outside_the_project_are_rejected() {
    let env = project();
    let root = env.project();
    let outside = root.parent().unwrap().join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("secret"), "secret\n").unwrap();
    symlink(&outside, root.join("linked")).unwrap();
    symlink(outside.join("secret"), root.join("file")).unwrap();
    symlink(outside.join("new"), root.join("dangling")).unwrap();
    fs::create_dir_all(root.parent().unwrap().join("project-2")).unwrap();
    let paths = [
        "../outside/secret",
        "src/../../outside/secret",
        "linked/secret",
        "file",
        "dangling",
        "../project-2/x",
        "/etc/passwd",
        "linked/../outside/secret",
    ];
    for path in paths {
        for (tool, parameters) in [
            ("read", json!({"path": path})),
            ("write", json!({"path": path, "content": "x"})),
            ("edit", json!({"path": path, "old": "secret", "new": "x"})),
            ("list", json!({"path": path})),
            ("glob", json!({"path": path, "pattern": "*"})),
            ("grep", json!({"path": path, "pattern": "secret"})),
        ] {
            let error = env.fails(&format!("{FILES}/{tool}"), parameters).await;
            assert_eq!(
                error,
                format!("tool_failed: {path} is outside the project"),
                "{tool}"
            );
        }
    }
    let cwd = json!({"command": "pwd", "cwd": "linked"});
    let error = env.fails("rye/bash/bash", cwd).await;
    assert_eq!(error, "tool_failed: linked is outside the project");
    assert_eq!(fs::read(outside.join("secret")).unwrap(), b"secret\n");
    assert!(!outside.join("new").exists());
    // Searches do not follow links.
    let found = run_ok(&env, &format!("{FILES}/grep"), json!({"pattern": "secret"})).await;
    assert_eq!(found["matches"], json!([]));
    let found = run_ok(
        &env,
        &format!("{FILES}/glob"),
        json!({"pattern": "linked/*"}),
    )
    .await;
    assert_eq!(found["files"], json!([]));
    let error = env
        .fails(&format!("{FILES}/read"), json!({"path": "a\u{0}b"}))
        .await;
    assert!(error.contains("NUL"), "{error}");
}

#[tokio::test]
async fn file_is_written_atomically_with_parent_directories() {
    let env = project();
    let write = format!("{FILES}/write");
    let new = json!({"path": "new/deep/b.txt", "content": "é\n"});
    let data = run_ok(&env, &write, new).await;
    let expected = json!({"path": "new/deep/b.txt", "bytes": 3, "created": true});
    assert_eq!(data, expected);
    let script = env.project().join("run.sh");
    fs::write(&script, "old").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o750)).unwrap();
    let data = run_ok(&env, &write, json!({"path": "run.sh", "content": "new"})).await;
    assert_eq!(data["created"], false);
    let mode = fs::metadata(&script).unwrap().permissions().mode();
    assert_eq!(
        (fs::read(&script).unwrap(), mode & 0o777),
        (b"new".to_vec(), 0o750)
    );
    // Writing through a link keeps the link.
    symlink("a.txt", env.project().join("link")).unwrap();
    run_ok(&env, &write, json!({"path": "link", "content": "through"})).await;
    assert_eq!(fs::read(env.project().join("a.txt")).unwrap(), b"through");
    assert!(env.project().join("link").is_symlink());
    for path in ["src", "new/"] {
        let error = env
            .fails(&write, json!({"path": path, "content": ""}))
            .await;
        assert!(error.starts_with("tool_failed: "), "{error}");
    }
    let error = env
        .fails(&write, json!({"path": "a.txt/x", "content": ""}))
        .await;
    assert!(error.starts_with("tool_failed: a.txt/x"), "{error}");
    let left: Vec<_> = fs::read_dir(env.project()).unwrap().collect();
    assert!(left.iter().all(|entry| {
        !entry
            .as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .ends_with(".new")
    }));
}

#[tokio::test]
async fn edit_replaces_only_the_matching_text() {
    let env = project();
    let edit = format!("{FILES}/edit");
    let path = env.project().join("e.txt");
    fs::write(&path, b"a\r\nb\xff\r\na\r\n").unwrap();
    let error = env
        .fails(&edit, json!({"path": "e.txt", "old": "a", "new": "c"}))
        .await;
    assert!(
        error.contains("occurs 2 times in e.txt, first in the lines 1, 3"),
        "{error}"
    );
    let error = env
        .fails(&edit, json!({"path": "e.txt", "old": "z", "new": "c"}))
        .await;
    assert!(error.contains("does not occur"), "{error}");
    run_ok(
        &env,
        &edit,
        json!({"path": "e.txt", "old": "b", "new": "B"}),
    )
    .await;
    let all = json!({"path": "e.txt", "old": "a", "new": "", "replace_all": true});
    assert_eq!(run_ok(&env, &edit, all).await["replaced"], 2);
    assert_eq!(fs::read(&path).unwrap(), b"\r\nB\xff\r\n\r\n");
    let error = env
        .fails(&edit, json!({"path": "e.txt", "old": "", "new": "c"}))
        .await;
    assert!(error.starts_with("invalid_parameters: "), "{error}");
}

#[tokio::test]
async fn directories_are_listed_and_globs_match() {
    let env = project();
    let odd = OsStr::from_bytes(b"odd-\xff");
    fs::write(env.project().join("src").join(odd), "").unwrap();
    symlink("main.py", env.project().join("src/link")).unwrap();
    let listed = run_ok(&env, &format!("{FILES}/list"), json!({"path": "src"})).await;
    let expected = json!([
        {"name": "deep", "type": "directory"},
        {"name": "link", "type": "link"},
        {"name": "main.py", "type": "file", "size": 25},
        {"name": "odd-\u{fffd}", "type": "file", "size": 0},
    ]);
    assert_eq!(listed["entries"], expected);
    let few = run_ok(&env, &format!("{FILES}/list"), json!({"limit": 1})).await;
    assert_eq!(few["truncated"], true);

    for (pattern, files) in [
        ("*.txt", json!(["a.txt"])),
        ("**/*.{py,ts}", json!(["src/main.py", "src/deep/x.ts"])),
        (
            "src/**",
            json!([
                "src/link",
                "src/main.py",
                "src/odd-\u{fffd}",
                "src/deep/x.ts"
            ]),
        ),
        ("src/?[!a]in.py", json!([])),
        ("src/?[a-c]in.py", json!(["src/main.py"])),
        ("**/nothing", json!([])),
    ] {
        let found = run_ok(&env, &format!("{FILES}/glob"), json!({"pattern": pattern})).await;
        assert_eq!(found["files"], files, "{pattern}");
    }
}

#[tokio::test]
async fn grep_returns_matches_with_context() {
    let env = project();
    let grep = format!("{FILES}/grep");
    let found = run_ok(
        &env,
        &grep,
        json!({"pattern": "hello", "ignore_case": true}),
    )
    .await;
    let expected = json!([
        {"path": "src/main.py", "line": 2, "text": "print('Hello')"},
        {"path": "src/deep/x.ts", "line": 1, "text": "const hello = 1;"},
    ]);
    assert_eq!(found["matches"], expected);
    let only = json!({"pattern": "(?i)hello", "include": "*.py", "context": 1});
    let found = run_ok(&env, &grep, only).await;
    let expected = json!([{"path": "src/main.py", "line": 2, "text": "print('Hello')", "before": ["import os"], "after": [""]}]);
    assert_eq!(found["matches"], expected);
    let found = run_ok(
        &env,
        &grep,
        json!({"pattern": "t", "path": "a.txt", "limit": 1}),
    )
    .await;
    assert_eq!(
        (&found["truncated"], &found["matches"][0]["line"]),
        (&json!(true), &json!(2))
    );

    fs::write(env.project().join("binary"), b"two\0").unwrap();
    fs::write(env.project().join("latin"), b"two\xe9\n").unwrap();
    fs::write(
        env.project().join("wide"),
        "two".to_owned() + &"x".repeat(3_000_000),
    )
    .unwrap();
    let found = run_ok(&env, &grep, json!({"pattern": "^two"})).await;
    let paths: Vec<_> = found["matches"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["path"])
        .collect();
    assert_eq!(paths, ["a.txt", "latin", "wide"]);
    assert_eq!(found["skipped"], json!(["binary"]));
    let error = env.fails(&grep, json!({"pattern": "("})).await;
    assert!(error.starts_with("tool_failed: invalid pattern"), "{error}");
}

#[tokio::test]
async fn bash_runs_a_command_and_returns_its_output() {
    let env = project();
    let bash = "rye/bash/bash";
    let command =
        json!({"command": "pwd; echo no >&2; echo \"[$PYTHONPATH$RYE_PYTHON]\"", "cwd": "src"});
    let data = run_ok(&env, bash, command).await;
    let real = env.project().join("src").canonicalize().unwrap();
    let stdout = format!("{}\n[]\n", real.display());
    assert_eq!(
        data,
        json!({"success": true, "stdout": stdout, "stderr": "no\n", "exit_code": 0})
    );

    let arguments = json!({"command": "printf '%s|' \"$0\" \"$@\"", "args": ["$(id)", "b c"]});
    let data = run_ok(&env, bash, arguments).await;
    assert_eq!(data["stdout"], "bash|$(id)|b c|");

    let result = env.run(bash, json!({"command": "echo out; exit 3"})).await;
    assert_eq!(result.status, Status::Error);
    assert_eq!(result.error.unwrap().code, "tool_failed");
    assert_eq!(result.data["exit_code"], 3);
    assert_eq!(result.data["stdout"], "out\n");

    let start = Instant::now();
    let command = json!({"command": "echo early; sleep 300 & sleep 300", "timeout": 3});
    let result = env.run(bash, command).await;
    assert!(start.elapsed() < Duration::from_mins(1));
    assert_eq!(result.data["stdout"], "early\n", "{result:?}");
    assert_eq!(result.error.unwrap().code, "tool_failed");

    let data = run_ok(
        &env,
        bash,
        json!({"command": "head -c 3000000 /dev/zero | tr '\\0' x; echo end"}),
    )
    .await;
    assert_eq!(data["truncated"], true);
    assert!(data["stdout"].as_str().unwrap().ends_with("xend\n"));
    let data = run_ok(&env, bash, json!({"command": "printf '\\xff'"})).await;
    assert_eq!(data["stdout"], "\u{fffd}");
}

#[tokio::test]
async fn http_get_fetches_a_url() {
    let server = Server::start(|_, _| Reply::json("{\"up\": true}")).await;
    let env = project();
    let plain = json!({"url": server.address});
    let data = run_ok(&env, "rye/http/get", plain).await;
    assert_eq!(data["body"], json!({"up": true}));
    let full = json!({"url": server.address, "headers": {"X-A": "{url}"}, "query": {"q": "a b"}});
    run_ok(&env, "rye/http/get", full).await;
    let asked = &server.requests()[1];
    assert!(asked.starts_with("GET /?q=a+b HTTP/1.1"), "{asked}");
    assert!(asked.contains("x-a: {url}"), "{asked}");
    let error = env
        .fails("rye/http/get", json!({"url": "file:///etc/passwd"}))
        .await;
    assert!(error.starts_with("invalid_request: "), "{error}");
}

#[tokio::test]
async fn every_tool_is_documented_and_rejects_unknown_parameters() {
    let env = project();
    for tool in [
        "bash/bash",
        "http/get",
        "file-system/read",
        "file-system/write",
        "file-system/edit",
        "file-system/list",
        "file-system/glob",
        "file-system/grep",
    ] {
        let tool = format!("rye/{tool}");
        let error = env.fails(&tool, json!({"surprise": 1})).await;
        assert!(error.starts_with("invalid_parameters: "), "{error}");
        assert!(error.contains("surprise"), "{error}");
        let library = env.executor.library().unwrap();
        let item = library.load(&tool.parse().unwrap()).unwrap();
        let metadata = library.metadata(&item).unwrap();
        assert!(metadata.description().is_some(), "{tool}");
        assert!(metadata.version().is_some(), "{tool}");
        for name in ["risk_level", "effect", "category"] {
            assert!(metadata.value(name).is_some(), "{tool} has no {name}");
        }
        let schema = metadata.config_schema().unwrap();
        for (name, about) in schema["properties"].as_object().unwrap() {
            assert!(about["description"].is_string(), "{tool}: {name}");
        }
    }
}
