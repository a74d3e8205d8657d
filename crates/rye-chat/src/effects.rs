//! Performs the app's effects in background tasks, so that none of them blocks the keyboard.

mod changes;
mod sessions;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lillux::Hash;
use rye_engine::blob::SCHEME;
use rye_engine::protocol::{ActionId, GateId, QueueMode, ThreadId};
use rye_engine::store::{PostOutcome, StoreError};
use rye_engine::{CompactionOutcome, Decision, Engine, Prompt, Session, UndoOutcome};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::ChatHost;
use crate::app::{App, Effect, OpenRequest, RunningShell, SessionInfo};
use crate::attachments;
use crate::block::{Block, first_line};
use crate::command::{Command, QueueCommand, ReviewCommand};
use crate::command_output;
use crate::completion::{Choice, Completions};
use crate::history;
use crate::shell;
use crate::text::Line;
pub(crate) use changes::unknown_line;
pub(crate) use sessions::BUSY_REVIEW;
use sessions::INIT_PROMPT;

/// How long to wait for unsent prompts when the user quits.
pub(crate) const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Shown where a command needs a message and the thread has none.
const EMPTY_THREAD: &str = "the thread has no messages yet";

/// The prompt that asks for a review.
const REVIEW: &str = "Review the changes.";

/// How the result of an effect changes the app.
pub(crate) type Update = Box<dyn FnOnce(&mut App) + Send>;

/// Performs effects and sends their results to a channel.
pub(crate) struct EffectRunner {
    engine: Engine,
    session: Session,
    host: Arc<dyn ChatHost>,
    user: String,
    updates: UnboundedSender<Update>,
    outbox: UnboundedSender<OutboxCommand>,
    model: Option<String>,
}

impl EffectRunner {
    pub(crate) fn new(
        engine: &Engine,
        session: &Session,
        host: Arc<dyn ChatHost>,
        options: &crate::Options,
    ) -> (Self, UnboundedReceiver<Update>) {
        let (updates, receiver) = unbounded_channel();
        let (outbox, queue) = unbounded_channel();
        tokio::spawn(send_all(session.clone(), queue, updates.clone()));
        let runner = Self {
            engine: engine.clone(),
            session: session.clone(),
            host,
            user: options.user.clone(),
            updates,
            outbox,
            model: options.model.clone(),
        };
        (runner, receiver)
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) fn host(&self) -> Arc<dyn ChatHost> {
        Arc::clone(&self.host)
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
            } => self.decide(gate, action, value, app),
            Effect::Command(command) => self.command(command, app),
            Effect::Shell(running) => self.run_shell(running, app),
            Effect::EditLastPrompt => self.edit_last_prompt(app),
            Effect::Expand(block) => self.expand(*block, app),
            // The event loop performs these.
            Effect::OpenEditor | Effect::Redraw | Effect::Quit => {}
        }
    }

    fn prompt(&mut self, thread: String, text: String, mode: Option<QueueMode>, app: &mut App) {
        match attachments::images(&text, &app.info.workspace) {
            Ok(attachments) => {
                let prompt = Prompt {
                    thread: Some(thread),
                    mode,
                    model: self.model.clone(),
                    role: app.role.clone(),
                    attachments,
                    ..Prompt::from(text)
                };
                // The outbox task lives as long as this sender.
                let _ = self.outbox.send(OutboxCommand::Prompt(Box::new(prompt)));
            }
            Err(error) => app.on_prompt_failed(&thread, &text, &error),
        }
    }

    fn decide(&self, gate: GateId, action: ActionId, value: Value, app: &mut App) {
        app.deciding += 1;
        let engine = self.engine.clone();
        let decision = Decision {
            value,
            ..Decision::new(action, &self.user, "chat")
        };
        self.spawn(async move {
            let decided = engine.decide(&gate, decision).await;
            Box::new(move |app: &mut App| {
                app.deciding -= 1;
                match decided {
                    // Another decision came first.
                    Ok(PostOutcome::Conflict(first)) => {
                        let text = format!("already decided by {}: {}", first.by, first.action);
                        app.add_block(Block::notice(&text));
                    }
                    Ok(_) => app.mark_answered(&gate),
                    Err(error) => {
                        app.add_block(Block::Error(error.to_string()));
                        app.is_answer_refused = true;
                    }
                }
            })
        });
    }

    fn command(&mut self, command: Command, app: &mut App) {
        let (engine, session) = (self.engine.clone(), self.session.clone());
        let thread = app.pane().id.clone();
        match command {
            Command::Help => command_output::help(app),
            Command::Model(Some(name)) => self.choose_model(&name, app),
            Command::Model(None) if app.plain => {
                app.add_block(command_output::choices("model", &app.completions.models));
            }
            Command::Model(None) => app.open_picker("model"),
            Command::Thread(None) if app.plain => app.add_block(command_output::threads(app)),
            Command::Thread(None) => {
                app.completions.threads = command_output::thread_choices(app);
                app.open_picker("threads");
            }
            Command::Init => {
                let pane = app.pane_mut();
                pane.unconfirmed += 1;
                let thread = pane.key.clone();
                self.prompt(thread, INIT_PROMPT.to_owned(), None, app);
            }
            Command::Status => app.add_block(command_output::status(app)),
            Command::Permissions => app.add_block(command_output::permissions(app)),
            Command::Mcp => self.run_command(&["mcp", "list"]),
            Command::Cost => app.add_block(command_output::costs(app)),
            Command::Tools => app.add_block(command_output::tools(&engine)),
            Command::Queue(QueueCommand::Show) => {
                let queue = crate::pane::queue_lines(&app.pane().waiting, usize::MAX);
                app.add_block(if queue.is_empty() {
                    Block::notice("the queue is empty")
                } else {
                    Block::Notice(queue)
                });
            }
            Command::Queue(QueueCommand::Remove(number)) => self.withdraw(number, false, app),
            Command::Queue(QueueCommand::Edit(number)) => self.withdraw(number, true, app),
            Command::Gates => self.show(async move {
                let gates = engine.pending_gates_in_tree(session.id()).await?;
                Ok(Some(command_output::gates(&gates)))
            }),
            other => self.session_command(other, thread, app),
        }
    }

    /// Performs a command that concerns the history or the settings of the session.
    fn session_command(&mut self, command: Command, thread: Option<ThreadId>, app: &mut App) {
        let (engine, session) = (self.engine.clone(), self.session.clone());
        let key = app.pane().key.clone();
        match command {
            Command::Sessions(choice) => self.open_session(choice, app),
            Command::New => {
                app.open_request = Some(OpenRequest {
                    session: None,
                    draft: String::new(),
                });
            }
            Command::Role(Some(name)) => self.choose_role(name),
            Command::Role(None) => {
                self.spawn(async move {
                    let roles = engine.roles(&**session.sandbox()).await;
                    let roles = roles.into_iter().map(|it| (it.name, it.description));
                    let roles = choices(roles);
                    Box::new(move |app: &mut App| {
                        app.completions.roles = roles;
                        pick("role", |known| &known.roles, app);
                    })
                });
            }
            Command::Skill(Some(name)) => self.use_skill(name, app),
            Command::Skill(None) => {
                self.spawn(async move {
                    let skills = engine.skills(&**session.sandbox()).await;
                    let skills = skills.into_iter().map(|it| (it.name, it.description));
                    let skills = choices(skills);
                    Box::new(move |app: &mut App| {
                        app.completions.skills = skills;
                        pick("skill", |known| &known.skills, app);
                    })
                });
            }
            Command::Share(file) => {
                let file = file.unwrap_or_else(|| format!("{}.html", session.id().short()));
                self.share(app.info.workspace.join(file));
            }
            Command::Export(file) => {
                let file = file.unwrap_or_else(|| format!("{}.jsonl", session.id()));
                let file = app.info.workspace.join(file).display().to_string();
                self.run_host(&["export", session.id().as_str(), "--output", &file]);
            }
            Command::Verify => self.run_host(&["verify", session.id().as_str()]),
            Command::Fork | Command::Compact | Command::UndoCompaction if thread.is_none() => {
                app.add_block(Block::notice(EMPTY_THREAD));
            }
            Command::Fork => self.show(async move {
                let entries = match &thread {
                    Some(thread) => session.entries(thread, None, usize::MAX).await?,
                    None => Vec::new(),
                };
                let Some(last) = entries.last() else {
                    return Ok(Some(Block::notice(EMPTY_THREAD)));
                };
                let fork = engine.fork(session.id(), Some(&last.id)).await?;
                let text = format!("forked: rye chat --session {}", fork.short());
                Ok(Some(Block::notice(&text)))
            }),
            Command::Compact => self.show(async move {
                Ok(match session.compact(Some(&key)).await? {
                    CompactionOutcome::Nothing => Some(Block::notice("nothing to compact")),
                    CompactionOutcome::Pruned(calls) => {
                        let text = format!("pruned the output of {calls} old calls");
                        Some(Block::notice(&text))
                    }
                    // The history shows the summary.
                    _ => None,
                })
            }),
            Command::Review(ReviewCommand::OnOrNow) if !app.info.review => {
                app.request_review(true);
            }
            Command::Review(ReviewCommand::Set(review)) => app.request_review(review),
            Command::Review(ReviewCommand::OnOrNow) => self.show(async move {
                let prompt = Prompt {
                    review: true,
                    thread: Some(key),
                    ..Prompt::from(REVIEW)
                };
                session.prompt(prompt).await?;
                Ok(None)
            }),
            Command::UndoCompaction => self.show(async move {
                Ok(match session.undo_compaction(Some(&key)).await? {
                    UndoOutcome::Undone(_) => None,
                    UndoOutcome::NothingToUndo => Some(Block::notice("no compaction to undo")),
                    UndoOutcome::Busy => {
                        let text = "cannot undo: a turn or a compaction is running";
                        Some(Block::notice(text))
                    }
                })
            }),
            Command::Diff(selection) => self.show_changes(selection),
            Command::Undo { selection, force } => self.undo_changes(selection, force, app),
            // The app performs the others itself.
            _ => {}
        }
    }

    /// Loads all of a block for the event loop, which shows it.
    fn expand(&self, mut block: Block, app: &mut App) {
        let full_output = match &block {
            Block::Call(call) => call.full_output.as_deref(),
            _ => None,
        };
        let hash = full_output.and_then(|it| it.strip_prefix(SCHEME)?.parse::<Hash>().ok());
        let Some(hash) = hash else {
            app.to_expand = Some(block);
            return;
        };
        let engine = self.engine.clone();
        self.spawn(async move {
            // If the output is gone, the result still has its start and end.
            let stored = engine.blob(&hash).await.ok().flatten();
            if let (Block::Call(call), Some(bytes)) = (&mut block, stored) {
                call.text = String::from_utf8_lossy(&bytes).into_owned();
            }
            Box::new(move |app: &mut App| app.to_expand = Some(block))
        });
    }

    /// Runs a command of the user in the workspace.
    fn run_shell(&self, running: RunningShell, app: &App) {
        let directory = app.info.workspace.clone();
        let RunningShell {
            thread,
            line,
            handle,
        } = running;
        let work = {
            let line = line.clone();
            move || shell::run(&line, &directory, &handle)
        };
        self.spawn(async move {
            let ended = tokio::task::spawn_blocking(work).await;
            let ended = ended.unwrap_or_else(|error| Err(std::io::Error::other(error)));
            Box::new(move |app: &mut App| match ended {
                Ok((output, status)) => app.on_shell_ended(&thread, &line, &output, status),
                Err(error) => {
                    app.shell = None;
                    app.add_block(Block::Error(format!("cannot run `{line}`: {error}")));
                }
            })
        });
    }

    /// Uses a role from the next prompt on.
    fn choose_role(&self, name: String) {
        let (engine, session) = (self.engine.clone(), self.session.clone());
        self.spawn(async move {
            let role = engine.role(&name, &**session.sandbox()).await;
            Box::new(move |app: &mut App| match role {
                Ok(role) => {
                    let text = format!("using the role {} from the next prompt on", role.name);
                    app.add_block(Block::notice(&text));
                    app.role = Some(role.name);
                }
                Err(error) => app.set_hint(&error),
            })
        });
    }

    /// Sends the instructions of a skill as a prompt.
    fn use_skill(&self, name: String, app: &mut App) {
        let pane = app.pane_mut();
        pane.unconfirmed += 1;
        let thread = pane.key.clone();
        let (engine, session) = (self.engine.clone(), self.session.clone());
        let (outbox, model, role) = (self.outbox.clone(), self.model.clone(), app.role.clone());
        self.spawn(async move {
            let sandbox = &**session.sandbox();
            let text = engine.skill(&name, &BTreeMap::new(), sandbox).await;
            Box::new(move |app: &mut App| match text {
                Ok(text) => {
                    let prompt = Prompt {
                        thread: Some(thread),
                        model,
                        role,
                        ..Prompt::from(text)
                    };
                    let _ = outbox.send(OutboxCommand::Prompt(Box::new(prompt)));
                }
                Err(error) => app.on_prompt_failed(&thread, &format!("/skill {name}"), &error),
            })
        });
    }

    /// Runs `rye session` with arguments and shows what it prints.
    fn run_host(&self, args: &[&str]) {
        self.run_command(&[&["session"], args].concat());
    }

    /// Runs `rye` with arguments and shows what it prints.
    fn run_command(&self, args: &[&str]) {
        let args = args.iter().map(|it| (*it).to_owned());
        let command = self.host.run_command(args.collect());
        self.show(async move {
            Ok(Some(match command.await {
                Ok(output) => Block::Notice(output.lines().map(Line::plain).collect()),
                Err(error) => Block::Error(error),
            }))
        });
    }

    fn choose_model(&mut self, name: &str, app: &mut App) {
        let models = self.host.models().into_iter();
        let models: Vec<_> = models.map(|(name, _)| name).collect();
        if !name.starts_with("scripted:") && !models.iter().any(|known| known == name) {
            let distance = |known: &&String| strsim::damerau_levenshtein(known, name);
            let nearest = models.iter().min_by_key(distance);
            let suggestion = nearest.map(|nearest| format!("; did you mean {nearest}?"));
            let suggestion = suggestion.unwrap_or_default();
            return app.set_hint(&format!("unknown model {name}{suggestion}"));
        }
        self.model = Some(name.to_owned());
        name.clone_into(&mut app.info.model);
        app.info.context_window = self.host.context_window(name);
        let text = format!("using {name} from the next prompt on");
        app.add_block(Block::notice(&text));
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
            let withdrawn = session.withdraw_prompt(&thread, &prompt).await;
            Box::new(move |app: &mut App| match withdrawn {
                Ok(Some(prompt)) if edit => app.restore_draft(&prompt.content),
                Ok(Some(prompt)) => {
                    let text = format!("removed: {}", first_line(&prompt.content, 100));
                    app.add_block(Block::notice(&text));
                }
                Ok(None) => app.add_block(Block::notice("the prompt has already started")),
                Err(error) => app.add_block(Block::Error(error.to_string())),
            })
        });
    }

    /// Loads the prompt history.
    pub(crate) fn load_history(&self, path: std::path::PathBuf) {
        let updates = self.updates.clone();
        tokio::task::spawn_blocking(move || {
            let prompts = history::load(&path);
            let _ = updates.send(Box::new(|app| app.editor.prepend_history(prompts)));
        });
    }

    /// Loads the file names for completion, as the tools see them, and the git branch.
    pub(crate) fn load_workspace(&self, info: &SessionInfo) {
        let session = self.session.clone();
        let workspace = info.shows_workspace().then(|| info.workspace.clone());
        self.spawn(async move {
            let files = crate::completion::list_files(&**session.sandbox()).await;
            let branch = workspace.and_then(|it| crate::welcome::git_branch(&it));
            Box::new(move |app: &mut App| {
                app.completions.files = files;
                app.info.branch = branch;
            })
        });
    }

    /// Shows the block that an effect results in, or its error.
    fn show(
        &self,
        effect: impl Future<Output = Result<Option<Block>, StoreError>> + Send + 'static,
    ) {
        self.spawn(async move {
            let block = effect.await;
            let block = block.unwrap_or_else(|error| Some(Block::Error(error.to_string())));
            Box::new(move |app: &mut App| block.into_iter().for_each(|block| app.add_block(block)))
        });
    }

    fn spawn<U>(&self, effect: impl Future<Output = Box<U>> + Send + 'static)
    where
        U: FnOnce(&mut App) + Send + 'static,
    {
        let updates = self.updates.clone();
        tokio::spawn(async move {
            let _ = updates.send(effect.await);
        });
    }
}

/// Shows the names that a command accepts.
fn pick(command: &str, known: impl Fn(&Completions) -> &Vec<Choice>, app: &mut App) {
    if app.plain {
        let block = command_output::choices(command, known(&app.completions));
        app.add_block(block);
    } else {
        app.open_picker(command);
    }
}

/// Choices with a name and a description.
pub(crate) fn choices(named: impl Iterator<Item = (String, String)>) -> Vec<Choice> {
    named
        .map(|(text, description)| Choice { text, description })
        .collect()
}

/// A request to the engine that must be sent in the order in which the user issued it.
enum OutboxCommand {
    Prompt(Box<Prompt>),
    /// Stops the thread with this key.
    Abort(String),
}

/// Sends everything in the queue, one after the other, so that an abort never stops a prompt
/// that was sent after it.
async fn send_all(
    session: Session,
    mut queue: UnboundedReceiver<OutboxCommand>,
    updates: UnboundedSender<Update>,
) {
    while let Some(command) = queue.recv().await {
        let update: Update = match command {
            OutboxCommand::Prompt(prompt) => {
                let (thread, text) = (prompt.thread.clone(), prompt.content.clone());
                let thread = thread.unwrap_or_default();
                let sent = session.prompt(*prompt).await;
                Box::new(move |app| match sent {
                    Ok(prompt) => app.on_prompt_sent(&thread, prompt),
                    Err(error) => app.on_prompt_failed(&thread, &text, &error.to_string()),
                })
            }
            OutboxCommand::Abort(thread) => {
                let drafts = abort(&session, &thread).await;
                Box::new(move |app| match drafts {
                    Ok(drafts) if drafts.is_empty() => {}
                    Ok(drafts) => app.restore_draft(&drafts.join("\n\n")),
                    Err(error) => app.add_block(Block::Error(error.to_string())),
                })
            }
        };
        let _ = updates.send(update);
    }
}

/// Aborts a thread. The abort would drop its queued prompts, so they are returned.
async fn abort(session: &Session, key: &str) -> Result<Vec<String>, StoreError> {
    let mut drafts = Vec::new();
    let threads = session.threads();
    if let Some(thread) = threads.iter().find(|view| view.key == key) {
        for prompt in session.waiting_prompts(&thread.id).await? {
            let prompt = session.withdraw_prompt(&thread.id, &prompt.id).await?;
            drafts.extend(prompt.map(|prompt| prompt.content));
        }
    }
    session.abort(Some(key)).await?;
    Ok(drafts)
}
