//! Effects that open, fork and share sessions.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use lillux::durable::{self, IfExists};
use rye_engine::protocol::{
    Entry, EntryKind, Millis, Purpose, Role, Session as SessionData, SessionId, ThreadId,
    matches_id,
};
use rye_engine::store::{Claim, SessionFilter, StoreError};
use rye_engine::{Engine, NewSession, ReviewSwitch, Session};
use tokio::sync::mpsc::UnboundedReceiver;

use super::{EMPTY_THREAD, EffectRunner, Update};
use crate::app::{App, OpenRequest};
use crate::block::Block;
use crate::session_events::SessionEvents;
use crate::session_list;
use crate::share;

/// Sessions from which the user can choose.
const MAX_SESSIONS: usize = 1000;

/// What `/review` says.
const REVIEW_ON: &str = "review mode is on: you approve the changes at the end of each turn; \
    /review off turns it off";
const REVIEW_OFF: &str = "review mode is off: changes reach the files at once";
const UNCHANGED_REVIEW: &str = "nothing to change";
pub(crate) const BUSY_REVIEW: &str = "the review mode cannot change while the agent works, a gate \
    waits or a command runs: stop it first";

/// The prompt of `/init`.
pub(super) const INIT_PROMPT: &str = "Write AGENTS.md for this project, for agents that work in it. Look at \
    the project first: its README, build files, source layout, tests and configuration. The file \
    says, in at most 60 lines: what the project is; how to build it, run it and run its tests, \
    including one test; the conventions that the code follows and that a newcomer would miss. Say \
    only what you found. If AGENTS.md exists already, improve it.";

impl EffectRunner {
    /// A runner for another session, with the same model.
    pub(crate) fn attach(
        &self,
        session: &Session,
        options: &crate::Options,
    ) -> (Self, UnboundedReceiver<Update>) {
        let host = Arc::clone(&self.host);
        let (mut runner, updates) = Self::new(&self.engine, session, host, options);
        runner.model.clone_from(&self.model);
        (runner, updates)
    }

    /// Opens a session, or creates one like the current one.
    pub(crate) async fn open(&self, id: Option<&SessionId>) -> Result<Session, StoreError> {
        if let Some(id) = id {
            return self.engine.open_session(id, Claim::IfFree).await;
        }
        let current = self.engine.session_data(self.session.id()).await?;
        let current = current
            .unwrap_or_else(|| SessionData::new(SessionId::new(), Purpose::Interactive, Millis(0)));
        let new = NewSession {
            user_id: current.user_id,
            org_id: current.org_id,
            workspace: current.workspace,
            project: current.project,
            model: current.model,
            role: current.role,
            ..NewSession::default()
        };
        self.engine.create_session(new).await
    }

    /// Turns the review mode of the session on or off, and attaches to the session again: it works
    /// in another sandbox from then on.
    pub(crate) async fn switch_review(
        &mut self,
        review: bool,
        options: &crate::Options,
        events: &mut SessionEvents,
        app: &mut App,
    ) -> Result<(), StoreError> {
        let id = self.session.id().clone();
        self.session.close().await?;
        let switched = self.engine.set_review(&id, review).await;
        let session = self.engine.open_session(&id, Claim::IfFree).await?;
        let (runner, updates) = self.attach(&session, options);
        events.resume(runner.engine(), &session, updates).await?;
        *self = runner;
        app.info.confinement = Some(session.sandbox().confinement());
        let block = match switched {
            Ok(ReviewSwitch::Switched) => {
                app.info.review = review;
                Block::notice(if review { REVIEW_ON } else { REVIEW_OFF })
            }
            Ok(ReviewSwitch::Unchanged) => Block::notice(UNCHANGED_REVIEW),
            Ok(ReviewSwitch::Busy) => Block::Error(BUSY_REVIEW.to_owned()),
            Ok(ReviewSwitch::PendingChanges(_)) => {
                Block::Error("some changes wait for your review: /review shows them".to_owned())
            }
            Err(error) => Block::Error(format!("cannot change the review mode: {error}")),
        };
        app.add_block(block);
        self.load_workspace(&app.info);
        Ok(())
    }

    /// Opens a session by a part of its id, or shows the sessions of the project.
    pub(super) fn open_session(&self, choice: Option<String>, app: &mut App) {
        if app.plain {
            let text = "resume another session with `rye chat --session ID`; `rye session list` \
                        lists them";
            return app.add_block(Block::notice(text));
        }
        let (engine, session) = (self.engine.clone(), self.session.clone());
        self.spawn(async move {
            let found = sessions_of_project(&engine, &session).await;
            Box::new(move |app: &mut App| {
                let sessions = match found {
                    Ok(sessions) => sessions,
                    Err(error) => return app.add_block(Block::Error(error.to_string())),
                };
                let Some(part) = choice else {
                    let now = SystemTime::now()
                        .duration_since(UNIX_EPOCH)
                        .unwrap_or_default();
                    let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
                    let others = sessions.into_iter().filter(|it| it.id != *session.id());
                    app.completions.sessions = session_list::choices(others.collect(), now);
                    return app.open_picker("sessions");
                };
                let mut matches = sessions.into_iter().map(|it| it.id);
                let mut matches = matches.by_ref().filter(|id| matches_id(id.as_str(), &part));
                match (matches.next(), matches.next()) {
                    (Some(id), None) => {
                        app.open_request = Some(OpenRequest {
                            session: Some(id),
                            draft: String::new(),
                        });
                    }
                    (None, _) => app.set_hint(&format!("no session {part}: see /sessions")),
                    (Some(_), Some(_)) => {
                        app.set_hint(&format!("several sessions match {part}: see /sessions"));
                    }
                }
            })
        });
    }

    /// Opens a fork from before the last prompt, with its text as the draft.
    pub(super) fn edit_last_prompt(&self, app: &App) {
        let (engine, session) = (self.engine.clone(), self.session.clone());
        let Some(thread) = app.pane().id.clone() else {
            return;
        };
        self.spawn(async move {
            let forked = fork_before_last_prompt(&engine, &session, &thread).await;
            Box::new(move |app: &mut App| match forked {
                Ok(request @ Some(_)) => app.open_request = request,
                Ok(None) => app.set_hint(EMPTY_THREAD),
                Err(error) => app.add_block(Block::Error(error.to_string())),
            })
        });
    }

    /// Writes the conversation to an HTML page.
    pub(super) fn share(&self, file: PathBuf) {
        let (engine, session) = (self.engine.clone(), self.session.clone());
        let id = session.id().to_string();
        let verified = self
            .host
            .run_command(["session", "verify", &id].map(str::to_owned).to_vec());
        self.show(async move {
            let threads = engine.history(session.id()).await?;
            let title = engine.session_data(session.id()).await?;
            let title = title.and_then(|data| data.title).unwrap_or_default();
            let (is_verified, verification) = match verified.await {
                Ok(text) => (true, text),
                Err(text) => (false, text),
            };
            let page = share::page(&title, &id, &threads, is_verified, &verification);
            let written = durable::write(&file, page.as_bytes(), 0o644, IfExists::Replace);
            Ok(Some(match written {
                Ok(()) => Block::notice(&format!("wrote {}", file.display())),
                Err(error) => Block::Error(format!("cannot write {}: {error}", file.display())),
            }))
        });
    }
}

/// The sessions that are stored.
async fn sessions_of_project(
    engine: &Engine,
    session: &Session,
) -> Result<Vec<SessionData>, StoreError> {
    let filter = SessionFilter {
        limit: MAX_SESSIONS,
        ..SessionFilter::default()
    };
    let mut sessions = engine.sessions(filter).await?;
    let own = sessions.iter().find(|it| it.id == *session.id());
    let project = own.and_then(|it| it.project.clone());
    sessions.retain(|it| it.project == project && it.parent.is_none());
    Ok(sessions)
}

/// A fork of the session from before its last prompt; `None` if it has no prompt.
async fn fork_before_last_prompt(
    engine: &Engine,
    session: &Session,
    thread: &ThreadId,
) -> Result<Option<OpenRequest>, StoreError> {
    let entries = session.entries(thread, None, usize::MAX).await?;
    let prompt_of = |entry: &Entry| match &entry.kind {
        EntryKind::Message(message) if message.role == Role::User => {
            message.synthetic.is_none().then(|| message.content())
        }
        _ => None,
    };
    let last = entries.iter().enumerate().rev();
    let last = last.filter_map(|(at, entry)| Some((at, prompt_of(entry)?)));
    let Some((at, draft)) = last.max_by_key(|(at, _)| *at) else {
        return Ok(None);
    };
    let before = at.checked_sub(1).and_then(|at| entries.get(at));
    let session = match before {
        Some(entry) => Some(engine.fork(session.id(), Some(&entry.id)).await?),
        None => None,
    };
    Ok(Some(OpenRequest { session, draft }))
}
