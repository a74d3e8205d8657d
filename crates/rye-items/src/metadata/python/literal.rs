//! Evaluates Python literals.

use std::collections::HashMap;

use serde_json::Number;
use tree_sitter::Node as Syntax;

use super::string;
use crate::metadata::error::{Problem, truncate};
use crate::metadata::node::{Data, Entry, MAX_DEPTH, Node};
use crate::metadata::syntax::{inside, source};

/// Evaluates the literal that is assigned to a name.
pub(super) fn read(text: &str, name: &str, value: Syntax<'_>) -> Result<Node, Problem> {
    Literal { text, name }.value(value, 0)
}

/// Evaluates a string literal, or several adjacent ones.
pub(super) fn text(text: &str, string: Syntax<'_>) -> Result<String, Problem> {
    let literal = Literal {
        text,
        name: "__doc__",
    };
    literal.string(string)
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
            "none" => Data::Null,
            "true" => Data::Bool(true),
            "false" => Data::Bool(false),
            "integer" => Data::Number(self.integer(node, false)?),
            "float" => Data::Number(self.float(node, false)?),
            "unary_operator" => Data::Number(self.signed(node)?),
            "string" | "concatenated_string" => Data::Text(self.string(node)?),
            "list" | "tuple" | "expression_list" => Data::List(self.items(node, depth)?),
            "dictionary" => Data::Map(self.entries(node, depth)?),
            "parenthesized_expression" => {
                let inside = inside(node).ok_or_else(|| self.computed(node))?;
                return self.value(inside, depth + 1);
            }
            "set" => {
                let problem = self.not_data(node, "a set, which has no order");
                return Err(problem.hint("write a list: […]"));
            }
            "ellipsis" => return Err(self.not_data(node, "an ellipsis")),
            _ => return Err(self.computed(node)),
        };
        Ok(Node::new(node.start_byte(), data))
    }

    fn items(&self, list: Syntax<'_>, depth: usize) -> Result<Vec<Node>, Problem> {
        let mut cursor = list.walk();
        let items = list.named_children(&mut cursor).filter(|n| !n.is_extra());
        items.map(|item| self.value(item, depth + 1)).collect()
    }

    fn entries(&self, dictionary: Syntax<'_>, depth: usize) -> Result<Vec<Entry>, Problem> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut seen = HashMap::new();
        let mut cursor = dictionary.walk();
        let pairs = dictionary.named_children(&mut cursor);
        for pair in pairs.filter(|node| !node.is_extra()) {
            let parts = pair
                .child_by_field_name("key")
                .zip(pair.child_by_field_name("value"));
            let (Some((key, value)), "pair") = (parts, pair.kind()) else {
                return Err(self.computed(pair));
            };
            let at = key.start_byte();
            let key = self.key(key, depth)?;
            let value = self.value(value, depth + 1)?;
            if let Some(first) = seen.insert(key.clone(), at) {
                return Err(Problem::duplicate(self.text, &key, first, at));
            }
            entries.push(Entry { key, at, value });
        }
        Ok(entries)
    }

    fn key(&self, key: Syntax<'_>, depth: usize) -> Result<String, Problem> {
        let node = self.value(key, depth + 1)?;
        match node.data {
            Data::Text(text) => Ok(text),
            _ => Err(Problem::new(
                node.at,
                format!(
                    "a key in `{}` must be a string, not {}",
                    self.name,
                    node.kind()
                ),
            )),
        }
    }

    fn string(&self, node: Syntax<'_>) -> Result<String, Problem> {
        if node.kind() == "string" {
            return self.one_string(node);
        }
        let mut whole = String::new();
        for part in node.named_children(&mut node.walk()) {
            if part.kind() == "string" {
                whole.push_str(&self.one_string(part)?);
            }
        }
        Ok(whole)
    }

    fn one_string(&self, node: Syntax<'_>) -> Result<String, Problem> {
        let source = source(self.text, node);
        let parts = string::Parts::parse(source).ok_or_else(|| self.computed(node))?;
        if parts.formatted {
            return Err(self.computed(node));
        }
        if parts.bytes {
            let problem = self.not_data(node, "bytes");
            return Err(problem.hint("write a string, without the `b`"));
        }
        parts
            .decode()
            .map_err(|problem| problem.shifted(node.start_byte()))
    }

    fn signed(&self, node: Syntax<'_>) -> Result<Number, Problem> {
        let operator = node.child_by_field_name("operator");
        let negative = match operator.map(|operator| operator.kind()) {
            Some("-") => true,
            Some("+") => false,
            _ => return Err(self.computed(node)),
        };
        let mut number = node.child_by_field_name("argument");
        for _ in 0..MAX_DEPTH {
            match number {
                Some(node) if node.kind() == "parenthesized_expression" => number = inside(node),
                _ => break,
            }
        }
        match number {
            Some(number) if number.kind() == "integer" => self.integer(number, negative),
            Some(number) if number.kind() == "float" => self.float(number, negative),
            _ => Err(self.computed(node)),
        }
    }

    fn integer(&self, node: Syntax<'_>, negative: bool) -> Result<Number, Problem> {
        let source = source(self.text, node);
        let digits = source.replace('_', "").to_ascii_lowercase();
        if digits.ends_with('j') {
            return Err(self.not_data(node, "a complex number"));
        }
        let (digits, radix) = match digits.get(..2) {
            Some("0x") => (&digits[2..], 16),
            Some("0o") => (&digits[2..], 8),
            Some("0b") => (&digits[2..], 2),
            _ => (digits.as_str(), 10),
        };
        let leading_zero =
            radix == 10 && digits.starts_with('0') && digits.bytes().any(|digit| digit != b'0');
        if leading_zero || digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
            let message = format!("not valid Python: `{}` is not a number", truncate(source));
            return Err(Problem::new(node.start_byte(), message));
        }
        let too_large = || {
            let message = format!(
                "the number `{}` does not fit into 64 bits",
                truncate(source)
            );
            Problem::new(node.start_byte(), message)
        };
        let size = i128::from_str_radix(digits, radix).map_err(|_| too_large())?;
        let value = if negative { -size } else { size };
        Number::from_i128(value).ok_or_else(too_large)
    }

    fn float(&self, node: Syntax<'_>, negative: bool) -> Result<Number, Problem> {
        let source = source(self.text, node);
        let digits = source.replace('_', "");
        if digits.ends_with(['j', 'J']) {
            return Err(self.not_data(node, "a complex number"));
        }
        let size: f64 = digits.parse().map_err(|_| self.computed(node))?;
        Number::from_f64(if negative { -size } else { size }).ok_or_else(|| {
            let message = format!("the number `{}` is infinite", truncate(source));
            Problem::new(node.start_byte(), message)
        })
    }

    fn computed(&self, node: Syntax<'_>) -> Problem {
        Problem::new(
            node.start_byte(),
            format!(
                "the value of `{}` is computed; metadata is read without running the file, so only literals count",
                self.name
            ),
        )
    }

    fn not_data(&self, node: Syntax<'_>, what: &str) -> Problem {
        let message = format!("the value of `{}` contains {what}", self.name);
        Problem::new(node.start_byte(), message)
    }
}
