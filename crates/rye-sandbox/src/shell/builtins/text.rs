//! `cat`, `head`, `tail`, `wc`, `sort` and `uniq`.

use std::sync::Arc;

use super::CommandResult;
use super::options::{Options, fail};
use crate::shell::io::Io;
use crate::shell::meter::Halt;

/// Lines without their terminators.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let is_end = |byte: &u8| *byte == b'\n';
    let nothing = bytes.is_empty();
    bytes.split(is_end).skip(usize::from(nothing))
}

/// Lines with their terminators.
fn whole_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n')
}

pub(super) async fn cat(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    let options = Options::parse(args, "n", "")?;
    let mut number = 0;
    let mut status = 0;
    for path in options.inputs() {
        let bytes = match io.read(path).await {
            Ok(bytes) => bytes,
            Err(halt) => {
                status |= io.report_failure(Err(halt))?;
                continue;
            }
        };
        if !options.has('n') {
            io.print(&bytes).await?;
            continue;
        }
        for line in whole_lines(&bytes) {
            number += 1;
            io.print(format!("{number:6}\t").as_bytes()).await?;
            io.print(line).await?;
        }
    }
    Ok(status)
}

/// The requested part of a file.
enum Amount {
    Lines(usize),
    Bytes(usize),
    /// Everything from this line on.
    From(usize),
}

/// Parses `-n 5`, `-5`, `-c 5`, and `-n +5` for `tail`.
fn amount(args: &[String]) -> Result<(Amount, Vec<String>), Halt> {
    let is_number = |arg: &str| !arg.is_empty() && arg.bytes().all(|it| it.is_ascii_digit());
    let short = |arg: &String| match arg.strip_prefix('-') {
        Some(digits) if is_number(digits) => format!("-n{digits}"),
        _ => arg.clone(),
    };
    let args: Vec<String> = args.iter().map(short).collect();
    let options = Options::parse(&args, "q", "nc")?;
    let number = |text: &str| {
        let number = text.parse();
        number.map_err(|_| fail(format!("`{text}` is not a number")))
    };
    let amount = match (options.value('n'), options.value('c')) {
        (_, Some(bytes)) => Amount::Bytes(number(bytes)?),
        (Some(lines), None) => match lines.strip_prefix('+') {
            Some(from) => Amount::From(number(from)?),
            None => Amount::Lines(number(lines)?),
        },
        (None, None) => Amount::Lines(10),
    };
    let paths = options.inputs().into_iter().map(str::to_owned).collect();
    Ok((amount, paths))
}

pub(super) async fn head(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    let (amount, paths) = amount(args)?;
    print_ranges(io, paths, |bytes| match amount {
        Amount::Bytes(count) => Ok(0..count.min(bytes.len())),
        Amount::Lines(count) => Ok(0..whole_lines(bytes).take(count).map(<[u8]>::len).sum()),
        Amount::From(_) => Err(fail("`-n +N` is only supported by tail")),
    })
    .await
}

pub(super) async fn tail(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    let (amount, paths) = amount(args)?;
    print_ranges(io, paths, |bytes| {
        let lines_before = match amount {
            Amount::Bytes(count) => return Ok(bytes.len().saturating_sub(count)..bytes.len()),
            Amount::Lines(count) => whole_lines(bytes).count().saturating_sub(count),
            Amount::From(line) => line.saturating_sub(1),
        };
        let start = whole_lines(bytes).take(lines_before).map(<[u8]>::len).sum();
        Ok(start..bytes.len())
    })
    .await
}

async fn print_ranges(
    io: &mut Io<'_, '_>,
    paths: Vec<String>,
    select: impl Fn(&[u8]) -> Result<std::ops::Range<usize>, Halt>,
) -> CommandResult {
    let mut status = 0;
    for (index, path) in paths.iter().enumerate() {
        let bytes = match io.read(path).await {
            Ok(bytes) => bytes,
            Err(halt) => {
                status |= io.report_failure(Err(halt))?;
                continue;
            }
        };
        if paths.len() > 1 {
            let gap = if index > 0 { "\n" } else { "" };
            io.line(&format!("{gap}==> {path} <==")).await?;
        }
        let range = select(&bytes)?;
        io.print(&bytes[range]).await?;
    }
    Ok(status)
}

pub(super) async fn wc(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    let options = Options::parse(args, "lwcm", "")?;
    let paths = options.inputs();
    let all = !"lwcm".chars().any(|flag| options.has(flag));
    let mut total = [0_usize; 4];
    let mut status = 0;
    let show = |counts: &[usize; 4], path: &str| {
        let shown = ['l', 'w', 'm', 'c'].iter().zip(counts);
        let shown = shown.filter(|(flag, _)| options.has(**flag) || (all && **flag != 'm'));
        let mut words: Vec<_> = shown.map(|(_, count)| count.to_string()).collect();
        words.extend((path != "-").then(|| path.to_owned()));
        words.join(" ")
    };
    for path in &paths {
        let bytes = match io.read(path).await {
            Ok(bytes) => bytes,
            Err(halt) => {
                status |= io.report_failure(Err(halt))?;
                continue;
            }
        };
        let is_space = |byte: &u8| byte.is_ascii_whitespace();
        let words = bytes.split(is_space).filter(|word| !word.is_empty());
        let ends = bytes.split(|byte| *byte == b'\n').count() - 1;
        let chars = bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count();
        let counts = [ends, words.count(), chars, bytes.len()];
        for (sum, count) in total.iter_mut().zip(counts) {
            *sum += count;
        }
        io.line(&show(&counts, path)).await?;
    }
    if paths.len() > 1 {
        io.line(&show(&total, "total")).await?;
    }
    Ok(status)
}

pub(super) async fn sort(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    let options = Options::parse(args, "rnu", "")?;
    let mut files: Vec<Arc<Vec<u8>>> = Vec::new();
    for path in options.inputs() {
        files.push(io.read(path).await?);
    }
    let mut all: Vec<&[u8]> = files.iter().flat_map(|bytes| lines(bytes)).collect();
    io.spend(all.len() * 64).await?;
    if options.has('n') {
        all.sort_by(|a, b| {
            leading_number(a)
                .total_cmp(&leading_number(b))
                .then_with(|| a.cmp(b))
        });
    } else {
        all.sort_unstable();
    }
    if options.has('u') {
        all.dedup_by(|a, b| {
            a == b || (options.has('n') && leading_number(a).total_cmp(&leading_number(b)).is_eq())
        });
    }
    if options.has('r') {
        all.reverse();
    }
    for line in all {
        io.print(&[line, b"\n"].concat()).await?;
    }
    Ok(0)
}

/// The number at the start of a line, or 0.
fn leading_number(line: &[u8]) -> f64 {
    let text = String::from_utf8_lossy(&line[..line.len().min(64)]);
    let text = text.trim_start();
    let is_part = |(index, ch): &(usize, char)| {
        ch.is_ascii_digit() || *ch == '.' || (*index == 0 && *ch == '-')
    };
    let end = text.char_indices().take_while(is_part).count();
    text[..end].parse().unwrap_or(0.0)
}

pub(super) async fn uniq(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    let options = Options::parse(args, "cdu", "")?;
    let path = match options.operands.as_slice() {
        [] => "-",
        [path] => path,
        _ => return Err(fail("expected at most one file")),
    };
    let bytes = io.read(path).await?;
    let mut all = lines(&bytes).peekable();
    while let Some(line) = all.next() {
        let mut times = 1;
        while all.next_if_eq(&line).is_some() {
            times += 1;
        }
        io.spend(times).await?;
        if (options.has('d') && times == 1) || (options.has('u') && times > 1) {
            continue;
        }
        if options.has('c') {
            io.print(format!("{times:7} ").as_bytes()).await?;
        }
        io.print(&[line, b"\n"].concat()).await?;
    }
    Ok(0)
}
