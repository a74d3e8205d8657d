//! `lillux envelope seal`, `open`, `inspect`

use std::io;

use base64ct::{Base64, Encoding};
use lillux::envelope::{Envelope, OpeningKey, SealError, SealingKey, Secret, seal as seal_to};
use serde_json::{Map, Value, json};

use crate::cli::args::{EnvelopeCommand, InspectArgs, OpenArgs, SealArgs};
use crate::cli::input::{self, Input};
use crate::cli::report::{Exit, Failure, Report};

pub(crate) fn run(command: &EnvelopeCommand) -> Result<Report, Failure> {
    match command {
        EnvelopeCommand::Seal(args) => seal(args),
        EnvelopeCommand::Open(args) => open(args),
        EnvelopeCommand::Inspect(args) => inspect(args),
    }
}

fn seal(args: &SealArgs) -> Result<Report, Failure> {
    let recipients: Vec<_> = args
        .to
        .iter()
        .map(|path| SealingKey::read(path))
        .collect::<Result<_, _>>()?;
    let secret = read_secret(args)?;
    let envelope = seal_to(&secret, &recipients, &args.label)?;
    let Some(out) = &args.out else {
        return print_envelope(&envelope);
    };
    envelope.write_file(out)?;
    let metadata = envelope.inspect();
    Ok(Report::new(
        json!({ "out": out.to_string_lossy(), "label": metadata.label, "recipients": metadata.recipients }),
    ))
}

fn read_secret(args: &SealArgs) -> Result<Secret, Failure> {
    let mut input = Input::open(args.input.as_deref())?;
    Secret::from_reader(&mut input.reader).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => SealError::TooLarge.into(),
        _ => input.failure(error),
    })
}

/// Prints the envelope as a JSON object, so that `jq -c .envelope` prints exactly its bytes.
fn print_envelope(envelope: &Envelope) -> Result<Report, Failure> {
    let document: Value = serde_json::from_slice(&envelope.to_bytes()).map_err(|error| {
        Failure::new(
            Exit::Failed,
            "bug",
            format!("an envelope is not JSON: {error}"),
        )
    })?;
    Ok(Report::new(json!({ "envelope": document })))
}

fn open(args: &OpenArgs) -> Result<Report, Failure> {
    let key = OpeningKey::read(&args.key)?;
    let envelope = input::read_envelope(args.input.as_deref())?;
    let secret = envelope
        .open(&key, args.label.as_deref())
        .map_err(|e| input::with_input_name(args.input.as_deref(), e.into()))?;
    let metadata = envelope.inspect();
    let mut fields = Map::new();
    fields.insert("label".into(), metadata.label.into());
    fields.insert("created".into(), metadata.created.into());
    if let Some(out) = &args.out {
        secret.write_file(out)?;
        fields.insert("out".into(), json!(out.to_string_lossy()));
    } else if let Ok(text) = std::str::from_utf8(secret.expose()) {
        fields.insert("data".into(), text.into());
    } else {
        fields.insert(
            "data_base64".into(),
            Base64::encode_string(secret.expose()).into(),
        );
    }
    Ok(Report::new(fields))
}

fn inspect(args: &InspectArgs) -> Result<Report, Failure> {
    Ok(Report::new(
        input::read_envelope(args.input.as_deref())?.inspect(),
    ))
}
