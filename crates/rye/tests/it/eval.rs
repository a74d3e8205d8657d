//! `rye eval`: tasks with checks, against scripted models.

use crate::support::{TestEnv, json};

const BASIC: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../examples/eval/basic.yaml"
);

fn stderr(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn scripts_solve_all_example_tasks() {
    let env = TestEnv::new();
    let args = [
        "eval",
        BASIC,
        "--scripted",
        "--sandbox",
        "local",
        "--jobs",
        "4",
        "--json",
    ];
    let output = env.run(&args);
    let report = json(&output);
    assert_eq!(report["passed"], report["total"], "{report:#}");
    assert!(report["total"].as_u64() >= Some(30), "{report:#}");
    assert!(
        report["turns"].as_u64() > report["total"].as_u64(),
        "{report:#}"
    );
    // The work is recorded.
    let id = report["tasks"][0]["session"].as_str().unwrap();
    let shown = env.run(&["session", "show", id, "--json"]);
    assert!(shown.status.success(), "{}", stderr(&shown));
}

#[test]
fn failed_checks_and_invalid_tasks_are_reported() {
    let env = TestEnv::new();
    let tasks = "tasks:\n\
        - { id: wrong, prompt: go, checks: [{ answer: true, contains: good }], script: [{ text: bad }] }\n\
        - { id: lazy, prompt: go, checks: [{ file: a.txt }, { tool: write }], script: [{ text: ok }] }\n\
        - { id: unscripted, prompt: go, checks: [{ file: a.txt }] }\n";
    env.write("project/tasks.yaml", tasks);
    let run = |args: &[&str]| {
        let fixed = ["eval", "tasks.yaml", "--scripted", "--sandbox", "virtual"];
        env.run(&[&fixed[..], args].concat())
    };
    let output = run(&["--task", "wrong", "--task", "lazy"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    for expected in [
        "wrong: the answer lacks \"good\"; it is \"bad\"",
        "lazy: a.txt does not exist",
        "lazy: the tool write was not called",
        "0 of 2 passed",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    for args in [&[][..], &["--task", "none"]] {
        assert_eq!(run(args).status.code(), Some(2), "{args:?}");
    }
    env.write(
        "project/tasks.yaml",
        "tasks:\n- { id: x, prompt: go, checks: [] }\n",
    );
    let invalid = run(&[]);
    assert_eq!(invalid.status.code(), Some(2));
    assert!(
        stderr(&invalid).contains("tasks.yaml: task `x`"),
        "{}",
        stderr(&invalid)
    );
}
