//! Items that the configuration of a chain names, verified like the chain itself.

use std::collections::BTreeMap;

use rye_items::trust::Trust;
use rye_items::{IdError, ItemRef, Library, Space};
use serde_json::Value;

use super::{ChainError, Link};

/// Finds and verifies the items that the configuration names under these keys. Placeholders are
/// ignored, so that the chain hash does not depend on parameters.
pub(super) fn find(
    library: &Library,
    trust: &Trust<'_>,
    links: &[Link],
    keys: &[&str],
) -> Result<BTreeMap<String, Link>, ChainError> {
    let mut named = BTreeMap::new();
    for key in keys {
        let Some((link, name)) = links.iter().find_map(|link| literal(link, key)) else {
            continue;
        };
        let item = find_one(library, trust, link, link.space(), name)?;
        named.insert((*key).to_owned(), item);
    }
    Ok(named)
}

/// Finds and verifies the items that the parameters of a direct call of a runtime or primitive
/// name. The chain hash does not cover them.
pub(crate) fn find_in_parameters(
    library: &Library,
    trust: &Trust<'_>,
    executor: &Link,
    parameters: &Value,
    keys: &[&str],
) -> Result<BTreeMap<String, Link>, ChainError> {
    let names = keys.iter().filter_map(|key| {
        let name = parameters.get(key)?.as_str()?;
        Some((key, name))
    });
    names
        .map(|(key, name)| {
            let link = find_one(library, trust, executor, Space::Project, name)?;
            Ok(((*key).to_owned(), link))
        })
        .collect()
}

/// Finds and verifies the item that `link` names, as an item of `space`.
fn find_one(
    library: &Library,
    trust: &Trust<'_>,
    link: &Link,
    space: Space,
    name: &str,
) -> Result<Link, ChainError> {
    let reference: ItemRef = name
        .parse()
        .map_err(|error: IdError| ChainError::InvalidId {
            required_by: link.item.reference.clone(),
            id: name.to_owned(),
            reason: error.problem.to_string(),
        })?;
    let found =
        library
            .find_from(space, &reference)
            .map_err(|source| ChainError::ItemNotFound {
                required_by: link.item.reference.clone(),
                item: name.to_owned(),
                source: Box::new(source),
            })?;
    let item = library.verify(&found, trust)?;
    let metadata = library.metadata(&item)?;
    Ok(Link { item, metadata })
}

/// The value of a configuration key of a link, unless it contains a placeholder.
fn literal<'l>(link: &'l Link, key: &str) -> Option<(&'l Link, &'l str)> {
    let name = link
        .metadata
        .value("config")?
        .get(key)
        .and_then(Value::as_str)?;
    (!name.contains('{')).then_some((link, name))
}
