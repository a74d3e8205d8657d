//! `rye replay`

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use rye_host::replay::{Difference, Replayed};
use rye_host::transfer::{self, TransferError};
use serde_json::{Value, json};

use super::session::unreadable;
use crate::cli::args::ReplayArgs;
use crate::cli::context::Context;
use crate::cli::engine::{Wanted, find, replay, with_engine};
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, BOLD, DIM, GOOD, Page, paint, plain};
use crate::cli::printer::{Outcome, Report};

pub(crate) fn run(args: &ReplayArgs, context: &Context) -> Outcome {
    let file = Path::new(&args.what);
    let archives = if file.is_file() {
        let read = File::open(file)
            .map_err(TransferError::from)
            .and_then(|file| transfer::read(BufReader::new(file)));
        read.map_err(|error| unreadable(file, &error))?.archives
    } else {
        with_engine(context, Wanted::default(), async |engine| {
            let id = find(engine, &args.what).await?;
            Ok(engine.export(&id).await?)
        })?
    };
    let archive = archives.first();
    let archive = archive.ok_or_else(|| Failure::failed("not_found", "there is no session"))?;
    let replayed = replay(context, archive)?;
    Ok(Box::new(Shown(replayed)))
}

struct Shown(Replayed);

impl Report for Shown {
    fn json(&self) -> Value {
        let Replayed {
            prompts,
            entries,
            stopped,
            differences,
        } = &self.0;
        let differences = differences.iter();
        let differences: Vec<_> = differences
            .map(|Difference { what, lines }| json!({ "what": what, "lines": lines }))
            .collect();
        json!({
            "prompts": prompts,
            "entries": entries,
            "stopped": stopped,
            "differences": differences,
        })
    }

    fn show(&self, page: &mut Page) {
        for Difference { what, lines } in &self.0.differences {
            page.line(paint(
                BOLD,
                format_args!("{} is not as it was", plain(what)),
            ));
            for line in lines {
                let style = if line.starts_with('-') { BAD } else { GOOD };
                page.line(format_args!("  {}", paint(style, plain(line))));
            }
        }
        for stopped in &self.0.stopped {
            page.line(paint(DIM, plain(stopped)));
        }
        if self.0.differences.is_empty() {
            let Replayed {
                prompts, entries, ..
            } = self.0;
            page.line(format_args!(
                "the same, bit for bit: {prompts} prompts, {entries} entries"
            ));
        }
    }

    fn failure(&self) -> Option<Failure> {
        let many = self.0.differences.len();
        let message = match many {
            0 => return None,
            1 => "something is not as it was".to_owned(),
            many => format!("{many} things are not as they were"),
        };
        Some(Failure::failed("differs", message))
    }
}
