//! `echo`, `pwd`, `seq`, `sleep`, and the commands that change the state of the shell.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::CommandResult;
use super::options::{Options, fail};
use crate::shell::expand::split_line;
use crate::shell::io::Io;
use crate::shell::meter::Halt;
use crate::shell::parse::is_name;
use crate::shell::run::display_path;

pub(super) async fn echo(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    let is_option = |arg: &&String| matches!(arg.as_str(), "-n" | "-e" | "-ne" | "-en");
    let options: Vec<_> = args.iter().take_while(is_option).collect();
    let has = |letter: char| options.iter().any(|option| option.contains(letter));
    let mut text = args[options.len()..].join(" ");
    if has('e') {
        text = unescape(&text);
    }
    if !has('n') {
        text.push('\n');
    }
    io.print(text.as_bytes()).await?;
    Ok(0)
}

/// Replaces escape sequences such as `\n`.
pub(super) fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(ch) = chars.next() {
        if ch != '\\' {
            plain.push(ch);
            continue;
        }
        match chars.next() {
            Some('n') => plain.push('\n'),
            Some('t') => plain.push('\t'),
            Some('r') => plain.push('\r'),
            Some('0') => plain.push('\0'),
            Some('a') => plain.push('\u{7}'),
            Some('\\') | None => plain.push('\\'),
            Some(other) => plain.extend(['\\', other]),
        }
    }
    plain
}

pub(super) async fn pwd(io: &mut Io<'_, '_>) -> CommandResult {
    let cwd = display_path(&io.shell.state.cwd);
    io.line(&cwd).await?;
    Ok(0)
}

pub(super) fn cd(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    let path = match args {
        [] => String::new(),
        [path] => io.resolve(path)?,
        _ => return Err(fail("expected at most one directory")),
    };
    if !io.files().info(&path)?.is_dir {
        return Err(fail(format!("{path}: not a directory")));
    }
    io.shell.state.cwd = path;
    io.shell.update_pwd();
    Ok(0)
}

/// Ends the script, or the function if it is called `return`.
pub(super) fn exit(io: &Io<'_, '_>, args: &[String]) -> CommandResult {
    let code = match args.first() {
        Some(code) => code
            .parse::<i32>()
            .map_err(|_| fail(format!("`{code}` is not a number")))?,
        None => io.shell.status,
    };
    match io.name.as_str() {
        "return" if io.shell.state.locals.is_empty() => Err(fail("no function is running")),
        "return" => Err(Halt::Return(code & 0xff)),
        _ => Err(Halt::Exit(code & 0xff)),
    }
}

/// `break` and `continue`.
pub(super) fn leave_loop(io: &Io<'_, '_>, args: &[String]) -> CommandResult {
    let levels = match args.first() {
        Some(levels) => levels.parse().ok().filter(|levels| *levels > 0),
        None => Some(1),
    };
    let levels: u32 = levels.ok_or_else(|| fail("expected a number of loops"))?;
    let levels = levels.min(io.shell.state.loops);
    match (levels, io.name.as_str()) {
        (0, _) => Err(fail("no loop is running")),
        (levels, "break") => Err(Halt::Break(levels)),
        (levels, _) => Err(Halt::Continue(levels)),
    }
}

/// `export` and `local`.
pub(super) fn export(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    for arg in args {
        let (name, value) = match arg.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (arg.as_str(), None),
        };
        if !is_name(name) {
            return Err(fail(format!("`{name}` is not a valid name")));
        }
        let state = &mut io.shell.state;
        if io.name == "local" {
            let locals = state.locals.last_mut();
            let locals = locals.ok_or_else(|| fail("no function is running"))?;
            locals.push((name.to_owned(), state.variables.remove(name)));
        }
        if let Some(value) = value {
            state.variables.insert(name.to_owned(), value.to_owned());
        }
    }
    Ok(0)
}

pub(super) fn shift(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    let count = args.first().map_or(Ok(1), |count| count.parse());
    let count: usize = count.map_err(|_| fail("expected a number"))?;
    let arguments = &mut io.shell.state.arguments;
    if count > arguments.len() {
        return Ok(1);
    }
    arguments.drain(..count);
    Ok(0)
}

/// Sets the options `-e`, `-u` and `-o pipefail`, or the positional parameters.
pub(super) fn set(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    let state = &mut io.shell.state;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let (is_on, letters) = match (arg.strip_prefix('-'), arg.strip_prefix('+')) {
            (Some("-"), _) => {
                state.arguments = args.cloned().collect();
                return Ok(0);
            }
            (Some(letters), _) => (true, letters),
            (None, Some(letters)) => (false, letters),
            (None, None) => {
                state.arguments = [arg].into_iter().chain(args).cloned().collect();
                return Ok(0);
            }
        };
        for letter in letters.chars() {
            match letter {
                'e' => state.errexit = is_on,
                'u' => state.nounset = is_on,
                'o' if args.next().is_some_and(|name| name == "pipefail") => {
                    state.pipefail = is_on;
                }
                _ => return Err(fail("only -e, -u and -o pipefail are supported")),
            }
        }
    }
    Ok(0)
}

/// Reads a line into variables.
pub(super) async fn read(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    let options = Options::parse(args, "r", "p")?;
    let line = io.stdin_line();
    io.spend(line.len()).await?;
    let text = String::from_utf8_lossy(&line);
    let mut text = text.trim_end_matches('\n').to_owned();
    if !options.has('r') {
        text = text.replace('\\', "");
    }
    let names = match options.operands.as_slice() {
        [] => &["REPLY"],
        names => names,
    };
    let separators = io.shell.separators();
    let values = split_line(&text, &separators, names.len());
    let mut values = values.into_iter();
    for name in names {
        if !is_name(name) {
            return Err(fail(format!("`{name}` is not a valid name")));
        }
        let value = values.next().unwrap_or_default().to_owned();
        io.shell.state.variables.insert((*name).to_owned(), value);
    }
    Ok(i32::from(!line.ends_with(b"\n")))
}

pub(super) async fn seq(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    let number = |text: &String| {
        text.parse::<i64>()
            .map_err(|_| fail(format!("`{text}` is not an integer")))
    };
    let (first, step, last) = match args {
        [last] => (1, 1, number(last)?),
        [first, last] => (number(first)?, 1, number(last)?),
        [first, step, last] => (number(first)?, number(step)?, number(last)?),
        _ => return Err(fail("expected LAST, FIRST LAST or FIRST STEP LAST")),
    };
    if step == 0 {
        return Err(fail("the step must not be 0"));
    }
    let mut next = Some(first);
    while let Some(number) = next.filter(|it| if step > 0 { *it <= last } else { *it >= last }) {
        io.line(&number.to_string()).await?;
        next = number.checked_add(step);
    }
    Ok(0)
}

pub(super) async fn sleep(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    if args.is_empty() {
        return Err(fail("expected a number of seconds"));
    }
    let mut time = Duration::ZERO;
    for arg in args {
        let seconds = arg.strip_suffix('s').unwrap_or(arg);
        let seconds: Option<f64> = seconds.parse().ok();
        let more = seconds.and_then(|it| Duration::try_from_secs_f64(it).ok());
        let more = more.ok_or_else(|| fail(format!("`{arg}` is not a valid duration")))?;
        time = time.saturating_add(more);
    }
    let deadline = io.shell.meter.deadline;
    let end = Instant::now().checked_add(time).unwrap_or(deadline);
    sleep_until(end.min(deadline)).await;
    if end < deadline {
        Ok(0)
    } else {
        Err(Halt::Timeout)
    }
}
