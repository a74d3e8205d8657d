//! `TestEnv`: a temporary home and project in which tests run the binary.

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// Compares a transcript with its snapshot; values that differ between runs are filtered.
macro_rules! assert_transcript {
    ($transcript:expr) => {
        insta::with_settings!({
            omit_expression => true,
            filters => [
                (r"/tmp/\.tmp\w+", "TMP"),
                (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z", "TIME"),
                (r"\b\d{8}-\d{6}-[0-9a-f]{4}\b", "RUN"),
                (r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\b", "ID"),
                (r"\b\d{3}-[0-9a-f]{4}\b", "RUN"),
                (r"\b[0-9a-f]{8}\b", "ID"),
                (r"in use by process \d+ on \S+", "in use by process PID on HOST"),
                // A step of a graph and its duration.
                (r"(?m)^([✓✗=?] \S+) +\d+(\.\d)? (µs|ms|s)$", "$1 T"),
                (r"(?m)^([✓✗=?] \S+) +\d+(\.\d)? (µs|ms|s) ", "$1 T "),
                (r#""duration_ms":\d+"#, r#""duration_ms":N"#),
                (r"\bat \d+\.\d{3} ms", "at T"),
                (r"timed out after \d+\.\d s", "timed out after T"),
                (r"\b[0-9a-f]{64}\b", "HASH"),
                (r"\b[A-Za-z0-9_-]{86}\b", "SIGNATURE"),
                (r"\b[0-9a-f]{16}\b", "FINGERPRINT"),
                // Partially shown signature lines.
                (r"rye:signed:TIME:[0-9a-f]{30,}\b", "rye:signed:TIME:HASH"),
                (r"[0-9a-f]{30,}:[\w-]{30,}", "HASH:SIGNATURE"),
                (r"[\w-]{30,}:FINGERPRINT;item", "SIGNATURE:FINGERPRINT;item"),
                // The number of system items changes.
                (r"(system items *|system items.*?detail.:.)\d+ verified", "${1}N verified"),
                (r"Landlock version \d+", "Landlock version N"),
                (r#""searched":\d+"#, r#""searched":N"#),
                (r"wrote \d+ signed", "wrote N signed"),
                // Sorted by fingerprint, which differs between runs.
                (r"trusted keys: (?:(?:, )?FINGERPRINT \((?:[^()]|\([^()]*\))*\)){2}", "trusted keys: KEYS"),
                (r#""trusted":\[[^\]]*\]"#, r#""trusted":[KEYS]"#),
            ],
        }, {
            insta::assert_snapshot!($transcript);
        });
    };
}
pub(crate) use assert_transcript;

/// A temporary home and project, removed on drop.
pub(crate) struct TestEnv {
    folder: TempDir,
    variables: Vec<(String, String)>,
}

impl TestEnv {
    /// An empty home, and a project with an empty `.ai/`.
    pub(crate) fn new() -> Self {
        let env = Self::bare();
        fs::create_dir(env.path("project/.ai")).unwrap();
        env
    }

    /// An empty home and an empty project directory.
    pub(crate) fn bare() -> Self {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        fs::create_dir(folder.path().join("user")).unwrap();
        fs::create_dir(folder.path().join("project")).unwrap();
        let home = folder.path().join("user").to_str().unwrap().to_owned();
        let path = "/usr/local/bin:/usr/bin:/bin".to_owned();
        let variables = vec![("HOME".to_owned(), home), ("PATH".to_owned(), path)];
        Self { folder, variables }
    }

    /// Sets an environment variable for later commands.
    pub(crate) fn set(&mut self, name: &str, value: impl AsRef<str>) {
        self.unset(name);
        let value = value.as_ref().to_owned();
        self.variables.push((name.to_owned(), value));
    }

    pub(crate) fn unset(&mut self, name: &str) {
        self.variables.retain(|(other, _)| other != name);
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join(relative)
    }

    pub(crate) fn read(&self, relative: &str) -> String {
        fs::read_to_string(self.path(relative)).unwrap()
    }

    /// Writes a file and creates its parent directories.
    pub(crate) fn write(&self, relative: &str, text: &str) {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// `rye` in the project, with only the variables of this environment.
    pub(crate) fn command(&self) -> Command {
        self.command_of(env!("CARGO_BIN_EXE_rye"))
    }

    /// Another program in the project, with only the variables of this environment.
    pub(crate) fn command_of(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .envs(self.variables.iter().map(|(n, v)| (n, v)))
            .current_dir(self.path("project"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command().args(args).output().unwrap()
    }

    /// Runs `rye` with input on standard input.
    pub(crate) fn feed(&self, args: &[&str], input: &[u8]) -> Output {
        let mut child = self
            .command()
            .args(args)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that rejects its arguments doesn't read its input.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    /// Runs commands and returns each with its output and exit code. Arguments are
    /// separated by spaces.
    pub(crate) fn transcript(&self, calls: &[&str]) -> String {
        let mut transcript = String::new();
        for typed in calls {
            let args: Vec<_> = typed.split(' ').filter(|word| !word.is_empty()).collect();
            transcript += &transcript_entry(&format!("rye {typed}"), &self.run(&args));
        }
        transcript
    }
}

/// A command with its output and exit code.
pub(crate) fn transcript_entry(typed: &str, output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let err = match err.as_ref() {
        "" => String::new(),
        err => format!("--- stderr\n{err}"),
    };
    let code = output.status.code().unwrap();
    format!("$ {typed}\n{out}{err}--- exit {code}\n\n")
}

/// The outcome of `rye prompt --json`: its last line.
pub(crate) fn outcome(output: &Output) -> serde_json::Value {
    let text = std::str::from_utf8(&output.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let mut lines: Vec<serde_json::Value> = lines.collect();
    let last = lines.pop().unwrap();
    assert_eq!(last["type"], "outcome", "{text}");
    assert!(lines.iter().all(|line| line["type"] != "outcome"), "{text}");
    last
}

/// Reads standard error of a command until it names a pending gate, and returns the gate.
pub(crate) fn wait_for_gate(env: &TestEnv, errors: &mut impl BufRead) -> serde_json::Value {
    let (mut line, mut output) = (String::new(), String::new());
    while errors.read_line(&mut line).unwrap() > 0 {
        let list = json(&env.run(&["gate", "list", "--json"]));
        let mut gates = list["gates"].as_array().unwrap().iter();
        if let Some(gate) = gates.find(|gate| line.contains(&short_gate_id(gate))) {
            return gate.clone();
        }
        output += &line;
        line.clear();
    }
    unreachable!("the command ended without opening a gate: {output}");
}

/// The short id of a gate in `rye gate list --json`.
pub(crate) fn short_gate_id(gate: &serde_json::Value) -> String {
    rye_engine::protocol::GateId::from(gate["id"].as_str().unwrap().to_owned()).short()
}

/// Waits until a command waits at a gate, and kills it.
pub(crate) fn kill_at_gate(env: &TestEnv, mut child: Child) {
    wait_for_gate(env, &mut BufReader::new(child.stderr.take().unwrap()));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The single JSON document that a command printed.
pub(crate) fn json(output: &Output) -> serde_json::Value {
    let text = std::str::from_utf8(&output.stdout).unwrap();
    assert_eq!(text.matches('\n').count(), 1, "{text}");
    serde_json::from_str(text).unwrap()
}
