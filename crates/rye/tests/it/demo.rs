//! `rye demo` on a machine without any setup.

use crate::support::{TestEnv, json};

#[test]
fn demo_runs_and_leaves_nothing_behind() {
    let mut env = TestEnv::bare();
    let folder = env.path("tmp");
    std::fs::create_dir(&folder).unwrap();
    env.set("TMPDIR", folder.to_str().unwrap());
    let output = env.run(&["demo"]);
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in [
        "content does not match its signature",
        "kill -9 $!",
        "waiting for approval: rye:release: ship version 2",
        "Done. releases so far: 2",
        "The tool ran exactly once",
        "1 receipt, signed by",
        "the file is damaged",
    ] {
        assert!(printed.contains(part), "{part} was not told:\n{printed}");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    // The user's home is untouched.
    assert_eq!(std::fs::read_dir(env.path("user")).unwrap().count(), 0);
}

#[test]
fn kept_directory_contains_the_project() {
    let env = TestEnv::bare();
    let output = env.run(&["demo", "--keep", "--json"]);
    let printed = json(&output);
    assert_eq!(printed["scenes"].as_array().unwrap().len(), 5);
    let folder = std::path::PathBuf::from(printed["directory"].as_str().unwrap());
    let released = std::fs::read_to_string(folder.join("project/releases.txt")).unwrap();
    assert_eq!(released, "released\nreleased\n");
    std::fs::remove_dir_all(folder).unwrap();
}
