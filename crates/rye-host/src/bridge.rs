//! The bridge of a project: an executor for its items, and the two tools that reach them.

use std::path::Path;
use std::sync::Arc;

use lillux::keys::SigningKey;
use lillux::process::Supervisor;
use rye_engine::meta_tools::{self, LimitPolicy, Policy, ToolProvider};
use rye_engine::tool::Tool;
use rye_executor::{Executor, Roots};
use rye_graph::StateGraph;
use rye_items::search::SearchIndex;
use rye_items::trust::IgnoredFile;
use rye_items::vault::Vault;
use rye_items::{IdError, SpaceError, Spaces};
use rye_mcp::McpPrimitive;
use rye_mcp::client::Pool;

use crate::approvals::{ApprovalsError, approvals};
use crate::commands::commands;
use crate::graphs::Trusted;
use crate::items::Items;
use crate::servers::Servers;

/// Where, in the folder for what is kept of a person's work, it is noted which projects have
/// runs of graphs that ask.
pub const ASKING: &str = "asking";

/// Why an agent cannot reach the items of a project.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BridgeError {
    /// A space cannot be read.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// Nobody knows what may be done without asking.
    #[error(transparent)]
    Approvals(#[from] ApprovalsError),
    /// A primitive has no name.
    #[error(transparent)]
    Id(#[from] IdError),
}

/// What reaches the items of a project.
pub struct Bridge {
    /// The two tools.
    pub tools: Vec<Arc<dyn Tool>>,
    /// What may be done without asking, for the tools beside these.
    pub policy: Policy,
    /// Whether a person is asked for more when a limit is reached.
    pub asks_for_more: bool,
    /// Files about approvals that do not count.
    pub ignored: Vec<IgnoredFile>,
}

/// The two tools with which an agent reaches all items of a project, the tools of its MCP
/// servers and its commands. Whoever has the key can approve for the whole project; what was
/// accepted of servers is kept in the folder `state`.
///
/// What does not verify does not run, also in development mode: nobody sees a warning.
pub fn bridge(
    mut roots: Roots,
    supervisor: Arc<Supervisor>,
    key: Option<SigningKey>,
    state: &Path,
) -> Result<Bridge, BridgeError> {
    roots.dev_mode = false;
    let spaces = Spaces::open(
        Some(&roots.project),
        roots.user.as_deref(),
        &roots.bundles,
        roots.embedded,
    )?;
    let (policy, mut ignored) = approvals(&spaces)?;
    let (commands, others) = commands(&spaces)?;
    ignored.extend(others);
    let pool = Pool::new(&supervisor);
    // An agent's process stays, and asks often.
    let catalogue = SearchIndex::with_watcher(Some(&roots.cache));
    let project = roots.project.clone();
    let user = roots.user.as_deref();
    let vault = user.map(|user| Vault::new(user, Some(&project)));
    let graphs =
        StateGraph::new(&roots.project, roots.user.clone()).with_pending_index(state.join(ASKING));
    let executor = Arc::new(executor_with(roots, supervisor, pool.clone(), graphs)?);
    let pins = state.join("mcp-pins");
    let servers = Servers::new(Arc::clone(&executor), pool, project.clone(), vault, &pins);
    let items = Items::new(executor, catalogue, &project, key);
    let mut sources: Vec<Arc<dyn ToolProvider>> = vec![Arc::new(items), Arc::new(servers)];
    if !commands.is_empty() {
        sources.push(Arc::new(commands));
    }
    let asks_for_more = policy.limits == Some(LimitPolicy::Ask);
    let tools = meta_tools::tools(sources, policy.clone());
    Ok(Bridge {
        tools,
        policy,
        asks_for_more,
        ignored,
    })
}

/// An executor whose tools may be graphs, or those of MCP servers. It costs nothing until
/// they are.
pub fn executor(
    roots: Roots,
    supervisor: Arc<Supervisor>,
    pool: Pool,
) -> Result<Executor, IdError> {
    let graphs = StateGraph::new(&roots.project, roots.user.clone());
    executor_with(roots, supervisor, pool, graphs)
}

/// The same with somebody of one's own who walks graphs. The keys that count are those that
/// the spaces trust.
pub fn executor_with(
    roots: Roots,
    supervisor: Arc<Supervisor>,
    pool: Pool,
    graphs: StateGraph,
) -> Result<Executor, IdError> {
    let graphs = graphs.with_trust(Arc::new(Trusted::of(&roots)));
    let mcp = McpPrimitive::new(pool, &roots.project, roots.user.clone());
    let mut executor = Executor::new(roots, supervisor);
    let id = McpPrimitive::ID.parse()?;
    let primitives = executor.primitives_mut();
    primitives.register(id, Vec::new(), Arc::new(mcp));
    primitives.register(StateGraph::ID.parse()?, Vec::new(), Arc::new(graphs));
    Ok(executor)
}
