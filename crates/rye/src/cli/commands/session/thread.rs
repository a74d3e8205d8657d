//! `rye session thread`

use rye_engine::ThreadSettings;
use rye_engine::store::Claim;
use serde_json::{Value, json};

use crate::cli::args::ThreadArgs;
use crate::cli::context::Context;
use crate::cli::engine::{Wanted, with_session};
use crate::cli::failure::Failure;
use crate::cli::page::{Page, plain};
use crate::cli::printer::{Outcome, Report};

/// What takes something back.
const NONE: &str = "none";

pub(crate) fn run(args: &ThreadArgs, context: &Context) -> Outcome {
    let meant = &args.session.id;
    with_session(context, meant, Wanted::default(), async |engine, id| {
        // What cannot hold is not written down.
        if let Some(name) = args.role.as_deref().filter(|name| *name != NONE) {
            let role = engine.role(name).await;
            role.map_err(|why| Failure::failed("bad_role", why))?;
        }
        if let Some(name) = args.model.as_deref().filter(|name| *name != NONE) {
            let known = engine.check_model(Some(name));
            known.map_err(|why| Failure::failed("unknown_model", why).hint("rye models list"))?;
        }
        let session = engine.open_session(id, Claim::IfFree).await?;
        let before = session.thread_settings(&args.thread).await?;
        let or_none = |given: &Option<String>, before: Option<String>| match given.as_deref() {
            None => before,
            Some(NONE) => None,
            Some(name) => Some(name.to_owned()),
        };
        let settings = ThreadSettings {
            role: or_none(&args.role, before.role.clone()),
            model: or_none(&args.model, before.model.clone()),
            mode: args.mode.map_or(before.mode, Into::into),
        };
        if settings != before {
            session.set_thread(&args.thread, settings.clone()).await?;
        }
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
