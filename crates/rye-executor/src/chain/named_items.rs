//! Items that the configuration of a chain names, verified like the chain itself.

use std::collections::BTreeMap;

use rye_items::trust::Trust;
use rye_items::{IdError, ItemRef, Library};
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
        let reference: ItemRef = name
            .parse()
            .map_err(|error: IdError| ChainError::InvalidId {
                required_by: link.item.reference.clone(),
                id: name.to_owned(),
                reason: error.problem.to_string(),
            })?;
        let found = library
            .find(&reference)
            .map_err(|source| ChainError::ItemNotFound {
                required_by: link.item.reference.clone(),
                item: name.to_owned(),
                source: Box::new(source),
            })?;
        let item = library.verify(&found, trust)?;
        let metadata = library.metadata(&item)?;
        named.insert((*key).to_owned(), Link { item, metadata });
    }
    Ok(named)
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
