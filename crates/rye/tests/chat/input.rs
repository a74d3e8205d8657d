//! What a person writes, and how.

use crate::window::Window;
use crate::{MODEL, NARROW, WIDE, same, world};

/// As much of an image as is looked at.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

#[test]
fn an_image_goes_with_what_is_said_by_its_path_or_pasted() {
    for (name, size) in [("image_wide", WIDE), ("image_narrow", NARROW)] {
        let world = world("{ steps: [], after_last: { text: noted } }");
        std::fs::write(world.path("project/a.png"), PNG).unwrap();
        let window = Window::open(&world, MODEL, size);
        window.ready();
        window.press("what is @a.png\r");
        window.shows("noted");
        same!(name, window.ready());
        // The path of a file that is dropped or pasted.
        let path = world.path("project/a.png");
        window.press(&format!("\x1b[200~{}\x1b[201~", path.display()));
        window.until("an image", |screen| {
            screen
                .replace(['\n', ' '], "")
                .contains(&format!("@{}", path.display()))
        });
        window.press("\r");
        window.until("both are there", |screen| {
            screen.matches("noted").count() == 2
        });
        window.press("and @gone.png\r");
        window.shows("not sent: cannot read gone.png");
        window.shows("› and @gone.png");
    }
}

#[test]
fn lines_are_edited_completed_and_remembered() {
    let mut world = world("{ steps: [], after_last: { text: noted } }");
    world.write("project/notes/plan.md", "x");
    world.write("editor.sh", "#!/bin/sh\necho 'written outside' > \"$1\"\n");
    let editor = format!("sh {}", world.path("editor.sh").display());
    world.set("EDITOR", &editor);
    let window = Window::open(&world, MODEL, WIDE);
    window.ready();
    window.press("one\x1b\rtwo\\\rthree");
    window.until("three lines", |it| it.contains("› one\n  two\n  three"));
    window.press("\x15\x7f\x15\x7f\x15");
    window.press("/he");
    same!("commands_wide", window.shows("› /he\n▸ help"));
    window.resized(36, 16);
    window.press("\x15/");
    same!("commands_narrow", window.shows("▸ model"));
    window.resized(80, 24);
    window.press("\x15/he");
    window.shows("▸ help");
    window.press("\t\x15");
    window.press("look at @plan");
    window.shows("▸ notes/plan.md");
    window.press("\t");
    window.shows("› look at @notes/plan.md");
    window.press("\x15\x07");
    window.shows("› written outside");
    window.press("\r");
    window.shows("noted");
    window.press("\x04");
    let (code, screen) = window.exit();
    assert_eq!(code, 0, "{screen}");
    assert!(
        screen.contains("it goes on with: rye chat --session"),
        "{screen}"
    );

    let window = Window::open(&world, MODEL, WIDE);
    window.ready();
    window.until("the past", |_| true);
    window.press("\x1b[A");
    window.shows("› written outside");
    window.press("\x15\x12outs");
    window.shows("→ written outside");
    window.press("\r");
    window.shows("› written outside");
}

/// Several lines, a file, and what was written before.
#[test]
fn what_is_being_written_is_seen_at_any_width() {
    for (name, size) in [("writing_wide", WIDE), ("writing_narrow", NARROW)] {
        let world = world("{ steps: [], after_last: { text: noted } }");
        world.write("project/notes/plan.md", "x");
        let window = Window::open(&world, MODEL, size);
        window.ready();
        window.press("what was written before\r");
        window.shows("noted");
        window.ready();
        window.press("one\x1b\rtwo\\\rsee @pla");
        let file = window.until("the file", |screen| {
            screen.contains("see @pla\n▸ notes/plan.md")
        });
        window.press("\t");
        window.shows("see @notes/plan.md");
        window.press("\x12bef");
        let search = window.shows("search: bef  → what was");
        window.press("\x1b");
        let back = window.until("what was being written", |screen| {
            screen.contains("› one") && screen.contains("see @notes/plan.md")
        });
        same!(
            name,
            format!("{file}\n=== Tab, Ctrl-R\n{search}\n=== Esc\n{back}")
        );
    }
}

#[test]
fn a_file_whose_name_has_spaces_is_completed_in_quotes() {
    let world = world("{ steps: [], after_last: { text: noted } }");
    world.write("project/my notes.md", "x");
    let window = Window::open(&world, MODEL, WIDE);
    window.ready();
    window.press("see @my");
    window.shows("▸ \"my notes.md\"");
    window.press("\t and");
    window.shows("› see @\"my notes.md\" and");
}
