//! Output that is too long for a model: cut, and kept whole.

use std::sync::Arc;

use lillux::Hash;
use rye_engine::BoxFuture;
use rye_engine::tool::{Tool, ToolContext, ToolDef, ToolError, ToolOutput};
use rye_engine::{Engine, NewSession};
use rye_model::Catalogue;
use rye_sandbox::Virtual;
use rye_store::{MemoryStore, MemoryBlobs};
use serde_json::{Value, json};

use super::agent::{calls, each, finish, outcomes, script};

fn numbers(range: std::ops::RangeInclusive<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

#[tokio::test]
async fn what_a_command_printed_can_be_read_on() {
    let whole = numbers(1..=50_000).join("\n") + "\n[stderr]\nend\n[exit code 3]";
    let hash = Hash::digest(&whole);
    for (sandbox, _folder) in each() {
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
        assert_eq!(outcomes[0].data["whole"], blob);
        assert!(
            text.len() < 31_000 && text.starts_with("1\n2\n3\n"),
            "{}",
            text.len()
        );
        assert!(text.ends_with("\n49999\n50000\n[stderr]\nend\n[exit code 3]"));
        // What is shown and what is left out together are all there was.
        let (head, rest) = text.split_once("[… ").unwrap();
        let (note, tail) = rest.split_once(" …]\n").unwrap();
        let (count, _) = note.split_once(" lines, ").unwrap();
        let (_, offset) = note.rsplit_once("offset ").unwrap();
        let (count, offset): (usize, usize) = (count.parse().unwrap(), offset.parse().unwrap());
        assert!(note.contains(&blob), "{note}");
        let left_out: Vec<_> = whole.lines().skip(offset - 1).take(count).collect();
        assert_eq!(format!("{head}{}\n{tail}", left_out.join("\n")), whole);
        assert_eq!(
            outcomes[1].text,
            "25000\t25000\n25001\t25001\n[lines 25000 to 25001 of 50003; read on with offset 25002]"
        );
        assert_eq!(
            outcomes[2].text,
            "50000\t50000\n50001\t[stderr]\n50002\tend\n50003\t[exit code 3]"
        );
    }
}

#[tokio::test]
async fn what_nobody_can_keep_is_bounded_and_says_so() {
    let [_, (sandbox, _folder)] = each();
    let command = "yes 0123456789abcde | head -c 40000000";
    let outcome = calls(&sandbox, &[("bash", json!({ "command": command }))])
        .await
        .remove(0);
    assert_eq!(outcome.data["truncated"], true);
    let notes = outcome.text.matches("are left out here").count();
    assert!(outcome.text.len() < 31_000 && notes == 1, "{notes}");
}

/// A tool that has a lot to say, in one line.
struct Talker(ToolDef);

impl Tool for Talker {
    fn def(&self) -> &ToolDef {
        &self.0
    }

    fn run(&self, _: Value, _: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(std::future::ready(Ok(ToolOutput::text(talk()))))
    }
}

fn talk() -> String {
    numbers(1..=40_000).join(" ")
}

#[tokio::test]
async fn what_any_tool_says_can_be_read_on() {
    let (whole, hash) = (talk(), Hash::digest(talk()));
    for has_blobs in [true, false] {
        let path = format!("blob:{hash}");
        let script = script(&[
            ("talk", json!({})),
            (
                "read",
                json!({ "path": path, "offset": 1, "column": 50_001 }),
            ),
        ]);
        let def = ToolDef::new("talk", "Talks.", json!({ "type": "object" }));
        let mut builder = Engine::builder()
            .store(MemoryStore::new())
            .models(Catalogue::new(".").with("scripted:test", script.parse().unwrap()))
            .sandbox(Arc::new(Virtual::new()))
            .tools(rye_engine::builtin::tools())
            .tool(Talker(def));
        if has_blobs {
            builder = builder.blobs(MemoryBlobs::new());
        }
        let engine = builder.build().unwrap();
        let session = engine.create_session(NewSession::default()).await.unwrap();
        finish(&engine, &session).await;
        let outcomes = outcomes(&engine, &session).await;
        let said = &outcomes[0].text;
        assert!(said.len() < 101_000 && said.starts_with("1 2 3") && said.ends_with("39999 40000"));
        let place = format!("read on with path {path}, offset 1, column 50001 …]");
        assert_eq!(said.contains(&place), has_blobs);
        if has_blobs {
            let (piece, note) = outcomes[1].text.split_once('\n').unwrap();
            assert_eq!(piece, &whole[50_000..80_000]);
            assert!(
                note.ends_with("read on with offset 1, column 80001]"),
                "{note}"
            );
        } else {
            assert_eq!(
                outcomes[1].text,
                "nothing is kept here: there is no blob store"
            );
        }
    }
}
