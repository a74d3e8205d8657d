//! Gateway of the conformance server: the system space and an empty project.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::process::Supervisor;
use rye_executor::{Executor, Request, Roots};
use rye_items::{ItemKind, ItemRef, Library, Options, SYSTEM};
use rye_mcp::{
    ApprovalChannel, CallDecision, CallEnd, GatedCall, Gateway, GatewayError, GatewayResult,
    ItemSummary, LoadRequest, PlannedCopy, ProjectBounds, SearchRequest, SignRequest, ToolReply,
    UnsignedItem,
};
use serde_json::{Value, json};

/// Serves the items of the system space.
pub(crate) struct SystemGateway {
    project: PathBuf,
    executor: Arc<Executor>,
}

impl SystemGateway {
    pub(crate) fn new(dir: &Path, supervisor: Arc<Supervisor>) -> Self {
        let roots = Roots::new(dir, dir.join("cache"));
        Self {
            project: dir.to_owned(),
            executor: Arc::new(Executor::new(roots, supervisor)),
        }
    }

    fn items(kind: ItemKind) -> Result<Vec<ItemSummary>, GatewayError> {
        let library = Self::library()?;
        let all = library.list(kind).into_iter().filter_map(Result::ok);
        let mut all: Vec<_> = all
            .filter_map(|found| {
                let item = library.load(&found.reference).ok()?;
                let metadata = library.metadata(&item).ok()?;
                let names = metadata.parameter_names().into_iter();
                Some(ItemSummary {
                    id: found.reference.id.to_string(),
                    title: metadata.title().map(str::to_owned),
                    description: metadata.description().map(str::to_owned),
                    parameters: names.map(|name| (name, false)).collect(),
                })
            })
            .collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(all)
    }

    fn library() -> Result<Library, GatewayError> {
        Library::open(&Options::new(&SYSTEM)).map_err(to_error)
    }
}

impl Gateway for SystemGateway {
    fn project_bounds(&self) -> ProjectBounds {
        ProjectBounds {
            default_project: self.project.clone(),
            is_fixed: true,
            private_dirs: Vec::new(),
        }
    }

    fn approval_channel(&self) -> ApprovalChannel {
        ApprovalChannel::Client
    }

    fn search(&self, _: &Path, request: &SearchRequest) -> GatewayResult {
        let mut hits = Self::items(ItemKind::Tool)?;
        hits.retain(|item| item.id.contains(&request.query));
        let ids: Vec<_> = hits.iter().map(|item| json!({ "id": item.id })).collect();
        Ok(reply(json!({ "total": ids.len(), "hits": ids })))
    }

    fn load(&self, _: &Path, request: &LoadRequest) -> GatewayResult {
        let kind = request.item_type.parse().map_err(to_error)?;
        let id = request.item_id.parse().map_err(to_error)?;
        let library = Self::library()?;
        let item = library.load(&ItemRef::new(kind, id)).map_err(to_error)?;
        Ok(reply(
            json!({ "content": String::from_utf8_lossy(item.content()) }),
        ))
    }

    fn plan_copy(&self, _: &Path, _: &LoadRequest) -> Result<PlannedCopy, GatewayError> {
        Err(GatewayError::new(
            "no_copies",
            "not supported by the conformance server",
        ))
    }

    fn copy(&self, _: &Path, _: &LoadRequest, _: &PlannedCopy) -> GatewayResult {
        Err(GatewayError::new(
            "no_copies",
            "not supported by the conformance server",
        ))
    }

    fn unsigned_items(&self, _: &Path, _: &SignRequest) -> Result<Vec<UnsignedItem>, GatewayError> {
        Ok(Vec::new())
    }

    fn sign(&self, _: &Path, _: &SignRequest, _: &[UnsignedItem]) -> GatewayResult {
        Err(GatewayError::new(
            "no_key",
            "not supported by the conformance server",
        ))
    }

    fn help(&self, _: Option<&str>) -> GatewayResult {
        Ok(reply(json!({ "text": "how to use these five tools" })))
    }

    fn executor(&self, _: &Path) -> Result<Arc<Executor>, GatewayError> {
        Ok(Arc::clone(&self.executor))
    }

    fn claim_decision(&self, _: &Path, _: &GatedCall) -> Result<CallDecision, GatewayError> {
        Err(GatewayError::new(
            "no_gates",
            "not supported by the conformance server",
        ))
    }

    fn record_decision(&self, _: &Path, _: &GatedCall, _: bool) -> Result<String, GatewayError> {
        Ok(String::new())
    }

    fn record_result(&self, _: &Path, _: &str, _: CallEnd, _: &Value) -> Result<(), GatewayError> {
        Ok(())
    }

    fn start_background(&self, _: &Path, _: Request) -> GatewayResult {
        Err(GatewayError::new(
            "no_runs",
            "not supported by the conformance server",
        ))
    }

    fn list_items(
        &self,
        _: &Path,
        item_type: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ItemSummary>, GatewayError> {
        let all = Self::items(item_type.parse().map_err(to_error)?)?.into_iter();
        let all = all.filter(|item| after.is_none_or(|after| item.id.as_str() > after));
        Ok(all.take(limit).collect())
    }
}

fn reply(value: Value) -> ToolReply {
    let text = value.to_string();
    ToolReply { value, text }
}

#[expect(clippy::needless_pass_by_value, reason = "passed to `map_err`")]
fn to_error(error: impl ToString) -> GatewayError {
    GatewayError::new("refused", error.to_string())
}
