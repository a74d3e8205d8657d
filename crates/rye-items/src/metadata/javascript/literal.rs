//! Evaluates JavaScript literals.

use std::collections::HashMap;

use serde_json::Number;
use tree_sitter::Node as Syntax;

use super::string;
use crate::metadata::error::{Problem, truncate};
use crate::metadata::node::{Data, Entry, MAX_DEPTH, Node};
use crate::metadata::syntax::{inside, source};

/// The largest integer that JavaScript represents exactly.
const LARGEST_EXACT: f64 = 9_007_199_254_740_992.0;

/// Evaluates the literal that is assigned to a name.
pub(super) fn read(text: &str, name: &str, value: Syntax<'_>) -> Result<Node, Problem> {
    Literal { text, name }.value(value, 0)
}

/// The error for a value that is not a literal.
pub(super) fn computed(name: &str, node: Syntax<'_>) -> Problem {
    let message = format!(
        "the value of `{name}` is computed; metadata is read without running the file, so only literals count"
    );
    Problem::new(node.start_byte(), message)
}

struct Literal<'t> {
    text: &'t str,
    name: &'t str,
}

impl Literal<'_> {
    fn value(&self, node: Syntax<'_>, depth: usize) -> Result<Node, Problem> {
        if depth > MAX_DEPTH {
            let message = format!("the value of `{}` is nested too deeply", self.name);
            return Err(Problem::new(node.start_byte(), message));
        }
        let data = match node.kind() {
            "null" => Data::Null,
            "true" => Data::Bool(true),
            "false" => Data::Bool(false),
            "number" => Data::Number(self.number(node, false)?),
            "unary_expression" => Data::Number(self.signed(node)?),
            "string" | "template_string" => Data::Text(self.string(node)?),
            "array" => Data::List(self.items(node, depth)?),
            "object" => Data::Map(self.entries(node, depth)?),
            "parenthesized_expression"
            | "as_expression"
            | "satisfies_expression"
            | "non_null_expression" => {
                let inside = inside(node).ok_or_else(|| self.computed(node))?;
                return self.value(inside, depth + 1);
            }
            "type_assertion" => {
                let count = u32::try_from(node.named_child_count()).unwrap_or_default();
                let last = node.named_child(count.saturating_sub(1));
                return self.value(last.ok_or_else(|| self.computed(node))?, depth + 1);
            }
            _ => return Err(self.computed(node)),
        };
        Ok(Node::new(node.start_byte(), data))
    }

    fn items(&self, array: Syntax<'_>, depth: usize) -> Result<Vec<Node>, Problem> {
        let mut items = Vec::new();
        let mut after_item = false;
        for part in array.children(&mut array.walk()) {
            match part.kind() {
                "[" | "]" => {}
                "," if !after_item => {
                    let message = format!("the value of `{}` has a hole in an array", self.name);
                    return Err(Problem::new(part.start_byte(), message).hint("write null"));
                }
                "," => after_item = false,
                _ if part.is_extra() => {}
                _ => {
                    items.push(self.value(part, depth + 1)?);
                    after_item = true;
                }
            }
        }
        Ok(items)
    }

    fn entries(&self, object: Syntax<'_>, depth: usize) -> Result<Vec<Entry>, Problem> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut seen = HashMap::new();
        let mut cursor = object.walk();
        let pairs = object.named_children(&mut cursor);
        for pair in pairs.filter(|node| !node.is_extra()) {
            let parts = pair
                .child_by_field_name("key")
                .zip(pair.child_by_field_name("value"));
            let (Some((key, value)), "pair") = (parts, pair.kind()) else {
                return Err(self.computed(pair));
            };
            let at = key.start_byte();
            let key = self.key(key)?;
            let value = self.value(value, depth + 1)?;
            if let Some(first) = seen.insert(key.clone(), at) {
                return Err(Problem::duplicate(self.text, &key, first, at).unsupported());
            }
            entries.push(Entry { key, at, value });
        }
        Ok(entries)
    }

    fn key(&self, node: Syntax<'_>) -> Result<String, Problem> {
        let key = match node.kind() {
            "property_identifier" => {
                let name = source(self.text, node);
                if name.contains('\\') {
                    return Err(self.computed(node));
                }
                name.to_owned()
            }
            "string" => self.string(node)?,
            "number" => {
                let message = format!("a key in `{}` must be a string, not a number", self.name);
                let problem = Problem::new(node.start_byte(), message);
                return Err(problem.hint("write it in quotes").unsupported());
            }
            _ => return Err(self.computed(node)),
        };
        if key == "__proto__" {
            let message = "`__proto__` sets the prototype of an object and is not a key";
            return Err(Problem::new(node.start_byte(), message));
        }
        Ok(key)
    }

    fn string(&self, node: Syntax<'_>) -> Result<String, Problem> {
        let mut cursor = node.walk();
        let mut parts = node.named_children(&mut cursor);
        if let Some(part) = parts.find(|part| part.kind() == "template_substitution") {
            return Err(self.computed(part).unsupported());
        }
        let at = node.start_byte();
        string::decode(source(self.text, node)).map_err(|problem| problem.shifted(at))
    }

    fn signed(&self, node: Syntax<'_>) -> Result<Number, Problem> {
        let operator = node.child_by_field_name("operator");
        let negative = match operator.map(|operator| operator.kind()) {
            Some("-") => true,
            Some("+") => false,
            _ => return Err(self.computed(node)),
        };
        match node.child_by_field_name("argument") {
            Some(number) if number.kind() == "number" => self.number(number, negative),
            _ => Err(self.computed(node)),
        }
    }

    fn number(&self, node: Syntax<'_>, negative: bool) -> Result<Number, Problem> {
        let source = source(self.text, node);
        let wrong = |reason: &str| {
            let message = format!("the number `{}` {reason}", truncate(source));
            Problem::new(node.start_byte(), message)
        };
        let digits = source.replace('_', "").to_ascii_lowercase();
        let radix = match digits.get(..2) {
            Some("0x") => 16,
            Some("0o") => 8,
            Some("0b") => 2,
            _ => 10,
        };
        if digits.ends_with('n') {
            return Err(wrong("is a bigint, which metadata cannot hold"));
        }
        let size = if radix == 10 {
            let octal = digits.len() > 1
                && digits.starts_with('0')
                && digits.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
            if octal {
                return Err(wrong("begins with a zero, which modules do not allow"));
            }
            digits.parse().map_err(|_| wrong("is not valid"))?
        } else {
            let size = u64::from_str_radix(&digits[2..], radix);
            let size = size.map_err(|_| wrong("does not fit into 64 bits"))?;
            #[expect(clippy::cast_precision_loss, reason = "JavaScript rounds likewise")]
            let size = size as f64;
            size
        };
        number(if negative { -size } else { size }).ok_or_else(|| wrong("is infinite"))
    }

    fn computed(&self, node: Syntax<'_>) -> Problem {
        computed(self.name, node)
    }
}

/// Converts a double to a JSON number; a whole number becomes an integer.
fn number(value: f64) -> Option<Number> {
    if value.fract() == 0.0 && value.abs() < LARGEST_EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "whole and small enough")]
        return Some(Number::from(value as i64));
    }
    Number::from_f64(value)
}
