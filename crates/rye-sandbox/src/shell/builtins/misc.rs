//! `echo`, `pwd`, `cd`, `exit`, `export`, `seq` and `sleep`.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::CommandResult;
use super::options::fail;
use crate::shell::io::Io;
use crate::shell::lex::is_name;
use crate::shell::meter::Halt;
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
    let cwd = display_path(&io.shell.cwd);
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
    io.shell.cwd = path;
    io.shell.update_pwd();
    Ok(0)
}

pub(super) fn exit(args: &[String]) -> CommandResult {
    let Some(code) = args.first() else {
        return Err(Halt::Exit(0));
    };
    let code: i32 = code
        .parse()
        .map_err(|_| fail(format!("`{code}` is not a number")))?;
    Err(Halt::Exit(code & 0xff))
}

pub(super) fn export(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    for arg in args {
        let (name, value) = match arg.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (arg.as_str(), None),
        };
        if !is_name(name) {
            return Err(fail(format!("`{name}` is not a valid name")));
        }
        if let Some(value) = value {
            let variables = &mut io.shell.variables;
            variables.insert(name.to_owned(), value.to_owned());
        }
    }
    Ok(0)
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
