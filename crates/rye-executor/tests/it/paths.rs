//! Paths in the parameters of a call: private ones are refused, sensitive ones need an
//! approval.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::support::World;
use lillux::process::Supervisor;
use rye_executor::{Approval, ApprovalReason, ExecuteError, Executor, Request, Roots, Trace};
use serde_json::{Value, json};

const FILES: &str = "rye/file-system";

/// A project with every kind of way to the user's signing key.
fn project() -> World {
    let world = World::new();
    let root = world.project();
    fs::create_dir_all(root.join("src")).unwrap();
    fs::create_dir_all(root.join(".git/hooks")).unwrap();
    fs::create_dir_all(root.join("env/lib")).unwrap();
    fs::write(root.join("env/pyvenv.cfg"), "").unwrap();
    fs::create_dir_all(world.cache()).unwrap();
    symlink(world.at_user("config/keys"), root.join("keys")).unwrap();
    symlink(key(&world), root.join("key")).unwrap();
    fs::hard_link(key(&world), root.join("hard")).unwrap();
    symlink(world.at_user("vault/new.json"), root.join("dangling")).unwrap();
    world
}

fn key(world: &World) -> std::path::PathBuf {
    world.at_user("config/keys/signing/private_key.pem")
}

/// The same user, keys and cache, with another project.
fn at(world: &World, project: &Path) -> Executor {
    let roots = Roots {
        user: Some(world.user()),
        ..Roots::new(project, world.cache())
    };
    Executor::new(roots, Arc::new(Supervisor::start().unwrap()))
}

fn request(tool: &str, parameters: Value) -> Request {
    Request::new(format!("{FILES}/{tool}").parse().unwrap()).with_parameters(parameters)
}

/// The code with which a call is refused; none if it ran.
async fn code(executor: &Executor, request: Request) -> Option<&'static str> {
    let outcome = executor.try_execute(request, &mut Trace::disabled()).await;
    outcome.err().map(|error| error.code())
}

#[tokio::test]
async fn no_tool_is_given_a_private_path() {
    let world = project();
    let absolute = key(&world).display().to_string();
    let through_proc = format!("/proc/self/root{absolute}");
    let cache = world.cache().join("x").display().to_string();
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
            // A person's own call is refused, too, and before anything runs.
            let error = world.refused(&format!("{FILES}/{tool}"), parameters).await;
            assert_eq!(error.code, "private_path", "{tool} {path}");
        }
    }
    assert!(fs::read_to_string(key(&world)).unwrap().contains("PRIVATE"));
}

#[tokio::test]
async fn a_private_directory_is_private_as_a_project_and_within_one() {
    let world = project();
    let keys = at(&world, key(&world).parent().unwrap());
    let read = request("read", json!({ "path": "private_key.pem" }));
    assert_eq!(code(&keys, read).await, Some("private_path"));
    let list = request("list", json!({}));
    assert_eq!(code(&keys, list).await, Some("private_path"));
    // Searches of a home pass its private directories by.
    fs::write(world.user().join("notes.txt"), "PRIVATE notes\n").unwrap();
    let home = at(&world, &world.user());
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
async fn a_write_that_nobody_approved_asks_where_files_decide_what_programs_do() {
    let world = project();
    let bare = world.folder().join("bare");
    fs::create_dir(&bare).unwrap();
    let (bare, home) = (at(&world, &bare), at(&world, &world.user()));
    let above = at(&world, world.folder());
    let plain = "src/main.rs";
    for (executor, path, asks) in [
        (&world.executor, plain, false),
        (&world.executor, ".gitignore", false),
        (&world.executor, ".git/config", true),
        (&world.executor, ".GIT/hooks/pre-commit", true),
        (&world.executor, ".ai/config/agent/approvals.yaml", true),
        (&world.executor, ".venv/bin/python", true),
        (&world.executor, "venv/x.py", true),
        (&world.executor, "env/lib/x.py", true),
        (&world.executor, "lib/site-packages/x.pth", true),
        (&world.executor, "node_modules/x/index.js", true),
        (&world.executor, "src/__pycache__/x.pyc", true),
        (&world.executor, ".env", true),
        (&world.executor, ".env.local", true),
        (&world.executor, ".envrc", true),
        (&world.executor, ".vscode/tasks.json", true),
        (&world.executor, ".github/workflows/x.yml", true),
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
    // Reading them asks nobody.
    let mut call = request("read", json!({ "path": ".git/config" }));
    call.approval = Approval::None;
    assert_eq!(code(&world.executor, call).await, None);
}

#[tokio::test]
async fn an_approval_of_a_call_is_void_when_a_path_leads_elsewhere() {
    let world = project();
    let root = world.project();
    let tool = request("write", json!({})).tool;
    let chain = world.executor.chain(&tool).unwrap().hash;
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
        world
            .executor
            .approval_reasons(&tool, &parameters, None)
            .unwrap()
    };
    let plain = approve(needs());
    assert_eq!(code(&world.executor, plain.clone()).await, None);
    assert!(root.join("src/config").exists());
    fs::remove_file(root.join("link")).unwrap();
    symlink(".git", root.join("link")).unwrap();
    assert_eq!(code(&world.executor, plain).await, Some("approval_void"));
    assert!(!root.join(".git/config").exists());
    let shown = approve(needs());
    assert_eq!(code(&world.executor, shown).await, None);
    assert!(root.join(".git/config").exists());
    // An agent may work in a part of the project.
    let part = root.join("src");
    let needs = world
        .executor
        .approval_reasons(&tool, &parameters, Some(&part));
    assert_eq!(needs.unwrap().len(), 1);
    let private = json!({ "path": "key", "content": "x" });
    let refused = world
        .executor
        .approval_reasons(&tool, &private, None)
        .unwrap_err();
    assert!(
        matches!(refused, ExecuteError::PrivatePath { .. }),
        "{refused}"
    );
}

#[tokio::test]
async fn lists_of_paths_are_checked_like_paths() {
    let world = project();
    world.signed(
        "tools/copy.yaml",
        "version: \"1.0.0\"\nexecutor_id: rye/core/runtimes/bash/bash\nreads: [from]\n\
         writes: [to]\nconfig:\n  command: 'touch ran'\nconfig_schema:\n  type: object\n  \
         properties: { from: { type: array }, to: { type: array } }\n",
    );
    let private = json!({ "from": ["src/a", "keys"], "to": [] });
    let error = world.refused("copy", private).await;
    assert_eq!(error.code, "private_path");
    let mut call = Request::new("copy".parse().unwrap())
        .with_parameters(json!({ "from": [".git/x"], "to": ["a", ".git/x"] }));
    call.approval = Approval::None;
    let refused = code(&world.executor, call).await;
    assert_eq!(refused, Some("approval_required"));
}

/// What the tools check themselves, were the executor to miss it.
#[test]
fn the_tools_check_paths_a_second_time() {
    let world = project();
    let root = fs::canonicalize(world.project()).unwrap();
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../system/.ai/tools");
    let private = fs::canonicalize(world.at_user("config/keys")).unwrap();
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
        // What became a link after it was resolved.
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
