//! Chains: a tool, its runtime, possibly further runtimes, and a primitive.

mod named_items;
mod validate;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use lillux::Hash;
use lillux::hash::Hasher;
use rye_items::metadata::Metadata;
use rye_items::trust::Trust;
use rye_items::{
    Dependencies, Item, ItemError, ItemFile, ItemId, ItemKind, ItemRef, Library, LookupError,
    Space, Verified,
};

use crate::executor::{UnknownName, misspelt_executor};
use crate::primitive::Primitives;

pub(crate) use named_items::find_in_parameters;
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

    /// Whether the item is a runtime or a primitive rather than a tool.
    pub fn is_executor(&self) -> bool {
        is_executor(&self.metadata)
    }
}

/// `tool_type` of runtimes.
pub(crate) const RUNTIME: &str = "runtime";
/// `tool_type` of primitives.
pub(crate) const PRIMITIVE: &str = "primitive";

/// Whether an item is a runtime or a primitive rather than a tool.
pub(crate) fn is_executor(item: &Metadata) -> bool {
    matches!(item.tool_type(), Some(RUNTIME | PRIMITIVE))
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
    /// The executor of a link is neither a runtime nor a primitive.
    #[error(
        "{required_by}: executor `{executor}` is {}, not a runtime ({})",
        kind_name(.tool_type.as_deref()), .path.display()
    )]
    NotARuntime {
        /// Item that names the executor.
        required_by: ItemRef,
        /// The executor id.
        executor: String,
        /// `tool_type` of the executor.
        tool_type: Option<String>,
        /// File of the executor.
        path: PathBuf,
    },
    /// The last link has no executor and is not a primitive.
    #[error(
        "{item} has no `executor_id` and is not a primitive{}",
        misspelt_suffix(.misspelt.as_deref())
    )]
    NoExecutor {
        /// The last link.
        item: ItemRef,
        /// A key that is probably a misspelt `executor_id`.
        misspelt: Option<Box<UnknownName>>,
    },
    /// The last link declares itself a primitive, but no implementation has its id.
    #[error("{0} is declared as a primitive, but primitives are built in and none has this id")]
    UnknownPrimitive(ItemRef),
}

/// Whether an item contains configuration only and declares no type. It may stand between a tool
/// and a runtime.
fn is_plain_configuration(link: &Link) -> bool {
    let is_yaml = matches!(link.item.extension.as_str(), ".yaml" | ".yml");
    is_yaml && link.metadata.tool_type().is_none()
}

fn misspelt_suffix(misspelt: Option<&UnknownName>) -> String {
    misspelt.map_or_else(String::new, |name| format!(": {name}"))
}

/// Name of an item's type in an error message.
fn kind_name(tool_type: Option<&str>) -> String {
    match tool_type {
        Some(tool_type) => format!("a tool of type `{tool_type}`"),
        None => "a tool without `tool_type`".to_owned(),
    }
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
    let mut next = Some(tool.clone());
    while let Some(reference) = next {
        let space = links.last().map_or(Space::Project, Link::space);
        let found = find_executor(library, &reference, space, primitives)
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
        if let Some(child) = links.last()
            && !link.is_executor()
            && !primitives.contains(link.id())
            && !is_plain_configuration(&link)
        {
            return Err(ChainError::NotARuntime {
                required_by: child.item.reference.clone(),
                executor: reference.id.to_string(),
                tool_type: link.metadata.tool_type().map(str::to_owned),
                path: link.item.path.clone(),
            });
        }
        next = executor(&link)?;
        links.push(link);
    }
    let named = match links.last() {
        Some(last) => match primitives.get(last.id()) {
            Some(primitive) => named_items::find(library, trust, &links, primitive.item_keys())?,
            None if last.metadata.tool_type() == Some(PRIMITIVE) => {
                let reference = last.item.reference.clone();
                return Err(ChainError::UnknownPrimitive(reference));
            }
            None => {
                return Err(ChainError::NoExecutor {
                    item: last.item.reference.clone(),
                    misspelt: misspelt_executor(&last.metadata).map(Box::new),
                });
            }
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
    let link = |found: &ItemFile<'_>| -> Result<Link, ChainError> {
        let item = library.verify(found, trust)?;
        let metadata = library.metadata(&item)?;
        Ok(Link { item, metadata })
    };
    let mut links = vec![link(tool)?];
    while let Some(last) = links.last()
        && links.len() < MAX_LINKS
        && let Some(reference) = executor(last)?
        && let Ok(found) = library.find_from(last.space(), &reference)
        && !links.iter().any(|link| *link.id() == found.reference.id)
    {
        links.push(link(&found)?);
    }
    Ok(links)
}

/// The executor that a link names, if any.
fn executor(link: &Link) -> Result<Option<ItemRef>, ChainError> {
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
    Ok(Some(reference))
}

/// Finds an item that an item of `space` names as its executor. An alias of a primitive names the
/// primitive, unless a file describes the primitive under the alias.
pub(crate) fn find_executor<'l>(
    library: &'l Library,
    reference: &ItemRef,
    space: Space,
    primitives: &Primitives,
) -> Result<ItemFile<'l>, LookupError> {
    let canonical = primitives.canonical(reference);
    if canonical != *reference
        && !reference.id.is_bare()
        && let Ok(found) = library.find_from(space, reference)
    {
        return Ok(found);
    }
    library.find_from(space, &canonical)
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
