//! `rye session export`, `import` and `fork`

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use lillux::durable::{self, Existing};
use rye_engine::proof::Doubt;
use rye_engine::protocol::{Archive, EntryId, EventKind, SessionId};
use rye_engine::store::StoreError;
use rye_host::transfer::{self, TransferError};
use serde_json::{Value, json};

use super::proof::{count, failure, trusted};
use crate::cli::args::{ExportSessionArgs, ForkArgs, ImportSessionArgs};
use crate::cli::context::Context;
use crate::cli::engine::{Wanted, find, one_of, signing_key, with_engine};
use crate::cli::failure::Failure;
use crate::cli::page::{Page, plain};
use crate::cli::printer::{Outcome, Printer, Report, Written};

pub(crate) fn export(args: &ExportSessionArgs, context: &Context) -> Outcome {
    let archives = with_engine(context, Wanted::default(), async |engine| {
        let id = find(engine, &args.session.id).await?;
        Ok(engine.export(&id).await?)
    })?;
    if args.script {
        return as_script(args, &archives);
    }
    let signer = signing_key(context)?;
    let keys = public_keys(&archives, context)?;
    let sessions = archives.len();
    let mut text = Vec::new();
    let path = args.output.as_deref().unwrap_or(Path::new("-"));
    transfer::write(&mut text, archives, &keys, signer.as_ref())
        .map_err(|error| failure(path, &error))?;
    written(args, &text, sessions, "rye session verify ")
}

/// What its model said, to be said again.
fn as_script(args: &ExportSessionArgs, archives: &[Archive]) -> Outcome {
    let first = archives.first();
    let script = first.and_then(|archive| rye_host::script(archive, "default"));
    let script = script.ok_or_else(|| {
        let message = "nothing was said in its thread `default`";
        Failure::failed("not_found", message)
    })?;
    let next = "rye prompt 'the first prompt' --model scripted:";
    written(args, script.as_bytes(), 1, next)
}

/// Writes it, and says what to do with it.
fn written(args: &ExportSessionArgs, text: &[u8], sessions: usize, next: &'static str) -> Outcome {
    match &args.output {
        None => {
            Printer::raw(text).map_err(|error| Failure::failed("io", error))?;
            Ok(Box::new(Written))
        }
        Some(file) => {
            durable::write(file, text, 0o600, Existing::Replace)?;
            Ok(Box::new(Exported {
                file: file.clone(),
                sessions,
                next,
            }))
        }
    }
}

/// The keys that signed, as far as they are trusted here.
fn public_keys(
    archives: &[Archive],
    context: &Context,
) -> Result<Vec<lillux::keys::PublicKey>, Failure> {
    let library = context.library()?;
    let trust = library.trust();
    let events = archives.iter().flat_map(|archive| &archive.events);
    let mut names: Vec<_> = events
        .filter_map(|event| match &event.kind {
            EventKind::Sealed { seal } => Some(seal.key.clone()),
            EventKind::DecisionGateResolved { resolution, .. } => resolution
                .receipt
                .as_ref()
                .map(|receipt| receipt.key.clone()),
            _ => None,
        })
        .collect();
    names.sort();
    names.dedup();
    let trusted = names.iter().filter_map(|name| trusted(&trust, name));
    Ok(trusted.collect())
}

struct Exported {
    file: PathBuf,
    sessions: usize,
    /// What to do with the file, which follows.
    next: &'static str,
}

impl Report for Exported {
    fn json(&self) -> Value {
        json!({ "file": self.file, "sessions": self.sessions })
    }

    fn show(&self, page: &mut Page) {
        page.line(format_args!("written to {}", self.file.display()));
    }

    fn next(&self) -> Option<String> {
        let file = lillux::shell_word(&self.file);
        Some(format!("{}{file}", self.next))
    }
}

pub(crate) fn import(args: &ImportSessionArgs, context: &Context) -> Outcome {
    let from: Box<dyn Read> = if args.file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(&args.file).map_err(TransferError::from);
        Box::new(file.map_err(|error| failure(&args.file, &error))?)
    };
    let read = transfer::read(BufReader::new(from));
    let transfer = read.map_err(|error| failure(&args.file, &error))?;
    let library = context.library()?;
    let trust = library.trust();
    with_engine(context, Wanted::default(), async |engine| {
        let archives = transfer.archives;
        let sessions: Vec<_> = archives.iter().map(|it| it.session.id.clone()).collect();
        // All of them, or none.
        for id in &sessions {
            match engine.history(id).await {
                Err(StoreError::NotFound { .. }) => {}
                found => {
                    found?;
                    return Err(here_already(id));
                }
            }
        }
        let mut doubts = Vec::new();
        for archive in archives {
            doubts.extend(engine.import(archive, |name| trusted(&trust, name)).await?);
        }
        Ok(Box::new(Imported { sessions, doubts }) as Box<dyn Report>)
    })
}

fn here_already(id: &SessionId) -> Failure {
    Failure::failed("conflict", format!("session {id} is here already")).hint(format!(
        "rye session rm {id}, if the one of the file is to take its place"
    ))
}

struct Imported {
    sessions: Vec<SessionId>,
    /// Decisions that do not count here.
    doubts: Vec<Doubt>,
}

impl Imported {
    fn asked_again(&self) -> usize {
        let doubts = self.doubts.iter();
        doubts.filter(|it| it.is_asked_again).count()
    }
}

impl Report for Imported {
    fn json(&self) -> Value {
        let doubts = self
            .doubts
            .iter()
            .map(|it| json!({ "gate": it.gate, "why": it.why, "asked_again": it.is_asked_again }));
        let doubts: Vec<_> = doubts.collect();
        json!({ "sessions": self.sessions, "decisions_not_counted": doubts })
    }

    fn show(&self, page: &mut Page) {
        for id in &self.sessions {
            page.line(id);
        }
        let again = self.asked_again();
        if again > 0 {
            let what = count(again, "decision is", "decisions are");
            page.line(format_args!("{what} asked again here:"));
        }
        for doubt in self.doubts.iter().filter(|it| it.is_asked_again) {
            let (gate, why) = (plain(doubt.gate.as_str()), plain(&doubt.why));
            page.line(format_args!("  {gate}: {why}"));
        }
        let past = self.doubts.len() - again;
        if past > 0 {
            let what = count(past, "approval", "approvals");
            page.line(format_args!(
                "{what} for the whole session will not be gone by: not signed by anybody \
                 who is trusted here"
            ));
        }
    }

    fn next(&self) -> Option<String> {
        let first = self.sessions.first()?;
        if self.asked_again() > 0 {
            return Some("rye gate list".to_owned());
        }
        Some(format!(
            "rye session verify {first} && rye session resume {first}"
        ))
    }
}

pub(crate) fn fork(args: &ForkArgs, context: &Context) -> Outcome {
    with_engine(context, Wanted::default(), async |engine| {
        let id = find(engine, &args.session.id).await?;
        let at = match &args.at {
            None => None,
            Some(meant) => {
                let threads = engine.history(&id).await?;
                let entries = threads.iter().flat_map(|(_, entries)| entries);
                let ids = entries.map(|entry| entry.id.as_str());
                let hint = format!("rye session show {id} --json");
                let entry: EntryId = one_of(ids, meant, "entry", &hint)?
                    .parse()
                    .map_err(Failure::usage)?;
                Some(entry)
            }
        };
        let fork = engine.fork(&id, at.as_ref()).await?;
        Ok(Box::new(Forked(fork)) as Box<dyn Report>)
    })
}

struct Forked(SessionId);

impl Report for Forked {
    fn json(&self) -> Value {
        json!({ "session": self.0 })
    }

    fn show(&self, page: &mut Page) {
        page.line(&self.0);
    }

    fn next(&self) -> Option<String> {
        Some(format!("rye prompt --session {} …", self.0))
    }
}
