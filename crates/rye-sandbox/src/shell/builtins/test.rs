//! `test`, also called `[`.

use crate::shell::io::Io;

/// 0 if it is so, 1 if not, 2 if it makes no sense.
pub(super) fn test(io: &mut Io<'_, '_>, args: &[String]) -> i32 {
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    if io.name == "[" && args.pop() != Some("]") {
        io.complain("`]` is missing");
        return 2;
    }
    match either(io, &args) {
        Ok(true) => 0,
        Ok(false) => 1,
        Err(what) => {
            io.complain(&what);
            2
        }
    }
}

/// `-o` between what `-a` joins.
fn either(io: &Io<'_, '_>, args: &[&str]) -> Result<bool, String> {
    // Three words are a comparison, whatever they are.
    if args.len() <= 3 {
        return one(io, args);
    }
    let mut any = false;
    for part in args.split(|arg| *arg == "-o") {
        let mut all = true;
        for part in part.split(|arg| *arg == "-a") {
            all &= one(io, part)?;
        }
        any |= all;
    }
    Ok(any)
}

fn one(io: &Io<'_, '_>, args: &[&str]) -> Result<bool, String> {
    match args {
        [] => Ok(false),
        [text] => Ok(!text.is_empty()),
        [left, operator, right] if is_comparison(operator) => compare(left, operator, right),
        ["!", rest @ ..] => {
            let nots = rest.iter().take_while(|arg| **arg == "!").count();
            let is_so = one_plain(io, &rest[nots..])?;
            Ok(is_so == (nots % 2 == 1))
        }
        args => one_plain(io, args),
    }
}

fn one_plain(io: &Io<'_, '_>, args: &[&str]) -> Result<bool, String> {
    match args {
        [] => Ok(false),
        [text] => Ok(!text.is_empty()),
        [operator, operand] => about(io, operator, operand),
        [left, operator, right] => compare(left, operator, right),
        _ => Err("it makes no sense".to_owned()),
    }
}

fn is_comparison(operator: &str) -> bool {
    matches!(
        operator,
        "=" | "==" | "!=" | "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge"
    )
}

fn about(io: &Io<'_, '_>, operator: &str, operand: &str) -> Result<bool, String> {
    let path = io.resolve(operand).ok();
    let file = |fits: &dyn Fn(&str) -> bool| Ok(path.as_deref().is_some_and(fits));
    match operator {
        "-z" => Ok(operand.is_empty()),
        "-n" => Ok(!operand.is_empty()),
        "-e" | "-r" | "-w" => file(&|path| io.files().exists(path)),
        "-f" => file(&|path| io.files().is_file(path)),
        "-d" => file(&|path| io.files().is_folder(path)),
        "-s" => file(&|path| io.files().size(path) > 0),
        "-x" | "-L" | "-h" => Ok(false),
        _ => Err(format!("`{operator}` is not known")),
    }
}

fn compare(left: &str, operator: &str, right: &str) -> Result<bool, String> {
    let number = |text: &str| {
        let number: Result<i64, _> = text.trim().parse();
        number.map_err(|_| format!("`{text}` is no whole number"))
    };
    Ok(match operator {
        "=" | "==" => left == right,
        "!=" => left != right,
        "-eq" => number(left)? == number(right)?,
        "-ne" => number(left)? != number(right)?,
        "-lt" => number(left)? < number(right)?,
        "-le" => number(left)? <= number(right)?,
        "-gt" => number(left)? > number(right)?,
        "-ge" => number(left)? >= number(right)?,
        _ => return Err(format!("`{operator}` is not known")),
    })
}
