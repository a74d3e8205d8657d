//! Feeds: events of several sessions, filtered.

use std::sync::Arc;

use rye_engine::protocol::{EventKind, SessionId};
use rye_engine::{Engine, Feed, Filter, NewSession};
use rye_model::Catalogue;
use rye_sandbox::VirtualSandbox;
use rye_store::MemoryStore;

/// The sessions and types of the next events.
async fn next_events(feed: &mut Feed, count: usize) -> Vec<(SessionId, &'static str)> {
    let mut events = Vec::new();
    while events.len() < count {
        let event = feed.next().await.unwrap().unwrap().event;
        events.push((event.session, event.kind.name()));
    }
    events
}

#[tokio::test]
async fn feed_can_be_filtered_by_session_user_and_type() {
    let script = "steps: [{ text: hello }, { text: again }]";
    let engine = Engine::builder()
        .store(MemoryStore::new())
        .models(Catalogue::new(".").with("scripted:demo", script.parse().unwrap()))
        .sandbox(Arc::new(VirtualSandbox::new()))
        .build()
        .unwrap();
    let make = async |user: &str| {
        let new = NewSession {
            user_id: Some(user.to_owned()),
            ..NewSession::default()
        };
        engine.create_session(new).await.unwrap()
    };
    let (ada, bob) = (make("ada").await, make("bob").await);
    let ends = || ["turn_end".to_owned()].into();
    let mut of_ada = engine.feed_with(Filter {
        user: Some("ada".to_owned()),
        types: ends(),
        ..Filter::default()
    });
    let mut of_bob = engine.feed_with(Filter {
        session: Some(bob.id().clone()),
        ..Filter::default()
    });
    let mut of_all = engine.feed_with(Filter {
        types: ends(),
        ..Filter::default()
    });
    for session in [&bob, &ada, &bob, &ada] {
        session.prompt("hi").await.unwrap();
        let mut events = session.subscribe(0);
        let ended = |kind: &EventKind| matches!(kind, EventKind::TurnEnd { .. });
        while !ended(&events.next().await.unwrap().unwrap().event.kind) {}
    }
    let end = |session: &rye_engine::Session| (session.id().clone(), "turn_end");
    assert_eq!(next_events(&mut of_ada, 2).await, [end(&ada), end(&ada)]);
    let all = next_events(&mut of_all, 4).await;
    assert_eq!(all.iter().filter(|it| **it == end(&bob)).count(), 2);
    let of_bob = next_events(&mut of_bob, 5).await;
    assert!(of_bob.iter().all(|(session, _)| session == bob.id()));
    assert!(of_bob.iter().any(|(_, name)| *name != "turn_end"));
}
