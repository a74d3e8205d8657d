//! Markdown parser: reads front matter, the XML element of a directive, and the first heading and
//! paragraph.

mod directive;
mod xml;

use super::error::Problem;
use super::named_values::NamedValues;
use super::node::Node;
use super::text::{Line, is_signature, lines, summary};
use super::yaml;
use crate::ItemKind;

const HEADING: &str = "@heading";
const PARAGRAPH: &str = "@paragraph";

/// Reads a document. Front matter overrides the element, and the element overrides prose.
pub(super) fn read(text: &str, kind: ItemKind) -> Result<NamedValues, Problem> {
    let mut values = NamedValues::everything();
    let body = match front_matter(text)? {
        Some(front) => {
            let problem = |problem: Problem| problem.shifted(front.start);
            for entry in yaml::mapping(&text[front.start..front.end]).map_err(problem)? {
                values.add(text, &entry.key, entry.value.shifted(front.start))?;
            }
            front.after
        }
        None => 0,
    };
    if kind == ItemKind::Directive
        && let Some((start, end)) = element(text, body)
    {
        directive::read(&text[start..end], start, &mut values)?;
    }
    prose(text, body, &mut values);
    Ok(values)
}

/// The byte ranges of the front matter and of the rest.
struct FrontMatter {
    start: usize,
    end: usize,
    after: usize,
}

/// Finds the front matter: a block between `---` lines, or a fenced YAML block, with only comments
/// before it.
fn front_matter(text: &str) -> Result<Option<FrontMatter>, Problem> {
    let mut lines = lines(text, 0).skip_while(|line| line.is_blank() || is_comment(line));
    let Some(first) = lines.next() else {
        return Ok(None);
    };
    let closes: Box<dyn Fn(&Line<'_>) -> bool> = if first.text.trim_end() == "---" {
        Box::new(|line| matches!(line.text.trim_end(), "---" | "..."))
    } else if let Some(fence) =
        Fence::parse(&first).filter(|fence| fence.is_one_of(&["yaml", "yml"]))
    {
        Box::new(move |line| fence.is_closed_by(line))
    } else {
        return Ok(None);
    };
    let start = after(text, &first);
    match lines.find(|line| closes(line)) {
        Some(last) => Ok(Some(FrontMatter {
            start,
            end: last.at,
            after: after(text, &last),
        })),
        None => Err(Problem::new(first.at, "the front matter is never closed")
            .hint("end it with the same line that starts it")),
    }
}

fn is_comment(line: &Line<'_>) -> bool {
    let text = line.text.trim();
    is_signature(text) || text.starts_with("<!--") && text.ends_with("-->")
}

/// The byte offset after a line and its line break.
fn after(text: &str, line: &Line<'_>) -> usize {
    let rest = &text[line.end()..];
    let rest = rest.strip_prefix('\r').unwrap_or(rest);
    text.len() - rest.strip_prefix('\n').unwrap_or(rest).len()
}

/// The opening line of a fenced block.
struct Fence<'t> {
    mark: char,
    length: usize,
    info: &'t str,
}

impl<'t> Fence<'t> {
    fn parse(line: &Line<'t>) -> Option<Self> {
        let text = line.text.trim();
        let mark = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let info = text.trim_start_matches(mark);
        let length = text.len() - info.len();
        (length >= 3 && !info.contains('`')).then_some(Self { mark, length, info })
    }

    fn is_one_of(&self, languages: &[&str]) -> bool {
        let language = self.info.split_whitespace().next().unwrap_or_default();
        languages
            .iter()
            .any(|one| language.eq_ignore_ascii_case(one))
    }

    fn is_closed_by(&self, line: &Line<'_>) -> bool {
        let text = line.text.trim();
        text.len() >= self.length && text.chars().all(|c| c == self.mark)
    }
}

/// The byte range that can contain a directive's element. It ends with the fenced block that
/// contains the element.
fn element(text: &str, from: usize) -> Option<(usize, usize)> {
    let mut lines = lines(text, from);
    while let Some(line) = lines.next() {
        if let Some(start) = opening(&line) {
            return Some((start, text.len()));
        }
        let Some(fence) = Fence::parse(&line) else {
            continue;
        };
        let readable = fence.is_one_of(&["xml"]);
        let mut start = None;
        let end = loop {
            match lines.next() {
                Some(line) if fence.is_closed_by(&line) => break line.at,
                Some(line) => start = start.or_else(|| opening(&line)),
                None => break text.len(),
            }
        };
        if let Some(start) = start.filter(|_| readable) {
            return Some((start, end));
        }
    }
    None
}

/// The byte offset of a directive's opening tag in a line.
fn opening(line: &Line<'_>) -> Option<usize> {
    let trimmed = line.text.trim_start();
    let rest = trimmed.strip_prefix("<directive")?;
    let ends = rest.is_empty() || rest.starts_with(|c: char| c.is_whitespace() || "/>".contains(c));
    ends.then(|| line.end() - trimmed.len())
}

/// Reads the first heading and the first paragraph.
fn prose(text: &str, from: usize, values: &mut NamedValues) {
    let mut lines = lines(text, from).peekable();
    while let Some(line) = lines.next() {
        if opening(&line).is_some() {
            return;
        }
        if let Some(fence) = Fence::parse(&line) {
            lines.by_ref().find(|line| fence.is_closed_by(line));
        } else if let Some(heading) = heading(&line) {
            let at = line.end() - line.text.trim_end().len()
                + (line.text.len() - line.text.trim_start().len());
            if !heading.is_empty() {
                values.add_if_new(HEADING, Node::text(at, heading));
            }
        } else if is_paragraph(&line) {
            let mut paragraph = line.text.to_owned();
            while let Some(next) = lines.next_if(is_paragraph) {
                paragraph.push('\n');
                paragraph.push_str(next.text);
            }
            if let Some(summary) = summary(&paragraph) {
                let indent = line.text.len() - line.text.trim_start().len();
                values.add_if_new(PARAGRAPH, Node::text(line.at + indent, summary));
            }
        }
        if values.get(HEADING).is_some() && values.get(PARAGRAPH).is_some() {
            return;
        }
    }
}

fn heading(line: &Line<'_>) -> Option<String> {
    let rest = line.text.trim().strip_prefix('#')?;
    let title = rest.strip_prefix([' ', '\t'])?.trim();
    // A heading may end with any number of `#`.
    let closed = title.trim_end_matches('#');
    let title = if closed.is_empty() || closed.ends_with([' ', '\t']) {
        closed.trim_end()
    } else {
        title
    };
    Some(title.to_owned())
}

/// Whether a line is prose rather than a heading, list, table, quote or HTML.
fn is_paragraph(line: &Line<'_>) -> bool {
    let text = line.text.trim();
    let listed = ["- ", "* ", "+ "].iter().any(|mark| text.starts_with(mark));
    let ruled = text.len() >= 3 && text.chars().all(|c| "-=*_ ".contains(c));
    !text.is_empty()
        && !text.starts_with(['#', '<', '|', '>'])
        && !listed
        && !ruled
        && Fence::parse(line).is_none()
}
