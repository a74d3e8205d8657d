//! Compaction: model requests before and after, after a restart, and failures.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use lillux::keys::SigningKey;
use rye_engine::BoxFuture;
use rye_engine::compaction::Settings;
use rye_engine::model::{Deltas, Model, ModelAnswer, ModelError, ModelInfo, ModelRequest, Models};
use rye_engine::protocol::{
    Entry, EntryKind, EventKind, Limits, Message, Part, PromptId, ResultStatus, Role, Synthetic,
    TurnEnd,
};
use rye_engine::store::Claim;
use rye_engine::tool::{
    DecisionRequest, EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput,
};
use rye_engine::{
    CompactionOutcome, Decision, Engine, NewSession, Prompt, Session, UndoOutcome, audit,
};
use rye_model::{Script, ScriptedModel};
use rye_sandbox::VirtualSandbox;
use rye_store::SqliteStore;
use serde_json::{Value, json};

/// A scripted model that records its requests.
#[derive(Clone)]
struct RecordingModel {
    model: Arc<ScriptedModel>,
    asked: Arc<Mutex<Vec<ModelRequest>>>,
    sees: bool,
    /// Whether a context fits.
    room: Arc<dyn Fn(&ModelRequest) -> bool + Send + Sync>,
}

impl RecordingModel {
    fn new(script: &str) -> Self {
        Self {
            model: Arc::new(ScriptedModel::from(script.parse::<Script>().unwrap())),
            asked: Arc::default(),
            sees: false,
            room: Arc::new(|_| true),
        }
    }

    fn last(&self) -> ModelRequest {
        self.asked.lock().unwrap().last().unwrap().clone()
    }
}

impl Model for RecordingModel {
    fn info(&self) -> ModelInfo {
        ModelInfo {
            images: self.sees,
            ..self.model.info()
        }
    }

    fn call(
        &self,
        request: ModelRequest,
        deltas: Deltas,
    ) -> BoxFuture<'_, Result<ModelAnswer, ModelError>> {
        self.asked.lock().unwrap().push(request.clone());
        if !(self.room)(&request) {
            return Box::pin(async { Err(ModelError::ContextOverflow("it is full".to_owned())) });
        }
        self.model.call(request, deltas)
    }
}

impl Models for RecordingModel {
    fn get(&self, _: &str) -> Result<Arc<dyn Model>, String> {
        Ok(Arc::new(self.clone()))
    }

    fn default_name(&self) -> String {
        "test".to_owned()
    }
}

/// Returns output of the requested size.
struct OutputTool(ToolDef);

impl Tool for OutputTool {
    fn def(&self) -> &ToolDef {
        &self.0
    }

    fn run(&self, args: Value, _: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        let length = usize::try_from(args["bytes"].as_u64().unwrap()).unwrap();
        Box::pin(async move { Ok(ToolOutput::text("much ".repeat(length / 5))) })
    }
}

/// Asks for approval.
struct ApprovalTool(ToolDef);

impl Tool for ApprovalTool {
    fn def(&self) -> &ToolDef {
        &self.0
    }

    fn run(&self, _: Value, context: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let request = DecisionRequest::approval("ask", "May it look?");
            context.request_decision(request).await?;
            Ok(ToolOutput::text("it may"))
        })
    }
}

fn engine(dir: &Path, model: &RecordingModel, settings: Settings) -> Engine {
    let schema = json!({ "type": "object", "properties": { "bytes": { "type": "integer" } } });
    let much = ToolDef::new("much", "Gives much.", schema).effect(EffectClass::Pure);
    Engine::builder()
        .store(SqliteStore::open(dir.join("sessions.db")).unwrap())
        .models(model.clone())
        .sandbox(Arc::new(VirtualSandbox::new()))
        .tool(OutputTool(much))
        .tool(ApprovalTool(ToolDef::new(
            "asks",
            "ApprovalTool.",
            json!({ "type": "object" }),
        )))
        .system("You are a test.")
        .sign_with(SigningKey::generate().unwrap())
        .compaction(settings)
        .build()
        .unwrap()
}

async fn session(engine: &Engine) -> Session {
    let id = Some("session".parse().unwrap());
    engine
        .create_session(NewSession {
            id,
            ..NewSession::default()
        })
        .await
        .unwrap()
}

async fn entries(session: &Session) -> Vec<Entry> {
    let thread = &session.threads()[0].id;
    session.entries(thread, None, usize::MAX).await.unwrap()
}

/// All events.
async fn events(engine: &Engine) -> Vec<EventKind> {
    let id = "session".parse().unwrap();
    let archive = engine.export(&id).await.unwrap().remove(0);
    archive.events.into_iter().map(|event| event.kind).collect()
}

/// Waits until the session is idle.
async fn until_idle(session: &Session) {
    let mut events = session.subscribe(0);
    let mut kinds = Vec::new();
    loop {
        let notice = events.next().await.unwrap().unwrap();
        kinds.push(notice.event.kind);
        let open = kinds.iter().fold(0_i32, |open, kind| match kind {
            EventKind::CompactionStart => open + 1,
            EventKind::CompactionEnd { .. } => open - 1,
            _ => open,
        });
        let waiting = kinds.iter().rev().find_map(|kind| match kind {
            EventKind::QueueState { running, waiting } => {
                Some((running.clone(), waiting.is_empty()))
            }
            _ => None,
        });
        let ended = |prompt: &PromptId| {
            kinds
                .iter()
                .any(|kind| matches!(kind, EventKind::TurnEnd { prompt: it, .. } if it == prompt))
        };
        if let Some((running, true)) = waiting
            && running.as_ref().is_none_or(ended)
            && open == 0
            && session.threads()[0].status == rye_engine::protocol::StatusKind::Idle
        {
            return;
        }
    }
}

/// A model request in abbreviated form.
fn context(request: &ModelRequest) -> String {
    let mut text = format!("system: {}\n", request.system);
    for message in request.messages.iter() {
        let parts = message.parts.iter().map(|part| match part {
            Part::Text { text } => short(text),
            Part::ToolCall { tool, args, .. } => format!("→{tool} {args}"),
            Part::ToolResult {
                status,
                text,
                elided,
                ..
            } => {
                let elided = if *elided { " (elided)" } else { "" };
                assert_eq!(*status, ResultStatus::Success);
                format!("={}{elided}", short(text))
            }
            other => format!("{other:?}"),
        });
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "model",
            Role::Tool => "tool",
            Role::System => "system",
        };
        let parts: Vec<_> = parts.collect();
        let _ = writeln!(text, "{role}: {}", parts.join(" "));
    }
    text
}

fn short(text: &str) -> String {
    let many = text.matches("much ").count();
    if many > 3 {
        format!("{}…{many} times…", text.replace("much ", ""))
    } else {
        text.to_owned()
    }
}

const TWO: &str = "context_window: 4000\nmax_output: 1000\nsteps:\n\
    - tool_calls: [{ name: much, args: { bytes: 6000 } }]\n\
    - text: I have looked.\n\
    - tool_calls: [{ name: much, args: { bytes: 6000 } }]\n\
    - text: I have looked again.\n\
    - text: I go on.\n\
    - text: And now this.\n";

/// The context exceeds the threshold after the second prompt.
const FULL: &str = "context_window: 4000\nmax_output: 1000\nsteps:\n\
    - tool_calls: [{ name: much, args: { bytes: 6000 } }]\n\
    - text: I have looked.\n\
    - { text: I have looked again., usage: { input: 3900, output: 10 } }\n\
    - { text: I go on., usage: { input: 3900, output: 10 } }\n\
    - text: And now this.\n";

fn small() -> Settings {
    Settings {
        tail_min_tokens: 200,
        tail_max_tokens: 200,
        ..Settings::default()
    }
}

#[tokio::test]
async fn full_context_is_compacted_and_the_agent_continues() {
    let dir = tempfile::tempdir().unwrap();
    let model = RecordingModel::new(FULL);
    let engine = engine(dir.path(), &model, small());
    let session = session(&engine).await;
    session.prompt("Look, and keep to the left.").await.unwrap();
    until_idle(&session).await;
    let prompt = session.prompt("Look again.").await.unwrap();
    session.wait_for_answer(&prompt).await.unwrap();
    until_idle(&session).await;
    let asked = model.asked.lock().unwrap().clone();
    let [.., before, summary_request, after] = asked.as_slice() else {
        panic!("{} were asked", asked.len());
    };
    insta::assert_snapshot!("before", context(before));
    insta::assert_snapshot!("summary_request", context(summary_request));
    insta::assert_snapshot!("after", context(after));
    // Only once, not again in the next turn.
    let ends = |kind: &&EventKind| matches!(kind, EventKind::CompactionEnd { .. });
    let kinds = events(&engine).await;
    assert_eq!(kinds.iter().filter(ends).count(), 1, "{kinds:#?}");
    let history = entries(&session).await;
    let tagged = history.iter().any(|entry| match &entry.kind {
        EntryKind::Message(message) => message.synthetic == Some(Synthetic::CompactionContinue),
        _ => false,
    });
    assert!(tagged, "the continuation prompt is tagged");

    // Another host sends the same request.
    let _ = session.prompt("And now?").await.unwrap();
    until_idle(&session).await;
    let live = model.last();
    engine.shutdown().await.unwrap();
    let restored = self::engine(dir.path(), &model, small());
    let session = restored
        .open_session(&"session".parse().unwrap(), Claim::IfFree)
        .await
        .unwrap();
    let thread = session.threads()[0].id.clone();
    let path = session.entries(&thread, None, usize::MAX).await.unwrap();
    let messages = rye_engine::transcript::messages(&path);
    assert_eq!(&messages[..live.messages.len()], &live.messages[..]);
}

#[tokio::test]
async fn summary_counts_against_the_limits_of_the_prompt() {
    // The prompt itself uses 3,910 tokens, and the summary more than the rest.
    for (tokens, continues, summarises) in [
        (3_910, false, false),
        (3_920, false, true),
        (90_000, true, true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let model = RecordingModel::new(FULL);
        let engine = engine(dir.path(), &model, small());
        let session = session(&engine).await;
        session.prompt("Look, and keep to the left.").await.unwrap();
        until_idle(&session).await;
        let limits = Limits {
            tokens: Some(tokens),
            ..Limits::default()
        };
        let prompt = Prompt {
            limits,
            ..Prompt::from("Look again.")
        };
        let prompt = session.prompt(prompt).await.unwrap();
        session.wait_for_answer(&prompt).await.unwrap();
        until_idle(&session).await;
        let asked = model.asked.lock().unwrap().clone();
        let is_summarised = asked.iter().any(|request| request.for_summary);
        let has_continued =
            asked.last().is_some_and(|request| !request.for_summary) && is_summarised;
        assert_eq!(
            (is_summarised, has_continued),
            (summarises, continues),
            "{tokens}"
        );
    }
}

#[tokio::test]
async fn open_gates_and_queued_prompts_survive_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let model = RecordingModel::new(&format!(
        "context_window: 4000\nmax_output: 1000\nsteps:\n\
         - tool_calls: [{{ name: asks }}]\n\
         - text: {}\n\
         - {{ text: More., usage: {{ input: 3900, output: 10 }} }}\n\
         - text: I go on.\n",
        "word ".repeat(1_200)
    ));
    let engine = engine(dir.path(), &model, small());
    let session = session(&engine).await;
    let gate = async |thread: &str, number: usize| {
        let prompt = Prompt {
            thread: Some(thread.to_owned()),
            ..Prompt::from("Look, and keep to the left.")
        };
        let prompt = session.prompt(prompt).await.unwrap();
        let mut events = session.subscribe(0);
        let mut gates = Vec::new();
        while gates.len() < number {
            if let EventKind::DecisionGate { gate } =
                events.next().await.unwrap().unwrap().event.kind
            {
                gates.push(gate.id);
            }
        }
        (prompt, gates.pop().unwrap())
    };
    // One gate is open, the other is decided.
    gate("other", 1).await;
    let (prompt, gate) = gate("default", 2).await;
    let decision = Decision::new("approve", "ada", "test");
    engine.decide(&gate, decision).await.unwrap();
    session.wait_for_answer(&prompt).await.unwrap();
    session.pause(None).await.unwrap();
    session.prompt("Look again.").await.unwrap();
    let last = session.prompt("Then this, word for word.").await.unwrap();
    session.resume(None).await.unwrap();
    session.wait_for_answer(&last).await.unwrap();
    let asked = model.last();
    let sum = asked.messages.first().unwrap().content();
    assert!(
        sum.starts_with("[The earlier history was replaced"),
        "{sum}"
    );
    for kept in [
        "Look, and keep to the left.",
        "Waiting for a decision: May it look?",
        "Queued prompt, verbatim:\nThen this, word for word.",
    ] {
        assert!(sum.contains(kept), "{kept}: {sum}");
    }
}

#[tokio::test]
async fn long_turn_is_compacted_while_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let model = RecordingModel::new(TWO);
    let engine = engine(dir.path(), &model, small());
    let session = session(&engine).await;
    for prompt in ["Look, and keep to the left.", "Look again."] {
        let prompt = session.prompt(prompt).await.unwrap();
        let answer = session.wait_for_answer(&prompt).await.unwrap();
        assert_eq!(answer.reason, TurnEnd::EndTurn);
    }
    until_idle(&session).await;
    insta::assert_snapshot!("during_turn", context(&model.last()));
}

#[tokio::test]
async fn requested_compaction_can_be_undone_and_the_session_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let model = RecordingModel::new(&TWO.replace("4000", "400000"));
    let engine = engine(dir.path(), &model, small());
    let session = session(&engine).await;
    for prompt in ["Look, and keep to the left.", "Look again."] {
        session.prompt(prompt).await.unwrap();
        until_idle(&session).await;
    }
    let before = rye_engine::transcript::messages(&entries(&session).await);
    let CompactionOutcome::Summarised {
        tokens_before: was,
        tokens_after: after,
        ..
    } = session.compact(None).await.unwrap()
    else {
        panic!("there is something to sum up");
    };
    assert!(after < was, "{after} of {was}");
    let now = rye_engine::transcript::messages(&entries(&session).await);
    assert!(now.len() < before.len());
    assert!(now[0].content().contains("Look, and keep to the left."));
    // A second request has no effect.
    assert_eq!(
        session.compact(None).await.unwrap(),
        CompactionOutcome::Nothing
    );
    let undone = session.undo_compaction(None).await.unwrap();
    assert!(matches!(undone, UndoOutcome::Undone(_)), "{undone:?}");
    let again = rye_engine::transcript::messages(&entries(&session).await);
    assert_eq!(again, before);
    assert_eq!(
        session.undo_compaction(None).await.unwrap(),
        UndoOutcome::NothingToUndo
    );
    let key = engine.public_key().unwrap().clone();
    let archive = engine.export(session.id()).await.unwrap().remove(0);
    let verdict = audit::check(&archive, |_| Some(key.clone()));
    assert_eq!(verdict.findings, []);
}

#[tokio::test]
async fn old_output_is_pruned_first_and_the_session_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let model = RecordingModel::new(TWO);
    let settings = Settings {
        prune_keep_tokens: 1_600,
        prune_save_tokens: 100,
        ..small()
    };
    let engine = engine(dir.path(), &model, settings);
    let session = session(&engine).await;
    for prompt in ["Look.", "Look again.", "And?"] {
        session.prompt(prompt).await.unwrap();
        until_idle(&session).await;
    }
    let read = context(&model.last());
    assert!(read.contains("= (elided)"), "{read}");
    assert!(read.contains("=…1200 times…"), "{read}");
    assert!(!read.contains("was replaced by this summary"), "{read}");
    let key = engine.public_key().unwrap().clone();
    let archive = engine.export(session.id()).await.unwrap().remove(0);
    let verdict = audit::check(&archive, |_| Some(key.clone()));
    assert_eq!(verdict.findings, []);
}

#[tokio::test]
async fn context_overflow_triggers_compaction_and_a_retry() {
    let dir = tempfile::tempdir().unwrap();
    let mut model = RecordingModel::new(&TWO.replace("4000", "400000"));
    model.room = Arc::new(|request| request.for_summary || request.messages.len() < 5);
    let engine = engine(dir.path(), &model, small());
    let session = session(&engine).await;
    session.prompt("Look.").await.unwrap();
    until_idle(&session).await;
    let prompt = session.prompt("Look again.").await.unwrap();
    let answer = session.wait_for_answer(&prompt).await.unwrap();
    assert_eq!(answer.reason, TurnEnd::EndTurn, "{answer:?}");
    assert_eq!(answer.text, "I have looked again.");
    let sums = entries(&session).await;
    let sums = sums.iter().filter(|entry| {
        matches!(
            entry.kind,
            EntryKind::Compaction {
                without_media: true,
                ..
            }
        )
    });
    assert_eq!(sums.count(), 1);
}

#[tokio::test]
async fn context_that_cannot_be_reduced_fails_the_prompt_only() {
    let dir = tempfile::tempdir().unwrap();
    let mut model = RecordingModel::new(&TWO.replace("4000", "400000"));
    let long =
        |request: &ModelRequest| request.messages.iter().any(|it| it.content().len() > 9_000);
    model.room = Arc::new(move |request| request.for_summary || !long(request));
    let engine = engine(dir.path(), &model, small());
    let session = session(&engine).await;
    session.prompt("Look.").await.unwrap();
    until_idle(&session).await;
    let prompt = session.prompt("word ".repeat(2_000)).await.unwrap();
    let answer = session.wait_for_answer(&prompt).await.unwrap();
    assert_eq!(answer.reason, TurnEnd::Error);
    let error = answer.error.unwrap();
    let error = error.message;
    assert!(error.contains("it is full"), "{error}");
    assert!(error.contains("a model with a larger window"), "{error}");
}

#[tokio::test]
async fn invalid_summary_changes_nothing() {
    for (script, reason) in [(
        "on_summary: I go on with the work.\n",
        "missing headings `Goal`",
    )] {
        let dir = tempfile::tempdir().unwrap();
        let model = RecordingModel::new(&format!("{TWO}{script}"));
        let engine = engine(dir.path(), &model, small());
        let session = session(&engine).await;
        for prompt in ["Look, and keep to the left.", "Look again.", "And?"] {
            let prompt = session.prompt(prompt).await.unwrap();
            let answer = session.wait_for_answer(&prompt).await.unwrap();
            assert_eq!(answer.reason, TurnEnd::EndTurn, "{answer:?}");
        }
        until_idle(&session).await;
        let kinds = events(&engine).await;
        let failed = kinds.iter().find_map(|kind| match kind {
            EventKind::CompactionEnd { error, .. } => error.clone(),
            _ => None,
        });
        let failed = failed.unwrap();
        assert!(failed.message.contains(reason), "{}", failed.message);
        assert!(
            failed.message.contains("the history is unchanged"),
            "{}",
            failed.message
        );
        // The model is asked twice; the second request names the error.
        let asked = model.asked.lock().unwrap().clone();
        let last = asked.iter().rfind(|it| it.for_summary).unwrap();
        let last: &Message = last.messages.last().unwrap();
        assert!(last.content().contains("was rejected: missing"));
        let kinds = entries(&session).await;
        let is_sum = |entry: &&Entry| matches!(entry.kind, EntryKind::Compaction { .. });
        assert_eq!(kinds.iter().filter(is_sum).count(), 0);
    }
}

#[tokio::test]
async fn image_in_the_blob_store_is_sent_to_the_model() {
    use rye_engine::blob::BlobStore as _;
    for sees in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let mut model = RecordingModel::new(TWO);
        model.sees = sees;
        let blobs = rye_store::FileBlobs::new(dir.path().join("blobs"));
        let hash = blobs.put(b"a picture".to_vec()).await.unwrap();
        let engine = Engine::builder()
            .store(rye_store::MemoryStore::new())
            .blobs(blobs)
            .models(model.clone())
            .sandbox(Arc::new(VirtualSandbox::new()))
            .build()
            .unwrap();
        let session = session(&engine).await;
        let source = format!("blob:{hash}");
        let prompt = rye_engine::Prompt {
            attachments: vec![Part::Attachment {
                name: "a.png".to_owned(),
                mime_type: "image/png".to_owned(),
                source: source.clone(),
            }],
            ..rye_engine::Prompt::from("What is this?")
        };
        session.prompt(prompt).await.unwrap();
        until_idle(&session).await;
        let asked = model.asked.lock().unwrap().first().cloned().unwrap();
        let Part::Attachment { source: shown, .. } = &asked.messages[0].parts[1] else {
            panic!("{asked:?}");
        };
        let inline = "data:image/png;base64,YSBwaWN0dXJl";
        assert_eq!(shown, if sees { inline } else { &source });
        // The history contains the reference only.
        let first = entries(&session).await.remove(0);
        assert!(!format!("{first:?}").contains("base64"));
    }
}
