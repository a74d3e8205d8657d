//! Meta-tools (`call_tool`, `list_tools`), signing of turns and verification of a history.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use lillux::Hash;
use lillux::durable::IfExists;
use lillux::keys::SigningKey;
use lillux::process::Supervisor;
use rye_engine::audit;
use rye_engine::tool::Tool;
use rye_executor::{Executor, Request, Roots, Status};
use rye_items::UserKeys;
use rye_protocol::Archive;
use rye_store::MemoryStore;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::fixture::{BenchSession, builder_calling};
use super::recording_store::recording_store;
use super::{against_budget, runtime};
use crate::executor::write_signed;
use crate::measure::{median, try_interleaved};
use crate::table::{Row, Unit};

const ITEMS: usize = 10_000;
/// Measured turns.
const TURNS: usize = 300;
/// Turns of the history that is verified; each has four entries.
const VERIFIED_TURNS: usize = 2_500;
/// Budget of `call_tool` on top of the executor's call, in seconds.
const CALL_BUDGET: f64 = 500e-6;
/// Budget of hashing and signing a turn, in seconds.
const SIGN_BUDGET: f64 = 100e-6;
/// Budget of `list_tools` over 10,000 items, in seconds.
const LIST_BUDGET: f64 = 1e-3;
/// Goal of verification, compared with hashing the bytes and verifying the signatures.
const VERIFY_GOAL: f64 = 1.3;

/// Meta-tools, signed turns and verification.
pub(super) fn run() -> Result<Vec<Row>> {
    let fixture = Fixture::new()?;
    let mut rows = fixture.meta_tools()?;
    rows.extend(signing()?);
    rows.push(verifying()?);
    Ok(rows)
}

/// A project with many signed tools.
struct Fixture {
    directory: TempDir,
    supervisor: Arc<Supervisor>,
    runtime: Runtime,
}

impl Fixture {
    fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let user = directory.path().join("user");
        let key = UserKeys::new(&user).generate("bench", IfExists::Fail)?;
        let tools = directory.path().join("project/.ai/tools");
        let say = "# executor_id: rye/core/runtimes/bash/bash\n# version: \"1.0.0\"\n\
                   # risk_level: low\necho '{}'\n";
        write_signed(&tools.join("say.sh"), say, &key)?;
        // Without a rule, a call outside of the virtual sandbox waits at a gate.
        let policy = user.join(".ai").join(rye_host::POLICY_FILE);
        write_signed(
            &policy,
            "rules:\n  - tool: rye:say\n    action: allow\n",
            &key,
        )?;
        for number in 0..ITEMS {
            let text = format!(
                "version: \"1.0.0\"\ndescription: Number {number} moves box {} to shelf {}\n\
                 executor_id: rye/core/runtimes/bash/bash\n",
                number % 97,
                number % 31
            );
            let path = tools.join(format!("group{}/item{number}.yaml", number % 97));
            write_signed(&path, &text, &key)?;
        }
        Ok(Self {
            directory,
            supervisor: Arc::new(Supervisor::start()?),
            runtime: runtime()?,
        })
    }

    fn roots(&self) -> Roots {
        let at = |name: &str| self.directory.path().join(name);
        Roots {
            user: Some(at("user")),
            ..Roots::new(at("project"), at("cache"))
        }
    }

    fn bridge(&self) -> Result<Vec<Arc<dyn Tool>>> {
        let supervisor = Arc::clone(&self.supervisor);
        let state: &Path = self.directory.path();
        let offered = rye_host::OfferedServers::default();
        let bridge = rye_host::meta_tools(self.roots(), supervisor, None, state, offered)?;
        Ok(bridge.tools)
    }

    /// `call_tool` and `list_tools`, without the time of a turn with an empty tool.
    fn meta_tools(&self) -> Result<Vec<Row>> {
        let executor = Executor::new(self.roots(), Arc::clone(&self.supervisor));
        let say = json!({ "tool_id": "rye:say", "summary": "say it" });
        let find = json!({ "query": "move box 42", "limit": 20 });
        self.runtime.block_on(async {
            let bridge = self.bridge()?;
            let mut empty = start_session("look", json!({ "at": "it" }), &bridge).await?;
            let mut called = start_session("call_tool", say, &bridge).await?;
            let mut listed = start_session("list_tools", find, &bridge).await?;
            // Make sure that the call succeeds, because a refused call is faster.
            called.turn().await?;
            let given = called.tool_results().await?;
            ensure!(given.contains(r#""status":"success""#), "{given}");
            let (mut bare, mut calls, mut lists, mut runs) = (vec![], vec![], vec![], vec![]);
            for round in 0..TURNS + 10 {
                let times = [
                    time_turn(&mut empty).await?,
                    time_turn(&mut called).await?,
                    time_turn(&mut listed).await?,
                    time_execute(&executor).await?,
                ];
                // The first rounds are a warm-up.
                if round >= 10 {
                    let all = [&mut bare, &mut calls, &mut lists, &mut runs];
                    all.into_iter()
                        .zip(times)
                        .for_each(|(all, it)| all.push(it));
                }
            }
            let (bare, runs) = (median(bare), median(runs));
            let call = (median(calls) - bare).max(0.0);
            let list = (median(lists) - bare).max(0.0);
            let added = (call - runs).max(0.0);
            Ok(vec![
                Row::time("call_tool vs. the executor's call", (runs, call), 1.5),
                against_budget(
                    "overhead of call_tool vs. 500 µs",
                    added,
                    CALL_BUDGET,
                    Unit::Seconds,
                ),
                against_budget(
                    "list_tools over 10,000 items vs. 1 ms",
                    list,
                    LIST_BUDGET,
                    Unit::Seconds,
                ),
            ])
        })
    }
}

async fn start_session(
    tool: &'static str,
    args: Value,
    bridge: &[Arc<dyn Tool>],
) -> Result<BenchSession> {
    let engine = builder_calling(tool, args).tools(bridge.to_vec());
    BenchSession::start(&engine.store(MemoryStore::new()).build()?).await
}

async fn time_turn(session: &mut BenchSession) -> Result<f64> {
    let start = Instant::now();
    session.turn().await?;
    Ok(start.elapsed().as_secs_f64())
}

async fn time_execute(executor: &Executor) -> Result<f64> {
    let start = Instant::now();
    let result = executor.execute(Request::new("say".parse()?)).await;
    ensure!(result.status == Status::Success, "{result:?}");
    Ok(start.elapsed().as_secs_f64())
}

/// Overhead of signing: time, and no additional commit.
fn signing() -> Result<Vec<Row>> {
    let look = || builder_calling("look", json!({ "at": "it" }));
    runtime()?.block_on(async {
        let key = SigningKey::generate()?;
        let ((plain, first), (signed, second)) = (recording_store(), recording_store());
        let commits = [first, second];
        let mut plain = BenchSession::start(&look().store(plain).build()?).await?;
        let mut signed = BenchSession::start(&look().store(signed).sign_with(key).build()?).await?;
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            without.push(time_turn(&mut plain).await?);
            with.push(time_turn(&mut signed).await?);
        }
        let counts = commits.map(|all| all.lock().map(|all| all.len()).unwrap_or_default());
        let [baseline, ours] = counts.map(|count| f64::from(u32::try_from(count).unwrap_or(0)));
        let hashing = hash_entries().await?;
        let added = (median(with) - median(without)).max(0.0) + hashing;
        Ok(vec![
            against_budget(
                "hashing and signing a turn vs. 100 µs",
                added,
                SIGN_BUDGET,
                Unit::Seconds,
            ),
            Row {
                name: "commits of signed vs. unsigned turns".to_owned(),
                ours,
                baseline,
                goal: 1.0,
                unit: Unit::Count,
            },
        ])
    })
}

/// Time to hash the entries of a turn, which unsigned turns do too.
async fn hash_entries() -> Result<f64> {
    let archive = export(1, &SigningKey::generate()?).await?;
    let times = (0..TURNS).map(|_| {
        let start = Instant::now();
        for entry in &archive.entries {
            std::hint::black_box(audit::entry_hash(entry, &entry.hash));
        }
        start.elapsed().as_secs_f64()
    });
    Ok(median(times.collect()))
}

/// The export of a session with `turns` turns.
async fn export(turns: usize, key: &SigningKey) -> Result<Archive> {
    let own = SigningKey::from_pem(key.to_pem().as_bytes())?;
    let engine = builder_calling("look", json!({ "at": "it" })).store(MemoryStore::new());
    let engine = engine.sign_with(own).build()?;
    let mut session = BenchSession::start(&engine).await?;
    for _ in 0..turns {
        session.turn().await?;
    }
    Ok(engine.export(session.session.id()).await?.swap_remove(0))
}

fn verifying() -> Result<Row> {
    let key = SigningKey::generate()?;
    let archive = runtime()?.block_on(export(VERIFIED_TURNS, &key))?;
    ensure!(archive.entries.len() == 4 * VERIFIED_TURNS);
    let texts: Result<Vec<_>, _> = archive.entries.iter().map(serde_json::to_vec).collect();
    let texts = texts?;
    let signed: Vec<_> = (0..VERIFIED_TURNS)
        .map(|number| {
            let hash = Hash::digest(number.to_string());
            (hash, key.sign(&hash))
        })
        .collect();
    let public = key.public();
    let baseline = || {
        for text in &texts {
            std::hint::black_box(Hash::digest(text));
        }
        for (hash, signature) in &signed {
            public.verify(hash, signature)?;
        }
        anyhow::Ok(())
    };
    let ours = || {
        let verdict = audit::check(&archive, |_| Some(public.clone()));
        ensure!(
            verdict.findings.is_empty() && verdict.seals >= VERIFIED_TURNS,
            "{verdict:?}"
        );
        Ok(())
    };
    let times = try_interleaved(9, baseline, ours)?;
    let what = "verifying 10,000 entries vs. hashing and signatures";
    Ok(Row::time(what, times, VERIFY_GOAL))
}
