//! What verifying thousands of files costs, beside reading and hashing them and
//! checking one signature each, on the same cores.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use lillux::Hash;
use lillux::durable::Existing;
use lillux::keys::{PublicKey, Signature, SigningKey};
use rye_items::signature::{self, Binding};
use rye_items::{Comment, ItemKind, Library, Options, OwnKeys, SYSTEM, Space};
use tempfile::TempDir;

use crate::measure::try_interleaved;
use crate::table::Row;

/// How many files.
const FILES: usize = 10_000;
/// Rounds of each kind.
const ROUNDS: usize = 9;
/// Rounds of whole processes.
const STARTS: usize = 101;

/// Ten thousand signed tools in a hundred folders.
struct Tree {
    folder: TempDir,
    key: SigningKey,
    /// The files, with a signature over the hash of each.
    files: Vec<(PathBuf, Signature)>,
}

/// The first look at all files, and the second.
pub fn run() -> Result<Vec<Row>> {
    let tree = Tree::make()?;
    let first = try_interleaved(
        ROUNDS,
        || tree.floor(),
        || {
            let cache = tempfile::tempdir()?;
            tree.verify(cache.path())
        },
    )?;
    let cache = tempfile::tempdir()?;
    let fresh = tempfile::tempdir()?;
    tree.verify(cache.path())?;
    let again = try_interleaved(
        ROUNDS,
        || {
            let _ = fs::remove_file(fresh.path().join("verified"));
            tree.verify(fresh.path())
        },
        || tree.verify(cache.path()),
    )?;
    Ok(vec![
        Row::time("verify 10,000 files: read, hash, check", first, 1.3),
        Row::time("verify them again: first run, second run", again, 0.2),
        one_item_from_a_new_process()?,
    ])
}

/// `rye verify` of one item, beside a process that does nothing.
fn one_item_from_a_new_process() -> Result<Row> {
    let folder = tempfile::tempdir()?;
    let rye = std::env::var_os("RYE_BIN").context("RYE_BIN is not set")?;
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&rye);
        command.env_clear().env("HOME", folder.path().join("home"));
        finish(command.args(arguments).arg("--project").arg(folder.path()))
    };
    run(&["init"])?;
    let times = try_interleaved(
        STARTS,
        || finish(&mut Command::new("/bin/true")),
        || run(&["verify", "hello"]),
    )?;
    Ok(Row::time(
        "rye verify of one item, from a new process",
        times,
        3.0,
    ))
}

fn finish(command: &mut Command) -> Result<()> {
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status()?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

impl Tree {
    fn make() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let user = folder.path().join("user");
        let key = OwnKeys::of(&user).generate("bench", Existing::Refuse)?;
        let mut files = Vec::new();
        for number in 0..FILES {
            let relative = format!("tools/group{}/tool{number}.py", number % 100);
            let path = folder.path().join("project/.ai").join(&relative);
            let text = tool(number);
            let signed = signature::sign(
                text.as_bytes(),
                &Comment::HASH,
                &Binding::of(relative),
                &key,
                "2026-01-01T00:00:00Z",
                None,
            )?;
            fs::create_dir_all(path.parent().context("no folder")?)?;
            fs::write(&path, signed)?;
            files.push((path, key.sign(&Hash::of(text.as_bytes()))));
        }
        Ok(Self { folder, key, files })
    }

    /// Reads, hashes, and checks one signature over the hash, for each file.
    fn floor(&self) -> Result<()> {
        let next = AtomicUsize::new(0);
        let worker = || -> Result<()> {
            let public: &PublicKey = self.key.public();
            while let Some((path, signature)) = self.files.get(next.fetch_add(1, Ordering::Relaxed))
            {
                let bytes = fs::read(path)?;
                let start = bytes
                    .iter()
                    .position(|b| *b == b'\n')
                    .map_or(0, |end| end + 1);
                public.verify(&Hash::of(&bytes[start..]), signature)?;
            }
            Ok(())
        };
        let threads = thread::available_parallelism()?.get();
        thread::scope(|scope| {
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
            for one in all {
                one.join()
                    .map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            }
            Ok(())
        })
    }

    /// What `rye verify --all` does, from opening the spaces on.
    fn verify(&self, cache: &Path) -> Result<()> {
        let project = self.folder.path().join("project");
        let user = self.folder.path().join("user");
        let library = Library::open(&Options {
            project: Some(&project),
            user: Some(&user),
            cache: Some(cache),
            ..Options::new(&SYSTEM)
        })?;
        let listed = library.list(ItemKind::Tool).into_iter().flatten();
        let own = listed.filter(|(_, found)| found.root.space() == Space::Project);
        let checked = library.verify_many(own.collect(), &|_| ());
        ensure!(checked.len() == FILES && checked.iter().all(|(_, outcome)| outcome.is_ok()));
        Ok(())
    }
}

/// A small tool, as people write them.
fn tool(number: usize) -> String {
    format!(
        "\"\"\"Tool number {number}.\"\"\"\n\n\
         __version__ = \"1.0.0\"\n\
         __tool_type__ = \"python\"\n\
         __executor_id__ = \"rye/core/runtimes/python/function\"\n\
         __category__ = \"group{}\"\n\
         __tool_description__ = \"Does the thing number {number} and says so\"\n\n\
         CONFIG_SCHEMA = {{\n    \"type\": \"object\",\n    \"properties\": {{\"name\": {{\"type\": \"string\"}}}},\n}}\n\n\
         def execute(params, project_path):\n{}    return {{\"number\": {number}}}\n",
        number % 100,
        "    # a line that says why the next one is as it is\n".repeat(12),
    )
}
