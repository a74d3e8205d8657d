//! A command made ready to launch: the strings that `execve` needs, in one block.
//!
//! The block is made here, where memory may be allocated and errors explained,
//! and handed as it is to whoever launches it.

use std::ffi::{CStr, OsStr, OsString, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::command::Command;

/// Why a program could not be started. Nothing ran.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// No program was named.
    #[error("the program's name is empty")]
    NoProgram,
    /// A string with a NUL byte cannot be handed to a process.
    #[error("{what} holds a NUL byte")]
    Nul {
        /// Which string.
        what: String,
    },
    /// A variable's name is empty or holds `=`.
    #[error("{0:?} cannot be the name of an environment variable")]
    VariableName(OsString),
    /// No folder of `PATH` holds such a program.
    #[error("{program:?} was found in no folder of PATH ({path})")]
    NotFound {
        /// What was looked for.
        program: OsString,
        /// Where.
        path: String,
    },
    /// The working folder cannot be entered.
    #[error("cannot run in the folder {}: {source}", path.display())]
    Cwd {
        /// The folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Arguments and environment are larger than the operating system takes.
    #[error(
        "arguments and environment are {bytes} bytes, more than a process can be given; pass large data on standard input"
    )]
    TooLong {
        /// Their size.
        bytes: usize,
    },
    /// The program itself was refused: missing, not executable, not a program.
    #[error("cannot execute {program:?}: {source}")]
    Program {
        /// What was executed.
        program: OsString,
        /// What the operating system said.
        source: io::Error,
    },
    /// The operating system gave no process or descriptor.
    #[error("cannot start a process for {program:?}: {source}")]
    System {
        /// What was to be executed.
        program: OsString,
        /// What the operating system said.
        source: io::Error,
    },
}

/// The step at which a launch failed, as the launching process reports it.
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

/// `program\0 cwd\0 arg0\0 … variable0\0 …`, and how many there are of each.
pub(super) struct Image {
    pub(super) block: Vec<u8>,
    pub(super) argc: u32,
    pub(super) envc: u32,
}

impl Image {
    /// Checks a command's strings, finds its program and lays all of it out.
    pub(super) fn build(command: &Command<'_>) -> Result<Self, LaunchError> {
        let environment = command.environment.with(&command.added);
        let cwd = working_folder(command.cwd.as_deref())?;
        let path = environment.iter().find(|(name, _)| name == "PATH");
        let path = path.map(|(_, value)| value.as_os_str());
        let program = find(&command.program, path, &cwd)?;

        let mut block = Vec::with_capacity(4096);
        push(&mut block, program.as_os_str(), || {
            "the program's name".into()
        })?;
        push(&mut block, cwd.as_os_str(), || "the working folder".into())?;
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

    /// Explains what the launching process reported.
    pub(super) fn explain(
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

/// The folder to run in, absolute: whoever launches the process stands elsewhere.
fn working_folder(given: Option<&Path>) -> Result<PathBuf, LaunchError> {
    match given {
        Some(absolute) if absolute.is_absolute() => Ok(absolute.to_owned()),
        given => {
            let here = std::env::current_dir().map_err(|source| LaunchError::Cwd {
                path: PathBuf::from("."),
                source,
            })?;
            Ok(given.map_or(here.clone(), |relative| here.join(relative)))
        }
    }
}

/// The file to execute. A name with a slash is a path, relative to the folder
/// the process will run in; any other is looked up on the `PATH` that the
/// process will have, not on ours.
fn find(program: &OsStr, path: Option<&OsStr>, cwd: &Path) -> Result<PathBuf, LaunchError> {
    const WITHOUT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
    if program.is_empty() {
        return Err(LaunchError::NoProgram);
    }
    if program.as_bytes().contains(&b'/') || program.as_bytes().contains(&0) {
        return Ok(program.into());
    }
    let path = path.unwrap_or(OsStr::new(WITHOUT_PATH));
    std::env::split_paths(path)
        .map(|folder| cwd.join(folder).join(program))
        .find(|file| file.is_file() && access(file, Access::EXEC_OK).is_ok())
        .ok_or_else(|| LaunchError::NotFound {
            program: program.to_owned(),
            path: path.to_string_lossy().into_owned(),
        })
}

/// A block taken apart again: what `execve` takes, pointing into the block.
pub(super) struct Strings<'b> {
    pub(super) program: &'b CStr,
    pub(super) cwd: &'b CStr,
    /// Ends in a null pointer.
    pub(super) argv: &'b [*const c_char],
    /// Ends in a null pointer.
    pub(super) envp: &'b [*const c_char],
}

/// How many pointers [`Strings::read`] needs room for.
pub(super) fn pointers_needed(argc: u32, envc: u32) -> usize {
    argc as usize + envc as usize + 2
}

impl<'b> Strings<'b> {
    /// Points into `block`, with `table` as the room for the pointers. Gives
    /// `None` for a block that does not hold what was announced. Does not
    /// allocate: it runs in a process forked from one with threads.
    pub(super) fn read(
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
        let strings = Strings::read(&image.block, image.argc, image.envc, &mut table).unwrap();
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
    fn an_image_holds_arguments_and_variables_as_given() {
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
    fn a_block_that_is_cut_is_refused() {
        let image = Image::build(&Command::new("/bin/true").arg("x")).unwrap();
        let mut table = vec![std::ptr::null(); pointers_needed(image.argc, image.envc)];
        for length in 0..image.block.len() {
            let cut = &image.block[..length];
            assert!(Strings::read(cut, image.argc, image.envc, &mut table).is_none());
        }
    }

    #[test]
    fn what_cannot_be_launched_is_told_before_anything_is() {
        let message = |command: Command<'_>| Image::build(&command).err().unwrap().to_string();
        for (command, expected) in [
            (Command::new(""), "the program's name is empty"),
            (Command::new("a\0b"), "the program's name holds a NUL byte"),
            (
                Command::new("/bin/true").args(["a", "b\0"]),
                "argument 2 holds a NUL byte",
            ),
            (
                Command::new("/bin/true").env("A=B", "c"),
                "\"A=B\" cannot be the name of an environment variable",
            ),
            (
                Command::new("/bin/true").env("A", "c\0"),
                "variable A holds a NUL byte",
            ),
            (
                Command::new("/bin/true").cwd("a\0"),
                "the working folder holds a NUL byte",
            ),
            (
                Command::new("no-such-program").env("PATH", "/x:/y"),
                "\"no-such-program\" was found in no folder of PATH (/x:/y)",
            ),
        ] {
            assert_eq!(message(command), expected);
        }
    }
}
