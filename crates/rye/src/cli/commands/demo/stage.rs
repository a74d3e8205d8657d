//! A temporary home and project directory in which the demo runs this program.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use lillux::PathContext as _;
use rye_engine::protocol::{GateId, short_id};
use serde_json::Value;
use tempfile::TempDir;

use crate::cli::failure::Failure;

/// The directories of the demo, removed when dropped, and what has happened so far.
pub(super) struct Stage {
    dir: Option<TempDir>,
    root: PathBuf,
    program: PathBuf,
    pub(super) scenes: Vec<Scene>,
}

/// One part of the demo.
#[derive(Debug, Default)]
pub(super) struct Scene {
    pub(super) title: &'static str,
    pub(super) text: Vec<&'static str>,
    pub(super) commands: Vec<ShownCommand>,
    /// What the scene has shown.
    pub(super) conclusion: Option<String>,
}

/// A command line and its output.
#[derive(Debug)]
pub(super) struct ShownCommand {
    pub(super) line: String,
    pub(super) output: String,
    pub(super) exit: Option<i32>,
}

/// A gate at which an agent waits; short ids.
pub(super) struct PendingGate {
    pub(super) id: String,
    pub(super) session: String,
}

impl Stage {
    pub(super) fn new() -> Result<Self, Failure> {
        let unable =
            |error| Failure::failed("io", format_args!("cannot create a directory: {error}"));
        let dir = tempfile::Builder::new().prefix("rye-demo-").tempdir();
        let dir = dir.map_err(unable)?;
        let root = dir.path().to_owned();
        for name in ["home", "project"] {
            let path = root.join(name);
            std::fs::create_dir(&path).at("create", &path)?;
        }
        let program = std::env::current_exe().map_err(unable)?;
        Ok(Self {
            dir: Some(dir),
            root,
            program,
            scenes: Vec::new(),
        })
    }

    /// Keeps the directory and returns its path.
    pub(super) fn keep(&mut self) -> PathBuf {
        match self.dir.take() {
            Some(dir) => dir.keep(),
            None => self.root.clone(),
        }
    }

    pub(super) fn scene(&mut self, title: &'static str, text: &[&'static str]) {
        self.scenes.push(Scene {
            title,
            text: text.to_vec(),
            ..Scene::default()
        });
    }

    /// Ends the scene with what it has shown.
    pub(super) fn conclude(&mut self, text: impl Into<String>) {
        if let Some(scene) = self.scenes.last_mut() {
            scene.conclusion = Some(text.into());
        }
    }

    fn show(&mut self, line: &str, output: String, exit: Option<i32>) {
        if let Some(scene) = self.scenes.last_mut() {
            scene.commands.push(ShownCommand {
                line: line.to_owned(),
                output,
                exit,
            });
        }
    }

    pub(super) fn path(&self, relative: &str) -> PathBuf {
        self.root.join("project").join(relative)
    }

    /// Writes a file and shows it.
    pub(super) fn write(&mut self, relative: &str, text: &str) -> Result<(), Failure> {
        let path = self.path(relative);
        let dir = path.parent().unwrap_or(&path);
        std::fs::create_dir_all(dir).at("create", dir)?;
        std::fs::write(&path, text).at("write", &path)?;
        self.show(&format!("cat {relative}"), text.to_owned(), Some(0));
        Ok(())
    }

    /// Replaces text in a file and shows the equivalent command.
    pub(super) fn edit(&mut self, relative: &str, from: &str, to: &str) -> Result<(), Failure> {
        let path = self.path(relative);
        let text = std::fs::read_to_string(&path).at("read", &path)?;
        std::fs::write(&path, text.replace(from, to)).at("write", &path)?;
        self.show(
            &format!("sed -i 's/{from}/{to}/' {relative}"),
            String::new(),
            Some(0),
        );
        Ok(())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        let path = std::env::var_os("PATH").unwrap_or_default();
        command
            .args(args)
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.root.join("home"))
            .env("USER", "you")
            .env("NO_COLOR", "1")
            .current_dir(self.root.join("project"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs rye, shows its output and checks its exit code.
    pub(super) fn rye(&mut self, args: &[&str], expected: i32) -> Result<Output, Failure> {
        let line = command_line(args);
        let output = self.command(args).output();
        let output = output.map_err(|error| unexpected(&line, &error.to_string()))?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text += &String::from_utf8_lossy(&output.stderr);
        let exit = output.status.code();
        self.show(&line, text.clone(), exit);
        if exit == Some(expected) {
            Ok(output)
        } else {
            Err(unexpected(&line, &format!("exit code {exit:?}: {text}")))
        }
    }

    /// Runs rye without showing it.
    pub(super) fn run_silently(&self, args: &[&str]) -> Result<Output, Failure> {
        let line = command_line(args);
        let output = self.command(args).output();
        let output = output.map_err(|error| unexpected(&line, &error.to_string()))?;
        if output.status.success() {
            return Ok(output);
        }
        Err(unexpected(&line, &String::from_utf8_lossy(&output.stderr)))
    }

    /// Starts rye, kills it once it has printed the gate at which it waits, and returns the gate.
    pub(super) fn kill_at_gate(&mut self, args: &[&str]) -> Result<PendingGate, Failure> {
        let line = command_line(args);
        let child = self.command(args).spawn();
        let mut child = child.map_err(|error| unexpected(&line, &error.to_string()))?;
        let mut output = String::new();
        let mut gate = None;
        if let Some(stderr) = child.stderr.take() {
            for text in BufReader::new(stderr).lines().map_while(Result::ok) {
                output = output + &text + "\n";
                gate = self.pending_gate()?;
                if gate.as_ref().is_some_and(|gate| text.contains(&gate.id)) {
                    break;
                }
            }
        }
        // SIGKILL, so that the process cannot react.
        let _ = child.kill();
        let _ = child.wait();
        self.show(&format!("{line} &"), output.clone(), Some(0));
        self.show("kill -9 $!", String::new(), Some(0));
        gate.ok_or_else(|| unexpected(&line, &format!("no pending gate: {output}")))
    }

    /// The first pending gate.
    fn pending_gate(&self) -> Result<Option<PendingGate>, Failure> {
        let output = self.run_silently(&["gate", "list", "--json"])?;
        let list: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let gate = &list["gates"][0];
        let (id, session) = (gate["id"].as_str(), gate["origin"]["session"].as_str());
        Ok(id.zip(session).map(|(id, session)| PendingGate {
            id: GateId::from(id.to_owned()).short(),
            session: short_id(session).to_owned(),
        }))
    }

    /// The content of a file in the project.
    pub(super) fn read(&self, relative: &str) -> String {
        std::fs::read_to_string(self.path(relative)).unwrap_or_default()
    }
}

/// The command line as a user would type it.
fn command_line(args: &[&str]) -> String {
    let word = |word: &&str| {
        if word.contains([' ', '\'']) {
            format!("'{word}'")
        } else {
            (*word).to_owned()
        }
    };
    let words = args.iter().map(word);
    format!("rye {}", words.collect::<Vec<_>>().join(" "))
}

fn unexpected(line: &str, why: &str) -> Failure {
    Failure::failed("demo", format_args!("unexpected result of `{line}`: {why}")).hint("rye doctor")
}
