//! Files, searched for what stands in them.

mod report;
mod search;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::{JoinSet, spawn_blocking};

use self::report::{Report, Show};
use self::search::{Finder, Found, How};
use super::tree::{Pattern, below, plain, walk, wrong};
use super::{parse, read};
use crate::BoxFuture;
use crate::sandbox::{FileInfo, Sandbox};
use crate::tool::{Effect, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

/// How many are told where the model does not say, and at most.
const STANDARD: usize = 200;
const MOST: usize = 2000;
/// How long is searched, the finding of files included.
const TIME: Duration = Duration::from_secs(20);
/// The longest file that is searched.
const LONGEST: u64 = 64 * 1024 * 1024;
/// How much is read at once: files, and bytes of them.
const BATCH: usize = 256;
const BATCH_BYTES: u64 = 8 * 1024 * 1024;
/// How many such batches are under way at once, at most.
const AT_ONCE: usize = 8;

/// Searches files for a regular expression.
#[derive(Debug)]
pub struct Grep {
    def: ToolDef,
}

impl Default for Grep {
    fn default() -> Self {
        let description = "Searches the files of a folder, or one file, for a regular \
            expression, line by line, and gives the lines with their numbers. Leaves out \
            hidden files, binary files and what .gitignore and .ignore leave out.";
        let parameters = json!({
            "type": "object",
            "properties": {
                "pattern": { "type": "string", "minLength": 1, "description": "The regular expression, in the syntax of ripgrep." },
                "path": { "type": "string", "description": "The folder or file to search; else the workspace." },
                "glob": { "type": "string", "minLength": 1, "description": "Only files that fit: `*.rs`, `src/**/*.ts`, `!*.min.js`." },
                "show": { "enum": ["lines", "files", "counts"], "description": "The lines that fit, the files that have such lines, or how many each has; else lines." },
                "context": { "type": "integer", "minimum": 0, "maximum": 20, "description": "How many lines before and after are shown, too." },
                "ignore_case": { "type": "boolean", "description": "Upper and lower case are the same." },
                "literal": { "type": "boolean", "description": "The pattern is plain text." },
                "multiline": { "type": "boolean", "description": "What fits may span lines, and `.` stands for line ends, too." },
                "hidden": { "type": "boolean", "description": "Also hidden files." },
                "ignored": { "type": "boolean", "description": "Also files that .gitignore or .ignore leave out." },
                "limit": { "type": "integer", "minimum": 1, "maximum": MOST, "description": "How many lines that fit, or files; else 200." },
            },
            "required": ["pattern"],
            "additionalProperties": false,
        });
        Self {
            def: ToolDef::new("grep", description, parameters).effect(Effect::Pure),
        }
    }
}

#[derive(Deserialize)]
struct Args {
    pattern: String,
    #[serde(default)]
    path: String,
    glob: Option<String>,
    #[serde(default)]
    show: Show,
    #[serde(default)]
    context: usize,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    literal: bool,
    #[serde(default)]
    multiline: bool,
    #[serde(default)]
    hidden: bool,
    #[serde(default)]
    ignored: bool,
    limit: Option<usize>,
}

impl Tool for Grep {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn run(
        &self,
        args: Value,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let args: Args = parse(args)?;
            let how = How {
                literal: args.literal,
                ignore_case: args.ignore_case,
                multiline: args.multiline,
                context: (args.show == Show::Lines).then_some(args.context),
            };
            let finder = Finder::new(&args.pattern, how).map_err(|why| wrong(&why))?;
            let pattern = args.glob.as_deref().map(Pattern::new).transpose()?;
            let until = Instant::now() + TIME;
            let hidden = args.hidden || pattern.as_ref().is_some_and(|it| it.hidden);
            let top = plain(&args.path);
            let walked = walk(&*context.sandbox, &top, hidden, args.ignored, TIME).await?;
            let mut files = walked.files;
            if let Some(pattern) = &pattern {
                files.retain(|file| pattern.fits(below(&file.path, &top)));
            }
            let mut report = Report::new(args.show, args.limit.unwrap_or(STANDARD));
            report.whole = walked.is_complete;
            let search = Search {
                sandbox: context.sandbox,
                finder: Arc::new(finder),
                each: report.each(),
                until,
            };
            search.run(&files, &mut report).await;
            Ok(report.output(files.len()))
        })
    }
}

/// What is done with each file.
struct Search {
    sandbox: Arc<dyn Sandbox>,
    finder: Arc<Finder>,
    /// How many lines of a file are looked for.
    each: usize,
    until: Instant,
}

/// What came of some files, in their order.
#[derive(Default)]
struct Batch {
    found: Vec<(String, Found)>,
    searched: usize,
    binary: usize,
    unreadable: usize,
}

impl Search {
    /// Reads and searches several batches at once, and takes what they give in their order,
    /// until there is enough or no time left.
    async fn run(&self, files: &[FileInfo], report: &mut Report) {
        let at_once = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut batches = batches(files).into_iter().enumerate();
        let mut running = JoinSet::new();
        let mut done = BTreeMap::new();
        let mut next = 0;
        loop {
            while running.len() <= at_once.min(AT_ONCE)
                && let Some((number, paths)) = batches.next()
            {
                running.spawn(self.batch(number, paths));
            }
            let joined = tokio::time::timeout_at(self.until.into(), running.join_next()).await;
            match joined {
                Ok(Some(Ok((number, batch)))) => done.insert(number, batch),
                Ok(Some(Err(_))) => {
                    // One that broke down has found nothing.
                    report.whole = false;
                    continue;
                }
                Ok(None) => break,
                Err(_) => {
                    report.out_of_time = true;
                    break;
                }
            };
            while let Some(batch) = done.remove(&next) {
                next += 1;
                if !report.take(batch) {
                    return;
                }
            }
        }
        // Of what was out of order because time was up, or one broke down, all the same.
        for batch in done.into_values() {
            if !report.take(batch) {
                return;
            }
        }
    }

    fn batch(
        &self,
        number: usize,
        paths: Vec<String>,
    ) -> impl Future<Output = (usize, Batch)> + Send + 'static {
        let (sandbox, finder) = (Arc::clone(&self.sandbox), Arc::clone(&self.finder));
        let (each, until) = (self.each, self.until);
        async move {
            let read = sandbox.read_many(&paths, LONGEST).await;
            let search = move || {
                let mut batch = Batch::default();
                for (path, bytes) in paths.into_iter().zip(read) {
                    match bytes {
                        Err(_) => batch.unreadable += 1,
                        Ok(bytes) if read::is_binary(&bytes) => batch.binary += 1,
                        Ok(_) if Instant::now() >= until => break,
                        Ok(bytes) => {
                            batch.searched += 1;
                            let found = finder.search(&bytes, each, until);
                            if found.count > 0 || found.out_of_time || found.long_line {
                                batch.found.push((path, found));
                            }
                        }
                    }
                }
                batch
            };
            // What computes for long does so where nobody waits for it.
            (number, spawn_blocking(search).await.unwrap_or_default())
        }
    }
}

/// Files in portions that fit into memory.
fn batches(files: &[FileInfo]) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = Vec::new();
    let mut bytes = 0;
    for file in files {
        let fits =
            |batch: &&mut Vec<String>| batch.len() < BATCH && bytes + file.size <= BATCH_BYTES;
        if let Some(batch) = all.last_mut().filter(|batch| fits(batch)) {
            batch.push(file.path.clone());
        } else {
            bytes = 0;
            all.push(vec![file.path.clone()]);
        }
        bytes += file.size;
    }
    all
}
