//! Each session has a sandbox of its own, and reopens it.

use std::sync::{Arc, Mutex};

use rye_engine::protocol::{SandboxKind, SandboxRef, SessionId};
use rye_engine::sandbox::{
    OpenSandbox, Sandbox, SandboxError, SandboxFuture, SandboxProvider, SandboxSpec,
};
use rye_engine::store::{Claim, SessionFilter, StoreError};
use rye_engine::{Engine, NewSession};
use rye_model::{Catalogue, Script};
use rye_sandbox::VirtualSandbox;
use rye_store::SqliteStore;
use tempfile::TempDir;

/// Builds virtual sandboxes with a file that names the workspace, and records the calls.
#[derive(Clone, Default)]
struct Provider {
    calls: Arc<Mutex<Vec<String>>>,
    is_broken: Arc<Mutex<bool>>,
}

impl Provider {
    fn note(&self, call: String) {
        self.calls.lock().unwrap().push(call);
    }

    async fn build(&self, workspace: &str) -> Result<Arc<dyn Sandbox>, SandboxError> {
        if *self.is_broken.lock().unwrap() {
            return Err(SandboxError::unavailable("no machine"));
        }
        let sandbox = VirtualSandbox::new();
        sandbox.write("workspace", workspace.as_bytes()).await?;
        Ok(Arc::new(sandbox))
    }
}

impl SandboxProvider for Provider {
    fn create<'a>(&'a self, spec: &'a SandboxSpec) -> SandboxFuture<'a, OpenSandbox> {
        Box::pin(async move {
            let workspace = spec.workspace.clone().unwrap_or_default();
            self.note(format!("create {workspace}"));
            let sandbox = self.build(&workspace).await?;
            let reference = SandboxRef::new(SandboxKind::Virtual, Some(workspace));
            Ok(OpenSandbox { reference, sandbox })
        })
    }

    fn open<'a>(&'a self, reference: &'a SandboxRef) -> SandboxFuture<'a, Arc<dyn Sandbox>> {
        Box::pin(async move {
            let workspace = reference.workspace.clone().unwrap_or_default();
            self.note(format!("open {workspace}"));
            self.build(&workspace).await
        })
    }

    fn destroy<'a>(&'a self, reference: &'a SandboxRef) -> SandboxFuture<'a, ()> {
        self.note(format!(
            "destroy {}",
            reference.workspace.as_deref().unwrap_or("")
        ));
        Box::pin(async { Ok(()) })
    }
}

fn engine(dir: &TempDir, provider: &Provider) -> Engine {
    let script: Script = "steps: [{ text: done }]".parse().unwrap();
    Engine::builder()
        .store(SqliteStore::open(dir.path().join("sessions.db")).unwrap())
        .models(Catalogue::new(".").with("scripted:test", script))
        .sandbox_provider(provider.clone())
        .build()
        .unwrap()
}

fn new_session(workspace: &str) -> NewSession {
    NewSession {
        workspace: Some(workspace.to_owned()),
        model: Some("scripted:test".to_owned()),
        ..NewSession::default()
    }
}

async fn workspace_in_sandbox(engine: &Engine, id: &SessionId) -> String {
    let sandbox = engine.open_sandbox(id).await.unwrap();
    String::from_utf8(sandbox.read("workspace").await.unwrap()).unwrap()
}

#[tokio::test]
async fn each_session_reopens_its_own_sandbox() {
    let (dir, provider) = (tempfile::tempdir().unwrap(), Provider::default());
    let first = engine(&dir, &provider);
    let mut ids = Vec::new();
    for workspace in ["/a", "/b"] {
        let session = first.create_session(new_session(workspace)).await.unwrap();
        ids.push(session.id().clone());
    }
    // Open sessions share the instance.
    assert_eq!(workspace_in_sandbox(&first, &ids[0]).await, "/a");
    assert_eq!(workspace_in_sandbox(&first, &ids[1]).await, "/b");
    first.shutdown().await.unwrap();
    drop(first);
    let second = engine(&dir, &provider);
    for (id, workspace) in ids.iter().zip(["/a", "/b"]) {
        let _session = second.open_session(id, Claim::IfFree).await.unwrap();
        assert_eq!(workspace_in_sandbox(&second, id).await, workspace);
    }
    let expected = ["create /a", "create /b", "open /a", "open /b"];
    assert_eq!(*provider.calls.lock().unwrap(), expected);
    second.remove_session(&ids[0]).await.unwrap();
    let last = provider.calls.lock().unwrap().last().cloned();
    assert_eq!(last.as_deref(), Some("destroy /a"));
}

#[tokio::test]
async fn session_uses_the_sandbox_that_was_created_for_it() {
    let (dir, provider) = (tempfile::tempdir().unwrap(), Provider::default());
    let engine = engine(&dir, &provider);
    let spec = SandboxSpec {
        workspace: Some("/a".to_owned()),
        ..SandboxSpec::default()
    };
    let created = engine.create_sandbox(&spec).await.unwrap();
    created
        .sandbox
        .write("workspace", b"changed")
        .await
        .unwrap();
    let new = NewSession {
        sandbox: Some(created),
        ..new_session("/a")
    };
    let session = engine.create_session(new).await.unwrap();
    assert_eq!(workspace_in_sandbox(&engine, session.id()).await, "changed");
    assert_eq!(*provider.calls.lock().unwrap(), ["create /a"]);
}

#[tokio::test]
async fn session_whose_sandbox_cannot_be_opened_stays_free() {
    let (dir, provider) = (tempfile::tempdir().unwrap(), Provider::default());
    let first = engine(&dir, &provider);
    let session = first.create_session(new_session("/a")).await.unwrap();
    let id = session.id().clone();
    drop(session);
    first.shutdown().await.unwrap();
    drop(first);
    *provider.is_broken.lock().unwrap() = true;
    let second = engine(&dir, &provider);
    let opened = second.open_session(&id, Claim::IfFree).await;
    assert!(matches!(opened, Err(StoreError::Sandbox(..))));
    let created = second.create_session(new_session("/b")).await;
    assert!(matches!(created, Err(StoreError::Sandbox(..))));
    let all = SessionFilter {
        limit: 10,
        ..SessionFilter::default()
    };
    assert_eq!(second.sessions(all).await.unwrap().len(), 1);
    *provider.is_broken.lock().unwrap() = false;
    second.open_session(&id, Claim::IfFree).await.unwrap();
}
