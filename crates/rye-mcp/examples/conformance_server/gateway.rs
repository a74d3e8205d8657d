//! What the fixture server serves of its own: the system space.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::process::Supervisor;
use rye_executor::{Executor, Request, Roots};
use rye_items::{ItemKind, ItemRef, Library, Options, SYSTEM};
use rye_mcp::{
    ApprovalChannel, CallDecision, GatedCall, Gateway, GatewayError, GatewayResult, ItemSummary,
    LoadRequest, PlannedCopy, ProjectBounds, SearchRequest, SignRequest, ToolReply, UnsignedItem,
};
use serde_json::{Value, json};

/// The items that ship, and a folder for a project that has none.
pub(crate) struct System {
    project: PathBuf,
    executor: Arc<Executor>,
}

impl System {
    pub(crate) fn new(folder: &Path, supervisor: Arc<Supervisor>) -> Self {
        let roots = Roots::new(folder, folder.join("cache"));
        Self {
            project: folder.to_owned(),
            executor: Arc::new(Executor::new(roots, supervisor)),
        }
    }

    fn items(kind: ItemKind) -> Result<Vec<ItemSummary>, GatewayError> {
        let library = Self::library()?;
        let all = library.list(kind).into_iter().filter_map(Result::ok);
        let mut all: Vec<_> = all
            .filter_map(|(_, found)| {
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
        Library::open(&Options::new(&SYSTEM)).map_err(refused)
    }
}

impl Gateway for System {
    fn project_bounds(&self) -> ProjectBounds {
        ProjectBounds {
            project: self.project.clone(),
            is_fixed: true,
            private_dirs: Vec::new(),
        }
    }

    fn approval_channel(&self) -> ApprovalChannel {
        ApprovalChannel::Client
    }

    fn search(&self, _: &Path, ask: &SearchRequest) -> GatewayResult {
        let mut hits = Self::items(ItemKind::Tool)?;
        hits.retain(|item| item.id.contains(&ask.query));
        let ids: Vec<_> = hits.iter().map(|item| json!({ "id": item.id })).collect();
        Ok(told(json!({ "total": ids.len(), "hits": ids })))
    }

    fn load(&self, _: &Path, ask: &LoadRequest) -> GatewayResult {
        let kind = ask.item_type.parse().map_err(refused)?;
        let id = ask.item_id.parse().map_err(refused)?;
        let library = Self::library()?;
        let item = library.load(&ItemRef::new(kind, id)).map_err(refused)?;
        Ok(told(
            json!({ "content": String::from_utf8_lossy(item.content()) }),
        ))
    }

    fn plan_copy(&self, _: &Path, _: &LoadRequest) -> Result<PlannedCopy, GatewayError> {
        Err(GatewayError::new(
            "no_copies",
            "the fixture server copies nothing",
        ))
    }

    fn copy(&self, _: &Path, _: &LoadRequest, _: &PlannedCopy) -> GatewayResult {
        Err(GatewayError::new(
            "no_copies",
            "the fixture server copies nothing",
        ))
    }

    fn unsigned_items(&self, _: &Path, _: &SignRequest) -> Result<Vec<UnsignedItem>, GatewayError> {
        Ok(Vec::new())
    }

    fn sign(&self, _: &Path, _: &SignRequest, _: &[UnsignedItem]) -> GatewayResult {
        Err(GatewayError::new(
            "no_key",
            "the fixture server signs nothing",
        ))
    }

    fn help(&self, _: Option<&str>) -> GatewayResult {
        Ok(told(json!({ "text": "how to use these five tools" })))
    }

    fn executor(&self, _: &Path) -> Result<Arc<Executor>, GatewayError> {
        Ok(Arc::clone(&self.executor))
    }

    fn claim_decision(&self, _: &Path, _: &GatedCall) -> Result<CallDecision, GatewayError> {
        Err(GatewayError::new(
            "no_gates",
            "the fixture server has nobody to ask",
        ))
    }

    fn record_decision(&self, _: &Path, _: &GatedCall, _: bool) -> Result<(), GatewayError> {
        Ok(())
    }

    fn start_background(&self, _: &Path, _: Request) -> GatewayResult {
        Err(GatewayError::new(
            "no_runs",
            "the fixture server keeps no runs of its own",
        ))
    }

    fn list_items(
        &self,
        _: &Path,
        item_type: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ItemSummary>, GatewayError> {
        let all = Self::items(item_type.parse().map_err(refused)?)?.into_iter();
        let all = all.filter(|item| after.is_none_or(|after| item.id.as_str() > after));
        Ok(all.take(limit).collect())
    }
}

fn told(value: Value) -> ToolReply {
    let text = value.to_string();
    ToolReply { value, text }
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn refused(error: impl ToString) -> GatewayError {
    GatewayError::new("refused", error.to_string())
}
