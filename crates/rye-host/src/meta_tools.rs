//! The meta tools of a project, with which an agent finds and calls items, tools of MCP servers
//! and commands.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::keys::SigningKey;
use lillux::process::Supervisor;
use rye_engine::policy::{LimitPolicy, Policy};
use rye_engine::store::{SessionStore, StoreError};
use rye_engine::tool::Tool;
use rye_engine::tool_provider::ToolProvider;
use rye_executor::{Executor, Roots};
use rye_graph::StateGraph;
use rye_items::search::SearchIndex;
use rye_items::trust::IgnoredFile;
use rye_items::vault::Vault;
use rye_items::{IdError, SpaceError, Spaces};
use rye_mcp::McpPrimitive;
use rye_mcp::client::Pool;
use rye_tools::meta_tools;

use crate::DATABASE;
use crate::commands::load_commands;
use crate::item_tools::ItemTools;
use crate::mcp_tools::{McpTools, OfferedServers};
use crate::policy_file::{PolicyError, load_policy};
use crate::tool_confiner::ToolConfiner;
use crate::trusted_keys::TrustedKeys;

/// Why the meta tools cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetaToolsError {
    /// A space cannot be read.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// The approval policy or the commands cannot be loaded.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The id of a primitive is invalid.
    #[error(transparent)]
    Id(#[from] IdError),
}

/// The meta tools of a project.
pub struct MetaTools {
    /// `list_tools` and `call_tool`.
    pub tools: Vec<Arc<dyn Tool>>,
    /// The approval policy, for other tools.
    pub policy: Policy,
    /// Whether to ask a person for a higher limit when one is reached.
    pub prompt_on_limit: bool,
    /// Configuration files that were ignored.
    pub ignored: Vec<IgnoredFile>,
}

/// Creates the meta tools for the items, MCP servers and commands of a project. With a key,
/// approvals for the whole project can be stored. The pins of MCP tools are in the directory
/// `state`. `offered` are MCP servers of an editor.
///
/// Items must have a valid signature even in development mode, because an agent does not see
/// warnings.
pub fn meta_tools(
    mut roots: Roots,
    supervisor: Arc<Supervisor>,
    key: Option<Arc<SigningKey>>,
    state: &Path,
    offered: OfferedServers,
) -> Result<MetaTools, MetaToolsError> {
    roots.dev_mode = false;
    let spaces = open_spaces(&roots)?;
    let (policy, mut ignored) = load_policy(&spaces)?;
    let (commands, others) = load_commands(&spaces)?;
    ignored.extend(others);
    let pool = Pool::new(&supervisor);
    // With a watcher, because an agent searches often.
    let search_index = SearchIndex::with_watcher(Some(&roots.cache));
    let project = roots.project.clone();
    let user = roots.user.as_deref();
    let vault = user.map(|user| Vault::new(user, Some(&project)));
    let graphs = graphs(&roots, state.join(DATABASE), key.clone());
    let executor = Arc::new(executor_with(roots, supervisor, pool.clone(), graphs)?);
    let pins = state.join("mcp-pins");
    let mcp_tools = McpTools::new(Arc::clone(&executor), pool, project.clone(), vault, &pins);
    let mcp_tools = mcp_tools.with_offered(offered);
    let item_tools = ItemTools::new(executor, search_index, &project, key);
    let mut providers: Vec<Arc<dyn ToolProvider>> = vec![Arc::new(item_tools), Arc::new(mcp_tools)];
    if !commands.is_empty() {
        providers.push(Arc::new(commands));
    }
    let prompt_on_limit = policy.limits == Some(LimitPolicy::Ask);
    let tools = meta_tools::tools(providers, policy.clone());
    Ok(MetaTools {
        tools,
        policy,
        prompt_on_limit,
        ignored,
    })
}

fn open_spaces(roots: &Roots) -> Result<Spaces, SpaceError> {
    let (project, user) = (Some(&*roots.project), roots.user.as_deref());
    Spaces::open(project, user, &roots.bundles, roots.embedded)
}

/// The graph primitive of a project. It opens the session database when the first graph runs.
pub fn graphs(roots: &Roots, database: PathBuf, key: Option<Arc<SigningKey>>) -> StateGraph {
    let open = move || {
        if let Some(dir) = database.parent() {
            let created = lillux::durable::create_dir(dir, 0o700);
            created.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        }
        let store = crate::store(&database)?;
        Ok(Arc::new(store) as Arc<dyn SessionStore>)
    };
    StateGraph::new(&roots.project, Arc::new(open), &roots.cache, key)
}

/// Creates an executor that also runs graphs and tools of MCP servers. Graphs use the keys that the
/// spaces trust.
pub fn executor_with(
    roots: Roots,
    supervisor: Arc<Supervisor>,
    pool: Pool,
    graphs: StateGraph,
) -> Result<Executor, IdError> {
    let graphs = graphs.with_trust(Arc::new(TrustedKeys::new(&roots)));
    let mcp = McpPrimitive::new(pool, &roots.project, roots.user.clone());
    let spaces = roots.clone();
    let policy = move || {
        let (policy, _) = load_policy(&open_spaces(&spaces)?)?;
        Ok(policy)
    };
    let policy = move || policy().map_err(|error: MetaToolsError| error.to_string());
    let confiner = Arc::new(ToolConfiner::new(&roots, Arc::clone(&supervisor)));
    let executor = Executor::new(roots, supervisor).with_policy(policy);
    let mut executor = executor.with_confiner(confiner);
    let id = McpPrimitive::ID.parse()?;
    let primitives = executor.primitives_mut();
    primitives.register(id, Vec::new(), Arc::new(mcp));
    primitives.register(StateGraph::ID.parse()?, Vec::new(), Arc::new(graphs));
    Ok(executor)
}
