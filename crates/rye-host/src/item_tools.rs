//! Signed items as tools of an agent: the service `rye`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::Hash;
use lillux::keys::SigningKey;
use rye_engine::BoxFuture;
use rye_engine::policy::Risk;
use rye_engine::protocol::{ErrorCode, ErrorInfo, ProjectAccess, ToolSandbox};
use rye_engine::sandbox::{Enforcement, FileAccess, Sandbox};
use rye_engine::tool::{EffectClass, ToolContext, ToolOutput};
use rye_engine::tool_provider::{
    Component, ResolvedTool, Review, ReviewReason, StoredApproval, ToolListing, ToolProvider,
    ToolProviderError, ToolSummary,
};
use rye_executor::chain::{Chain, Link};
use rye_executor::confinement::CallSandbox;
use rye_executor::{
    Approval, ApprovalReason, ExecuteError, ExecutionResult, Executor, OutputListener, Request,
    SensitiveWrite, Status,
};
use rye_items::search::{Hit, Query, SearchIndex};
use rye_items::{ItemId, ItemKind, ItemRef};
use serde_json::Value;

use crate::credentials::dotenv_secrets;
use crate::project_approvals::ProjectApprovals;

/// Name of the service, the part of a tool id before the colon.
pub(crate) const SERVICE: &str = "rye";

/// The primitive that only sends HTTP requests; its tools neither run programs nor use files.
const HTTP_CLIENT: &str = "rye/core/primitives/http_client";

/// The items of a project, as tools.
pub struct ItemTools {
    executor: Arc<Executor>,
    search_index: SearchIndex,
    project: PathBuf,
    approvals: ProjectApprovals,
}

/// State of a resolved item.
struct Handle {
    tool: ItemRef,
    hash: Hash,
    /// Whether it runs a program on this machine that may use files.
    uses_machine: bool,
    /// What its process may use, if the kernel confines it.
    sandbox: Option<(ToolSandbox, Enforcement)>,
}

/// State of a reviewed call.
struct ReviewedCall {
    writes: Vec<SensitiveWrite>,
    workspace: Option<PathBuf>,
}

impl ItemTools {
    /// The items that an executor can run in a project.
    pub fn new(
        executor: Arc<Executor>,
        search_index: SearchIndex,
        project: &Path,
        key: Option<Arc<SigningKey>>,
    ) -> Self {
        Self {
            executor,
            search_index,
            project: project.to_owned(),
            approvals: ProjectApprovals::new(project, key),
        }
    }

    fn search(&self, query: &str, limit: usize) -> Result<ToolListing, ToolProviderError> {
        let library = self
            .executor
            .library()
            .map_err(|error| execution_error(&error))?;
        let query = Query {
            kinds: vec![ItemKind::Tool],
            runnable: true,
            limit,
            ..Query::new(query)
        };
        let answer = self.search_index.search(library.spaces(), &library, &query);
        let trust = library.trust();
        let may_run = |hit: &&Hit| library.verify_hit(hit, &trust).is_ok();
        // Items without a valid signature would not run.
        let hits = answer.hits.iter().filter(may_run);
        let schema = |hit: &Hit| {
            let item = library.load(&hit.reference).ok()?;
            let metadata = library.metadata(&item).ok()?;
            metadata.config_schema().cloned()
        };
        Ok(ToolListing {
            tools: hits.map(|hit| summary(hit, schema(hit))).collect(),
            total: answer.total,
            warnings: Vec::new(),
        })
    }

    fn resolve_tool(&self, id: &str) -> Result<ResolvedTool, ToolProviderError> {
        let parsed: ItemId = id.parse().map_err(|error| tool_failure(&error))?;
        let reference = ItemRef::new(ItemKind::Tool, parsed);
        let chain = self.executor.chain(&reference);
        let chain = chain.map_err(|error| execution_error(&error))?;
        let metadata = &chain.tool().metadata;
        // A pure tool without paths can run outside of any sandbox.
        let is_pure = metadata.effect() == Some(EffectClass::Pure) && metadata.reads().is_empty();
        let is_remote = chain.primitive().id().as_str() == HTTP_CLIENT;
        let sandbox = chain.sandbox().map_err(|error| execution_error(&error))?;
        let sandbox = sandbox.map(|allowed| self.check_confinement(&chain, allowed));
        let sandbox = sandbox.transpose()?;
        Ok(ResolvedTool {
            // The full id, as in rules; `id` may be a short name.
            id: chain.tool().id().to_string(),
            description: metadata.description().unwrap_or_default().to_owned(),
            schema: metadata.config_schema().cloned(),
            risk: metadata.risk_level(),
            space: Some(chain.tool().space().as_str().to_owned()),
            requires_approval: metadata.requires_approval() == Some(true),
            effect: metadata.effect().unwrap_or_default(),
            drift: None,
            hash: chain.hash.to_hex(),
            components: components(&chain),
            handle: Arc::new(Handle {
                tool: chain.tool().item.reference.clone(),
                hash: chain.hash,
                uses_machine: !is_pure && !is_remote,
                sandbox,
            }),
        })
    }

    /// How a tool would be confined. Fails if that is not possible, as the call would.
    fn check_confinement(
        &self,
        chain: &Chain,
        allowed: ToolSandbox,
    ) -> Result<(ToolSandbox, Enforcement), ToolProviderError> {
        let checked = self.executor.check_confinement(chain, allowed);
        let CallSandbox { tier, policy, .. } = checked.map_err(|error| execution_error(&error))?;
        let policy = policy.to_hex();
        Ok((allowed, Enforcement { tier, policy }))
    }

    /// Whether a confined tool can use no more than the commands of a session: it does not see the
    /// project, or the project is the session's workspace.
    fn is_within(&self, allowed: ToolSandbox, sandbox: &dyn Sandbox) -> bool {
        let is_workspace = || {
            let project = std::fs::canonicalize(&self.project).ok();
            let workspace = sandbox.working_dir().map(PathBuf::from);
            let is_inside = project
                .zip(workspace)
                .is_some_and(|(project, workspace)| project.starts_with(workspace));
            is_inside && sandbox.confinement().files != FileAccess::Memory
        };
        allowed.filesystem == ProjectAccess::None || is_workspace()
    }

    /// Finds reasons to ask for approval: paths in the parameters, and that the tool runs outside
    /// of the sandbox.
    fn review_call(
        &self,
        tool: &ResolvedTool,
        params: &Value,
        sandbox: &dyn Sandbox,
    ) -> Result<Review, ToolProviderError> {
        let Some(handle) = tool.handle.downcast_ref::<Handle>() else {
            return Err(ToolProviderError::Changed);
        };
        let workspace = sandbox.working_dir().map(PathBuf::from);
        let found = self
            .executor
            .approval_reasons(&handle.tool, params, workspace.as_deref());
        let found = found.map_err(|error| execution_error(&error))?;
        let mut reasons = Vec::new();
        let allowed = handle.sandbox.as_ref().map(|(allowed, _)| *allowed);
        let is_within_sandbox = allowed.is_some_and(|allowed| self.is_within(allowed, sandbox));
        // A sandbox on another machine may confine nothing, but it is not this machine.
        let is_here = workspace.is_some() && !sandbox.confinement().confines_commands();
        if !is_here && handle.uses_machine && !is_within_sandbox {
            let kind = sandbox.kind();
            reasons.push(ReviewReason {
                text: format!("it runs on this machine, outside of the {kind} sandbox"),
                can_be_allowed_by_rule: true,
                applies_to_all_params: true,
            });
        }
        let mut writes = Vec::new();
        for reason in found {
            reasons.extend(reason.to_review(|reason| match reason {
                ApprovalReason::SensitiveWrite(write) => write.reason.may_be_allowed_by_rule(),
                _ => true,
            }));
            if let ApprovalReason::SensitiveWrite(write) = reason {
                writes.push(write);
            }
        }
        let confinement = handle.sandbox.as_ref();
        Ok(Review {
            confinement: confinement.map(|(_, enforcement)| enforcement.clone()),
            is_within_sandbox,
            reasons,
            handle: Arc::new(ReviewedCall { writes, workspace }),
        })
    }

    async fn run(
        &self,
        tool: &ResolvedTool,
        review: &Review,
        params: Value,
        context: &ToolContext,
    ) -> Result<ToolOutput, ToolProviderError> {
        let handle = tool.handle.downcast_ref::<Handle>();
        let reviewed = review.handle.downcast_ref::<ReviewedCall>();
        let (Some(Handle { tool, hash, .. }), Some(reviewed)) = (handle, reviewed) else {
            return Err(ToolProviderError::Changed);
        };
        // The file may have changed since the last call.
        for secret in dotenv_secrets(&self.project) {
            context.redact(&secret);
        }
        let output_context = context.clone();
        let mut request = Request::new(tool.clone()).with_parameters(params);
        request.approval = Approval::ForCall {
            chain: *hash,
            writes: reviewed.writes.clone(),
            workspace: reviewed.workspace.clone(),
        };
        request.listener = Some(OutputListener::new(move |_, bytes: &[u8]| {
            output_context.output(String::from_utf8_lossy(bytes));
        }));
        let mut trace = rye_executor::Trace::disabled();
        let result = match self.executor.try_execute(request, &mut trace).await {
            Ok(result) => result,
            Err(ExecuteError::ApprovalVoid(_)) => return Err(ToolProviderError::Changed),
            Err(error) => return Err(execution_error(&error)),
        };
        output(result)
    }
}

fn summary(hit: &Hit, schema: Option<Value>) -> ToolSummary {
    ToolSummary {
        id: hit.reference.id.to_string(),
        description: hit.description.clone(),
        parameters: hit.parameters.clone(),
        risk: hit.risk.as_deref().and_then(Risk::from_name),
        space: Some(hit.location.space.as_str().to_owned()),
        schema,
    }
}

fn components(chain: &Chain) -> Vec<Component> {
    let links = chain.links.iter().chain(chain.named.values());
    let dependencies = chain.dependencies.filter(|all| all.files > 0);
    let dependencies = dependencies.map(|all| Component {
        name: format!("{} dependency files", all.files),
        hash: all.hash.to_hex(),
        signed_by: Some("trusted keys".to_owned()),
        ..Component::default()
    });
    links.map(component).chain(dependencies).collect()
}

pub(crate) fn component(link: &Link) -> Component {
    let signer = link.item.signer.as_ref().map(|signer| {
        let key = signer.key.fingerprint();
        match &signer.owner {
            Some(owner) => format!("{key} {owner}"),
            None => key.to_string(),
        }
    });
    Component {
        name: link.id().to_string(),
        hash: link.item.hash.to_hex(),
        signed_by: signer,
        text: std::str::from_utf8(link.item.content())
            .ok()
            .map(Into::into),
        ..Component::default()
    }
}

fn output(result: ExecutionResult) -> Result<ToolOutput, ToolProviderError> {
    let data = result.data;
    let text = model_text(&data);
    match (result.status, result.error) {
        (Status::Error, error) => {
            // The supervisor has ended, and the processes of the tool with it.
            let is_interrupted = error
                .as_ref()
                .is_some_and(|error| error.code == "supervision");
            let message = error.map_or_else(|| "the tool failed".to_owned(), |error| error.message);
            let message = match text.as_str() {
                "" => message,
                text => format!("{message}\n{text}"),
            };
            let code = if is_interrupted {
                ErrorCode::Interrupted
            } else {
                ErrorCode::ToolFailed
            };
            Err(ToolProviderError::Failed(ErrorInfo::new(code, message)))
        }
        _ => Ok(ToolOutput {
            text,
            data,
            attachments: Vec::new(),
        }),
    }
}

/// The result for a model: output of a program as text, other data as JSON.
pub(crate) fn model_text(data: &Value) -> String {
    let stream = |name: &str| data.get(name).and_then(Value::as_str);
    match (data, stream("stdout")) {
        (Value::String(text), _) => text.clone(),
        (Value::Null, _) => String::new(),
        (_, Some(out)) => match stream("stderr").unwrap_or_default() {
            "" => out.to_owned(),
            err => format!("{out}\n[standard error]\n{err}"),
        },
        (other, None) => serde_json::to_string_pretty(other).unwrap_or_default(),
    }
}

pub(crate) fn execution_error(error: &ExecuteError) -> ToolProviderError {
    let message = match error.hint() {
        Some(hint) => format!("{error}\nhint: {hint}"),
        None => error.to_string(),
    };
    let code = match error {
        ExecuteError::PrivatePath { .. } => ErrorCode::Denied,
        _ => ErrorCode::ToolFailed,
    };
    ToolProviderError::Failed(ErrorInfo::new(code, message))
}

/// Runs a call that may change files, and records which ones of the session's workspace it changes.
pub(crate) async fn tracked(
    work: impl Future<Output = Result<ToolOutput, ToolProviderError>>,
    context: &ToolContext,
) -> Result<ToolOutput, ToolProviderError> {
    let outcome = context.track_changes(work).await;
    outcome.map_err(|error| ToolProviderError::Failed(error.into()))?
}

pub(crate) fn tool_failure(error: &impl ToString) -> ToolProviderError {
    ToolProviderError::Failed(ErrorInfo::new(ErrorCode::ToolFailed, error.to_string()))
}

impl ToolProvider for ItemTools {
    fn service(&self) -> &'static str {
        SERVICE
    }

    fn working_dir(&self) -> Option<String> {
        Some(self.approvals.project().to_owned())
    }

    fn list<'a>(
        &'a self,
        query: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<ToolListing, ToolProviderError>> {
        Box::pin(async move { self.search(query, limit) })
    }

    fn resolve<'a>(
        &'a self,
        id: &'a str,
    ) -> BoxFuture<'a, Result<ResolvedTool, ToolProviderError>> {
        Box::pin(async move { self.resolve_tool(id) })
    }

    fn review<'a>(
        &'a self,
        tool: &'a ResolvedTool,
        params: &'a Value,
        sandbox: &'a dyn Sandbox,
    ) -> BoxFuture<'a, Result<Review, ToolProviderError>> {
        Box::pin(async move { self.review_call(tool, params, sandbox) })
    }

    fn call<'a>(
        &'a self,
        tool: &'a ResolvedTool,
        review: &'a Review,
        params: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolProviderError>> {
        let work = self.run(tool, review, params, context);
        let handle = tool.handle.downcast_ref::<Handle>();
        if handle.is_some_and(|handle| handle.uses_machine) {
            Box::pin(tracked(work, context))
        } else {
            Box::pin(work)
        }
    }

    fn stored_approval<'a>(&'a self, tool: &'a ResolvedTool) -> BoxFuture<'a, StoredApproval> {
        Box::pin(async move {
            match self.executor.library() {
                Ok(library) => self.approvals.find(tool, &library.trust()),
                Err(_) => StoredApproval::NotGranted,
            }
        })
    }

    fn last_approved<'a>(
        &'a self,
        tool: &'a ResolvedTool,
    ) -> BoxFuture<'a, Option<Vec<Component>>> {
        Box::pin(async move {
            let library = self.executor.library().ok()?;
            self.approvals.last_approved(tool, &library.trust())
        })
    }

    fn can_store_approval(&self) -> bool {
        self.approvals.can_sign()
    }

    fn store_approval<'a>(
        &'a self,
        tool: &'a ResolvedTool,
        by: &'a str,
    ) -> BoxFuture<'a, Result<(), ToolProviderError>> {
        Box::pin(async move {
            // `rye gate approve` stores the approval itself.
            if let Ok(library) = self.executor.library()
                && self.approvals.find(tool, &library.trust()) == StoredApproval::Granted
            {
                return Ok(());
            }
            let (id, hash) = (&tool.id, &tool.hash);
            self.approvals.write(id, hash, &tool.components, by)
        })
    }
}
