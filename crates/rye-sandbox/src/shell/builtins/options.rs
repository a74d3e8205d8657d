//! Options of a command.

use crate::shell::meter::Halt;

/// What is before a command's operands, and they.
pub(super) struct Options<'a> {
    flags: Vec<char>,
    values: Vec<(char, &'a str)>,
    pub(super) rest: Vec<&'a str>,
}

impl<'a> Options<'a> {
    /// Reads `-abc`, `-n 5`, `-n5` and `--`, anywhere among the operands.
    pub(super) fn read(args: &'a [String], flags: &str, valued: &str) -> Result<Self, Halt> {
        let mut options = Self {
            flags: Vec::new(),
            values: Vec::new(),
            rest: Vec::new(),
        };
        let mut args = args.iter().map(String::as_str);
        while let Some(arg) = args.next() {
            if arg == "--" {
                options.rest.extend(args);
                break;
            }
            let Some(letters) = arg.strip_prefix('-').filter(|it| !it.is_empty()) else {
                options.rest.push(arg);
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
                    let value = value.ok_or_else(|| fail(format!("-{letter} wants a value")))?;
                    options.values.push((letter, value));
                    break;
                } else {
                    let what = format!("unknown option `{arg}`; there are -{flags}{valued}");
                    return Err(fail(what));
                }
            }
        }
        Ok(options)
    }

    pub(super) fn has(&self, flag: char) -> bool {
        self.flags.contains(&flag)
    }

    /// The last value of an option.
    pub(super) fn value(&self, letter: char) -> Option<&'a str> {
        let mut all = self.values.iter().rev();
        all.find(|(it, _)| *it == letter).map(|(_, value)| *value)
    }

    /// The operands, or what is to be read where there are none.
    pub(super) fn inputs(&self) -> Vec<&'a str> {
        if self.rest.is_empty() {
            vec!["-"]
        } else {
            self.rest.clone()
        }
    }
}

pub(super) fn fail(what: impl Into<String>) -> Halt {
    Halt::Fail(what.into())
}
