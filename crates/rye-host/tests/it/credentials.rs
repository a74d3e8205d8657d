//! Credentials: whose is found first, tokens that are renewed in time, and gates where
//! there is none that is any good.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rye_engine::clock::{Clock as _, SystemClock};
use rye_engine::credential::{Credential, CredentialStore as _, OAuth, Owner};
use rye_engine::meta_tools::{self, CommandEntry, CommandSpec, CommandTools, Policy, Risk};
use rye_engine::protocol::{EntryKind, EventKind, GateKind, Part};
use rye_engine::sandbox::Sandbox;
use rye_engine::{Decision, Engine, NewSession};
use rye_host::{Credentials, HttpRefresher};
use rye_items::Space;
use rye_items::vault::Vault;
use rye_model::Catalogue;
use rye_sandbox::Virtual;
use rye_store::MemoryStore;
use zeroize::Zeroizing;

const SCRIPT: &str = "
steps:
  - tool_calls: [{ name: call_tool, args: { tool_id: 'command:show', params: {}, summary: look } }]
  - text: done
  - tool_calls: [{ name: call_tool, args: { tool_id: 'command:show', params: {}, summary: look } }]
  - text: done again
";

/// A command that writes its secret where nobody redactor it: into the sandbox.
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

/// A home with its credentials. Each engine has a store and a sandbox of its own.
struct World {
    home: tempfile::TempDir,
    sandbox: Arc<Virtual>,
}

impl World {
    fn new() -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
            sandbox: Arc::new(Virtual::new()),
        }
    }

    fn credentials(&self) -> Credentials {
        let vault = Vault::new(self.home.path(), None);
        Credentials::new(&self.home.path().join("sessions.db"), Some(vault))
    }

    fn engine(&mut self) -> Engine {
        self.sandbox = Arc::new(Virtual::new());
        let sandbox: Arc<dyn Sandbox> = Arc::<Virtual>::clone(&self.sandbox);
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

    /// The secrets that the command was given, each followed by a comma.
    async fn seen(&self) -> String {
        let seen = self.sandbox.read("seen.txt").await.unwrap_or_default();
        String::from_utf8(seen).unwrap()
    }

    /// Whether a text lies open in any file.
    fn lies_open(&self, secret: &str) -> bool {
        fn search(folder: &Path, secret: &[u8]) -> bool {
            let files = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
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

/// Asks once, does at each gate what is to be done there, and gives what the tool said.
async fn ask(
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

async fn nobody(_: usize) -> &'static str {
    unreachable!("somebody is asked")
}

const USER: fn() -> Owner = || Owner::User(String::new());

#[tokio::test]
async fn a_session_goes_before_a_user_and_a_user_before_an_organisation() {
    let mut world = World::new();
    for (owner, secret) in [
        (Owner::Org("acme".to_owned()), "of-the-org"),
        (USER(), "of-the-user"),
        (Owner::Session("one".parse().unwrap()), "of-the-session"),
    ] {
        let credential = Credential::new(secret);
        let put = world.credentials();
        put.put(&owner, "service", &credential).await.unwrap();
        let engine = world.engine();
        let said = ask(&engine, Some("acme"), nobody).await;
        assert_eq!(world.seen().await, format!("{secret},"));
        assert_eq!(said.trim(), "it is [redacted]");
        assert!(!world.lies_open(secret));
    }
    let mut listed = world.credentials().list().await.unwrap();
    listed.retain(|(owner, _)| matches!(owner, Owner::Session(_)));
    assert_eq!(listed.len(), 1);
    // What only a session had goes with it.
    let engine = world.engine();
    ask(&engine, None, nobody).await;
    engine
        .remove_session(&"one".parse().unwrap())
        .await
        .unwrap();
    let listed = world.credentials().list().await.unwrap();
    assert_eq!(listed.len(), 2, "{listed:?}");
}

#[tokio::test]
async fn one_that_is_not_there_is_asked_for_and_used_once_it_is() {
    let mut world = World::new();
    let engine = world.engine();
    let vault = Vault::new(world.home.path(), None);
    let said = ask(&engine, None, async |nth| {
        // Said to be there before it is: asked again.
        if nth == 1 {
            let secret = lillux::envelope::Secret::new(b"swordfish\n".to_vec());
            let name = "service".parse().unwrap();
            vault.set(Space::User, &name, &secret).unwrap();
        }
        "provided"
    })
    .await;
    assert_eq!(world.seen().await, "swordfish,");
    assert_eq!(said.trim(), "it is [redacted]");
}

#[tokio::test]
async fn one_that_nobody_gives_is_an_error_and_a_warning() {
    let mut world = World::new();
    let engine = world.engine();
    let said = ask(&engine, None, async |_| "deny").await;
    assert_eq!(said, "service needs a credential: denied by ada");
    assert_eq!(world.seen().await, "");
}

/// A server that renews tokens: each refresh token once.
struct Tokens {
    address: String,
    /// What was asked, and what is answered: status and body.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Tokens {
    fn serve(answers: Vec<(u16, String)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/token", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let heard = Arc::clone(&asked);
        std::thread::spawn(move || {
            for (status, body) in answers {
                let (stream, _) = listener.accept().unwrap();
                heard.lock().unwrap().push(answer(stream, status, &body));
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
                refresh_token: Zeroizing::new(refresh.to_owned()),
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
async fn a_token_is_renewed_before_it_ends_and_its_refresh_token_too() {
    let mut world = World::new();
    let tokens = Tokens::serve(vec![
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
    let store = world.credentials();
    let first = tokens.token("first-access", "first-refresh", Duration::from_secs(30));
    store.put(&USER(), "service", &first).await.unwrap();
    for access in ["second-access", "third-access", "third-access"] {
        let engine = world.engine();
        let said = ask(&engine, None, nobody).await;
        assert_eq!(world.seen().await, format!("{access},"));
        assert_eq!(said.trim(), "it is [redacted]");
    }
    let asked = tokens.asked.lock().unwrap().clone();
    let form = |refresh: &str| {
        format!(
            "grant_type=refresh_token&refresh_token={refresh}&client_id=rye&client_secret=client-secret"
        )
    };
    assert_eq!(asked, [form("first-refresh"), form("second-refresh")]);
    for secret in ["third-access", "second-refresh", "client-secret"] {
        assert!(!world.lies_open(secret), "{secret}");
    }
}

#[tokio::test]
async fn a_token_that_cannot_be_renewed_any_more_is_asked_for() {
    let mut world = World::new();
    let refused = r#"{"error":"invalid_grant","error_description":"old-refresh is revoked"}"#;
    let tokens = Tokens::serve(vec![(400, refused.to_owned())]);
    let old = tokens.token("old-access", "old-refresh", Duration::ZERO);
    let new = tokens.token("new-access", "new-refresh", Duration::from_hours(1));
    let store = world.credentials();
    store.put(&USER(), "service", &old).await.unwrap();
    let engine = world.engine();
    let said = ask(&engine, None, async |_| {
        let gate = engine.pending_gates(None).await.unwrap().remove(0);
        assert_eq!(
            gate.body,
            "The credential for service is no longer valid: invalid_grant: [redacted] is revoked"
        );
        store.put(&USER(), "service", &new).await.unwrap();
        "provided"
    })
    .await;
    assert_eq!(world.seen().await, "new-access,");
    assert_eq!(said.trim(), "it is [redacted]");
}

#[tokio::test]
async fn a_server_that_is_down_is_no_reason_to_ask_a_person() {
    let mut world = World::new();
    let busy = || (503, "later".to_owned());
    let tokens = Tokens::serve(vec![busy(), busy()]);
    let store = world.credentials();
    // One that holds for some seconds yet is used; one that has ended is an error.
    let soon = tokens.token("soon-over", "a-refresh-token", Duration::from_secs(50));
    store.put(&USER(), "service", &soon).await.unwrap();
    let engine = world.engine();
    ask(&engine, None, nobody).await;
    assert_eq!(world.seen().await, "soon-over,");
    let over = tokens.token("over-already", "a-refresh-token", Duration::ZERO);
    store.put(&USER(), "service", &over).await.unwrap();
    let engine = world.engine();
    let said = ask(&engine, None, nobody).await;
    assert!(
        said.contains("cannot refresh the credential for service: the server said 503"),
        "{said}"
    );
    assert_eq!(world.seen().await, "");
}
