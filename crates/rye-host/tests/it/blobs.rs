//! Long output in the blob store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lillux::Hash;
use lillux::process::Supervisor;
use rye_engine::BoxFuture;
use rye_engine::blob::{BlobStore as _, required_blobs};
use rye_engine::protocol::{Author, EventKind};
use rye_engine::tool::{Tool, ToolContext, ToolDef, ToolError, ToolOutput};
use rye_engine::{Engine, NewSession, Prompt};
use rye_host::{Catalogue, Options, SandboxKind, SandboxOptions, builder};
use rye_sandbox::VirtualSandbox;
use rye_store::{FileBlobs, MemoryStore};
use serde_json::{Value, json};

/// Runs a scripted model, and returns its last answer.
async fn run_script(dir: &Path, script: &str) -> String {
    std::fs::write(dir.join("script.yaml"), script).unwrap();
    let options = Options {
        database: dir.join("sessions.db"),
        vault: None,
        checks: Vec::new(),
        sandbox: SandboxOptions {
            kind: SandboxKind::Virtual,
            resume_in: None,
            workspace: None,
            project: dir.to_owned(),
            review: false,
            confinement: rye_host::sandbox::ConfinementPolicy::default(),
            protected: lillux::path_policy::ProtectedPaths::default(),
        },
    };
    let models = Catalogue::new(dir).default_model("scripted:script.yaml");
    let engine = builder(&options, models, Arc::new(Supervisor::start().unwrap())).unwrap();
    let engine = engine.build().unwrap();
    let session = engine.create_session(NewSession::default()).await.unwrap();
    let prompt = session.prompt("go").await.unwrap();
    let answer = session.wait_for_answer(&prompt).await.unwrap();
    engine.shutdown().await.unwrap();
    answer.text
}

#[tokio::test]
async fn another_host_can_read_truncated_output() {
    let dir = tempfile::tempdir().unwrap();
    let prints = "
steps:
  - tool_calls: [{ name: bash, args: { command: 'seq 1 20000' } }]
  - text: '${last_tool_result}'
";
    let answer = run_script(dir.path(), prints).await;
    let numbers: Vec<_> = (1..=20_000).map(|number| number.to_string()).collect();
    let hash = Hash::digest(numbers.join("\n"));
    assert!(
        answer.contains(&format!("path blob:{hash}, offset ")),
        "{answer}"
    );
    assert!(dir.path().join("blobs").is_dir());
    let reads = format!(
        "
steps:
  - tool_calls: [{{ name: read, args: {{ path: 'blob:{hash}', offset: 9999, limit: 1 }} }}]
  - text: '${{last_tool_result}}'
"
    );
    let answer = run_script(dir.path(), &reads).await;
    assert!(answer.starts_with("9999\t9999\n"), "{answer}");
}

#[tokio::test]
async fn blob_is_removed_with_the_last_session_that_uses_it() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = FileBlobs::new(dir.path().join("blobs")).grace(Duration::ZERO);
    let script = "
steps:
  - tool_calls: [{ name: bash, args: { command: 'seq 1 20000' } }]
  - text: done
";
    let engine = Engine::builder()
        .store(MemoryStore::new())
        .blobs(blobs.clone())
        .models(Catalogue::new(".").with("scripted:test", script.parse().unwrap()))
        .sandbox(Arc::new(VirtualSandbox::new()))
        .tools(rye_tools::tools())
        .build()
        .unwrap();
    let numbers: Vec<_> = (1..=20_000).map(|number| number.to_string()).collect();
    let hash = Hash::digest(numbers.join("\n"));
    let other = blobs.put(b"unreferenced".to_vec()).await.unwrap();
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let session = engine.create_session(NewSession::default()).await.unwrap();
        let prompt = session.prompt("go").await.unwrap();
        session.wait_for_answer(&prompt).await.unwrap();
        sessions.push(session.id().clone());
    }
    engine.remove_session(&sessions[0]).await.unwrap();
    assert!(blobs.contains(&hash).await.unwrap());
    assert!(!blobs.contains(&other).await.unwrap());
    engine.remove_session(&sessions[1]).await.unwrap();
    assert!(!blobs.contains(&hash).await.unwrap());
}

/// Creates an artifact.
struct ReportTool(ToolDef);

impl Tool for ReportTool {
    fn def(&self) -> &ToolDef {
        &self.0
    }

    fn run(&self, _: Value, context: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let author = context.author.clone().unwrap();
            let (user, channel) = (context.user.clone().unwrap(), author.channel.unwrap());
            let text = format!("for {} of {user}, by {channel}", author.name);
            let source = context.artifact("report.txt", text.into_bytes()).await?;
            Ok(ToolOutput::text(source))
        })
    }
}

#[tokio::test]
async fn artifact_is_removed_with_its_session() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = FileBlobs::new(dir.path().join("blobs")).grace(Duration::ZERO);
    let script = "{ steps: [{ tool_calls: [{ name: reports }] }, { text: done }] }";
    let def = ToolDef::new("reports", "ReportTool.", json!({ "type": "object" }));
    let engine = Engine::builder()
        .store(MemoryStore::new())
        .blobs(blobs.clone())
        .models(Catalogue::new(".").with("scripted:test", script.parse().unwrap()))
        .sandbox(Arc::new(VirtualSandbox::new()))
        .tool(ReportTool(def))
        .build()
        .unwrap();
    let new = NewSession {
        user_id: Some("acme".to_owned()),
        ..NewSession::default()
    };
    let session = engine.create_session(new.clone()).await.unwrap();
    let author = Author {
        name: "ada".to_owned(),
        channel: Some("slack".to_owned()),
    };
    let prompt = Prompt {
        author: Some(author),
        ..Prompt::from("go")
    };
    let mut events = session.subscribe(0);
    session.prompt(prompt).await.unwrap();
    let (name, source) = loop {
        let event = events.next().await.unwrap().unwrap().event;
        if let EventKind::Artifact {
            name,
            mime_type,
            size,
            source,
        } = event.kind
        {
            assert_eq!((mime_type.as_str(), size), ("text/plain", 25));
            assert!(event.sequence.is_some());
            break (name, source);
        }
    };
    assert_eq!(name, "report.txt");
    let hash: Hash = source.strip_prefix("blob:").unwrap().parse().unwrap();
    let kept = blobs.get(&hash).await.unwrap().unwrap();
    assert_eq!(kept, b"for ada of acme, by slack");
    let archive = engine.export(session.id()).await.unwrap().remove(0);
    let needed: Vec<_> = required_blobs(&archive).into_keys().collect();
    assert_eq!(needed, [hash]);
    // Removing another session keeps it; removing its own session removes it.
    let other = engine.create_session(new).await.unwrap();
    let id = session.id().clone();
    engine.remove_session(other.id()).await.unwrap();
    assert!(blobs.contains(&hash).await.unwrap());
    engine.remove_session(&id).await.unwrap();
    assert!(!blobs.contains(&hash).await.unwrap());
}
