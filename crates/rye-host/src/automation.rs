//! Schedules, webhooks and hooks: where they are stored, and what starts their graphs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rye_automation::{
    AutomationError, GraphStarter, Hooks, Schedules, Sealer, StartError, Webhooks,
};
use rye_engine::BoxFuture;
use rye_engine::clock::SystemClock;
use rye_engine::documents::DocumentStore;
use rye_engine::protocol::SessionId;
use rye_engine::quotas::Quotas;
use rye_executor::{Approval, ExecuteError, Request, Trace};
use rye_items::{ItemKind, ItemRef};
use rye_mcp::{Gateway as _, GatewayError};
use rye_store::SqliteDocuments;
use serde_json::{Map, Value};
use tokio::task::spawn_blocking;

use crate::context::Context;
use crate::engine::{database, runtime};
use crate::failure::Failure;
use crate::gateway::ItemGateway;
use crate::runs::background;
use crate::store;

impl From<AutomationError> for Failure {
    fn from(error: AutomationError) -> Self {
        match error {
            AutomationError::Store(error) => error.into(),
            AutomationError::InvalidCron { .. } | AutomationError::NeverDue(_) => {
                Self::usage(error).hint("rye schedule add --help")
            }
            AutomationError::Busy { .. } => Self::failed("conflict", error),
            AutomationError::HttpClient(_) => Self::failed("http", error),
            AutomationError::Secret(_) => Self::failed("secret", error).hint("rye vault list"),
            error => Self::usage(error),
        }
    }
}

/// Opens the documents, after the store has checked and prepared the database.
pub fn documents(context: &Context) -> Result<Arc<dyn DocumentStore>, Failure> {
    let path = database(context)?;
    drop(store(&path)?);
    Ok(Arc::new(SqliteDocuments::open(&path)?))
}

/// Works with the schedules of the session database.
pub fn with_schedules<T>(
    context: &Context,
    work: impl AsyncFnOnce(&Schedules) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let schedules = Schedules::new(documents(context)?, Arc::new(SystemClock::default()));
    runtime()?.block_on(work(&schedules))
}

/// Works with the quotas of the session database.
pub fn with_quotas<T>(
    context: &Context,
    work: impl AsyncFnOnce(&Quotas) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let quotas = Quotas::new(documents(context)?, Arc::new(SystemClock::default()));
    runtime()?.block_on(work(&quotas))
}

/// Encrypts secrets with the key of the user's vault.
pub fn sealer(context: &Context) -> Sealer {
    let vault = context.vault();
    Sealer::new(Arc::new(move |create| match &vault {
        Some(vault) => vault.key(create).map_err(|error| error.to_string()),
        None => Ok(None),
    }))
}

/// Works with the webhooks of the session database.
pub fn with_webhooks<T>(
    context: &Context,
    work: impl AsyncFnOnce(&Webhooks) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let clock = Arc::new(SystemClock::default());
    let webhooks = Webhooks::new(documents(context)?, clock, sealer(context));
    runtime()?.block_on(work(&webhooks))
}

/// Works with the hooks of the session database.
pub fn with_hooks<T>(
    context: &Context,
    work: impl AsyncFnOnce(&Hooks) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let clock = Arc::new(SystemClock::default());
    let hooks = Hooks::new(documents(context)?, clock, sealer(context));
    runtime()?.block_on(work(&hooks))
}

/// Starts the graphs of a project, in processes of their own.
pub struct ProjectGraphs {
    gateway: Arc<ItemGateway>,
    project: PathBuf,
}

impl ProjectGraphs {
    /// The graphs of a project.
    pub fn new(gateway: Arc<ItemGateway>, project: &Path) -> Self {
        let project = project.to_owned();
        Self { gateway, project }
    }

    /// Fails if a graph cannot run with these inputs.
    pub async fn check(&self, graph: &str, inputs: &Map<String, Value>) -> Result<(), StartError> {
        let request = request(graph, inputs)?;
        self.check_request(&request).await
    }

    async fn check_request(&self, request: &Request) -> Result<(), StartError> {
        let (gateway, project) = (Arc::clone(&self.gateway), self.project.clone());
        let executor = blocking(move || gateway.executor(&project).map_err(unusable)).await?;
        let dry = Request {
            dry_run: true,
            ..request.clone()
        };
        let mut trace = Trace::disabled();
        Box::pin(executor.try_execute(dry, &mut trace))
            .await
            .map_err(refused)?;
        executor.check_unapproved(request).map_err(refused)
    }
}

impl GraphStarter for ProjectGraphs {
    fn start<'a>(
        &'a self,
        run: &'a SessionId,
        graph: &'a str,
        inputs: &'a Map<String, Value>,
    ) -> BoxFuture<'a, Result<(), StartError>> {
        Box::pin(async move {
            let request = request(graph, inputs)?;
            self.check_request(&request).await?;
            let (gateway, project) = (Arc::clone(&self.gateway), self.project.clone());
            let run = run.clone();
            blocking(move || {
                let started = gateway.context(&project);
                let started =
                    started.and_then(|context| background::start_as(&run, &request, &context));
                started.map_err(|failure| error(failure.code, failure.message))
            })
            .await
        })
    }
}

/// The call of a graph.
fn request(graph: &str, inputs: &Map<String, Value>) -> Result<Request, StartError> {
    let id = graph.parse();
    let id = id.map_err(|why: rye_items::IdError| error("invalid_id", why))?;
    let mut request = Request::new(ItemRef::new(ItemKind::Tool, id))
        .with_parameters(Value::Object(inputs.clone()));
    request.approval = Approval::None;
    Ok(request)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StartError> + Send + 'static,
) -> Result<T, StartError> {
    let worked = spawn_blocking(work).await;
    worked.map_err(|failed| error("panic", failed))?
}

fn unusable(failed: GatewayError) -> StartError {
    error(&failed.code, failed.message)
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn refused(failed: ExecuteError) -> StartError {
    error(failed.code(), &failed)
}

/// A busy or full database recovers; anything else does not.
#[expect(
    clippy::needless_pass_by_value,
    reason = "takes an error or a text, whichever the caller has"
)]
fn error(code: &str, message: impl ToString) -> StartError {
    StartError {
        code: code.to_owned(),
        message: message.to_string(),
        is_transient: matches!(code, "store" | "disk_full" | "in_use" | "fenced"),
    }
}
