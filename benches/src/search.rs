//! Search over ten thousand items beside `grep -r` over the same files, with the
//! real binary and the real reader of items.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rye_items::search::{Query, SearchIndex};
use rye_items::{Library, Memory, Options, SYSTEM};

use crate::measure::try_interleaved;
use crate::table::Row;

const ITEMS: usize = 10_000;
const FEW: usize = 20;
const ROUNDS: usize = 15;
const STARTS: usize = 101;

/// A first query may take three times as long as `grep`: it looks at each file
/// and reads the cache, `grep` reads all.
const FIRST: f64 = 3.0;
/// A later one a hundredth of it.
const LATER: f64 = 0.01;
/// Reading and understanding everything; for information.
const WITHOUT_CACHE: f64 = 40.0;
/// Building the index again around one file; for information.
const AFTER_CHANGE: f64 = 5.0;
/// A whole process beside one that does nothing.
const SMALL: f64 = 3.0;

/// Queries of all kinds: a word, two, a beginning, a mistake, a word of every item.
const QUERIES: [&str; 5] = [
    "deploy",
    "deploy cluster",
    "depl",
    "delpoy", // misspelt
    "shared",
];
/// The beginning of ten thousand words; for information.
const BEGINNING: (&str, f64) = ("item", 0.05);

/// First and later queries over many items, and a process over few.
pub fn run() -> Result<Vec<Row>> {
    let many = Tree::new(ITEMS)?;
    let few = Tree::new(FEW)?;
    let mut rows = vec![
        Row::time(
            "first query without any cache",
            try_interleaved(3, || many.grep(), || many.search_without_cache())?,
            WITHOUT_CACHE,
        ),
        Row::time(
            "first query in a new process, 10,000 items",
            try_interleaved(ROUNDS, || many.grep(), || many.search_once())?,
            FIRST,
        ),
    ];
    let catalogue = SearchIndex::with_watcher(Some(&many.cache()));
    for (query, goal) in QUERIES
        .map(|query| (query, LATER))
        .into_iter()
        .chain([BEGINNING])
    {
        rows.push(Row::time(
            &format!("later query in a process: {query}"),
            try_interleaved(ROUNDS, || many.grep(), || many.ask(&catalogue, query))?,
            goal,
        ));
    }
    let mut version = 0;
    rows.push(Row::time(
        "later query after a change of one file",
        try_interleaved(
            ROUNDS,
            || many.grep(),
            || {
                version += 1;
                many.change_one(version)?;
                many.ask(&catalogue, "deploy")
            },
        )?,
        AFTER_CHANGE,
    ));
    rows.push(Row::time(
        "first query in a new process, 20 items",
        try_interleaved(
            STARTS,
            || finish(&mut Command::new("/bin/true")),
            || few.search_once(),
        )?,
        SMALL,
    ));
    Ok(rows)
}

/// A project full of items, and a cache.
struct Tree {
    folder: tempfile::TempDir,
    memory: Arc<Memory>,
}

impl Tree {
    fn new(items: usize) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut words = Words(1);
        for number in 0..items {
            let (path, text) = item(number, &mut words);
            let path = folder.path().join(".ai").join(path);
            fs::create_dir_all(path.parent().context("no parent")?)?;
            fs::write(path, text)?;
        }
        let memory = Arc::default();
        Ok(Self { folder, memory })
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    /// As a program does that keeps running: the spaces are opened anew for each call.
    fn ask(&self, catalogue: &SearchIndex, words: &str) -> Result<()> {
        let library = Library::open(&Options {
            project: Some(self.folder.path()),
            cache: Some(&self.cache()),
            memory: Some(&self.memory),
            ..Options::new(&SYSTEM)
        })?;
        let answer = catalogue.search(library.spaces(), &library, &Query::new(words));
        ensure!(!answer.hits.is_empty(), "nothing fits `{words}`");
        Ok(())
    }

    fn search_once(&self) -> Result<()> {
        let mut command = Command::new(std::env::var_os("RYE_BIN").context("RYE_BIN is not set")?);
        command
            .env_clear()
            .env("HOME", self.folder.path().join("home"));
        command.env("RYE_CACHE_DIR", self.cache());
        command.args(["search", "deploy", "--project"]);
        finish(command.arg(self.folder.path()))
    }

    fn search_without_cache(&self) -> Result<()> {
        let _ = fs::remove_dir_all(self.cache());
        self.search_once()
    }

    fn grep(&self) -> Result<()> {
        let mut command = Command::new("grep");
        command.args(["-r", "deploy"]);
        finish(command.arg(self.folder.path().join(".ai")))
    }

    fn change_one(&self, version: usize) -> Result<()> {
        let (path, text) = item(0, &mut Words(1));
        let path = self.folder.path().join(".ai").join(path);
        Ok(fs::write(path, format!("{text}\n# deploy {version}\n"))?)
    }
}

fn finish(command: &mut Command) -> Result<()> {
    let status = command.stdout(Stdio::null()).status()?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// Path and text of an item: Python, YAML and Markdown in turn, some 1.2 KB.
fn item(number: usize, words: &mut Words) -> (String, String) {
    let group = number % 97;
    let mut some = |count: usize, between: &str| {
        let words: Vec<_> = (0..count).map(|_| words.next()).collect();
        words.join(between)
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

/// Words of a language of our own, few of them often and many seldom.
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
