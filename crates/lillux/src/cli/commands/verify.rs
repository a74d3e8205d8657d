//! `lillux verify`

use lillux::keys::PublicKey;
use serde_json::json;

use crate::cli::args::VerifyArgs;
use crate::cli::report::{Exit, Failure, Report};

pub(crate) fn run(args: &VerifyArgs) -> Result<Report, Failure> {
    let key = PublicKey::read(&args.public_key)?;
    let hash = args.content.hash()?;
    let checked = match args.purpose {
        Some(purpose) => key.verify_for(purpose, &hash, &args.signature),
        None => key.verify(&hash, &args.signature),
    };
    let valid = checked.is_ok();
    let exit = if valid {
        Exit::Success
    } else {
        Exit::Integrity
    };
    Ok(Report::with_exit(
        exit,
        json!({ "valid": valid, "fingerprint": key.fingerprint(), "hash": hash }),
    ))
}
