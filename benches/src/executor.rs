//! What the way from a tool's name to its process costs, in a program that
//! keeps running, and from a new process.

mod cold;

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
use rye_executor::{Executor, Places, Request, Status, dependency_scopes};
use rye_items::signature::{self, Binding};
use rye_items::{Comment, OwnKeys};
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
/// What a warm chain may take, in seconds.
const CHAIN: f64 = 50e-6;

/// One call, the chain alone, the files beside a tool, many calls at once, and
/// calls from new processes.
pub fn run() -> Result<Vec<Row>> {
    let world = World::make()?;
    let (floor, ours) = try_interleaved(ROUNDS, || world.bare(), || world.call("say"))?;
    let added = (ours - floor).max(0.0);
    let added = beside("what that call adds, beside 300 µs", added, ADDED);
    let call = Row::time(
        "a warm call of a bash tool, beside its process",
        (floor, ours),
        1.25,
    );
    let chain = try_interleaved(5 * ROUNDS, || world.look(), || world.dry("say"))?;
    let files = try_interleaved(ROUNDS, || world.stat_all(), || world.dry("pack/it"))?;
    let many = try_interleaved(15, || world.bare_at_once(), || world.call_at_once())?;
    let mut rows = vec![
        call,
        added,
        Row::time(
            "chain and validation, beside what must be looked at",
            chain,
            3.0,
        ),
        beside("the same, beside 50 µs", chain.1, CHAIN),
        Row::time(
            "500 files beside a tool, warm, beside as many stats",
            files,
            2.5,
        ),
        Row::time("64 calls at once, beside their processes", many, 1.11),
    ];
    rows.extend(cold::run()?);
    Ok(rows)
}

/// A time beside one that was agreed upon, where what counts is the time itself.
fn beside(what: &str, ours: f64, agreed: f64) -> Row {
    Row {
        what: what.to_owned(),
        ours,
        floor: agreed,
        goal: 1.0,
        unit: Unit::Seconds,
    }
}

/// A project with tools, and an executor that has run them.
struct World {
    folder: TempDir,
    executor: Executor,
    runtime: Runtime,
    tool: PathBuf,
    /// The file that trusts the person's key.
    trust: PathBuf,
    /// Where a file would change what `say` is, if there were one.
    empty: Vec<PathBuf>,
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
                       verify_deps: {scope: anchor}\n\
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
        let fingerprint = key.public().fingerprint();
        let trust = user.join(format!(".ai/config/keys/trusted/{fingerprint}.toml"));
        let others = [
            "tools/rye/core/extractors/tool_extractor.yaml".to_owned(),
            "tools/rye/core/runtimes/bash/bash.yaml".to_owned(),
            "tools/rye/core/primitives/execute.yaml".to_owned(),
            format!("config/keys/revoked/{fingerprint}.toml"),
            "config/keys/revoked/0000000000000000.toml".to_owned(),
            "config/keys/trusted/0000000000000000.toml".to_owned(),
        ];
        let spaces = [project.join(".ai"), user.join(".ai")];
        let empty = spaces
            .iter()
            .flat_map(|space| others.iter().map(|other| space.join(other)));
        let empty = empty.collect();
        let places = Places {
            user: Some(user),
            ..Places::new(&project, folder.path().join("cache"))
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let executor = Executor::new(places, Arc::new(Supervisor::start()?));
        let library = executor.library()?;
        let pack = library.find(&"pack/it".parse()?)?;
        for scope in dependency_scopes(&library, &pack, &project)? {
            library.sign_manifest(pack.root, &scope, &key, None)?;
        }
        Ok(Self {
            folder,
            executor,
            runtime,
            tool,
            trust,
            empty,
            files,
        })
    }

    fn project(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    /// The process of `say`, started by hand.
    fn bare(&self) -> Result<()> {
        let mut child = Command::new("/bin/bash")
            .args(["-c", ". \"$0\""])
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

    /// Looks at the disk as any call must that sees every change: reads and hashes the
    /// tool and the file that trusts its key, and asks for what would go before the files
    /// of the system or revoke a key.
    fn look(&self) -> Result<Vec<Hash>> {
        for path in &self.empty {
            ensure!(fs::symlink_metadata(path).is_err());
        }
        let files = [&self.tool, &self.trust];
        files
            .into_iter()
            .map(|file| Ok(Hash::of(fs::read(file)?)))
            .collect()
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
    let below = path.to_str().and_then(|path| path.rsplit_once("/.ai/"));
    let binding = Binding::of(below.context("not below .ai/")?.1);
    let comment = Comment::HASH;
    let signed = signature::sign(text.as_bytes(), &comment, &binding, key, time, None)?;
    fs::write(path, signed)?;
    Ok(())
}
