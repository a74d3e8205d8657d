//! The chain: a tool, its runtime, that one's, and so on down to a primitive.

mod named;
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

/// More links than any chain that was made on purpose.
const DEEPEST: usize = 10;

/// One item of a chain, verified, with what it says about itself.
#[derive(Debug, Clone)]
pub struct Link {
    /// The item.
    pub item: Verified<Item>,
    /// What it says.
    pub metadata: Arc<Metadata>,
}

impl Link {
    /// Its id.
    pub fn id(&self) -> &ItemId {
        &self.item.reference.id
    }

    /// Its space.
    pub fn space(&self) -> Space {
        self.item.space
    }
}

/// A tool and what runs it, the tool first, the primitive last.
#[derive(Debug, Clone)]
pub struct Chain {
    /// The items.
    pub links: Vec<Link>,
    /// Further items that the call needs, by the key of the configuration that
    /// names each: the configuration of a server, for one.
    pub named: BTreeMap<String, Link>,
    /// Files that the tool brings along, once they were looked at.
    pub dependencies: Option<Dependencies>,
    /// The hash of all their content, in order: what exactly would run.
    pub hash: Hash,
}

impl Chain {
    /// The same, with the files that the tool brings along: they would run too.
    #[must_use]
    pub(crate) fn with(mut self, dependencies: Option<Dependencies>) -> Self {
        self.hash = self.hash_with(dependencies);
        self.dependencies = dependencies;
        self
    }

    /// The hash of what exactly would run, these files included.
    pub(crate) fn hash_with(&self, dependencies: Option<Dependencies>) -> Hash {
        let Some(dependencies) = dependencies.filter(|them| them.files > 0) else {
            return self.hash;
        };
        let mut hasher = Hasher::default();
        hasher.update(self.hash.as_bytes());
        hasher.update(dependencies.hash.as_bytes());
        hasher.finish().0
    }

    /// How many files would run that do not verify and are let pass, in development mode.
    pub(crate) fn waived(&self, dependencies: Option<Dependencies>) -> usize {
        let links = self.links.iter().chain(self.named.values());
        let waived = links.filter(|link| link.item.waived.is_some()).count();
        waived + dependencies.map_or(0, |them| them.waived)
    }

    /// The tool.
    pub fn tool(&self) -> &Link {
        &self.links[0]
    }

    /// The primitive.
    pub fn primitive(&self) -> &Link {
        &self.links[self.links.len() - 1]
    }

    /// The ids, the tool's first.
    pub fn ids(&self) -> Vec<String> {
        self.links
            .iter()
            .map(|link| link.id().to_string())
            .collect()
    }

    /// The metadata of the links, the tool's first.
    pub(crate) fn metadata(&self) -> Vec<&Metadata> {
        self.links.iter().map(|link| &*link.metadata).collect()
    }

    /// From the primitive up to the tool: the order in which later wins.
    pub fn upwards(&self) -> impl Iterator<Item = &Link> {
        self.links.iter().rev()
    }
}

/// A chain that cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// What was asked for is no tool.
    #[error("{0} is not a tool, and only tools are run")]
    NotATool(ItemRef),
    /// An item cannot be had.
    #[error(transparent)]
    Item(#[from] ItemError),
    /// An executor is named and not there.
    #[error("{asked_by} is run by `{executor}`: {source}")]
    Missing {
        /// Who names it.
        asked_by: ItemRef,
        /// What it names.
        executor: String,
        /// Where it was looked for, and what resembles it.
        source: LookupError,
    },
    /// Another item is needed and not there.
    #[error("{asked_by} needs `{item}`, and {source}")]
    Needs {
        /// Who needs it.
        asked_by: ItemRef,
        /// What it needs.
        item: String,
        /// Where it was looked for, and what resembles it.
        source: Box<LookupError>,
    },
    /// An executor's name is no id.
    #[error("{asked_by} is run by `{executor}`: {why}")]
    BadExecutor {
        /// Who names it.
        asked_by: ItemRef,
        /// What it names.
        executor: String,
        /// What is wrong with it.
        why: String,
    },
    /// The chain leads back into itself.
    #[error("the chain is a loop: {}", .0.join(" → "))]
    Cycle(Vec<String>),
    /// The chain is too long.
    #[error("the chain has more than {DEEPEST} links: {}", .0.join(" → "))]
    TooDeep(Vec<String>),
    /// The last one names no executor and is no primitive.
    #[error("{0} names no `executor_id`, and is not a primitive itself")]
    NoExecutor(ItemRef),
}

/// Builds the chain of a tool: each item found, read once, and verified.
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
            .map_err(|source| missing(links.last(), &reference, source))?;
        let seen = links
            .iter()
            .position(|link| *link.id() == found.reference.id);
        let ids = || {
            links
                .iter()
                .map(|link| link.id().to_string())
                .chain([found.reference.id.to_string()])
        };
        if let Some(from) = seen {
            return Err(ChainError::Cycle(ids().skip(from).collect()));
        }
        if links.len() == DEEPEST {
            return Err(ChainError::TooDeep(ids().collect()));
        }
        let item = library.verify(&found, trust)?;
        let metadata = library.metadata(&item)?;
        hasher.update(item.hash.as_bytes());
        let link = Link { item, metadata };
        next = executor_of(&link, primitives)?;
        links.push(link);
    }
    let last = links.last().map(|link| link.item.reference.clone());
    let named = match last {
        Some(last) => match primitives.get(&last.id) {
            Some(primitive) => named::find(library, trust, &links, primitive.items())?,
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

/// The links of a tool's chain as far as they are items, each verified. A primitive that only
/// an executor knows, and an executor that is missing, end it.
pub(crate) fn known_links(
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
        && links.len() < DEEPEST
        && let Some(reference) = executor_of(last, &primitives)?
        && let Ok(found) = library.find(&reference)
        && !links.iter().any(|link| *link.id() == found.reference.id)
    {
        links.push(link(&found)?);
    }
    Ok(links)
}

fn executor_of(link: &Link, primitives: &Primitives) -> Result<Option<ItemRef>, ChainError> {
    let Some(executor) = link.metadata.executor_id() else {
        return Ok(None);
    };
    let reference =
        executor
            .parse()
            .map_err(|error: rye_items::IdError| ChainError::BadExecutor {
                asked_by: link.item.reference.clone(),
                executor: executor.to_owned(),
                why: error.problem.to_string(),
            })?;
    Ok(Some(primitives.canonical(&reference)))
}

fn missing(asked_by: Option<&Link>, executor: &ItemRef, source: LookupError) -> ChainError {
    match asked_by {
        Some(link) => ChainError::Missing {
            asked_by: link.item.reference.clone(),
            executor: executor.id.to_string(),
            source,
        },
        None => ChainError::Item(source.into()),
    }
}
