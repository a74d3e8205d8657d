//! Parses the leading doc comment: `/** What it does. @executor_id … */`.

use tree_sitter::Node as Syntax;

use crate::metadata::error::Problem;
use crate::metadata::extractors::FieldSources;
use crate::metadata::header::scalar;
use crate::metadata::named_values::NamedValues;
use crate::metadata::node::Node;
use crate::metadata::syntax::source;
use crate::metadata::text::{lines, summary};

/// The synthetic name of the text before the tags.
const DOC: &str = "@doc";

/// Reads a comment if it is a doc comment.
pub(super) fn read(
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
