//! Overhead of executing a tool, in a long-running program and from a new process.

mod cold;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use lillux::Hash;
use lillux::durable::IfExists;
use lillux::keys::SigningKey;
use lillux::process::Supervisor;
use rye_executor::{Executor, Request, Roots, Status, dependency_scopes};
use rye_items::signature::{self, Binding};
use rye_items::{CommentStyle, UserKeys};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::measure::try_interleaved;
use crate::table::{Row, Unit};

/// Rounds of single calls.
const ROUNDS: usize = 400;
/// Concurrent calls.
const CONCURRENT: usize = 64;
/// Files in the directory of a tool.
const FILES: usize = 500;
/// Budget of a warm call on top of its process, in seconds.
const CALL_BUDGET: f64 = 500e-6;
/// Budget of a warm chain, in seconds.
const CHAIN_BUDGET: f64 = 400e-6;

/// Single calls, the chain alone, a tool with many files, concurrent calls, and calls from
/// new processes.
pub fn run() -> Result<Vec<Row>> {
    let fixture = Fixture::new()?;
    let (baseline, ours) = try_interleaved(ROUNDS, || fixture.bare(), || fixture.call("say"))?;
    let added = (ours - baseline).max(0.0);
    let added = against_budget("overhead of that call vs. 500 µs", added, CALL_BUDGET);
    let call = Row::time(
        "warm call of a bash tool vs. its process",
        (baseline, ours),
        1.4,
    );
    let chain = try_interleaved(
        5 * ROUNDS,
        || fixture.necessary_accesses(),
        || fixture.dry_run("say"),
    )?;
    let files = try_interleaved(ROUNDS, || fixture.stat_all(), || fixture.dry_run("pack/it"))?;
    let many = try_interleaved(
        15,
        || fixture.bare_concurrently(),
        || fixture.call_concurrently(),
    )?;
    let mut rows = vec![
        call,
        added,
        Row::time(
            "chain and validation vs. the necessary file accesses",
            chain,
            20.0,
        ),
        against_budget("the same vs. 400 µs", chain.1, CHAIN_BUDGET),
        Row::time("tool with 500 files, warm vs. as many stats", files, 2.5),
        Row::time("64 concurrent calls vs. their processes", many, 1.25),
    ];
    rows.extend(cold::run()?);
    Ok(rows)
}

/// A row with an absolute budget instead of a measured baseline.
fn against_budget(what: &str, ours: f64, budget: f64) -> Row {
    Row {
        name: what.to_owned(),
        ours,
        baseline: budget,
        goal: 1.0,
        unit: Unit::Seconds,
    }
}

/// A project with tools and an executor that has run them.
struct Fixture {
    directory: TempDir,
    executor: Executor,
    runtime: Runtime,
    tool: PathBuf,
    /// The trust file of the signing key.
    trust: PathBuf,
    /// Paths at which a file would change the resolution of `say`.
    empty: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

impl Fixture {
    fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let (project, user) = (
            directory.path().join("project"),
            directory.path().join("user"),
        );
        let key = UserKeys::new(&user).generate("bench", IfExists::Fail)?;
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
        let roots = Roots {
            user: Some(user),
            ..Roots::new(&project, directory.path().join("cache"))
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let executor = Executor::new(roots, Arc::new(Supervisor::start()?));
        let library = executor.library()?;
        let pack = library.find(&"pack/it".parse()?)?;
        for scope in dependency_scopes(&library, &pack, &project)? {
            library.sign_manifest(pack.root, &scope, &key, None)?;
        }
        Ok(Self {
            directory,
            executor,
            runtime,
            tool,
            trust,
            empty,
            files,
        })
    }

    fn project(&self) -> PathBuf {
        self.directory.path().join("project")
    }

    /// Starts the process of `say` directly.
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
        // The process may end without reading.
        let _ = stdin.write_all(b"{\"name\":\"x\"}");
        drop(stdin);
        let output = child.wait_with_output()?;
        ensure!(output.stdout == b"{}\n");
        Ok(())
    }

    fn call(&self, tool: &str) -> Result<()> {
        let request = Request::new(tool.parse()?);
        let result = self.runtime.block_on(self.executor.execute(request));
        ensure!(result.status == Status::Success, "{result:?}");
        Ok(())
    }

    fn dry_run(&self, tool: &str) -> Result<()> {
        let mut request = Request::new(tool.parse()?);
        request.dry_run = true;
        let result = self.runtime.block_on(self.executor.execute(request));
        ensure!(result.status == Status::ValidationPassed, "{result:?}");
        Ok(())
    }

    /// The file accesses of any call that notices every change: reads and hashes the tool and
    /// its trust file, and checks that no file overrides system items or revokes the key.
    fn necessary_accesses(&self) -> Result<Vec<Hash>> {
        for path in &self.empty {
            ensure!(fs::symlink_metadata(path).is_err());
        }
        let files = [&self.tool, &self.trust];
        files
            .into_iter()
            .map(|file| Ok(Hash::digest(fs::read(file)?)))
            .collect()
    }

    fn stat_all(&self) -> Result<u64> {
        let mut total = 0;
        for file in &self.files {
            total += fs::symlink_metadata(file)?.len();
        }
        Ok(total)
    }

    fn bare_concurrently(&self) -> Result<()> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..CONCURRENT)
                .map(|_| scope.spawn(|| self.bare()))
                .collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or_else(|_| self.bare()))
        })
    }

    fn call_concurrently(&self) -> Result<()> {
        self.runtime.block_on(async {
            let mut running = JoinSet::new();
            for _ in 0..CONCURRENT {
                let (executor, request) = (self.executor.clone(), Request::new("say".parse()?));
                running.spawn(async move { executor.execute(request).await });
            }
            while let Some(result) = running.join_next().await {
                ensure!(result?.status == Status::Success);
            }
            Ok(())
        })
    }
}

/// Signs a text and writes it to a file.
pub fn write_signed(path: &Path, text: &str, key: &SigningKey) -> Result<()> {
    fs::create_dir_all(path.parent().context("no directory")?)?;
    let time = "2026-01-01T00:00:00Z";
    let below = path.to_str().and_then(|path| path.rsplit_once("/.ai/"));
    let binding = Binding::for_path(below.context("not below .ai/")?.1);
    let comment = CommentStyle::HASH;
    let signed = signature::sign(text.as_bytes(), &comment, &binding, key, time, None)?;
    fs::write(path, signed)?;
    Ok(())
}
