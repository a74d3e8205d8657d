//! `rye session abort`, `pause` and `resume-queue`: control what runs in a session, whichever
//! process holds it.

use rye_engine::protocol::SessionId;
use rye_engine::store::CommandKind;
use rye_host::lookup::find_session;
use rye_host::session_engine::with_session_files;
use serde_json::{Value, json};

use crate::cli::args::ControlArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::Page;
use crate::cli::printer::{Outcome, Report};

/// What to do with a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    Abort,
    Pause,
    ResumeQueue,
}

impl Control {
    fn command(self) -> CommandKind {
        match self {
            Self::Abort => CommandKind::Abort,
            Self::Pause => CommandKind::Pause,
            Self::ResumeQueue => CommandKind::Resume,
        }
    }

    fn done(self) -> &'static str {
        match self {
            Self::Abort => "aborted",
            Self::Pause => "paused",
            Self::ResumeQueue => "resumed",
        }
    }
}

pub(super) fn run(args: &ControlArgs, control: Control, context: &Context) -> Outcome {
    let part = &args.session.id;
    with_session_files(context, part, async |engine, _| {
        let session = find_session(engine, part).await?;
        let data = engine.session_data(&session).await?;
        if data.is_some_and(|data| data.run.is_some()) {
            let message = format!("session {} records a run", session.short());
            let hint = format!("rye run cancel {}", session.short());
            return Err(Failure::usage(message).hint(hint));
        }
        let is_held = engine.is_held(&session).await?;
        let thread = args.thread.as_deref();
        engine.command(&session, thread, control.command()).await?;
        let controlled = Controlled {
            session,
            thread: args.thread.clone(),
            control,
            is_held,
        };
        Ok(Box::new(controlled) as Box<dyn Report>)
    })
}

struct Controlled {
    session: SessionId,
    thread: Option<String>,
    control: Control,
    /// Whether another process holds the session, and applies the command.
    is_held: bool,
}

impl Report for Controlled {
    fn json(&self) -> Value {
        json!({
            "session": self.session,
            "thread": self.thread,
            "action": self.control.done(),
            "by_other_process": self.is_held,
        })
    }

    fn show(&self, page: &mut Page) {
        let (id, done) = (self.session.short(), self.control.done());
        let thread = match &self.thread {
            Some(key) => format!(", thread {key}"),
            None => String::new(),
        };
        let by = if self.is_held {
            " by the process that holds it"
        } else {
            ""
        };
        page.line(format_args!("{done} session {id}{thread}{by}"));
    }

    fn next_command(&self) -> Option<String> {
        let must_resume = self.control == Control::ResumeQueue && !self.is_held;
        must_resume.then(|| format!("rye session resume {}", self.session.short()))
    }
}
