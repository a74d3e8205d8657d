//! Parses a patch in the format that models of `OpenAI` are trained on.

/// A patch: changes of files, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileChange {
    pub(super) path: String,
    pub(super) kind: ChangeKind,
    /// The patch with this change only.
    pub(super) text: String,
}

/// What happens to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChangeKind {
    Add(String),
    Delete,
    Update {
        move_to: Option<String>,
        hunks: Vec<Hunk>,
    },
}

/// Consecutive lines to replace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Hunk {
    /// Lines such as `fn main() {` after which the hunk is, the outermost first.
    pub(super) after: Vec<String>,
    /// The lines of the file: context and removed lines.
    pub(super) old: Vec<String>,
    /// The lines in their place: context and added lines.
    pub(super) new: Vec<String>,
    /// The hunk ends with the file.
    pub(super) is_at_end: bool,
}

pub(super) const BEGIN: &str = "*** Begin Patch";
pub(super) const END: &str = "*** End Patch";
const ADD: &str = "*** Add File: ";
const DELETE: &str = "*** Delete File: ";
const UPDATE: &str = "*** Update File: ";
const MOVE: &str = "*** Move to: ";
const END_OF_FILE: &str = "*** End of File";

/// Parses a patch. The error is a message for the model, with the number of the line.
pub(super) fn parse(patch: &str) -> Result<Vec<FileChange>, String> {
    let lines: Vec<&str> = patch.trim().lines().collect();
    let (Some(&first), Some(&last)) = (lines.first(), lines.last()) else {
        return Err("the patch is empty".to_owned());
    };
    if first.trim() != BEGIN || last.trim() != END || lines.len() < 2 {
        return Err(format!(
            "the first line of a patch is `{BEGIN}`, and the last is `{END}`"
        ));
    }
    let body = &lines[1..lines.len() - 1];
    let is_header = |line: &str| [ADD, DELETE, UPDATE].iter().any(|it| line.starts_with(it));
    let mut changes: Vec<FileChange> = Vec::new();
    let mut at = 0;
    while at < body.len() {
        let length = body[at + 1..].iter().position(|line| is_header(line));
        let end = length.map_or(body.len(), |length| at + 1 + length);
        let section = &body[at..end];
        let change = file_change(section).map_err(|(line, why)| {
            // The first line of the patch is not part of the body.
            format!("line {} of the patch: {why}", at + line + 2)
        })?;
        if changes.iter().any(|other| other.path == change.path) {
            return Err(format!(
                "the patch changes {} twice: use several hunks in one section",
                change.path
            ));
        }
        changes.push(change);
        at = end;
    }
    if changes.is_empty() {
        return Err("the patch changes no file".to_owned());
    }
    Ok(changes)
}

/// Parses the section of one file. The error has the index of the line.
fn file_change(section: &[&str]) -> Result<FileChange, (usize, String)> {
    let (header, rest) = section.split_first().ok_or((0, "no header".to_owned()))?;
    let with_path = |path: &str| match path.trim() {
        "" => Err((0, "the path is missing".to_owned())),
        path => Ok(path.to_owned()),
    };
    let (path, kind) = if let Some(path) = header.strip_prefix(ADD) {
        (with_path(path)?, ChangeKind::Add(added_text(rest)?))
    } else if let Some(path) = header.strip_prefix(DELETE) {
        if let Some(at) = rest.iter().position(|line| !line.trim().is_empty()) {
            return Err((at + 1, "a deleted file has no lines".to_owned()));
        }
        (with_path(path)?, ChangeKind::Delete)
    } else if let Some(path) = header.strip_prefix(UPDATE) {
        let moved = rest.first().and_then(|line| line.strip_prefix(MOVE));
        let skipped = 1 + usize::from(moved.is_some());
        let move_to = moved.map(with_path).transpose()?;
        let hunks = hunks(&section[skipped..]).map_err(|(at, why)| (at + skipped, why))?;
        if hunks.is_empty() && move_to.is_none() {
            return Err((0, "the section has no change".to_owned()));
        }
        (with_path(path)?, ChangeKind::Update { move_to, hunks })
    } else {
        let message = format!("expected `{ADD}PATH`, `{UPDATE}PATH` or `{DELETE}PATH`");
        return Err((0, message));
    };
    let text = format!("{BEGIN}\n{}\n{END}", section.join("\n"));
    Ok(FileChange { path, kind, text })
}

fn added_text(lines: &[&str]) -> Result<String, (usize, String)> {
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        let line = line
            .strip_prefix('+')
            .ok_or_else(|| (at + 1, "each line of a new file starts with `+`".to_owned()))?;
        text += line;
        text.push('\n');
    }
    Ok(text)
}

fn hunks(lines: &[&str]) -> Result<Vec<Hunk>, (usize, String)> {
    let mut hunks: Vec<Hunk> = Vec::new();
    let mut hunk = Hunk::default();
    let has_lines = |hunk: &Hunk| !hunk.old.is_empty() || !hunk.new.is_empty();
    for (at, line) in lines.iter().enumerate() {
        if let Some(header) = line.strip_prefix("@@") {
            if has_lines(&hunk) {
                hunks.push(std::mem::take(&mut hunk));
            }
            let header = header.trim();
            // Ranges of line numbers, which models get wrong, say nothing.
            let is_range = header.starts_with('-') && header.contains(" +");
            if !header.is_empty() && !is_range {
                hunk.after.push(header.to_owned());
            }
            continue;
        }
        if line.trim() == END_OF_FILE {
            hunk.is_at_end = true;
            continue;
        }
        let mut chars = line.chars();
        let sign = chars.next();
        let rest = chars.as_str().to_owned();
        match sign {
            Some('+') => hunk.new.push(rest),
            Some('-') => hunk.old.push(rest),
            Some(' ') => {
                hunk.old.push(rest.clone());
                hunk.new.push(rest);
            }
            // An empty line of context without its space.
            None => {
                hunk.old.push(String::new());
                hunk.new.push(String::new());
            }
            Some(_) => {
                let message = "a line of a hunk starts with `+`, `-` or a space";
                return Err((at, message.to_owned()));
            }
        }
    }
    if has_lines(&hunk) {
        hunks.push(hunk);
    }
    Ok(hunks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(all: &[&str]) -> Vec<String> {
        all.iter().map(|&line| line.to_owned()).collect()
    }

    #[test]
    fn sections_and_hunks_are_parsed() {
        let patch = "*** Begin Patch\n*** Add File: a.txt\n+one\n+\n*** Delete File: b.txt\n\
                     *** Update File: c.rs\n*** Move to: d.rs\n@@ mod x\n@@ fn main() {\n a\n-b\n\
                     +c\n\n@@\n-z\n*** End of File\n*** End Patch\n";
        let changes = parse(patch).unwrap();
        let paths: Vec<_> = changes.iter().map(|it| it.path.as_str()).collect();
        assert_eq!(paths, ["a.txt", "b.txt", "c.rs"]);
        assert_eq!(changes[0].kind, ChangeKind::Add("one\n\n".to_owned()));
        assert_eq!(changes[1].kind, ChangeKind::Delete);
        let first = Hunk {
            after: lines(&["mod x", "fn main() {"]),
            old: lines(&["a", "b", ""]),
            new: lines(&["a", "c", ""]),
            is_at_end: false,
        };
        let second = Hunk {
            old: lines(&["z"]),
            is_at_end: true,
            ..Hunk::default()
        };
        assert_eq!(
            changes[2].kind,
            ChangeKind::Update {
                move_to: Some("d.rs".to_owned()),
                hunks: vec![first, second],
            }
        );
        // Each change is a patch of its own.
        for change in &changes {
            assert_eq!(
                parse(&change.text).as_deref(),
                Ok(std::slice::from_ref(change))
            );
        }
    }

    #[test]
    fn invalid_patches_are_reported_with_the_line() {
        for (patch, expected) in [
            ("", "empty"),
            ("*** Add File: a\n+b", "first line"),
            ("*** Begin Patch\n*** End Patch", "no file"),
            ("*** Begin Patch\n+a\n*** End Patch", "line 2"),
            (
                "*** Begin Patch\n*** Add File: a\nb\n*** End Patch",
                "line 3",
            ),
            (
                "*** Begin Patch\n*** Add File: \n*** End Patch",
                "path is missing",
            ),
            (
                "*** Begin Patch\n*** Update File: a\n*** End Patch",
                "no change",
            ),
            (
                "*** Begin Patch\n*** Update File: a\n@@\n x\n?y\n*** End Patch",
                "line 5",
            ),
            (
                "*** Begin Patch\n*** Delete File: a\n*** Delete File: a\n*** End Patch",
                "twice",
            ),
        ] {
            let why = parse(patch).unwrap_err();
            assert!(why.contains(expected), "{patch}: {why}");
        }
    }
}
