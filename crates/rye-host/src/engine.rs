//! Runs an engine for a command, from its context.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lillux::durable;
use lillux::process::Supervisor;
use rye_engine::compaction::Settings;
use rye_engine::guides::Guides;
use rye_engine::protocol::{ActionId, Archive, Gate};
use rye_engine::store::StoreError;
use rye_engine::tool::{LOGIN, VAULT};
use rye_engine::{Builder, Engine};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::catalogue::{call_limits, catalogue};
use crate::context::Context;
use crate::failure::Failure;
use crate::failure_from::UNWRITABLE_STATE;
use crate::guides::base_prompt;
use crate::mcp_tools::OfferedServers;
use crate::replay::{self, CurrentSetup, ReplayOutcome};
use crate::sandbox::{
    ConfinementPolicy, SandboxOptions, Tier, default_kind, load_sandbox_policy, strongest_tier,
    web_client,
};
use crate::settings;
use crate::{
    Catalogue, CheckSpec, FileGuides, HostError, MetaTools, SandboxKind, ServiceLogins,
    SqliteStore, builder_without_store, load_checks, load_compaction, load_oauth, meta_tools,
    store,
};

/// How long to wait for the store to close. Takes a moment unless the disk hangs.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// How to build an engine.
#[derive(Debug, Clone, Default)]
pub struct EngineOptions {
    /// Whether sessions run in it. An engine that only reads and writes records does not load
    /// models, policy and tools, so it works even if their configuration is broken.
    pub runs_sessions: bool,
    /// Whether it needs the configuration of sandboxes although no sessions run in it.
    pub needs_sandbox: bool,
    /// Where tools run [default: as before; in a new session, confined in a project and virtual
    /// elsewhere].
    pub sandbox: Option<SandboxKind>,
    /// Whether the changes of a new session are reviewed [default: as configured].
    pub review: Option<bool>,
    /// Working directory of tools [default: that of the session; in a new session, the project].
    pub workspace: Option<PathBuf>,
    /// The default model.
    pub model: Option<String>,
    /// Additional directories with skills.
    pub skills: Vec<PathBuf>,
    /// Whether stored sessions keep the sandbox that they were created with, although `sandbox`
    /// names another one.
    pub keeps_sandboxes: bool,
    /// MCP servers that an editor offers.
    pub offered_servers: OfferedServers,
}

/// Runs `work` on an engine and shuts the engine down afterwards.
pub fn with_engine<T>(
    context: &Context,
    options: EngineOptions,
    work: impl AsyncFnOnce(&Engine) -> Result<T, Failure>,
) -> Result<T, Failure> {
    with_supervisor(context, options, start_supervisor()?, work)
}

/// Starts the supervisor of tool processes. It forks, so call this before starting threads.
pub fn start_supervisor() -> Result<Supervisor, Failure> {
    Supervisor::start().map_err(start_failure)
}

/// Like [`with_engine`], with a supervisor that was started before.
pub fn with_supervisor<T>(
    context: &Context,
    options: EngineOptions,
    supervisor: impl Into<Arc<Supervisor>>,
    work: impl AsyncFnOnce(&Engine) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let runtime = runtime()?;
    let store = open_store(context)?;
    run_engine(runtime, store, context, options, supervisor.into(), work)
}

/// Builds an engine on the store, runs `work` and shuts everything down.
pub(crate) fn run_engine<T>(
    runtime: Runtime,
    store: SqliteStore,
    context: &Context,
    options: EngineOptions,
    supervisor: Arc<Supervisor>,
    work: impl AsyncFnOnce(&Engine) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let build = || project_builder(context, options, supervisor);
    run_builder(runtime, store, build, work)
}

/// Like [`run_engine`], with a function that makes a builder within the runtime.
pub(crate) fn run_builder<T>(
    runtime: Runtime,
    mut store: SqliteStore,
    build: impl FnOnce() -> Result<Builder, Failure>,
    work: impl AsyncFnOnce(&Engine) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let closing = store.close_handle();
    let outcome = runtime.block_on(async {
        let engine = build()?.store(store).build().map_err(HostError::from)?;
        let outcome = work(&engine).await;
        let closed = engine.shutdown().await;
        write_metrics(&engine)?;
        // Report the first error.
        let outcome = outcome?;
        closed?;
        Ok(outcome)
    });
    // Blocked terminal reads are abandoned, but the store is closed properly.
    runtime.shutdown_background();
    closing.wait(CLOSE_TIMEOUT);
    outcome
}

/// A builder with everything but the store, for the sessions of a project. Must be called within a
/// runtime.
pub(crate) fn project_builder(
    context: &Context,
    options: EngineOptions,
    supervisor: Arc<Supervisor>,
) -> Result<Builder, Failure> {
    let project = context.settings.project().to_owned();
    let workspace = options.workspace.clone();
    let workspace = workspace.unwrap_or_else(|| project.clone());
    let confinement = if options.runs_sessions || options.needs_sandbox {
        confinement(context)?
    } else {
        ConfinementPolicy::default()
    };
    let is_review_requested = options.review == Some(true);
    let kind = match options.sandbox {
        Some(kind) if is_review_requested && kind != SandboxKind::Confined => {
            let message = "review mode works only in the sandbox `confined`";
            return Err(Failure::usage(message).hint("rye prompt --review --sandbox confined"));
        }
        Some(kind) => kind,
        None if is_review_requested => SandboxKind::Confined,
        None if options.runs_sessions => {
            default_kind(context, &workspace, &supervisor, &confinement)
        }
        None => SandboxKind::Virtual,
    };
    // Files in memory never reach the workspace.
    let review =
        options.review.or(confinement.review).unwrap_or(false) && kind != SandboxKind::Virtual;
    let checks = if options.runs_sessions {
        checks(context)?
    } else {
        Vec::new()
    };
    let host_options = crate::Options {
        checks,
        database: database(context)?,
        vault: context.vault(),
        sandbox: SandboxOptions {
            kind,
            resume_in: options.sandbox.filter(|_| !options.keeps_sandboxes),
            workspace: options.workspace,
            project,
            review,
            confinement,
            protected: context.protected(),
        },
    };
    let mut models = if options.runs_sessions {
        catalogue(context, &workspace)?
    } else {
        Catalogue::new(&workspace)
    };
    if let Some(model) = options.model {
        models = models.default_model(model);
    }
    let builder = builder_without_store(&host_options, models, Arc::clone(&supervisor))?;
    let mut builder = builder.runs_sessions(options.runs_sessions);
    if options.runs_sessions {
        let bridge = bridge(context, supervisor, options.offered_servers)?;
        let policy = bridge.policy.clone();
        builder = builder
            .tools(bridge.tools)
            .policy(bridge.policy)
            .prompt_on_limit(bridge.prompt_on_limit);
        builder = builder
            .logins(service_logins(context)?)
            .compaction(compaction(context)?)
            .call_limits(call_limits()?);
        let guides = file_guides(context, &workspace, options.skills)?;
        let guides = guides.with_environment(policy);
        let guides: Arc<dyn Guides> = Arc::new(guides);
        builder = builder
            .tool(rye_tools::skill(Arc::clone(&guides)))
            .guides(guides);
    }
    if let Some(key) = context.signing_key()?.cloned() {
        let trusted = context.trusted_keys();
        builder = builder
            .sign_with(key)
            .require_signed_decisions(move |name| trusted.user_key(name));
    }
    Ok(builder)
}

/// The current tools, guides, settings and models, for a replay. Must be called within a runtime.
fn current_setup(context: &Context, supervisor: Arc<Supervisor>) -> Result<CurrentSetup, Failure> {
    let workspace = context.settings.project();
    let mut tools = rye_tools::tools();
    let network = confinement(context)?.network;
    tools.push(Arc::new(rye_tools::fetch(web_client(
        network,
        context.vault(),
    ))));
    tools.extend(bridge(context, supervisor, OfferedServers::default())?.tools);
    Ok(CurrentSetup {
        tools,
        guides: Arc::new(file_guides(context, workspace, Vec::new())?),
        compaction: compaction(context)?,
        models: Arc::new(catalogue(context, workspace)?),
    })
}

/// The base system prompt, roles, skills and instructions for agents in a workspace.
fn file_guides(
    context: &Context,
    workspace: &Path,
    skills: Vec<PathBuf>,
) -> Result<FileGuides, Failure> {
    let current_dir = std::env::current_dir().ok();
    let guides = FileGuides::new(Arc::clone(context.spaces()), workspace, skills)
        .instructions_between(context.settings.project(), current_dir.as_deref());
    Ok(guides.base_prompts(base_prompt::load(context)?))
}

/// Replays a session with the current configuration.
pub fn replay(context: &Context, archive: &Archive) -> Result<ReplayOutcome, Failure> {
    let supervisor = Arc::new(start_supervisor()?);
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        let setup = current_setup(context, supervisor)?;
        let replayed = replay::replay(archive, &setup).await;
        replayed.map_err(|error| Failure::failed("replay", error))
    });
    runtime.shutdown_background();
    outcome
}

/// Writes metrics to the file that `RYE_METRICS` names.
fn write_metrics(engine: &Engine) -> Result<(), Failure> {
    let Some(file) = settings::variable("RYE_METRICS") else {
        return Ok(());
    };
    let text = engine.metrics().prometheus();
    durable::write(
        Path::new(&file),
        text.as_bytes(),
        0o644,
        durable::IfExists::Replace,
    )?;
    Ok(())
}

/// Opens the session store. A damaged store is opened read-only, with a warning.
pub(crate) fn open_store(context: &Context) -> Result<SqliteStore, Failure> {
    let store = store(&database(context)?)?;
    if let Some(damage @ StoreError::Damaged(_)) = store.read_only_reason() {
        context
            .reporter()
            .warn(&damage.to_string(), Some("rye doctor"));
    }
    Ok(store)
}

/// Path of the session database; creates its directory.
pub fn database(context: &Context) -> Result<PathBuf, Failure> {
    let state = context.settings.state_dir.as_ref().ok_or_else(|| {
        let message = "no state directory: HOME is not set";
        Failure::usage(message).hint("export RYE_STATE_DIR=/path/to/state")
    })?;
    durable::create_dir(&state.value, 0o700)
        .map_err(|error| Failure::from(error).hint(UNWRITABLE_STATE))?;
    Ok(state.value.join(crate::DATABASE))
}

/// The policy of the confined sandbox.
pub fn confinement(context: &Context) -> Result<ConfinementPolicy, Failure> {
    let (policy, ignored) = load_sandbox_policy(context.spaces())?;
    context.warn_ignored(&ignored);
    if policy.network.is_enabled() && matches!(strongest_tier(), Ok(Tier::Landlock)) {
        let text = "commands have no network: the tier `landlock` cannot restrict it to hosts";
        context.reporter().warn(text, Some("rye sandbox check"));
    }
    Ok(policy)
}

/// The checks of changed files.
fn checks(context: &Context) -> Result<Vec<CheckSpec>, Failure> {
    let (checks, ignored) = load_checks(context.spaces())?;
    context.warn_ignored(&ignored);
    Ok(checks)
}

/// The logins to services with OAuth.
pub fn service_logins(context: &Context) -> Result<ServiceLogins, Failure> {
    let (services, ignored) = load_oauth(context.spaces())?;
    context.warn_ignored(&ignored);
    Ok(ServiceLogins::new(services, context.vault()))
}

/// The compaction settings.
fn compaction(context: &Context) -> Result<Settings, Failure> {
    let (settings, ignored) = load_compaction(context.spaces())?;
    context.warn_ignored(&ignored);
    Ok(settings)
}

/// The two tools with which an agent reaches all items.
fn bridge(
    context: &Context,
    supervisor: Arc<Supervisor>,
    offered: OfferedServers,
) -> Result<MetaTools, Failure> {
    let roots = context.roots()?;
    let state = database(context)?;
    let state = state.parent().unwrap_or(&state);
    let key = context.signing_key()?.cloned();
    let bridge = meta_tools(roots, supervisor, key, state, offered)?;
    for ignored in &bridge.ignored {
        let text = format!("{} is ignored: {}", ignored.path.display(), ignored.reason);
        context.reporter().warn(&text, None);
    }
    Ok(bridge)
}

/// The runtime of an engine.
pub fn runtime() -> Result<Runtime, Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_io().enable_time();
    builder.build().map_err(start_failure)
}

/// The failure to start an engine.
#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
pub fn start_failure(error: io::Error) -> Failure {
    Failure::failed("runtime", format_args!("cannot start the engine: {error}"))
}

/// The command that answers a gate.
pub fn answer_command(gate: &Gate) -> String {
    let id = gate.id.short();
    let actions: Vec<_> = gate.actions.iter().map(|it| it.id.as_str()).collect();
    let text = |key: &str| gate.context.get(key).and_then(Value::as_str);
    if let Some(service) = text(LOGIN) {
        return format!("rye vault login {service} && rye gate answer {id} --action provided");
    }
    match (actions.as_slice(), text(VAULT)) {
        (_, Some(name)) => {
            format!("rye vault set {name} && rye gate answer {id} --action provided")
        }
        ([], _) => format!("rye gate answer {id} --value 'your answer'"),
        (all, _) if all.contains(&ActionId::Approve.as_str()) => format!("rye gate approve {id}"),
        ([first, ..], _) => format!("rye gate answer {id} --action {first}"),
    }
}
