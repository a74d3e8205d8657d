//! `rye replay`: replays a session from its record and reports differences.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use rye_engine::protocol::short_id;
use rye_host::engine::{EngineOptions, replay, with_engine};
use rye_host::lookup::find_session;
use rye_host::replay::{Difference, ReplayOutcome, RunReplay, replay_run};
use rye_host::session_check::transfer_failure;
use rye_host::transfer::{self, TransferError};
use serde_json::{Value, json};

use crate::cli::args::ReplayArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, BOLD, DIM, GOOD, Page, paint, sanitize};
use crate::cli::printer::{Outcome, Report};

pub(crate) fn run(args: &ReplayArgs, context: &Context) -> Outcome {
    let file = Path::new(&args.source);
    let archives = if file.is_file() {
        let read = File::open(file)
            .map_err(TransferError::from)
            .and_then(|file| transfer::read(BufReader::new(file)));
        read.map_err(|error| transfer_failure(file, &error))?
            .archives
    } else {
        with_engine(context, EngineOptions::default(), async |engine| {
            let id = find_session(engine, &args.source).await?;
            Ok(engine.export(&id).await?)
        })?
    };
    let archive = archives.first();
    let archive = archive.ok_or_else(|| Failure::failed("not_found", "the file has no session"))?;
    let session = &archive.session;
    if session.run.is_some() {
        let replayed = replay_run(&archives).ok_or_else(|| {
            let id = short_id(session.id.as_str());
            let message = format!("run {id} has not started");
            Failure::failed("not_replayable", message).hint(format!("rye run status {id}"))
        })?;
        return Ok(Box::new(RunReport(replayed)));
    }
    let replayed = replay(context, archive)?;
    Ok(Box::new(ReplayReport(replayed)))
}

struct ReplayReport(ReplayOutcome);

impl Report for ReplayReport {
    fn json(&self) -> Value {
        let ReplayOutcome {
            prompts,
            entries,
            stopped,
            differences,
        } = &self.0;
        json!({
            "prompts": prompts,
            "entries": entries,
            "stopped": stopped,
            "differences": differences,
        })
    }

    fn show(&self, page: &mut Page) {
        show_differences(&self.0.differences, page);
        for stopped in &self.0.stopped {
            page.line(paint(DIM, sanitize(stopped)));
        }
        if self.0.differences.is_empty() {
            let ReplayOutcome {
                prompts, entries, ..
            } = self.0;
            page.line(format_args!(
                "identical: {prompts} prompts, {entries} entries"
            ));
        }
    }

    fn failure(&self) -> Option<Failure> {
        differences_failure(&self.0.differences)
    }
}

/// The replay of a graph or a single call.
struct RunReport(RunReplay);

impl Report for RunReport {
    fn json(&self) -> Value {
        let RunReplay {
            compared,
            steps,
            differences,
        } = &self.0;
        json!({ "compared": compared, "steps": steps, "differences": differences })
    }

    fn show(&self, page: &mut Page) {
        show_differences(&self.0.differences, page);
        page.line(paint(DIM, sanitize(&self.0.compared)));
        if self.0.differences.is_empty() {
            page.line("identical");
        }
    }

    fn failure(&self) -> Option<Failure> {
        differences_failure(&self.0.differences)
    }
}

fn show_differences(differences: &[Difference], page: &mut Page) {
    for Difference { subject, lines } in differences {
        page.line(paint(BOLD, format_args!("{} differs", sanitize(subject))));
        for line in lines {
            let style = if line.starts_with('-') { BAD } else { GOOD };
            page.line(format_args!("  {}", paint(style, sanitize(line))));
        }
    }
}

fn differences_failure(differences: &[Difference]) -> Option<Failure> {
    let message = match differences.len() {
        0 => return None,
        1 => "1 difference".to_owned(),
        many => format!("{many} differences"),
    };
    Some(Failure::failed("differs", message))
}
