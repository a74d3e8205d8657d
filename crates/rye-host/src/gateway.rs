//! Backend of the MCP server: implements its five tools with the commands of the same names.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use lillux::process::Supervisor;
use rye_executor::{Executor, Request};
use rye_items::metadata::Metadata;
use rye_items::search::{Query, SearchIndex};
use rye_items::{ItemFile, ItemKind, ItemRef, Space};
use rye_mcp::client::Pool;
use rye_mcp::{
    ApprovalChannel, CallDecision, CallEnd, GatedCall, Gateway, GatewayError, GatewayResult,
    ItemSummary, LoadRequest, PlannedCopy, ProjectBounds, SearchRequest, SignRequest, ToolReply,
    UnsignedItem,
};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::batch::Batch;
use crate::call_gates::CallGates;
use crate::context::Context;
use crate::engine::database;
use crate::failure::Failure;
use crate::load::{CopiedItem, LoadedItem, NewCopy, load, new_copy};
use crate::runs::background;
use crate::search::{VerifiedResults, search};
use crate::settings::{Options, Origin};
use crate::sign::{SignTargets, sign, unsigned_items};
use crate::{call, help, store};

/// Number of projects to cache. When it is exceeded, the cache is cleared.
const MAX_PROJECTS: usize = 64;

/// The result of a tool, which models see as text.
pub enum Reply {
    /// Result of `search`.
    Search(VerifiedResults),
    /// Result of `load`.
    Item(Box<LoadedItem>),
    /// Result of `load` with a destination.
    Copy(CopiedItem),
    /// Result of `sign`.
    Signed(Batch),
}

/// The items of all projects that clients use.
pub struct ItemGateway {
    options: Options,
    /// Renders a result as text for models.
    render: fn(&Reply) -> String,
    bounds: ProjectBounds,
    approvals: ApprovalChannel,
    /// Opened by the first call that needs an approval.
    gates: Mutex<Option<Arc<CallGates>>>,
    supervisor: Arc<Supervisor>,
    pool: Pool,
    projects: Mutex<HashMap<PathBuf, Arc<Project>>>,
}

/// Cached state of a project.
struct Project {
    executor: Arc<Executor>,
    catalogue: SearchIndex,
}

impl ItemGateway {
    /// A gateway to the items of projects. `render` shows results as text for models.
    pub fn new(
        options: &Options,
        context: &Context,
        supervisor: Arc<Supervisor>,
        approvals: ApprovalChannel,
        render: fn(&Reply) -> String,
    ) -> Self {
        let project = &context.settings.dirs.project;
        Self {
            options: options.clone(),
            render,
            bounds: ProjectBounds {
                default_project: project.value.clone(),
                is_fixed: matches!(project.origin, Origin::Option(_) | Origin::Variable(_)),
                private_dirs: context.protected().private,
            },
            approvals,
            gates: Mutex::default(),
            // Keep the servers of all projects running as long as this one. Their questions go to
            // the user of the client whose call they are about.
            pool: Pool::with_elicitation(&supervisor, None),
            supervisor,
            projects: Mutex::default(),
        }
    }

    pub(crate) fn context(&self, project: &Path) -> Result<Context, Failure> {
        let options = Options {
            project: Some(project.to_owned()),
            ..self.options.clone()
        };
        Context::open(&options)
    }

    fn project(&self, dir: &Path) -> Result<Arc<Project>, Failure> {
        let projects = self.projects.lock();
        let mut projects = projects.unwrap_or_else(PoisonError::into_inner);
        if let Some(project) = projects.get(dir) {
            return Ok(Arc::clone(project));
        }
        let context = self.context(dir)?;
        let supervisor = Arc::clone(&self.supervisor);
        let executor = call::executor(&context, supervisor, self.pool.clone(), |graphs| graphs)?;
        let project = Arc::new(Project {
            executor: Arc::new(executor),
            catalogue: SearchIndex::with_watcher(context.cache()),
        });
        if projects.len() >= MAX_PROJECTS {
            projects.clear();
        }
        projects.insert(dir.to_owned(), Arc::clone(&project));
        Ok(project)
    }

    /// Runs `work` on the gates of MCP calls. Blocks; the server calls this on a blocking thread.
    fn with_gates<T>(
        &self,
        project: &Path,
        work: impl AsyncFnOnce(&CallGates, &Context) -> Result<T, Failure>,
    ) -> Result<T, GatewayError> {
        let context = self.context(project).map_err(|failure| refusal(&failure))?;
        let gates = self.gates(&context).map_err(|failure| refusal(&failure))?;
        let worked = Handle::current().block_on(work(&gates, &context));
        worked.map_err(|failure| {
            // Reopen the store next time: its file may have been moved.
            *self.gates.lock().unwrap_or_else(PoisonError::into_inner) = None;
            refusal(&failure)
        })
    }

    fn gates(&self, context: &Context) -> Result<Arc<CallGates>, Failure> {
        let gates = self.gates.lock();
        let mut gates = gates.unwrap_or_else(PoisonError::into_inner);
        if let Some(gates) = &*gates {
            return Ok(Arc::clone(gates));
        }
        let store = store(&database(context)?)?;
        let trust = context.trusted_keys();
        let key = context.signing_key().ok().flatten().cloned();
        let opened = Arc::new(CallGates::new(store, trust, key));
        Ok(Arc::clone(gates.insert(opened)))
    }

    fn search_items(&self, dir: &Path, ask: &SearchRequest) -> Result<Reply, Failure> {
        let limit = ask.limit.map(u32::try_from).transpose();
        let limit = limit
            .ok()
            .flatten()
            .filter(|limit| (1..=200).contains(limit));
        if ask.limit.is_some() && limit.is_none() {
            return Err(Failure::usage("invalid `limit`: expected 1 to 200"));
        }
        let kinds = ask.item_type.iter().map(|kind| kind.parse());
        let spaces = ask.space.iter().map(|name| space(name, &Space::LOOKUP));
        let query = Query {
            kinds: kinds.collect::<Result<_, _>>()?,
            spaces: spaces.collect::<Result<_, _>>()?,
            ..Query::new(ask.query.clone())
        };
        let project = self.project(dir)?;
        let found = search(query, limit, &self.context(dir)?, &project.catalogue);
        found.map(Reply::Search)
    }

    fn list_items(
        &self,
        dir: &Path,
        kind: ItemKind,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ItemSummary>, Failure> {
        let project = self.project(dir)?;
        let library = project
            .executor
            .library()
            .map_err(|error| Failure::failed(error.code(), &error).maybe_hint(error.hint()))?;
        let trust = library.trust();
        // Unreadable items cannot be offered; `rye verify --all` reports them.
        let all = library.list(kind).into_iter().filter_map(Result::ok);
        let mut all: Vec<ItemFile<'_>> = all.collect();
        all.sort_by(|a, b| a.reference.id.as_str().cmp(b.reference.id.as_str()));
        all.dedup_by(|later, first| later.reference == first.reference);
        let all = all.into_iter();
        let all = all.filter(|it| after.is_none_or(|after| it.reference.id.as_str() > after));
        let described = all.filter_map(|found| {
            let item = library.verify(&found, &trust).ok()?;
            let metadata = library.metadata(&item).ok()?;
            Some(describe(&found.reference, &metadata))
        });
        Ok(described.take(limit).collect())
    }
}

impl ItemGateway {
    fn answer(&self, outcome: Result<Reply, Failure>) -> GatewayResult {
        let reply = outcome.map_err(|failure| refusal(&failure))?;
        let (value, failure) = match &reply {
            Reply::Search(found) => (found.json(), None),
            Reply::Item(item) => (item.json(), None),
            Reply::Copy(copy) => (copy.json(), None),
            Reply::Signed(batch) => (batch.json(), batch.failure()),
        };
        match failure {
            Some(failure) => Err(GatewayError {
                details: Box::new(value),
                ..refusal(&failure)
            }),
            None => Ok(ToolReply {
                value,
                text: (self.render)(&reply),
            }),
        }
    }
}

impl Gateway for ItemGateway {
    fn project_bounds(&self) -> ProjectBounds {
        self.bounds.clone()
    }

    fn approval_channel(&self) -> ApprovalChannel {
        self.approvals
    }

    fn search(&self, project: &Path, ask: &SearchRequest) -> GatewayResult {
        self.answer(self.search_items(project, ask))
    }

    fn load(&self, project: &Path, ask: &LoadRequest) -> GatewayResult {
        let loaded = reference(&ask.item_type, &ask.item_id)
            .and_then(|item| load(&item, &self.context(project)?));
        self.answer(loaded.map(|item| Reply::Item(Box::new(item))))
    }

    fn plan_copy(&self, project: &Path, ask: &LoadRequest) -> Result<PlannedCopy, GatewayError> {
        let copy = self
            .context(project)
            .and_then(|it| requested_copy(ask, &it));
        copy.map(|copy| planned_copy(&copy))
            .map_err(|failure| refusal(&failure))
    }

    fn copy(&self, project: &Path, ask: &LoadRequest, approved: &PlannedCopy) -> GatewayResult {
        let copy = || {
            let context = self.context(project)?;
            let copy = requested_copy(ask, &context)?;
            if planned_copy(&copy) != *approved {
                let message = "the item has changed since it was approved";
                return Err(Failure::failed("approval_void", message));
            }
            copy.write(&context)
        };
        self.answer(copy().map(Reply::Copy))
    }

    fn unsigned_items(
        &self,
        project: &Path,
        ask: &SignRequest,
    ) -> Result<Vec<UnsignedItem>, GatewayError> {
        let unsigned =
            to_sign(ask).and_then(|targets| unsigned_items(&targets, &self.context(project)?));
        unsigned.map_err(|failure| refusal(&failure))
    }

    fn sign(&self, project: &Path, ask: &SignRequest, approved: &[UnsignedItem]) -> GatewayResult {
        let hashes = approved.iter().map(|it| (it.path.clone(), it.hash));
        let hashes = hashes.collect();
        let signed =
            to_sign(ask).and_then(|targets| sign(targets, &self.context(project)?, Some(&hashes)));
        self.answer(signed.map(Reply::Signed))
    }

    fn help(&self, topic: Option<&str>) -> GatewayResult {
        help::for_models(topic)
    }

    fn executor(&self, project: &Path) -> Result<Arc<Executor>, GatewayError> {
        let project = self.project(project).map_err(|failure| refusal(&failure))?;
        Ok(Arc::clone(&project.executor))
    }

    fn claim_decision(
        &self,
        project: &Path,
        call: &GatedCall,
    ) -> Result<CallDecision, GatewayError> {
        self.with_gates(project, async |gates, _| {
            Ok(gates.decision(project, call).await?)
        })
    }

    fn record_decision(
        &self,
        project: &Path,
        call: &GatedCall,
        is_approved: bool,
    ) -> Result<String, GatewayError> {
        self.with_gates(project, async |gates, context| {
            let by = context.user_name()?;
            let recorded = gates.record(project, call, is_approved, &by);
            Ok(recorded.await?)
        })
    }

    fn record_result(
        &self,
        project: &Path,
        record: &str,
        end: CallEnd,
        result: &Value,
    ) -> Result<(), GatewayError> {
        self.with_gates(project, async |gates, _| {
            Ok(gates.record_result(record, end, result).await?)
        })
    }

    fn start_background(&self, project: &Path, request: Request) -> GatewayResult {
        let started = self
            .context(project)
            .and_then(|context| background::start(&request, &context))
            .map_err(|failure| refusal(&failure))?;
        let mut value = started.json();
        value["status"] = json!("started");
        let text = format!("started; rye run status {}\n", started.id);
        Ok(ToolReply { value, text })
    }

    fn list_items(
        &self,
        project: &Path,
        item_type: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ItemSummary>, GatewayError> {
        let kind = item_type.parse().map_err(Failure::from);
        let all = kind.and_then(|kind| self.list_items(project, kind, after, limit));
        all.map_err(|failure| refusal(&failure))
    }
}

fn describe(reference: &ItemRef, metadata: &Metadata) -> ItemSummary {
    let schema = metadata.config_schema();
    let required = schema.and_then(|schema| schema["required"].as_array());
    let required = |name: &String| {
        let inputs = metadata.value("inputs").and_then(Value::as_array);
        let input = inputs.and_then(|all| all.iter().find(|it| it["name"] == name.as_str()));
        let by_input = input.is_some_and(|it| it["required"] == true || it["required"] == "true");
        by_input || required.is_some_and(|all| all.iter().any(|it| it == name))
    };
    let names = metadata.parameter_names().into_iter();
    ItemSummary {
        id: reference.id.to_string(),
        title: metadata.title().map(str::to_owned),
        description: metadata.description().map(str::to_owned),
        parameters: names.map(|name| (name.clone(), required(&name))).collect(),
    }
}

/// What to sign for a client. Accepts items only, not paths outside a space.
fn to_sign(ask: &SignRequest) -> Result<SignTargets, Failure> {
    let kind: ItemKind = ask.item_type.parse()?;
    if !ask.item_id.contains(['*', '?']) {
        reference(&ask.item_type, &ask.item_id)?;
    }
    Ok(SignTargets {
        names: vec![format!("{kind}:{}", ask.item_id)],
        ..SignTargets::default()
    })
}

fn requested_copy(ask: &LoadRequest, context: &Context) -> Result<NewCopy, Failure> {
    let destination = ask.destination.as_deref().unwrap_or_default();
    let space = space(destination, &[Space::User, Space::Project])?;
    let item = reference(&ask.item_type, &ask.item_id)?;
    new_copy(&item, space, context)
}

fn planned_copy(copy: &NewCopy) -> PlannedCopy {
    PlannedCopy {
        item: copy.item.reference.to_string(),
        from: copy.item.path.clone(),
        to: copy.to.clone(),
        hash: copy.hash(),
        text: copy.text(),
    }
}

fn reference(kind: &str, id: &str) -> Result<ItemRef, Failure> {
    Ok(ItemRef::new(kind.parse()?, id.parse()?))
}

/// The space with a name, one of `allowed`.
fn space(name: &str, allowed: &[Space]) -> Result<Space, Failure> {
    let found = allowed.iter().find(|space| space.as_str() == name);
    found.copied().ok_or_else(|| {
        let names: Vec<_> = allowed.iter().map(|space| space.as_str()).collect();
        Failure::usage(format!(
            "unknown space `{name}`; expected one of {}",
            names.join(", ")
        ))
    })
}

fn refusal(failure: &Failure) -> GatewayError {
    GatewayError {
        code: failure.code.to_owned(),
        message: failure.message.clone(),
        hint: failure.hint.clone(),
        details: Box::new(failure.json()),
    }
}
