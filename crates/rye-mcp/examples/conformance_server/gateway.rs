//! What the fixture server serves of its own: the system space.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::process::Supervisor;
use rye_executor::{Executor, Places, Request};
use rye_items::{ItemKind, ItemRef, Library, Options, SYSTEM};
use rye_mcp::{
    Answer, Approvals, Decided, Gated, Gateway, Listed, Load, NewCopy, Refusal, Reply, Search,
    Sign, Unsigned, Workplace,
};
use serde_json::{Value, json};

/// The items that ship, and a folder for a project that has none.
pub(crate) struct System {
    project: PathBuf,
    executor: Arc<Executor>,
}

impl System {
    pub(crate) fn new(folder: &Path, supervisor: Arc<Supervisor>) -> Self {
        let places = Places::new(folder, folder.join("cache"));
        Self {
            project: folder.to_owned(),
            executor: Arc::new(Executor::new(places, supervisor)),
        }
    }

    fn items(kind: ItemKind) -> Result<Vec<Listed>, Refusal> {
        let library = Self::library()?;
        let all = library.list(kind).into_iter().filter_map(Result::ok);
        let mut all: Vec<_> = all
            .filter_map(|(_, found)| {
                let item = library.load(&found.reference).ok()?;
                let metadata = library.metadata(&item).ok()?;
                let names = metadata.parameter_names().into_iter();
                Some(Listed {
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

    fn library() -> Result<Library, Refusal> {
        Library::open(&Options::new(&SYSTEM)).map_err(refused)
    }
}

impl Gateway for System {
    fn workplace(&self) -> Workplace {
        Workplace {
            project: self.project.clone(),
            is_fixed: true,
            private: Vec::new(),
        }
    }

    fn approvals(&self) -> Approvals {
        Approvals::Client
    }

    fn search(&self, _: &Path, ask: &Search) -> Answer {
        let mut hits = Self::items(ItemKind::Tool)?;
        hits.retain(|item| item.id.contains(&ask.query));
        let ids: Vec<_> = hits.iter().map(|item| json!({ "id": item.id })).collect();
        Ok(told(json!({ "total": ids.len(), "hits": ids })))
    }

    fn load(&self, _: &Path, ask: &Load) -> Answer {
        let kind = ask.item_type.parse().map_err(refused)?;
        let id = ask.item_id.parse().map_err(refused)?;
        let library = Self::library()?;
        let item = library.load(&ItemRef::new(kind, id)).map_err(refused)?;
        Ok(told(
            json!({ "content": String::from_utf8_lossy(item.content()) }),
        ))
    }

    fn new_copy(&self, _: &Path, _: &Load) -> Result<NewCopy, Refusal> {
        Err(Refusal::new(
            "no_copies",
            "the fixture server copies nothing",
        ))
    }

    fn copy(&self, _: &Path, _: &Load, _: &NewCopy) -> Answer {
        Err(Refusal::new(
            "no_copies",
            "the fixture server copies nothing",
        ))
    }

    fn unsigned(&self, _: &Path, _: &Sign) -> Result<Vec<Unsigned>, Refusal> {
        Ok(Vec::new())
    }

    fn sign(&self, _: &Path, _: &Sign, _: &[Unsigned]) -> Answer {
        Err(Refusal::new("no_key", "the fixture server signs nothing"))
    }

    fn help(&self, _: Option<&str>) -> Answer {
        Ok(told(json!({ "text": "how to use these five tools" })))
    }

    fn executor(&self, _: &Path) -> Result<Arc<Executor>, Refusal> {
        Ok(Arc::clone(&self.executor))
    }

    fn decided(&self, _: &Path, _: &Gated) -> Result<Decided, Refusal> {
        Err(Refusal::new(
            "no_gates",
            "the fixture server has nobody to ask",
        ))
    }

    fn record(&self, _: &Path, _: &Gated, _: bool) -> Result<(), Refusal> {
        Ok(())
    }

    fn start(&self, _: &Path, _: Request) -> Answer {
        Err(Refusal::new(
            "no_runs",
            "the fixture server keeps no runs of its own",
        ))
    }

    fn list(
        &self,
        _: &Path,
        item_type: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, Refusal> {
        let all = Self::items(item_type.parse().map_err(refused)?)?.into_iter();
        let all = all.filter(|item| after.is_none_or(|after| item.id.as_str() > after));
        Ok(all.take(limit).collect())
    }
}

fn told(value: Value) -> Reply {
    let text = value.to_string();
    Reply { value, text }
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn refused(error: impl ToString) -> Refusal {
    Refusal::new("refused", error.to_string())
}
