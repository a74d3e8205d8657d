//! Tests of compaction plans over histories of various shapes.

use proptest::prelude::*;
use rye_protocol::{Millis, ResultStatus};
use serde_json::json;

use super::*;
use crate::transcript::Transcript;

fn entry(number: usize, kind: EntryKind) -> Entry {
    Entry {
        id: format!("e{number}").parse().unwrap(),
        session: "s".parse().unwrap(),
        thread: "t".parse().unwrap(),
        parent: None,
        prompt: None,
        kind,
        created_at: Millis(0),
        hash: String::new(),
    }
}

/// Builds a history from letters: `u` a prompt, `a` an answer, `c` a call with its result, `g` a
/// call with a gate, `e` an error; each followed by its size in hundreds of tokens.
fn path(letters: &str) -> Vec<Entry> {
    let mut path = Vec::new();
    for word in letters.split_whitespace() {
        let (letter, hundreds) = word.split_at(1);
        let text = "abc ".repeat(100 * hundreds.parse::<usize>().unwrap_or(1));
        let message = |role| EntryKind::Message(Message::text(role, text.clone()));
        match letter {
            "u" => path.push(entry(path.len(), message(Role::User))),
            "a" => path.push(entry(path.len(), message(Role::Assistant))),
            "e" => {
                let error = rye_protocol::ErrorInfo::new(rye_protocol::ErrorCode::Model, "gone");
                let message = Message::new(Role::Assistant, vec![Part::Error { error }]);
                path.push(entry(path.len(), EntryKind::Message(message)));
            }
            _ => {
                let call_id: CallId = format!("c{}", path.len()).parse().unwrap();
                let tool = "read".to_owned();
                let call = Part::ToolCall {
                    call_id: call_id.clone(),
                    tool: tool.clone(),
                    args: json!({ "path": format!("f{}", path.len()) }),
                };
                let kind = EntryKind::Message(Message::new(Role::Assistant, vec![call]));
                path.push(entry(path.len(), kind));
                if letter == "g" {
                    let gate = rye_protocol::GateId::new(
                        &"s".parse().unwrap(),
                        &"t".parse().unwrap(),
                        &"i".parse().unwrap(),
                        "k",
                    );
                    let title = "Approve?".to_owned();
                    let requested = EntryKind::DecisionGate {
                        gate,
                        title,
                        question: None,
                    };
                    path.push(entry(path.len(), requested));
                }
                let result = Part::ToolResult {
                    call_id,
                    tool,
                    status: ResultStatus::Success,
                    text,
                    data: Value::Null,
                    error: None,
                    elided: false,
                };
                let kind = EntryKind::Message(Message::new(Role::Tool, vec![result]));
                path.push(entry(path.len(), kind));
            }
        }
    }
    path
}

fn tokens_of(path: &[Entry]) -> u64 {
    Transcript::new(path).tokens()
}

/// Applies a plan to a path, with a short summary.
fn apply_plan(mut path: Vec<Entry>, plan: &Plan) -> Vec<Entry> {
    let settings = Settings::default();
    match plan {
        Plan::Nothing => {}
        Plan::Prune(ids) => {
            for entry in &mut path {
                if ids.contains(&entry.id) {
                    *entry = elided(entry, &settings);
                }
            }
        }
        Plan::Summarise(head) => {
            let kind = EntryKind::Compaction {
                summary: "## Goal".to_owned(),
                covered: head.covered.clone(),
                tokens_before: 0,
                tokens_after: 0,
                files_read: head.files_read.clone(),
                files_modified: head.files_modified.clone(),
                preserved: Vec::new(),
                without_media: false,
            };
            path.push(entry(path.len(), kind));
        }
    }
    path
}

#[test]
fn tail_is_the_last_turns_that_fit() {
    let settings = Settings::default();
    // The tail has 2 000 tokens.
    for (letters, expected_boundary) in [
        // Both last turns.
        ("u9 a9 u1 a1 u1 a1", Some(2)),
        // Only the last turn.
        ("u9 a9 u9 a9 u9 a9", Some(4)),
        // Part of the last turn, from a message on.
        ("u9 a9 u9 a9 a9 a9", Some(4)),
        // Never between a call and its result, even if a gate is between them.
        ("u1 a1 u1 c9 c9 c9", Some(5)),
        ("u1 a1 u1 g9 g9 g9", Some(6)),
        // The last step, however long.
        ("u1 a1 u1 c1 c99", Some(5)),
        ("u1 a1 u99", Some(2)),
        // Nothing before the tail.
        ("u1 a1 u1 a1", None),
        ("u1 a1", None),
        ("u99", None),
        ("e1 e1 u99", None),
        ("", None),
    ] {
        let path = path(letters);
        let boundary = match plan(&path, CompactionReason::Requested, 0, 4_000, &settings) {
            Plan::Summarise(head) => Some(head.boundary),
            _ => None,
        };
        assert_eq!(boundary, expected_boundary, "{letters}");
    }
}

#[test]
fn output_is_pruned_first_if_that_is_enough() {
    let settings = Settings::default();
    let long = "u1 c150 c150 c150 c150 c150 a1 u1 a1";
    let path = path(long);
    let tokens = tokens_of(&path);
    let planned = plan(
        &path,
        CompactionReason::Threshold,
        tokens,
        tokens,
        &settings,
    );
    // The three newest results are more than 40 000 tokens.
    let oldest = ["e2", "e4", "e6"].map(|id| id.parse::<EntryId>().unwrap());
    assert_eq!(planned, Plan::Prune(oldest.to_vec()));
    let pruned = apply_plan(path.clone(), &planned);
    assert!(tokens_of(&pruned) + 44_000 < tokens);
    // A requested compaction always summarises.
    let requested = plan(
        &path,
        CompactionReason::Requested,
        tokens,
        tokens,
        &settings,
    );
    assert!(matches!(requested, Plan::Summarise(_)));
    let over = plan(&path, CompactionReason::Overflow, tokens, tokens, &settings);
    assert!(matches!(over, Plan::Summarise(_)));
    let protected = Settings {
        protected_tools: vec!["read".to_owned()],
        ..settings.clone()
    };
    let planned = plan(
        &path,
        CompactionReason::Threshold,
        tokens,
        tokens,
        &protected,
    );
    assert!(matches!(planned, Plan::Summarise(_)));
    // Pruning would save too little.
    let little = self::path("u1 c150 c150 c150 a1");
    let tokens = tokens_of(&little);
    let planned = plan(
        &little,
        CompactionReason::Threshold,
        tokens,
        tokens,
        &settings,
    );
    assert!(matches!(planned, Plan::Summarise(_)), "{planned:?}");
}

#[test]
fn prompts_and_files_are_preserved() {
    let settings = Settings::default();
    let path = path("u1 c1 a1 u1 c20 c20 c20");
    let Plan::Summarise(head) = plan(&path, CompactionReason::Requested, 0, 4_000, &settings)
    else {
        panic!("expected a summary");
    };
    assert_eq!(head.files_read, ["f1", "f5", "f7"]);
    assert!(head.verbatim[0].starts_with("First prompt, verbatim:\nabc"));
    assert!(head.verbatim[1].starts_with("Last prompt, verbatim:\nabc"));
    assert_eq!(head.verbatim.len(), 2);
}

#[test]
fn ten_thousand_entries_can_be_planned() {
    let path = path(&"u1 c2 c2 a1 ".repeat(1_700));
    assert!(path.len() > 10_000);
    let settings = Settings::default();
    let planned = plan(
        &path,
        CompactionReason::Threshold,
        2_000_000,
        180_000,
        &settings,
    );
    assert!(matches!(planned, Plan::Summarise(_)));
}

fn letters() -> impl Strategy<Value = String> {
    let letter = prop::sample::select(vec!["u", "a", "c", "g", "e"]);
    let word = (letter, 1..40_u32).prop_map(|(letter, hundreds)| format!("{letter}{hundreds}"));
    prop::collection::vec(word, 0..40).prop_map(|words| words.join(" "))
}

fn reason() -> impl Strategy<Value = CompactionReason> {
    prop::sample::select(vec![
        CompactionReason::Threshold,
        CompactionReason::Overflow,
        CompactionReason::Requested,
    ])
}

proptest! {
    #[test]
    fn plan_invariants_hold(
        letters in letters(),
        reason in reason(),
        usable in 1_000..40_000_u64,
        rounds in 1..4_usize,
    ) {
        let settings = Settings {
            prune_keep_tokens: 8_000,
            prune_save_tokens: 1_000,
            ..Settings::default()
        };
        let mut path = path(&letters);
        for round in 0..rounds {
            let tokens = tokens_of(&path);
            let planned = plan(&path, reason, tokens, usable, &settings);
            if let Plan::Summarise(head) = &planned {
                // Each entry is covered once, and no entry of the tail.
                let covered: BTreeSet<_> = head.covered.iter().collect();
                prop_assert_eq!(covered.len(), head.covered.len());
                let view = View::new(&path);
                for (at, entry) in path.iter().enumerate() {
                    let is_compaction = matches!(
                        entry.kind,
                        EntryKind::Compaction { .. } | EntryKind::CompactionUndone { .. }
                    );
                    let expected = !view.is_covered(entry) && (is_compaction || at < head.boundary);
                    prop_assert_eq!(covered.contains(&entry.id), expected, "{}", entry.id);
                }
                let tail = &path[head.boundary..];
                prop_assert!(tail.iter().any(|it| tokens::estimate_entry(it) > 0) || tail.is_empty());
                let last = path.iter().rposition(|it| tokens::estimate_entry(it) > 0);
                prop_assert!(last.is_some_and(|last| last >= head.boundary), "no tail");
                // No call is separated from its result.
                let call_ids = |entries: &[Entry], call: bool| -> BTreeSet<String> {
                    let parts = entries.iter().flat_map(|it| match &it.kind {
                        EntryKind::Message(message) => message.parts.iter(),
                        _ => [].iter(),
                    });
                    let ids = parts.filter_map(|part| match part {
                        Part::ToolCall { call_id, .. } if call => Some(call_id.to_string()),
                        Part::ToolResult { call_id, .. } if !call => Some(call_id.to_string()),
                        _ => None,
                    });
                    ids.collect()
                };
                prop_assert_eq!(call_ids(tail, true), call_ids(tail, false));
            }
            let after = apply_plan(path.clone(), &planned);
            match &planned {
                Plan::Nothing => prop_assert_eq!(&after, &path),
                _ => prop_assert!(tokens_of(&after) < tokens, "round {}", round),
            }
            // A second compaction changes nothing.
            let again = plan(&after, reason, tokens_of(&after), usable, &settings);
            if matches!(planned, Plan::Summarise(_)) {
                let only_output = matches!(again, Plan::Nothing | Plan::Prune(_));
                prop_assert!(only_output, "{:?} after {:?}", again, planned);
            }
            path = after;
            // The conversation continues.
            let more = self::path(&letters);
            let length = path.len();
            path.extend(more.into_iter().enumerate().map(|(at, it)| Entry {
                id: format!("e{}", length + at).parse().unwrap(),
                ..it
            }));
        }
    }

    #[test]
    fn undone_compaction_restores_the_history(letters in letters()) {
        let path = path(&letters);
        let planned = plan(&path, CompactionReason::Requested, 0, 4_000, &Settings::default());
        let mut after = apply_plan(path.clone(), &planned);
        if let Plan::Summarise(_) = planned {
            let compaction = after.last().unwrap().id.clone();
            after.push(entry(after.len(), EntryKind::CompactionUndone { compaction }));
        }
        prop_assert_eq!(
            crate::transcript::messages(&after),
            crate::transcript::messages(&path)
        );
    }

    #[test]
    fn incremental_transcript_matches_a_full_read(
        letters in letters(),
        compactions in prop::collection::vec(any::<bool>(), 0..3),
    ) {
        let mut path = path(&letters);
        for undone in compactions {
            let planned = plan(&path, CompactionReason::Requested, 0, 4_000, &Settings::default());
            path = apply_plan(path, &planned);
            if undone && let Some(compaction) = View::new(&path).summary() {
                let compaction = compaction.id.clone();
                path.push(entry(path.len(), EntryKind::CompactionUndone { compaction }));
            }
        }
        // Like the runner: rebuild the transcript if an entry cannot be pushed.
        let mut live: Option<Transcript> = Some(Transcript::default());
        for end in 1..=path.len() {
            let pushed = live.as_mut().is_some_and(|it| it.push(&path[end - 1]));
            if !pushed {
                live = Some(Transcript::new(&path[..end]));
            }
        }
        let live = live.map(|it| it.messages()).unwrap_or_default();
        prop_assert_eq!(&*live, &crate::transcript::messages(&path));
    }
}
