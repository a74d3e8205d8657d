//! `ls`, `mkdir`, `touch`, `rm`, `cp` and `mv`.

use rye_engine::sandbox::SandboxError;

use super::CommandResult;
use super::options::{Options, fail};
use crate::path::{join, split};
use crate::shell::io::Io;
use crate::shell::meter::Halt;

pub(super) async fn ls(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    let options = Options::parse(args, "laA1Rd", "")?;
    let paths = if options.operands.is_empty() {
        vec!["."]
    } else {
        options.operands.clone()
    };
    let mut status = 0;
    let mut dirs = Vec::new();
    for path in &paths {
        let resolved = match io.resolve(path) {
            Ok(resolved) if io.files().exists(&resolved) => resolved,
            Ok(_) => {
                io.report_error(&format!("{path}: no such file or directory"));
                status = 2;
                continue;
            }
            Err(halt) => {
                status |= io.report_failure(Err(halt))? * 2;
                continue;
            }
        };
        if options.has('d') || io.files().is_file(&resolved) {
            let line = format_entry(io, &resolved, path, options.has('l'));
            io.line(&line).await?;
        } else {
            dirs.push(((*path).to_owned(), resolved));
        }
    }
    let with_names = paths.len() > 1 || options.has('R');
    // A stack, so that the contents of a directory directly follow it.
    dirs.reverse();
    let mut first = status == 0 && dirs.len() == paths.len();
    while let Some((display, dir)) = dirs.pop() {
        if with_names {
            let gap = if first { "" } else { "\n" };
            io.line(&format!("{gap}{display}:")).await?;
        }
        first = false;
        let names = io.files().names(&dir);
        io.spend(names.len() * 16).await?;
        if options.has('a') {
            io.line(".").await?;
            io.line("..").await?;
        }
        let mut below = Vec::new();
        for name in names {
            if name.starts_with('.') && !options.has('a') && !options.has('A') {
                continue;
            }
            let path = join(&dir, &name);
            let line = format_entry(io, &path, &name, options.has('l'));
            io.line(&line).await?;
            if options.has('R') && io.files().is_dir(&path) {
                below.push((format!("{}/{name}", display.trim_end_matches('/')), path));
            }
        }
        dirs.extend(below.into_iter().rev());
    }
    Ok(status)
}

fn format_entry(io: &Io<'_, '_>, path: &str, name: &str, long: bool) -> String {
    let files = io.files();
    match (long, files.is_dir(path)) {
        (false, _) => name.to_owned(),
        (true, true) => format!("drwxr-xr-x {:>10} {name}", 0),
        (true, false) => format!("-rw-r--r-- {:>10} {name}", files.size(path)),
    }
}

pub(super) async fn mkdir(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    let options = Options::parse(args, "p", "")?;
    for_each_operand(io, &options, |io, path| {
        let resolved = io.resolve(path)?;
        if options.has('p') {
            io.files().mkdir_all(&resolved)?;
        } else {
            io.files().mkdir(&resolved)?;
        }
        Ok(())
    })
    .await
}

pub(super) async fn touch(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    let options = Options::parse(args, "", "")?;
    for_each_operand(io, &options, |io, path| {
        let resolved = io.resolve(path)?;
        let mut files = io.files();
        if !files.is_dir(&resolved) {
            files.append(&resolved, b"")?;
        }
        Ok(())
    })
    .await
}

pub(super) async fn rm(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    let options = Options::parse(args, "rRf", "")?;
    if options.has('f') && options.operands.is_empty() {
        return Ok(0);
    }
    for_each_operand(io, &options, |io, path| {
        let resolved = io.resolve(path)?;
        let mut files = io.files();
        let is_dir = files.is_dir(&resolved);
        if is_dir && !options.has('r') && !options.has('R') {
            return Err(fail(format!("{path}: is a directory; use -r")));
        }
        match files.remove(&resolved) {
            Err(SandboxError::NotFound(_)) if options.has('f') => Ok(()),
            outcome => Ok(outcome?),
        }
    })
    .await
}

async fn for_each_operand(
    io: &mut Io<'_, '_>,
    options: &Options<'_>,
    act: impl Fn(&mut Io<'_, '_>, &str) -> Result<(), Halt>,
) -> CommandResult {
    if options.operands.is_empty() {
        return Err(fail("missing operand"));
    }
    let mut status = 0;
    for path in &options.operands {
        io.spend(64).await?;
        let outcome = act(io, path);
        status |= io.report_failure(outcome)?;
    }
    Ok(status)
}

pub(super) async fn cp(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    let options = Options::parse(args, "rRfap", "")?;
    let recursive = ['r', 'R', 'a'].iter().any(|flag| options.has(*flag));
    transfer_all(io, &options, recursive, false).await
}

pub(super) async fn mv(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    let options = Options::parse(args, "f", "")?;
    transfer_all(io, &options, true, true).await
}

/// Copies or moves each source to the last operand, or into it if it is a directory.
async fn transfer_all(
    io: &mut Io<'_, '_>,
    options: &Options<'_>,
    recursive: bool,
    is_move: bool,
) -> CommandResult {
    let [sources @ .., target] = options.operands.as_slice() else {
        return Err(fail("expected a source and a target"));
    };
    if sources.is_empty() {
        return Err(fail("expected a source and a target"));
    }
    let into = io.resolve(target)?;
    let is_dir = io.files().is_dir(&into);
    if sources.len() > 1 && !is_dir {
        return Err(fail(format!("{target}: not a directory")));
    }
    let mut status = 0;
    for source in sources {
        let outcome = transfer(io, source, &into, recursive, is_move).await;
        status |= io.report_failure(outcome)?;
    }
    Ok(status)
}

async fn transfer(
    io: &mut Io<'_, '_>,
    source: &str,
    into: &str,
    recursive: bool,
    is_move: bool,
) -> Result<(), Halt> {
    let from = io.resolve(source)?;
    let to = match split(&from) {
        Some((_, name)) if io.files().is_dir(into) => join(into, name),
        _ => into.to_owned(),
    };
    let info = io.files().info(&from)?;
    if from == to {
        return Err(fail(format!("{source}: source and target are the same")));
    }
    if to.starts_with(&join(&from, "")) || from.is_empty() {
        return Err(fail(format!("{source}: cannot be copied into itself")));
    }
    if info.is_dir && !recursive {
        return Err(fail(format!("{source}: is a directory; use -r")));
    }
    let mut all = io.files().below(&from);
    all.insert(0, from.clone());
    for path in all {
        let copy = format!("{to}{}", &path[from.len()..]);
        let size = io.files().size(&path);
        io.spend(size + 64).await?;
        let mut files = io.files();
        if files.is_dir(&path) {
            if !files.is_dir(&copy) {
                files.mkdir(&copy)?;
            }
        } else {
            let bytes = files.read(&path)?;
            files.write(&copy, &bytes)?;
        }
    }
    if is_move {
        io.files().remove(&from)?;
    }
    Ok(())
}
