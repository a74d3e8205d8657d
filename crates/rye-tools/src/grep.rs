//! The tool `grep`: searches file contents for a regular expression.

mod report;
mod search;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt as _};
use serde::Deserialize;
use serde_json::json;
use tokio::task::spawn_blocking;
use tokio_util::task::AbortOnDropHandle;

use self::report::{Report, Show};
use self::search::{FileMatches, SearchOptions, Searcher};
use super::tree::{Pattern, invalid_argument, normalize, relative_to, walk};
use super::{read, tool};
use rye_engine::sandbox::{FileInfo, Sandbox};
use rye_engine::tool::{EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

/// Default number of results.
const DEFAULT_LIMIT: usize = 200;
/// Maximum number of results.
const MAX_LIMIT: usize = 2000;
/// Time limit, including the search for files.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum size of a searched file, in bytes.
const MAX_FILE: u64 = 64 * 1024 * 1024;
/// Maximum number of files in a batch.
const BATCH_FILES: usize = 256;
/// Maximum size of a batch, in bytes.
const BATCH_BYTES: u64 = 8 * 1024 * 1024;
/// Maximum number of concurrent batches.
const MAX_CONCURRENCY: usize = 8;

/// Searches files for a regular expression.
pub fn grep() -> impl Tool {
    let description = "Searches the files of a directory, or one file, for a regular expression \
        and returns the matching lines with their numbers. Skips hidden files, binary files \
        and files that .gitignore and .ignore exclude.";
    let parameters = json!({
        "type": "object",
        "properties": {
            "pattern": { "type": "string", "minLength": 1, "description": "Regular expression in ripgrep syntax." },
            "path": { "type": "string", "description": "Directory or file to search. Default: the workspace." },
            "glob": { "type": "string", "minLength": 1, "description": "Only matching files: `*.rs`, `src/**/*.ts`, `!*.min.js`." },
            "show": { "enum": ["lines", "files", "counts"], "description": "Matching lines, files with matching lines, or their number per file. Default: lines." },
            "context": { "type": "integer", "minimum": 0, "maximum": 20, "description": "Number of context lines before and after a match." },
            "ignore_case": { "type": "boolean", "description": "Ignore case." },
            "literal": { "type": "boolean", "description": "Treat the pattern as literal text." },
            "multiline": { "type": "boolean", "description": "Matches may span lines, and `.` matches line breaks." },
            "hidden": { "type": "boolean", "description": "Include hidden files." },
            "ignored": { "type": "boolean", "description": "Include files that .gitignore or .ignore exclude." },
            "limit": { "type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "description": "Maximum number of matching lines or files. Default: 200." },
        },
        "required": ["pattern"],
        "additionalProperties": false,
    });
    let def = ToolDef::new("grep", description, parameters).effect(EffectClass::Pure);
    tool(def, run)
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

async fn run(args: Args, context: ToolContext) -> Result<ToolOutput, ToolError> {
    let options = SearchOptions {
        literal: args.literal,
        ignore_case: args.ignore_case,
        multiline: args.multiline,
        context: (args.show == Show::Lines).then_some(args.context),
    };
    let searcher = Searcher::new(&args.pattern, options).map_err(|why| invalid_argument(&why))?;
    let pattern = args.glob.as_deref().map(Pattern::new).transpose()?;
    let deadline = Instant::now() + TIMEOUT;
    let hidden = args.hidden || pattern.as_ref().is_some_and(|pattern| pattern.hidden);
    let root = normalize(&args.path);
    let walked = walk(&*context.sandbox, &root, hidden, args.ignored, TIMEOUT).await?;
    let mut files = walked.files;
    if let Some(pattern) = &pattern {
        files.retain(|file| pattern.matches(relative_to(&file.path, &root)));
    }
    let mut report = Report::new(args.show, args.limit.unwrap_or(DEFAULT_LIMIT));
    report.is_complete = walked.is_complete;
    let search = Search {
        sandbox: context.sandbox,
        searcher: Arc::new(searcher),
        max_per_file: report.max_per_file(),
        deadline,
    };
    search.run(&files, &mut report).await;
    Ok(report.output(files.len()))
}

/// Searches files in concurrent batches.
struct Search {
    sandbox: Arc<dyn Sandbox>,
    searcher: Arc<Searcher>,
    /// Maximum number of matching lines per file.
    max_per_file: usize,
    deadline: Instant,
}

/// Results of one batch of files, in order.
#[derive(Default)]
struct Batch {
    matches: Vec<(String, FileMatches)>,
    searched: usize,
    binary: usize,
    unreadable: usize,
}

impl Search {
    /// Searches several batches at once and adds their results in order, until the report is full
    /// or the time is up.
    async fn run(&self, files: &[FileInfo], report: &mut Report) {
        let concurrency = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let tasks = stream::iter(batches(files))
            .map(|paths| AbortOnDropHandle::new(tokio::spawn(self.search_batch(paths))));
        let mut finished = tasks.buffered(concurrency.min(MAX_CONCURRENCY) + 1);
        loop {
            match tokio::time::timeout_at(self.deadline.into(), finished.next()).await {
                Ok(Some(Ok(batch))) => {
                    if !report.add_batch(batch) {
                        return;
                    }
                }
                // A batch that panicked has no results.
                Ok(Some(Err(_))) => report.is_complete = false,
                Ok(None) => return,
                Err(_) => {
                    report.out_of_time = true;
                    return;
                }
            }
        }
    }

    fn search_batch(&self, paths: Vec<String>) -> impl Future<Output = Batch> + Send + 'static {
        let (sandbox, searcher) = (Arc::clone(&self.sandbox), Arc::clone(&self.searcher));
        let (max_per_file, deadline) = (self.max_per_file, self.deadline);
        async move {
            let read = sandbox.read_many(&paths, MAX_FILE).await;
            let search = move || {
                let mut batch = Batch::default();
                for (path, bytes) in paths.into_iter().zip(read) {
                    match bytes {
                        Err(_) => batch.unreadable += 1,
                        Ok(bytes) if read::is_binary(&bytes) => batch.binary += 1,
                        Ok(_) if Instant::now() >= deadline => break,
                        Ok(bytes) => {
                            batch.searched += 1;
                            let matches = searcher.search(&bytes, max_per_file, deadline);
                            if matches.count > 0 || matches.out_of_time || matches.long_line {
                                batch.matches.push((path, matches));
                            }
                        }
                    }
                }
                batch
            };
            // Searching blocks, so it runs on the blocking thread pool.
            spawn_blocking(search).await.unwrap_or_default()
        }
    }
}

/// Splits files into batches that fit into memory.
fn batches(files: &[FileInfo]) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = Vec::new();
    let mut bytes = 0;
    for file in files {
        let has_room = |batch: &&mut Vec<String>| {
            batch.len() < BATCH_FILES && bytes + file.size <= BATCH_BYTES
        };
        if let Some(batch) = all.last_mut().filter(|batch| has_room(batch)) {
            batch.push(file.path.clone());
        } else {
            bytes = 0;
            all.push(vec![file.path.clone()]);
        }
        bytes += file.size;
    }
    all
}
