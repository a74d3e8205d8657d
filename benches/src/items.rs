//! Verifying 10,000 files, compared with reading and hashing them and verifying one signature
//! each, on the same cores.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use lillux::Hash;
use lillux::durable::IfExists;
use lillux::keys::{PublicKey, Signature, SigningKey};
use rye_items::signature::{self, Binding};
use rye_items::{CommentStyle, ItemKind, Library, Options, SYSTEM, Space, UserKeys};
use tempfile::TempDir;

use crate::measure::try_interleaved;
use crate::table::Row;

/// Number of files.
const FILES: usize = 10_000;
/// Rounds of each measurement.
const ROUNDS: usize = 9;
/// Processes that are started.
const STARTS: usize = 101;

/// 10,000 signed tools in 100 directories.
struct Tree {
    directory: TempDir,
    key: SigningKey,
    /// The files, with a signature over the hash of each.
    files: Vec<(PathBuf, Signature)>,
}

/// The verification of all files.
pub fn run() -> Result<Vec<Row>> {
    let tree = Tree::new()?;
    let first = try_interleaved(
        ROUNDS,
        || tree.baseline(),
        || {
            let cache = tempfile::tempdir()?;
            tree.verify(cache.path())
        },
    )?;
    Ok(vec![
        Row::time("verify 10,000 files vs. read, hash and check", first, 1.3),
        verify_in_new_process()?,
    ])
}

/// `rye verify` of one item, compared with `/bin/true`.
fn verify_in_new_process() -> Result<Row> {
    let directory = tempfile::tempdir()?;
    let rye = std::env::var_os("RYE_BIN").context("RYE_BIN is not set")?;
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&rye);
        command
            .env_clear()
            .env("HOME", directory.path().join("home"));
        finish(
            command
                .args(arguments)
                .arg("--project")
                .arg(directory.path()),
        )
    };
    run(&["init"])?;
    let times = try_interleaved(
        STARTS,
        || finish(&mut Command::new("/bin/true")),
        || run(&["verify", "hello"]),
    )?;
    Ok(Row::time(
        "rye verify of one item vs. /bin/true",
        times,
        5.0,
    ))
}

fn finish(command: &mut Command) -> Result<()> {
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status()?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

impl Tree {
    fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let user = directory.path().join("user");
        let key = UserKeys::new(&user).generate("bench", IfExists::Fail)?;
        let mut files = Vec::new();
        for number in 0..FILES {
            let relative = format!("tools/group{}/tool{number}.py", number % 100);
            let path = directory.path().join("project/.ai").join(&relative);
            let text = tool(number);
            let signed = signature::sign(
                text.as_bytes(),
                &CommentStyle::HASH,
                &Binding::for_path(relative),
                &key,
                "2026-01-01T00:00:00Z",
                None,
            )?;
            fs::create_dir_all(path.parent().context("no directory")?)?;
            fs::write(&path, signed)?;
            files.push((path, key.sign(&Hash::digest(text.as_bytes()))));
        }
        Ok(Self {
            directory,
            key,
            files,
        })
    }

    /// Reads and hashes each file and verifies one signature over the hash.
    fn baseline(&self) -> Result<()> {
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
                public.verify(&Hash::digest(&bytes[start..]), signature)?;
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

    /// The same work as `rye verify --all`.
    fn verify(&self, cache: &Path) -> Result<()> {
        let project = self.directory.path().join("project");
        let user = self.directory.path().join("user");
        let library = Library::open(&Options {
            project: Some(&project),
            user: Some(&user),
            cache: Some(cache),
            ..Options::new(&SYSTEM)
        })?;
        let listed = library.list(ItemKind::Tool).into_iter().flatten();
        let own = listed.filter(|found| found.root.space() == Space::Project);
        let checked = library.verify_batch(own.collect(), &|_| ());
        ensure!(checked.len() == FILES && checked.iter().all(|(_, outcome)| outcome.is_ok()));
        Ok(())
    }
}

/// A typical small tool.
fn tool(number: usize) -> String {
    format!(
        "\"\"\"Tool number {number}.\"\"\"\n\n\
         __version__ = \"1.0.0\"\n\
         __tool_type__ = \"python\"\n\
         __executor_id__ = \"rye/core/runtimes/python/function\"\n\
         __category__ = \"group{}\"\n\
         __tool_description__ = \"Returns the number {number}\"\n\n\
         CONFIG_SCHEMA = {{\n    \"type\": \"object\",\n    \"properties\": {{\"name\": {{\"type\": \"string\"}}}},\n}}\n\n\
         def execute(params, project_path):\n{}    return {{\"number\": {number}}}\n",
        number % 100,
        "    # a comment of a typical length for a tool file\n".repeat(12),
    )
}
