//! Prepares a command for `execve`: all strings in one block of memory.
//!
//! The host builds the block, because it can allocate memory and report errors. The launching
//! process uses it without allocating.

use std::ffi::{CStr, OsStr, OsString, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::command::Command;

/// A program could not be started. No process ran.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The name of the program is empty.
    #[error("the program's name is empty")]
    NoProgram,
    /// A string contains a NUL byte, which `execve` does not allow.
    #[error("{what} contains a NUL byte")]
    Nul {
        /// Which string, for example `argument 2`.
        what: String,
    },
    /// The name of a variable is empty or contains `=`.
    #[error("{0:?} is not a valid name of an environment variable")]
    VariableName(OsString),
    /// No directory in `PATH` contains the program.
    #[error("program {program:?} not found in PATH ({path})")]
    NotFound {
        /// The requested program.
        program: OsString,
        /// The value of `PATH`.
        path: String,
    },
    /// The working directory cannot be entered.
    #[error("cannot enter the working directory {}: {source}", path.display())]
    Cwd {
        /// The working directory.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// Arguments and environment exceed the limit of the operating system.
    #[error(
        "arguments and environment are too large ({bytes} bytes); pass large data on standard input"
    )]
    TooLong {
        /// Size of the arguments and the environment.
        bytes: usize,
    },
    /// The program is missing, not executable, or not a valid executable file.
    #[error("cannot execute {program:?}: {source}")]
    Program {
        /// The program.
        program: OsString,
        /// The operating system's error.
        source: io::Error,
    },
    /// The operating system could not create a process or a descriptor.
    #[error("cannot start a process for {program:?}: {source}")]
    System {
        /// The program.
        program: OsString,
        /// The operating system's error.
        source: io::Error,
    },
}

/// The step at which a launch failed, as reported by the launching process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Step {
    Clone = 1,
    Stdio = 2,
    Cwd = 3,
    Exec = 4,
}

impl Step {
    pub(super) fn from_u32(number: u32) -> Self {
        match number {
            2 => Self::Stdio,
            3 => Self::Cwd,
            4 => Self::Exec,
            _ => Self::Clone,
        }
    }
}

/// The strings of a command in one block.
pub(super) struct Image {
    /// `program\0 cwd\0 arg0\0 … variable0\0 …`
    pub(super) block: Vec<u8>,
    pub(super) argc: u32,
    pub(super) envc: u32,
}

impl Image {
    /// Checks the strings of a command, finds its program and builds the block.
    pub(super) fn build(command: &Command<'_>) -> Result<Self, LaunchError> {
        let environment = command.environment.with_added(&command.variables);
        let cwd = working_dir(command.cwd.as_deref())?;
        let path = environment.iter().find(|(name, _)| name == "PATH");
        let path = path.map(|(_, value)| value.as_os_str());
        let program = find_program(&command.program, path, &cwd)?;

        let mut block = Vec::with_capacity(4096);
        push(&mut block, program.as_os_str(), || {
            "the program's name".into()
        })?;
        push(&mut block, cwd.as_os_str(), || {
            "the working directory".into()
        })?;
        push(&mut block, &command.program, || "the program's name".into())?;
        for (position, arg) in command.args.iter().enumerate() {
            push(&mut block, arg, || format!("argument {}", position + 1))?;
        }
        for (name, value) in &environment {
            if name.is_empty() || name.as_bytes()[1..].contains(&b'=') {
                return Err(LaunchError::VariableName(name.clone()));
            }
            push(&mut block, name, || "the name of a variable".into())?;
            block.pop();
            block.push(b'=');
            push(&mut block, value, || format!("variable {}", name.display()))?;
        }
        let count =
            |n: usize| u32::try_from(n).map_err(|_| LaunchError::TooLong { bytes: usize::MAX });
        let image = Self {
            argc: count(command.args.len() + 1)?,
            envc: count(environment.len())?,
            block,
        };
        count(image.block.len())?;
        Ok(image)
    }

    /// Checks that a command can be started: its strings, its working directory and its program.
    pub(super) fn check(command: &Command<'_>) -> Result<(), LaunchError> {
        Self::build(command)?;
        let cwd = working_dir(command.cwd.as_deref())?;
        if let Err(source) = std::fs::read_dir(&cwd) {
            return Err(LaunchError::Cwd { path: cwd, source });
        }
        if command.program.as_bytes().contains(&b'/') {
            access(cwd.join(&command.program), Access::EXEC_OK).map_err(|error| {
                LaunchError::Program {
                    program: command.program.clone(),
                    source: error.into(),
                }
            })?;
        }
        Ok(())
    }

    /// Turns the failure that the launching process reported into an error.
    pub(super) fn launch_error(
        &self,
        command: &Command<'_>,
        step: Step,
        source: io::Error,
    ) -> LaunchError {
        let program = command.program.clone();
        match step {
            Step::Cwd => LaunchError::Cwd {
                path: command.cwd.clone().unwrap_or_default(),
                source,
            },
            Step::Exec if source.raw_os_error() == Some(libc::E2BIG) => LaunchError::TooLong {
                bytes: self.block.len(),
            },
            Step::Exec => LaunchError::Program { program, source },
            Step::Clone | Step::Stdio => LaunchError::System { program, source },
        }
    }
}

fn push(block: &mut Vec<u8>, text: &OsStr, what: impl Fn() -> String) -> Result<(), LaunchError> {
    if text.as_bytes().contains(&0) {
        return Err(LaunchError::Nul { what: what() });
    }
    block.extend_from_slice(text.as_bytes());
    block.push(0);
    Ok(())
}

/// The absolute working directory: the launching process has another one.
fn working_dir(given: Option<&Path>) -> Result<PathBuf, LaunchError> {
    match given {
        Some(absolute) if absolute.is_absolute() => Ok(absolute.to_owned()),
        given => {
            let current = std::env::current_dir().map_err(|source| LaunchError::Cwd {
                path: PathBuf::from("."),
                source,
            })?;
            Ok(given.map_or(current.clone(), |relative| current.join(relative)))
        }
    }
}

/// Finds the file to execute. A name with a slash is a path relative to the working directory of
/// the new process; any other name is looked up in the new process's `PATH`.
fn find_program(program: &OsStr, path: Option<&OsStr>, cwd: &Path) -> Result<PathBuf, LaunchError> {
    const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
    if program.is_empty() {
        return Err(LaunchError::NoProgram);
    }
    if program.as_bytes().contains(&b'/') || program.as_bytes().contains(&0) {
        return Ok(program.into());
    }
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    std::env::split_paths(path)
        .map(|dir| cwd.join(dir).join(program))
        .find(|file| file.is_file() && access(file, Access::EXEC_OK).is_ok())
        .ok_or_else(|| LaunchError::NotFound {
            program: program.to_owned(),
            path: path.to_string_lossy().into_owned(),
        })
}

/// The arguments of `execve`, pointing into the block of an [`Image`].
pub(super) struct ExecStrings<'b> {
    pub(super) program: &'b CStr,
    pub(super) cwd: &'b CStr,
    /// Ends in a null pointer.
    pub(super) argv: &'b [*const c_char],
    /// Ends in a null pointer.
    pub(super) envp: &'b [*const c_char],
}

/// Length of the pointer table that [`ExecStrings::parse`] needs.
pub(super) fn pointers_needed(argc: u32, envc: u32) -> usize {
    argc as usize + envc as usize + 2
}

impl<'b> ExecStrings<'b> {
    /// Parses a block and fills `table` with pointers into it. Returns `None` if the block does
    /// not contain the given numbers of strings. Does not allocate, because it runs in a process
    /// forked from one with threads.
    pub(super) fn parse(
        block: &'b [u8],
        argc: u32,
        envc: u32,
        table: &'b mut [*const c_char],
    ) -> Option<Self> {
        let mut rest = block;
        let mut next = || {
            let text = CStr::from_bytes_until_nul(rest).ok()?;
            rest = rest.get(text.count_bytes() + 1..)?;
            Some(text)
        };
        let (program, cwd) = (next()?, next()?);
        let (argv, envp) = table.split_at_mut_checked(argc as usize + 1)?;
        let envp = envp.get_mut(..=envc as usize)?;
        for list in [&mut *argv, &mut *envp] {
            let (end, pointers) = list.split_last_mut()?;
            for pointer in pointers {
                *pointer = next()?.as_ptr();
            }
            *end = std::ptr::null();
        }
        Some(Self {
            program,
            cwd,
            argv,
            envp,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(image: &Image) -> Vec<Vec<String>> {
        let mut table = vec![std::ptr::null(); pointers_needed(image.argc, image.envc)];
        let strings = ExecStrings::parse(&image.block, image.argc, image.envc, &mut table).unwrap();
        let mut rest = image.block.as_slice();
        let mut texts = std::iter::from_fn(|| {
            let text = CStr::from_bytes_until_nul(rest).ok()?;
            rest = &rest[text.count_bytes() + 1..];
            Some(text)
        });
        assert_eq!(texts.next(), Some(strings.program));
        assert_eq!(texts.next(), Some(strings.cwd));
        [strings.argv, strings.envp]
            .map(|list| {
                let (end, pointers) = list.split_last().unwrap();
                assert!(end.is_null());
                pointers
                    .iter()
                    .map(|pointer| {
                        let text = texts.next().unwrap();
                        assert_eq!(text.as_ptr(), *pointer);
                        text.to_str().unwrap().to_owned()
                    })
                    .collect()
            })
            .into()
    }

    #[test]
    fn image_contains_arguments_and_variables() {
        let command = Command::new("sh")
            .args(["", "a b", "ü"])
            .environment(super::super::Environment::Exact)
            .env("B", "")
            .env("A", "x=y");
        let image = Image::build(&command).unwrap();
        assert_eq!(
            read_all(&image),
            [vec!["sh", "", "a b", "ü"], vec!["A=x=y", "B="]]
        );
    }

    #[test]
    fn truncated_block_is_rejected() {
        let image = Image::build(&Command::new("/bin/true").arg("x")).unwrap();
        let mut table = vec![std::ptr::null(); pointers_needed(image.argc, image.envc)];
        for length in 0..image.block.len() {
            let cut = &image.block[..length];
            assert!(ExecStrings::parse(cut, image.argc, image.envc, &mut table).is_none());
        }
    }

    #[test]
    fn invalid_commands_are_rejected_before_launch() {
        let message = |command: Command<'_>| Image::build(&command).err().unwrap().to_string();
        for (command, expected) in [
            (Command::new(""), "the program's name is empty"),
            (
                Command::new("a\0b"),
                "the program's name contains a NUL byte",
            ),
            (
                Command::new("/bin/true").args(["a", "b\0"]),
                "argument 2 contains a NUL byte",
            ),
            (
                Command::new("/bin/true").env("A=B", "c"),
                "\"A=B\" is not a valid name of an environment variable",
            ),
            (
                Command::new("/bin/true").env("A", "c\0"),
                "variable A contains a NUL byte",
            ),
            (
                Command::new("/bin/true").cwd("a\0"),
                "the working directory contains a NUL byte",
            ),
            (
                Command::new("no-such-program").env("PATH", "/x:/y"),
                "program \"no-such-program\" not found in PATH (/x:/y)",
            ),
        ] {
            assert_eq!(message(command), expected);
        }
    }
}
