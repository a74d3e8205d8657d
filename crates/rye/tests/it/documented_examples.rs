//! Examples in the documentation work when pasted.

use std::path::Path;
use std::process::Command;

use crate::support::TestEnv;

/// The block of shell commands in a page that contains a text.
fn example(page: &str, part: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let mut blocks = text
        .split("```sh\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next());
    blocks
        .find(|block| block.contains(part))
        .unwrap()
        .to_owned()
}

/// Runs commands in the project of an environment, and returns their standard output.
fn paste(env: &TestEnv, commands: &str) -> String {
    let rye = Path::new(env!("CARGO_BIN_EXE_rye")).parent().unwrap();
    let like = env.command();
    let variables = like
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    let output = Command::new("/bin/bash")
        .args(["-ec", &format!("PATH={}:$PATH\n{commands}", rye.display())])
        .env_clear()
        .envs(variables)
        .current_dir(env.path("project"))
        .output()
        .unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    assert!(output.status.success(), "{out}{err}");
    out
}

#[test]
fn javascript_tool_works_when_pasted() {
    let env = TestEnv::bare();
    assert!(env.run(&["init"]).status.success());
    let output = paste(&env, &example("runtimes.md", "text/shout"));
    assert!(output.contains("\"text\": \"HELLO\""), "{output}");
}

#[test]
fn configuration_for_a_tool_works_when_pasted() {
    let env = TestEnv::bare();
    assert!(env.run(&["init"]).status.success());
    let output = paste(&env, &example("runtimes.md", "CONFIG_RESOLVE"));
    assert!(output.contains("\"rows\": 10"), "{output}");
}
