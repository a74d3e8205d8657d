//! `rye chat`: runs the chat interface on a new or existing session.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anstream::{AutoStream, ColorChoice};
use clap::ValueEnum as _;
use rye_chat::{
    ChangeSummary, Chat, ChatError, ChatHost, FileChange, FileConflict, Notify, Options, Theme,
    UndoError, UndoSummary,
};
use rye_engine::BoxFuture;
use rye_engine::changes::{FileStatus, Selection};
use rye_engine::model::Models as _;
use rye_engine::protocol::SessionId;
use rye_engine::store::Claim;
use rye_engine::{Engine, NewSession};
use rye_host::catalogue::{DEMO_MODEL, catalogue};
use rye_host::engine::{EngineOptions, start_supervisor, with_supervisor};
use rye_host::session_changes::{self, CONFLICT, CONFLICTS, FileDiff, conflict_reason};
use rye_host::session_engine::{SessionChoice, with_session};
use rye_host::settings::{ChatNotify, ChatTheme, Origin};
use rye_host::{Catalogue, ModelSummary};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::cli::args::ChatArgs;
use crate::cli::commands::prompt::load_system;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::Page;
use crate::cli::printer::{Outcome, Report};

pub(crate) fn run(args: &ChatArgs, context: &Context) -> Outcome {
    let engine_options = EngineOptions {
        runs_sessions: true,
        sandbox: args.sandbox.map(Into::into),
        review: args.review,
        workspace: args.workspace.clone(),
        model: args.model.clone(),
        ..EngineOptions::default()
    };
    let existing = match &args.session {
        Some(part) => Some(SessionChoice::Id(part)),
        None => args.continue_newest.then_some(SessionChoice::Newest),
    };
    if let Some(choice) = existing {
        return with_session(context, choice, engine_options, async |it| {
            let chat =
                Chat::start(chat_options(args, context, it.workspace)?).map_err(chat_failure)?;
            let host = CliHost::new(it.context, it.workspace)?;
            let session = it.engine.open_session(it.session, Claim::IfFree).await?;
            run_chat(args, false, chat, it.engine, session, host).await
        });
    }
    let system = args.system.as_deref().map(load_system).transpose()?;
    let project = context.settings.project();
    let workspace = args.workspace.as_deref().unwrap_or(project);
    let is_outside_project =
        args.sandbox.is_none() && context.settings.dirs.project.origin == Origin::Default;
    // The supervisor forks, so it starts before the chat's thread. The chat starts before the
    // engine, so that the user can type immediately.
    let supervisor = start_supervisor()?;
    let chat = Chat::start(chat_options(args, context, workspace)?).map_err(chat_failure)?;
    let host = CliHost::new(context, workspace)?;
    with_supervisor(context, engine_options, supervisor, async |engine| {
        let new = NewSession {
            workspace: Some(workspace.display().to_string()),
            model: args.model.clone(),
            system,
            project: Some(context.settings.project().display().to_string()),
            ..NewSession::default()
        };
        let session = engine.create_session(new).await?;
        run_chat(args, is_outside_project, chat, engine, session, host).await
    })
}

/// What a user needs whose agent has no files.
const OUTSIDE_PROJECT: &str = "This directory is in no project, so the agent cannot see its files. To \
    work on them, leave with Ctrl-D and run `rye init`.";

async fn run_chat(
    args: &ChatArgs,
    is_outside_project: bool,
    mut chat: Chat,
    engine: &Engine,
    session: rye_engine::Session,
    host: Arc<CliHost>,
) -> Outcome {
    let data = engine.session_data(session.id()).await?;
    let model = args.model.clone().or(data.and_then(|data| data.model));
    let model = model.unwrap_or_else(|| host.models.default_name());
    let mut lines = greeting(&model, &host.models).await;
    if is_outside_project {
        lines.insert(0, OUTSIDE_PROJECT.to_owned());
    }
    chat.set_greeting(&lines);
    let ran = chat.run(engine, session, host).await;
    let session = ran.map_err(chat_failure)?.to_string();
    Ok(Box::new(ChatReport { session }))
}

fn chat_options(args: &ChatArgs, context: &Context, workspace: &Path) -> Result<Options, Failure> {
    let state = context.settings.state_dir.as_ref();
    // With --json, standard output is for the document.
    let use_stderr = context.printer.json;
    // Without a choice, the session knows its sandbox.
    let sandbox = args.sandbox.and_then(|it| it.to_possible_value());
    let sandbox = sandbox.map(|it| it.get_name().to_owned());
    Ok(Options {
        thread: args.thread.clone(),
        model: args.model.clone(),
        sandbox: sandbox.unwrap_or_default(),
        workspace: workspace.to_owned(),
        history: state.map(|state| state.value.join("chat-history")),
        theme: theme(context, use_stderr),
        notify: match context.settings.chat_notify.value {
            ChatNotify::Unfocused => Notify::Unfocused,
            ChatNotify::Always => Notify::Always,
            ChatNotify::Never => Notify::Never,
        },
        plain: args.plain,
        stderr: use_stderr,
        user: context.user_name()?,
    })
}

/// The colours, if the output is to be coloured.
fn theme(context: &Context, use_stderr: bool) -> Theme {
    let choice = match context.printer.color {
        ColorChoice::Auto if use_stderr => AutoStream::choice(&std::io::stderr()),
        ColorChoice::Auto => AutoStream::choice(&std::io::stdout()),
        choice => choice,
    };
    match (choice, context.settings.chat_theme.value) {
        (ColorChoice::Never, _) => Theme::None,
        (_, ChatTheme::Terminal) => Theme::Terminal,
        (_, ChatTheme::Light) => Theme::Light,
        (_, ChatTheme::Dark) => Theme::Dark,
    }
}

/// The first lines of the chat: how to get a usable model, if the chosen one is not.
async fn greeting(name: &str, models: &Catalogue) -> Vec<String> {
    let Err(why) = models.usable(name) else {
        return Vec::new();
    };
    let mut lines = vec![format!("{name} is not ready: {why}")];
    let models = models.list_reachable().await;
    let usable = models.into_iter().filter(|it| it.usable.is_ok());
    let usable: Vec<_> = usable.map(|model| model.name).collect();
    if usable.is_empty() {
        lines.push("No model is ready. `rye models list` shows what each needs.".to_owned());
    } else {
        lines.push(format!(
            "Ready models: {}. Choose one with /model NAME.",
            usable.join(", ")
        ));
    }
    lines.push(format!(
        "To look around without a key, type /model {DEMO_MODEL} and send a message."
    ));
    lines
}

/// The price of a model, or the key that it needs.
fn model_description(model: &ModelSummary) -> String {
    match &model.missing_key {
        Some(key) => format!("needs {key}"),
        None => format!(
            "${} in, ${} out per million tokens",
            model.price.input, model.price.output
        ),
    }
}

/// What the chat needs from the command line.
struct CliHost {
    models: Catalogue,
    project: PathBuf,
}

impl CliHost {
    fn new(context: &rye_host::Context, workspace: &Path) -> Result<Arc<Self>, Failure> {
        Ok(Arc::new(Self {
            models: catalogue(context, workspace)?,
            project: context.settings.project().to_owned(),
        }))
    }
}

impl ChatHost for CliHost {
    fn models(&self) -> Vec<(String, String)> {
        let all = self.models.list().into_iter();
        let all = all.map(|model| (model.name.clone(), model_description(&model)));
        let demo = "needs no key".to_owned();
        all.chain([(DEMO_MODEL.to_owned(), demo)]).collect()
    }

    fn default_model(&self) -> String {
        self.models.default_name()
    }

    fn context_window(&self, model: &str) -> Option<u64> {
        let model = self.models.get(model).ok()?;
        Some(model.info().context_window)
    }

    fn diff(
        &self,
        engine: Engine,
        session: SessionId,
        selection: Selection,
    ) -> BoxFuture<'static, Result<ChangeSummary, String>> {
        // Comparing many files takes a while.
        let work = move |runtime: Handle| {
            let diff = session_changes::diff(&engine, &session, &selection);
            let diff = runtime.block_on(diff);
            let diff = diff.map_err(|failure| failure.message)?;
            Ok(ChangeSummary {
                files: diff.files.into_iter().map(file_change).collect(),
                unknown: diff.unknown,
            })
        };
        Box::pin(async move {
            let runtime = Handle::current();
            let done = tokio::task::spawn_blocking(move || work(runtime)).await;
            done.unwrap_or_else(|error| Err(error.to_string()))
        })
    }

    fn undo(
        &self,
        engine: Engine,
        session: SessionId,
        selection: Selection,
        force: bool,
    ) -> BoxFuture<'static, Result<UndoSummary, UndoError>> {
        let work = move |runtime: Handle| {
            let undone = session_changes::undo(&engine, &session, &selection, force);
            let report = runtime.block_on(undone).map_err(undo_error)?;
            let restored = report.restored.into_iter();
            Ok(UndoSummary {
                files: restored
                    .map(|(path, kind)| (path, kind == "created"))
                    .collect(),
                unknown: report.unknown,
                error: report.failure.map(|failure| failure.message),
            })
        };
        Box::pin(async move {
            let runtime = Handle::current();
            let done = tokio::task::spawn_blocking(move || work(runtime)).await;
            done.unwrap_or_else(|error| Err(UndoError::Other(error.to_string())))
        })
    }

    fn run_command(&self, args: Vec<String>) -> BoxFuture<'static, Result<String, String>> {
        let project = self.project.clone();
        Box::pin(async move {
            let work = move || {
                let output = std::process::Command::new(std::env::current_exe()?)
                    .args(args)
                    .arg("--project")
                    .arg(project)
                    .args(["--color", "never"])
                    .stdin(Stdio::null())
                    .output()?;
                let text = String::from_utf8_lossy(&output.stdout);
                let text = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
                Ok::<_, std::io::Error>((output.status.success(), text))
            };
            match tokio::task::spawn_blocking(work).await {
                Ok(Ok((true, text))) => Ok(text),
                Ok(Ok((false, text))) => Err(text),
                Ok(Err(error)) => Err(error.to_string()),
                Err(error) => Err(error.to_string()),
            }
        })
    }
}

/// A changed file, for the chat.
fn file_change(file: FileDiff) -> FileChange {
    let kind = file.kind();
    let note = match file.compared.status {
        FileStatus::Unchanged => None,
        FileStatus::Restored => Some("undone"),
        FileStatus::Conflict(conflict) => Some(conflict_reason(conflict)),
    };
    FileChange {
        kind,
        note,
        path: file.compared.file.path,
        turns: file.compared.file.turns,
        added: file.added,
        removed: file.removed,
        diff: file.diff,
    }
}

fn undo_error(failure: Failure) -> UndoError {
    let mut details = failure.details.iter();
    let conflicts = details.find(|(key, _)| failure.code == CONFLICT && *key == CONFLICTS);
    let Some((_, conflicts)) = conflicts else {
        return UndoError::Other(failure.message);
    };
    let text = |file: &Value, key: &str| file[key].as_str().unwrap_or_default().to_owned();
    let conflict = |file: &Value| FileConflict {
        path: text(file, "path"),
        reason: text(file, "reason"),
        can_be_forced: file["can_be_forced"] == true,
    };
    let conflicts = conflicts.as_array().into_iter().flatten();
    UndoError::Conflict(conflicts.map(conflict).collect())
}

/// The report of a chat that the user left.
struct ChatReport {
    session: String,
}

impl Report for ChatReport {
    fn json(&self) -> Value {
        json!({ "session": self.session })
    }

    fn show(&self, _page: &mut Page) {}
}

fn chat_failure(error: ChatError) -> Failure {
    match error {
        ChatError::Store(error) => error.into(),
        error @ ChatError::InvalidUtf8(_) => Failure::usage(error),
        other => Failure::failed("terminal", other).hint("rye chat --plain"),
    }
}
