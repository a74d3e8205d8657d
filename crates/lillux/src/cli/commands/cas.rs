//! `lillux cas put|get|has|verify|gc`

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use base64ct::{Base64, Encoding as _};
use lillux::cas::{Cas, CasError, GcOptions, Kind, Reader, VerifyReport};
use lillux::{Hash, PathError};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::cli::args::cas::{CasCommand, Gc, Get, Has, Put, Store, Verify};
use crate::cli::report::{Exit, Failure, Report, raw_output};

/// Maximum size of content that is printed in JSON.
const MAX_IN_JSON: u64 = 16 * 1024 * 1024;

pub(crate) fn run(command: CasCommand) -> Result<Report, Failure> {
    match command {
        CasCommand::Put(args) => put(&args),
        CasCommand::Get(args) => get(&args),
        CasCommand::Has(args) => has(&args),
        CasCommand::Verify(args) => verify(&args),
        CasCommand::Gc(args) => gc(args),
    }
}

fn put(args: &Put) -> Result<Report, Failure> {
    // Before the store, so that a mistyped file name does not create one.
    let mut input: Box<dyn Read> = match &args.file {
        Some(path) => Box::new(open(path)?),
        None => Box::new(io::stdin().lock()),
    };
    let cas = Cas::open(&args.store.root)?;
    let stored = if args.object {
        let mut text = Vec::new();
        input.read_to_end(&mut text).map_err(CasError::Source)?;
        cas.put_json(&text)?
    } else {
        cas.put_reader(input)?
    };
    Ok(Report::new(stored))
}

fn get(args: &Get) -> Result<Report, Failure> {
    if args.raw {
        return get_raw(args);
    }
    let reader = args.store.open()?.reader(&args.hash)?;
    if let Some(out) = &args.out {
        return get_to_file(args.hash, reader, out);
    }
    if reader.size() > MAX_IN_JSON {
        let (hash, size) = (args.hash, reader.size());
        let message = format!("{hash} has {size} bytes, too many for a JSON object");
        return Err(Failure::new(Exit::Usage, "too_large", message)
            .hint("write it to a file with --out FILE, or to standard output with --raw"));
    }
    show(args.hash, reader)
}

fn get_raw(args: &Get) -> Result<Report, Failure> {
    let copied = args
        .store
        .open()
        .and_then(|cas| cas.copy_to(&args.hash, raw_output()));
    match copied {
        Ok(_) => Ok(Report::raw(Exit::Success)),
        // A closed pipe is not reported as an error.
        Err(CasError::Sink(e)) if e.kind() == io::ErrorKind::BrokenPipe => {
            Ok(Report::raw(Exit::Failed))
        }
        Err(error) => Err(Failure {
            stderr_only: true,
            ..error.into()
        }),
    }
}

/// Prints the content in the JSON object. A stored object is inserted as raw text, because
/// parsing it would lose digits of large numbers.
fn show(hash: Hash, mut reader: Reader) -> Result<Report, Failure> {
    #[derive(Serialize)]
    struct Output {
        hash: Hash,
        size: u64,
        kind: Kind,
        #[serde(flatten)]
        content: Content,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    enum Content {
        Object(Box<RawValue>),
        Data(String),
        DataBase64(String),
    }
    let mut bytes = Vec::new();
    reader.copy_to(&mut bytes)?;
    let content = match (reader.kind(), String::from_utf8(bytes)) {
        (Kind::Blob, Ok(text)) => Content::Data(text),
        (Kind::Blob, Err(error)) => Content::DataBase64(Base64::encode_string(error.as_bytes())),
        (Kind::Object, text) => {
            let text = text.map_err(|e| not_json(hash, e))?;
            Content::Object(RawValue::from_string(text).map_err(|e| not_json(hash, e))?)
        }
    };
    let (size, kind) = (reader.size(), reader.kind());
    Ok(Report::new(Output {
        hash,
        size,
        kind,
        content,
    }))
}

/// The object is not JSON, so another program wrote it into the store.
fn not_json(hash: Hash, error: impl std::fmt::Display) -> Failure {
    Failure::new(
        Exit::Integrity,
        "not_json",
        format!("the object {hash} is not JSON: {error}"),
    )
}

/// Writes the content to a temporary file beside `out` and renames it.
fn get_to_file(hash: Hash, mut reader: Reader, out: &Path) -> Result<Report, Failure> {
    // Follow links like a shell redirection; a rename would replace the link.
    let out = fs::canonicalize(out).unwrap_or_else(|_| out.to_owned());
    // A rename would also replace a device or a pipe.
    if out.exists() && !out.is_file() {
        let message = format!("{} is not a regular file", out.display());
        return Err(Failure::usage(message).hint("write to standard output with --raw"));
    }
    let dir = match out.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let failed = |action, source| PathError {
        action,
        path: out.clone(),
        source,
    };
    let mut temp = tempfile::Builder::new()
        .make_in(dir, |path| {
            File::options().write(true).create_new(true).open(path)
        })
        .map_err(|e| failed("write", e))?;
    reader.copy_to(&mut temp).map_err(|error| match error {
        CasError::Sink(e) => Failure::from(failed("write", e)),
        other => other.into(),
    })?;
    temp.as_file().sync_all().map_err(|e| failed("write", e))?;
    temp.persist(&out).map_err(|e| failed("write", e.error))?;
    Ok(Report::new(json!({
        "hash": hash,
        "size": reader.size(),
        "kind": reader.kind(),
        "out": out.display().to_string(),
    })))
}

fn has(args: &Has) -> Result<Report, Failure> {
    let kind = args.store.open()?.kind_of(&args.hash)?;
    Ok(Report::new(
        json!({ "hash": args.hash, "exists": kind.is_some(), "kind": kind }),
    ))
}

fn verify(args: &Verify) -> Result<Report, Failure> {
    let cas = args.store.open()?;
    let found = match &args.hash {
        Some(hash) => cas.verify(hash)?,
        None => cas.verify_all()?,
    };
    let exit = if !found.corrupted.is_empty() {
        Exit::Integrity
    } else if found.unreadable.iter().any(PathError::is_permission) {
        Exit::Permission
    } else if !found.is_sound() {
        Exit::Failed
    } else {
        Exit::Success
    };
    Ok(Report::with_exit(exit, report_fields(&found)))
}

fn report_fields(found: &VerifyReport) -> Value {
    let show = |path: &Path| path.display().to_string();
    let corrupted = found.corrupted.iter();
    let corrupted = corrupted
        .map(|c| json!({ "path": show(&c.path), "expected": c.expected, "found": c.found }));
    let unreadable = found.unreadable.iter();
    let unreadable =
        unreadable.map(|e| json!({ "path": show(&e.path), "error": e.source.to_string() }));
    let strays = found.strays.iter().map(|path| json!(show(path)));
    json!({
        "objects": found.objects,
        "blobs": found.blobs,
        "bytes": found.bytes,
        "corrupted": corrupted.collect::<Value>(),
        "unreadable": unreadable.collect::<Value>(),
        "strays": strays.collect::<Value>(),
    })
}

fn gc(args: Gc) -> Result<Report, Failure> {
    let cas = args.store.open()?;
    let mut keep = args.keep;
    if let Some(path) = &args.keep_from {
        keep.extend(read_hashes(path)?);
    }
    // An empty list is probably a mistake of the calling script.
    if keep.is_empty() && !args.keep_nothing {
        return Err(Failure::usage("the list of hashes to keep is empty")
            .hint("to keep only recent content, use --keep-nothing"));
    }
    let options = GcOptions {
        grace: Duration::from_secs(args.grace),
        dry_run: args.dry_run,
    };
    let result = cas.gc(keep, options)?;
    Ok(Report::new(if args.dry_run {
        json!({
            "would_keep": result.kept,
            "would_remove": result.removed,
            "would_free_bytes": result.freed,
            "would_remove_temporary": result.temporary,
        })
    } else {
        json!({
            "kept": result.kept,
            "removed": result.removed.len(),
            "freed_bytes": result.freed,
            "removed_temporary": result.temporary,
        })
    }))
}

/// Reads hashes, one per line; empty lines and lines that begin with `#` are ignored.
fn read_hashes(path: &Path) -> Result<Vec<Hash>, Failure> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        io::stdin().read_to_string(&mut text)
    } else {
        open(path)?.read_to_string(&mut text)
    };
    read.map_err(|source| PathError {
        action: "read",
        path: path.to_owned(),
        source,
    })?;
    let lines = text
        .lines()
        .enumerate()
        .map(|(number, line)| (number + 1, line.trim()));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            let at = |e| Failure::usage(format!("{}, line {number}: {e}", path.display()));
            line.parse().map_err(at)
        })
        .collect()
}

fn open(path: &Path) -> Result<File, PathError> {
    File::open(path).map_err(|source| PathError {
        action: "read",
        path: path.to_owned(),
        source,
    })
}

impl Store {
    /// Opens an existing store, so that a mistyped root does not create one.
    fn open(&self) -> Result<Cas, CasError> {
        Cas::open_existing(&self.root)
    }
}

impl From<CasError> for Failure {
    fn from(error: CasError) -> Self {
        let message = error.to_string();
        match error {
            CasError::GcAborted(inner) => Self {
                message,
                ..Self::from(*inner)
            },
            CasError::Path(error) => error.into(),
            CasError::NoStore { .. } => Self::new(Exit::Failed, "no_store", message)
                .hint("check --root; `lillux cas put` creates a store"),
            CasError::RootNotDirectory { .. } => {
                Self::new(Exit::Failed, "not_a_directory", message)
            }
            CasError::NotFound { .. } => Self::new(Exit::Failed, "not_found", message),
            CasError::Corrupted(_) => Self::new(Exit::Integrity, "corrupted", message)
                .hint("if you have the content, `lillux cas put` repairs the file"),
            CasError::NotAnObject(_) => Self::new(Exit::Failed, "not_json", message),
            _ => Self::new(Exit::Failed, "io", message),
        }
    }
}
