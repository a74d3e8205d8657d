//! Search over ten thousand items beside `grep -r` over the same files.
//!
//! A first query needs a process of its own: this program runs itself again
//! with [`ONCE`] and the places to look in.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use lillux::Hash;
use rye_items::search::{Candidate, Catalogue, Document, Query, Reader};
use rye_items::space::Embedded;
use rye_items::{ItemId, ItemKind, Spaces};

use crate::measure::try_interleaved;
use crate::table::Row;

/// The argument that makes this program search once: project, cache (or `-`), words.
pub const ONCE: &str = "search-once";

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
const WITHOUT_CACHE: f64 = 25.0;
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
    many.search_once(true)?;
    few.search_once(true)?;
    let mut rows = vec![
        Row::time(
            "first query in a new process, 10,000 items",
            try_interleaved(ROUNDS, || many.grep(), || many.search_once(true))?,
            FIRST,
        ),
        Row::time(
            "first query without any cache",
            try_interleaved(ROUNDS.min(5), || many.grep(), || many.search_once(false))?,
            WITHOUT_CACHE,
        ),
    ];
    let catalogue = Catalogue::watching(Some(&many.cache()));
    for (query, goal) in QUERIES
        .map(|query| (query, LATER))
        .into_iter()
        .chain([BEGINNING])
    {
        many.ask(&catalogue, query)?;
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
            || few.search_once(true),
        )?,
        SMALL,
    ));
    Ok(rows)
}

/// Searches once, as a process of its own.
pub fn once(arguments: &[String]) -> Result<()> {
    let [project, cache, words] = arguments else {
        anyhow::bail!("{ONCE} PROJECT CACHE WORDS");
    };
    let cache = Some(Path::new(cache)).filter(|_| cache != "-");
    search(&Catalogue::new(cache), Path::new(project), words)
}

fn search(catalogue: &Catalogue, project: &Path, words: &str) -> Result<()> {
    let spaces = Spaces::open(Some(project), None, &[], &Embedded::EMPTY)?;
    let answer = catalogue.search(&spaces, &Simple, &Query::new(words));
    ensure!(!answer.hits.is_empty(), "nothing fits `{words}`");
    Ok(())
}

/// A project full of items, and a cache.
struct Tree {
    folder: tempfile::TempDir,
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
        Ok(Self { folder })
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn ask(&self, catalogue: &Catalogue, words: &str) -> Result<()> {
        search(catalogue, self.folder.path(), words)
    }

    fn search_once(&self, cached: bool) -> Result<()> {
        let cache = if cached { self.cache() } else { "-".into() };
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(ONCE).arg(self.folder.path()).arg(cache);
        finish(command.arg("deploy"))
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
    let description: Vec<_> = (0..9).map(|_| words.next()).collect();
    let description = description.join(" ");
    let tags = [words.next(), words.next(), words.next()].join(", ");
    let mut text = String::new();
    let (path, comment) = match number % 3 {
        0 => (format!("tools/group{group}/item{number}.py"), "# "),
        1 => (format!("tools/group{group}/item{number}.yaml"), "# "),
        _ => (format!("knowledge/group{group}/item{number}.md"), ""),
    };
    let _ = writeln!(text, "{comment}description: {description}");
    let _ = writeln!(text, "{comment}tags: {tags}");
    let _ = writeln!(text, "{comment}shared by all");
    while text.len() < 1200 {
        let line: Vec<_> = (0..10).map(|_| words.next()).collect();
        let _ = writeln!(text, "{comment}{}", line.join(" "));
    }
    if number.is_multiple_of(100) {
        let _ = writeln!(text, "{comment}deploy to the cluster");
    }
    (path, text)
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

/// Understands just enough: two lines at the top.
struct Simple;

impl Reader for Simple {
    fn version(&self) -> Hash {
        Hash::of("simple")
    }

    fn identify(&self, _: ItemKind, path: &str) -> Option<ItemId> {
        path.rsplit_once('.')?.0.parse().ok()
    }

    fn read(&self, _: &Candidate<'_>, bytes: &[u8]) -> Document {
        let text = String::from_utf8_lossy(bytes);
        let field = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.trim_start_matches("# ").strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        Document {
            description: field("description:"),
            tags: field("tags:").split(", ").map(str::to_owned).collect(),
            body: text.into_owned(),
            ..Document::default()
        }
    }
}
