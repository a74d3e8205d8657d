//! A home and a project that nobody else uses, and this program in them.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use lillux::At as _;
use tempfile::TempDir;

use crate::cli::failure::Failure;

/// Where it all happens. Gone when dropped, unless kept.
pub(super) struct Stage {
    folder: Option<TempDir>,
    root: PathBuf,
    program: PathBuf,
    pub(super) scenes: Vec<Scene>,
}

/// One part of the story.
#[derive(Debug, Default)]
pub(super) struct Scene {
    pub(super) title: &'static str,
    pub(super) why: Vec<&'static str>,
    pub(super) calls: Vec<Call>,
    /// What was just seen, in a line.
    pub(super) seen: Option<String>,
}

/// A command, and what came of it.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) typed: String,
    pub(super) printed: String,
    pub(super) exit: Option<i32>,
}

impl Stage {
    pub(super) fn set() -> Result<Self, Failure> {
        let unable = |error| Failure::failed("io", format_args!("cannot make a folder: {error}"));
        let folder = tempfile::Builder::new().prefix("rye-demo-").tempdir();
        let folder = folder.map_err(unable)?;
        let root = folder.path().to_owned();
        for name in ["home", "project"] {
            let path = root.join(name);
            std::fs::create_dir(&path).at("make", &path)?;
        }
        let program = std::env::current_exe().map_err(unable)?;
        Ok(Self {
            folder: Some(folder),
            root,
            program,
            scenes: Vec::new(),
        })
    }

    /// Leaves all of it where it is.
    pub(super) fn keep(&mut self) -> PathBuf {
        match self.folder.take() {
            Some(folder) => folder.keep(),
            None => self.root.clone(),
        }
    }

    pub(super) fn scene(&mut self, title: &'static str, why: &[&'static str]) {
        self.scenes.push(Scene {
            title,
            why: why.to_vec(),
            ..Scene::default()
        });
    }

    /// What the scene has shown.
    pub(super) fn seen(&mut self, what: impl Into<String>) {
        if let Some(scene) = self.scenes.last_mut() {
            scene.seen = Some(what.into());
        }
    }

    fn tell(&mut self, typed: &str, printed: String, exit: Option<i32>) {
        if let Some(scene) = self.scenes.last_mut() {
            scene.calls.push(Call {
                typed: typed.to_owned(),
                printed,
                exit,
            });
        }
    }

    pub(super) fn path(&self, relative: &str) -> PathBuf {
        self.root.join("project").join(relative)
    }

    /// Writes a file, and shows it.
    pub(super) fn write(&mut self, relative: &str, text: &str) -> Result<(), Failure> {
        let path = self.path(relative);
        let folder = path.parent().unwrap_or(&path);
        std::fs::create_dir_all(folder).at("make", folder)?;
        std::fs::write(&path, text).at("write", &path)?;
        self.tell(&format!("cat {relative}"), text.to_owned(), Some(0));
        Ok(())
    }

    /// Changes a file without a word to anybody.
    pub(super) fn change(&mut self, relative: &str, from: &str, to: &str) -> Result<(), Failure> {
        let path = self.path(relative);
        let text = std::fs::read_to_string(&path).at("read", &path)?;
        std::fs::write(&path, text.replace(from, to)).at("write", &path)?;
        self.tell(
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

    /// Runs this program, shows what it prints, and expects this exit code.
    pub(super) fn rye(&mut self, args: &[&str], expected: i32) -> Result<Output, Failure> {
        let typed = typed(args);
        let output = self.command(args).output();
        let output = output.map_err(|error| broken(&typed, &error.to_string()))?;
        let mut printed = String::from_utf8_lossy(&output.stdout).into_owned();
        printed += &String::from_utf8_lossy(&output.stderr);
        let exit = output.status.code();
        self.tell(&typed, printed.clone(), exit);
        if exit == Some(expected) {
            Ok(output)
        } else {
            Err(broken(
                &typed,
                &format!("it ended with {exit:?}: {printed}"),
            ))
        }
    }

    /// Runs this program without telling of it.
    pub(super) fn prepare(&self, args: &[&str]) -> Result<(), Failure> {
        let typed = typed(args);
        let output = self.command(args).output();
        let output = output.map_err(|error| broken(&typed, &error.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        Err(broken(&typed, &String::from_utf8_lossy(&output.stderr)))
    }

    /// Starts this program, and kills it as soon as it waits for a person. Gives the gate.
    pub(super) fn killed_at_a_gate(&mut self, args: &[&str]) -> Result<String, Failure> {
        let typed = typed(args);
        let child = self.command(args).spawn();
        let mut child = child.map_err(|error| broken(&typed, &error.to_string()))?;
        let mut printed = String::new();
        let mut gate = None;
        if let Some(errors) = child.stderr.take() {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                printed = printed + &line + "\n";
                if let Some((_, id)) = line.split_once("rye gate approve ") {
                    gate = Some(id.trim().to_owned());
                    break;
                }
            }
        }
        // SIGKILL: it has no chance to say or write anything more.
        let _ = child.kill();
        let _ = child.wait();
        self.tell(&format!("{typed} &"), printed.clone(), Some(0));
        self.tell("kill -9 $!", String::new(), Some(0));
        gate.ok_or_else(|| broken(&typed, &format!("it did not wait: {printed}")))
    }

    /// What a file of the project holds.
    pub(super) fn read(&self, relative: &str) -> String {
        std::fs::read_to_string(self.path(relative)).unwrap_or_default()
    }
}

/// As a person would type it.
fn typed(args: &[&str]) -> String {
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

fn broken(typed: &str, why: &str) -> Failure {
    Failure::failed(
        "demo",
        format_args!("`{typed}` did not go as it should: {why}"),
    )
    .hint("rye doctor")
}
