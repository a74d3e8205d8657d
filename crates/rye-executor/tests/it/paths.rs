//! Paths in parameters: private paths are refused, sensitive ones require approval.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::support::TestEnv;
use lillux::process::Supervisor;
use rye_executor::{Approval, ApprovalReason, ExecuteError, Executor, Request, Roots, Trace};
use rye_protocol::policy::Policy;
use serde_json::{Value, json};

const FILES: &str = "rye/file-system";

/// A project with several kinds of paths to the user's signing key.
fn project() -> TestEnv {
    let env = TestEnv::new();
    let root = env.project();
    fs::create_dir_all(root.join("src")).unwrap();
    fs::create_dir_all(root.join(".git/hooks")).unwrap();
    fs::create_dir_all(root.join("env/lib")).unwrap();
    fs::write(root.join("env/pyvenv.cfg"), "").unwrap();
    fs::create_dir_all(env.cache()).unwrap();
    symlink(env.user_path("config/keys"), root.join("keys")).unwrap();
    symlink(key(&env), root.join("key")).unwrap();
    fs::hard_link(key(&env), root.join("hard")).unwrap();
    symlink(env.user_path("vault/new.json"), root.join("dangling")).unwrap();
    env
}

fn key(env: &TestEnv) -> std::path::PathBuf {
    env.user_path("config/keys/signing/private_key.pem")
}

/// An executor with the same user and cache, and another project.
fn at(env: &TestEnv, project: &Path) -> Executor {
    let roots = Roots {
        user: Some(env.user()),
        ..Roots::new(project, env.cache())
    };
    Executor::new(roots, Arc::new(Supervisor::start().unwrap()))
}

fn request(tool: &str, parameters: Value) -> Request {
    Request::new(format!("{FILES}/{tool}").parse().unwrap()).with_parameters(parameters)
}

/// Error code of a refused call; `None` if it ran.
async fn code(executor: &Executor, request: Request) -> Option<&'static str> {
    let outcome = executor.try_execute(request, &mut Trace::disabled()).await;
    outcome.err().map(|error| error.code())
}

#[tokio::test]
async fn private_paths_are_refused() {
    let env = project();
    let absolute = key(&env).display().to_string();
    let through_proc = format!("/proc/self/root{absolute}");
    let cache = env.cache().join("x").display().to_string();
    for path in [
        "keys/signing/private_key.pem",
        "keys",
        "key",
        "hard",
        "dangling",
        "../user/.ai/config/keys/signing/private_key.pem",
        "../user/.ai/vault/TOKEN.json",
        &absolute,
        &through_proc,
        &cache,
    ] {
        for (tool, parameters) in [
            ("read", json!({ "path": path })),
            ("list", json!({ "path": path })),
            ("glob", json!({ "path": path, "pattern": "**" })),
            ("grep", json!({ "path": path, "pattern": "." })),
            ("write", json!({ "path": path, "content": "x" })),
            ("edit", json!({ "path": path, "old": "a", "new": "b" })),
        ] {
            // A direct call by the user is refused as well, before anything runs.
            let error = env.refused(&format!("{FILES}/{tool}"), parameters).await;
            assert_eq!(error.code, "private_path", "{tool} {path}");
        }
    }
    assert!(fs::read_to_string(key(&env)).unwrap().contains("PRIVATE"));
}

#[tokio::test]
async fn private_directory_is_private_as_or_inside_a_project() {
    let env = project();
    let keys = at(&env, key(&env).parent().unwrap());
    let read = request("read", json!({ "path": "private_key.pem" }));
    assert_eq!(code(&keys, read).await, Some("private_path"));
    let list = request("list", json!({}));
    assert_eq!(code(&keys, list).await, Some("private_path"));
    // Searches skip the private directories of a home.
    fs::write(env.user().join("notes.txt"), "PRIVATE notes\n").unwrap();
    let home = at(&env, &env.user());
    let found = home
        .execute(request("grep", json!({ "pattern": "PRIVATE" })))
        .await;
    let matches = found.data["matches"].as_array().unwrap();
    assert_eq!(matches.len(), 1, "{found:?}");
    assert_eq!(matches[0]["path"], "notes.txt");
    let found = home
        .execute(request("glob", json!({ "pattern": "**/*.pem" })))
        .await;
    assert_eq!(found.data["files"], json!([]), "{found:?}");
}

#[tokio::test]
async fn unapproved_write_to_a_sensitive_path_requires_approval() {
    let env = project();
    let bare = env.dir().join("bare");
    fs::create_dir(&bare).unwrap();
    let (bare, home) = (at(&env, &bare), at(&env, &env.user()));
    let above = at(&env, env.dir());
    let plain = "src/main.rs";
    for (executor, path, asks) in [
        (&env.executor, plain, false),
        (&env.executor, ".gitignore", false),
        (&env.executor, ".git/config", true),
        (&env.executor, ".GIT/hooks/pre-commit", true),
        (&env.executor, ".ai/config/agent/approvals.yaml", true),
        (&env.executor, ".venv/bin/python", true),
        (&env.executor, "venv/x.py", true),
        (&env.executor, "env/lib/x.py", true),
        (&env.executor, "lib/site-packages/x.pth", true),
        (&env.executor, "node_modules/x/index.js", true),
        (&env.executor, "src/__pycache__/x.pyc", true),
        (&env.executor, ".env", true),
        (&env.executor, ".env.local", true),
        (&env.executor, ".envrc", true),
        (&env.executor, ".vscode/tasks.json", true),
        (&env.executor, ".github/workflows/x.yml", true),
        (&bare, plain, true),
        (&home, ".bashrc", true),
        (&home, plain, true),
        (&above, "elsewhere.txt", true),
    ] {
        let parameters = json!({ "path": path, "content": "x" });
        let mut call = request("write", parameters.clone());
        call.approval = Approval::None;
        let expected = asks.then_some("approval_required");
        assert_eq!(code(executor, call).await, expected, "{path}");
        let tool = request("write", json!({})).tool;
        let needs = executor.approval_reasons(&tool, &parameters, None).unwrap();
        assert_eq!(!needs.is_empty(), asks, "{path}");
    }
    // Reading them requires no approval.
    let mut call = request("read", json!({ "path": ".git/config" }));
    call.approval = Approval::None;
    assert_eq!(code(&env.executor, call).await, None);
}

#[tokio::test]
async fn approval_is_void_when_a_path_resolves_differently() {
    let env = project();
    let root = env.project();
    let tool = request("write", json!({})).tool;
    let chain = env.executor.chain(&tool).unwrap().hash;
    let parameters = json!({ "path": "link/config", "content": "x" });
    symlink("src", root.join("link")).unwrap();
    let approve = |needs: Vec<ApprovalReason>| {
        let writes = needs.into_iter().filter_map(|need| match need {
            ApprovalReason::SensitiveWrite(write) => Some(write),
            _ => None,
        });
        let mut call = request("write", parameters.clone());
        call.approval = Approval::ForCall {
            chain,
            writes: writes.collect(),
            workspace: None,
        };
        call
    };
    let needs = || {
        env.executor
            .approval_reasons(&tool, &parameters, None)
            .unwrap()
    };
    let plain = approve(needs());
    assert_eq!(code(&env.executor, plain.clone()).await, None);
    assert!(root.join("src/config").exists());
    fs::remove_file(root.join("link")).unwrap();
    symlink(".git", root.join("link")).unwrap();
    assert_eq!(code(&env.executor, plain).await, Some("approval_void"));
    assert!(!root.join(".git/config").exists());
    let shown = approve(needs());
    assert_eq!(code(&env.executor, shown).await, None);
    assert!(root.join(".git/config").exists());
    // The workspace of an agent may be a part of the project.
    let part = root.join("src");
    let needs = env
        .executor
        .approval_reasons(&tool, &parameters, Some(&part));
    assert_eq!(needs.unwrap().len(), 1);
    let private = json!({ "path": "key", "content": "x" });
    let refused = env
        .executor
        .approval_reasons(&tool, &private, None)
        .unwrap_err();
    assert!(
        matches!(refused, ExecuteError::PrivatePath { .. }),
        "{refused}"
    );
}

#[tokio::test]
async fn lists_of_paths_are_checked() {
    let env = project();
    env.signed(
        "tools/copy.yaml",
        "version: \"1.0.0\"\nexecutor_id: rye/core/runtimes/bash/bash\nreads: [from]\n\
         writes: [to]\nconfig:\n  command: 'touch ran'\nconfig_schema:\n  type: object\n  \
         properties: { from: { type: array }, to: { type: array } }\n",
    );
    let private = json!({ "from": ["src/a", "keys"], "to": [] });
    let error = env.refused("copy", private).await;
    assert_eq!(error.code, "private_path");
    let mut call = Request::new("copy".parse().unwrap())
        .with_parameters(json!({ "from": [".git/x"], "to": ["a", ".git/x"] }));
    call.approval = Approval::None;
    let refused = code(&env.executor, call).await;
    assert_eq!(refused, Some("approval_required"));
}

/// The tools check paths themselves, as a second line of defence.
#[test]
fn tools_check_paths_themselves() {
    let env = project();
    let root = fs::canonicalize(env.project()).unwrap();
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../system/.ai/tools");
    let private = fs::canonicalize(env.user_path("config/keys")).unwrap();
    let policy = |checked: Value| json!({ "private": [private], "checked": checked }).to_string();
    let python = |policy: Option<String>, code: &str| {
        let mut python = Command::new("python3");
        python.args(["-B", "-c", &format!("from project_files import *\n{code}")]);
        python.env("PYTHONPATH", tools.join("rye/file-system"));
        python.env_remove("RYE_PATH_POLICY").current_dir(&root);
        python.envs(policy.map(|text| ("RYE_PATH_POLICY", text)));
        let output = python.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let attempt = |call: &str| {
        format!(
            "import os\nproject = os.getcwd()\ntry:\n  {call}\n  print('done')\n\
             except (Refusal, OSError) as error:\n  print(type(error).__name__)\n"
        )
    };
    let none = || Some(policy(json!({})));
    let home = "project = os.path.realpath('../user')";
    for (policy, call, expected) in [
        (None, "resolve(project, 'src')".to_owned(), "Refusal"),
        (none(), "resolve(project, 'src')".to_owned(), "done"),
        (none(), "resolve(project, 'keys')".to_owned(), "Refusal"),
        (
            none(),
            format!("{home}; resolve(project, '.ai/config/keys/new')"),
            "Refusal",
        ),
        (
            Some(policy(json!({ "path": "/elsewhere" }))),
            "resolve(project, 'src')".to_owned(),
            "Refusal",
        ),
        // A path that became a link after it was resolved.
        (
            none(),
            "open_file(project, project + '/keys/signing/private_key.pem', 'x')".to_owned(),
            "NotADirectoryError",
        ),
        (
            none(),
            "replace(project, project + '/keys/signing/x', 'x', b'')".to_owned(),
            "NotADirectoryError",
        ),
        (
            none(),
            "open_file(project, project + '/hard', 'hard')".to_owned(),
            "Refusal",
        ),
        (
            none(),
            "replace(project, project + '/hard', 'hard', b'')".to_owned(),
            "Refusal",
        ),
        (
            none(),
            "replace(project, project + '/new/deep/x', 'x', b'y')".to_owned(),
            "done",
        ),
    ] {
        assert_eq!(python(policy, &attempt(&call)), expected, "{call}");
    }
    assert_eq!(fs::read(root.join("new/deep/x")).unwrap(), b"y");
    assert!(!private.join("signing/x").exists());
}

#[tokio::test]
async fn policy_decides_about_unapproved_calls_only() {
    let env = project();
    for (rules, expected) in [
        (json!([]), None),
        (
            json!([{ "tool": "rye:rye/file-system/*", "action": "deny" }]),
            Some("denied"),
        ),
        (
            json!([{ "space": ["system"], "action": "ask" }]),
            Some("approval_required"),
        ),
        (
            json!([{ "risk": ["medium"], "action": "deny" }]),
            Some("denied"),
        ),
        (json!([{ "risk": ["high"], "action": "deny" }]), None),
    ] {
        let policy: Policy = serde_json::from_value(json!({ "rules": rules })).unwrap();
        let executor = env.executor.clone().with_policy(move || Ok(policy.clone()));
        let mut call = request("write", json!({ "path": "src/main.rs", "content": "x" }));
        assert_eq!(code(&executor, call.clone()).await, None, "{rules}");
        call.approval = Approval::None;
        let checked = executor.check_unapproved(&call);
        assert_eq!(checked.err().map(|error| error.code()), expected, "{rules}");
        assert_eq!(code(&executor, call).await, expected, "{rules}");
    }
    let invalid = env
        .executor
        .clone()
        .with_policy(|| Err("line 1".to_owned()));
    let mut call = request("read", json!({ "path": ".git/config" }));
    call.approval = Approval::None;
    assert_eq!(code(&invalid, call).await, Some("invalid_config"));
}

#[tokio::test]
async fn no_rule_allows_an_unapproved_sensitive_write() {
    let env = project();
    let rules = json!({ "rules": [{ "action": "allow" }] });
    let policy: Policy = serde_json::from_value(rules).unwrap();
    let executor = env.executor.clone().with_policy(move || Ok(policy.clone()));
    for (path, expected) in [("src/a", None), (".ai/a", Some("approval_required"))] {
        let mut call = request("write", json!({ "path": path, "content": "x" }));
        call.approval = Approval::None;
        assert_eq!(code(&executor, call).await, expected, "{path}");
    }
}
