//! `lillux keypair`

use lillux::envelope::OpeningKey;
use lillux::keys::{Fingerprint, IfExists, KeyError, KeyPairFiles, SigningKey};
use serde_json::json;

use crate::cli::args::{KeyKind, KeypairArgs};
use crate::cli::report::{Failure, Report};

pub(crate) fn run(args: &KeypairArgs) -> Result<Report, Failure> {
    let existing = if args.force {
        IfExists::Replace
    } else {
        IfExists::Fail
    };
    let (kind, fingerprint, files) = match args.kind {
        KeyKind::Signing => signing(args, existing)?,
        KeyKind::Sealing => sealing(args, existing)?,
    };
    Ok(Report::new(json!({
        "kind": kind,
        "fingerprint": fingerprint,
        "private_key": files.private.to_string_lossy(),
        "public_key": files.public.to_string_lossy(),
    })))
}

type Pair = (&'static str, Fingerprint, KeyPairFiles);

fn signing(args: &KeypairArgs, existing: IfExists) -> Result<Pair, KeyError> {
    let key = SigningKey::generate()?;
    let files = key.write_pair(&args.dir, existing)?;
    Ok(("signing", key.public().fingerprint(), files))
}

fn sealing(args: &KeypairArgs, existing: IfExists) -> Result<Pair, KeyError> {
    let key = OpeningKey::generate()?;
    let files = key.write_pair(&args.dir, existing)?;
    Ok(("sealing", key.public().fingerprint(), files))
}
