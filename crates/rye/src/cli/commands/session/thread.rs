//! `rye session thread`: shows or sets the role, model and queue mode of a thread.

use rye_engine::store::Claim;
use rye_engine::{ThreadChange, ThreadSettings};
use rye_host::engine::EngineOptions;
use rye_host::session_engine::with_session;
use serde_json::{Value, json};

use crate::cli::args::ThreadArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{Page, sanitize};
use crate::cli::printer::{Outcome, Report};

/// Argument that removes a setting.
const NONE: &str = "none";

pub(crate) fn run(args: &ThreadArgs, context: &Context) -> Outcome {
    let part = &args.session.id;
    with_session(context, part, EngineOptions::default(), async |it| {
        let engine = it.engine;
        // Reject invalid settings before anything is stored.
        if let Some(name) = args.role.as_deref().filter(|name| *name != NONE) {
            let sandbox = engine.open_sandbox(it.session).await?;
            let role = engine.role(name, &*sandbox).await;
            role.map_err(|why| Failure::failed("bad_role", why))?;
        }
        if let Some(name) = args.model.as_deref().filter(|name| *name != NONE) {
            let known = engine.check_model(Some(name));
            known.map_err(|why| Failure::failed("unknown_model", why).hint("rye models list"))?;
        }
        let session = engine.open_session(it.session, Claim::IfFree).await?;
        let change = |given: &Option<String>| {
            let name = given.as_deref()?;
            Some(if name == NONE { "" } else { name }.to_owned())
        };
        let change = ThreadChange {
            role: change(&args.role),
            model: change(&args.model),
            mode: args.mode.map(Into::into),
            ..ThreadChange::default()
        };
        if change != ThreadChange::default() {
            session.change_thread(Some(&args.thread), change).await?;
        }
        let settings = session.thread_settings(&args.thread).await?;
        let thread = args.thread.clone();
        Ok(Box::new(ThreadReport { thread, settings }) as Box<dyn Report>)
    })
}

struct ThreadReport {
    thread: String,
    settings: ThreadSettings,
}

impl Report for ThreadReport {
    fn json(&self) -> Value {
        let ThreadSettings { role, model, mode } = &self.settings;
        json!({ "thread": self.thread, "role": role, "model": model, "mode": mode })
    }

    fn show(&self, page: &mut Page) {
        let ThreadSettings { role, model, mode } = &self.settings;
        let value = |setting: &Option<String>| match setting {
            Some(name) => sanitize(name).into_owned(),
            None => "(session default)".to_owned(),
        };
        page.line(format_args!("thread {}", sanitize(&self.thread)));
        page.line(format_args!("  role   {}", value(role)));
        page.line(format_args!("  model  {}", value(model)));
        let mode = json!(mode);
        page.line(format_args!(
            "  mode   {}",
            mode.as_str().unwrap_or_default()
        ));
    }
}
