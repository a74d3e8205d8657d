//! `test`, also known as `[`.

use crate::shell::io::Io;

/// Exits with 0 if the expression is true, 1 if it is false, 2 on errors.
pub(super) fn test(io: &mut Io<'_, '_>, args: &[String]) -> i32 {
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    if io.name == "[" && args.pop() != Some("]") {
        io.report_error("missing `]`");
        return 2;
    }
    match evaluate(io, &args) {
        Ok(true) => 0,
        Ok(false) => 1,
        Err(what) => {
            io.report_error(&what);
            2
        }
    }
}

/// Evaluates `-o`, which binds weaker than `-a`.
fn evaluate(io: &Io<'_, '_>, args: &[&str]) -> Result<bool, String> {
    // Three arguments are always a comparison.
    if args.len() <= 3 {
        return evaluate_negation(io, args);
    }
    let mut any = false;
    for part in args.split(|arg| *arg == "-o") {
        let mut all = true;
        for part in part.split(|arg| *arg == "-a") {
            all &= evaluate_negation(io, part)?;
        }
        any |= all;
    }
    Ok(any)
}

fn evaluate_negation(io: &Io<'_, '_>, args: &[&str]) -> Result<bool, String> {
    match args {
        [] => Ok(false),
        [text] => Ok(!text.is_empty()),
        [left, operator, right] if is_comparison(operator) => compare(left, operator, right),
        ["!", rest @ ..] => {
            let negations = rest.iter().take_while(|arg| **arg == "!").count();
            let value = evaluate_simple(io, &rest[negations..])?;
            Ok(value == (negations % 2 == 1))
        }
        args => evaluate_simple(io, args),
    }
}

fn evaluate_simple(io: &Io<'_, '_>, args: &[&str]) -> Result<bool, String> {
    match args {
        [] => Ok(false),
        [text] => Ok(!text.is_empty()),
        [operator, operand] => evaluate_unary(io, operator, operand),
        [left, operator, right] => compare(left, operator, right),
        _ => Err("invalid expression".to_owned()),
    }
}

fn is_comparison(operator: &str) -> bool {
    matches!(
        operator,
        "=" | "==" | "!=" | "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge"
    )
}

fn evaluate_unary(io: &Io<'_, '_>, operator: &str, operand: &str) -> Result<bool, String> {
    let path = io.resolve(operand).ok();
    let file = |fits: &dyn Fn(&str) -> bool| Ok(path.as_deref().is_some_and(fits));
    match operator {
        "-z" => Ok(operand.is_empty()),
        "-n" => Ok(!operand.is_empty()),
        "-e" | "-r" | "-w" => file(&|path| io.files().exists(path)),
        "-f" => file(&|path| io.files().is_file(path)),
        "-d" => file(&|path| io.files().is_dir(path)),
        "-s" => file(&|path| io.files().size(path) > 0),
        "-x" | "-L" | "-h" => Ok(false),
        _ => Err(format!("unknown operator `{operator}`")),
    }
}

fn compare(left: &str, operator: &str, right: &str) -> Result<bool, String> {
    let number = |text: &str| {
        let number: Result<i64, _> = text.trim().parse();
        number.map_err(|_| format!("`{text}` is not an integer"))
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
        _ => return Err(format!("unknown operator `{operator}`")),
    })
}
