//! The bridge of a project: an executor for its items, and the two tools that reach them.

use std::sync::Arc;

use lillux::keys::SigningKey;
use lillux::process::Supervisor;
use rye_engine::bridge;
use rye_engine::tool::Tool;
use rye_executor::{Executor, Places};
use rye_items::search::Catalogue;
use rye_items::trust::Ignored;
use rye_items::{IdError, SpaceError, Spaces};
use rye_mcp::Mcp;
use rye_mcp::client::Pool;

use crate::approvals::{ApprovalsError, approvals};
use crate::items::Items;

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
    /// Files about approvals that do not count.
    pub ignored: Vec<Ignored>,
}

/// The two tools with which an agent reaches all items of a project. Whoever has the key can
/// approve for the whole project.
pub fn bridge(
    places: Places,
    supervisor: Arc<Supervisor>,
    key: Option<SigningKey>,
) -> Result<Bridge, BridgeError> {
    let spaces = Spaces::open(
        Some(&places.project),
        places.user.as_deref(),
        &places.bundles,
        places.embedded,
    )?;
    let (policy, ignored) = approvals(&spaces)?;
    let pool = Pool::new(&supervisor);
    let catalogue = Catalogue::new(Some(&places.cache));
    let project = places.project.clone();
    let executor = Arc::new(executor(places, supervisor, pool)?);
    let items = Items::new(executor, catalogue, project, key);
    let tools = bridge::tools(vec![Arc::new(items)], policy);
    Ok(Bridge { tools, ignored })
}

/// An executor whose tools may be those of MCP servers. It costs nothing until they are.
pub fn executor(
    places: Places,
    supervisor: Arc<Supervisor>,
    pool: Pool,
) -> Result<Executor, IdError> {
    let mcp = Mcp::new(pool, &places.project, places.user.clone());
    let mut executor = Executor::new(places, supervisor);
    let id = Mcp::ID.parse()?;
    let primitives = executor.primitives_mut();
    primitives.register(id, Vec::new(), Arc::new(mcp));
    Ok(executor)
}
