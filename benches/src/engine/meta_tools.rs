//! What it costs that an agent reaches signed items, and that its record proves itself.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use lillux::Hash;
use lillux::durable::Existing;
use lillux::keys::SigningKey;
use lillux::process::Supervisor;
use rye_engine::proof;
use rye_engine::tool::Tool;
use rye_executor::{Executor, Places, Request, Status};
use rye_items::OwnKeys;
use rye_protocol::Archive;
use rye_store::Memory;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::durable::middle;
use super::recorded::Recorded;
use super::work::{Talk, calling};
use super::{beside, runtime};
use crate::executor::write_signed;
use crate::measure::try_interleaved;
use crate::table::{Row, Unit};

const ITEMS: usize = 10_000;
/// Turns that are timed one by one.
const TURNS: usize = 300;
/// Turns of the transcript that is verified: each has four entries.
const LONG: usize = 2_500;
/// What `call_tool` may add to the executor's own call.
const CALL: f64 = 500e-6;
/// What chaining and signing may add to a turn.
const SIGN: f64 = 100e-6;
/// What `list_tools` may take over ten thousand items.
const LIST: f64 = 1e-3;
/// Verifying, beside hashing the same bytes and checking as many signatures.
const VERIFY: f64 = 1.3;

/// A call, a listing, a signed turn and a proof.
pub(super) fn run() -> Result<Vec<Row>> {
    let world = World::make()?;
    let mut rows = world.reach()?;
    rows.extend(signing()?);
    rows.push(verifying()?);
    Ok(rows)
}

/// A project of many signed tools.
struct World {
    folder: TempDir,
    supervisor: Arc<Supervisor>,
    runtime: Runtime,
}

impl World {
    fn make() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let user = folder.path().join("user");
        let key = OwnKeys::of(&user).generate("bench", Existing::Refuse)?;
        let tools = folder.path().join("project/.ai/tools");
        let say = "# executor_id: rye/core/runtimes/bash/bash\n# version: \"1.0.0\"\n\
                   # risk_level: low\necho '{}'\n";
        write_signed(&tools.join("say.sh"), say, &key)?;
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
            folder,
            supervisor: Arc::new(Supervisor::start()?),
            runtime: runtime()?,
        })
    }

    fn places(&self) -> Places {
        let at = |name: &str| self.folder.path().join(name);
        Places {
            user: Some(at("user")),
            ..Places::new(at("project"), at("cache"))
        }
    }

    fn bridge(&self) -> Result<Vec<Arc<dyn Tool>>> {
        let supervisor = Arc::clone(&self.supervisor);
        let state: &Path = self.folder.path();
        let bridge = rye_host::bridge(self.places(), supervisor, None, state)?;
        Ok(bridge.tools)
    }

    /// What a call and a listing take beside a turn whose tool does nothing.
    fn reach(&self) -> Result<Vec<Row>> {
        let executor = Executor::new(self.places(), Arc::clone(&self.supervisor));
        let say = json!({ "tool_id": "rye:say", "summary": "say it" });
        let find = json!({ "query": "move box 42", "limit": 20 });
        self.runtime.block_on(async {
            let bridge = self.bridge()?;
            let mut nothing = begun("look", json!({ "at": "it" }), &bridge).await?;
            let mut called = begun("call_tool", say, &bridge).await?;
            let mut listed = begun("list_tools", find, &bridge).await?;
            // What is refused is quick, and is not what is measured.
            called.turn().await?;
            let given = called.given().await?;
            ensure!(given.contains(r#""status":"success""#), "{given}");
            let (mut bare, mut calls, mut lists, mut runs) = (vec![], vec![], vec![], vec![]);
            for round in 0..TURNS + 10 {
                let times = [
                    timed(&mut nothing).await?,
                    timed(&mut called).await?,
                    timed(&mut listed).await?,
                    executed(&executor).await?,
                ];
                // What is looked at for the first time is not what is measured.
                if round >= 10 {
                    let all = [&mut bare, &mut calls, &mut lists, &mut runs];
                    all.into_iter()
                        .zip(times)
                        .for_each(|(all, it)| all.push(it));
                }
            }
            let (bare, runs) = (middle(bare), middle(runs));
            let call = (middle(calls) - bare).max(0.0);
            let list = (middle(lists) - bare).max(0.0);
            let added = (call - runs).max(0.0);
            Ok(vec![
                Row::time(
                    "call_tool, beside the executor's own call",
                    (runs, call),
                    1.5,
                ),
                beside(
                    "what call_tool adds, beside 500 µs",
                    added,
                    CALL,
                    Unit::Seconds,
                ),
                beside(
                    "list_tools over 10,000 items, beside 1 ms",
                    list,
                    LIST,
                    Unit::Seconds,
                ),
            ])
        })
    }
}

async fn begun(tool: &'static str, args: Value, bridge: &[Arc<dyn Tool>]) -> Result<Talk> {
    let engine = calling(tool, args).tools(bridge.to_vec());
    Talk::begin(&engine.store(Memory::new()).build()?).await
}

async fn timed(talk: &mut Talk) -> Result<f64> {
    let start = Instant::now();
    talk.turn().await?;
    Ok(start.elapsed().as_secs_f64())
}

async fn executed(executor: &Executor) -> Result<f64> {
    let start = Instant::now();
    let envelope = executor.execute(Request::new("say".parse()?)).await;
    ensure!(envelope.status == Status::Success, "{envelope:?}");
    Ok(start.elapsed().as_secs_f64())
}

/// What signing adds to a turn: time, and no commit.
fn signing() -> Result<Vec<Row>> {
    let look = || calling("look", json!({ "at": "it" }));
    runtime()?.block_on(async {
        let key = SigningKey::generate()?;
        let (plain, signed) = (Recorded::default(), Recorded::default());
        let commits = [Arc::clone(&plain.commits), Arc::clone(&signed.commits)];
        let mut plain = Talk::begin(&look().store(plain).build()?).await?;
        let mut signed = Talk::begin(&look().store(signed).sign_with(key).build()?).await?;
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            without.push(timed(&mut plain).await?);
            with.push(timed(&mut signed).await?);
        }
        let counts = commits.map(|all| all.lock().map(|all| all.len()).unwrap_or_default());
        let [floor, ours] = counts.map(|count| f64::from(u32::try_from(count).unwrap_or(0)));
        let chained = chaining().await?;
        let added = (middle(with) - middle(without)).max(0.0) + chained;
        Ok(vec![
            beside(
                "chaining and signing a turn, beside 100 µs",
                added,
                SIGN,
                Unit::Seconds,
            ),
            Row {
                what: "commits of signed turns, beside unsigned ones".to_owned(),
                ours,
                floor,
                goal: 1.0,
                unit: Unit::Pieces,
            },
        ])
    })
}

/// What the hashes of a turn's entries take, which every turn has.
async fn chaining() -> Result<f64> {
    let archive = transcript(1, &SigningKey::generate()?).await?;
    let times = (0..TURNS).map(|_| {
        let start = Instant::now();
        for entry in &archive.entries {
            std::hint::black_box(proof::entry_hash(entry, &entry.hash));
        }
        start.elapsed().as_secs_f64()
    });
    Ok(middle(times.collect()))
}

/// A long record.
async fn transcript(turns: usize, key: &SigningKey) -> Result<Archive> {
    let own = SigningKey::from_pem(key.to_pem().as_bytes())?;
    let engine = calling("look", json!({ "at": "it" })).store(Memory::new());
    let engine = engine.sign_with(own).build()?;
    let mut talk = Talk::begin(&engine).await?;
    for _ in 0..turns {
        talk.turn().await?;
    }
    Ok(engine.export(talk.session.id()).await?.swap_remove(0))
}

fn verifying() -> Result<Row> {
    let key = SigningKey::generate()?;
    let archive = runtime()?.block_on(transcript(LONG, &key))?;
    ensure!(archive.entries.len() == 4 * LONG);
    let texts: Result<Vec<_>, _> = archive.entries.iter().map(serde_json::to_vec).collect();
    let texts = texts?;
    let signed: Vec<_> = (0..LONG)
        .map(|number| {
            let hash = Hash::of(number.to_string());
            (hash, key.sign(&hash))
        })
        .collect();
    let public = key.public();
    let floor = || {
        for text in &texts {
            std::hint::black_box(Hash::of(text));
        }
        for (hash, signature) in &signed {
            public.verify(hash, signature)?;
        }
        anyhow::Ok(())
    };
    let ours = || {
        let verdict = proof::check(&archive, |_| Some(public.clone()));
        ensure!(
            verdict.faults.is_empty() && verdict.seals == LONG,
            "{verdict:?}"
        );
        Ok(())
    };
    let times = try_interleaved(9, floor, ours)?;
    let what = "verify of 10,000 entries, beside hashing and signatures";
    Ok(Row::time(what, times, VERIFY))
}
