//! Performs the app's effects in background tasks, so that none of them blocks the keyboard.

use std::sync::Arc;
use std::time::Duration;

use rye_engine::protocol::{GateId, PromptId, QueueMode, QueuedPrompt, ThreadId};
use rye_engine::store::PostOutcome;
use rye_engine::{CompactionOutcome, Decision, Engine, Prompt, Session, UndoOutcome};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::ChatHost;
use crate::app::{App, Effect};
use crate::attachments;
use crate::block::{Block, first_line};
use crate::command::{Command, QueueCommand};
use crate::command_output;
use crate::outbox::{self, OutboxCommand};
use crate::text::{DIM, Line};

/// How long to wait for unsent prompts when the user quits.
pub(crate) const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Shown where a command needs a message and the thread has none.
const EMPTY_THREAD: &str = "the thread has no messages yet";

/// Result of an effect, to be applied with [`apply`].
#[derive(Debug)]
pub(crate) enum EffectResult {
    Block(Block),
    /// The prompt of the thread with this key is in the queue.
    PromptQueued(String, PromptId),
    PromptFailed {
        thread: String,
        text: String,
        error: String,
    },
    /// The decision is stored.
    Decided(GateId),
    /// The decision was not stored, for example because another one came first.
    DecisionFailed(Block),
    /// Text that returns to the input.
    Draft(String),
    Queue(ThreadId, Vec<QueuedPrompt>),
    Files(Vec<String>),
    History(Vec<String>),
}

/// Performs effects and sends their results to a channel.
pub(crate) struct EffectRunner {
    engine: Engine,
    session: Session,
    host: Arc<dyn ChatHost>,
    user: String,
    results: mpsc::UnboundedSender<EffectResult>,
    outbox: mpsc::UnboundedSender<OutboxCommand>,
    model: Option<String>,
}

impl EffectRunner {
    pub(crate) fn new(
        engine: &Engine,
        session: &Session,
        host: Arc<dyn ChatHost>,
        options: &crate::Options,
    ) -> (Self, mpsc::UnboundedReceiver<EffectResult>) {
        let (results, receiver) = mpsc::unbounded_channel();
        let (outbox, queue) = mpsc::unbounded_channel();
        tokio::spawn(outbox::run(session.clone(), queue, results.clone()));
        let runner = Self {
            engine: engine.clone(),
            session: session.clone(),
            host,
            user: options.user.clone(),
            results,
            outbox,
            model: options.model.clone(),
        };
        (runner, receiver)
    }

    /// Starts an effect. What the app must show immediately is applied to it.
    pub(crate) fn start(&mut self, effect: Effect, app: &mut App) {
        match effect {
            Effect::Prompt { thread, text, mode } => self.prompt(thread, text, mode, app),
            Effect::Abort { thread } => {
                let _ = self.outbox.send(OutboxCommand::Abort(thread));
            }
            Effect::Decide {
                gate,
                action,
                value,
            } => self.decide(gate, action, value),
            Effect::Command(command) => self.command(command, app),
            // The event loop performs these.
            Effect::OpenEditor | Effect::Redraw | Effect::Quit => {}
        }
    }

    fn prompt(&mut self, thread: String, text: String, mode: Option<QueueMode>, app: &App) {
        let attachments = match attachments::images(&text, &app.info.workspace) {
            Ok(attachments) => attachments,
            Err(error) => {
                let _ = self.results.send(EffectResult::PromptFailed {
                    thread,
                    text,
                    error,
                });
                return;
            }
        };
        let prompt = Prompt {
            thread: Some(thread),
            mode,
            model: self.model.clone(),
            attachments,
            ..Prompt::from(text)
        };
        // The outbox task lives as long as this sender.
        let _ = self.outbox.send(OutboxCommand::Prompt(Box::new(prompt)));
    }

    fn decide(&self, gate: GateId, action: String, value: Value) {
        let engine = self.engine.clone();
        let decision = Decision {
            value,
            ..Decision::new(action, &self.user, "chat")
        };
        self.spawn(async move {
            match engine.decide(&gate, decision).await {
                Ok(PostOutcome::Conflict(first)) => {
                    let text = format!("already decided by {}: {}", first.by, first.action);
                    Some(EffectResult::DecisionFailed(Block::notice(&text)))
                }
                Ok(_) => Some(EffectResult::Decided(gate)),
                Err(error) => Some(EffectResult::DecisionFailed(Block::Error(
                    error.to_string(),
                ))),
            }
        });
    }

    fn command(&mut self, command: Command, app: &mut App) {
        match command {
            Command::Help => command_output::help(app),
            Command::Model(Some(name)) => self.choose_model(&name, app),
            Command::Model(None) => app.add_block(command_output::models(app)),
            Command::Threads => app.add_block(command_output::threads(app)),
            Command::Cost => app.add_block(command_output::costs(app)),
            Command::Tools => app.add_block(command_output::tools(&self.engine)),
            Command::Queue(QueueCommand::Show) => {
                let queue = crate::pane::queue_lines(&app.pane().waiting, usize::MAX);
                let empty = vec![Line::new("the queue is empty", DIM)];
                let lines = if queue.is_empty() { empty } else { queue };
                app.add_block(Block::Notice(lines));
            }
            Command::Queue(QueueCommand::Remove(number)) => self.withdraw(number, false, app),
            Command::Queue(QueueCommand::Edit(number)) => self.withdraw(number, true, app),
            Command::Gates => {
                let (engine, session) = (self.engine.clone(), self.session.id().clone());
                self.spawn(async move {
                    Some(match engine.pending_gates_in_tree(&session).await {
                        Ok(gates) => EffectResult::Block(command_output::gates(&gates)),
                        Err(error) => error_result(&error),
                    })
                });
            }
            Command::Fork => self.fork(app),
            Command::Export(file) => {
                let file = file.unwrap_or_else(|| format!("{}.jsonl", self.session.id()));
                let file = app.info.workspace.join(file).display().to_string();
                self.run_host_command([
                    "session",
                    "export",
                    self.session.id().as_str(),
                    "--output",
                    &file,
                ]);
            }
            Command::Verify => {
                self.run_host_command(["session", "verify", self.session.id().as_str()]);
            }
            Command::Compact | Command::Undo if app.pane().id.is_none() => {
                app.add_block(Block::notice(EMPTY_THREAD));
            }
            Command::Compact => {
                let (session, thread) = (self.session.clone(), app.pane().key.clone());
                self.spawn(async move {
                    match session.compact(Some(&thread)).await {
                        Ok(CompactionOutcome::Nothing) => {
                            Some(EffectResult::Block(Block::notice("nothing to compact")))
                        }
                        Ok(CompactionOutcome::Pruned(calls)) => {
                            let text = format!("pruned the output of {calls} old calls");
                            Some(EffectResult::Block(Block::notice(&text)))
                        }
                        // The history shows the summary.
                        Ok(_) => None,
                        Err(error) => Some(error_result(&error)),
                    }
                });
            }
            Command::Undo => {
                let (session, thread) = (self.session.clone(), app.pane().key.clone());
                self.spawn(async move {
                    match session.undo_compaction(Some(&thread)).await {
                        Ok(UndoOutcome::Undone(_)) => None,
                        Ok(UndoOutcome::NothingToUndo) => {
                            Some(EffectResult::Block(Block::notice("no compaction to undo")))
                        }
                        Ok(UndoOutcome::Busy) => {
                            let text = "cannot undo: a turn or a compaction is running";
                            Some(EffectResult::Block(Block::notice(text)))
                        }
                        Err(error) => Some(error_result(&error)),
                    }
                });
            }
            // The app performs these itself.
            Command::Quit | Command::Thread(_) | Command::Steer(_) => {}
        }
    }

    fn run_host_command<const N: usize>(&self, args: [&str; N]) {
        let command = self.host.run_command(args.map(str::to_owned).to_vec());
        self.spawn(async move {
            Some(EffectResult::Block(match command.await {
                Ok(output) => Block::Notice(output.lines().map(Line::plain).collect()),
                Err(error) => Block::Error(error),
            }))
        });
    }

    fn choose_model(&mut self, name: &str, app: &mut App) {
        let models = self.host.models();
        let known = name.starts_with("scripted:") || models.iter().any(|known| known == name);
        if !known {
            let nearest = models
                .iter()
                .min_by_key(|known| strsim::damerau_levenshtein(known, name));
            let suggestion = nearest
                .map(|nearest| format!("; did you mean {nearest}?"))
                .unwrap_or_default();
            return app.set_hint(&format!("unknown model {name}{suggestion}"));
        }
        self.model = Some(name.to_owned());
        name.clone_into(&mut app.info.model);
        app.info.context_window = self.host.context_window(name);
        app.add_block(Block::notice(&format!(
            "using {name} from the next prompt on"
        )));
    }

    /// Removes a prompt from the queue, and with `edit` returns it to the input.
    fn withdraw(&self, number: usize, edit: bool, app: &mut App) {
        let pane = app.pane();
        let prompt = pane.waiting.get(number - 1).map(|prompt| prompt.id.clone());
        let (Some(thread), Some(prompt)) = (pane.id.clone(), prompt) else {
            return app.set_hint(&format!("the queue has no prompt {number}"));
        };
        let session = self.session.clone();
        self.spawn(async move {
            Some(match session.withdraw_prompt(&thread, &prompt).await {
                Ok(Some(prompt)) if edit => EffectResult::Draft(prompt.content),
                Ok(Some(prompt)) => {
                    let text = format!("removed: {}", first_line(&prompt.content, 100));
                    EffectResult::Block(Block::notice(&text))
                }
                Ok(None) => EffectResult::Block(Block::notice("the prompt has already started")),
                Err(error) => error_result(&error),
            })
        });
    }

    fn fork(&self, app: &App) {
        let engine = self.engine.clone();
        let (session, thread) = (self.session.clone(), app.pane().id.clone());
        self.spawn(async move {
            let Some(thread) = thread else {
                return Some(EffectResult::Block(Block::notice(EMPTY_THREAD)));
            };
            let entries = session.entries(&thread, None, usize::MAX).await;
            let last = match entries {
                Ok(entries) => entries.last().map(|entry| entry.id.clone()),
                Err(error) => return Some(error_result(&error)),
            };
            let Some(last) = last else {
                return Some(EffectResult::Block(Block::notice(EMPTY_THREAD)));
            };
            Some(match engine.fork(session.id(), Some(&last)).await {
                Ok(fork) => {
                    let text = format!("forked: rye chat --session {}", fork.short());
                    EffectResult::Block(Block::notice(&text))
                }
                Err(error) => error_result(&error),
            })
        });
    }

    /// Loads the queued prompts of a thread.
    pub(crate) fn load_queue(&self, thread: ThreadId) {
        let session = self.session.clone();
        self.spawn(async move {
            let waiting = session.waiting_prompts(&thread).await;
            Some(match waiting {
                Ok(waiting) => EffectResult::Queue(thread, waiting),
                Err(error) => error_result(&error),
            })
        });
    }

    /// Loads the prompt history and the file names for completion.
    pub(crate) fn load_completions(&self, options: &crate::Options) {
        let (workspace, history) = (options.workspace.clone(), options.history.clone());
        let results = self.results.clone();
        tokio::task::spawn_blocking(move || {
            if let Some(path) = history {
                let prompts = crate::history::History::new(&path).load();
                let _ = results.send(EffectResult::History(prompts));
            }
            let files = crate::completion::list_files(&workspace);
            let _ = results.send(EffectResult::Files(files));
        });
    }

    fn spawn(&self, effect: impl Future<Output = Option<EffectResult>> + Send + 'static) {
        let results = self.results.clone();
        tokio::spawn(async move {
            if let Some(result) = effect.await {
                let _ = results.send(result);
            }
        });
    }
}

/// Applies the result of an effect to the app.
pub(crate) fn apply(result: EffectResult, app: &mut App) {
    match result {
        EffectResult::Block(block) | EffectResult::DecisionFailed(block) => app.add_block(block),
        EffectResult::PromptQueued(thread, prompt) => app.on_prompt_sent(&thread, Some(prompt)),
        EffectResult::PromptFailed {
            thread,
            text,
            error,
        } => {
            app.on_prompt_sent(&thread, None);
            app.add_block(Block::Error(format!("not sent: {error}")));
            app.restore_draft(&text);
        }
        EffectResult::Decided(gate) => app.mark_answered(&gate),
        EffectResult::Draft(text) => app.restore_draft(&text),
        EffectResult::Queue(thread, waiting) => app.set_queue(&thread, &waiting),
        EffectResult::Files(files) => app.completions.files = files,
        EffectResult::History(prompts) => app.editor.prepend_history(prompts),
    }
}

pub(crate) fn error_result(error: &dyn std::fmt::Display) -> EffectResult {
    EffectResult::Block(Block::Error(error.to_string()))
}
