//! Commands about files and folders.

use rye_engine::sandbox::SandboxError;

use super::Ran;
use super::options::{Options, fail};
use crate::path::{join, split};
use crate::shell::io::Io;
use crate::shell::meter::Halt;

pub(super) async fn list(io: &mut Io<'_, '_>, args: &[String]) -> Ran {
    let options = Options::read(args, "laA1Rd", "")?;
    let paths = if options.rest.is_empty() {
        vec!["."]
    } else {
        options.rest.clone()
    };
    let mut status = 0;
    let mut folders = Vec::new();
    for path in &paths {
        let resolved = match io.resolve(path) {
            Ok(resolved) if io.files().exists(&resolved) => resolved,
            Ok(_) => {
                io.complain(&format!("there is no {path}"));
                status = 2;
                continue;
            }
            Err(halt) => {
                status |= io.or_complain(Err(halt))? * 2;
                continue;
            }
        };
        if options.has('d') || io.files().is_file(&resolved) {
            let line = row(io, &resolved, path, options.has('l'));
            io.line(&line).await?;
        } else {
            folders.push(((*path).to_owned(), resolved));
        }
    }
    let with_names = paths.len() > 1 || options.has('R');
    // The last is the next, so that what is below a folder comes right after it.
    folders.reverse();
    let mut first = status == 0 && folders.len() == paths.len();
    while let Some((shown, folder)) = folders.pop() {
        if with_names {
            let gap = if first { "" } else { "\n" };
            io.line(&format!("{gap}{shown}:")).await?;
        }
        first = false;
        let names = io.files().names(&folder);
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
            let path = join(&folder, &name);
            let line = row(io, &path, &name, options.has('l'));
            io.line(&line).await?;
            if options.has('R') && io.files().is_folder(&path) {
                below.push((format!("{}/{name}", shown.trim_end_matches('/')), path));
            }
        }
        folders.extend(below.into_iter().rev());
    }
    Ok(status)
}

fn row(io: &Io<'_, '_>, path: &str, name: &str, long: bool) -> String {
    let files = io.files();
    match (long, files.is_folder(path)) {
        (false, _) => name.to_owned(),
        (true, true) => format!("drwxr-xr-x {:>10} {name}", 0),
        (true, false) => format!("-rw-r--r-- {:>10} {name}", files.size(path)),
    }
}

pub(super) async fn make(io: &mut Io<'_, '_>, args: &[String]) -> Ran {
    let options = Options::read(args, "p", "")?;
    each(io, &options, |io, path| {
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

pub(super) async fn touch(io: &mut Io<'_, '_>, args: &[String]) -> Ran {
    let options = Options::read(args, "", "")?;
    each(io, &options, |io, path| {
        let resolved = io.resolve(path)?;
        let mut files = io.files();
        if !files.is_folder(&resolved) {
            files.append(&resolved, b"")?;
        }
        Ok(())
    })
    .await
}

pub(super) async fn remove(io: &mut Io<'_, '_>, args: &[String]) -> Ran {
    let options = Options::read(args, "rRf", "")?;
    if options.has('f') && options.rest.is_empty() {
        return Ok(0);
    }
    each(io, &options, |io, path| {
        let resolved = io.resolve(path)?;
        let mut files = io.files();
        let is_folder = files.is_folder(&resolved);
        if is_folder && !options.has('r') && !options.has('R') {
            return Err(fail(format!("{path}: it is a folder; add -r")));
        }
        match files.remove(&resolved) {
            Err(SandboxError::NotFound(_)) if options.has('f') => Ok(()),
            outcome => Ok(outcome?),
        }
    })
    .await
}

async fn each(
    io: &mut Io<'_, '_>,
    options: &Options<'_>,
    act: impl Fn(&mut Io<'_, '_>, &str) -> Result<(), Halt>,
) -> Ran {
    if options.rest.is_empty() {
        return Err(fail("it takes a path"));
    }
    let mut status = 0;
    for path in &options.rest {
        io.spend(64).await?;
        let outcome = act(io, path);
        status |= io.or_complain(outcome)?;
    }
    Ok(status)
}

pub(super) async fn copy(io: &mut Io<'_, '_>, args: &[String]) -> Ran {
    let options = Options::read(args, "rRfap", "")?;
    let recursive = ['r', 'R', 'a'].iter().any(|flag| options.has(*flag));
    onto(io, &options, recursive, false).await
}

pub(super) async fn rename(io: &mut Io<'_, '_>, args: &[String]) -> Ran {
    let options = Options::read(args, "f", "")?;
    onto(io, &options, true, true).await
}

/// Copies or moves each path onto the last, or into it if it is a folder.
async fn onto(io: &mut Io<'_, '_>, options: &Options<'_>, recursive: bool, moves: bool) -> Ran {
    let [sources @ .., target] = options.rest.as_slice() else {
        return Err(fail("it takes a source and a target"));
    };
    if sources.is_empty() {
        return Err(fail("it takes a source and a target"));
    }
    let into = io.resolve(target)?;
    let is_folder = io.files().is_folder(&into);
    if sources.len() > 1 && !is_folder {
        return Err(fail(format!("{target}: it is not a folder")));
    }
    let mut status = 0;
    for source in sources {
        let outcome = transfer(io, source, &into, recursive, moves).await;
        status |= io.or_complain(outcome)?;
    }
    Ok(status)
}

async fn transfer(
    io: &mut Io<'_, '_>,
    source: &str,
    into: &str,
    recursive: bool,
    moves: bool,
) -> Result<(), Halt> {
    let from = io.resolve(source)?;
    let to = match split(&from) {
        Some((_, name)) if io.files().is_folder(into) => join(into, name),
        _ => into.to_owned(),
    };
    let info = io.files().info(&from)?;
    if from == to {
        return Err(fail(format!("{source}: both are the same")));
    }
    if to.starts_with(&join(&from, "")) || from.is_empty() {
        return Err(fail(format!("{source}: it cannot be in itself")));
    }
    if info.is_folder && !recursive {
        return Err(fail(format!("{source}: it is a folder; add -r")));
    }
    let mut all = io.files().below(&from);
    all.insert(0, from.clone());
    for path in all {
        let copy = format!("{to}{}", &path[from.len()..]);
        let size = io.files().size(&path);
        io.spend(size + 64).await?;
        let mut files = io.files();
        if files.is_folder(&path) {
            if !files.is_folder(&copy) {
                files.mkdir(&copy)?;
            }
        } else {
            let bytes = files.read(&path)?;
            files.write(&copy, &bytes)?;
        }
    }
    if moves {
        io.files().remove(&from)?;
    }
    Ok(())
}
