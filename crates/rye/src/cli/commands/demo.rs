//! `rye demo`: the whole story, told by this very program in a folder of its own.

mod stage;
mod story;

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::cli::args::DemoArgs;
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, BOLD, DIM, GOOD, HELP, Page, paint, plain};
use crate::cli::printer::{Outcome, Report};
use stage::{Scene, Stage};

pub(crate) fn run(args: &DemoArgs) -> Outcome {
    let mut stage = Stage::set()?;
    let told = story::tell(&mut stage);
    let folder = args.keep.then(|| stage.keep());
    let failure = told.err();
    Ok(Box::new(Told {
        scenes: std::mem::take(&mut stage.scenes),
        folder,
        failure,
    }))
}

struct Told {
    scenes: Vec<Scene>,
    /// Where it happened, if that was kept.
    folder: Option<PathBuf>,
    failure: Option<Failure>,
}

impl Report for Told {
    fn json(&self) -> Value {
        let scenes = self.scenes.iter().map(|scene| {
            let calls = scene.calls.iter();
            let calls = calls.map(
                |call| json!({ "typed": call.typed, "printed": call.printed, "exit": call.exit }),
            );
            json!({
                "title": scene.title,
                "why": scene.why,
                "calls": calls.collect::<Vec<_>>(),
                "seen": scene.seen,
            })
        });
        json!({ "scenes": scenes.collect::<Vec<_>>(), "folder": self.folder })
    }

    fn show(&self, page: &mut Page) {
        page.line(
            "Nothing runs unverified, and nothing is lost. Here is how that looks: each command",
        );
        page.line("is run by this program, in a folder of its own, without a network.");
        for (scene, number) in self.scenes.iter().zip(1..) {
            page.line("");
            page.line(paint(BOLD, format_args!("{number}. {}", scene.title)));
            for line in &scene.why {
                page.line(format_args!("   {line}"));
            }
            for call in &scene.calls {
                page.line("");
                page.line(format_args!(
                    "   {} {}",
                    paint(HELP, "$"),
                    paint(HELP, &call.typed)
                ));
                for line in call.printed.lines() {
                    let line = plain(line);
                    if call.exit == Some(0) {
                        page.line(paint(DIM, format_args!("   {line}")));
                    } else {
                        page.line(paint(BAD, format_args!("   {line}")));
                    }
                }
            }
            if let Some(seen) = &scene.seen {
                page.line("");
                page.line(format_args!("   {} {seen}", paint(GOOD, "→")));
            }
        }
    }

    fn failure(&self) -> Option<Failure> {
        self.failure.clone()
    }

    fn next(&self) -> Option<String> {
        let place = match &self.folder {
            Some(folder) => format!("it all lies in {}; ", folder.display()),
            None => String::new(),
        };
        Some(format!(
            "{place}begin with your own: rye init && rye help tools"
        ))
    }
}
