//! Long output: truncated for the model, and stored completely.

use std::collections::HashSet;
use std::sync::Arc;

use lillux::Hash;
use rye_engine::BoxFuture;
use rye_engine::tool::{Tool, ToolContext, ToolDef, ToolError, ToolOutput};
use rye_engine::{Engine, NewSession};
use rye_model::Catalogue;
use rye_sandbox::VirtualSandbox;
use rye_store::{MemoryBlobs, MemoryStore};
use serde_json::{Value, json};

use super::agent::{calls, outcomes, run_turn, sandboxes, script};

fn numbers(range: std::ops::RangeInclusive<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

#[tokio::test]
async fn long_command_output_can_be_read_completely() {
    let whole = numbers(1..=50_000).join("\n") + "\n[stderr]\nend\n[exit code 3]";
    let hash = Hash::digest(&whole);
    for (sandbox, _dir) in sandboxes() {
        let command = "seq 1 50000; echo end >&2; exit 3";
        let blob = format!("blob:{hash}");
        let outcomes = calls(
            &sandbox,
            &[
                ("bash", json!({ "command": command })),
                (
                    "read",
                    json!({ "path": blob, "offset": 25_000, "limit": 2 }),
                ),
                ("read", json!({ "path": blob, "offset": 50_000 })),
            ],
        )
        .await;
        let text = &outcomes[0].text;
        assert_eq!(outcomes[0].data["full_output"], blob);
        assert!(
            text.len() < 31_000 && text.starts_with("1\n2\n3\n"),
            "{}",
            text.len()
        );
        assert!(text.ends_with("\n49999\n50000\n[stderr]\nend\n[exit code 3]"));
        // The note is the only line that is not part of the output. It locates the omitted lines.
        let all: Vec<_> = whole.lines().collect();
        let shown: Vec<_> = text.lines().collect();
        let lines: HashSet<_> = all.iter().collect();
        let notes = (0..shown.len()).filter(|at| !lines.contains(&shown[*at]));
        let [at] = notes.collect::<Vec<_>>()[..] else {
            unreachable!("{text}");
        };
        let (head, tail) = (&shown[..at], &shown[at + 1..]);
        assert!(all.starts_with(head) && all.ends_with(tail));
        let omitted = all.len() - head.len() - tail.len();
        for part in [&blob, &omitted.to_string(), &(at + 1).to_string()] {
            assert!(shown[at].contains(part), "{part}: {}", shown[at]);
        }
        assert_eq!(
            outcomes[1].text,
            "25000\t25000\n25001\t25001\n[lines 25000 to 25001 of 50003; continue with offset 25002]"
        );
        assert_eq!(
            outcomes[2].text,
            "50000\t50000\n50001\t[stderr]\n50002\tend\n50003\t[exit code 3]"
        );
    }
}

#[tokio::test]
async fn output_beyond_the_capture_limit_is_truncated() {
    let [_, (sandbox, _dir)] = sandboxes();
    let command = "yes 0123456789abcde | head -c 40000000";
    let outcome = calls(&sandbox, &[("bash", json!({ "command": command }))])
        .await
        .remove(0);
    assert_eq!(outcome.data["truncated"], true);
    assert!(outcome.text.len() < 31_000, "{}", outcome.text.len());
    let is_note = |line: &&str| *line != "0123456789abcde" && *line != "[exit code 0]";
    let notes: Vec<_> = outcome.text.lines().filter(is_note).collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
}

/// A tool with a long output in one line.
struct LongOutputTool(ToolDef);

impl Tool for LongOutputTool {
    fn def(&self) -> &ToolDef {
        &self.0
    }

    fn run(&self, _: Value, _: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(std::future::ready(Ok(ToolOutput::text(long_line()))))
    }
}

fn long_line() -> String {
    numbers(1..=40_000).join(" ")
}

#[tokio::test]
async fn long_tool_output_can_be_read_completely() {
    let (whole, hash) = (long_line(), Hash::digest(long_line()));
    for has_blobs in [true, false] {
        let path = format!("blob:{hash}");
        let script = script(&[
            ("long", json!({})),
            (
                "read",
                json!({ "path": path, "offset": 1, "column": 50_001 }),
            ),
        ]);
        let def = ToolDef::new("long", "Prints a long line.", json!({ "type": "object" }));
        let mut builder = Engine::builder()
            .store(MemoryStore::new())
            .models(Catalogue::new(".").with("scripted:test", script.parse().unwrap()))
            .sandbox(Arc::new(VirtualSandbox::new()))
            .tools(rye_tools::tools())
            .tool(LongOutputTool(def));
        if has_blobs {
            builder = builder.blobs(MemoryBlobs::new());
        }
        let engine = builder.build().unwrap();
        let session = engine.create_session(NewSession::default()).await.unwrap();
        run_turn(&engine, &session).await;
        let outcomes = outcomes(&engine, &session).await;
        let text = &outcomes[0].text;
        assert!(text.len() < 101_000 && text.starts_with("1 2 3") && text.ends_with("39999 40000"));
        let note = format!("read path {path}, offset 1, column 50001 …]");
        assert_eq!(text.contains(&note), has_blobs);
        if has_blobs {
            let (piece, note) = outcomes[1].text.split_once('\n').unwrap();
            assert_eq!(piece, &whole[50_000..80_000]);
            assert!(
                note.ends_with("continue with offset 1, column 80001]"),
                "{note}"
            );
        } else {
            assert_eq!(outcomes[1].text, "no blob store is configured");
        }
    }
}
