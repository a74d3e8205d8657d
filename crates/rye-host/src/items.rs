//! Signed items as actions of the bridge: the service `rye`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::Hash;
use lillux::keys::SigningKey;
use rye_engine::BoxFuture;
use rye_engine::meta_tools::{
    Component, ResolvedTool, Review, ReviewReason, Risk, StoredApproval, ToolListing, ToolProvider,
    ToolProviderError, ToolSummary,
};
use rye_engine::protocol::{ErrorCode, ErrorInfo};
use rye_engine::sandbox::Sandbox;
use rye_engine::tool::{Effect, ToolContext, ToolOutput};
use rye_executor::chain::{Chain, Link};
use rye_executor::{
    Approval, ApprovalReason, Envelope, ExecuteError, Executor, OutputListener, Request,
    SensitiveWrite, Status,
};
use rye_items::metadata::Effect as Said;
use rye_items::search::{Hit, Query, SearchIndex};
use rye_items::{ItemId, ItemKind, ItemRef};
use serde_json::Value;

use crate::approved::Approved;
use crate::credentials::secrets_of;

/// The primitive that only sends requests: its tools neither run programs nor use files.
const HTTP_CLIENT: &str = "rye/core/primitives/http_client";

/// The items of a project, as actions.
pub struct Items {
    executor: Arc<Executor>,
    catalogue: SearchIndex,
    project: PathBuf,
    approved: Approved,
}

/// What is remembered of an item until it is called.
struct Handle {
    tool: ItemRef,
    hash: Hash,
    /// Whether it runs a program here that may use files.
    uses_machine: bool,
}

/// What a call may write to.
struct Permitted {
    writes: Vec<SensitiveWrite>,
    workspace: Option<PathBuf>,
}

impl Items {
    /// Those that an executor can run in a project.
    pub fn new(
        executor: Arc<Executor>,
        catalogue: SearchIndex,
        project: &Path,
        key: Option<SigningKey>,
    ) -> Self {
        Self {
            executor,
            catalogue,
            project: project.to_owned(),
            approved: Approved::of(project, key),
        }
    }

    fn listed(&self, query: &str, limit: usize) -> Result<ToolListing, ToolProviderError> {
        let library = self.executor.library().map_err(|error| refused(&error))?;
        let query = Query {
            kinds: vec![ItemKind::Tool],
            runnable: true,
            limit,
            ..Query::new(query)
        };
        let answer = self.catalogue.search(library.spaces(), &library, &query);
        let trust = library.trust();
        let may_run = |hit: &&Hit| library.verify_hit(hit, &trust).is_ok();
        // What nobody vouches for would not run; `rye search` shows it all the same.
        let hits = answer.hits.iter().filter(may_run);
        Ok(ToolListing {
            tools: hits.map(listed).collect(),
            total: answer.total,
            warnings: Vec::new(),
        })
    }

    fn prepared(&self, id: &str) -> Result<ResolvedTool, ToolProviderError> {
        let parsed: ItemId = id.parse().map_err(|error| unusable(&error))?;
        let reference = ItemRef::new(ItemKind::Tool, parsed);
        let chain = self.executor.chain(&reference);
        let chain = chain.map_err(|error| refused(&error))?;
        let metadata = &chain.tool().metadata;
        // A tool that changes nothing and is given no paths may run beside any sandbox.
        let is_pure = metadata.effect() == Some(Said::Pure) && metadata.reads().is_empty();
        let is_remote = chain.primitive().id().as_str() == HTTP_CLIENT;
        Ok(ResolvedTool {
            // As rules name it: a bare name may lead to an id in a folder.
            id: chain.tool().id().to_string(),
            description: metadata.description().unwrap_or_default().to_owned(),
            schema: metadata.config_schema().cloned(),
            risk: metadata.risk_level().and_then(|it| risk(it.as_str())),
            space: Some(chain.tool().space().as_str().to_owned()),
            requires_approval: metadata.requires_approval() == Some(true),
            effect: metadata.effect().map_or(Effect::default(), effect),
            drift: None,
            hash: chain.hash.to_hex(),
            components: pieces(&chain),
            handle: Arc::new(Handle {
                tool: chain.tool().item.reference.clone(),
                hash: chain.hash,
                uses_machine: !is_pure && !is_remote,
            }),
        })
    }

    /// Why a call must be approved: what its parameters lead to, and that it runs outside of
    /// a sandbox that is not a folder of this machine.
    fn reviewed(
        &self,
        prepared: &ResolvedTool,
        params: &Value,
        sandbox: &dyn Sandbox,
    ) -> Result<Review, ToolProviderError> {
        let Some(handle) = prepared.handle.downcast_ref::<Handle>() else {
            return Err(ToolProviderError::Changed);
        };
        let workspace = sandbox.working_dir().map(PathBuf::from);
        let needs = self
            .executor
            .approval_reasons(&handle.tool, params, workspace.as_deref());
        let needs = needs.map_err(|error| refused(&error))?;
        let mut reasons = Vec::new();
        if workspace.is_none() && handle.uses_machine {
            let kind = sandbox.kind();
            reasons.push(ReviewReason {
                text: format!("it runs on this machine, outside of the {kind} sandbox"),
                can_be_allowed_by_rule: true,
                applies_to_all_params: true,
            });
        }
        let mut writes = Vec::new();
        for need in needs {
            reasons.extend(need.message().map(|text| ReviewReason {
                text,
                can_be_allowed_by_rule: match &need {
                    ApprovalReason::SensitiveWrite(write) => write.reason.may_be_allowed_by_rule(),
                    _ => true,
                },
                applies_to_all_params: false,
            }));
            if let ApprovalReason::SensitiveWrite(write) = need {
                writes.push(write);
            }
        }
        let handle = Arc::new(Permitted { writes, workspace });
        Ok(Review { reasons, handle })
    }

    async fn run(
        &self,
        prepared: &ResolvedTool,
        review: &Review,
        params: Value,
        context: &ToolContext,
    ) -> Result<ToolOutput, ToolProviderError> {
        let handle = prepared.handle.downcast_ref::<Handle>();
        let permitted = review.handle.downcast_ref::<Permitted>();
        let (Some(Handle { tool, hash, .. }), Some(permitted)) = (handle, permitted) else {
            return Err(ToolProviderError::Changed);
        };
        // As it is now: it may have been written since the last call.
        for secret in secrets_of(&self.project) {
            context.redact(&secret);
        }
        let live = context.clone();
        let mut request = Request::new(tool.clone()).with_parameters(params);
        request.approval = Approval::ForCall {
            chain: *hash,
            writes: permitted.writes.clone(),
            workspace: permitted.workspace.clone(),
        };
        request.listener = Some(OutputListener::new(move |_, bytes: &[u8]| {
            live.output(String::from_utf8_lossy(bytes));
        }));
        let mut trace = rye_executor::Trace::disabled();
        let envelope = match self.executor.try_execute(request, &mut trace).await {
            Ok(envelope) => envelope,
            Err(ExecuteError::ApprovalVoid(_)) => return Err(ToolProviderError::Changed),
            Err(error) => return Err(refused(&error)),
        };
        output(envelope)
    }
}

fn listed(hit: &Hit) -> ToolSummary {
    ToolSummary {
        id: hit.reference.id.to_string(),
        description: hit.description.clone(),
        parameters: hit.parameters.clone(),
        risk: hit.risk.as_deref().and_then(risk),
        space: Some(hit.location.space.as_str().to_owned()),
    }
}

fn risk(word: &str) -> Option<Risk> {
    let all = [Risk::Low, Risk::Medium, Risk::High, Risk::Critical];
    all.into_iter().find(|risk| risk.as_str() == word)
}

fn effect(said: Said) -> Effect {
    match said {
        Said::Pure => Effect::Pure,
        Said::Idempotent => Effect::Idempotent,
        Said::AtMostOnce => Effect::AtMostOnce,
        Said::Ask => Effect::Ask,
    }
}

fn pieces(chain: &Chain) -> Vec<Component> {
    let links = chain.links.iter().chain(chain.named.values());
    let beside = chain.dependencies.filter(|them| them.files > 0);
    let beside = beside.map(|them| Component {
        name: format!("{} files beside it", them.files),
        hash: them.hash.to_hex(),
        signed_by: Some("keys that are trusted".to_owned()),
    });
    links.map(piece).chain(beside).collect()
}

pub(crate) fn piece(link: &Link) -> Component {
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
    }
}

fn output(envelope: Envelope) -> Result<ToolOutput, ToolProviderError> {
    let data = envelope.data;
    let text = words(&data);
    match (envelope.status, envelope.error) {
        (Status::Error, error) => {
            // Whoever kept its processes is gone, and they with it.
            let is_cut_off = error.as_ref().is_some_and(|it| it.code == "supervision");
            let message = error.map_or_else(|| "it failed".to_owned(), |error| error.message);
            let message = match text.as_str() {
                "" => message,
                text => format!("{message}\n{text}"),
            };
            let code = if is_cut_off {
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

/// What a model reads: the words of a program as they are, all else as JSON.
pub(crate) fn words(data: &Value) -> String {
    let printed = |name: &str| data.get(name).and_then(Value::as_str);
    match (data, printed("stdout")) {
        (Value::String(text), _) => text.clone(),
        (Value::Null, _) => String::new(),
        (_, Some(out)) => match printed("stderr").unwrap_or_default() {
            "" => out.to_owned(),
            err => format!("{out}\n[standard error]\n{err}"),
        },
        (other, None) => serde_json::to_string_pretty(other).unwrap_or_default(),
    }
}

pub(crate) fn refused(error: &ExecuteError) -> ToolProviderError {
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

pub(crate) fn unusable(error: &impl ToString) -> ToolProviderError {
    ToolProviderError::Failed(ErrorInfo::new(ErrorCode::ToolFailed, error.to_string()))
}

impl ToolProvider for Items {
    fn service(&self) -> &'static str {
        "rye"
    }

    fn working_dir(&self) -> Option<String> {
        Some(self.approved.project().to_owned())
    }

    fn list<'a>(
        &'a self,
        query: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<ToolListing, ToolProviderError>> {
        Box::pin(async move { self.listed(query, limit) })
    }

    fn resolve<'a>(
        &'a self,
        id: &'a str,
    ) -> BoxFuture<'a, Result<ResolvedTool, ToolProviderError>> {
        Box::pin(async move { self.prepared(id) })
    }

    fn review<'a>(
        &'a self,
        prepared: &'a ResolvedTool,
        params: &'a Value,
        sandbox: &'a dyn Sandbox,
    ) -> BoxFuture<'a, Result<Review, ToolProviderError>> {
        Box::pin(async move { self.reviewed(prepared, params, sandbox) })
    }

    fn call<'a>(
        &'a self,
        prepared: &'a ResolvedTool,
        review: &'a Review,
        params: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolProviderError>> {
        Box::pin(self.run(prepared, review, params, context))
    }

    fn stored_approval<'a>(&'a self, prepared: &'a ResolvedTool) -> BoxFuture<'a, StoredApproval> {
        Box::pin(async move {
            match self.executor.library() {
                Ok(library) => self.approved.look(prepared, &library.trust()),
                Err(_) => StoredApproval::NotGranted,
            }
        })
    }

    fn can_store_approval(&self) -> bool {
        self.approved.can_sign()
    }

    fn store_approval<'a>(
        &'a self,
        prepared: &'a ResolvedTool,
        by: &'a str,
    ) -> BoxFuture<'a, Result<(), ToolProviderError>> {
        Box::pin(async move { self.approved.write(prepared, by) })
    }
}
