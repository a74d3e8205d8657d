//! Option parsing for the built-in commands.

use crate::shell::meter::Halt;

/// The parsed arguments of a command.
pub(super) struct Options<'a> {
    flags: Vec<char>,
    values: Vec<(char, &'a str)>,
    pub(super) operands: Vec<&'a str>,
}

impl<'a> Options<'a> {
    /// Parses `-abc`, `-n 5`, `-n5` and `--`. Options and operands may be mixed.
    pub(super) fn parse(args: &'a [String], flags: &str, valued: &str) -> Result<Self, Halt> {
        let mut options = Self {
            flags: Vec::new(),
            values: Vec::new(),
            operands: Vec::new(),
        };
        let mut args = args.iter().map(String::as_str);
        while let Some(arg) = args.next() {
            if arg == "--" {
                options.operands.extend(args);
                break;
            }
            let Some(letters) = arg.strip_prefix('-').filter(|it| !it.is_empty()) else {
                options.operands.push(arg);
                continue;
            };
            for (at, letter) in letters.char_indices() {
                if flags.contains(letter) {
                    options.flags.push(letter);
                } else if valued.contains(letter) {
                    let own = &letters[at + letter.len_utf8()..];
                    let value = if own.is_empty() {
                        args.next()
                    } else {
                        Some(own)
                    };
                    let value =
                        value.ok_or_else(|| fail(format!("option -{letter} requires a value")))?;
                    options.values.push((letter, value));
                    break;
                } else {
                    let what = format!("unknown option `{arg}`; supported: -{flags}{valued}");
                    return Err(fail(what));
                }
            }
        }
        Ok(options)
    }

    pub(super) fn has(&self, flag: char) -> bool {
        self.flags.contains(&flag)
    }

    /// The last value given for an option.
    pub(super) fn value(&self, letter: char) -> Option<&'a str> {
        let mut all = self.values.iter().rev();
        all.find(|(it, _)| *it == letter).map(|(_, value)| *value)
    }

    /// The operands, or `-` (standard input) if there are none.
    pub(super) fn inputs(&self) -> Vec<&'a str> {
        if self.operands.is_empty() {
            vec!["-"]
        } else {
            self.operands.clone()
        }
    }
}

pub(super) fn fail(what: impl Into<String>) -> Halt {
    Halt::Fail(what.into())
}
