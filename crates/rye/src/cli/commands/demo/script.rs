//! The scenes of the demo.

use super::stage::{PendingGate, Stage};
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

pub(super) fn play(stage: &mut Stage) -> Result<(), Failure> {
    sign_and_run(stage)?;
    tamper(stage)?;
    let gate = kill_at_gate(stage)?;
    approve_and_resume(stage, &gate)?;
    verify_record(stage, &gate)
}

fn sign_and_run(stage: &mut Stage) -> Result<(), Failure> {
    stage.scene(
        "A tool is a signed file",
        &[
            "`rye init` has created your signing key. A tool names a runtime, which is a signed",
            "file as well. `rye sign` adds a signature line to the top of your tool.",
        ],
    );
    stage.run_silently(&["init"])?;
    stage.write(".ai/tools/release.yaml", TOOL)?;
    stage.rye(&["sign", "release"], 0)?;
    stage.rye(&["execute", "release"], 0)?;
    stage.conclude("Rye read each file of the chain once, verified it, and ran those bytes.");
    Ok(())
}

fn tamper(stage: &mut Stage) -> Result<(), Failure> {
    stage.scene(
        "A changed tool does not run",
        &["It makes no difference who changed it: a person, a program or an agent."],
    );
    stage.edit(".ai/tools/release.yaml", "released", "releaseD")?;
    stage.rye(&["execute", "release"], 3)?;
    stage.edit(".ai/tools/release.yaml", "releaseD", "released")?;
    stage.conclude("Exit code 3 means integrity failure. Nothing ran.");
    Ok(())
}

fn kill_at_gate(stage: &mut Stage) -> Result<PendingGate, Failure> {
    stage.scene(
        "An agent needs approval, and its process is killed",
        &[
            "The model is a script, so this needs no API key. The agent searches for the tool and",
            "calls it. Because the tool's risk is high, the session stops at a gate and waits for a",
            "person. Then the process is killed.",
        ],
    );
    stage.write("agent.yaml", AGENT)?;
    let args = ["prompt", "ship version 2", "--model", "scripted:agent.yaml"];
    let gate = stage.kill_at_gate(&args)?;
    stage.rye(&["gate", "list"], 0)?;
    stage.conclude("Rye stores each step before it acts on it, so the gate is still pending.");
    Ok(gate)
}

fn approve_and_resume(stage: &mut Stage, gate: &PendingGate) -> Result<(), Failure> {
    stage.scene(
        "A person approves, and another process continues",
        &[
            "The approval covers the exact bytes and arguments of the call, not just a name. If the",
            "tool or its runtime changed before it ran, the gate would open again.",
        ],
    );
    stage.rye(&["gate", "approve", &gate.id], 0)?;
    stage.rye(&["session", "resume", &gate.session, "--quiet"], 0)?;
    let count = stage.read("releases.txt").lines().count();
    stage.conclude(format!(
        "The tool ran exactly once in the session ({count} releases including the one by hand)."
    ));
    match count {
        2 => Ok(()),
        _ => Err(Failure::failed(
            "demo",
            format_args!("the tool ran {count} times instead of 2"),
        )),
    }
}

fn verify_record(stage: &mut Stage, gate: &PendingGate) -> Result<(), Failure> {
    stage.scene(
        "The record can be verified",
        &[
            "The entries form a hash chain, and the end of each turn and the decision are signed.",
            "Anyone who trusts the public key can verify the record offline, from a file.",
        ],
    );
    let session = gate.session.as_str();
    stage.rye(&["session", "verify", session], 0)?;
    let export = ["session", "export", session, "--output", "work.jsonl"];
    stage.rye(&[&export[..], &["--quiet"]].concat(), 0)?;
    stage.edit("work.jsonl", "ship version 2", "ship version 3")?;
    stage.rye(&["session", "verify", "work.jsonl"], 3)?;
    stage.conclude(
        "The record proves what ran, who approved it, and that it was not changed since.",
    );
    Ok(())
}
