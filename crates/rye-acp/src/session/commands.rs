//! Slash commands of the user. Each runs beside the session's events, and its result is a message
//! that is not part of the history.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use agent_client_protocol::v1::Responder;
use agent_client_protocol::v1::schema::{PromptResponse, StopReason};
use rye_engine::changes::Selection;
use rye_engine::protocol::SessionId;
use rye_engine::store::{Claim, StoreError};
use rye_engine::{CompactionOutcome, Engine, Prompt, Session, UndoOutcome};
use rye_host::Failure;
use rye_host::engine::answer_command;
use rye_host::session_changes::{self, CONFLICT, CONFLICTS};
use tokio::runtime::Handle;

use super::SessionTask;
use crate::settings::labels;
use crate::slash_command::{COMMANDS, SlashCommand};
use crate::tool_call::fenced;
use crate::transcript::note;

/// The prompt that asks for a review.
const REVIEW: &str = "Review the changes.";

/// The result of a command.
pub(super) enum CommandResult {
    /// A text for the user.
    Text(String),
    /// A prompt for the agent.
    Prompt(Box<Prompt>),
    /// The role of the next prompts.
    Role(String),
}

/// A command that has ended.
pub(super) struct EndedCommand {
    responder: Responder<PromptResponse>,
    /// Its result, or an error for the user; none if it was cancelled.
    result: Option<Result<CommandResult, String>>,
}

impl SessionTask {
    /// Runs a command.
    pub(super) async fn run_command(
        &mut self,
        command: Result<SlashCommand, String>,
        responder: Responder<PromptResponse>,
    ) {
        let command = match command {
            Ok(command) => command,
            Err(message) => return self.finish_command(responder, &message),
        };
        let (engine, id) = (self.engine().clone(), self.id.clone());
        let key = self.thread_key.clone();
        let text = match command {
            SlashCommand::Help => help(),
            SlashCommand::Plan => self.transcript.plan_text(),
            SlashCommand::Status => self.status().await,
            SlashCommand::Model(None) => {
                let names = self.project.models.list().into_iter();
                let usable = names.filter(|model| model.usable.is_ok());
                list(
                    "The models that can be used",
                    usable.map(|it| (it.name, String::new())),
                )
            }
            SlashCommand::Model(Some(name)) => match self.choose_model(&name) {
                Ok(()) => format!("Using `{name}` from the next prompt on."),
                Err(error) => error,
            },
            SlashCommand::Tools => {
                let tools = engine.tools();
                let tools = tools.iter().map(|tool| {
                    let first = tool.description.split_inclusive(". ").next();
                    (
                        tool.name.clone(),
                        first.unwrap_or_default().trim().to_owned(),
                    )
                });
                list("The tools of the agent", tools)
            }
            SlashCommand::Gates => match engine.pending_gates_in_tree(&id).await {
                Ok(gates) => {
                    let gates = gates.iter();
                    let gates = gates.map(|gate| (answer_command(gate), gate.title.clone()));
                    list("Pending gates, and the commands that answer them", gates)
                }
                Err(error) => error.to_string(),
            },
            SlashCommand::Diff(selection) => {
                return self.spawn_command(responder, async move {
                    diff(engine, id, selection).await.map(CommandResult::Text)
                });
            }
            SlashCommand::Undo { selection, force } => {
                return self.spawn_command(responder, async move {
                    match engine.is_quiescent(&id).await {
                        Ok(true) => {}
                        Ok(false) => return Err("The agent is working: stop it first.".to_owned()),
                        Err(error) => return Err(error.to_string()),
                    }
                    let undone = undo(engine, id, selection, force);
                    undone.await.map(CommandResult::Text)
                });
            }
            other => {
                let role = self.role.clone();
                let work = async move {
                    let session = held(&engine, &id)
                        .await
                        .map_err(|error| error.to_string())?;
                    with_session(other, &engine, &session, &key, role).await
                };
                return self.spawn_command(responder, work);
            }
        };
        self.finish_command(responder, &text);
    }

    fn spawn_command(
        &mut self,
        responder: Responder<PromptResponse>,
        work: impl Future<Output = Result<CommandResult, String>> + Send + 'static,
    ) {
        let cancelled = self.commands_cancelled.clone();
        self.commands.push(Box::pin(async move {
            let result = cancelled.run_until_cancelled(work).await;
            EndedCommand { responder, result }
        }));
    }

    /// Shows the result of a command.
    pub(super) async fn on_command_ended(&mut self, ended: EndedCommand) {
        let EndedCommand { responder, result } = ended;
        match result {
            None => {
                let _ = responder.respond(PromptResponse::new(StopReason::Cancelled));
            }
            Some(Ok(CommandResult::Text(text)) | Err(text)) => {
                self.finish_command(responder, &text);
            }
            Some(Ok(CommandResult::Prompt(prompt))) => self.submit(*prompt, responder).await,
            Some(Ok(CommandResult::Role(name))) => {
                let text = format!("Using the role `{name}` from the next prompt on.");
                self.role = Some(name);
                self.finish_command(responder, &text);
            }
        }
    }

    fn finish_command(&self, responder: Responder<PromptResponse>, text: &str) {
        self.send(note(text));
        let _ = responder.respond(PromptResponse::new(StopReason::EndTurn));
    }

    /// Uses a model from the next prompt on.
    pub(super) fn choose_model(&mut self, name: &str) -> Result<(), String> {
        self.project.models.usable(name)?;
        name.clone_into(&mut self.settings.model);
        self.send_settings();
        Ok(())
    }

    async fn status(&mut self) -> String {
        let mut rows = vec![
            ("session", self.id.to_string()),
            ("model", self.settings.model.clone()),
            ("mode", labels(self.settings.mode).0.to_owned()),
        ];
        rows.extend(self.role.clone().map(|role| ("role", role)));
        if let Ok(Some(session)) = self.engine().session_data(&self.id).await {
            let kind = session.sandbox.map(|sandbox| sandbox.kind.to_string());
            rows.extend(kind.map(|kind| ("sandbox", kind)));
            rows.extend(session.workspace.map(|workspace| ("workspace", workspace)));
            let usage = session.usage;
            #[expect(clippy::cast_precision_loss, reason = "for people")]
            let dollars = usage.micro_dollars as f64 / 1_000_000.0;
            let (input, output) = (usage.input_tokens, usage.output_tokens);
            let usage = format!("{input} input and {output} output tokens, ${dollars:.4}");
            rows.push(("usage", usage));
        }
        let rows = rows.into_iter();
        let rows = rows.map(|(name, value)| format!("- {name}: `{value}`\n"));
        rows.collect()
    }
}

/// Runs a command that needs the open session.
async fn with_session(
    command: SlashCommand,
    engine: &Engine,
    session: &Session,
    key: &str,
    role: Option<String>,
) -> Result<CommandResult, String> {
    let failed = |error: StoreError| error.to_string();
    let sandbox = &**session.sandbox();
    Ok(CommandResult::Text(match command {
        SlashCommand::Compact => match session.compact(Some(key)).await.map_err(failed)? {
            CompactionOutcome::Summarised {
                tokens_before,
                tokens_after,
                ..
            } => format!("Compacted the history from {tokens_before} to {tokens_after} tokens."),
            CompactionOutcome::Pruned(calls) => {
                format!("Pruned the output of {calls} old calls.")
            }
            CompactionOutcome::Nothing => "Nothing to compact.".to_owned(),
            CompactionOutcome::Failed(error) => return Err(error.message),
        },
        SlashCommand::UndoCompaction => {
            match session.undo_compaction(Some(key)).await.map_err(failed)? {
                UndoOutcome::Undone(_) => "The last compaction is undone.".to_owned(),
                UndoOutcome::NothingToUndo => "No compaction to undo.".to_owned(),
                UndoOutcome::Busy => "A turn or a compaction is running: stop it first.".to_owned(),
            }
        }
        SlashCommand::Review => {
            let data = engine.session_data(session.id()).await.map_err(failed)?;
            let sandbox = data.and_then(|data| data.sandbox);
            if sandbox.is_some_and(|it| it.review) {
                let prompt = Prompt {
                    review: true,
                    ..Prompt::from(REVIEW)
                };
                return Ok(CommandResult::Prompt(Box::new(prompt)));
            }
            "The session is not in review mode: `rye help sandbox` explains it.".to_owned()
        }
        SlashCommand::Role(None) => {
            let roles = engine.roles(sandbox).await.into_iter();
            let current = role.map_or_else(String::new, |role| format!(" (now `{role}`)"));
            let title = format!("The roles{current}");
            list(&title, roles.map(|role| (role.name, role.description)))
        }
        SlashCommand::Skill(None) => {
            let skills = engine.skills(sandbox).await.into_iter();
            list("The skills", skills.map(|it| (it.name, it.description)))
        }
        SlashCommand::Skill(Some(name)) => {
            let text = engine.skill(&name, &BTreeMap::new(), sandbox).await?;
            return Ok(CommandResult::Prompt(Box::new(Prompt::from(text))));
        }
        SlashCommand::Role(Some(name)) => {
            return match engine.role(&name, sandbox).await {
                Ok(_) => Ok(CommandResult::Role(name)),
                Err(error) => Err(error),
            };
        }
        _ => String::new(),
    }))
}

/// The open session; opens it if no process holds it.
async fn held(engine: &Engine, id: &SessionId) -> Result<Session, StoreError> {
    match engine.session(id) {
        Some(open) => Ok(open),
        None => engine.open_session(id, Claim::IfFree).await,
    }
}

fn help() -> String {
    let commands = COMMANDS.iter().map(|(name, arguments, description)| {
        let command = format!("/{name} {arguments}").trim_end().to_owned();
        (command, (*description).to_owned())
    });
    list("Commands", commands)
}

/// A list of names with descriptions, some of them empty.
fn list(title: &str, rows: impl IntoIterator<Item = (String, String)>) -> String {
    let mut text = format!("{title}:\n");
    let mut is_empty = true;
    for (name, description) in rows {
        is_empty = false;
        let separator = if description.is_empty() { "" } else { ": " };
        let _ = write!(text, "\n- `{name}`{separator}{description}");
    }
    if is_empty {
        format!("{title}: none")
    } else {
        text
    }
}

/// What the session changed in files.
async fn diff(engine: Engine, id: SessionId, selection: Selection) -> Result<String, String> {
    let compare = move |runtime: Handle| {
        let compared = session_changes::diff(&engine, &id, &selection);
        runtime.block_on(compared)
    };
    let changes = in_thread(compare)
        .await?
        .map_err(|failure| failure.message)?;
    let mut text = String::new();
    for file in &changes.files {
        let (path, kind) = (&file.compared.file.path, file.kind());
        let _ = writeln!(
            text,
            "{kind} `{path}` (+{} -{})\n",
            file.added, file.removed
        );
        if let Some(diff) = &file.diff {
            let _ = writeln!(text, "{}\n", fenced(diff, "diff"));
        }
    }
    if changes.unknown > 0 {
        let _ = writeln!(
            text,
            "The changes of {} commands are unknown.",
            changes.unknown
        );
    }
    if text.is_empty() {
        text.push_str("The agent changed no files.");
    }
    Ok(text)
}

/// Undoes what the session changed in files.
async fn undo(
    engine: Engine,
    id: SessionId,
    selection: Selection,
    force: bool,
) -> Result<String, String> {
    let restore = move |runtime: Handle| {
        let undone = session_changes::undo(&engine, &id, &selection, force);
        runtime.block_on(undone)
    };
    let report = in_thread(restore)
        .await?
        .map_err(|failure| conflict_text(&failure))?;
    let mut text = String::new();
    for (path, kind) in &report.restored {
        let what = if *kind == "created" {
            "Removed"
        } else {
            "Restored"
        };
        let _ = writeln!(text, "{what} `{path}`.\n");
    }
    if let Some(failure) = &report.failure {
        let _ = writeln!(text, "**Error:** {}", failure.message);
    } else if text.is_empty() {
        text.push_str("Nothing to undo.");
    } else {
        text.push_str("The agent is told with your next prompt.");
    }
    if report.unknown > 0 {
        let _ = write!(
            text,
            "\n\nThe changes of {} commands are unknown.",
            report.unknown
        );
    }
    Ok(text)
}

/// Why nothing was undone.
fn conflict_text(failure: &Failure) -> String {
    let mut details = failure.details.iter();
    let conflicts = details.find(|(key, _)| failure.code == CONFLICT && *key == CONFLICTS);
    let Some((_, conflicts)) = conflicts else {
        return failure.message.clone();
    };
    let mut text = "Nothing was undone:\n".to_owned();
    for file in conflicts.as_array().into_iter().flatten() {
        let field = |key: &str| file[key].as_str().unwrap_or_default();
        let _ = write!(text, "\n- `{}`: {}", field("path"), field("reason"));
    }
    text.push_str("\n\nAdd `--force` to undo it anyway.");
    text
}

/// Runs work that takes a while.
async fn in_thread<T: Send + 'static>(
    work: impl FnOnce(Handle) -> T + Send + 'static,
) -> Result<T, String> {
    let runtime = Handle::current();
    let done = tokio::task::spawn_blocking(move || work(runtime)).await;
    done.map_err(|error| error.to_string())
}
