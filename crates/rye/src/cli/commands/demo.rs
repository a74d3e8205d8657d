//! `rye demo`: runs this program in a temporary directory to show what it guarantees.

mod script;
mod stage;

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::cli::args::DemoArgs;
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, BOLD, DIM, GOOD, HELP, Page, paint, sanitize};
use crate::cli::printer::{Outcome, Report};
use stage::{Scene, Stage};

pub(crate) fn run(args: &DemoArgs) -> Outcome {
    let mut stage = Stage::new()?;
    let outcome = script::play(&mut stage);
    let dir = args.keep.then(|| stage.keep());
    Ok(Box::new(DemoReport {
        scenes: std::mem::take(&mut stage.scenes),
        dir,
        failure: outcome.err(),
    }))
}

struct DemoReport {
    scenes: Vec<Scene>,
    /// The directory of the demo, if it was kept.
    dir: Option<PathBuf>,
    failure: Option<Failure>,
}

impl Report for DemoReport {
    fn json(&self) -> Value {
        let scenes = self.scenes.iter().map(|scene| {
            let commands = scene.commands.iter();
            let commands = commands.map(|command| {
                json!({ "command": command.line, "output": command.output, "exit": command.exit })
            });
            json!({
                "title": scene.title,
                "text": scene.text,
                "commands": commands.collect::<Vec<_>>(),
                "conclusion": scene.conclusion,
            })
        });
        json!({ "scenes": scenes.collect::<Vec<_>>(), "directory": self.dir })
    }

    fn show(&self, page: &mut Page) {
        page.line(
            "Rye runs nothing unverified and loses no work. This demo runs each command below",
        );
        page.line("with this program, offline, in a temporary directory.");
        for (scene, number) in self.scenes.iter().zip(1..) {
            page.line("");
            page.line(paint(BOLD, format_args!("{number}. {}", scene.title)));
            for line in &scene.text {
                page.line(format_args!("   {line}"));
            }
            for command in &scene.commands {
                page.line("");
                page.line(format_args!(
                    "   {} {}",
                    paint(HELP, "$"),
                    paint(HELP, &command.line)
                ));
                let style = if command.exit == Some(0) { DIM } else { BAD };
                for line in command.output.lines() {
                    page.line(paint(style, format_args!("   {}", sanitize(line))));
                }
            }
            if let Some(conclusion) = &scene.conclusion {
                page.line("");
                page.line(format_args!("   {} {conclusion}", paint(GOOD, "→")));
            }
        }
        if let Some(dir) = &self.dir {
            page.line("");
            page.line(format_args!("kept {}", dir.display()));
        }
    }

    fn failure(&self) -> Option<Failure> {
        self.failure.clone()
    }

    fn next_command(&self) -> Option<String> {
        Some("rye init && rye help tutorial".to_owned())
    }
}
