//! A database that is damaged: each command says so, and leaves it as it is.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{TestEnv, json, kill_at_gate, outcome, told};

const PAGE: usize = 4096;

/// Output of some length, so that the database has pages of its own for it.
const SCRIPT: &str = "\
steps:
  - tool_calls: [{ name: bash, args: { command: 'seq 1 9000' } }]
  - text: done
";

fn ready() -> (TestEnv, String) {
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
    // Whoever ends leaves all of it in the one file.
    assert!(!env.path("state/sessions.db-wal").exists());
    (env, id)
}

/// What lies in a folder, by name and content.
fn lies_in(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    let files = files.filter(|path| path.is_file());
    let mut files: Vec<_> = files
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

/// Bytes that mean nothing.
fn noise() -> Vec<u8> {
    (0..PAGE)
        .map(|at| (at * at / 7 + at * 31).to_le_bytes()[0])
        .collect()
}

/// All but the first pages, which say where the tables are.
fn rest(bytes: &mut [u8]) -> impl Iterator<Item = &mut [u8]> {
    bytes.chunks_exact_mut(PAGE).skip(1)
}

/// What is done to a file.
type Damage<'a> = &'a dyn Fn(&mut Vec<u8>);

#[test]
fn a_damaged_database_is_told_of_and_stays_as_it_is() {
    let (env, id) = ready();
    let database = env.path("state/sessions.db");
    let whole = fs::read(&database).unwrap();
    let damages: [(&str, Damage<'_>); 6] = [
        ("a zeroed header", &|bytes| bytes[..100].fill(0)),
        ("a zeroed first page", &|bytes| bytes[..PAGE].fill(0)),
        ("half of it", &|bytes| bytes.truncate(bytes.len() / 2)),
        ("torn pages", &|bytes| {
            rest(bytes).for_each(|page| page[PAGE / 2..].copy_from_slice(&noise()[PAGE / 2..]));
        }),
        ("pages of a wrong type", &|bytes| {
            rest(bytes).for_each(|page| page[0] = 0x77);
        }),
        ("pages of noise", &|bytes| {
            rest(bytes).for_each(|page| page.copy_from_slice(&noise()));
        }),
    ];
    for (name, damage) in damages {
        let mut bytes = whole.clone();
        damage(&mut bytes);
        fs::write(&database, bytes).unwrap();
        let before = lies_in(&env.path("state"));
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
            let told = format!(
                "{name}, {args:?}: {}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            assert!(!output.status.success(), "{told}");
            assert!(
                told.contains("is damaged") || told.contains("is not a database"),
                "{told}"
            );
            assert!(lies_in(&env.path("state")) == before, "{told}");
        }
    }
}

/// Where one session's pages are damaged, the others can be read and taken elsewhere.
#[test]
fn damage_to_one_session_hides_no_other() {
    let (env, _) = ready();
    let database = env.path("state/sessions.db");
    let mut bytes = fs::read(&database).unwrap();
    // In the output of one of them, which has pages of its own.
    let text = br"\n1500\n1501\n";
    let at = bytes.windows(text.len()).position(|it| it == text);
    let page = at.unwrap() / PAGE * PAGE;
    bytes[page..page + PAGE].copy_from_slice(&noise());
    fs::write(&database, &bytes).unwrap();
    let before = lies_in(&env.path("state"));
    let listed = json(&env.run(&["session", "list", "--json"]));
    let ids = listed["sessions"].as_array().unwrap().iter();
    let ids: Vec<_> = ids.map(|it| it["id"].as_str().unwrap()).collect();
    let verifies = |id: &&str| env.run(&["session", "verify", id]).status.success();
    let (whole, damaged): (Vec<_>, Vec<_>) = ids.into_iter().partition(verifies);
    assert_eq!((whole.len(), damaged.len()), (2, 1));
    for other in whole {
        let output = env.run(&["session", "export", other, "--output", "o.jsonl"]);
        assert!(output.status.success(), "{output:?}");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("is damaged"), "{told}");
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
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("Nothing was changed"), "{args:?} {told}");
    }
    assert!(lies_in(&env.path("state")) == before);
}

/// As when the file is put back from a backup, and the log of a process that was killed is not.
#[test]
fn a_log_of_another_database_is_not_put_into_this_one() {
    let (env, id) = ready();
    let mut other = TestEnv::new();
    other.set("RYE_STATE_DIR", other.path("state").to_str().unwrap());
    other.write(
        "project/agent.yaml",
        &SCRIPT.replace("seq 1 9000", "seq 7 8000"),
    );
    let mut prompt = other.command();
    let asked = ["prompt", "go", "--model", "scripted:agent.yaml"];
    prompt.args(asked).args(["--sandbox", "local"]);
    kill_at_gate(&env, prompt.spawn().unwrap());
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
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told);
        assert!(told.contains("is damaged"), "{args:?} {told}");
    }
    let health = env.run(&["doctor"]);
    let told = String::from_utf8_lossy(&health.stdout);
    assert!(told.contains("rye session export"), "{told}");
    fs::remove_file(log).unwrap();
    let verified = env.run(&["session", "verify", &id]);
    assert!(verified.status.success(), "{verified:?}");
}

/// What would be done from there on stands nowhere.
#[test]
fn whoever_loses_the_database_in_the_middle_stops_and_says_why() {
    let (env, _) = ready();
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
    let said = told("", &output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("was removed or replaced while it was in use"),
        "{said}"
    );
    assert!(!env.path("project/more.txt").exists(), "{said}");
}
