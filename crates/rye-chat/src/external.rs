//! Programs of the user that take over the terminal: the editor and the pager.

use std::io::{self, Write as _};
use std::process::{Command, Stdio};

/// The user's editor. An empty variable counts as unset.
pub(crate) fn editor_command(variable: impl Fn(&str) -> Option<String>) -> String {
    let set = |name: &&str| variable(name).filter(|it| !it.trim().is_empty());
    let editor = ["VISUAL", "EDITOR"].iter().find_map(set);
    editor.unwrap_or_else(|| "vi".to_owned())
}

/// Opens an editor on a text and returns the edited text.
pub(crate) fn edit(editor: &str, text: &str) -> io::Result<String> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("prompt.md");
    std::fs::write(&file, text)?;
    // By a shell, as other programs do: the variable may contain options.
    let command = format!("{editor} \"$1\"");
    let status = Command::new("sh")
        .args(["-c", &command, "sh"])
        .arg(&file)
        .status()?;
    // Ended by a signal; a shell reports SIGINT as 130.
    if matches!(status.code(), None | Some(130)) {
        let why = "interrupted; your text is unchanged";
        return Err(io::Error::other(why));
    }
    if !status.success() {
        let why = format!("{status}; set EDITOR to choose another editor");
        return Err(io::Error::other(why));
    }
    std::fs::read_to_string(file)
}

/// The user's pager. An empty variable counts as unset.
pub(crate) fn pager_command(variable: impl Fn(&str) -> Option<String>) -> String {
    let set = variable("PAGER").filter(|it| !it.trim().is_empty());
    set.unwrap_or_else(|| "less".to_owned())
}

/// Shows a text in a pager until the user leaves it.
pub(crate) fn page(pager: &str, text: &str) -> io::Result<()> {
    let mut command = Command::new("sh");
    command.args(["-c", pager]).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        // Colours instead of escape sequences.
        command.env("LESS", "-R");
    }
    let mut child = command.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // The user may leave the pager before it has read everything.
        let _ = input.write_all(text.as_bytes());
    }
    match child.wait()?.code() {
        Some(126 | 127) => {
            let why = "cannot run it; set PAGER to choose another pager";
            Err(io::Error::other(why))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_variables_count_as_unset() {
        let set = |name: &str| (name == "PAGER").then(|| " ".to_owned());
        assert_eq!(pager_command(set), "less");
        assert_eq!(pager_command(|_| Some("most -s".to_owned())), "most -s");
        let set = |name: &str| (name == "EDITOR").then(|| "ed".to_owned());
        assert_eq!(editor_command(set), "ed");
        assert_eq!(editor_command(|_| Some(String::new())), "vi");
    }

    #[test]
    fn pager_may_end_before_it_has_read_everything() {
        let text = "line\n".repeat(100_000);
        assert!(page("true", &text).is_ok());
        assert!(page("/nonexistent/pager", &text).is_err());
    }
}
