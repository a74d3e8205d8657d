//! An engine for commands.

mod failures;
mod which;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lillux::durable;
use lillux::keys::SigningKey;
use lillux::process::Supervisor;
use rye_engine::compaction::Settings;
use rye_engine::protocol::{Archive, Gate, GateId};
use rye_engine::store::{PostOutcome, StoreError};
use rye_engine::tool::VAULT;
use rye_engine::{Decision, Engine};
use rye_host::replay::{Replayed, Today};
use rye_host::{Bridge, Catalogue, Files, HostError, SandboxKind, Sqlite};
use rye_items::UserKeyError;
use rye_items::vault::Vault;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::commands::execute;
use super::context::Context;
use super::failure::Failure;
use super::models::{call_limits, catalogue};
use crate::settings;

pub(super) use which::meant_root;
pub(crate) use which::{find, find_to_remove, gates_with, is_late, one_of, session_id};

/// How long the end of a store is waited for. It takes a moment, unless a disk hangs.
const CLOSING: Duration = Duration::from_secs(2);

/// What an engine is to be like.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// Whether sessions go on in it. One that only reads and writes the record needs nothing
    /// of what says how they do, and works where that cannot be read.
    pub(crate) goes_on: bool,
    /// Where tools work; else where they did, and in memory in a new session.
    pub(crate) sandbox: Option<SandboxKind>,
    /// The folder it works in; else the project.
    pub(crate) workspace: Option<PathBuf>,
    pub(crate) model: Option<String>,
    /// Folders with further skills.
    pub(crate) skills: Vec<PathBuf>,
}

/// Runs work on an engine, and gives its sessions back afterwards.
pub(crate) fn with_engine<T>(
    context: &Context,
    wanted: Wanted,
    work: impl AsyncFnOnce(&Engine) -> Result<T, Failure>,
) -> Result<T, Failure> {
    with_supervised(context, wanted, supervisor()?, work)
}

/// Whoever keeps the processes of tools. It forks, and so comes before there are threads.
pub(crate) fn supervisor() -> Result<Supervisor, Failure> {
    Supervisor::start().map_err(unable)
}

/// The same as [`with_engine`], where something has to be done in between.
pub(crate) fn with_supervised<T>(
    context: &Context,
    wanted: Wanted,
    supervisor: Supervisor,
    work: impl AsyncFnOnce(&Engine) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let runtime = runtime()?;
    let store = store(context)?;
    run(runtime, store, context, wanted, Arc::new(supervisor), work)
}

/// Runs work on an engine that is put together here.
pub(super) fn run<T>(
    runtime: Runtime,
    mut store: Sqlite,
    context: &Context,
    wanted: Wanted,
    supervisor: Arc<Supervisor>,
    work: impl AsyncFnOnce(&Engine) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let options = rye_host::Options {
        database: database(context)?,
        project: context.settings.project().to_owned(),
        workspace: match wanted.workspace {
            Some(folder) => folder,
            None => context.settings.project().to_owned(),
        },
        sandbox: wanted.sandbox.unwrap_or_default(),
        vault: vault(context),
        protected: execute::protected(context),
    };
    let mut models = if wanted.goes_on {
        catalogue(context, &options.workspace)?
    } else {
        Catalogue::new(&options.workspace)
    };
    if let Some(model) = wanted.model {
        models = models.default_model(model);
    }
    let closing = store.closing();
    let outcome = runtime.block_on(async {
        let supervised = Arc::clone(&supervisor);
        let mut builder = rye_host::builder_on(store, &options, models, supervised)?;
        if wanted.goes_on {
            let bridge = bridge(context, supervisor)?;
            builder = builder
                .tools(bridge.tools)
                .policy(bridge.policy)
                .prompt_on_limit(bridge.asks_for_more);
            builder = builder
                .compaction(compaction(context)?)
                .call_limits(call_limits()?);
            let guides = Files::new(context.spaces()?, &options.workspace, wanted.skills);
            builder = builder.guides(guides);
        }
        if let Some(key) = signing_key(context)? {
            let trusted = rye_host::Trusted::of(&execute::roots(context)?);
            builder = builder
                .sign_with(key)
                .require_signed_decisions(move |name| trusted.user_key(name));
        }
        let engine = builder.build();
        let engine = engine.map_err(HostError::from)?;
        let outcome = work(&engine).await;
        let closed = engine.shutdown().await;
        tell_metrics(&engine)?;
        // What went wrong first is what is told.
        let outcome = outcome?;
        closed?;
        Ok(outcome)
    });
    // A question that nobody has answered is not waited for; the last who has the store is.
    runtime.shutdown_background();
    closing.wait(CLOSING);
    outcome
}

/// What a replay is done with: what there is today. Must be called within a runtime.
fn today(context: &Context, supervisor: Arc<Supervisor>) -> Result<Today, Failure> {
    let workspace = context.settings.project();
    let mut tools = rye_engine::builtin::tools();
    tools.extend(bridge(context, supervisor)?.tools);
    Ok(Today {
        tools,
        guides: Arc::new(Files::new(context.spaces()?, workspace, Vec::new())),
        compaction: compaction(context)?,
        models: Arc::new(catalogue(context, workspace)?),
    })
}

/// Replays a session with what there is today.
pub(crate) fn replay(context: &Context, archive: &Archive) -> Result<Replayed, Failure> {
    let supervisor = Arc::new(Supervisor::start().map_err(unable)?);
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        let today = today(context, supervisor)?;
        let replayed = rye_host::replay::replay(archive, &today).await;
        replayed.map_err(|error| Failure::failed("replay", error))
    });
    runtime.shutdown_background();
    outcome
}

/// Writes how long things took, for whoever collects that.
fn tell_metrics(engine: &Engine) -> Result<(), Failure> {
    let Some(file) = settings::variable("RYE_METRICS") else {
        return Ok(());
    };
    let text = engine.metrics().prometheus();
    durable::write(
        Path::new(&file),
        text.as_bytes(),
        0o644,
        durable::Existing::Replace,
    )?;
    Ok(())
}

/// The store of all sessions. One that is damaged is read as far as it can be.
pub(super) fn store(context: &Context) -> Result<Sqlite, Failure> {
    let store = rye_host::store(&database(context)?)?;
    if let Some(damage @ StoreError::Unreadable(_)) = store.only_read() {
        context
            .printer
            .warn(&damage.to_string(), Some("rye doctor"));
    }
    Ok(store)
}

/// The file with all sessions, and the folder for it.
pub(crate) fn database(context: &Context) -> Result<PathBuf, Failure> {
    let state = context.settings.state_dir.as_ref().ok_or_else(|| {
        let message = "there is no folder to write sessions down in: HOME is not set";
        Failure::usage(message).hint("export RYE_STATE_DIR=/the/folder")
    })?;
    durable::create_folder(&state.value, 0o700)
        .map_err(|error| Failure::from(error).hint(failures::ELSEWHERE))?;
    Ok(state.value.join("sessions.db"))
}

/// When and how histories are summed up.
fn compaction(context: &Context) -> Result<Settings, Failure> {
    let spaces = context.spaces()?;
    let (settings, ignored) = rye_host::compaction(&spaces)?;
    context.tell_ignored(&ignored);
    Ok(settings)
}

/// The person's secrets, if they have a place for them.
fn vault(context: &Context) -> Option<Vault> {
    let project = context.settings.project();
    context.user().map(|user| Vault::new(user, Some(project)))
}

/// The two tools with which an agent reaches all items.
fn bridge(context: &Context, supervisor: Arc<Supervisor>) -> Result<Bridge, Failure> {
    let roots = execute::roots(context)?;
    let state = database(context)?;
    let state = state.parent().unwrap_or(&state);
    let bridge = rye_host::bridge(roots, supervisor, signing_key(context)?, state)?;
    for ignored in &bridge.ignored {
        let text = format!("{} is ignored: {}", ignored.path.display(), ignored.reason);
        context.printer.warn(&text, None);
    }
    Ok(bridge)
}

/// The key that signs histories and decisions, if there is one.
pub(crate) fn signing_key(context: &Context) -> Result<Option<SigningKey>, Failure> {
    if context.user().is_none() {
        return Ok(None);
    }
    match context.own_keys()?.load_signing_key() {
        Ok(key) => Ok(Some(key)),
        Err(UserKeyError::Missing(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn runtime() -> Result<Runtime, Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_io().enable_time();
    builder.build().map_err(unable)
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
pub(super) fn unable(error: io::Error) -> Failure {
    Failure::failed("runtime", format_args!("cannot start the engine: {error}"))
}

/// Makes a decision as the person at the command line.
pub(crate) async fn decide(
    engine: &Engine,
    gate: &GateId,
    action: &str,
    value: Value,
) -> Result<PostOutcome, Failure> {
    let decision = Decision {
        action: action.to_owned(),
        value,
        by: person(),
        source: "cli".to_owned(),
    };
    Ok(engine.decide(gate, decision).await?)
}

/// Who decides here.
pub(crate) fn person() -> String {
    std::env::var("USER").unwrap_or_else(|_| "somebody".to_owned())
}

/// The command with which a person answers.
pub(crate) fn how_to_answer(gate: &Gate) -> String {
    let id = &gate.id;
    let answers: Vec<_> = gate.actions.iter().map(|it| it.id.as_str()).collect();
    let secret = gate.context.get(VAULT).and_then(Value::as_str);
    match (answers.as_slice(), secret) {
        (_, Some(name)) => {
            format!("rye vault set {name} && rye gate answer --action provided {id}")
        }
        ([], _) => format!("rye gate answer {id} --value …"),
        (all, _) if all.contains(&"approve") => format!("rye gate approve {id}"),
        (all, _) => format!("rye gate answer --action {} {id}", all.join("|")),
    }
}
