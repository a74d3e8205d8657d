//! Search over 10,000 items, compared with `grep -r` over the same files.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rye_items::search::{Query, SearchIndex};
use rye_items::{Library, Options, ProcessCache, SYSTEM};

use crate::measure::try_interleaved;
use crate::table::Row;

const ITEMS: usize = 10_000;
const FEW: usize = 20;
const ROUNDS: usize = 15;
const STARTS: usize = 101;

/// Goal of a first query: it stats each file and reads the cache, while `grep` reads all files.
const FIRST_GOAL: f64 = 3.0;
/// Goal of a later query in the same process.
const LATER_GOAL: f64 = 0.01;
/// Goal of a query without a cache, which parses everything.
const NO_CACHE_GOAL: f64 = 40.0;
/// Goal of a query after a change of one file, which rebuilds the index.
const AFTER_CHANGE_GOAL: f64 = 5.0;
/// Goal of a process with few items, compared with `/bin/true`.
const FEW_ITEMS_GOAL: f64 = 5.0;

/// A word, two words, a prefix, a typo, and a word of every item.
const QUERIES: [&str; 5] = [
    "deploy",
    "deploy cluster",
    "depl",
    "delpoy", // misspelt
    "shared",
];
/// A prefix of 10,000 words, and its goal.
const COMMON_PREFIX: (&str, f64) = ("item", 0.05);

/// First and later queries over many items, and a process with few items.
pub fn run() -> Result<Vec<Row>> {
    let many = Tree::new(ITEMS)?;
    let few = Tree::new(FEW)?;
    let mut rows = vec![
        Row::time(
            "first query without a cache vs. grep",
            try_interleaved(3, || many.grep(), || many.search_without_cache())?,
            NO_CACHE_GOAL,
        ),
        Row::time(
            "first query in a new process, 10,000 items vs. grep",
            try_interleaved(ROUNDS, || many.grep(), || many.search_once())?,
            FIRST_GOAL,
        ),
    ];
    let catalogue = SearchIndex::with_watcher(Some(&many.cache()));
    for (query, goal) in QUERIES
        .map(|query| (query, LATER_GOAL))
        .into_iter()
        .chain([COMMON_PREFIX])
    {
        rows.push(Row::time(
            &format!("later query vs. grep: {query}"),
            try_interleaved(ROUNDS, || many.grep(), || many.search(&catalogue, query))?,
            goal,
        ));
    }
    let mut version = 0;
    rows.push(Row::time(
        "later query after a change of one file vs. grep",
        try_interleaved(
            ROUNDS,
            || many.grep(),
            || {
                version += 1;
                many.change_one(version)?;
                many.search(&catalogue, "deploy")
            },
        )?,
        AFTER_CHANGE_GOAL,
    ));
    rows.push(Row::time(
        "first query in a new process, 20 items vs. /bin/true",
        try_interleaved(
            STARTS,
            || finish(&mut Command::new("/bin/true")),
            || few.search_once(),
        )?,
        FEW_ITEMS_GOAL,
    ));
    Ok(rows)
}

/// A project with items and a cache.
struct Tree {
    directory: tempfile::TempDir,
    process_cache: Arc<ProcessCache>,
}

impl Tree {
    fn new(items: usize) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let mut words = Words(1);
        for number in 0..items {
            let (path, text) = item(number, &mut words);
            let path = directory.path().join(".ai").join(path);
            fs::create_dir_all(path.parent().context("no parent")?)?;
            fs::write(path, text)?;
        }
        let process_cache = Arc::default();
        Ok(Self {
            directory,
            process_cache,
        })
    }

    fn cache(&self) -> PathBuf {
        self.directory.path().join("cache")
    }

    /// Searches like a long-running program, which opens the spaces for each call.
    fn search(&self, catalogue: &SearchIndex, query: &str) -> Result<()> {
        let library = Library::open(&Options {
            project: Some(self.directory.path()),
            cache: Some(&self.cache()),
            process_cache: Some(&self.process_cache),
            ..Options::new(&SYSTEM)
        })?;
        let answer = catalogue.search(library.spaces(), &library, &Query::new(query));
        ensure!(!answer.hits.is_empty(), "no results for `{query}`");
        Ok(())
    }

    fn search_once(&self) -> Result<()> {
        let mut command = Command::new(std::env::var_os("RYE_BIN").context("RYE_BIN is not set")?);
        command
            .env_clear()
            .env("HOME", self.directory.path().join("home"));
        command.env("RYE_CACHE_DIR", self.cache());
        command.args(["search", "deploy", "--project"]);
        finish(command.arg(self.directory.path()))
    }

    fn search_without_cache(&self) -> Result<()> {
        let _ = fs::remove_dir_all(self.cache());
        self.search_once()
    }

    fn grep(&self) -> Result<()> {
        let mut command = Command::new("grep");
        command.args(["-r", "deploy"]);
        finish(command.arg(self.directory.path().join(".ai")))
    }

    fn change_one(&self, version: usize) -> Result<()> {
        let (path, text) = item(0, &mut Words(1));
        let path = self.directory.path().join(".ai").join(path);
        Ok(fs::write(path, format!("{text}\n# deploy {version}\n"))?)
    }
}

fn finish(command: &mut Command) -> Result<()> {
    let status = command.stdout(Stdio::null()).status()?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// Path and text of an item: Python, YAML and Markdown alternately, about 1.2 KB.
fn item(number: usize, words: &mut Words) -> (String, String) {
    let group = number % 97;
    let mut some = |count: usize, separator: &str| {
        let words: Vec<_> = (0..count).map(|_| words.next()).collect();
        words.join(separator)
    };
    let (description, tags) = (some(9, " "), some(3, ", "));
    let mut body = String::from("shared by all\n");
    while body.len() < 1000 {
        let _ = writeln!(body, "{}", some(10, " "));
    }
    if number.is_multiple_of(100) {
        body.push_str("deploy to the cluster\n");
    }
    let commented = body.replace('\n', "\n# ");
    match number % 3 {
        0 => (
            format!("tools/group{group}/item{number}.py"),
            format!(
                "__version__ = \"1.0.0\"\n__executor_id__ = \"rye/core/runtimes/python/function\"\n\
                 __tool_description__ = \"{description}\"\n# {commented}\n"
            ),
        ),
        1 => (
            format!("tools/group{group}/item{number}.yaml"),
            format!(
                "version: \"1.0.0\"\ndescription: {description}\ntags: [{tags}]\n# {commented}\n"
            ),
        ),
        _ => (
            format!("knowledge/group{group}/item{number}.md"),
            format!("---\ndescription: {description}\ntags: [{tags}]\n---\n\n{body}"),
        ),
    }
}

/// Random words with a realistic frequency distribution.
struct Words(u64);

impl Words {
    fn next(&mut self) -> String {
        const SYLLABLES: [&str; 16] = [
            "ka", "ro", "mi", "tes", "lan", "vo", "ri", "sun", "po", "del", "wa", "zen", "ju",
            "bar", "fi", "no",
        ];
        let mut number = || {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            self.0 >> 33
        };
        let mut rank = number() % (1 << (1 + number() % 14));
        let mut word = String::new();
        loop {
            word.push_str(SYLLABLES[usize::try_from(rank % 16).unwrap_or_default()]);
            rank /= 16;
            if rank == 0 {
                return word;
            }
        }
    }
}
