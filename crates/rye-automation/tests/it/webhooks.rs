//! Webhooks and hooks, with a real receiver on this machine.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rye_automation::{
    Action, DeliveryStatus, HookError, HookRequest, NewHook, NewWebhook, Owner, SigningSecret,
    Webhook,
};
use rye_engine::protocol::{Millis, TurnEnd};
use rye_engine::{NewSession, Prompt};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{Cluster, PROJECT, Server, owner};

/// A request that the receiver got.
#[derive(Debug, Clone)]
struct Received {
    head: String,
    body: String,
}

impl Received {
    fn header(&self, name: &str) -> &str {
        let prefix = format!("{name}: ");
        let line = self
            .head
            .lines()
            .find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_default()
    }
}

/// An HTTP server that answers each request with the next status, or with 200.
struct Receiver {
    url: String,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    async fn start(answers: &[&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let (all, answers) = (Arc::clone(&received), answers.to_vec());
        tokio::spawn(async move {
            let mut answers = answers.into_iter();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut text = String::new();
                let mut buffer = [0; 4096];
                let request = loop {
                    let count = stream.read(&mut buffer).await.unwrap();
                    text += std::str::from_utf8(&buffer[..count]).unwrap();
                    let Some((head, body)) = text.split_once("\r\n\r\n") else {
                        continue;
                    };
                    let head = head.to_lowercase();
                    let length = head.split("content-length: ").nth(1).unwrap();
                    let length: usize = length.lines().next().unwrap().parse().unwrap();
                    if body.len() >= length {
                        break Received {
                            head,
                            body: body.to_owned(),
                        };
                    }
                };
                all.lock().push(request);
                let answer = answers.next().unwrap_or("200 OK");
                let response = format!(
                    "HTTP/1.1 {answer}\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                );
                stream.write_all(response.as_bytes()).await.unwrap();
            }
        });
        Self { url, received }
    }

    fn all(&self) -> Vec<Received> {
        self.received.lock().clone()
    }
}

fn webhook(url: &str) -> NewWebhook {
    NewWebhook {
        name: None,
        url: url.to_owned(),
        events: vec!["turn_end".to_owned()],
        allow_private: true,
        owner: owner(),
    }
}

/// The owner of everything in the project.
fn everybody() -> Owner {
    Owner {
        user: None,
        ..owner()
    }
}

/// Runs a prompt in a session of a user.
async fn prompt(server: &Server, session: &str, user: &str) {
    let new = NewSession {
        id: Some(session.parse().unwrap()),
        user_id: Some(user.to_owned()),
        project: Some(PROJECT.to_owned()),
        ..NewSession::default()
    };
    let session = server.engine.create_session(new).await.unwrap();
    let id = server.engine.submit(session.id(), Prompt::from("go")).await;
    let answer = session.wait_for_answer(&id.unwrap()).await.unwrap();
    assert_eq!(answer.reason, TurnEnd::EndTurn);
}

async fn collect_and_send(server: &Server) {
    server.outbox.lock().await.collect_all().await.unwrap();
    server.sender.send_due().await.unwrap();
}

/// Sets the clock of the servers to that of the events, plus some time.
fn set_clock(cluster: &Cluster, later: Duration) -> Millis {
    let now = lillux::time::now().epoch_ms.cast_unsigned();
    let now = Millis(now).after(later);
    cluster.clock.set(now);
    now
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_sent_with_a_signature_once() {
    let cluster = Cluster::new();
    let receiver = Receiver::start(&[]).await;
    let (first, second) = (cluster.server(), cluster.server());
    prompt(&first, "before", "ada").await;
    set_clock(&cluster, Duration::ZERO);
    let (added, secret) = cluster
        .webhooks()
        .add(webhook(&receiver.url))
        .await
        .unwrap();
    prompt(&first, "own", "ada").await;
    prompt(&first, "foreign", "grace").await;
    set_clock(&cluster, Duration::ZERO);
    tokio::join!(collect_and_send(&first), collect_and_send(&second));
    tokio::join!(collect_and_send(&first), collect_and_send(&second));

    let all = receiver.all();
    assert_eq!(all.len(), 1, "{all:?}");
    let body: Value = serde_json::from_str(&all[0].body).unwrap();
    assert_eq!(body["type"], "turn_end");
    assert_eq!(body["data"]["session"], "own");
    assert_eq!(body["data"]["kind"]["reason"], "end_turn");
    let secret = SigningSecret::parse(&secret).unwrap();
    let raw = receiver.received.lock()[0].clone();
    let id = raw.header("webhook-id");
    let deliveries = cluster.webhooks().deliveries(&added.id, None, 10).await;
    let deliveries = deliveries.unwrap();
    assert_eq!(deliveries.len(), 1);
    assert_eq!(deliveries[0].id.as_str(), id);
    assert_eq!(deliveries[0].status, DeliveryStatus::Delivered);
    assert_eq!(deliveries[0].last_status, Some(200));
    // Lower-cased by the receiver, so it is computed again.
    let time = raw.header("webhook-timestamp");
    let expected = secret.sign(id, time, raw.body.as_bytes()).to_lowercase();
    assert_eq!(raw.header("webhook-signature"), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_delivery_is_repeated_with_the_same_id_and_can_be_replayed() {
    let cluster = Cluster::new();
    let receiver = Receiver::start(&["500 Oops", "302 Found"]).await;
    let server = cluster.server();
    set_clock(&cluster, Duration::ZERO);
    let (added, _) = cluster
        .webhooks()
        .add(webhook(&receiver.url))
        .await
        .unwrap();
    prompt(&server, "s", "ada").await;
    set_clock(&cluster, Duration::ZERO);
    collect_and_send(&server).await;
    let get = async || {
        let found = cluster.webhooks().deliveries(&added.id, None, 10).await;
        found.unwrap().remove(0)
    };
    let refused = get().await;
    assert_eq!(
        (refused.status, refused.attempts),
        (DeliveryStatus::Pending, 1)
    );
    assert_eq!(refused.last_status, Some(500));
    server.sender.send_due().await.unwrap();
    assert_eq!(receiver.all().len(), 1, "not before its time");
    set_clock(&cluster, Duration::from_secs(10));
    server.sender.send_due().await.unwrap();
    // A redirect is not followed.
    assert_eq!(get().await.last_status, Some(302));
    set_clock(&cluster, Duration::from_secs(1000));
    server.sender.send_due().await.unwrap();
    assert_eq!(get().await.status, DeliveryStatus::Delivered);
    cluster
        .webhooks()
        .replay(&added.id, refused.id.as_str())
        .await
        .unwrap();
    server.sender.send_due().await.unwrap();
    let all = receiver.all();
    assert_eq!(all.len(), 4);
    assert!(
        all.iter()
            .all(|it| it.header("webhook-id") == refused.id.as_str())
    );
    assert!(all.iter().all(|it| it.body == refused.payload));
    // The record is kept for a week.
    set_clock(&cluster, Duration::from_hours(8 * 24));
    server.sender.send_due().await.unwrap();
    let found = cluster.webhooks().deliveries(&added.id, None, 10).await;
    assert_eq!(found.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_are_refused_unless_allowed() {
    let cluster = Cluster::new();
    let receiver = Receiver::start(&[]).await;
    let server = cluster.server();
    set_clock(&cluster, Duration::ZERO);
    let port = receiver.url.rsplit(':').next().unwrap();
    let mut added: Vec<Webhook> = Vec::new();
    for host in [
        "127.0.0.1",
        "[::1]",
        "localhost",
        "[::ffff:127.0.0.1]",
        "2130706433",
        "0x7f.1",
    ] {
        let new = NewWebhook {
            allow_private: false,
            ..webhook(&format!("http://{host}:{port}"))
        };
        added.push(cluster.webhooks().add(new).await.unwrap().0);
    }
    prompt(&server, "s", "ada").await;
    set_clock(&cluster, Duration::ZERO);
    collect_and_send(&server).await;
    for webhook in added {
        let found = cluster.webhooks().deliveries(&webhook.id, None, 10).await;
        let delivery = found.unwrap().remove(0);
        let error = delivery.last_error.unwrap();
        assert!(error.contains("is not public"), "{} {error}", webhook.url);
    }
    assert!(receiver.all().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn receiver_that_is_gone_disables_the_webhook() {
    let cluster = Cluster::new();
    let receiver = Receiver::start(&["410 Gone"]).await;
    let server = cluster.server();
    set_clock(&cluster, Duration::ZERO);
    let new = NewWebhook {
        owner: everybody(),
        ..webhook(&receiver.url)
    };
    let (added, _) = cluster.webhooks().add(new).await.unwrap();
    prompt(&server, "s", "grace").await;
    set_clock(&cluster, Duration::ZERO);
    collect_and_send(&server).await;
    prompt(&server, "t", "grace").await;
    set_clock(&cluster, Duration::from_secs(1000));
    collect_and_send(&server).await;
    assert_eq!(receiver.all().len(), 1);
    let found = cluster.webhooks().get(added.id.as_str()).await.unwrap();
    assert!(found.unwrap().disabled.is_some());
}

/// The server dies after it has claimed the delivery.
#[tokio::test(flavor = "multi_thread")]
async fn delivery_of_a_dead_server_is_sent_again() {
    let cluster = Cluster::new();
    let receiver = Receiver::start(&[]).await;
    let server = cluster.server();
    set_clock(&cluster, Duration::ZERO);
    let (added, _) = cluster
        .webhooks()
        .add(webhook(&receiver.url))
        .await
        .unwrap();
    prompt(&server, "s", "ada").await;
    set_clock(&cluster, Duration::ZERO);
    server.outbox.lock().await.collect_all().await.unwrap();
    let kind = rye_engine::documents::DocumentKind::WebhookDelivery;
    let queued = cluster
        .documents
        .due(kind, Millis(u64::MAX), 10)
        .await
        .unwrap()
        .remove(0);
    let claimed = set_clock(&cluster, Duration::from_secs(20));
    let claim =
        rye_engine::documents::DocumentWrite::replace(&queued, Some(claimed), queued.body.clone());
    assert!(cluster.documents.write(vec![claim]).await.unwrap());
    cluster.clock.set(Millis(claimed.0 - 1));
    server.sender.send_due().await.unwrap();
    assert!(receiver.all().is_empty());
    cluster.clock.set(claimed);
    server.sender.send_due().await.unwrap();
    assert_eq!(receiver.all().len(), 1);
    let found = cluster.webhooks().deliveries(&added.id, None, 10).await;
    assert_eq!(found.unwrap()[0].status, DeliveryStatus::Delivered);
}

#[tokio::test]
async fn invalid_urls_are_refused() {
    let cluster = Cluster::new();
    for url in [
        "",
        "example.org",
        "ftp://example.org/",
        "https://ada:secret@example.org/",
    ] {
        let refused = cluster.webhooks().add(webhook(url)).await;
        assert!(refused.is_err(), "{url}");
    }
}

fn hook(text: &str) -> NewHook {
    NewHook {
        name: None,
        action: Action::Prompt {
            text: text.to_owned(),
            session: None,
            thread: None,
            model: None,
            role: None,
        },
        owner: owner(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_request_starts_a_prompt_once() {
    let cluster = Cluster::new();
    let server = cluster.server();
    cluster.clock.set(Millis(1_000_000_000));
    let hooks = cluster.hooks();
    let (added, secret) = hooks.add(hook("Triage this:")).await.unwrap();
    let secret = SigningSecret::parse(&secret).unwrap();
    let (timestamp, body) = ("1000000", br#"{ "issue": 7 }"#);
    let signature = secret.sign("msg_1", timestamp, body);
    let request = HookRequest {
        id: "msg_1",
        timestamp,
        signature: &signature,
        body,
    };
    let id = added.id.as_str();
    let receive = async |request| hooks.receive(id, request, &server.launcher).await;
    let started = receive(request).await.unwrap();
    let answer = server
        .engine
        .answer(&started.session, started.prompt.as_ref().unwrap());
    answer.await.unwrap();
    assert_eq!(server.prompts().await, [(started.session.to_string(), 1)]);
    let prompt = server
        .engine
        .prompt(&started.session, started.prompt.as_ref().unwrap());
    let prompt = prompt.await.unwrap().unwrap();
    assert!(
        prompt.content.starts_with("Triage this:"),
        "{}",
        prompt.content
    );
    assert!(
        prompt.content.contains(r#"{ "issue": 7 }"#),
        "{}",
        prompt.content
    );

    assert_eq!(receive(request).await, Err(HookError::Replayed));
    let other = HookRequest {
        id: "msg_2",
        ..request
    };
    assert_eq!(receive(other).await, Err(HookError::Signature));
    let other = HookRequest {
        body: b"{}",
        ..request
    };
    assert_eq!(receive(other).await, Err(HookError::Signature));
    let other = HookRequest {
        timestamp: "1000301",
        ..request
    };
    assert_eq!(receive(other).await, Err(HookError::Stale));
    let other = HookRequest {
        timestamp: "soon",
        ..request
    };
    assert!(matches!(receive(other).await, Err(HookError::Header(_))));
    // The record is deleted only when the timestamp is refused.
    cluster.clock.set(Millis(1_000_000_000 + 299_000));
    hooks.forget_requests().await.unwrap();
    assert_eq!(receive(request).await, Err(HookError::Replayed));
    cluster.clock.set(Millis(1_000_000_000 + 601_000));
    hooks.forget_requests().await.unwrap();
    assert_eq!(receive(request).await, Err(HookError::Stale));
    assert_eq!(server.prompts().await.len(), 1);
}

/// The server dies after the start: the sender gets no answer and repeats the request.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_repetitions_start_one_prompt() {
    let cluster = Cluster::new();
    let (first, second) = (cluster.server(), cluster.server());
    cluster.clock.set(Millis(1_000_000_000));
    let hooks = cluster.hooks();
    let (added, secret) = hooks.add(hook("go")).await.unwrap();
    let secret = SigningSecret::parse(&secret).unwrap();
    let signature = secret.sign("msg_1", "1000000", b"");
    let request = HookRequest {
        id: "msg_1",
        timestamp: "1000000",
        signature: &signature,
        body: b"",
    };
    let id = added.id.as_str();
    let (one, two) = tokio::join!(
        hooks.receive(id, request, &first.launcher),
        hooks.receive(id, request, &second.launcher),
    );
    let accepted: Vec<_> = [one, two].into_iter().filter_map(Result::ok).collect();
    assert_eq!(accepted.len(), 1, "{accepted:?}");
    let prompt = accepted[0].prompt.clone().unwrap();
    first
        .engine
        .answer(&accepted[0].session, &prompt)
        .await
        .unwrap();
    assert_eq!(
        first.prompts().await,
        [(accepted[0].session.to_string(), 1)]
    );
}
