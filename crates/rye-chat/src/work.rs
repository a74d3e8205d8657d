//! What is done for the person, beside the screen: nothing that takes time holds up the keys.

use std::sync::Arc;
use std::time::Duration;

use rye_engine::protocol::{GateId, QueueItem, QueueItemId, QueueMode, ThreadId};
use rye_engine::store::Posted;
use rye_engine::{Compaction, Decision, Engine, Prompt, Session};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::Desk;
use crate::answers;
use crate::app::{App, Effect};
use crate::attach;
use crate::block::{Block, first_line};
use crate::command::{Command, QueueChange};
use crate::say::{Said, say_all};
use crate::text::{DIM, Line};

/// What came of something.
#[derive(Debug)]
pub(crate) enum Told {
    Block(Block),
    /// A prompt of a thread is in its queue.
    Sent(String, QueueItemId),
    /// It could not be sent.
    NotSent {
        thread: String,
        text: String,
        why: String,
    },
    /// A decision is written down.
    Answered(GateId),
    /// It could not be, or somebody else was quicker.
    NotAnswered(Block),
    /// It was taken out of the queue to be written anew.
    Back(String),
    Queue(ThreadId, Vec<QueueItem>),
    Files(Vec<String>),
    Past(Vec<String>),
}

/// Whoever does it.
pub(crate) struct Work {
    engine: Engine,
    session: Session,
    desk: Arc<dyn Desk>,
    person: String,
    told: mpsc::UnboundedSender<Told>,
    /// What is said, in the order in which it was.
    said: mpsc::UnboundedSender<Said>,
    model: Option<String>,
}

impl Work {
    pub(crate) fn new(
        engine: &Engine,
        session: &Session,
        desk: Arc<dyn Desk>,
        options: &crate::Options,
    ) -> (Self, mpsc::UnboundedReceiver<Told>) {
        let (told, news) = mpsc::unbounded_channel();
        let (said, queue) = mpsc::unbounded_channel();
        tokio::spawn(say_all(session.clone(), queue, told.clone()));
        let work = Self {
            engine: engine.clone(),
            session: session.clone(),
            desk,
            person: options.person.clone(),
            told,
            said,
            model: options.model.clone(),
        };
        (work, news)
    }

    pub(crate) fn teller(&self) -> mpsc::UnboundedSender<Told> {
        self.told.clone()
    }

    /// Begins what is to be done. What the app must see at once is told to it.
    pub(crate) fn begin(&mut self, effect: Effect, app: &mut App) {
        match effect {
            Effect::Prompt { thread, text, mode } => self.prompt(thread, text, mode, app),
            Effect::Abort { thread } => {
                let _ = self.said.send(Said::End(thread));
            }
            Effect::Decide {
                gate,
                action,
                value,
            } => self.decide(gate, action, value),
            Effect::Command(command) => self.command(command, app),
            // Whoever has the screen does these.
            Effect::EditOutside | Effect::PaintAnew | Effect::Quit => {}
        }
    }

    fn prompt(&mut self, thread: String, text: String, mode: Option<QueueMode>, app: &App) {
        let attachments = match attach::images(&text, &app.facts.workspace) {
            Ok(attachments) => attachments,
            Err(why) => {
                let _ = self.told.send(Told::NotSent { thread, text, why });
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
        // The other end is there as long as this is.
        let _ = self.said.send(Said::Prompt(Box::new(prompt)));
    }

    fn decide(&self, gate: GateId, action: String, value: Value) {
        let engine = self.engine.clone();
        let decision = Decision {
            value,
            ..Decision::new(action, &self.person, "chat")
        };
        self.later(async move {
            match engine.decide(&gate, decision).await {
                Ok(Posted::Conflict(first)) => {
                    let text = format!("{} had decided already: {}", first.by, first.action);
                    Some(Told::NotAnswered(Block::told(&text)))
                }
                Ok(_) => Some(Told::Answered(gate)),
                Err(error) => Some(Told::NotAnswered(Block::Wrong(error.to_string()))),
            }
        });
    }

    fn command(&mut self, command: Command, app: &mut App) {
        match command {
            Command::Help => answers::help(app),
            Command::Model(Some(name)) => self.choose_model(&name, app),
            Command::Model(None) => app.tell(answers::models(app)),
            Command::Threads => app.tell(answers::threads(app)),
            Command::Cost => app.tell(answers::costs(app)),
            Command::Tools => app.tell(answers::tools(&self.engine)),
            Command::Queue(QueueChange::Show) => {
                let waiting = crate::pane::waiting(&app.pane().waiting, usize::MAX);
                let nothing = vec![Line::new("nothing waits", DIM)];
                let lines = if waiting.is_empty() { nothing } else { waiting };
                app.tell(Block::Told(lines));
            }
            Command::Queue(QueueChange::Remove(number)) => self.withdraw(number, false, app),
            Command::Queue(QueueChange::Edit(number)) => self.withdraw(number, true, app),
            Command::Gates => {
                let (engine, session) = (self.engine.clone(), self.session.id().clone());
                self.later(async move {
                    Some(match engine.gates_below(&session).await {
                        Ok(gates) => Told::Block(answers::gates(&gates)),
                        Err(error) => wrong(&error),
                    })
                });
            }
            Command::Fork => self.fork(app),
            Command::Export(file) => {
                let file = file.unwrap_or_else(|| format!("{}.jsonl", self.session.id()));
                let file = app.facts.workspace.join(file).display().to_string();
                self.host([
                    "session",
                    "export",
                    self.session.id().as_str(),
                    "--output",
                    &file,
                ]);
            }
            Command::Verify => self.host(["session", "verify", self.session.id().as_str()]),
            Command::Compact | Command::Undo if app.pane().id.is_none() => {
                app.tell(Block::told("nothing was said yet"));
            }
            Command::Compact => {
                let (session, thread) = (self.session.clone(), app.pane().key.clone());
                self.later(async move {
                    match session.compact(Some(&thread)).await {
                        Ok(Compaction::Nothing) => {
                            Some(Told::Block(Block::told("there is nothing to sum up")))
                        }
                        Ok(Compaction::Pruned(calls)) => {
                            let text = format!("the output of {calls} old calls is left out");
                            Some(Told::Block(Block::told(&text)))
                        }
                        // The history tells of the rest.
                        Ok(_) => None,
                        Err(error) => Some(wrong(&error)),
                    }
                });
            }
            Command::Undo => {
                let (session, thread) = (self.session.clone(), app.pane().key.clone());
                self.later(async move {
                    match session.undo_compaction(Some(&thread)).await {
                        Ok(Some(_)) => None,
                        Ok(None) => {
                            Some(Told::Block(Block::told("there is no summary to take back")))
                        }
                        Err(error) => Some(wrong(&error)),
                    }
                });
            }
            // The app does these by itself.
            Command::Quit | Command::Thread(_) | Command::Steer(_) => {}
        }
    }

    /// What the host can do and the engine cannot.
    fn host<const N: usize>(&self, words: [&str; N]) {
        let command = self.desk.command(words.map(str::to_owned).to_vec());
        self.later(async move { Some(said(command.await)) });
    }

    fn choose_model(&mut self, name: &str, app: &mut App) {
        let all = self.desk.models();
        let known = name.starts_with("scripted:") || all.iter().any(|known| known == name);
        if !known {
            let near = all
                .iter()
                .min_by_key(|known| strsim::damerau_levenshtein(known, name));
            let near = near
                .map(|near| format!("; there is {near}"))
                .unwrap_or_default();
            return app.hint(&format!("there is no model {name}{near}"));
        }
        self.model = Some(name.to_owned());
        name.clone_into(&mut app.facts.model);
        app.facts.window = self.desk.window(name);
        app.tell(Block::told(&format!(
            "{name} answers from the next prompt on"
        )));
    }

    fn withdraw(&self, number: usize, edit: bool, app: &mut App) {
        let pane = app.pane();
        let item = pane.waiting.get(number - 1).map(|item| item.id.clone());
        let (Some(thread), Some(item)) = (pane.id.clone(), item) else {
            return app.hint(&format!("there is no number {number} in the queue"));
        };
        let session = self.session.clone();
        self.later(async move {
            Some(match session.withdraw(&thread, &item).await {
                Ok(Some(item)) if edit => Told::Back(item.content),
                Ok(Some(item)) => {
                    let text = format!("taken out: {}", first_line(&item.content, 100));
                    Told::Block(Block::told(&text))
                }
                Ok(None) => Told::Block(Block::told("it has begun already")),
                Err(error) => wrong(&error),
            })
        });
    }

    fn fork(&self, app: &App) {
        let engine = self.engine.clone();
        let (session, thread) = (self.session.clone(), app.pane().id.clone());
        self.later(async move {
            let Some(thread) = thread else {
                return Some(Told::Block(Block::told("nothing was said yet")));
            };
            let entries = session.entries(&thread, None, usize::MAX).await;
            let last = match entries {
                Ok(entries) => entries.last().map(|entry| entry.id.clone()),
                Err(error) => return Some(wrong(&error)),
            };
            let Some(last) = last else {
                return Some(Told::Block(Block::told("nothing was said yet")));
            };
            Some(match engine.fork(session.id(), Some(&last)).await {
                Ok(fork) => {
                    let text = format!("forked: rye chat --session {fork}");
                    Told::Block(Block::told(&text))
                }
                Err(error) => wrong(&error),
            })
        });
    }

    /// What waits for a thread is looked up.
    pub(crate) fn look_at_queue(&self, thread: ThreadId) {
        let session = self.session.clone();
        self.later(async move {
            let waiting = session.waiting(&thread).await;
            Some(match waiting {
                Ok(waiting) => Told::Queue(thread, waiting),
                Err(error) => wrong(&error),
            })
        });
    }

    fn later(&self, work: impl Future<Output = Option<Told>> + Send + 'static) {
        let told = self.told.clone();
        tokio::spawn(async move {
            if let Some(outcome) = work.await {
                let _ = told.send(outcome);
            }
        });
    }
}

/// What came of something, to the app.
pub(crate) fn take(told: Told, app: &mut App) {
    match told {
        Told::Block(block) | Told::NotAnswered(block) => app.tell(block),
        Told::Sent(thread, item) => app.sent(&thread, Some(item)),
        Told::NotSent { thread, text, why } => {
            app.sent(&thread, None);
            app.tell(Block::Wrong(format!("not sent: {why}")));
            app.give_back(&text);
        }
        Told::Answered(gate) => app.answered(&gate),
        Told::Back(text) => app.give_back(&text),
        Told::Queue(thread, waiting) => app.queue(&thread, &waiting),
        Told::Files(files) => app.known.files = files,
        Told::Past(past) => app.editor.older(past),
    }
}

pub(crate) fn wrong(error: &dyn std::fmt::Display) -> Told {
    Told::Block(Block::Wrong(error.to_string()))
}

fn said(outcome: Result<String, String>) -> Told {
    Told::Block(match outcome {
        Ok(text) => Block::Told(text.lines().map(Line::plain).collect()),
        Err(why) => Block::Wrong(why),
    })
}

/// Reads slowly what is not needed at once.
pub(crate) fn read_later(options: &crate::Options, told: &mpsc::UnboundedSender<Told>) {
    let (workspace, history) = (options.workspace.clone(), options.history.clone());
    let told = told.clone();
    tokio::task::spawn_blocking(move || {
        if let Some(path) = history {
            let past = crate::history::History::at(&path).read();
            let _ = told.send(Told::Past(past));
        }
        let _ = told.send(Told::Files(crate::complete::files(&workspace)));
    });
}

/// How long to wait for what is still being said when the person leaves.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(5);
