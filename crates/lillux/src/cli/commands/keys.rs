//! `lillux keypair`, `sign`, `verify`

use lillux::envelope::OpeningKey;
use lillux::keys::{IfExists, PublicKey, SigningKey};
use serde_json::json;

use crate::cli::args::{KeyKind, KeypairArgs, SignArgs, VerifyArgs};
use crate::cli::report::{Exit, Failure, Report};

pub(crate) fn keypair(args: &KeypairArgs) -> Result<Report, Failure> {
    let existing = if args.force {
        IfExists::Replace
    } else {
        IfExists::Fail
    };
    let (kind, fingerprint, files) = match args.kind {
        KeyKind::Signing => {
            let key = SigningKey::generate().map_err(lillux::keys::KeyError::from)?;
            let files = key.write_pair(&args.dir, existing)?;
            ("signing", key.public().fingerprint(), files)
        }
        KeyKind::Sealing => {
            let key = OpeningKey::generate().map_err(lillux::keys::KeyError::from)?;
            let files = key.write_pair(&args.dir, existing)?;
            ("sealing", key.public().fingerprint(), files)
        }
    };
    Ok(Report::new(json!({
        "kind": kind,
        "fingerprint": fingerprint,
        "private_key": files.private.to_string_lossy(),
        "public_key": files.public.to_string_lossy(),
    })))
}

pub(crate) fn sign(args: &SignArgs) -> Result<Report, Failure> {
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

pub(crate) fn verify(args: &VerifyArgs) -> Result<Report, Failure> {
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
