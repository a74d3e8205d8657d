//! `rye session thread`

use rye_engine::store::Claim;
use rye_engine::{ThreadChange, ThreadSettings};
use serde_json::{Value, json};

use crate::cli::args::ThreadArgs;
use crate::cli::context::Context;
use crate::cli::engine::Wanted;
use crate::cli::failure::Failure;
use crate::cli::going_on::with_session;
use crate::cli::page::{Page, plain};
use crate::cli::printer::{Outcome, Report};

/// What takes something back.
const NONE: &str = "none";

pub(crate) fn run(args: &ThreadArgs, context: &Context) -> Outcome {
    let meant = &args.session.id;
    with_session(context, meant, Wanted::default(), async |it| {
        let engine = it.engine;
        // What cannot hold is not written down.
        if let Some(name) = args.role.as_deref().filter(|name| *name != NONE) {
            let role = engine.role(name).await;
            role.map_err(|why| Failure::failed("bad_role", why))?;
        }
        if let Some(name) = args.model.as_deref().filter(|name| *name != NONE) {
            let known = engine.check_model(Some(name));
            known.map_err(|why| Failure::failed("unknown_model", why).hint("rye models list"))?;
        }
        let session = engine.open_session(it.session, Claim::IfFree).await?;
        let own = |given: &Option<String>| {
            let name = given.as_deref()?;
            Some(if name == NONE { "" } else { name }.to_owned())
        };
        let change = ThreadChange {
            role: own(&args.role),
            model: own(&args.model),
            mode: args.mode.map(Into::into),
            ..ThreadChange::default()
        };
        if change != ThreadChange::default() {
            session.change_thread(Some(&args.thread), change).await?;
        }
        let settings = session.thread_settings(&args.thread).await?;
        let thread = args.thread.clone();
        Ok(Box::new(Set { thread, settings }) as Box<dyn Report>)
    })
}

struct Set {
    thread: String,
    settings: ThreadSettings,
}

impl Report for Set {
    fn json(&self) -> Value {
        let ThreadSettings { role, model, mode } = &self.settings;
        json!({ "thread": self.thread, "role": role, "model": model, "mode": mode })
    }

    fn show(&self, page: &mut Page) {
        let ThreadSettings { role, model, mode } = &self.settings;
        let own = |what: &Option<String>| match what {
            Some(name) => plain(name).into_owned(),
            None => "the session's".to_owned(),
        };
        page.line(format_args!("thread {}", plain(&self.thread)));
        page.line(format_args!("  role   {}", own(role)));
        page.line(format_args!("  model  {}", own(model)));
        let mode = json!(mode);
        page.line(format_args!(
            "  mode   {}",
            mode.as_str().unwrap_or_default()
        ));
    }
}
