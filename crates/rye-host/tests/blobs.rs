//! Long output outlives the process that had it.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use std::path::Path;

use lillux::Hash;
use lillux::process::Supervisor;
use rye_engine::NewSession;
use rye_host::{Catalogue, Options, SandboxKind, builder};

/// Has a model do what a script says, and gives its last words.
async fn answer(folder: &Path, script: &str) -> String {
    std::fs::write(folder.join("script.yaml"), script).unwrap();
    let options = Options {
        database: folder.join("sessions.db"),
        workspace: folder.to_owned(),
        sandbox: SandboxKind::Virtual,
        vault: None,
    };
    let models = Catalogue::new(&options.workspace).default_model("scripted:script.yaml");
    let engine = builder(&options, models, Arc::new(Supervisor::start().unwrap())).unwrap();
    let engine = engine.build().unwrap();
    let session = engine.create_session(NewSession::default()).await.unwrap();
    let item = session.prompt("go").await.unwrap();
    let answer = session.answer(&item).await.unwrap();
    engine.shutdown().await.unwrap();
    answer.text
}

#[tokio::test]
async fn what_was_left_out_is_read_by_another_host() {
    let folder = tempfile::tempdir().unwrap();
    let prints = "
steps:
  - tool_calls: [{ name: bash, args: { command: 'seq 1 20000' } }]
  - text: '${last_tool_result}'
";
    let said = answer(folder.path(), prints).await;
    let numbers: Vec<_> = (1..=20_000).map(|number| number.to_string()).collect();
    let hash = Hash::of(numbers.join("\n"));
    assert!(
        said.contains(&format!("path blob:{hash}, offset ")),
        "{said}"
    );
    assert!(folder.path().join("blobs").is_dir());
    let reads = format!(
        "
steps:
  - tool_calls: [{{ name: read, args: {{ path: 'blob:{hash}', offset: 9999, limit: 1 }} }}]
  - text: '${{last_tool_result}}'
"
    );
    let said = answer(folder.path(), &reads).await;
    assert!(said.starts_with("9999\t9999\n"), "{said}");
}
