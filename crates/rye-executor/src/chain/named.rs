//! Items that a call needs beside its chain, verified like the chain itself.

use std::collections::BTreeMap;

use rye_items::trust::Trust;
use rye_items::{IdError, ItemRef, Library};
use serde_json::Value;

use super::{ChainError, Link};

/// Finds and verifies the items that the configuration names under these keys.
/// Only what is written in a file of the chain counts: what exactly would run is
/// known before there are parameters.
pub(super) fn find(
    library: &Library,
    trust: &Trust<'_>,
    links: &[Link],
    keys: &[&str],
) -> Result<BTreeMap<String, Link>, ChainError> {
    let mut named = BTreeMap::new();
    for key in keys {
        let Some((asked_by, name)) = links.iter().find_map(|link| literal(link, key)) else {
            continue;
        };
        let reference: ItemRef =
            name.parse()
                .map_err(|error: IdError| ChainError::BadExecutor {
                    asked_by: asked_by.item.reference.clone(),
                    executor: name.to_owned(),
                    why: error.problem.to_string(),
                })?;
        let found = library
            .find(&reference)
            .map_err(|source| ChainError::Needs {
                asked_by: asked_by.item.reference.clone(),
                item: name.to_owned(),
                source: Box::new(source),
            })?;
        let item = library.verify(&found, trust)?;
        let metadata = library.metadata(&item)?;
        named.insert((*key).to_owned(), Link { item, metadata });
    }
    Ok(named)
}

/// What a link's configuration says under a key, unless that is a placeholder.
fn literal<'l>(link: &'l Link, key: &str) -> Option<(&'l Link, &'l str)> {
    let name = link
        .metadata
        .value("config")?
        .get(key)
        .and_then(Value::as_str)?;
    (!name.contains('{')).then_some((link, name))
}
