//! Credentials: precedence of owners, token refresh, and gates for missing credentials.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rye_engine::clock::{Clock as _, SystemClock};
use rye_engine::credential::{Credential, CredentialStore as _, OAuth, Owner};
use rye_engine::policy::{Policy, Risk};
use rye_engine::protocol::{EntryKind, EventKind, GateKind, Part};
use rye_engine::sandbox::Sandbox;
use rye_engine::{Decision, Engine, NewSession};
use rye_host::{Credentials, HttpRefresher};
use rye_items::Space;
use rye_items::vault::Vault;
use rye_model::Catalogue;
use rye_sandbox::VirtualSandbox;
use rye_store::MemoryStore;
use rye_tools::meta_tools::{self, CommandEntry, CommandSpec, CommandTools};
use zeroize::Zeroizing;

const SCRIPT: &str = "
steps:
  - tool_calls: [{ name: call_tool, args: { tool_id: 'command:show', params: {}, summary: look } }]
  - text: done
  - tool_calls: [{ name: call_tool, args: { tool_id: 'command:show', params: {}, summary: look } }]
  - text: done again
";

/// A command that writes its secret to the sandbox, where it is not redacted.
fn commands() -> CommandTools {
    let tool = CommandSpec {
        description: "keeps its token".to_owned(),
        run: "printf '%s,' \"$TOKEN\" >> seen.txt; echo \"it is $TOKEN\"".to_owned(),
        credentials: BTreeMap::from([("TOKEN".to_owned(), "service".to_owned())]),
        risk: Some(Risk::Low),
        ..CommandSpec::default()
    };
    let command = CommandEntry {
        spec: tool,
        ..CommandEntry::default()
    };
    CommandTools::new(BTreeMap::from([("show".to_owned(), command)]))
}

/// A home directory with credentials. Each engine has its own store and sandbox.
struct TestEnv {
    home: tempfile::TempDir,
    sandbox: Arc<VirtualSandbox>,
}

impl TestEnv {
    fn new() -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
            sandbox: Arc::new(VirtualSandbox::new()),
        }
    }

    fn credentials(&self) -> Credentials {
        let vault = Vault::new(self.home.path(), None);
        Credentials::new(&self.home.path().join("sessions.db"), Some(vault))
    }

    fn engine(&mut self) -> Engine {
        self.sandbox = Arc::new(VirtualSandbox::new());
        let sandbox: Arc<dyn Sandbox> = Arc::<VirtualSandbox>::clone(&self.sandbox);
        Engine::builder()
            .store(MemoryStore::new())
            .models(Catalogue::new(".").with("scripted:test", SCRIPT.parse().unwrap()))
            .sandbox(sandbox)
            .credentials(Arc::new(self.credentials()))
            .refresher(HttpRefresher)
            .tools(meta_tools::tools(
                vec![Arc::new(commands())],
                Policy::default(),
            ))
            .build()
            .unwrap()
    }

    /// The secrets that the command received, each followed by a comma.
    async fn received(&self) -> String {
        let seen = self.sandbox.read("seen.txt").await.unwrap_or_default();
        String::from_utf8(seen).unwrap()
    }

    /// Whether any file contains the plain text.
    fn contains_plain_text(&self, secret: &str) -> bool {
        fn search(dir: &Path, secret: &[u8]) -> bool {
            let files = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
            files.into_iter().any(|file| match file.path() {
                path if path.is_dir() => search(&path, secret),
                path => memmem(&std::fs::read(path).unwrap(), secret),
            })
        }
        search(self.home.path(), secret.as_bytes())
    }
}

fn memmem(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|it| it == part)
}

/// Sends a prompt, handles each gate, and returns the result of the tool.
async fn run_prompt(
    engine: &Engine,
    org: Option<&str>,
    at_gate: impl AsyncFn(usize) -> &'static str,
) -> String {
    let new = NewSession {
        id: Some("one".parse().unwrap()),
        org_id: org.map(str::to_owned),
        ..NewSession::default()
    };
    let mut feed = engine.feed();
    let session = engine.create_session(new).await.unwrap();
    let prompt = session.prompt("go").await.unwrap();
    let gates = async {
        let mut nth = 0;
        while let Ok(Some(notice)) = feed.next().await {
            if let EventKind::DecisionGate { gate } = notice.event.kind {
                assert_eq!(gate.kind, GateKind::CredentialRequest);
                assert_eq!(gate.context["vault"], "service");
                assert!(gate.expires_at.is_some());
                let action = at_gate(nth).await;
                nth += 1;
                let decision = Decision::new(action, "ada", "test");
                engine.decide(&gate.id, decision).await.unwrap();
            }
        }
    };
    tokio::select! {
        answer = session.wait_for_answer(&prompt) => { answer.unwrap(); }
        () = gates => unreachable!("the engine is gone"),
    }
    let history = engine.history(session.id()).await.unwrap();
    let parts = history[0].1.iter().filter_map(|entry| match &entry.kind {
        EntryKind::Message(message) => Some(&message.parts),
        _ => None,
    });
    let mut results = parts.flatten().filter_map(|part| match part {
        Part::ToolResult { text, .. } => Some(text.clone()),
        _ => None,
    });
    results.next_back().unwrap()
}

async fn no_gate_expected(_: usize) -> &'static str {
    unreachable!("unexpected gate")
}

const USER: fn() -> Owner = || Owner::User(String::new());

#[tokio::test]
async fn session_precedes_user_and_user_precedes_organisation() {
    let mut env = TestEnv::new();
    for (owner, secret) in [
        (Owner::Org("acme".to_owned()), "of-the-org"),
        (USER(), "of-the-user"),
        (Owner::Session("one".parse().unwrap()), "of-the-session"),
    ] {
        let credential = Credential::new(secret);
        let put = env.credentials();
        put.put(&owner, "service", &credential).await.unwrap();
        let engine = env.engine();
        let result = run_prompt(&engine, Some("acme"), no_gate_expected).await;
        assert_eq!(env.received().await, format!("{secret},"));
        assert_eq!(result.trim(), "it is [redacted]");
        assert!(!env.contains_plain_text(secret));
    }
    let mut listed = env.credentials().list().await.unwrap();
    listed.retain(|(owner, _)| matches!(owner, Owner::Session(_)));
    assert_eq!(listed.len(), 1);
    // Credentials of a session are removed with it.
    let engine = env.engine();
    run_prompt(&engine, None, no_gate_expected).await;
    engine
        .remove_session(&"one".parse().unwrap())
        .await
        .unwrap();
    let listed = env.credentials().list().await.unwrap();
    assert_eq!(listed.len(), 2, "{listed:?}");
}

#[tokio::test]
async fn missing_credential_is_requested_and_then_used() {
    let mut env = TestEnv::new();
    let engine = env.engine();
    let vault = Vault::new(env.home.path(), None);
    let result = run_prompt(&engine, None, async |nth| {
        // Confirmed before it is stored, so it is requested again.
        if nth == 1 {
            let secret = lillux::envelope::Secret::new(b"swordfish\n".to_vec());
            let name = "service".parse().unwrap();
            vault.set(Space::User, &name, &secret).unwrap();
        }
        "provided"
    })
    .await;
    assert_eq!(env.received().await, "swordfish,");
    assert_eq!(result.trim(), "it is [redacted]");
}

#[tokio::test]
async fn credential_that_is_not_provided_is_an_error_and_a_warning() {
    let mut env = TestEnv::new();
    let engine = env.engine();
    let result = run_prompt(&engine, None, async |_| "deny").await;
    assert_eq!(result, "service needs a credential: denied by ada");
    assert_eq!(env.received().await, "");
}

/// A token server that accepts each refresh token once.
struct TokenServer {
    address: String,
    /// Received requests.
    asked: Arc<Mutex<Vec<String>>>,
}

impl TokenServer {
    fn serve(answers: Vec<(u16, String)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/token", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let requests = Arc::clone(&asked);
        std::thread::spawn(move || {
            for (status, body) in answers {
                let (stream, _) = listener.accept().unwrap();
                requests.lock().unwrap().push(answer(stream, status, &body));
            }
        });
        Self { address, asked }
    }

    fn token(&self, access: &str, refresh: &str, ends_in: Duration) -> Credential {
        Credential {
            secret: Zeroizing::new(access.to_owned()),
            oauth: Some(OAuth {
                token_url: self.address.clone(),
                client_id: "rye".to_owned(),
                client_secret: Some(Zeroizing::new("client-secret".to_owned())),
                basic_auth: false,
                refresh_token: Some(Zeroizing::new(refresh.to_owned())),
                scope: None,
                expires_at: Some(SystemClock::default().now().after(ends_in)),
            }),
        }
    }
}

fn answer(mut stream: TcpStream, status: u16, body: &str) -> String {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut asked = vec![0; length];
    reader.read_exact(&mut asked).unwrap();
    let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\n");
    let size = body.len();
    write!(stream, "{head}content-length: {size}\r\n\r\n{body}").unwrap();
    String::from_utf8(asked).unwrap()
}

#[tokio::test]
async fn token_is_refreshed_before_it_expires() {
    let mut env = TestEnv::new();
    let tokens = TokenServer::serve(vec![
        (
            200,
            r#"{"access_token":"second-access","expires_in":30,"refresh_token":"second-refresh"}"#
                .to_owned(),
        ),
        (
            200,
            r#"{"access_token":"third-access","expires_in":3600}"#.to_owned(),
        ),
    ]);
    let store = env.credentials();
    let first = tokens.token("first-access", "first-refresh", Duration::from_secs(30));
    store.put(&USER(), "service", &first).await.unwrap();
    for access in ["second-access", "third-access", "third-access"] {
        let engine = env.engine();
        let result = run_prompt(&engine, None, no_gate_expected).await;
        assert_eq!(env.received().await, format!("{access},"));
        assert_eq!(result.trim(), "it is [redacted]");
    }
    let asked = tokens.asked.lock().unwrap().clone();
    let form = |refresh: &str| {
        format!(
            "grant_type=refresh_token&refresh_token={refresh}&client_id=rye&client_secret=client-secret"
        )
    };
    assert_eq!(asked, [form("first-refresh"), form("second-refresh")]);
    for secret in ["third-access", "second-refresh", "client-secret"] {
        assert!(!env.contains_plain_text(secret), "{secret}");
    }
}

#[tokio::test]
async fn revoked_token_is_requested_again() {
    let mut env = TestEnv::new();
    let refused = r#"{"error":"invalid_grant","error_description":"old-refresh is revoked"}"#;
    let tokens = TokenServer::serve(vec![(400, refused.to_owned())]);
    let old = tokens.token("old-access", "old-refresh", Duration::ZERO);
    let new = tokens.token("new-access", "new-refresh", Duration::from_hours(1));
    let store = env.credentials();
    store.put(&USER(), "service", &old).await.unwrap();
    let engine = env.engine();
    let result = run_prompt(&engine, None, async |_| {
        let gate = engine.pending_gates(None).await.unwrap().remove(0);
        assert_eq!(
            gate.body,
            "The credential for service is no longer valid: invalid_grant: [redacted] is revoked"
        );
        store.put(&USER(), "service", &new).await.unwrap();
        "provided"
    })
    .await;
    assert_eq!(env.received().await, "new-access,");
    assert_eq!(result.trim(), "it is [redacted]");
}

#[tokio::test]
async fn unreachable_token_server_does_not_open_a_gate() {
    let mut env = TestEnv::new();
    let busy = || (503, "later".to_owned());
    let tokens = TokenServer::serve(vec![busy(), busy()]);
    let store = env.credentials();
    // A token that is still valid is used; an expired one is an error.
    let soon = tokens.token("soon-over", "a-refresh-token", Duration::from_secs(50));
    store.put(&USER(), "service", &soon).await.unwrap();
    let engine = env.engine();
    run_prompt(&engine, None, no_gate_expected).await;
    assert_eq!(env.received().await, "soon-over,");
    let over = tokens.token("over-already", "a-refresh-token", Duration::ZERO);
    store.put(&USER(), "service", &over).await.unwrap();
    let engine = env.engine();
    let result = run_prompt(&engine, None, no_gate_expected).await;
    assert!(
        result.contains("cannot refresh the credential for service: the server responded with 503"),
        "{result}"
    );
    assert_eq!(env.received().await, "");
}
