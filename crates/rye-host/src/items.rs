//! Signed items as actions of the bridge: the service `rye`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::Hash;
use lillux::keys::SigningKey;
use rye_engine::bridge::{
    ActionError, ActionSource, Listed, Listing, Piece, Prepared, Reason, Remembered, Review, Risk,
};
use rye_engine::protocol::{ErrorCode, ErrorInfo};
use rye_engine::sandbox::Sandbox;
use rye_engine::store::Later;
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

    fn listed(&self, query: &str, limit: usize) -> Result<Listing, ActionError> {
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
        Ok(Listing {
            actions: hits.map(listed).collect(),
            total: answer.total,
            warnings: Vec::new(),
        })
    }

    fn prepared(&self, id: &str) -> Result<Prepared, ActionError> {
        let parsed: ItemId = id.parse().map_err(|error| unusable(&error))?;
        let reference = ItemRef::new(ItemKind::Tool, parsed);
        let chain = self.executor.chain(&reference);
        let chain = chain.map_err(|error| refused(&error))?;
        let metadata = &chain.tool().metadata;
        // A tool that changes nothing and is given no paths may run beside any sandbox.
        let is_pure = metadata.effect() == Some(Said::Pure) && metadata.reads().is_empty();
        let is_remote = chain.primitive().id().as_str() == HTTP_CLIENT;
        Ok(Prepared {
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
            pieces: pieces(&chain),
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
        prepared: &Prepared,
        params: &Value,
        sandbox: &dyn Sandbox,
    ) -> Result<Review, ActionError> {
        let Some(handle) = prepared.handle.downcast_ref::<Handle>() else {
            return Err(ActionError::Changed);
        };
        let workspace = sandbox.folder().map(PathBuf::from);
        let needs = self
            .executor
            .approval_reasons(&handle.tool, params, workspace.as_deref());
        let needs = needs.map_err(|error| refused(&error))?;
        let mut reasons = Vec::new();
        if workspace.is_none() && handle.uses_machine {
            let kind = sandbox.kind();
            reasons.push(Reason {
                text: format!("it runs on this machine, outside of the {kind} sandbox"),
                may_be_allowed_by_rule: true,
                is_about_action: true,
            });
        }
        let mut writes = Vec::new();
        for need in needs {
            reasons.extend(need.reason().map(|text| Reason {
                text,
                may_be_allowed_by_rule: match &need {
                    ApprovalReason::SensitiveWrite(write) => write.reason.may_be_allowed_by_rule(),
                    _ => true,
                },
                is_about_action: false,
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
        prepared: &Prepared,
        review: &Review,
        params: Value,
        context: &ToolContext,
    ) -> Result<ToolOutput, ActionError> {
        let handle = prepared.handle.downcast_ref::<Handle>();
        let permitted = review.handle.downcast_ref::<Permitted>();
        let (Some(Handle { tool, hash, .. }), Some(permitted)) = (handle, permitted) else {
            return Err(ActionError::Changed);
        };
        // As it is now: it may have been written since the last call.
        for secret in secrets_of(&self.project) {
            context.mask(&secret);
        }
        let live = context.clone();
        let mut request = Request::new(tool.clone()).parameters(params);
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
            Err(ExecuteError::ApprovalVoid(_)) => return Err(ActionError::Changed),
            Err(error) => return Err(refused(&error)),
        };
        output(envelope)
    }
}

fn listed(hit: &Hit) -> Listed {
    Listed {
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

fn pieces(chain: &Chain) -> Vec<Piece> {
    let links = chain.links.iter().chain(chain.named.values());
    let beside = chain.dependencies.filter(|them| them.files > 0);
    let beside = beside.map(|them| Piece {
        name: format!("{} files beside it", them.files),
        hash: them.hash.to_hex(),
        signed_by: Some("keys that are trusted".to_owned()),
    });
    links.map(piece).chain(beside).collect()
}

pub(crate) fn piece(link: &Link) -> Piece {
    let signer = link.item.signer.as_ref().map(|signer| {
        let key = signer.key.fingerprint();
        match &signer.owner {
            Some(owner) => format!("{key} {owner}"),
            None => key.to_string(),
        }
    });
    Piece {
        name: link.id().to_string(),
        hash: link.item.hash.to_hex(),
        signed_by: signer,
    }
}

fn output(envelope: Envelope) -> Result<ToolOutput, ActionError> {
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
            Err(ActionError::Failed(ErrorInfo::new(code, message)))
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

pub(crate) fn refused(error: &ExecuteError) -> ActionError {
    let message = match error.hint() {
        Some(hint) => format!("{error}\nhint: {hint}"),
        None => error.to_string(),
    };
    let code = match error {
        ExecuteError::PrivatePath { .. } => ErrorCode::Denied,
        _ => ErrorCode::ToolFailed,
    };
    ActionError::Failed(ErrorInfo::new(code, message))
}

pub(crate) fn unusable(error: &impl ToString) -> ActionError {
    ActionError::Failed(ErrorInfo::new(ErrorCode::ToolFailed, error.to_string()))
}

impl ActionSource for Items {
    fn service(&self) -> &'static str {
        "rye"
    }

    fn folder(&self) -> Option<String> {
        Some(self.approved.project().to_owned())
    }

    fn list<'a>(&'a self, query: &'a str, limit: usize) -> Later<'a, Result<Listing, ActionError>> {
        Box::pin(async move { self.listed(query, limit) })
    }

    fn prepare<'a>(&'a self, id: &'a str) -> Later<'a, Result<Prepared, ActionError>> {
        Box::pin(async move { self.prepared(id) })
    }

    fn review<'a>(
        &'a self,
        prepared: &'a Prepared,
        params: &'a Value,
        sandbox: &'a dyn Sandbox,
    ) -> Later<'a, Result<Review, ActionError>> {
        Box::pin(async move { self.reviewed(prepared, params, sandbox) })
    }

    fn call<'a>(
        &'a self,
        prepared: &'a Prepared,
        review: &'a Review,
        params: Value,
        context: &'a ToolContext,
    ) -> Later<'a, Result<ToolOutput, ActionError>> {
        Box::pin(self.run(prepared, review, params, context))
    }

    fn remembered<'a>(&'a self, prepared: &'a Prepared) -> Later<'a, Remembered> {
        Box::pin(async move {
            match self.executor.library() {
                Ok(library) => self.approved.look(prepared, &library.trust()),
                Err(_) => Remembered::No,
            }
        })
    }

    fn remembers(&self) -> bool {
        self.approved.can_sign()
    }

    fn remember<'a>(
        &'a self,
        prepared: &'a Prepared,
        by: &'a str,
    ) -> Later<'a, Result<(), ActionError>> {
        Box::pin(async move { self.approved.write(prepared, by) })
    }
}
