//! What a person can approve beyond the policy of a session in review mode.

use std::fs;

use rye_engine::sandbox::{ExecOutput, Grants, Sandbox, SandboxError};
use tempfile::TempDir;

use crate::contract::{Recorder, reviewed, script};

/// Directories of a test: a workspace with a repository, and a directory outside of it.
fn directories() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["ws/.git", "outside"] {
        fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    fs::write(dir.path().join("ws/.git/config"), "[core]\n").unwrap();
    fs::write(dir.path().join("outside/secret"), "secret").unwrap();
    dir
}

async fn run(sandbox: &dyn Sandbox, command: &str) -> ExecOutput {
    let executed = sandbox.exec(script(command), &Recorder::default()).await;
    executed.unwrap()
}

#[tokio::test]
async fn approved_path_outside_is_seen_by_commands_and_file_tools() {
    let dir = directories();
    let sandbox = reviewed(&dir);
    let outside = dir.path().join("outside").display().to_string();
    let secret = format!("{outside}/secret");
    assert!(sandbox.read(&secret).await.is_err());
    let grants = Grants {
        read: vec![outside.clone()],
        ..Grants::default()
    };
    let wide = sandbox.widened(&grants).unwrap();
    assert_eq!(wide.read(&secret).await.unwrap(), b"secret");
    let output = run(&*wide, &format!("cat {secret} && ! echo x >{outside}/new")).await;
    assert_eq!((&*output.stdout, output.exit_code), ("secret", Some(0)));
    assert!(wide.write(&secret, b"x").await.is_err());

    let grants = Grants {
        write: vec![outside.clone()],
        ..Grants::default()
    };
    let wide = sandbox.widened(&grants).unwrap();
    wide.write(&format!("{outside}/tool"), b"x").await.unwrap();
    let output = run(&*wide, &format!("echo x >{outside}/shell")).await;
    assert_eq!(output.exit_code, Some(0), "{output:?}");
    for name in ["tool", "shell"] {
        assert!(dir.path().join("outside").join(name).exists(), "{name}");
    }
    assert!(sandbox.read(&secret).await.is_err(), "only for one call");
}

#[tokio::test]
async fn approved_change_of_a_protected_file_is_reviewed() {
    let dir = directories();
    let sandbox = reviewed(&dir);
    let command = "echo x >> .git/config";
    assert_ne!(run(&sandbox, command).await.exit_code, Some(0));
    let grants = Grants {
        write: vec![".git".to_owned()],
        ..Grants::default()
    };
    let wide = sandbox.widened(&grants).unwrap();
    let output = run(&*wide, command).await;
    assert_eq!(output.exit_code, Some(0), "{output:?}");
    let config = fs::read_to_string(dir.path().join("ws/.git/config"));
    assert_eq!(config.unwrap(), "[core]\n");
    let changes = sandbox.review().unwrap().changes().await.unwrap();
    let changes = changes.set.changes;
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!(changes[0].path, ".git/config");
    assert!(changes[0].protected);
}

#[tokio::test]
async fn command_without_the_sandbox_is_refused() {
    let dir = directories();
    let sandbox = reviewed(&dir);
    let grants = Grants {
        unconfined: true,
        ..Grants::default()
    };
    let refused = sandbox.widened(&grants).err();
    assert!(
        matches!(refused, Some(SandboxError::Unusable { .. })),
        "{refused:?}"
    );
}
