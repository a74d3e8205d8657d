//! Evaluates literals of Python, JavaScript and TypeScript.

use std::collections::HashMap;

use serde_json::Number;
use tree_sitter::Node as Syntax;

use super::error::{Problem, truncate};
use super::node::{Data, Entry, MAX_DEPTH, Node};
use super::string;
use super::syntax::{Grammar, inside, source};

/// The largest integer that JavaScript represents exactly.
const LARGEST_EXACT: f64 = 9_007_199_254_740_992.0;

/// Evaluates the literal that is assigned to a name.
pub(super) fn read(
    text: &str,
    grammar: Grammar,
    name: &str,
    value: Syntax<'_>,
) -> Result<Node, Problem> {
    let literal = Literal {
        text,
        grammar,
        name,
    };
    literal.value(value, 0)
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
    grammar: Grammar,
    name: &'t str,
}

impl Literal<'_> {
    fn value(&self, node: Syntax<'_>, depth: usize) -> Result<Node, Problem> {
        if depth > MAX_DEPTH {
            let message = format!("the value of `{}` is nested too deeply", self.name);
            return Err(Problem::new(node.start_byte(), message));
        }
        let data = match node.kind() {
            "none" | "null" => Data::Null,
            "true" => Data::Bool(true),
            "false" => Data::Bool(false),
            "integer" | "float" | "number" => self.number(node, false)?,
            "unary_operator" | "unary_expression" => self.signed(node)?,
            "string" | "concatenated_string" | "template_string" => Data::Text(self.string(node)?),
            "list" | "tuple" | "expression_list" | "array" => Data::List(self.items(node, depth)?),
            "dictionary" | "object" => Data::Map(self.entries(node, depth)?),
            "parenthesized_expression"
            | "as_expression"
            | "satisfies_expression"
            | "non_null_expression" => return self.inner(node, inside(node), depth),
            "type_assertion" => {
                let count = u32::try_from(node.named_child_count()).unwrap_or_default();
                let last = node.named_child(count.saturating_sub(1));
                return self.inner(node, last, depth);
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

    fn inner(
        &self,
        node: Syntax<'_>,
        inner: Option<Syntax<'_>>,
        depth: usize,
    ) -> Result<Node, Problem> {
        self.value(inner.ok_or_else(|| self.computed(node))?, depth + 1)
    }

    fn items(&self, list: Syntax<'_>, depth: usize) -> Result<Vec<Node>, Problem> {
        let mut items = Vec::new();
        let mut after_item = false;
        for part in list.children(&mut list.walk()) {
            match part.kind() {
                "," if !after_item => {
                    let message = format!("the value of `{}` has a hole in an array", self.name);
                    return Err(Problem::new(part.start_byte(), message).hint("write null"));
                }
                "," => after_item = false,
                _ if part.is_extra() || !part.is_named() => {}
                _ => {
                    items.push(self.value(part, depth + 1)?);
                    after_item = true;
                }
            }
        }
        Ok(items)
    }

    fn entries(&self, map: Syntax<'_>, depth: usize) -> Result<Vec<Entry>, Problem> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut seen = HashMap::new();
        let mut cursor = map.walk();
        let pairs = map.named_children(&mut cursor);
        for pair in pairs.filter(|node| !node.is_extra()) {
            let parts = pair
                .child_by_field_name("key")
                .zip(pair.child_by_field_name("value"));
            let (Some((key, value)), "pair") = (parts, pair.kind()) else {
                return Err(self.computed(pair));
            };
            let at = key.start_byte();
            let key = match self.grammar {
                Grammar::Python => self.key(key, depth)?,
                Grammar::JavaScript | Grammar::TypeScript => self.property(key)?,
            };
            let value = self.value(value, depth + 1)?;
            if let Some(first) = seen.insert(key.clone(), at) {
                let problem = Problem::duplicate(self.text, &key, first, at);
                return Err(self.allowed_in_javascript(problem));
            }
            entries.push(Entry { key, at, value });
        }
        Ok(entries)
    }

    /// A key of a Python dictionary.
    fn key(&self, key: Syntax<'_>, depth: usize) -> Result<String, Problem> {
        let node = self.value(key, depth + 1)?;
        match node.data {
            Data::Text(text) => Ok(text),
            _ => Err(self.bad_key(node.at, node.kind())),
        }
    }

    /// A key of a JavaScript object.
    fn property(&self, node: Syntax<'_>) -> Result<String, Problem> {
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
                let problem = self.bad_key(node.start_byte(), "a number");
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

    fn bad_key(&self, at: usize, what: &str) -> Problem {
        let message = format!("a key in `{}` must be a string, not {what}", self.name);
        Problem::new(at, message)
    }

    /// Marks a problem that is only metadata's, not JavaScript's.
    fn allowed_in_javascript(&self, problem: Problem) -> Problem {
        match self.grammar {
            Grammar::Python => problem,
            Grammar::JavaScript | Grammar::TypeScript => problem.unsupported(),
        }
    }

    fn string(&self, node: Syntax<'_>) -> Result<String, Problem> {
        let mut cursor = node.walk();
        let mut parts = node.named_children(&mut cursor);
        if node.kind() == "concatenated_string" {
            let strings = parts.filter(|part| part.kind() == "string");
            return strings.map(|part| self.string(part)).collect();
        }
        if let Some(part) = parts.find(|part| part.kind() == "template_substitution") {
            return Err(self.computed(part).unsupported());
        }
        let source = source(self.text, node);
        let string = string::Literal::parse(source, self.grammar);
        let string = string.ok_or_else(|| self.computed(node))?;
        if string.formatted {
            return Err(self.computed(node));
        }
        if string.bytes {
            let problem = self.not_data(node, "bytes");
            return Err(problem.hint("write a string, without the `b`"));
        }
        let decoded = string.decode();
        decoded.map_err(|problem| problem.shifted(node.start_byte()))
    }

    fn signed(&self, node: Syntax<'_>) -> Result<Data, Problem> {
        let operator = node.child_by_field_name("operator");
        let negative = match operator.map(|operator| operator.kind()) {
            Some("-") => true,
            Some("+") => false,
            _ => return Err(self.computed(node)),
        };
        let mut number = node.child_by_field_name("argument");
        if self.grammar == Grammar::Python {
            for _ in 0..MAX_DEPTH {
                match number {
                    Some(it) if it.kind() == "parenthesized_expression" => number = inside(it),
                    _ => break,
                }
            }
        }
        match number {
            Some(number) if matches!(number.kind(), "integer" | "float" | "number") => {
                self.number(number, negative)
            }
            _ => Err(self.computed(node)),
        }
    }

    /// The number in a node. A decimal integer that does not fit into 64 bits becomes a string.
    fn number(&self, node: Syntax<'_>, negative: bool) -> Result<Data, Problem> {
        let source = source(self.text, node);
        let wrong = |reason: &str| {
            let message = format!("the number `{}` {reason}", truncate(source));
            Problem::new(node.start_byte(), message)
        };
        let digits = source.replace('_', "").to_ascii_lowercase();
        let (digits, radix) = match digits.get(..2) {
            Some("0x") => (&digits[2..], 16),
            Some("0o") => (&digits[2..], 8),
            Some("0b") => (&digits[2..], 2),
            _ => (digits.as_str(), 10),
        };
        let is_octal = |digits: &str| digits.starts_with('0') && radix == 10;
        match (self.grammar, node.kind()) {
            (Grammar::Python, _) if radix == 10 && digits.ends_with('j') => {
                Err(self.not_data(node, "a complex number"))
            }
            (Grammar::Python, "integer") => {
                let leading_zero = is_octal(digits) && digits.bytes().any(|digit| digit != b'0');
                let is_number = digits.bytes().all(|b| b.is_ascii_alphanumeric());
                if leading_zero || digits.is_empty() || !is_number {
                    let source = truncate(source);
                    let message = format!("not valid Python: `{source}` is not a number");
                    return Err(Problem::new(node.start_byte(), message));
                }
                let size = i128::from_str_radix(digits, radix).ok();
                let number = size.map(|size| if negative { -size } else { size });
                match number.and_then(Number::from_i128) {
                    Some(number) => Ok(Data::Number(number)),
                    None if radix == 10 && digits.bytes().all(|b| b.is_ascii_digit()) => {
                        let sign = if negative { "-" } else { "" };
                        Ok(Data::Text(format!("{sign}{digits}")))
                    }
                    None => Err(wrong("does not fit into 64 bits")),
                }
            }
            (Grammar::Python, _) => {
                let size: f64 = digits.parse().map_err(|_| self.computed(node))?;
                let value = if negative { -size } else { size };
                let number = Number::from_f64(value);
                number.map(Data::Number).ok_or_else(|| wrong("is infinite"))
            }
            _ if digits.ends_with('n') => Err(wrong("is a bigint, which metadata cannot hold")),
            _ => {
                let size = if radix == 10 {
                    if is_octal(digits) && digits[1..].starts_with(|c: char| c.is_ascii_digit()) {
                        return Err(wrong("begins with a zero, which modules do not allow"));
                    }
                    digits.parse().map_err(|_| wrong("is not valid"))?
                } else {
                    let size = u64::from_str_radix(digits, radix);
                    let size = size.map_err(|_| wrong("does not fit into 64 bits"))?;
                    #[expect(clippy::cast_precision_loss, reason = "JavaScript rounds likewise")]
                    let size = size as f64;
                    size
                };
                let value: f64 = if negative { -size } else { size };
                if value.fract() == 0.0 && value.abs() < LARGEST_EXACT {
                    #[expect(clippy::cast_possible_truncation, reason = "whole and small enough")]
                    return Ok(Data::Number(Number::from(value as i64)));
                }
                let number = Number::from_f64(value);
                number.map(Data::Number).ok_or_else(|| wrong("is infinite"))
            }
        }
    }

    fn computed(&self, node: Syntax<'_>) -> Problem {
        computed(self.name, node)
    }

    fn not_data(&self, node: Syntax<'_>, what: &str) -> Problem {
        let message = format!("the value of `{}` contains {what}", self.name);
        Problem::new(node.start_byte(), message)
    }
}
