//! `rye session artifacts`: lists and downloads the files that tools produced.

use std::path::{Path, PathBuf};

use lillux::durable::{self, IfExists};
use rye_host::engine::{EngineOptions, with_engine};
use rye_host::lookup::find_session;
use rye_host::{Artifact, artifact_bytes, artifacts};
use serde_json::{Value, json};

use crate::cli::args::ArtifactsArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{DIM, Page, one_line};
use crate::cli::printer::{AlreadyPrinted, Outcome, Printer, Report};
use crate::cli::table::{Cell, Table};

pub(crate) fn run(args: &ArtifactsArgs, context: &Context) -> Outcome {
    with_engine(context, EngineOptions::default(), async |engine| {
        let session = find_session(engine, &args.session.id).await?;
        let all = artifacts(engine, &session).await?;
        let Some(wanted) = &args.get else {
            return Ok(Box::new(List(all)) as Box<dyn Report>);
        };
        let artifact = find(&all, wanted, session.short())?;
        let bytes = artifact_bytes(engine, &artifact).await?;
        if args.output.as_deref() == Some(Path::new("-")) {
            Printer::raw(&bytes).map_err(|error| Failure::failed("io", error))?;
            return Ok(Box::new(AlreadyPrinted));
        }
        let file = match &args.output {
            Some(file) => file.clone(),
            None => default_file(&artifact)?,
        };
        let if_exists = if args.force {
            IfExists::Replace
        } else {
            IfExists::Fail
        };
        durable::write(&file, &bytes, 0o644, if_exists)?;
        Ok(Box::new(Downloaded { artifact, file }))
    })
}

/// The artifact with a number or name; of several with the same name, the newest.
fn find(all: &[Artifact], wanted: &str, session: &str) -> Result<Artifact, Failure> {
    let number = wanted.parse::<usize>().ok();
    let is_wanted = |it: &&Artifact| it.name == wanted || Some(it.number) == number;
    let found = all.iter().rev().find(is_wanted).cloned();
    found.ok_or_else(|| {
        let failure = Failure::failed("not_found", format!("no artifact {wanted}"));
        let names = all.iter().map(|it| it.name.clone());
        let hint = format!("rye session artifacts {session}");
        failure.candidates(names).hint(hint)
    })
}

/// The last component of the name: a tool must not choose the directory.
fn default_file(artifact: &Artifact) -> Result<PathBuf, Failure> {
    let name = Path::new(&artifact.name).file_name();
    name.map(PathBuf::from).ok_or_else(|| {
        let message = format!("{} is not a file name", artifact.name);
        Failure::usage(message).hint("--output FILE")
    })
}

struct List(Vec<Artifact>);

impl Report for List {
    fn json(&self) -> Value {
        json!({ "artifacts": self.0 })
    }

    fn show(&self, page: &mut Page) {
        if self.0.is_empty() {
            return page.line("no artifacts");
        }
        let mut table = Table::new(["#", "NAME", "KIND", "TYPE", "BYTES"]);
        for artifact in &self.0 {
            let kind: &str = artifact.kind.into();
            let size = artifact
                .size
                .map_or_else(|| "?".to_owned(), |it| it.to_string());
            table.row([
                artifact.number.to_string().as_str().into(),
                artifact.name.as_str().into(),
                kind.into(),
                Cell::styled(DIM, &artifact.mime_type),
                Cell::styled(DIM, size),
            ]);
        }
        page.table(&table);
    }
}

struct Downloaded {
    artifact: Artifact,
    file: PathBuf,
}

impl Report for Downloaded {
    fn json(&self) -> Value {
        json!({ "artifact": self.artifact, "file": self.file.to_string_lossy() })
    }

    fn show(&self, page: &mut Page) {
        let file = self.file.display().to_string();
        page.line(format_args!("wrote {}", one_line(&file)));
    }
}
