//! The base system prompt: signed items, so that a team can replace them.

use std::collections::BTreeMap;

use rye_engine::model::ModelFamily;
use rye_items::{IdError, ItemRef, LookupError};

use super::page;
use crate::context::Context;
use crate::failure::Failure;

/// The item with the prompt for all models.
const BASE: &str = "knowledge:rye/agent/system";

/// Loads the base system prompt for each family of models: the text for all, then the text for the
/// family, if there is one. An item that does not verify is an error.
pub(crate) fn load(context: &Context) -> Result<BTreeMap<ModelFamily, String>, Failure> {
    let base = text(BASE, context)?.unwrap_or_default();
    let mut prompts = BTreeMap::new();
    for family in ModelFamily::ALL {
        let own = text(&format!("{BASE}-{}", family.as_str()), context)?;
        let own = own.map(|own| format!("{base}\n\n{own}"));
        prompts.insert(family, own.unwrap_or_else(|| base.clone()));
    }
    Ok(prompts)
}

/// The text of an item, if it exists.
fn text(id: &str, context: &Context) -> Result<Option<String>, Failure> {
    let reference: ItemRef = id
        .parse()
        .map_err(|error: IdError| Failure::failed("bad_id", format_args!("{id}: {error}")))?;
    let library = context.library()?;
    let found = match library.find(&reference) {
        Err(LookupError::NotFound { .. }) => return Ok(None),
        found => found?,
    };
    let item = library.verify(&found, &library.trust())?;
    let text = String::from_utf8_lossy(item.content());
    let (_, body) = page::split(&text)
        .map_err(|why| Failure::failed("bad_prompt", format_args!("{id}: {why}")).at(&item.path))?;
    Ok(Some(body.trim().to_owned()))
}
