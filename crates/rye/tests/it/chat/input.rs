//! The input: editing, completion, history and images.

use crate::chat::window::{RESUME_HINT, Window};
use crate::chat::{MODEL, NARROW, WIDE, assert_screen, env};

/// The signature of a PNG file.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

#[test]
fn mentioned_or_pasted_image_is_attached() {
    for (name, size) in [("image_wide", WIDE), ("image_narrow", NARROW)] {
        let env = env("{ steps: [], after_last: { text: noted } }");
        std::fs::write(env.path("project/a.png"), PNG).unwrap();
        let window = Window::open(&env, MODEL, size);
        window.wait_ready();
        window.press("what is @a.png\r");
        window.wait_for("noted");
        assert_screen!(name, window.wait_ready());
        // A pasted path.
        let path = env.path("project/a.png");
        window.press(&format!("\x1b[200~{}\x1b[201~", path.display()));
        window.wait_until("the mention", |screen| {
            screen
                .replace(['\n', ' '], "")
                .contains(&format!("@{}", path.display()))
        });
        window.press("\r");
        window.wait_until("both answers", |screen| {
            screen.matches("noted").count() == 2
        });
        window.press("and @gone.png\r");
        window.wait_for("not sent: cannot read gone.png");
        window.wait_for("› and @gone.png");
    }
}

#[test]
fn input_is_edited_completed_and_kept_in_the_history() {
    let mut env = env("{ steps: [], after_last: { text: noted } }");
    env.write("project/notes/plan.md", "x");
    env.write("editor.sh", "#!/bin/sh\necho 'from the editor' > \"$1\"\n");
    let editor = format!("sh {}", env.path("editor.sh").display());
    env.set("EDITOR", &editor);
    let window = Window::open(&env, MODEL, WIDE);
    window.wait_ready();
    window.press("one\x1b\rtwo\\\rthree");
    window.wait_until("three lines", |it| it.contains("› one\n  two\n  three"));
    window.press("\x15\x7f\x15\x7f\x15");
    window.press("/he");
    assert_screen!("commands_wide", window.wait_for("› /he\n▸ help"));
    window.resize_and_wait(36, 16);
    window.press("\x15/");
    assert_screen!("commands_narrow", window.wait_for("▸ model"));
    window.resize_and_wait(80, 24);
    window.press("\x15/he");
    window.wait_for("▸ help");
    window.press("\t\x15");
    window.press("look at @plan");
    window.wait_for("▸ notes/plan.md");
    window.press("\t");
    window.wait_for("› look at @notes/plan.md");
    window.press("\x15\x07");
    window.wait_for("› from the editor");
    window.press("\r");
    window.wait_for("noted");
    window.press("\x04");
    let (code, screen) = window.exit();
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains(RESUME_HINT), "{screen}");

    let window = Window::open(&env, MODEL, WIDE);
    window.wait_ready();
    window.press("\x1b[A");
    window.wait_for("› from the editor");
    window.press("\x15\x12from the");
    window.wait_for("→ from the editor");
    window.press("\r");
    window.wait_for("› from the editor");
}

#[test]
fn input_is_readable_at_any_width() {
    for (name, size) in [("editing_wide", WIDE), ("editing_narrow", NARROW)] {
        let env = env("{ steps: [], after_last: { text: noted } }");
        env.write("project/notes/plan.md", "x");
        let window = Window::open(&env, MODEL, size);
        window.wait_ready();
        window.press("an earlier prompt\r");
        window.wait_for("noted");
        window.wait_ready();
        window.press("one\x1b\rtwo\\\rsee @pla");
        let file = window.wait_until("the file", |screen| {
            screen.contains("see @pla\n▸ notes/plan.md")
        });
        window.press("\t");
        window.wait_for("see @notes/plan.md");
        window.press("\x12ear");
        let search = window.wait_for("search: ear  → an earlier");
        window.press("\x1b");
        let back = window.wait_until("the draft", |screen| {
            screen.contains("› one") && screen.contains("see @notes/plan.md")
        });
        assert_screen!(
            name,
            format!("{file}\n=== Tab, Ctrl-R\n{search}\n=== Esc\n{back}")
        );
    }
}

#[test]
fn file_name_with_spaces_is_completed_in_quotes() {
    let env = env("{ steps: [], after_last: { text: noted } }");
    env.write("project/my notes.md", "x");
    let window = Window::open(&env, MODEL, WIDE);
    window.wait_ready();
    window.press("see @my");
    window.wait_for("▸ \"my notes.md\"");
    window.press("\t and");
    window.wait_for("› see @\"my notes.md\" and");
}
