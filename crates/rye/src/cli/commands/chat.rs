//! `rye chat`

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anstream::ColorChoice;
use rye_chat::{Chat, ChatError, ChatHost, Options};
use rye_engine::BoxFuture;
use rye_engine::model::Models as _;
use rye_engine::store::Claim;
use rye_engine::{Engine, NewSession};
use rye_host::Catalogue;
use serde_json::{Value, json};

use crate::cli::args::ChatArgs;
use crate::cli::context::Context;
use crate::cli::engine::{Wanted, supervisor, with_supervised};
use crate::cli::failure::Failure;
use crate::cli::going_on::{made_in, with_session};
use crate::cli::models::{DEMO, catalogue};
use crate::cli::page::Page;
use crate::cli::printer::{Outcome, Report};

pub(crate) fn run(args: &ChatArgs, context: &Context) -> Outcome {
    let wanted = Wanted {
        goes_on: true,
        sandbox: args.sandbox.map(Into::into),
        workspace: args.workspace.clone(),
        model: args.model.clone(),
        skills: Vec::new(),
    };
    if let Some(meant) = &args.session {
        return with_session(context, meant, wanted, async |it| {
            let chat = Chat::start(options(args, context, it.workspace))?;
            let desk = Host::of(it.context, it.workspace)?;
            let session = it.engine.open_session(it.session, Claim::IfFree).await?;
            talk(args, chat, it.engine, session, desk).await
        });
    }
    let project = context.settings.project();
    let workspace = args.workspace.as_deref().unwrap_or(project);
    // Before the chat, which has a thread; and that before all else, so that nobody waits to
    // write.
    let supervisor = supervisor()?;
    let chat = Chat::start(options(args, context, workspace))?;
    let desk = Host::of(context, workspace)?;
    with_supervised(context, wanted, supervisor, async |engine| {
        let new = NewSession {
            workspace: Some(workspace.display().to_string()),
            model: args.model.clone(),
            metadata: made_in(context),
            ..NewSession::default()
        };
        let session = engine.create_session(new).await?;
        talk(args, chat, engine, session, desk).await
    })
}

async fn talk(
    args: &ChatArgs,
    mut chat: Chat,
    engine: &Engine,
    session: rye_engine::Session,
    desk: Arc<Host>,
) -> Outcome {
    let id = session.id().to_string();
    let data = engine.session_data(session.id()).await?;
    let model = args.model.clone().or(data.and_then(|data| data.model));
    let model = model.unwrap_or_else(|| desk.models.default_name());
    chat.set_greeting(greeting(&model, &desk.models));
    chat.run(engine, session, desk).await?;
    Ok(Box::new(Left { session: id }))
}

fn options(args: &ChatArgs, context: &Context, workspace: &Path) -> Options {
    let state = context.settings.state_dir.as_ref();
    // Standard output is for the one document.
    let aside = context.printer.json;
    let sandbox = match args.sandbox.map(Into::into) {
        Some(rye_host::SandboxKind::Local) => "local",
        // One that goes on knows where it worked.
        None if args.session.is_some() => "",
        _ => "virtual",
    };
    Options {
        thread: args.thread.clone(),
        model: args.model.clone(),
        sandbox: sandbox.to_owned(),
        workspace: workspace.to_owned(),
        history: state.map(|state| state.value.join("chat-history")),
        colours: match context.printer.color {
            ColorChoice::Never => false,
            ColorChoice::Always | ColorChoice::AlwaysAnsi => true,
            ColorChoice::Auto => {
                let wanted = std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty());
                wanted
                    && if aside {
                        std::io::stderr().is_terminal()
                    } else {
                        std::io::stdout().is_terminal()
                    }
            }
        },
        plain: args.plain,
        stderr: aside,
        user: std::env::var("USER").unwrap_or_else(|_| "somebody".to_owned()),
        greeting: Vec::new(),
    }
}

/// What to say first: what is missing, where something is.
fn greeting(name: &str, models: &Catalogue) -> Vec<String> {
    let Err(why) = models.usable(name) else {
        return Vec::new();
    };
    let mut lines = vec![format!("{name} cannot be asked yet: {why}")];
    let usable = models.list().into_iter().filter(|it| it.usable.is_ok());
    let usable: Vec<_> = usable.map(|model| model.name).collect();
    if usable.is_empty() {
        lines.push(
            "No key was found for any other model: `rye models list` says what each needs."
                .to_owned(),
        );
    } else {
        lines.push(format!(
            "These can be asked: {}. Choose with /model NAME.",
            usable.join(", ")
        ));
    }
    lines.push(format!(
        "To look around without a key, type /model {DEMO} and say anything."
    ));
    lines
}

/// What the chat asks for.
struct Host {
    models: Catalogue,
    project: PathBuf,
}

impl Host {
    fn of(context: &Context, workspace: &Path) -> Result<Arc<Self>, Failure> {
        Ok(Arc::new(Self {
            models: catalogue(context, workspace)?,
            project: context.settings.project().to_owned(),
        }))
    }
}

impl ChatHost for Host {
    fn models(&self) -> Vec<String> {
        let all = self.models.list().into_iter().map(|model| model.name);
        all.chain([DEMO.to_owned()]).collect()
    }

    fn default_model(&self) -> String {
        self.models.default_name()
    }

    fn context_window(&self, model: &str) -> Option<u64> {
        let model = self.models.get(model).ok()?;
        Some(model.info().context_window)
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
                let said = String::from_utf8_lossy(&output.stdout);
                let said = format!("{said}{}", String::from_utf8_lossy(&output.stderr));
                Ok::<_, std::io::Error>((output.status.success(), said))
            };
            match tokio::task::spawn_blocking(work).await {
                Ok(Ok((true, said))) => Ok(said),
                Ok(Ok((false, said))) => Err(said),
                Ok(Err(error)) => Err(error.to_string()),
                Err(error) => Err(error.to_string()),
            }
        })
    }
}

/// Somebody has left.
struct Left {
    session: String,
}

impl Report for Left {
    fn json(&self) -> Value {
        json!({ "session": self.session })
    }

    fn show(&self, _page: &mut Page) {}
}

impl From<ChatError> for Failure {
    fn from(error: ChatError) -> Self {
        match error {
            ChatError::Store(error) => error.into(),
            error @ ChatError::InvalidUtf8(_) => Self::usage(error),
            other => Self::failed("terminal", other).hint("rye chat --plain"),
        }
    }
}
