//! A damaged database: every command reports it and doesn't modify it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{TestEnv, json, kill_at_gate, outcome, transcript_entry};

const PAGE: usize = 4096;

/// Long output, which gets database pages of its own.
const SCRIPT: &str = "\
steps:
  - tool_calls: [{ name: bash, args: { command: 'seq 1 9000' } }]
  - text: done
";

fn env_with_sessions() -> (TestEnv, String) {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    env.set("RYE_STATE_DIR", env.path("state").to_str().unwrap());
    env.write("project/agent.yaml", SCRIPT);
    assert!(env.run(&["init"]).status.success());
    let mut ids = (0..3).map(|_| {
        let output = env.run(&["prompt", "go", "--model", "scripted:agent.yaml", "--json"]);
        outcome(&output)["session"].as_str().unwrap().to_owned()
    });
    let id = ids.next().unwrap();
    assert_eq!(ids.count(), 2);
    // A process that ends checkpoints the log.
    assert!(!env.path("state/sessions.db-wal").exists());
    (env, id)
}

/// Files of a directory with their content.
fn files_in(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    let files = files.filter(|path| path.is_file());
    let mut files: Vec<_> = files
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

/// A page of garbage.
fn noise() -> Vec<u8> {
    (0..PAGE)
        .map(|at| (at * at / 7 + at * 31).to_le_bytes()[0])
        .collect()
}

/// All pages except the first, which contains the schema.
fn pages_after_the_first(bytes: &mut [u8]) -> impl Iterator<Item = &mut [u8]> {
    bytes.chunks_exact_mut(PAGE).skip(1)
}

/// A modification of the file's bytes.
type Damage<'a> = &'a dyn Fn(&mut Vec<u8>);

#[test]
fn damaged_database_is_reported_and_not_modified() {
    let (env, id) = env_with_sessions();
    let database = env.path("state/sessions.db");
    let whole = fs::read(&database).unwrap();
    let damages: [(&str, Damage<'_>); 6] = [
        ("a zeroed header", &|bytes| bytes[..100].fill(0)),
        ("a zeroed first page", &|bytes| bytes[..PAGE].fill(0)),
        ("half of it", &|bytes| bytes.truncate(bytes.len() / 2)),
        ("torn pages", &|bytes| {
            pages_after_the_first(bytes)
                .for_each(|page| page[PAGE / 2..].copy_from_slice(&noise()[PAGE / 2..]));
        }),
        ("pages of a wrong type", &|bytes| {
            pages_after_the_first(bytes).for_each(|page| page[0] = 0x77);
        }),
        ("pages of noise", &|bytes| {
            pages_after_the_first(bytes).for_each(|page| page.copy_from_slice(&noise()));
        }),
    ];
    for (name, damage) in damages {
        let mut bytes = whole.clone();
        damage(&mut bytes);
        fs::write(&database, bytes).unwrap();
        let before = files_in(&env.path("state"));
        for args in [
            &["session", "list"][..],
            &["session", "show", &id],
            &["session", "verify", &id],
            &["session", "export", &id],
            &["prompt", "go", "--model", "scripted:agent.yaml"],
            &["prompt", "go", "--session", &id],
            &["doctor"],
        ] {
            let output = env.run(args);
            let printed = format!(
                "{name}, {args:?}: {}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            assert!(!output.status.success(), "{printed}");
            assert!(
                printed.contains("is damaged") || printed.contains("is not a database"),
                "{printed}"
            );
            assert!(files_in(&env.path("state")) == before, "{printed}");
        }
    }
}

/// If one session's pages are damaged, the others can be read and exported.
#[test]
fn damage_to_one_session_does_not_affect_others() {
    let (env, _) = env_with_sessions();
    let database = env.path("state/sessions.db");
    let mut bytes = fs::read(&database).unwrap();
    // Damage the output of one session.
    let text = br"\n1500\n1501\n";
    let at = bytes.windows(text.len()).position(|it| it == text);
    let page = at.unwrap() / PAGE * PAGE;
    bytes[page..page + PAGE].copy_from_slice(&noise());
    fs::write(&database, &bytes).unwrap();
    let before = files_in(&env.path("state"));
    let listed = json(&env.run(&["session", "list", "--json"]));
    let ids = listed["sessions"].as_array().unwrap().iter();
    let ids: Vec<_> = ids.map(|it| it["id"].as_str().unwrap()).collect();
    let verifies = |id: &&str| env.run(&["session", "verify", id]).status.success();
    let (whole, damaged): (Vec<_>, Vec<_>) = ids.into_iter().partition(verifies);
    assert_eq!((whole.len(), damaged.len()), (2, 1));
    for other in whole {
        let output = env.run(&["session", "export", other, "--output", "o.jsonl"]);
        assert!(output.status.success(), "{output:?}");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(printed.contains("is damaged"), "{printed}");
        assert!(verifies(&"o.jsonl"));
    }
    let id = damaged[0];
    for args in [
        &["session", "show", id][..],
        &["session", "verify", id],
        &["prompt", "go", "--session", id],
        &["prompt", "go", "--model", "scripted:agent.yaml"],
    ] {
        let output = env.run(args);
        assert!(!output.status.success(), "{args:?} {output:?}");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(
            printed.contains("Nothing was changed"),
            "{args:?} {printed}"
        );
    }
    assert!(files_in(&env.path("state")) == before);
}

/// As after restoring a backup next to the log of a killed process.
#[test]
fn log_of_another_database_is_not_applied() {
    let (env, id) = env_with_sessions();
    let mut other = TestEnv::new();
    other.set("RYE_STATE_DIR", other.path("state").to_str().unwrap());
    other.write(
        "project/agent.yaml",
        &SCRIPT.replace("seq 1 9000", "seq 7 8000"),
    );
    let mut prompt = other.command();
    let asked = ["prompt", "go", "--model", "scripted:agent.yaml"];
    prompt.args(asked).args(["--sandbox", "local"]);
    kill_at_gate(&other, prompt.spawn().unwrap());
    let log = env.path("state/sessions.db-wal");
    fs::copy(other.path("state/sessions.db-wal"), &log).unwrap();
    let database = env.path("state/sessions.db");
    let before = (fs::read(&database).unwrap(), fs::read(&log).unwrap());
    for args in [
        &["session", "list"][..],
        &["session", "verify", &id],
        &["prompt", "go", "--model", "scripted:agent.yaml"],
        &["doctor"],
    ] {
        let output = env.run(args);
        let now = (fs::read(&database).unwrap(), fs::read(&log).unwrap());
        assert!(now == before, "{args:?} {output:?}");
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed);
        assert!(printed.contains("is damaged"), "{args:?} {printed}");
    }
    let health = env.run(&["doctor"]);
    let printed = String::from_utf8_lossy(&health.stdout);
    assert!(printed.contains("rye session export"), "{printed}");
    fs::remove_file(log).unwrap();
    let verified = env.run(&["session", "verify", &id]);
    assert!(verified.status.success(), "{verified:?}");
}

/// Further steps could not be recorded.
#[test]
fn removed_database_stops_the_session() {
    let (env, _) = env_with_sessions();
    let state = env.path("state");
    let script = format!(
        "steps:\n  - tool_calls: [{{ name: bash, args: {{ command: 'rm {}/sessions.db*' }} }}]\n  \
         - tool_calls: [{{ name: bash, args: {{ command: 'echo more > more.txt' }} }}]\n  \
         - text: done\n",
        state.display()
    );
    env.write("project/loses.yaml", &script);
    let args = ["prompt", "go", "--model", "scripted:loses.yaml"];
    let output = env.run(&[&args[..], &["--sandbox", "local", "--yes"]].concat());
    let reply = transcript_entry("", &output);
    assert_eq!(output.status.code(), Some(1), "{reply}");
    assert!(
        reply.contains("was removed or replaced while it was in use"),
        "{reply}"
    );
    assert!(!env.path("project/more.txt").exists(), "{reply}");
}
