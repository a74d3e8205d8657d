//! `--params`: a JSON object as text, from a file or from standard input.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use lillux::PathContext as _;
use rye_engine::protocol::json;
use serde_json::{Map, Value};

use super::param_args::usage_error;
use crate::cli::failure::Failure;

/// The object in `--params`, overridden by parameters that were typed by name.
pub(in crate::cli::commands) fn merged(
    given: Option<&str>,
    typed: Map<String, Value>,
) -> Result<Value, Failure> {
    let mut parameters = object("--params", given)?;
    parameters.extend(typed);
    Ok(Value::Object(parameters))
}

/// Parses the object of an option: JSON text, `@FILE`, or `-` for standard input.
pub(in crate::cli::commands) fn object(
    option: &str,
    given: Option<&str>,
) -> Result<Map<String, Value>, Failure> {
    let Some(given) = given else {
        return Ok(Map::new());
    };
    let (text, from) = match given.strip_prefix('@') {
        Some(path) => {
            let path = Path::new(path);
            let text = fs::read_to_string(path).at("read", path)?;
            (text, path.display().to_string())
        }
        None if given == "-" => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).map_err(|error| {
                Failure::failed("io", format_args!("cannot read standard input: {error}"))
            })?;
            (text, "standard input".to_owned())
        }
        None => (given.to_owned(), option.to_owned()),
    };
    // Empty input means no parameters.
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    match json::parse(&text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(usage_error(format!("{from}: expected a JSON object"))),
        Err(error) => Err(usage_error(format!("{from}: invalid JSON: {error}"))),
    }
}
