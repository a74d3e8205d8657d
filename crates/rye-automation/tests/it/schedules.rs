//! Schedules with real engines on one database.

use rye_automation::{
    Action, AutomationError, FiringOutcome, MissedPolicy, NewSchedule, Occasion, Schedule,
};
use rye_engine::documents::{DocumentKind, DocumentWrite};
use rye_engine::protocol::{Millis, TurnEnd};
use serde_json::{Map, json};

use crate::support::{Cluster, PROJECT, Server, owner};

const MINUTE: u64 = 60_000;

fn prompt(text: &str) -> Action {
    Action::Prompt {
        text: text.to_owned(),
        session: None,
        thread: None,
        model: None,
        role: None,
    }
}

/// Due every minute.
fn every_minute(action: Action) -> NewSchedule {
    NewSchedule {
        name: None,
        cron: "* * * * *".to_owned(),
        time_zone: "UTC".to_owned(),
        missed: MissedPolicy::Skip,
        action,
        owner: owner(),
    }
}

async fn get(cluster: &Cluster, schedule: &Schedule) -> Schedule {
    let found = cluster.schedules().get(schedule.id.as_str()).await;
    found.unwrap().unwrap()
}

/// Sets the clock and lets a server fire.
async fn fire_at(cluster: &Cluster, server: &Server, now: u64) {
    cluster.clock.set(Millis(now));
    server.scheduler.fire_due().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn schedule_starts_a_session_at_each_due_time() {
    let cluster = Cluster::new();
    let server = cluster.server();
    let added = cluster.schedules().add(every_minute(prompt("go"))).await;
    let added = added.unwrap();
    assert_eq!(added.next, Some(Millis(MINUTE)));
    fire_at(&cluster, &server, MINUTE - 1).await;
    assert_eq!(get(&cluster, &added).await, added);

    fire_at(&cluster, &server, MINUTE + 1).await;
    let fired = get(&cluster, &added).await;
    assert_eq!(fired.next, Some(Millis(2 * MINUTE)));
    let last = fired.last.clone().unwrap();
    assert_eq!((last.due, last.at), (Millis(MINUTE), Millis(MINUTE + 1)));
    assert_eq!(server.wait(&fired).await.reason, TurnEnd::EndTurn);
    fire_at(&cluster, &server, 2 * MINUTE - 1).await;
    assert_eq!(get(&cluster, &added).await, fired);

    fire_at(&cluster, &server, 2 * MINUTE).await;
    server.wait(&get(&cluster, &added).await).await;
    let first = format!("schedule-{}-{MINUTE}", added.id);
    let second = format!("schedule-{}-{}", added.id, 2 * MINUTE);
    assert_eq!(server.prompts().await, [(first.clone(), 1), (second, 1)]);
    let session = server.engine.session_data(&first.parse().unwrap()).await;
    let session = session.unwrap().unwrap();
    assert_eq!(session.user_id.as_deref(), Some("ada"));
    assert_eq!(session.project.as_deref(), Some(PROJECT));
    assert_eq!(session.metadata["schedule"], json!(added.id));
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_to_one_session_wait_in_its_queue() {
    let cluster = Cluster::new();
    let server = cluster.server();
    let new = rye_engine::NewSession {
        id: Some("standup".parse().unwrap()),
        user_id: Some("ada".to_owned()),
        ..Default::default()
    };
    server.engine.create_session(new).await.unwrap();
    let action = Action::Prompt {
        text: "go".to_owned(),
        session: Some("standup".parse().unwrap()),
        thread: Some("daily".to_owned()),
        model: None,
        role: None,
    };
    let added = cluster.schedules().add(every_minute(action)).await.unwrap();
    for minute in 1..=3 {
        fire_at(&cluster, &server, minute * MINUTE).await;
        server.wait(&get(&cluster, &added).await).await;
    }
    assert_eq!(server.prompts().await, [("standup".to_owned(), 3)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_servers_fire_each_schedule_once() {
    let cluster = Cluster::new();
    let servers = [cluster.server(), cluster.server(), cluster.server()];
    let schedules = cluster.schedules();
    let mut all = Vec::new();
    for number in 0..20 {
        let new = every_minute(prompt(&format!("go {number}")));
        all.push(schedules.add(new).await.unwrap());
    }
    for minute in 1..=2 {
        cluster.clock.set(Millis(minute * MINUTE));
        let [a, b, c] = &servers;
        let (a, b, c) = tokio::join!(
            a.scheduler.fire_due(),
            b.scheduler.fire_due(),
            c.scheduler.fire_due()
        );
        a.and(b).and(c).unwrap();
    }
    let mut expected = Vec::new();
    for schedule in &all {
        let fired = get(&cluster, schedule).await;
        assert_eq!(fired.next, Some(Millis(3 * MINUTE)));
        servers[0].wait(&fired).await;
        for minute in 1..=2 {
            expected.push((format!("schedule-{}-{}", schedule.id, minute * MINUTE), 1));
        }
    }
    for (session, _) in &expected {
        let (session, prompt) = (session.parse().unwrap(), session.parse().unwrap());
        servers[1].engine.answer(&session, &prompt).await.unwrap();
    }
    let mut prompts = servers[2].prompts().await;
    prompts.sort();
    expected.sort();
    assert_eq!(prompts, expected);
}

/// The server dies after it has claimed the firing, or after it has sent the prompt.
#[tokio::test(flavor = "multi_thread")]
async fn firing_of_a_dead_server_is_taken_over_and_starts_nothing_twice() {
    for has_started in [false, true] {
        let cluster = Cluster::new();
        let server = cluster.server();
        let added = cluster.schedules().add(every_minute(prompt("go"))).await;
        let added = added.unwrap();
        let claimed_until = MINUTE + 15_000;
        let document = cluster
            .documents
            .get(DocumentKind::Schedule, added.id.as_str());
        let document = document.await.unwrap().unwrap();
        let mut body = document.body.clone();
        body["claimed_until"] = json!(claimed_until);
        let claim = DocumentWrite::replace(&document, Some(Millis(claimed_until)), body);
        assert!(cluster.documents.write(vec![claim]).await.unwrap());
        if has_started {
            let occasion = Occasion {
                key: format!("schedule-{}-{MINUTE}", added.id),
                channel: "schedule",
                metadata: Map::new(),
            };
            let (action, owner) = (&added.action, &added.owner);
            let started = server.launcher.start(action, owner, occasion).await;
            started.unwrap();
        }
        fire_at(&cluster, &server, claimed_until - 1).await;
        assert_eq!(get(&cluster, &added).await.last, None);
        // However late it is.
        fire_at(&cluster, &server, claimed_until + 10 * MINUTE).await;
        let fired = get(&cluster, &added).await;
        assert_eq!(fired.last.as_ref().unwrap().due, Millis(MINUTE));
        assert_eq!(fired.next, Some(Millis(12 * MINUTE)));
        server.wait(&fired).await;
        let session = format!("schedule-{}-{MINUTE}", added.id);
        assert_eq!(server.prompts().await, [(session, 1)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missed_firings_follow_the_policy() {
    let cluster = Cluster::new();
    let server = cluster.server();
    let skipping = cluster.schedules().add(every_minute(prompt("skip"))).await;
    let once = NewSchedule {
        missed: MissedPolicy::Once,
        ..every_minute(prompt("once"))
    };
    let once = cluster.schedules().add(once).await.unwrap();
    let skipping = skipping.unwrap();
    fire_at(&cluster, &server, 100 * MINUTE + 1).await;
    for schedule in [&skipping, &once] {
        let fired = get(&cluster, schedule).await;
        assert_eq!(fired.next, Some(Millis(101 * MINUTE)));
        assert_eq!(fired.last.unwrap().due, Millis(MINUTE));
    }
    let skipped = get(&cluster, &skipping).await.last.unwrap();
    assert_eq!(skipped.outcome, FiringOutcome::Missed);
    server.wait(&get(&cluster, &once).await).await;
    let session = format!("schedule-{}-{MINUTE}", once.id);
    assert_eq!(server.prompts().await, [(session, 1)]);
    // A firing that is a little late is not missed.
    fire_at(&cluster, &server, 101 * MINUTE + 59_000).await;
    let fired = get(&cluster, &skipping).await;
    server.wait(&fired).await;
    assert_eq!(fired.next, Some(Millis(102 * MINUTE)));
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_schedule_fires_only_when_it_is_told_to() {
    let cluster = Cluster::new();
    let server = cluster.server();
    let schedules = cluster.schedules();
    let added = schedules.add(every_minute(prompt("go"))).await.unwrap();
    let id = added.id.as_str();
    assert_eq!(schedules.set_paused(id, true).await.unwrap().next, None);
    fire_at(&cluster, &server, 5 * MINUTE).await;
    assert_eq!(get(&cluster, &added).await.last, None);
    schedules.run_now(id).await.unwrap();
    fire_at(&cluster, &server, 5 * MINUTE).await;
    let fired = get(&cluster, &added).await;
    server.wait(&fired).await;
    assert_eq!(fired.next, None);
    let resumed = schedules.set_paused(id, false).await.unwrap();
    assert_eq!(resumed.next, Some(Millis(6 * MINUTE)));
    schedules.remove(id).await.unwrap();
    fire_at(&cluster, &server, 6 * MINUTE).await;
    assert_eq!(server.prompts().await.len(), 1);
    let removed = schedules.remove(id).await.unwrap_err();
    assert_eq!(removed.to_string(), format!("there is no schedule {id}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_is_recorded_and_the_schedule_goes_on() {
    let cluster = Cluster::new();
    let server = cluster.server();
    let schedules = cluster.schedules();
    let session = |name: &str| Action::Prompt {
        text: "go".to_owned(),
        session: Some(name.parse().unwrap()),
        thread: None,
        model: None,
        role: None,
    };
    let missing = schedules.add(every_minute(session("missing"))).await;
    let graph = Action::Graph {
        graph: "my/graph".to_owned(),
        inputs: Map::new(),
    };
    let graph = schedules.add(every_minute(graph)).await.unwrap();
    // A session of somebody else does not exist for the owner.
    let new = rye_engine::NewSession {
        id: Some("foreign".parse().unwrap()),
        user_id: Some("grace".to_owned()),
        ..Default::default()
    };
    server.engine.create_session(new).await.unwrap();
    let foreign = schedules.add(every_minute(session("foreign"))).await;
    fire_at(&cluster, &server, MINUTE).await;
    for schedule in [missing.unwrap(), graph, foreign.unwrap()] {
        let fired = get(&cluster, &schedule).await;
        assert_eq!(fired.next, Some(Millis(2 * MINUTE)));
        let outcome = fired.last.unwrap().outcome;
        let FiringOutcome::Failed { code, .. } = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(code, "not_found");
    }
}

/// It would work with the items and policy of the wrong project.
#[tokio::test(flavor = "multi_thread")]
async fn schedule_of_another_project_is_left_to_its_server() {
    let cluster = Cluster::new();
    let server = cluster.server();
    let mut new = every_minute(prompt("go"));
    new.owner.project = "/other".to_owned();
    let added = cluster.schedules().add(new).await.unwrap();
    fire_at(&cluster, &server, MINUTE).await;
    assert_eq!(get(&cluster, &added).await, added);
}

#[tokio::test]
async fn invalid_schedule_is_refused() {
    let cluster = Cluster::new();
    let schedules = cluster.schedules();
    let invalid = NewSchedule {
        cron: "every day".to_owned(),
        ..every_minute(prompt("go"))
    };
    let refused = schedules.add(invalid).await.unwrap_err();
    assert!(matches!(refused, AutomationError::InvalidCron { .. }));
    let unknown = NewSchedule {
        time_zone: "Berlin".to_owned(),
        ..every_minute(prompt("go"))
    };
    let refused = schedules.add(unknown).await.unwrap_err();
    assert_eq!(refused.to_string(), "unknown time zone `Berlin`");
    let refused = schedules.add(every_minute(prompt("  "))).await.unwrap_err();
    assert!(matches!(refused, AutomationError::Invalid { .. }));
    assert!(schedules.list().await.unwrap().is_empty());
}
