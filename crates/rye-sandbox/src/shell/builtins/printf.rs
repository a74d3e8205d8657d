//! The shell command `printf`.

use super::CommandResult;
use super::misc::unescape;
use super::options::fail;
use crate::shell::io::Io;
use crate::shell::meter::Halt;

/// Maximum field width.
const MAX_WIDTH: usize = 1000;

/// Prints the format with its arguments; repeats the format while arguments are left.
pub(super) async fn printf(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    let Some((format, args)) = args.split_first() else {
        return Err(fail("expected a format"));
    };
    let format = unescape(format);
    let mut args = args.iter().map(String::as_str);
    loop {
        let before = args.len();
        let text = once(&format, &mut args)?;
        io.print(text.as_bytes()).await?;
        if args.len() == 0 || args.len() == before {
            return Ok(0);
        }
    }
}

fn once<'a>(format: &str, args: &mut impl Iterator<Item = &'a str>) -> Result<String, Halt> {
    let mut text = String::new();
    let mut chars = format.chars().peekable();
    while let Some(ch) = chars.next() {
        if ch != '%' {
            text.push(ch);
            continue;
        }
        let mut spec = String::new();
        while let Some(ch) = chars.next_if(|it| "-0123456789.".contains(*it)) {
            spec.push(ch);
        }
        let spec = Spec::parse(&spec)?;
        let value = match chars.next() {
            Some('%') => "%".to_owned(),
            Some('s') => spec.cut(args.next().unwrap_or_default()),
            Some('b') => spec.cut(&unescape(args.next().unwrap_or_default())),
            Some('c') => args.next().unwrap_or_default().chars().take(1).collect(),
            Some('d' | 'i' | 'u') => number(args.next())?.to_string(),
            Some('x') => format!("{:x}", number(args.next())?),
            Some('o') => format!("{:o}", number(args.next())?),
            Some(other) => return Err(fail(format!("unsupported conversion `%{other}`"))),
            None => return Err(fail("the format ends in `%`")),
        };
        spec.pad(&value, &mut text);
    }
    Ok(text)
}

fn number(text: Option<&str>) -> Result<i64, Halt> {
    let text = text.filter(|text| !text.is_empty()).unwrap_or("0");
    text.parse()
        .map_err(|_| fail(format!("`{text}` is not an integer")))
}

/// Flags, width and precision of a conversion.
struct Spec {
    left: bool,
    zeros: bool,
    width: usize,
    precision: Option<usize>,
}

impl Spec {
    fn parse(text: &str) -> Result<Self, Halt> {
        let left = text.starts_with('-');
        let text = text.trim_start_matches('-');
        let zeros = text.starts_with('0');
        let (width, precision) = match text.split_once('.') {
            Some((width, precision)) => (width, Some(precision)),
            None => (text, None),
        };
        let number = |text: &str| match text {
            "" => Ok(0),
            text => text
                .parse()
                .ok()
                .filter(|number| *number <= MAX_WIDTH)
                .ok_or_else(|| fail(format!("invalid width `{text}`"))),
        };
        Ok(Self {
            left,
            zeros,
            width: number(width)?,
            precision: precision.map(number).transpose()?,
        })
    }

    fn cut(&self, text: &str) -> String {
        let max = self.precision.unwrap_or(usize::MAX);
        text.chars().take(max).collect()
    }

    fn pad(&self, value: &str, text: &mut String) {
        let missing = self.width.saturating_sub(value.chars().count());
        match (self.left, self.zeros) {
            (true, _) => {
                text.push_str(value);
                text.push_str(&" ".repeat(missing));
            }
            (false, true) => {
                let (ch, digits) = match value.strip_prefix('-') {
                    Some(digits) => ("-", digits),
                    None => ("", value),
                };
                text.push_str(ch);
                text.push_str(&"0".repeat(missing));
                text.push_str(digits);
            }
            (false, false) => {
                text.push_str(&" ".repeat(missing));
                text.push_str(value);
            }
        }
    }
}
