//! Arithmetic of `$((…))` with 64-bit integers, which wrap around.

use std::collections::BTreeMap;

use super::parse::is_name;

/// Maximum depth of nested expressions and of variables that contain expressions.
const MAX_NESTING: usize = 40;

/// Binary operators from the weakest to the strongest, except assignments and `?:`.
const OPERATORS: [&[&str]; 10] = [
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<=", ">=", "<", ">"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

const ASSIGNMENTS: [&str; 11] = [
    "=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "^=", "|=",
];

/// Evaluates an expression; assignments change the variables. The error is the reason.
pub(crate) fn evaluate(
    expression: &str,
    variables: &mut BTreeMap<String, String>,
) -> Result<i64, String> {
    evaluate_nested(expression, variables, 0)
}

fn evaluate_nested(
    expression: &str,
    variables: &mut BTreeMap<String, String>,
    depth: usize,
) -> Result<i64, String> {
    let mut parser = Evaluator {
        rest: expression.trim(),
        variables,
        depth,
        is_skipping: false,
    };
    if parser.rest.is_empty() {
        return Ok(0);
    }
    let value = parser.comma()?;
    if parser.rest.is_empty() {
        Ok(value)
    } else {
        Err(format!("unexpected `{}` in an expression", parser.rest))
    }
}

struct Evaluator<'a, 'v> {
    rest: &'a str,
    variables: &'v mut BTreeMap<String, String>,
    depth: usize,
    /// In the branch of `&&`, `||` or `?:` that has no effect.
    is_skipping: bool,
}

type Value = Result<i64, String>;

impl<'a> Evaluator<'a, '_> {
    fn take(&mut self, operator: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(operator) else {
            return false;
        };
        self.rest = rest.trim_start();
        true
    }

    /// Takes one of these operators, unless it is the start of a longer one.
    fn take_operator(&mut self, operators: &[&'static str]) -> Option<&'static str> {
        let longest = OPERATORS.iter().copied().flatten().chain(&ASSIGNMENTS);
        let longest = longest.filter(|it| self.rest.starts_with(**it));
        let longest = longest.max_by_key(|it| it.len())?;
        let found = operators.iter().find(|it| *it == longest)?;
        self.take(found);
        Some(found)
    }

    fn nested(&mut self, parse: impl FnOnce(&mut Self) -> Value) -> Value {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return Err("an expression is nested too deeply".to_owned());
        }
        let value = parse(self);
        self.depth -= 1;
        value
    }

    /// Evaluates an operand that has an effect only if it is needed.
    fn operand(&mut self, is_needed: bool, parse: impl FnOnce(&mut Self) -> Value) -> Value {
        let before = self.is_skipping;
        self.is_skipping |= !is_needed;
        let value = parse(self);
        self.is_skipping = before;
        value
    }

    fn comma(&mut self) -> Value {
        let mut value = self.assignment()?;
        while self.take(",") {
            value = self.assignment()?;
        }
        Ok(value)
    }

    fn assignment(&mut self) -> Value {
        let before = self.rest;
        if let Some(name) = self.name() {
            if let Some(operator) = self.take_operator(&ASSIGNMENTS) {
                let value = self.nested(Self::assignment)?;
                let value = match operator.trim_end_matches('=') {
                    "" => value,
                    operator => {
                        let current = self.variable(name)?;
                        self.apply(operator, current, value)?
                    }
                };
                self.set(name, value);
                return Ok(value);
            }
            self.rest = before;
        }
        let condition = self.binary(0)?;
        if !self.take("?") {
            return Ok(condition);
        }
        let yes = self.operand(condition != 0, |it| it.nested(Self::assignment))?;
        if !self.take(":") {
            return Err("expected `:` after `?`".to_owned());
        }
        let no = self.operand(condition == 0, |it| it.nested(Self::assignment))?;
        Ok(if condition == 0 { no } else { yes })
    }

    fn binary(&mut self, level: usize) -> Value {
        let Some(operators) = OPERATORS.get(level) else {
            return self.power();
        };
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = self.take_operator(operators) {
            let is_needed = match operator {
                "&&" => left != 0,
                "||" => left == 0,
                _ => true,
            };
            let right = self.operand(is_needed, |it| it.binary(level + 1))?;
            left = self.apply(operator, left, right)?;
        }
        Ok(left)
    }

    fn power(&mut self) -> Value {
        let base = self.unary()?;
        if !self.take("**") {
            return Ok(base);
        }
        let exponent = self.nested(Self::power)?;
        let exponent = u32::try_from(exponent);
        let exponent = exponent.map_err(|_| "an exponent is out of range".to_owned())?;
        Ok(base.wrapping_pow(exponent))
    }

    fn unary(&mut self) -> Value {
        for (operator, step) in [("++", 1), ("--", -1)] {
            let before = self.rest;
            if self.take(operator) {
                if let Some(name) = self.name() {
                    let value = self.variable(name)?.wrapping_add(step);
                    self.set(name, value);
                    return Ok(value);
                }
                self.rest = before;
            }
        }
        if self.take("!") {
            return Ok(i64::from(self.nested(Self::unary)? == 0));
        }
        if self.take("~") {
            return Ok(!self.nested(Self::unary)?);
        }
        if self.take("-") {
            return Ok(self.nested(Self::unary)?.wrapping_neg());
        }
        if self.take("+") {
            return self.nested(Self::unary);
        }
        if self.take("(") {
            let value = self.nested(Self::comma)?;
            return if self.take(")") {
                Ok(value)
            } else {
                Err("expected `)` in an expression".to_owned())
            };
        }
        if let Some(name) = self.name() {
            let value = self.variable(name)?;
            for (operator, step) in [("++", 1), ("--", -1)] {
                if self.take(operator) {
                    self.set(name, value.wrapping_add(step));
                }
            }
            return Ok(value);
        }
        self.number()
    }

    fn word(&self) -> &'a str {
        let is_part = |ch: char| ch.is_ascii_alphanumeric() || ch == '_';
        let end = self.rest.find(|ch| !is_part(ch)).unwrap_or(self.rest.len());
        &self.rest[..end]
    }

    fn name(&mut self) -> Option<&'a str> {
        let word = self.word();
        is_name(word).then(|| self.take(word))?;
        Some(word)
    }

    fn number(&mut self) -> Value {
        let word = self.word();
        if word.is_empty() {
            let rest = self.rest.chars().next();
            return Err(match rest {
                Some(ch) => format!("unexpected `{ch}` in an expression"),
                None => "an expression is incomplete".to_owned(),
            });
        }
        self.take(word);
        let (digits, radix) = match word.as_bytes() {
            [b'0', b'x' | b'X', ..] => (&word[2..], 16),
            [b'0', _, ..] => (&word[1..], 8),
            _ => (word, 10),
        };
        let value = i64::from_str_radix(digits, radix);
        value.map_err(|_| format!("`{word}` is not a valid number"))
    }

    fn variable(&mut self, name: &str) -> Value {
        let value = self.variables.get(name).cloned().unwrap_or_default();
        let value = value.trim();
        if let Ok(number) = value.parse() {
            return Ok(number);
        }
        if self.depth >= MAX_NESTING {
            return Err(format!("the value of `{name}` is nested too deeply"));
        }
        evaluate_nested(value, self.variables, self.depth + 1)
    }

    fn set(&mut self, name: &str, value: i64) {
        if !self.is_skipping {
            self.variables.insert(name.to_owned(), value.to_string());
        }
    }

    fn apply(&self, operator: &str, left: i64, right: i64) -> Value {
        let shift = || u32::try_from(right & 63).unwrap_or(0);
        Ok(match operator {
            "||" => i64::from(left != 0 || right != 0),
            "&&" => i64::from(left != 0 && right != 0),
            "|" => left | right,
            "^" => left ^ right,
            "&" => left & right,
            "==" => i64::from(left == right),
            "!=" => i64::from(left != right),
            "<=" => i64::from(left <= right),
            ">=" => i64::from(left >= right),
            "<" => i64::from(left < right),
            ">" => i64::from(left > right),
            "<<" => left.wrapping_shl(shift()),
            ">>" => left.wrapping_shr(shift()),
            "+" => left.wrapping_add(right),
            "-" => left.wrapping_sub(right),
            "*" => left.wrapping_mul(right),
            _ if right == 0 && self.is_skipping => 0,
            _ if right == 0 => return Err("division by zero".to_owned()),
            "/" => left.wrapping_div(right),
            _ => left.wrapping_rem(right),
        })
    }
}
