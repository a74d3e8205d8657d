//! `lillux sign`

use lillux::keys::SigningKey;
use serde_json::json;

use crate::cli::args::SignArgs;
use crate::cli::report::{Failure, Report};

pub(crate) fn run(args: &SignArgs) -> Result<Report, Failure> {
    let key = SigningKey::read(&args.key)?;
    let hash = args.content.hash()?;
    let signature = match args.purpose {
        Some(purpose) => key.sign_for(purpose, &hash),
        None => key.sign(&hash),
    };
    Ok(Report::new(json!({
        "signature": signature,
        "fingerprint": key.public().fingerprint(),
        "hash": hash,
    })))
}
