//! JavaScript and TypeScript parser: reads literals that a module exports under known names, and
//! the tags of its leading doc comment.

use std::collections::HashMap;

use tree_sitter::Node as Syntax;

use super::error::Problem;
use super::extractors::FieldSources;
use super::header::scalar;
use super::literal;
use super::named_values::NamedValues;
use super::node::Node;
use super::syntax::{self, Grammar, source};
use super::text::{lines, summary};

/// The synthetic name of the text before the tags.
const DOC: &str = "@doc";

/// Reads an ES module or a `CommonJS` module.
pub(super) fn read(
    text: &str,
    grammar: Grammar,
    sources: &FieldSources,
) -> Result<NamedValues, Problem> {
    read_module(text, grammar, sources, |module| Ok(module.values))
}

/// Reports a variable of a tool that has the name of a field but is not exported.
pub(super) fn check_exports(
    text: &str,
    grammar: Grammar,
    sources: &FieldSources,
) -> Result<(), Problem> {
    read_module(text, grammar, sources, |module| {
        let is_private = |name: &&str| sources.is_direct(name) && module.values.get(name).is_none();
        let private = module.variables.keys().copied().filter(is_private);
        let mut private: Vec<_> = private.collect();
        let mut executor = sources.0.get("executor_id").into_iter().flatten();
        let is_tool = executor.any(|source| {
            module.values.get(&source.name).is_some() || private.contains(&source.name.as_str())
        });
        private.sort_by_key(|name| offset(text, name));
        match private.first() {
            Some(name) if is_tool => {
                let message = format!("`{name}` is not exported, so it is not metadata");
                let hint = format!("export const {name} = …");
                Err(Problem::new(offset(text, name), message).hint(hint))
            }
            _ => Ok(()),
        }
    })
}

/// Reads a module and passes it on, together with its syntax tree.
fn read_module<T>(
    text: &str,
    grammar: Grammar,
    sources: &FieldSources,
    read: impl FnOnce(Module<'_, '_>) -> Result<T, Problem>,
) -> Result<T, Problem> {
    let tree = syntax::parse(text, grammar)?;
    let root = tree.root_node();
    let mut module = Module {
        text,
        grammar,
        sources,
        variables: HashMap::new(),
        values: NamedValues::only_fields(),
    };
    let mut leading = true;
    for statement in root.named_children(&mut root.walk()) {
        match statement.kind() {
            "comment" if leading => read_doc(text, statement, sources, &mut module.values)?,
            "comment" | "hash_bang_line" => {}
            _ => leading = false,
        }
        module.declare(statement);
    }
    let mut cursor = root.walk();
    for statement in root.named_children(&mut cursor) {
        module.statement(statement)?;
    }
    read(module)
}

struct Module<'t, 'n> {
    text: &'t str,
    grammar: Grammar,
    sources: &'t FieldSources,
    /// The module's variables and their initial values.
    variables: HashMap<&'t str, Option<Syntax<'n>>>,
    values: NamedValues,
}

impl<'t, 'n> Module<'t, 'n> {
    fn declare(&mut self, statement: Syntax<'n>) {
        let declaration = match statement.kind() {
            "export_statement" => statement.child_by_field_name("declaration"),
            _ => Some(statement),
        };
        for (name, value) in declaration.into_iter().flat_map(declarators) {
            let name = source(self.text, name);
            self.variables.insert(name, value);
            self.values.add_other(name, self.sources);
        }
    }

    fn statement(&mut self, statement: Syntax<'n>) -> Result<(), Problem> {
        match statement.kind() {
            "export_statement" => self.export(statement),
            "expression_statement" => match syntax::inside(statement) {
                Some(assignment) if assignment.kind() == "assignment_expression" => {
                    self.assignment(assignment)
                }
                Some(assignment) if assignment.kind() == "augmented_assignment_expression" => {
                    self.changed(assignment)
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// `export const X = …`, `export { X, y as X }`.
    fn export(&mut self, export: Syntax<'n>) -> Result<(), Problem> {
        let from_elsewhere = export.child_by_field_name("source").is_some();
        if let Some(declaration) = export.child_by_field_name("declaration") {
            for (name, value) in declarators(declaration) {
                self.add(name, value)?;
            }
            if is_code(declaration)
                && let Some(name) = declaration.child_by_field_name("name")
            {
                self.add(name, None)?;
            }
        }
        for clause in export.named_children(&mut export.walk()) {
            if clause.kind() != "export_clause" {
                continue;
            }
            for specifier in clause.named_children(&mut clause.walk()) {
                let Some(local) = specifier.child_by_field_name("name") else {
                    continue;
                };
                let exported = specifier.child_by_field_name("alias").unwrap_or(local);
                if from_elsewhere && let Some(name) = self.known(exported) {
                    return Err(reexport_problem(exported, name));
                }
                let value = self.variable(local);
                self.add(exported, value)?;
            }
        }
        Ok(())
    }

    /// `module.exports = {…}`, `module.exports.X = …`, `exports.X = …`.
    fn assignment(&mut self, assignment: Syntax<'n>) -> Result<(), Problem> {
        let mut whole = false;
        let mut names = Vec::new();
        let mut value = Some(assignment);
        while let Some(node) = value
            && node.kind() == "assignment_expression"
        {
            if let Some(left) = node.child_by_field_name("left") {
                let target: String = source(self.text, left).split_whitespace().collect();
                match target.strip_prefix("module.").unwrap_or(&target) {
                    "exports" => whole = true,
                    member if member.starts_with("exports.") => {
                        names.extend(left.child_by_field_name("property"));
                    }
                    _ => self.not_reassigned(left)?,
                }
            }
            value = node.child_by_field_name("right");
        }
        let value = value.map(|value| self.resolved(value));
        for name in names {
            self.add(name, value)?;
        }
        match value {
            Some(object) if whole && object.kind() == "object" => self.members(object),
            _ => Ok(()),
        }
    }

    fn members(&mut self, object: Syntax<'n>) -> Result<(), Problem> {
        let mut cursor = object.walk();
        for member in object.named_children(&mut cursor) {
            match member.kind() {
                "pair" => {
                    let key = member.child_by_field_name("key");
                    let value = member.child_by_field_name("value");
                    if let Some((key, value)) = key.zip(value) {
                        let value = self.resolved(value);
                        self.add(key, Some(value))?;
                    }
                }
                "shorthand_property_identifier" => {
                    let value = self.variable(member);
                    self.add(member, value)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn changed(&self, assignment: Syntax<'_>) -> Result<(), Problem> {
        match assignment.child_by_field_name("left") {
            Some(left) => self.not_reassigned(left),
            None => Ok(()),
        }
    }

    /// Reports a module variable that is assigned again later.
    fn not_reassigned(&self, target: Syntax<'_>) -> Result<(), Problem> {
        let object = target.child_by_field_name("object").unwrap_or(target);
        match self.known(object) {
            Some(name) if self.variables.contains_key(name) => Err(Problem::new(
                target.start_byte(),
                format!(
                    "`{name}` is changed after its declaration; metadata is read without running the file"
                ),
            )
            .hint("write the whole value in one literal")),
            _ => Ok(()),
        }
    }

    /// Adds the value of a known name.
    fn add(&mut self, name: Syntax<'_>, value: Option<Syntax<'_>>) -> Result<(), Problem> {
        let Some(known) = self.known(name) else {
            return Ok(());
        };
        let value = match value {
            Some(value) => literal::read(self.text, self.grammar, known, value)?,
            None => return Err(literal::computed(known, name)),
        };
        self.values.add(self.text, known, value)
    }

    fn known(&self, name: Syntax<'_>) -> Option<&'t str> {
        let name = source(self.text, name).trim_matches(['"', '\'']);
        self.sources.contains(name).then_some(name)
    }

    fn variable(&self, name: Syntax<'_>) -> Option<Syntax<'n>> {
        self.variables
            .get(source(self.text, name))
            .copied()
            .flatten()
    }

    fn resolved(&self, value: Syntax<'n>) -> Syntax<'n> {
        match value.kind() {
            "identifier" => self.variable(value).unwrap_or(value),
            _ => value,
        }
    }
}

/// The names in a declaration with their initial values.
fn declarators(declaration: Syntax<'_>) -> Vec<(Syntax<'_>, Option<Syntax<'_>>)> {
    if !matches!(
        declaration.kind(),
        "lexical_declaration" | "variable_declaration"
    ) {
        return Vec::new();
    }
    let mut cursor = declaration.walk();
    let parts = declaration.named_children(&mut cursor);
    parts
        .filter_map(|part| {
            let name = part.child_by_field_name("name")?;
            let value = part.child_by_field_name("value");
            (name.kind() == "identifier").then_some((name, value))
        })
        .collect()
}

/// Whether a declaration declares code rather than a type.
fn is_code(declaration: Syntax<'_>) -> bool {
    matches!(
        declaration.kind(),
        "function_declaration"
            | "generator_function_declaration"
            | "class_declaration"
            | "enum_declaration"
    )
}

fn reexport_problem(node: Syntax<'_>, name: &str) -> Problem {
    let message = format!(
        "`{name}` is exported from another file; metadata is read from this file alone, without running it"
    );
    Problem::new(node.start_byte(), message).hint("write the value here as a literal")
}

/// Reads a comment if it is the leading doc comment: `/** What it does. @executor_id … */`.
fn read_doc(
    text: &str,
    comment: Syntax<'_>,
    sources: &FieldSources,
    values: &mut NamedValues,
) -> Result<(), Problem> {
    let whole = source(text, comment);
    let content = whole
        .strip_prefix("/**")
        .and_then(|rest| rest.strip_suffix("*/"));
    let Some(content) = content else {
        return Ok(());
    };
    let start = comment.start_byte() + 3;
    let mut prose = String::new();
    let mut prose_at = None;
    let mut in_prose = true;
    for line in lines(content, 0) {
        let trimmed = line.text.trim_start();
        let inner = trimmed.strip_prefix('*').unwrap_or(trimmed).trim();
        let at = start + line.at + offset(line.text, inner);
        if let Some(tag) = inner.strip_prefix('@') {
            in_prose = false;
            let (name, value) = tag.split_once(char::is_whitespace).unwrap_or((tag, ""));
            let name = format!("@{name}");
            if name != DOC && sources.contains(&name) {
                let value = value.trim();
                let node = scalar(value, at + offset(inner, value))?;
                values.add(text, &name, node)?;
            } else {
                values.add_other(&name, sources);
            }
        } else if in_prose {
            if !inner.is_empty() {
                prose_at.get_or_insert(at);
            }
            prose.push_str(inner);
            prose.push('\n');
        }
    }
    if let (Some(at), Some(summary)) = (prose_at, summary(&prose)) {
        values.add_if_new(DOC, Node::text(at, summary));
    }
    Ok(())
}

/// The byte offset of a substring in its line.
fn offset(line: &str, part: &str) -> usize {
    part.as_ptr().addr().saturating_sub(line.as_ptr().addr())
}
