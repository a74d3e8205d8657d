//! Sessions that did not go as planned, replayed: what was done to them is done again, and
//! what comes of it is the same, entry for entry.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rye_engine::BoxFuture;
use rye_engine::compaction::Settings;
use rye_engine::guides::{GuideFuture, Guides, Role, Skill};
use rye_engine::model::{Model, Models, RetryPolicy};
use rye_engine::protocol::{
    Archive, EntryKind, EventKind, Limits, Millis, PromptId, PromptStatus, QueueMode, TurnEnd,
};
use rye_engine::sandbox::Sandbox;
use rye_engine::store::Claim;
use rye_engine::tool::{Approval, Effect, Tool, ToolContext, ToolDef, ToolError, ToolOutput};
use rye_engine::{Decision, Engine, NewSession, Prompt, Session};
use rye_host::replay::{CurrentSetup, ReplayOutcome, replay};
use rye_model::{Script, Scripted};
use rye_sandbox::Virtual;
use rye_store::MemoryStore;
use serde_json::{Value, json};
use tokio::sync::Notify;

/// Scripts by name, each of which stands in for `a`.
#[derive(Clone)]
struct Scripts(BTreeMap<String, Arc<Scripted>>);

impl Scripts {
    fn of(scripts: &[(&str, &str)]) -> Self {
        let read = |text: &str| Arc::new(Scripted::from(text.parse::<Script>().unwrap()));
        let all = scripts.iter();
        Self(
            all.map(|(name, text)| ((*name).to_owned(), read(text)))
                .collect(),
        )
    }
}

impl Models for Scripts {
    fn get(&self, name: &str) -> Result<Arc<dyn Model>, String> {
        let model = self.0.get(name).cloned();
        model
            .map(|model| model as Arc<dyn Model>)
            .ok_or_else(|| format!("there is no model {name}"))
    }

    fn default_name(&self) -> String {
        "a".to_owned()
    }

    fn failover(&self, name: &str) -> Vec<String> {
        self.0.keys().filter(|it| *it != name).cloned().collect()
    }

    fn retry(&self) -> RetryPolicy {
        RetryPolicy {
            max_attempts: 1,
            ..RetryPolicy::default()
        }
    }
}

/// Gives its name, once it is let; or never.
struct CredentialFuture {
    def: ToolDef,
    let_go: Option<Arc<Notify>>,
}

impl Tool for CredentialFuture {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn run(&self, _: Value, _: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async {
            match &self.let_go {
                Some(let_go) => let_go.notified().await,
                None => std::future::pending().await,
            }
            Ok(ToolOutput::text(self.def.spec.name.as_str()))
        })
    }
}

/// `first` and `second` give something when they are let, `asked` when a person lets it too,
/// and `never` does not.
fn tools(let_go: &[Arc<Notify>; 2]) -> Vec<Arc<dyn Tool>> {
    let schema = json!({ "type": "object" });
    let def = |name: &str, effect| ToolDef::new(name, "A test.", schema.clone()).effect(effect);
    let [first, second] = let_go.clone();
    let mut asked = def("asked", Effect::Pure);
    asked.approval = Approval::Always;
    let held = |def, let_go| Arc::new(CredentialFuture { def, let_go }) as Arc<dyn Tool>;
    vec![
        held(def("first", Effect::Pure), Some(first)),
        held(def("second", Effect::Pure), Some(second)),
        held(def("never", Effect::AtMostOnce), None),
        held(asked, Some(Arc::clone(&let_go[0]))),
    ]
}

struct NoGuides;

impl Guides for NoGuides {
    fn role<'a>(&'a self, name: &'a str, _: &'a dyn Sandbox) -> GuideFuture<'a, Role> {
        Box::pin(async move { Err(format!("there is no role `{name}`")) })
    }

    fn skill<'a>(&'a self, name: &'a str, _: &'a dyn Sandbox) -> GuideFuture<'a, Skill> {
        Box::pin(async move { Err(format!("there is no skill `{name}`")) })
    }

    fn skills<'a>(&'a self, _: &'a dyn Sandbox) -> BoxFuture<'a, Vec<Skill>> {
        Box::pin(async { Vec::new() })
    }

    fn rules<'a>(&'a self, _: &'a dyn Sandbox) -> BoxFuture<'a, Option<String>> {
        Box::pin(async { None })
    }
}

/// A session, and all it needs.
struct World {
    engine: Engine,
    session: Session,
    models: Scripts,
    let_go: [Arc<Notify>; 2],
}

fn settings() -> Settings {
    Settings {
        tail_min_tokens: 200,
        tail_max_tokens: 200,
        ..Settings::default()
    }
}

impl World {
    async fn new(scripts: &[(&str, &str)]) -> Self {
        let (models, let_go) = (Scripts::of(scripts), <[Arc<Notify>; 2]>::default());
        let engine = Engine::builder()
            .store(MemoryStore::new())
            .models(models.clone())
            .sandbox(Arc::new(Virtual::new()))
            .tools(tools(&let_go))
            .guides(NoGuides)
            .compaction(settings())
            .build()
            .unwrap();
        let session = engine.create_session(NewSession::default()).await.unwrap();
        Self {
            engine,
            session,
            models,
            let_go,
        }
    }

    /// Asks, and waits until all that comes of it is done.
    async fn ask(&self, prompt: impl Into<Prompt>) -> TurnEnd {
        let prompt = self.session.prompt(prompt).await.unwrap();
        let answer = self.session.wait_for_answer(&prompt).await.unwrap();
        self.session.wait_idle("default").await.unwrap();
        answer.reason
    }

    /// Asks, and waits until something is told of it.
    async fn until(
        &self,
        prompt: impl Into<Prompt>,
        what: impl Fn(&EventKind) -> bool,
    ) -> PromptId {
        // What is told live is told to whoever listens by then.
        let mut events = self
            .session
            .subscribe(self.session.last_event().await.unwrap());
        let prompt = self.session.prompt(prompt).await.unwrap();
        while !what(&events.next().await.unwrap().unwrap().event.kind) {}
        prompt
    }

    async fn archive(&self) -> Archive {
        let id = self.session.id();
        self.engine.export(id).await.unwrap().remove(0)
    }

    /// Replays it, and gives the record too.
    async fn again(&self) -> (Archive, ReplayOutcome) {
        let archive = self.archive().await;
        let setup = CurrentSetup {
            tools: tools(&self.let_go),
            guides: Arc::new(NoGuides),
            compaction: settings(),
            models: Arc::new(self.models.clone()),
        };
        let replayed = tokio::time::timeout(Duration::from_mins(1), replay(&archive, &setup));
        let replayed = replayed.await.unwrap().unwrap();
        (archive, replayed)
    }

    /// Replays it, and wants the same to come of it.
    async fn is_the_same(&self, prompts: usize) -> Archive {
        let (archive, replayed) = self.again().await;
        let said = |kind: &EntryKind| matches!(kind, EntryKind::Message(_));
        let entries = archive.entries.iter().filter(|it| said(&it.kind)).count();
        let expected = ReplayOutcome {
            prompts,
            entries,
            ..ReplayOutcome::default()
        };
        assert_eq!(replayed, expected);
        archive
    }
}

fn statuses(archive: &Archive) -> Vec<PromptStatus> {
    archive.prompts.iter().map(|prompt| prompt.status).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_that_failed_fails_again_and_the_next_ones_follow() {
    let world = World::new(&[(
        "a",
        "steps:\n\
         - text: Hello.\n\
         - { error: invalid_request, times: 2, then: { text: Now. } }\n\
         - text: Bye.\n",
    )])
    .await;
    for (prompt, end) in [
        ("hi", TurnEnd::EndTurn),
        ("what?", TurnEnd::Error),
        ("what, once more?", TurnEnd::Error),
        ("and now?", TurnEnd::EndTurn),
    ] {
        assert_eq!(world.ask(prompt).await, end, "{prompt}");
    }
    let unknown = Prompt {
        role: Some("nobody".to_owned()),
        ..Prompt::from("be nobody")
    };
    assert_eq!(world.ask(unknown).await, TurnEnd::Error);
    assert_eq!(world.ask("bye").await, TurnEnd::EndTurn);
    world.is_the_same(6).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_and_a_result_that_does_not_fit_end_a_prompt_again() {
    let world = World::new(&[(
        "a",
        "steps:\n- tool_calls: [{ name: first }]\n- text: so\n- text: and so\n- text: Bye.\n",
    )])
    .await;
    world.let_go[0].notify_one();
    let limited = Prompt {
        limits: Limits {
            turns: Some(1),
            ..Limits::default()
        },
        ..Prompt::from("once")
    };
    assert_eq!(world.ask(limited).await, TurnEnd::Limit);
    let wanted = Prompt {
        schema: Some(json!({ "type": "integer" })),
        ..Prompt::from("a number")
    };
    assert_eq!(world.ask(wanted).await, TurnEnd::Error);
    assert_eq!(world.ask("bye").await, TurnEnd::EndTurn);
    world.is_the_same(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_ended_is_ended_again_where_it_was() {
    let world = World::new(&[(
        "a",
        "steps:\n\
         - { text: one two three, chunk_chars: 4, chunk_ms: 3600000 }\n\
         - tool_calls: [{ name: first }, { name: never }, { name: never }]\n\
         - { text: late, delay_ms: 3600000 }\n",
    )])
    .await;
    // In mid-word.
    let speaks = |it: &EventKind| matches!(it, EventKind::TextDelta { .. });
    world.until("count", speaks).await;
    world.session.abort(None).await.unwrap();
    // While tools run, one of which has ended.
    world.let_go[0].notify_one();
    let ends = |it: &EventKind| matches!(it, EventKind::ToolEnd { .. });
    world.until("work", ends).await;
    world.session.abort(Some("default")).await.unwrap();
    // Before a word was said.
    world.session.prompt("think").await.unwrap();
    world.session.abort(None).await.unwrap();
    let archive = world.is_the_same(3).await;
    assert_eq!(statuses(&archive), [PromptStatus::Aborted; 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_took_the_place_of_another_does_so_again() {
    let world = World::new(&[(
        "a",
        "steps:\n\
         - { text: one two three, chunk_chars: 4, chunk_ms: 3600000 }\n\
         - tool_calls: [{ name: never }]\n\
         - text: There.\n",
    )])
    .await;
    let steer = |text: &str| Prompt {
        mode: Some(QueueMode::Steer),
        ..Prompt::from(text)
    };
    let speaks = |it: &EventKind| matches!(it, EventKind::TextDelta { .. });
    world.until("count", speaks).await;
    let starts = |it: &EventKind| matches!(it, EventKind::ToolStart { .. });
    world.until(steer("no, work"), starts).await;
    assert_eq!(world.ask(steer("no, stop")).await, TurnEnd::EndTurn);
    let archive = world.is_the_same(3).await;
    let text = serde_json::to_string(&archive.entries).unwrap();
    assert!(text.contains("stopped: steer"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_time_is_up_or_whose_host_dies_ends_so_again() {
    let mut world = World::new(&[(
        "a",
        "steps:\n\
         - tool_calls: [{ name: second }, { name: never }, { name: first }]\n\
         - text: I see.\n\
         - tool_calls: [{ name: never }]\n\
         - text: Bye.\n",
    )])
    .await;
    world.let_go[1].notify_one();
    let ends = |it: &EventKind| matches!(it, EventKind::ToolEnd { .. });
    let prompt = world.until("work", ends).await;
    world.session.close().await.unwrap();
    let id = world.session.id().clone();
    world.session = world.engine.open_session(&id, Claim::IfFree).await.unwrap();
    world.let_go[0].notify_one();
    world.session.wait_for_answer(&prompt).await.unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = Millis(u64::try_from(now.as_millis()).unwrap());
    let hurried = Prompt {
        limits: Limits {
            until: Some(now.after(Duration::from_millis(300))),
            ..Limits::default()
        },
        ..Prompt::from("work on")
    };
    assert_eq!(world.ask(hurried).await, TurnEnd::Limit);
    assert_eq!(world.ask("bye").await, TurnEnd::EndTurn);
    let archive = world.is_the_same(3).await;
    let text = serde_json::to_string(&archive.entries).unwrap();
    assert!(text.contains("it was interrupted"), "{text}");
    assert!(text.contains("stopped: limit"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_come_in_the_order_in_which_they_came() {
    let world = World::new(&[(
        "a",
        "steps:\n- tool_calls: [{ name: first }, { name: second }]\n- text: Both.\n",
    )])
    .await;
    world.let_go[1].notify_one();
    let ends = |it: &EventKind| matches!(it, EventKind::ToolEnd { .. });
    let prompt = world.until("work", ends).await;
    world.let_go[0].notify_one();
    world.session.wait_for_answer(&prompt).await.unwrap();
    world.is_the_same(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_approved_or_denied_is_not_asked_about_again() {
    let world = World::new(&[(
        "a",
        "steps:\n\
         - tool_calls: [{ name: asked }]\n\
         - tool_calls: [{ name: asked }]\n\
         - text: Bye.\n",
    )])
    .await;
    world.let_go[0].notify_one();
    let prompt = world.session.prompt("work").await.unwrap();
    let mut events = world.session.subscribe(0);
    for action in ["approve", "deny"] {
        let gate = loop {
            let notice = events.next().await.unwrap().unwrap();
            if let EventKind::DecisionGate { gate } = notice.event.kind {
                break gate;
            }
        };
        let decision = Decision::new(action, "ada", "test");
        world.engine.decide(&gate.id, decision).await.unwrap();
    }
    world.session.wait_for_answer(&prompt).await.unwrap();
    world.is_the_same(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_model_answers_where_another_did() {
    let world = World::new(&[
        (
            "a",
            "steps:\n- tool_calls: [{ name: first }]\n- { error: overloaded }\n",
        ),
        ("b", "steps:\n- text: no\n- text: From b.\n"),
    ])
    .await;
    world.let_go[0].notify_one();
    assert_eq!(world.ask("work").await, TurnEnd::EndTurn);
    let archive = world.is_the_same(1).await;
    let switched = |kind: &EventKind| matches!(kind, EventKind::ModelSwitched { .. });
    assert!(archive.events.iter().any(|event| switched(&event.kind)));
}

/// A long first answer, and then one that leaves no room.
const FULL: &str = "context_window: 4000\nmax_output: 1000\nsteps:\n\
    - text: LONG\n\
    - { text: More., usage: { input: 3900, output: 10 } }\n\
    - text: I go on.\n\
    - { error: context_overflow, times: 1, then: { text: It fits. } }\n\
    - text: Bye.\n";

fn full(more: &str) -> String {
    FULL.replace("LONG", &"word ".repeat(1_000)) + more
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_summed_up_is_summed_up_again_or_fails_to_be() {
    for (more, sums) in [("", 2), ("on_summary: I go on with the work.\n", 0)] {
        let world = World::new(&[("a", &full(more))]).await;
        for prompt in ["hi", "more", "and more", "bye"] {
            world.ask(prompt).await;
        }
        let asked = world.archive().await.prompts;
        let continues = |key: &str| key == "compaction_continue";
        let by_itself = asked
            .iter()
            .filter(|it| it.metadata.keys().any(|key| continues(key)));
        assert_eq!(by_itself.count(), usize::from(sums > 0));
        let archive = world.is_the_same(4).await;
        let is_sum = |kind: &EntryKind| matches!(kind, EntryKind::Compaction { .. });
        let summed = archive.entries.iter().filter(|it| is_sum(&it.kind)).count();
        assert_eq!(summed, sums);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_has_all_summaries_and_says_the_same_again() {
    let world = World::new(&[("a", &full(""))]).await;
    for prompt in ["hi", "more", "and more", "bye"] {
        world.ask(prompt).await;
    }
    let archive = world.archive().await;
    let text = rye_host::model_script(&archive, "default").unwrap();
    let script: Script = text.parse().unwrap();
    let summaries = archive.entries.iter().filter_map(|it| match &it.kind {
        EntryKind::Compaction { summary, .. } => Some(summary.clone()),
        _ => None,
    });
    let summaries: Vec<_> = summaries.collect();
    assert_eq!(summaries.len(), 2);
    assert_eq!(script.on_summary, summaries);
    assert_eq!((script.context_window, script.max_output), (4000, 1000));
    let again = World::new(&[("a", &text)]).await;
    for prompt in ["hi", "more", "and more", "bye"] {
        assert_eq!(again.ask(prompt).await, TurnEnd::EndTurn);
    }
    let said = |archive: &Archive| {
        let all = archive.entries.iter();
        let words = all.filter_map(|entry| match &entry.kind {
            EntryKind::Message(message) => Some(message.content()),
            _ => None,
        });
        words.collect::<Vec<_>>()
    };
    assert_eq!(said(&again.archive().await), said(&archive));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_under_way_is_where_it_stops() {
    let world = World::new(&[(
        "a",
        "steps:\n- text: Hello.\n- tool_calls: [{ name: never }]\n",
    )])
    .await;
    world.ask("hi").await;
    let starts = |it: &EventKind| matches!(it, EventKind::ToolStart { .. });
    world.until("work", starts).await;
    let (_, replayed) = world.again().await;
    let why = "default: stopped before `work`, which is not finished";
    assert_eq!(replayed.stopped, [why]);
    assert_eq!((replayed.prompts, replayed.differences.len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_any_more_is_a_difference() {
    let world = World::new(&[("a", "steps:\n- text: Hello.\n- text: Bye.\n")]).await;
    world.ask("hi").await;
    world.ask("bye").await;
    let mut archive = world.archive().await;
    // As if the second prompt had never been asked.
    archive.prompts.pop();
    let setup = CurrentSetup {
        tools: tools(&world.let_go),
        guides: Arc::new(NoGuides),
        compaction: settings(),
        models: Arc::new(world.models.clone()),
    };
    let replayed = replay(&archive, &setup).await.unwrap();
    let [difference] = replayed.differences.as_slice() else {
        panic!("{replayed:#?}");
    };
    assert_eq!(
        difference.subject,
        "entry 3 of thread default, which is missing now"
    );
}
