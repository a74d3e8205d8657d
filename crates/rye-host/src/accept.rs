//! Records that the user accepts a project's agent configuration.

use lillux::{quote_block, sanitize_line};
use rye_items::signature::ITEM;
use rye_items::verify::{self, SignatureFormat};
use rye_items::{Acceptance, IntegrityError, Library, Space};
use serde_json::{Map, json};

use crate::batch::{Batch, Row};
use crate::context::Context;
use crate::failure::Failure;

/// Directory of the files that need to be accepted.
const AGENT_CONFIG_DIR: &str = "config/agent";

/// Records that the user accepts each file, after `confirm` has asked about it.
pub fn accept_configuration(
    context: &Context,
    confirm: &dyn Fn(&str) -> Result<(), Failure>,
) -> Result<Batch, Failure> {
    let library = context.library()?;
    let mut rows = Vec::new();
    for root in library.spaces().roots_in(Space::Project) {
        for entry in root.walk(AGENT_CONFIG_DIR) {
            let relative = entry?.path;
            if Acceptance::is_needed(root, &relative) {
                rows.push(accept(library, &relative, context, confirm)?);
            }
        }
    }
    Ok(Batch {
        success_states: &["accepted", "unchanged"],
        not_done: "were not accepted",
        detail_heading: "SHA-256",
        rows,
    })
}

/// Shows one file and records that the user accepts it.
fn accept(
    library: &Library,
    relative: &str,
    context: &Context,
    confirm: &dyn Fn(&str) -> Result<(), Failure>,
) -> Result<Row, Failure> {
    let trust = library.trust();
    let root = library.spaces().roots_in(Space::Project).next();
    let raw = root.map(|root| root.read(relative)).transpose()?.flatten();
    let (Some(root), Some(raw)) = (root, raw) else {
        let failure = Failure::failed("not_found", format!("{relative} not found"));
        return Ok(Row::failed(relative, failure));
    };
    let path = root.path_to(relative);
    let signed = match verify::check(&raw.bytes, &SignatureFormat::config(ITEM, relative), &trust) {
        Ok(signed) => signed,
        Err(problem) => {
            let item = path.display().to_string();
            let space = Some(Space::Project);
            let error = IntegrityError::new(item, path, space, problem, Some(&raw.bytes));
            return Ok(Row::failed(relative, error.into()));
        }
    };
    let hash = signed.line.hash;
    let row = |state: &'static str| {
        let mut fields = Map::new();
        fields.insert("path".into(), json!(path));
        fields.insert("hash".into(), json!(hash.to_hex()));
        Row {
            state,
            item: relative.to_owned(),
            detail: hash.to_hex(),
            fields,
            failure: None,
        }
    };
    let acceptance = Acceptance::new(root, relative, hash)
        .ok_or_else(|| Failure::failed("project", "cannot resolve the project directory"))?;
    if acceptance.is_recorded(library.spaces(), &trust) {
        return Ok(row("unchanged"));
    }
    let owner = signed.key.owner.as_deref().unwrap_or("unknown");
    confirm(&format!(
        "{}\nsha256    {hash}\nsigned by {} ({})\n{}\nAccept it for this project?",
        sanitize_line(&path.to_string_lossy()),
        signed.line.fingerprint,
        sanitize_line(owner),
        quote_block(&String::from_utf8_lossy(&raw.bytes)),
    ))?;
    let keys = context.own_keys()?;
    acceptance.record(&keys, context.require_signing_key()?)?;
    Ok(row("accepted"))
}
