//! The way of a call: chain, validate, parameters, anchor, dependencies,
//! environment, configuration, template, primitive, result.

mod approval;
mod code;
mod dependencies;
mod facts;
mod guard;
mod inherited;
mod prepare;
mod program;
mod resolved;
mod standard;
mod system;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lillux::Hash;
use lillux::path_policy::{PathPolicy, ProtectedPaths};
use lillux::process::Supervisor;
use rye_items::metadata::Metadata;
use rye_items::{
    EmbeddedBundle, ItemError, ItemKind, ItemRef, Library, Options, ProcessCache, SYSTEM,
};
use serde_json::{Map, Value};

use crate::chain::{self, Chain, ChainError, Link};
use crate::envelope::Envelope;
use crate::environment::Origin;
use crate::error::ExecuteError;
use crate::parameters::Schemas;
use crate::primitive::{Execute, HttpClient, OutputListener, Primitives, RunContext, Spill};
use crate::redact::{self, RedactingOutput};
use crate::trace::Trace;

use approval::CheckedPaths;
pub use approval::{Approval, ApprovalReason, SensitiveWrite};
pub use code::check_before_signing;
pub use dependencies::dependency_scopes;
pub use facts::CallAnchor;
use guard::Guard;
use inherited::Inherited;
use resolved::{Known, Resolved};

/// Where the items are, and where the executor may keep things.
#[derive(Debug, Clone)]
pub struct Roots {
    /// The folder of the project.
    pub project: PathBuf,
    /// The folder that has the user's space.
    pub user: Option<PathBuf>,
    /// Further bundles of the system space.
    pub bundles: Vec<PathBuf>,
    /// The bundle inside the program.
    pub embedded: &'static EmbeddedBundle,
    /// For copies of what was verified, for output that is too long, and for
    /// what is derived from files.
    pub cache: PathBuf,
    /// Let project and user items pass that do not verify, with a warning.
    pub dev_mode: bool,
    /// Further private directories and home directories of the user. The keys and secrets of
    /// `user` and the `cache` are private, and `user` is a home, without being named here.
    pub protected: ProtectedPaths,
}

impl Roots {
    /// A project with the system space alone.
    pub fn new(project: impl Into<PathBuf>, cache: impl Into<PathBuf>) -> Self {
        Self {
            project: project.into(),
            user: None,
            bundles: Vec::new(),
            embedded: &SYSTEM,
            cache: cache.into(),
            dev_mode: false,
            protected: ProtectedPaths::default(),
        }
    }

    /// Which paths tools may use.
    fn path_policy(&self) -> PathPolicy {
        let mut protected = self.protected.clone();
        if let Some(user) = &self.user {
            protected
                .private
                .extend(rye_items::private_directories(user));
            protected.homes.push(user.clone());
        }
        protected.private.push(self.cache.clone());
        PathPolicy::new(&self.project, protected)
    }
}

/// What is to be run.
#[derive(Debug, Clone)]
pub struct Request {
    /// The tool.
    pub tool: ItemRef,
    /// Its parameters, a JSON object.
    pub parameters: Value,
    /// The names of the parameters that the caller put together from values, such as the
    /// results of other tools. None of them may be a program's text.
    pub interpolated: Vec<String>,
    /// Find out whether it would run, and run nothing.
    pub dry_run: bool,
    /// When to give up, over what the chain says.
    pub timeout: Option<Duration>,
    /// The variables it inherits; none is those of this process.
    pub environment: Option<Vec<(String, String)>>,
    /// Who hears what the tool prints while it runs.
    pub listener: Option<OutputListener>,
    /// Who let it run.
    pub approval: Approval,
    /// What work that is written down is to be called; else it finds a name itself.
    pub run: Option<RunContext>,
}

impl Request {
    /// A tool without parameters.
    pub fn new(tool: ItemRef) -> Self {
        Self {
            tool,
            parameters: Value::Object(Map::new()),
            interpolated: Vec::new(),
            dry_run: false,
            timeout: None,
            environment: None,
            listener: None,
            approval: Approval::ByUser,
            run: None,
        }
    }

    /// With these parameters.
    #[must_use]
    pub fn parameters(mut self, parameters: Value) -> Self {
        self.parameters = parameters;
        self
    }
}

/// What a call of a tool would be made of.
#[derive(Debug, Clone)]
pub struct ToolInfo {
    /// What the tool says about itself.
    pub metadata: Arc<Metadata>,
    /// The hash of its chain.
    pub chain_hash: Hash,
    /// What `config_resolve` gives, or null.
    pub config: Value,
}

/// Runs tools.
#[derive(Debug, Clone)]
pub struct Executor {
    roots: Roots,
    paths: PathPolicy,
    primitives: Primitives,
    supervisor: Arc<Supervisor>,
    process_cache: Arc<ProcessCache>,
    schemas: Arc<Schemas>,
    known: Arc<Known>,
    inherited: Arc<Inherited>,
}

impl Executor {
    /// An executor with the built-in primitives, whose processes run under a supervisor.
    pub fn new(roots: Roots, supervisor: Arc<Supervisor>) -> Self {
        let mut primitives = Primitives::default();
        let id = |text: &str| text.parse().ok();
        if let Some(execute) = id("rye/core/primitives/execute") {
            let aliases = ["rye/core/primitives/subprocess", "subprocess"];
            let aliases = aliases.into_iter().filter_map(id).collect();
            primitives.register(
                execute,
                aliases,
                Arc::new(Execute::new(Arc::clone(&supervisor))),
            );
        }
        if let Some(http) = id("rye/core/primitives/http_client") {
            let aliases = id("http_client").into_iter().collect();
            primitives.register(http, aliases, Arc::new(HttpClient::default()));
        }
        Self {
            paths: roots.path_policy(),
            roots,
            primitives,
            supervisor,
            process_cache: Arc::default(),
            schemas: Arc::default(),
            known: Arc::default(),
            inherited: Arc::default(),
        }
    }

    /// The primitives, to add others.
    pub fn primitives_mut(&mut self) -> &mut Primitives {
        // What a chain ends in may be another one from now on.
        self.known = Arc::default();
        &mut self.primitives
    }

    /// Runs a tool to its end. Whatever happens is in the envelope.
    pub async fn execute(&self, request: Request) -> Envelope {
        let start = Instant::now();
        let tool = request.tool.clone();
        match self.try_execute(request, &mut Trace::disabled()).await {
            Ok(envelope) => envelope,
            Err(error) => Envelope::from_error(&tool, &error, start.elapsed()),
        }
    }

    /// The same, with what is refused as an error, and with what was found out on
    /// the way for those who want to see it.
    #[expect(clippy::too_many_lines, reason = "the steps of a call, in their order")]
    pub async fn try_execute(
        &self,
        request: Request,
        trace: &mut Trace,
    ) -> Result<Envelope, ExecuteError> {
        let start = Instant::now();
        let resolved = self.resolved(&request.tool)?;
        let Resolved { library, chain } = &*resolved;
        let trust = library.trust_with_known_keys();
        trace.chain(library, chain, start.elapsed());
        let pairs = valid(chain)?;
        let parameters = self
            .schemas
            .check(&chain.tool().metadata, request.parameters)?;
        code::check_interpolated(&chain.tool().metadata, &request.interpolated)
            .map_err(|misplaced| misplaced.of(chain))?;
        let anchored = self.anchor(library, chain)?;
        trace.anchor(&anchored);
        let loadable = dependencies::verify(library, &trust, chain, &anchored)?;
        let dependencies = loadable.dependencies();
        trace.dependencies(dependencies, start.elapsed());
        let hash = chain.hash_with(dependencies);
        let paths = CheckedPaths::of(
            &chain.tool().metadata,
            &parameters,
            &self.paths,
            request.approval.workspace(),
        );
        let paths = paths.map_err(|path| private_path(chain, path))?;
        if !request.dry_run {
            let approval = &request.approval;
            approval.check(chain, dependencies, &paths)?;
        }
        let env_configs = prepare::env_configs(chain)?;
        let inherited = || {
            let minimal = env_configs.iter().any(|config| config.minimal);
            self.inherited(request.environment, minimal, library, &trust)
        };
        if request.dry_run {
            code::check_statically(&chain.metadata()).map_err(|misplaced| misplaced.of(chain))?;
            self.check_programs(
                chain,
                &env_configs,
                &anchored,
                &loadable,
                &parameters,
                inherited,
            )?;
            return Ok(Envelope::dry_run(chain, hash, pairs, start.elapsed()));
        }
        let mut warnings = Vec::from_iter(dependencies::warning(dependencies));
        let parameters =
            prepare::with_resolved_config(library, &trust, chain, parameters, &mut warnings)?;
        let facts = self.facts(chain, &anchored, &loadable, &parameters)?;
        let guard = Guard::new(
            library,
            &trust,
            &self.roots,
            &anchored,
            &loadable,
            &request.approval,
        );
        let mut environment = self
            .environment(
                chain,
                &env_configs,
                &facts,
                &guard,
                inherited(),
                &mut warnings,
            )
            .await?;
        if let Some(text) = paths.for_program(&self.paths) {
            environment.set(approval::PATH_POLICY, text, Origin::Executor);
        }
        trace.environment(&environment);
        let redactor = environment.secrets(request.approval == Approval::ByUser);
        let dotenv_ignored = environment.dotenv_ignored().clone();
        // There is one: the chain ends in it.
        let Some(primitive) = self.primitives.get(chain.primitive().id()) else {
            return Err(crate::chain::ChainError::NoExecutor(request.tool).into());
        };
        let mut config = prepare::merged(&chain.metadata());
        standard::fill_in(&mut config, chain, library, &self.primitives);
        let watched = RedactingOutput::new(&redactor, request.listener);
        let call = prepare::call(
            chain,
            &config,
            &facts,
            environment,
            parameters,
            prepare::Surroundings {
                schemas: &self.schemas,
                cwd: prepare::cwd(&anchored, &facts, &self.roots.project),
                timeout: request.timeout,
                spill: self.spill(),
                optional: primitive.optional(),
                listener: watched.listener(),
                approval: request.approval,
                run: request.run,
            },
            trace,
        )?;
        trace.ready(start.elapsed());
        redact::add_header_secrets(&redactor, &call.config);
        let mut done = primitive.run_with_executor(call, self).await;
        watched.finish();
        if !redactor.is_empty() {
            redact::redact_outcome(&redactor, &mut done, self.spill().open().as_ref());
        }
        if done.failure.is_some() && !dotenv_ignored.is_empty() {
            warnings.push(prepare::dotenv_warning(&dotenv_ignored, chain.tool()));
        }
        trace.done(start.elapsed());
        Ok(Envelope::from_outcome(
            chain,
            hash,
            done,
            warnings,
            start.elapsed(),
        ))
    }

    /// A tool alone, verified, with what it says about itself.
    pub fn tool(&self, tool: &ItemRef) -> Result<Link, ExecuteError> {
        if tool.kind != ItemKind::Tool {
            return Err(ChainError::NotATool(tool.clone()).into());
        }
        let library = self.library()?;
        let tool = self.primitives.canonical(tool);
        let found = library.find(&tool).map_err(ItemError::from);
        let item = found.and_then(|found| library.verify(&found, &library.trust()));
        let item = item.map_err(ChainError::from)?;
        let metadata = library.metadata(&item).map_err(ChainError::from)?;
        Ok(Link { item, metadata })
    }

    /// Why a call would have to be approved by a person, if it is made by an agent that works
    /// in `workspace`. A call that names a private path is an error, as it is when it is made.
    pub fn approval_reasons(
        &self,
        tool: &ItemRef,
        parameters: &Value,
        workspace: Option<&Path>,
    ) -> Result<Vec<ApprovalReason>, ExecuteError> {
        let tool = self.tool(tool)?;
        let parameters = self.schemas.check(&tool.metadata, parameters.clone())?;
        let paths = CheckedPaths::of(&tool.metadata, &parameters, &self.paths, workspace);
        let paths = paths.map_err(|path| ExecuteError::PrivatePath {
            tool: tool.id().to_string(),
            path,
        })?;
        Ok(approval::needs(&tool.metadata, &paths))
    }

    /// Whether a call would have to be approved by a person, if it is nobody's who is one.
    pub fn needs_approval(&self, request: &Request) -> Result<bool, ExecuteError> {
        let needs = self.approval_reasons(&request.tool, &request.parameters, None)?;
        if !needs.is_empty() || !self.roots.dev_mode {
            return Ok(!needs.is_empty());
        }
        let chain = self.chain(&request.tool)?;
        Ok(chain.waived(chain.dependencies) > 0)
    }

    /// The chain of a tool as it is now, verified and fitting, and the configuration that
    /// a call of it would get from the spaces: what exactly would run, but for parameters.
    pub fn inspect(&self, tool: &ItemRef) -> Result<ToolInfo, ExecuteError> {
        let resolved = self.resolved(tool)?;
        let Resolved { library, chain } = &*resolved;
        valid(chain)?;
        let trust = library.trust_with_known_keys();
        let anchored = self.anchor(library, chain)?;
        let dependencies = dependencies::verify(library, &trust, chain, &anchored)?.dependencies();
        let nothing = Value::Object(Map::new());
        let with = prepare::with_resolved_config(library, &trust, chain, nothing, &mut Vec::new())?;
        Ok(ToolInfo {
            metadata: Arc::clone(&chain.tool().metadata),
            chain_hash: chain.hash_with(dependencies),
            config: with.get("resolved_config").cloned().unwrap_or_default(),
        })
    }

    /// The chain of a tool, verified, with what the tool brings along.
    pub fn chain(&self, tool: &ItemRef) -> Result<Chain, ExecuteError> {
        let library = self.library()?;
        let trust = library.trust();
        let chain = chain::build(&library, &trust, tool, &self.primitives)?;
        let anchored = self.anchor(&library, &chain)?;
        let dependencies =
            dependencies::verify(&library, &trust, &chain, &anchored)?.dependencies();
        Ok(chain.with(dependencies))
    }

    /// The library as it is now.
    pub fn library(&self) -> Result<Library, ExecuteError> {
        let library = Library::open(&self.options());
        Ok(library.map_err(ChainError::from)?)
    }

    fn options(&self) -> Options<'_> {
        let roots = &self.roots;
        Options {
            project: Some(&roots.project),
            user: roots.user.as_deref(),
            bundles: &roots.bundles,
            embedded: roots.embedded,
            cache: Some(&roots.cache),
            process_cache: Some(&self.process_cache),
            dev_mode: roots.dev_mode,
        }
    }

    /// Where long output goes.
    fn spill(&self) -> Spill {
        Spill::new(self.roots.cache.join("output"))
    }
}

fn private_path(chain: &Chain, path: String) -> ExecuteError {
    let tool = chain.tool().id().to_string();
    ExecuteError::PrivatePath { tool, path }
}

/// Pairs that all fit.
fn valid(chain: &Chain) -> Result<Vec<chain::Pair>, ExecuteError> {
    let pairs = chain::validate(chain);
    if pairs.iter().all(chain::Pair::is_ok) {
        Ok(pairs)
    } else {
        Err(ExecuteError::Invalid(pairs))
    }
}

/// The variables into which an item puts the interpreters that it finds.
fn interpreter_variables(link: &chain::Link) -> Vec<String> {
    let config = link.metadata.value("env_config");
    let found = config.and_then(|config| crate::interpreter::read_all(config).ok());
    let found = found.into_iter().flatten();
    found.map(|resolver| resolver.var).collect()
}
