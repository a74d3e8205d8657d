//! Backend of the MCP server: implements its five tools with the commands of the same names.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anstream::ColorChoice;
use anstream::adapter::strip_str;
use clap::builder::PossibleValue;
use lillux::Hash;
use lillux::process::Supervisor;
use rye_executor::{Executor, Request};
use rye_host::engine::{current_user, database};
use rye_host::settings::{Options, Origin};
use rye_host::{CallGates, TrustedKeys};
use rye_items::metadata::Metadata;
use rye_items::search::SearchIndex;
use rye_items::{ItemFile, ItemKind, ItemRef};
use rye_mcp::client::Pool;
use rye_mcp::{
    ApprovalChannel, CallDecision, CallEnd, GatedCall, Gateway, GatewayError, GatewayResult,
    ItemSummary, LoadRequest, PlannedCopy, ProjectBounds, SearchRequest, SignRequest, ToolReply,
    UnsignedItem,
};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::args::{LoadArgs, SearchArgs, SignArgs, SpaceChoice};
use super::commands::run;
use super::commands::{help, load, search, sign};
use super::context::Context;
use super::failure::Failure;
use super::page::Page;
use super::printer::{Outcome, Printer, Report};

/// Number of projects to cache. When it is exceeded, the cache is cleared.
const MAX_PROJECTS: usize = 64;

/// Printer without output: warnings are for the user who starts the server.
const SILENT: Printer = Printer {
    json: true,
    quiet: true,
    color: ColorChoice::Never,
};

/// The items of all projects that clients use.
pub(crate) struct ItemGateway {
    options: Options,
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
    pub(crate) fn new(
        options: &Options,
        context: &Context,
        supervisor: Arc<Supervisor>,
        approvals: ApprovalChannel,
    ) -> Self {
        let project = &context.settings.dirs.project;
        Self {
            options: options.clone(),
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

    fn context(&self, project: &Path) -> Result<Context, Failure> {
        let options = Options {
            project: Some(project.to_owned()),
            ..self.options.clone()
        };
        Context::open(&options, &mut SILENT.clone())
    }

    fn project(&self, dir: &Path) -> Result<Arc<Project>, Failure> {
        let projects = self.projects.lock();
        let mut projects = projects.unwrap_or_else(PoisonError::into_inner);
        if let Some(project) = projects.get(dir) {
            return Ok(Arc::clone(project));
        }
        let context = self.context(dir)?;
        let supervisor = Arc::clone(&self.supervisor);
        let roots = context.roots()?;
        let graphs = context.graphs(&roots);
        let executor = rye_host::executor_with(roots, supervisor, self.pool.clone(), graphs)?;
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
        let store = rye_host::store(&database(context)?)?;
        let trust = TrustedKeys::new(&context.roots()?);
        let opened = Arc::new(CallGates::new(
            store,
            trust,
            context.own_keys()?.load_signing_key().ok(),
        ));
        Ok(Arc::clone(gates.insert(opened)))
    }

    fn search_items(&self, dir: &Path, ask: &SearchRequest) -> Outcome {
        let kinds: Result<Vec<ItemKind>, _> = ask.item_type.iter().map(|it| it.parse()).collect();
        let limit = ask.limit.map(u32::try_from).transpose();
        let limit = limit
            .ok()
            .flatten()
            .filter(|limit| (1..=200).contains(limit));
        if ask.limit.is_some() && limit.is_none() {
            return Err(Failure::usage("invalid `limit`: expected 1 to 200"));
        }
        let spaces = ask.space.iter().map(|name| choice(name));
        let args = SearchArgs {
            words: vec![ask.query.clone()],
            kinds: kinds?,
            spaces: spaces.collect::<Result<_, _>>()?,
            category: None,
            signer: None,
            risk: None,
            limit,
        };
        let project = self.project(dir)?;
        search::search_with(&args, &self.context(dir)?, &project.catalogue)
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

impl Gateway for ItemGateway {
    fn project_bounds(&self) -> ProjectBounds {
        self.bounds.clone()
    }

    fn approval_channel(&self) -> ApprovalChannel {
        self.approvals
    }

    fn search(&self, project: &Path, ask: &SearchRequest) -> GatewayResult {
        answer(self.search_items(project, ask))
    }

    fn load(&self, project: &Path, ask: &LoadRequest) -> GatewayResult {
        let load = || {
            let args = LoadArgs {
                item: reference(&ask.item_type, &ask.item_id)?.to_string(),
                content: false,
                to: None,
                yes: false,
            };
            load::run(&args, &self.context(project)?)
        };
        answer(load())
    }

    fn plan_copy(&self, project: &Path, ask: &LoadRequest) -> Result<PlannedCopy, GatewayError> {
        let copy = self.context(project).and_then(|it| new_copy(ask, &it));
        copy.map(|copy| shown_copy(&copy))
            .map_err(|failure| refusal(&failure))
    }

    fn copy(&self, project: &Path, ask: &LoadRequest, approved: &PlannedCopy) -> GatewayResult {
        let copy = || {
            let context = self.context(project)?;
            let copy = new_copy(ask, &context)?;
            if shown_copy(&copy) != *approved {
                let message = "the item has changed since it was approved";
                return Err(Failure::failed("approval_void", message));
            }
            copy.write(context.library()?, &context)
        };
        answer(copy())
    }

    fn unsigned_items(
        &self,
        project: &Path,
        ask: &SignRequest,
    ) -> Result<Vec<UnsignedItem>, GatewayError> {
        let unsigned = to_sign(ask).and_then(|args| {
            let context = self.context(project)?;
            sign::unsigned_files(&args, &context)
        });
        let unsigned = unsigned.map_err(|failure| refusal(&failure))?.into_iter();
        let unsigned = unsigned.map(|it| UnsignedItem {
            item: it.item,
            path: it.path,
            hash: Hash::digest(&it.content),
            text: String::from_utf8_lossy(&it.content).into_owned(),
        });
        Ok(unsigned.collect())
    }

    fn sign(&self, project: &Path, ask: &SignRequest, approved: &[UnsignedItem]) -> GatewayResult {
        let hashes = approved.iter().map(|it| (it.path.clone(), it.hash));
        let hashes = hashes.collect();
        let signed = to_sign(ask).and_then(|args| {
            let context = self.context(project)?;
            sign::run_approved(&args, &context, &hashes)
        });
        answer(signed)
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
        self.with_gates(project, async |gates, _| {
            let by = current_user();
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
        let start = || {
            let context = self.context(project)?;
            run::start(&request, &context)
        };
        let mut reply = answer(start())?;
        reply.value["status"] = json!("started");
        reply.text = format!("started; rye run status {}", reply.text);
        Ok(reply)
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

/// Arguments of `rye sign` for a client's request. Accepts items only, not paths outside a space.
fn to_sign(ask: &SignRequest) -> Result<SignArgs, Failure> {
    let kind: ItemKind = ask.item_type.parse()?;
    if !ask.item_id.contains(['*', '?']) {
        reference(&ask.item_type, &ask.item_id)?;
    }
    Ok(SignArgs {
        targets: vec![format!("{kind}:{}", ask.item_id)],
        manifest: Vec::new(),
        all: false,
        space: None,
        provenance: None,
    })
}

fn new_copy(ask: &LoadRequest, context: &Context) -> Result<load::NewCopy, Failure> {
    let space: SpaceChoice = choice(ask.destination.as_deref().unwrap_or_default())?;
    let item = reference(&ask.item_type, &ask.item_id)?;
    load::new_copy(&item, space.into(), context)
}

fn shown_copy(copy: &load::NewCopy) -> PlannedCopy {
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

fn choice<T: clap::ValueEnum>(name: &str) -> Result<T, Failure> {
    T::from_str(name, false).map_err(|_| {
        let all = T::value_variants().iter();
        let names: Vec<_> = all.filter_map(T::to_possible_value).collect();
        let names: Vec<_> = names.iter().map(PossibleValue::get_name).collect();
        Failure::usage(format!(
            "unknown space `{name}`; expected one of {}",
            names.join(", ")
        ))
    })
}

fn answer(outcome: Outcome) -> GatewayResult {
    let report = outcome.map_err(|failure| refusal(&failure))?;
    let text = plain_text(&*report);
    match report.failure() {
        Some(failure) => {
            let mut refusal = refusal(&failure);
            *refusal.details = report.json();
            Err(refusal)
        }
        None => Ok(ToolReply {
            value: report.json(),
            text,
        }),
    }
}

/// A report as text without colours.
fn plain_text(report: &dyn Report) -> String {
    let mut page = Page::new(None);
    report.show(&mut page);
    strip_str(page.as_str()).to_string()
}

fn refusal(failure: &Failure) -> GatewayError {
    GatewayError {
        code: failure.code.to_owned(),
        message: failure.message.clone(),
        hint: failure.hint.clone(),
        details: Box::new(failure.json()),
    }
}
