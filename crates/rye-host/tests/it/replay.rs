//! Replays of sessions with failures, aborts, limits and crashes produce the same entries.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rye_engine::BoxFuture;
use rye_engine::compaction::Settings;
use rye_engine::guides::{GuideFuture, Guides, InstructionFile, Role, Skill};
use rye_engine::model::{Model, Models, RetryPolicy};
use rye_engine::protocol::{
    Archive, EntryKind, EventKind, Limits, Millis, PromptId, PromptStatus, QueueMode, TurnEnd,
};
use rye_engine::sandbox::Sandbox;
use rye_engine::store::Claim;
use rye_engine::tool::{
    ApprovalRequirement, EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput,
};
use rye_engine::{Decision, Engine, NewSession, Prompt, Session};
use rye_host::replay::{CurrentSetup, ReplayOutcome, replay};
use rye_model::{Script, ScriptedModel};
use rye_sandbox::VirtualSandbox;
use rye_store::MemoryStore;
use serde_json::{Value, json};
use tokio::sync::SetOnce;

use crate::faults::ManualClock;

/// Scripted models by name; each is a failover model of `a`.
#[derive(Clone)]
struct Scripts(BTreeMap<String, Arc<ScriptedModel>>);

impl Scripts {
    fn new(scripts: &[(&str, &str)]) -> Self {
        let read = |text: &str| Arc::new(ScriptedModel::from(text.parse::<Script>().unwrap()));
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

/// A tool whose calls return its name once it is released, or never.
struct BlockingTool {
    def: ToolDef,
    releases: Option<Arc<SetOnce<()>>>,
}

impl Tool for BlockingTool {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn run(&self, _: Value, _: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async {
            match &self.releases {
                Some(releases) => *releases.wait().await,
                None => std::future::pending().await,
            }
            Ok(ToolOutput::text(self.def.spec.name.as_str()))
        })
    }
}

/// `first` and `second` return when they are released, `asked` also needs approval, and `never`
/// does not return.
fn tools(releases: &[Arc<SetOnce<()>>; 2]) -> Vec<Arc<dyn Tool>> {
    let schema = json!({ "type": "object" });
    let def = |name: &str, effect| ToolDef::new(name, "A test.", schema.clone()).effect(effect);
    let [first, second] = releases.clone();
    let mut asked = def("asked", EffectClass::Pure);
    asked.approval = ApprovalRequirement::Always;
    let held = |def, releases| Arc::new(BlockingTool { def, releases }) as Arc<dyn Tool>;
    vec![
        held(def("first", EffectClass::Pure), Some(first)),
        held(def("second", EffectClass::Pure), Some(second)),
        held(def("never", EffectClass::AtMostOnce), None),
        held(asked, Some(Arc::clone(&releases[0]))),
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

    fn roles<'a>(&'a self, _: &'a dyn Sandbox) -> BoxFuture<'a, Vec<Role>> {
        Box::pin(async { Vec::new() })
    }

    fn skills<'a>(&'a self, _: &'a dyn Sandbox) -> BoxFuture<'a, Vec<Skill>> {
        Box::pin(async { Vec::new() })
    }

    fn instructions<'a>(&'a self, _: &'a dyn Sandbox) -> BoxFuture<'a, Vec<InstructionFile>> {
        Box::pin(async { Vec::new() })
    }
}

/// Time at the start of a test.
const START: Millis = Millis(1_700_000_000_000);

/// A session with its engine, models and tools.
struct TestEnv {
    engine: Engine,
    session: Session,
    models: Scripts,
    releases: [Arc<SetOnce<()>>; 2],
    clock: ManualClock,
}

fn settings() -> Settings {
    Settings {
        tail_min_tokens: 200,
        tail_max_tokens: 200,
        ..Settings::default()
    }
}

impl TestEnv {
    async fn new(scripts: &[(&str, &str)]) -> Self {
        let (models, releases) = (Scripts::new(scripts), <[Arc<SetOnce<()>>; 2]>::default());
        let clock = ManualClock::at(START.0);
        clock.run();
        let engine = Engine::builder()
            .store(MemoryStore::new())
            .clock(clock.clone())
            .models(models.clone())
            .sandbox(Arc::new(VirtualSandbox::new()))
            .tools(tools(&releases))
            .tool(rye_tools::skill(Arc::new(NoGuides)))
            .guides(Arc::new(NoGuides))
            .compaction(settings())
            .build()
            .unwrap();
        let session = engine.create_session(NewSession::default()).await.unwrap();
        Self {
            engine,
            session,
            models,
            releases,
            clock,
        }
    }

    /// Runs a prompt to its end.
    async fn run_prompt(&self, prompt: impl Into<Prompt>) -> TurnEnd {
        let prompt = self.session.prompt(prompt).await.unwrap();
        let answer = self.session.wait_for_answer(&prompt).await.unwrap();
        self.session.wait_idle("default").await.unwrap();
        answer.reason
    }

    /// Sends a prompt, and waits for an event.
    async fn prompt_until(
        &self,
        prompt: impl Into<Prompt>,
        what: impl Fn(&EventKind) -> bool,
    ) -> PromptId {
        // Subscribes first, because live events are not stored.
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

    /// Replays the session. Also returns the recording.
    async fn replay(&self) -> (Archive, ReplayOutcome) {
        let archive = self.archive().await;
        let setup = CurrentSetup {
            tools: tools(&self.releases),
            guides: Arc::new(NoGuides),
            compaction: settings(),
            models: Arc::new(self.models.clone()),
        };
        let replayed = tokio::time::timeout(Duration::from_mins(1), replay(&archive, &setup));
        let replayed = replayed.await.unwrap().unwrap();
        (archive, replayed)
    }

    /// Checks that the replay has no differences.
    async fn check_replay(&self, prompts: usize) -> Archive {
        let (archive, replayed) = self.replay().await;
        let is_message = |kind: &EntryKind| matches!(kind, EntryKind::Message(_));
        let entries = archive
            .entries
            .iter()
            .filter(|it| is_message(&it.kind))
            .count();
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
async fn failed_prompt_fails_again_and_later_prompts_follow() {
    let env = TestEnv::new(&[(
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
        assert_eq!(env.run_prompt(prompt).await, end, "{prompt}");
    }
    let unknown = Prompt {
        role: Some("missing".to_owned()),
        ..Prompt::from("use a missing role")
    };
    assert_eq!(env.run_prompt(unknown).await, TurnEnd::Error);
    assert_eq!(env.run_prompt("bye").await, TurnEnd::EndTurn);
    env.check_replay(6).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_and_invalid_results_are_replayed() {
    let env = TestEnv::new(&[(
        "a",
        "steps:\n- tool_calls: [{ name: first }]\n- text: so\n- text: and so\n- text: Bye.\n",
    )])
    .await;
    env.releases[0].set(()).unwrap();
    let limited = Prompt {
        limits: Limits {
            turns: Some(1),
            ..Limits::default()
        },
        ..Prompt::from("once")
    };
    assert_eq!(env.run_prompt(limited).await, TurnEnd::Limit);
    let prompt = Prompt {
        schema: Some(json!({ "type": "integer" })),
        ..Prompt::from("a number")
    };
    assert_eq!(env.run_prompt(prompt).await, TurnEnd::Error);
    assert_eq!(env.run_prompt("bye").await, TurnEnd::EndTurn);
    env.check_replay(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborts_are_replayed_at_the_same_point() {
    let env = TestEnv::new(&[(
        "a",
        "steps:\n\
         - { text: one two three, chunk_chars: 4, chunk_ms: 3600000 }\n\
         - tool_calls: [{ name: first }, { name: never }, { name: never }]\n\
         - { text: late, delay_ms: 3600000 }\n",
    )])
    .await;
    // While the model writes.
    let speaks = |it: &EventKind| matches!(it, EventKind::TextDelta { .. });
    env.prompt_until("count", speaks).await;
    env.session.abort(None).await.unwrap();
    // While tools run, after one has ended.
    env.releases[0].set(()).unwrap();
    let ends = |it: &EventKind| matches!(it, EventKind::ToolEnd { .. });
    env.prompt_until("work", ends).await;
    env.session.abort(Some("default")).await.unwrap();
    // Before the model writes.
    env.session.prompt("think").await.unwrap();
    env.session.abort(None).await.unwrap();
    let archive = env.check_replay(3).await;
    assert_eq!(statuses(&archive), [PromptStatus::Aborted; 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steering_is_replayed() {
    let env = TestEnv::new(&[(
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
    env.prompt_until("count", speaks).await;
    let starts = |it: &EventKind| matches!(it, EventKind::ToolStart { .. });
    env.prompt_until(steer("no, work"), starts).await;
    assert_eq!(env.run_prompt(steer("no, stop")).await, TurnEnd::EndTurn);
    let archive = env.check_replay(3).await;
    let text = serde_json::to_string(&archive.entries).unwrap();
    assert!(text.contains(r#""reason":"steer""#), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_limits_and_host_deaths_are_replayed() {
    let mut env = TestEnv::new(&[(
        "a",
        "steps:\n\
         - tool_calls: [{ name: second }, { name: never }, { name: first }]\n\
         - text: I see.\n\
         - tool_calls: [{ name: never }]\n\
         - text: Bye.\n",
    )])
    .await;
    env.releases[1].set(()).unwrap();
    let ends = |it: &EventKind| matches!(it, EventKind::ToolEnd { .. });
    let prompt = env.prompt_until("work", ends).await;
    env.session.close().await.unwrap();
    let id = env.session.id().clone();
    env.session = env.engine.open_session(&id, Claim::IfFree).await.unwrap();
    env.releases[0].set(()).unwrap();
    env.session.wait_for_answer(&prompt).await.unwrap();
    let deadline = START.after(Duration::from_hours(1));
    let hurried = Prompt {
        limits: Limits {
            until: Some(deadline),
            ..Limits::default()
        },
        ..Prompt::from("work on")
    };
    let starts = |it: &EventKind| matches!(it, EventKind::ToolStart { .. });
    let prompt = env.prompt_until(hurried, starts).await;
    env.clock.set(deadline.0);
    // The engine checks the deadline at the next input.
    env.session.resume(Some("default")).await.unwrap();
    let answer = env.session.wait_for_answer(&prompt).await.unwrap();
    assert_eq!(answer.reason, TurnEnd::Limit);
    assert_eq!(env.run_prompt("bye").await, TurnEnd::EndTurn);
    let archive = env.check_replay(3).await;
    let text = serde_json::to_string(&archive.entries).unwrap();
    assert!(text.contains(r#""status":"interrupted""#), "{text}");
    assert!(text.contains(r#""reason":"limit""#), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_results_are_replayed_in_order() {
    let env = TestEnv::new(&[(
        "a",
        "steps:\n- tool_calls: [{ name: first }, { name: second }]\n- text: Both.\n",
    )])
    .await;
    env.releases[1].set(()).unwrap();
    let ends = |it: &EventKind| matches!(it, EventKind::ToolEnd { .. });
    let prompt = env.prompt_until("work", ends).await;
    env.releases[0].set(()).unwrap();
    env.session.wait_for_answer(&prompt).await.unwrap();
    env.check_replay(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_opens_no_gates() {
    let env = TestEnv::new(&[(
        "a",
        "steps:\n\
         - tool_calls: [{ name: asked }]\n\
         - tool_calls: [{ name: asked }]\n\
         - text: Bye.\n",
    )])
    .await;
    env.releases[0].set(()).unwrap();
    let prompt = env.session.prompt("work").await.unwrap();
    let mut events = env.session.subscribe(0);
    for action in ["approve", "deny"] {
        let gate = loop {
            let notice = events.next().await.unwrap().unwrap();
            if let EventKind::DecisionGate { gate } = notice.event.kind {
                break gate;
            }
        };
        let decision = Decision::new(action, "ada", "test");
        env.engine.decide(&gate.id, decision).await.unwrap();
    }
    env.session.wait_for_answer(&prompt).await.unwrap();
    env.check_replay(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failover_is_replayed() {
    let env = TestEnv::new(&[
        (
            "a",
            "steps:\n- tool_calls: [{ name: first }]\n- { error: overloaded }\n",
        ),
        ("b", "steps:\n- text: no\n- text: From b.\n"),
    ])
    .await;
    env.releases[0].set(()).unwrap();
    assert_eq!(env.run_prompt("work").await, TurnEnd::EndTurn);
    let archive = env.check_replay(1).await;
    let switched = |kind: &EventKind| matches!(kind, EventKind::ModelSwitched { .. });
    assert!(archive.events.iter().any(|event| switched(&event.kind)));
}

/// A long first answer, and a second one that fills the context.
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
async fn compactions_and_their_failures_are_replayed() {
    for (more, sums) in [("", 2), ("on_summary: I go on with the work.\n", 0)] {
        let env = TestEnv::new(&[("a", &full(more))]).await;
        for prompt in ["hi", "more", "and more", "bye"] {
            env.run_prompt(prompt).await;
        }
        let asked = env.archive().await.prompts;
        let by_itself = asked.iter().filter(|it| it.compaction_continue);
        assert_eq!(by_itself.count(), usize::from(sums > 0));
        let archive = env.check_replay(4).await;
        let is_sum = |kind: &EntryKind| matches!(kind, EntryKind::Compaction { .. });
        let summed = archive.entries.iter().filter(|it| is_sum(&it.kind)).count();
        assert_eq!(summed, sums);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exported_script_reproduces_the_session() {
    let env = TestEnv::new(&[("a", &full(""))]).await;
    for prompt in ["hi", "more", "and more", "bye"] {
        env.run_prompt(prompt).await;
    }
    let archive = env.archive().await;
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
    let again = TestEnv::new(&[("a", &text)]).await;
    for prompt in ["hi", "more", "and more", "bye"] {
        assert_eq!(again.run_prompt(prompt).await, TurnEnd::EndTurn);
    }
    let messages = |archive: &Archive| {
        let all = archive.entries.iter();
        let words = all.filter_map(|entry| match &entry.kind {
            EntryKind::Message(message) => Some(message.content()),
            _ => None,
        });
        words.collect::<Vec<_>>()
    };
    assert_eq!(messages(&again.archive().await), messages(&archive));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_stops_at_an_unfinished_prompt() {
    let env = TestEnv::new(&[(
        "a",
        "steps:\n- text: Hello.\n- tool_calls: [{ name: never }]\n",
    )])
    .await;
    env.run_prompt("hi").await;
    let starts = |it: &EventKind| matches!(it, EventKind::ToolStart { .. });
    env.prompt_until("work", starts).await;
    let (_, replayed) = env.replay().await;
    let reason = "default: stopped before `work`, which is not finished";
    assert_eq!(replayed.stopped, [reason]);
    assert_eq!((replayed.prompts, replayed.differences.len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_entry_is_a_difference() {
    let env = TestEnv::new(&[("a", "steps:\n- text: Hello.\n- text: Bye.\n")]).await;
    env.run_prompt("hi").await;
    env.run_prompt("bye").await;
    let mut archive = env.archive().await;
    // Removes the second prompt.
    archive.prompts.pop();
    let setup = CurrentSetup {
        tools: tools(&env.releases),
        guides: Arc::new(NoGuides),
        compaction: settings(),
        models: Arc::new(env.models.clone()),
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
