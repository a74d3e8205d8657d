//! What is told.

use super::stage::Stage;
use crate::cli::failure::Failure;

const TOOL: &str = "\
version: \"1.0.0\"
description: Puts a release into production
executor_id: rye/core/runtimes/bash/bash
risk_level: high
config:
  command: 'echo released >> releases.txt; echo \"releases so far: $(wc -l < releases.txt)\"'
";

const AGENT: &str = "\
steps:
  - tool_calls: [{ name: list_tools, args: { query: release } }]
  - tool_calls: [{ name: call_tool, args: { tool_id: 'rye:release', summary: 'ship version 2' } }]
  - text: 'Done. ${last_tool_result}'
";

pub(super) fn tell(stage: &mut Stage) -> Result<(), Failure> {
    signed(stage)?;
    tampered(stage)?;
    let gate = waiting(stage)?;
    approved(stage, &gate)?;
    proven(stage, &gate)
}

fn signed(stage: &mut Stage) -> Result<(), Failure> {
    stage.scene(
        "A tool is a file, and somebody vouches for it",
        &[
            "`rye init` has made a key that is yours. The tool names a runtime, which is a signed",
            "file too; `sign` puts one line at the top of yours.",
        ],
    );
    stage.prepare(&["init"])?;
    stage.write(".ai/tools/release.yaml", TOOL)?;
    stage.rye(&["sign", "release"], 0)?;
    stage.rye(&["execute", "release"], 0)?;
    stage.seen("every file of its chain was read once, verified, and only then run");
    Ok(())
}

fn tampered(stage: &mut Stage) -> Result<(), Failure> {
    stage.scene(
        "Changed by a single letter, it does not run",
        &["Whoever changed it: a person, a program, an agent."],
    );
    stage.change(".ai/tools/release.yaml", "released", "releaseD")?;
    stage.rye(&["execute", "release"], 3)?;
    stage.change(".ai/tools/release.yaml", "releaseD", "released")?;
    stage.seen("exit code 3: nothing ran");
    Ok(())
}

fn waiting(stage: &mut Stage) -> Result<String, Failure> {
    stage.scene(
        "An agent wants to use it, and must ask; then its process is killed",
        &[
            "The model is a script here, so that no key is needed. It finds the tool by what it",
            "does, and calls it. The tool says that its risk is high, so a person decides: the",
            "session stops at a gate. Then the power goes.",
        ],
    );
    stage.write("agent.yaml", AGENT)?;
    let args = ["prompt", "ship version 2", "--model", "scripted:agent.yaml"];
    let gate = stage.killed_at_a_gate(&args)?;
    stage.rye(&["gate", "list"], 0)?;
    stage.seen("each step was written down before it was taken, so the question is still there");
    Ok(gate)
}

fn approved(stage: &mut Stage, gate: &str) -> Result<(), Failure> {
    stage.scene(
        "A person approves it from elsewhere, and another process goes on",
        &[
            "What is approved are these bytes and these arguments, not a name: if the tool or its",
            "runtime changed before it runs, the person would be asked again.",
        ],
    );
    let short = short(gate.split(':').nth(3).unwrap_or(gate));
    stage.rye(&["gate", "approve", short], 0)?;
    stage.rye(&["session", "resume", session(gate), "--quiet"], 0)?;
    let released = stage.read("releases.txt");
    let count = released.lines().count();
    stage.seen(format!(
        "the tool ran once in this session ({count} releases with the one by hand)"
    ));
    match count {
        2 => Ok(()),
        _ => Err(Failure::failed(
            "demo",
            format_args!("it ran {count} times, not twice"),
        )),
    }
}

fn proven(stage: &mut Stage, gate: &str) -> Result<(), Failure> {
    stage.scene(
        "The record proves itself",
        &[
            "Each entry names the hash of the one before it; the ends of turns and the decision",
            "are signed. Anybody with the public key can check it, offline, from a file.",
        ],
    );
    let session = session(gate);
    stage.rye(&["session", "verify", session], 0)?;
    stage.rye(
        &[
            "session",
            "export",
            session,
            "--output",
            "work.jsonl",
            "--quiet",
        ],
        0,
    )?;
    stage.change("work.jsonl", "ship version 2", "ship version 3")?;
    stage.rye(&["session", "verify", "work.jsonl"], 3)?;
    stage.seen("what exactly ran, who allowed it, and that nobody rewrote it since");
    Ok(())
}

/// The session that a gate belongs to.
fn session(gate: &str) -> &str {
    short(gate.split(':').nth(1).unwrap_or_default())
}

/// The end of an id, which does as well as all of it.
fn short(id: &str) -> &str {
    id.rsplit('-').next().unwrap_or(id)
}
