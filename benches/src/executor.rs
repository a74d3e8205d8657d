//! What the way from a tool's name to its process costs, in a program that
//! keeps running.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use lillux::Hash;
use lillux::durable::Existing;
use lillux::keys::SigningKey;
use lillux::process::Supervisor;
use rye_executor::{Executor, Places, Request, Status};
use rye_items::{Comment, OwnKeys, signature};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::measure::try_interleaved;
use crate::table::{Row, Unit};

/// Rounds of single calls.
const ROUNDS: usize = 400;
/// Runs at the same time.
const CONCURRENT: usize = 64;
/// Files that a tool brings with it.
const FILES: usize = 500;
/// What a warm call may add to the process that it starts, in seconds.
const ADDED: f64 = 300e-6;

/// One call, the chain alone, the files beside a tool, and many calls at once.
pub fn run() -> Result<Vec<Row>> {
    let world = World::make()?;
    let (floor, ours) = try_interleaved(ROUNDS, || world.bare(), || world.call("say"))?;
    let added = Row {
        what: "what that call adds, beside 300 µs".to_owned(),
        ours: (ours - floor).max(0.0),
        floor: ADDED,
        goal: 1.0,
        unit: Unit::Seconds,
    };
    let call = Row::time(
        "a warm call of a bash tool, beside its process",
        (floor, ours),
        1.15,
    );
    let chain = try_interleaved(5 * ROUNDS, || world.hash_chain(), || world.dry("say"))?;
    let files = try_interleaved(ROUNDS, || world.stat_all(), || world.dry("pack/it"))?;
    let many = try_interleaved(15, || world.bare_at_once(), || world.call_at_once())?;
    Ok(vec![
        call,
        added,
        Row::time(
            "chain and validation, beside hashing its files",
            chain,
            14.0,
        ),
        Row::time(
            "500 files beside a tool, warm, beside as many stats",
            files,
            2.5,
        ),
        Row::time("64 calls at once, beside their processes", many, 1.11),
    ])
}

/// A project with tools, and an executor that has run them.
struct World {
    folder: TempDir,
    executor: Executor,
    runtime: Runtime,
    /// The files of the chain of `say`.
    chain: Vec<Vec<u8>>,
    tool: PathBuf,
    files: Vec<PathBuf>,
}

impl World {
    fn make() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let (project, user) = (folder.path().join("project"), folder.path().join("user"));
        let key = OwnKeys::of(&user).generate("bench", Existing::Refuse)?;
        let tools = project.join(".ai/tools");
        let tool = tools.join("say.sh");
        let text = "# executor_id: rye/core/runtimes/bash/bash\n# version: \"1.0.0\"\n\
                    # config_schema: {type: object, properties: {name: {type: string, default: x}}}\n\
                    echo '{}'\n";
        write_signed(&tool, text, &key)?;
        let runtime = "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: subprocess\n\
                       anchor: {markers_any: [mark]}\n\
                       verify_deps: {scope: anchor, extensions: [.py, .sh]}\n\
                       config: {command: /bin/true}\n";
        write_signed(&tools.join("rt.yaml"), runtime, &key)?;
        write_signed(&tools.join("pack/it.sh"), "# executor_id: rt\n", &key)?;
        fs::write(tools.join("pack/mark"), "")?;
        let mut files = Vec::new();
        for number in 0..FILES {
            let path = tools.join(format!("pack/part{}/m{number}.py", number % 10));
            write_signed(&path, &format!("NUMBER = {number}\n"), &key)?;
            files.push(path);
        }
        let system = |path: &str| {
            let files = rye_items::SYSTEM.files;
            let file = files.iter().find(|file| file.path == path);
            file.map(|file| file.bytes.to_vec()).context("not there")
        };
        let chain = vec![
            system("tools/rye/core/runtimes/bash/bash.yaml")?,
            system("tools/rye/core/primitives/execute.yaml")?,
        ];
        let places = Places {
            user: Some(user),
            ..Places::new(&project, folder.path().join("cache"))
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        Ok(Self {
            executor: Executor::new(places, Arc::new(Supervisor::start()?)),
            folder,
            runtime,
            chain,
            tool,
            files,
        })
    }

    fn project(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    /// The process of `say`, started by hand.
    fn bare(&self) -> Result<()> {
        let mut child = Command::new("/bin/bash")
            .args(["-c", "exec /bin/bash \"$0\" \"$@\""])
            .arg(&self.tool)
            .arg(self.project())
            .current_dir(self.project())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take().context("no standard input")?;
        // It may have ended without reading.
        let _ = stdin.write_all(b"{\"name\":\"x\"}");
        drop(stdin);
        let output = child.wait_with_output()?;
        ensure!(output.stdout == b"{}\n");
        Ok(())
    }

    fn call(&self, tool: &str) -> Result<()> {
        let request = Request::new(tool.parse()?);
        let envelope = self.runtime.block_on(self.executor.execute(request));
        ensure!(envelope.status == Status::Success, "{envelope:?}");
        Ok(())
    }

    fn dry(&self, tool: &str) -> Result<()> {
        let mut request = Request::new(tool.parse()?);
        request.dry_run = true;
        let envelope = self.runtime.block_on(self.executor.execute(request));
        ensure!(envelope.status == Status::ValidationPassed, "{envelope:?}");
        Ok(())
    }

    /// Reads what is on the disk of the chain, and hashes all of it.
    fn hash_chain(&self) -> Result<Vec<Hash>> {
        let mut hashes: Vec<_> = self.chain.iter().map(Hash::of).collect();
        hashes.push(Hash::of(fs::read(&self.tool)?));
        Ok(hashes)
    }

    fn stat_all(&self) -> Result<u64> {
        let mut total = 0;
        for file in &self.files {
            total += fs::symlink_metadata(file)?.len();
        }
        Ok(total)
    }

    fn bare_at_once(&self) -> Result<()> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..CONCURRENT)
                .map(|_| scope.spawn(|| self.bare()))
                .collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or_else(|_| self.bare()))
        })
    }

    fn call_at_once(&self) -> Result<()> {
        self.runtime.block_on(async {
            let mut running = JoinSet::new();
            for _ in 0..CONCURRENT {
                let (executor, request) = (self.executor.clone(), Request::new("say".parse()?));
                running.spawn(async move { executor.execute(request).await });
            }
            while let Some(envelope) = running.join_next().await {
                ensure!(envelope?.status == Status::Success);
            }
            Ok(())
        })
    }
}

pub fn write_signed(path: &Path, text: &str, key: &SigningKey) -> Result<()> {
    fs::create_dir_all(path.parent().context("no folder")?)?;
    let time = "2026-01-01T00:00:00Z";
    let signed = signature::sign(text.as_bytes(), &Comment::HASH, key, time, None)?;
    fs::write(path, signed)?;
    Ok(())
}
