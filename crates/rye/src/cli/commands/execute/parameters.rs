//! `--params`: JSON as it is typed, from a file, or from standard input.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use lillux::At as _;
use serde_json::{Map, Value};

use super::words::wrong;
use crate::cli::failure::Failure;

/// What `--params` says, and over it what was typed by name.
pub(in crate::cli::commands) fn merged(
    given: Option<&str>,
    typed: Map<String, Value>,
) -> Result<Value, Failure> {
    let mut parameters = object("--params", given)?;
    parameters.extend(typed);
    Ok(Value::Object(parameters))
}

/// The object that an option gives: as it is typed, in a file, or on standard input.
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
            (text, format!("the file {}", path.display()))
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
    // No input is no parameters.
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str(&text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(wrong(format!("{from} is not a JSON object"))),
        Err(error) => Err(wrong(format!("{from} is not JSON: {error}"))),
    }
}
