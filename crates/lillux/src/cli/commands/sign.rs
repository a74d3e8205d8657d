//! `lillux sign`

use lillux::keys::SigningKey;
use serde_json::json;

use crate::cli::args::SignArgs;
use crate::cli::report::{Failure, Report};

pub(crate) fn run(args: &SignArgs) -> Result<Report, Failure> {
    let key = SigningKey::read(&args.key)?;
    let hash = args.content.hash()?;
    Ok(Report::new(json!({
        "signature": key.sign(&hash),
        "fingerprint": key.public().fingerprint(),
        "hash": hash,
    })))
}
