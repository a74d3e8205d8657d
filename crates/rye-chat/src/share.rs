//! A conversation as an HTML page that needs no other file.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Color, Effects};
use rye_engine::protocol::{Entry, Thread};

use crate::pane::Pane;
use crate::text::Line;

/// Width of the transcript, in characters.
const WIDTH: usize = 100;

const STYLE: &str = "body{margin:2rem auto;max-width:62rem;padding:0 1rem;\
    font-family:system-ui,sans-serif;background:#fff;color:#1b1f24}\
    pre{font-family:ui-monospace,monospace;font-size:.85rem;line-height:1.45;white-space:pre-wrap;\
    overflow-wrap:anywhere}\
    .b{font-weight:600}.d{opacity:.6}.i{font-style:italic}.u{text-decoration:underline}\
    .s{text-decoration:line-through}\
    .c1{color:#b3261e}.c2{color:#1a7f37}.c3{color:#8a5a00}.c4{color:#0950c5}.c5{color:#8250df}\
    .c6{color:#0b7285}\
    .ok{border-left:4px solid #1a7f37;padding-left:1rem}\
    .bad{border-left:4px solid #b3261e;padding-left:1rem}\
    @media(prefers-color-scheme:dark){body{background:#15181c;color:#d7dce2}\
    .c1{color:#ff8a80}.c2{color:#7ee787}.c3{color:#e3b341}.c4{color:#79b8ff}.c5{color:#d2a8ff}\
    .c6{color:#56d4dd}}";

/// The page: title, verification, and each thread as the chat shows it with expanded output.
pub(crate) fn page(
    title: &str,
    session: &str,
    threads: &[(Thread, Vec<Entry>)],
    is_verified: bool,
    verification: &str,
) -> String {
    let title = match title {
        "" => format!("Session {session}"),
        title => title.to_owned(),
    };
    let (title, session) = (escape(&title), escape(session));
    let class = if is_verified { "ok" } else { "bad" };
    let verification = escape(&lillux::strip_control(verification));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n<h1>{title}</h1>\n\
         <p>Session {session}, rye {version}</p>\n<pre class=\"{class}\">{verification}</pre>\n",
        version = env!("CARGO_PKG_VERSION"),
        verification = verification.trim_end(),
    );
    for (thread, entries) in threads {
        if threads.len() > 1 {
            let _ = writeln!(page, "<h2>{}</h2>", escape(&thread.key));
        }
        page += "<pre>";
        for line in transcript(thread, entries) {
            page += &html(&line);
            page.push('\n');
        }
        page += "</pre>\n";
    }
    page
}

fn transcript(thread: &Thread, entries: &[Entry]) -> Vec<Line> {
    let mut pane = Pane::new(&thread.key, Some(thread.id.clone()));
    for entry in entries {
        pane.on_entry(entry);
    }
    let blocks = pane.blocks.iter();
    blocks.flat_map(|block| block.lines(WIDTH, true)).collect()
}

fn html(line: &Line) -> String {
    let mut text = String::new();
    for span in &line.spans {
        let effects = span.style.get_effects();
        let named = [
            (Effects::BOLD, "b"),
            (Effects::DIMMED, "d"),
            (Effects::ITALIC, "i"),
            (Effects::UNDERLINE, "u"),
            (Effects::STRIKETHROUGH, "s"),
        ];
        let named = named.into_iter().filter(|(it, _)| effects.contains(*it));
        let mut classes: Vec<_> = named.map(|(_, class)| class).collect();
        classes.extend(match span.style.get_fg_color() {
            Some(Color::Ansi(AnsiColor::Red)) => Some("c1"),
            Some(Color::Ansi(AnsiColor::Green)) => Some("c2"),
            Some(Color::Ansi(AnsiColor::Yellow)) => Some("c3"),
            Some(Color::Ansi(AnsiColor::Blue)) => Some("c4"),
            Some(Color::Ansi(AnsiColor::Magenta)) => Some("c5"),
            Some(Color::Ansi(AnsiColor::Cyan)) => Some("c6"),
            _ => None,
        });
        let escaped = escape(&span.text);
        if classes.is_empty() {
            text += &escaped;
        } else {
            let classes = classes.join(" ");
            let _ = write!(text, "<span class=\"{classes}\">{escaped}</span>");
        }
    }
    text
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use rye_engine::protocol::{EntryKind, Message, Millis, Role};

    use super::*;

    #[test]
    fn text_of_the_conversation_cannot_become_markup() {
        let thread = Thread::new("s".parse().unwrap(), "default", Millis(1));
        let entry = Entry {
            id: "e".parse().unwrap(),
            session: "s".parse().unwrap(),
            thread: "t".parse().unwrap(),
            parent: None,
            prompt: None,
            kind: EntryKind::Message(Message::text(Role::User, "<script>x</script> & \"y\"")),
            created_at: Millis(1),
            hash: String::new(),
        };
        let page = page(
            "a <b>",
            "s",
            &[(thread, vec![entry])],
            true,
            "verified <all>\n",
        );
        assert!(
            page.contains("&lt;script&gt;x&lt;/script&gt; &amp; &quot;y&quot;"),
            "{page}"
        );
        assert!(page.contains("<h1>a &lt;b&gt;</h1>"), "{page}");
        assert!(
            page.contains("<pre class=\"ok\">verified &lt;all&gt;</pre>"),
            "{page}"
        );
        assert!(!page.contains("<script"), "{page}");
    }
}
