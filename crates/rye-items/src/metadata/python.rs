//! Python parser: reads literals that a module assigns to known names at the top level.

use tree_sitter::Node as Syntax;

use super::error::Problem;
use super::extractors::FieldSources;
use super::literal;
use super::named_values::NamedValues;
use super::node::{Data, Node};
use super::syntax::{self, Grammar, source};
use super::text::summary;

const DOCSTRING: &str = "@docstring";

/// Reads a module.
pub(super) fn read(text: &str, sources: &FieldSources) -> Result<NamedValues, Problem> {
    let tree = syntax::parse(text, Grammar::Python)?;
    let mut module = Module {
        text,
        sources,
        values: NamedValues::only_fields(),
    };
    let root = tree.root_node();
    let mut first = true;
    for statement in root.named_children(&mut root.walk()) {
        if statement.kind() == "comment" {
            continue;
        }
        if std::mem::take(&mut first) {
            module.docstring(statement)?;
        }
        module.statement(statement)?;
    }
    Ok(module.values)
}

struct Module<'t> {
    text: &'t str,
    sources: &'t FieldSources,
    values: NamedValues,
}

impl<'t> Module<'t> {
    fn docstring(&mut self, statement: Syntax<'_>) -> Result<(), Problem> {
        let Some(string) = statement.named_child(0) else {
            return Ok(());
        };
        let is_string = matches!(string.kind(), "string" | "concatenated_string");
        if statement.kind() == "expression_statement"
            && is_string
            && let Ok(docstring) = literal::read(self.text, Grammar::Python, "__doc__", string)
            && let Data::Text(prose) = docstring.data
            && let Some(summary) = summary(&prose)
        {
            let node = Node::text(string.start_byte(), summary);
            self.values.add(self.text, DOCSTRING, node)?;
        }
        Ok(())
    }

    fn statement(&mut self, statement: Syntax<'_>) -> Result<(), Problem> {
        match statement.kind() {
            "expression_statement" => {
                for expression in statement.named_children(&mut statement.walk()) {
                    match expression.kind() {
                        "assignment" => self.assignment(expression)?,
                        "augmented_assignment" => self.changed(expression)?,
                        _ => {}
                    }
                }
                Ok(())
            }
            "import_statement" | "import_from_statement" => self.imported(statement),
            "if_statement" | "try_statement" | "with_statement" | "for_statement"
            | "while_statement" | "match_statement" => self.nested(statement),
            _ => Ok(()),
        }
    }

    /// `A = B = literal`, with or without types.
    fn assignment(&mut self, assignment: Syntax<'_>) -> Result<(), Problem> {
        let mut names = Vec::new();
        let mut value = Some(assignment);
        while let Some(node) = value
            && node.kind() == "assignment"
        {
            if let Some(left) = node.child_by_field_name("left") {
                names.extend(self.target(left)?);
                if left.kind() == "identifier" {
                    let name = source(self.text, left);
                    self.values.add_other(name, self.sources);
                }
            }
            value = node.child_by_field_name("right");
        }
        let (Some(value), false) = (value, names.is_empty()) else {
            return Ok(());
        };
        for name in names {
            let value = literal::read(self.text, Grammar::Python, name, value)?;
            self.values.add(self.text, name, value)?;
        }
        Ok(())
    }

    /// The known name on the left of an assignment, if there is one.
    fn target(&self, left: Syntax<'_>) -> Result<Option<&'t str>, Problem> {
        match left.kind() {
            "identifier" => Ok(self.known(left)),
            "subscript" | "attribute" => match left.named_child(0).and_then(|of| self.known(of)) {
                Some(name) => Err(modified_problem(left, name)),
                None => Ok(None),
            },
            _ => match self.first_known(left) {
                Some((name, node)) => Err(Problem::new(
                    node.start_byte(),
                    format!("`{name}` is assigned together with others"),
                )
                .hint(format!("assign it on a separate line: {name} = …"))),
                None => Ok(None),
            },
        }
    }

    fn changed(&self, assignment: Syntax<'_>) -> Result<(), Problem> {
        match assignment.child_by_field_name("left") {
            Some(left) => match self.first_known(left) {
                Some((name, _)) => Err(modified_problem(left, name)),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    fn imported(&self, statement: Syntax<'_>) -> Result<(), Problem> {
        let mut cursor = statement.walk();
        for import in statement.children_by_field_name("name", &mut cursor) {
            let local = import.child_by_field_name("alias").unwrap_or(import);
            if let Some(name) = self.known(local) {
                let message = format!(
                    "`{name}` is imported; metadata is read from this file alone, without running it"
                );
                return Err(Problem::new(local.start_byte(), message)
                    .hint("write the value here as a literal"));
            }
        }
        Ok(())
    }

    /// Reports known names that are assigned in nested statements, instead of ignoring them: their
    /// value depends on running the file.
    fn nested(&self, statement: Syntax<'_>) -> Result<(), Problem> {
        if is_main_guard(self.text, statement) {
            return Ok(());
        }
        let mut cursor = statement.walk();
        let mut descend = cursor.goto_first_child();
        while descend {
            let node = cursor.node();
            let assigned = match node.kind() {
                "assignment" | "augmented_assignment" => node
                    .child_by_field_name("left")
                    .and_then(|left| self.known(left)),
                _ => None,
            };
            if let Some(name) = assigned {
                return Err(Problem::new(
                    node.start_byte(),
                    format!("`{name}` is assigned inside another statement, so its value depends on running the file"),
                )
                .hint("assign it at the top level, where it always has the same value"));
            }
            let enter = matches!(
                node.kind(),
                "block"
                    | "if_statement"
                    | "elif_clause"
                    | "else_clause"
                    | "try_statement"
                    | "except_clause"
                    | "except_group_clause"
                    | "finally_clause"
                    | "with_statement"
                    | "for_statement"
                    | "while_statement"
                    | "match_statement"
                    | "case_clause"
                    | "expression_statement"
            );
            descend = (enter && cursor.goto_first_child()) || next_after(&mut cursor);
        }
        Ok(())
    }

    fn first_known<'n>(&self, pattern: Syntax<'n>) -> Option<(&'t str, Syntax<'n>)> {
        if let Some(name) = self.known(pattern) {
            return Some((name, pattern));
        }
        let mut cursor = pattern.walk();
        let mut descend = cursor.goto_first_child();
        while descend {
            let node = cursor.node();
            if let Some(name) = self.known(node) {
                return Some((name, node));
            }
            descend = cursor.goto_first_child() || next_after(&mut cursor);
        }
        None
    }

    fn known(&self, node: Syntax<'_>) -> Option<&'t str> {
        let name = source(self.text, node);
        (matches!(node.kind(), "identifier" | "dotted_name") && self.sources.contains(name))
            .then_some(name)
    }
}

/// Moves to the next node in text order that is not a child of the current one. Stays inside the
/// node where the cursor started.
fn next_after(cursor: &mut tree_sitter::TreeCursor<'_>) -> bool {
    loop {
        if cursor.goto_next_sibling() {
            return true;
        }
        if !cursor.goto_parent() || cursor.depth() == 0 {
            return false;
        }
    }
}

/// Whether a statement is `if __name__ == "__main__":`, whose body does not run on import.
fn is_main_guard(text: &str, statement: Syntax<'_>) -> bool {
    let condition = statement.child_by_field_name("condition");
    condition.is_some_and(|condition| {
        let condition = source(text, condition);
        condition.contains("__name__") && condition.contains("__main__")
    })
}

fn modified_problem(target: Syntax<'_>, name: &str) -> Problem {
    let message = format!(
        "`{name}` is changed after its assignment; metadata is read without running the file"
    );
    Problem::new(target.start_byte(), message).hint("write the whole value in one literal")
}
