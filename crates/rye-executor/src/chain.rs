//! Chains: a tool, its runtime, possibly further runtimes, and a primitive.

mod named_items;
mod validate;

use std::collections::BTreeMap;
use std::sync::Arc;

use lillux::Hash;
use lillux::hash::Hasher;
use rye_items::metadata::Metadata;
use rye_items::trust::Trust;
use rye_items::{
    Dependencies, Item, ItemError, ItemFile, ItemId, ItemKind, ItemRef, Library, LookupError,
    Space, Verified,
};

use crate::primitive::Primitives;

pub use validate::{Pair, validate};

/// Limit on the number of links; a longer chain is a mistake.
const MAX_LINKS: usize = 10;

/// A verified item of a chain and its metadata.
#[derive(Debug, Clone)]
pub struct Link {
    /// The verified item.
    pub item: Verified<Item>,
    /// Metadata extracted from the verified bytes.
    pub metadata: Arc<Metadata>,
}

impl Link {
    /// Id of the item.
    pub fn id(&self) -> &ItemId {
        &self.item.reference.id
    }

    /// Space that the item was found in.
    pub fn space(&self) -> Space {
        self.item.space
    }
}

/// The items that one call runs, from the tool to the primitive.
#[derive(Debug, Clone)]
pub struct Chain {
    /// The links, the tool first and the primitive last.
    pub links: Vec<Link>,
    /// Further items that the configuration names, such as the configuration of an MCP server,
    /// by configuration key.
    pub named: BTreeMap<String, Link>,
    /// Files that the tool can load, once they are verified.
    pub dependencies: Option<Dependencies>,
    /// The chain hash: a hash over the content of all links, in order.
    pub hash: Hash,
}

impl Chain {
    /// Adds the files that the tool can load, and includes them in the hash.
    #[must_use]
    pub(crate) fn with_dependencies(mut self, dependencies: Option<Dependencies>) -> Self {
        self.hash = self.hash_with(dependencies);
        self.dependencies = dependencies;
        self
    }

    /// Chain hash that also covers these dependencies.
    pub(crate) fn hash_with(&self, dependencies: Option<Dependencies>) -> Hash {
        let Some(dependencies) = dependencies.filter(|dependencies| dependencies.files > 0) else {
            return self.hash;
        };
        let mut hasher = Hasher::default();
        hasher.update(self.hash.as_bytes());
        hasher.update(dependencies.hash.as_bytes());
        hasher.finish().0
    }

    /// Number of unverified files that development mode accepts.
    pub(crate) fn waived_files(&self, dependencies: Option<Dependencies>) -> usize {
        let links = self.links.iter().chain(self.named.values());
        let waived = links.filter(|link| link.item.waived.is_some()).count();
        waived + dependencies.map_or(0, |dependencies| dependencies.waived)
    }

    /// The first link.
    pub fn tool(&self) -> &Link {
        &self.links[0]
    }

    /// The last link.
    pub fn primitive(&self) -> &Link {
        &self.links[self.links.len() - 1]
    }

    /// Ids of the links, the tool first.
    pub fn ids(&self) -> Vec<String> {
        self.links
            .iter()
            .map(|link| link.id().to_string())
            .collect()
    }

    /// Metadata of the links, the tool first.
    pub(crate) fn metadata(&self) -> Vec<&Metadata> {
        self.links.iter().map(|link| &*link.metadata).collect()
    }

    /// Iterates from the primitive to the tool: later links override earlier ones.
    pub fn from_primitive(&self) -> impl Iterator<Item = &Link> {
        self.links.iter().rev()
    }
}

/// Why a chain cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// The requested item is not a tool.
    #[error("{0} is not a tool; only tools can be executed")]
    NotATool(ItemRef),
    /// An item cannot be found, read or verified.
    #[error(transparent)]
    Item(#[from] ItemError),
    /// The executor of a link does not exist.
    #[error("{required_by}: executor `{executor}`: {source}")]
    ExecutorNotFound {
        /// Item that names the executor.
        required_by: ItemRef,
        /// The executor id.
        executor: String,
        /// The failed lookup.
        source: LookupError,
    },
    /// An item that the configuration names does not exist.
    #[error("{required_by}: required item `{item}`: {source}")]
    ItemNotFound {
        /// Item that names the missing one.
        required_by: ItemRef,
        /// Id of the missing item.
        item: String,
        /// The failed lookup.
        source: Box<LookupError>,
    },
    /// The name of an executor or a required item is not a valid id.
    #[error("{required_by}: `{id}` is not a valid item id: {reason}")]
    InvalidId {
        /// Item that contains the id.
        required_by: ItemRef,
        /// The invalid id.
        id: String,
        /// Explanation for the user.
        reason: String,
    },
    /// A link occurs twice.
    #[error("the chain contains a cycle: {}", .0.join(" → "))]
    Cycle(Vec<String>),
    /// The chain has too many links.
    #[error("the chain has more than {MAX_LINKS} links: {}", .0.join(" → "))]
    TooDeep(Vec<String>),
    /// The last link has no executor and is not a primitive.
    #[error("{0} has no `executor_id` and is not a primitive")]
    NoExecutor(ItemRef),
}

/// Builds the chain of a tool. Each item is read once and verified.
pub fn build(
    library: &Library,
    trust: &Trust<'_>,
    tool: &ItemRef,
    primitives: &Primitives,
) -> Result<Chain, ChainError> {
    if tool.kind != ItemKind::Tool {
        return Err(ChainError::NotATool(tool.clone()));
    }
    let mut links: Vec<Link> = Vec::new();
    let mut hasher = Hasher::default();
    let mut next = Some(primitives.canonical(tool));
    while let Some(reference) = next {
        let found = library
            .find(&reference)
            .map_err(|source| not_found(links.last(), &reference, source))?;
        let previous = links
            .iter()
            .position(|link| *link.id() == found.reference.id);
        let ids = || {
            links
                .iter()
                .map(|link| link.id().to_string())
                .chain([found.reference.id.to_string()])
        };
        if let Some(from) = previous {
            return Err(ChainError::Cycle(ids().skip(from).collect()));
        }
        if links.len() == MAX_LINKS {
            return Err(ChainError::TooDeep(ids().collect()));
        }
        let item = library.verify(&found, trust)?;
        let metadata = library.metadata(&item)?;
        hasher.update(item.hash.as_bytes());
        let link = Link { item, metadata };
        next = executor(&link, primitives)?;
        links.push(link);
    }
    let last = links.last().map(|link| link.item.reference.clone());
    let named = match last {
        Some(last) => match primitives.get(&last.id) {
            Some(primitive) => named_items::find(library, trust, &links, primitive.item_keys())?,
            None => return Err(ChainError::NoExecutor(last)),
        },
        None => BTreeMap::new(),
    };
    for link in named.values() {
        hasher.update(link.item.hash.as_bytes());
    }
    let (hash, _) = hasher.finish();
    Ok(Chain {
        links,
        named,
        dependencies: None,
        hash,
    })
}

/// Verifies the links of a tool's chain that exist as items. The chain ends at a primitive
/// without an item or at a missing executor.
pub(crate) fn existing_links(
    library: &Library,
    trust: &Trust<'_>,
    tool: &ItemFile<'_>,
) -> Result<Vec<Link>, ChainError> {
    let primitives = Primitives::default();
    let link = |found: &ItemFile<'_>| -> Result<Link, ChainError> {
        let item = library.verify(found, trust)?;
        let metadata = library.metadata(&item)?;
        Ok(Link { item, metadata })
    };
    let mut links = vec![link(tool)?];
    while let Some(last) = links.last()
        && links.len() < MAX_LINKS
        && let Some(reference) = executor(last, &primitives)?
        && let Ok(found) = library.find(&reference)
        && !links.iter().any(|link| *link.id() == found.reference.id)
    {
        links.push(link(&found)?);
    }
    Ok(links)
}

/// The executor that a link names, if any.
fn executor(link: &Link, primitives: &Primitives) -> Result<Option<ItemRef>, ChainError> {
    let Some(executor) = link.metadata.executor_id() else {
        return Ok(None);
    };
    let reference =
        executor
            .parse()
            .map_err(|error: rye_items::IdError| ChainError::InvalidId {
                required_by: link.item.reference.clone(),
                id: executor.to_owned(),
                reason: error.problem.to_string(),
            })?;
    Ok(Some(primitives.canonical(&reference)))
}

fn not_found(required_by: Option<&Link>, executor: &ItemRef, source: LookupError) -> ChainError {
    match required_by {
        Some(link) => ChainError::ExecutorNotFound {
            required_by: link.item.reference.clone(),
            executor: executor.id.to_string(),
            source,
        },
        None => ChainError::Item(source.into()),
    }
}
