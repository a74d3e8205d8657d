//! Long output outlives the process that had it.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lillux::Hash;
use lillux::process::Supervisor;
use rye_engine::blob::BlobStore as _;
use rye_engine::{Engine, NewSession};
use rye_host::{Catalogue, Options, SandboxKind, builder};
use rye_sandbox::Virtual;
use rye_store::{FileBlobs, Memory};

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

#[tokio::test]
async fn long_output_goes_with_the_last_session_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = FileBlobs::new(folder.path().join("blobs")).grace(Duration::ZERO);
    let script = "
steps:
  - tool_calls: [{ name: bash, args: { command: 'seq 1 20000' } }]
  - text: done
";
    let engine = Engine::builder()
        .store(Memory::new())
        .blobs(blobs.clone())
        .models(Catalogue::new(".").with("scripted:test", script.parse().unwrap()))
        .sandbox(Arc::new(Virtual::new()))
        .tools(rye_engine::builtin::tools())
        .build()
        .unwrap();
    let numbers: Vec<_> = (1..=20_000).map(|number| number.to_string()).collect();
    let hash = Hash::of(numbers.join("\n"));
    let other = blobs.put(b"nobody names this".to_vec()).await.unwrap();
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let session = engine.create_session(NewSession::default()).await.unwrap();
        let item = session.prompt("go").await.unwrap();
        session.answer(&item).await.unwrap();
        sessions.push(session.id().clone());
    }
    engine.remove_session(&sessions[0]).await.unwrap();
    assert!(blobs.has(&hash).await.unwrap());
    assert!(!blobs.has(&other).await.unwrap());
    engine.remove_session(&sessions[1]).await.unwrap();
    assert!(!blobs.has(&hash).await.unwrap());
}
