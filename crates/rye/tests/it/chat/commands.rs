//! Slash commands and the greeting.

use crate::chat::window::{BUSY, Window};
use crate::chat::{MODEL, NARROW, PAGE, SIZES, SLOW, SMALL, WIDE, assert_screen, env, session};
use rye_testkit::provider::{MockProvider, Reply};

#[test]
fn greeting_without_a_key_names_what_is_missing_and_the_demo_model_works() {
    for (name, size) in [("no_key_wide", WIDE), ("no_key_narrow", NARROW)] {
        let env = env(PAGE);
        // Only the servers of this test run.
        let provider = MockProvider::with_replies([Reply::page("application/json", "{}")]);
        let (local, closed) = (provider.url(), "http://127.0.0.1:1");
        let models = format!(
            "providers:\n  ollama: {{ base_url: '{local}/v1' }}\n  llamacpp: {{ base_url: '{closed}/v1' }}\n"
        );
        env.write("user/.ai/config/agent/models.yaml", &models);
        let window = Window::open(&env, &[], size);
        assert_screen!(name, window.wait_ready());
        window.choose_model("scripted:demo");
        window.press("hi\r");
        window.wait_for_text("● write");
        window.wait_ready();
    }
}

#[test]
fn commands_print_their_output() {
    for (name, size) in [("output_wide", (80, 150)), ("output_narrow", (40, 240))] {
        let env = env("{ steps: [], after_last: { text: noted } }");
        assert!(env.run(&["init"]).status.success());
        let window = Window::open(&env, MODEL, size);
        window.wait_ready();
        // Commands that need a message.
        for typed in ["/compact", "/compact undo", "/fork"] {
            window.press(typed);
            window.press("\r");
            window.wait_for(&format!("› {typed}\nthe thread has no messages yet"));
        }
        window.press("hello\r");
        window.wait_for("noted");
        window.wait_ready();
        for (typed, shown) in [
            ("/help", "Ctrl-D"),
            ("/tools", "\n  write"),
            ("/cost", "$0"),
            ("/gates", "no pending gates"),
            ("/queue", "the queue is empty"),
            ("/compact", "nothing to compact"),
            ("/compact undo", "no compaction to undo"),
            ("/diff", "the agent changed no files"),
            ("/undo", "nothing to undo"),
            ("/verify", "verified"),
            ("/fork", "forked: rye chat"),
        ] {
            window.press(typed);
            window.press("\r");
            window.wait_until(shown, |screen| {
                let at = screen.rfind(&format!("› {typed}\n"));
                at.is_some_and(|at| screen[at..].contains(shown))
            });
        }
        assert_screen!(name, window.wait_ready());
        for (typed, hint) in [
            ("/model nonsense", "unknown model nonsense"),
            ("/modelx", "unknown command /modelx"),
            ("/queue rm 1", "the queue has no prompt 1"),
            ("/undo 0", "usage: /undo [TURN] [FILE] [--force]"),
        ] {
            window.press(typed);
            window.press("\r");
            window.wait_for(hint);
            window.press("\x15");
        }
        window.press("/export out.jsonl\r");
        window.wait_for("out.jsonl");
        window.press("/steer now\r");
        window.wait_for("› now");
        window.press("/quit\r");
        let (code, screen) = window.exit();
        assert_eq!(code, 0, "{screen}");
        assert!(env.path("project/out.jsonl").exists());
    }
}

#[test]
fn history_is_compacted_and_the_compaction_undone() {
    let script = "context_window: 20000\nmax_output: 500\nsteps:\n  - tool_calls: [{ name: bash, args: { command: \
                  'seq 8000' } }]\n  - { text: the answer, usage: { input: 19000, output: 900 } }\nafter_last: { text: \
                  noted }\n";
    for (name, size) in [("compacted_wide", WIDE), ("compacted_narrow", (36, 30))] {
        let env = env(script);
        let window = Window::open(&env, MODEL, size);
        window.wait_ready();
        window.press("go\r");
        // The agent continues after the compaction.
        window.wait_for("noted");
        window.wait_ready();
        window.press("/compact undo\r");
        window.wait_for("compaction undone");
        // How far the screen has scrolled depends on the paints in between.
        let screen = window.wait_ready();
        let from = screen.find("› go").unwrap_or(0);
        assert_screen!(name, &screen[from..]);
    }
}

/// The agent edits a file in its first turn and creates one in its second.
const TWO_TURNS: &str = "steps:
  - tool_calls: [{ name: edit, args: { path: a.txt, old: two, new: \"2\" } }]
  - text: first
  - tool_calls: [{ name: write, args: { path: b.txt, content: \"new\\n\" } }]
  - text: second
after_last: { text: noted }
";

#[test]
fn changes_are_shown_and_undone() {
    for (name, size) in SIZES {
        let env = env(TWO_TURNS);
        env.write("project/a.txt", "one\ntwo\nthree\n");
        let window = Window::open(&env, MODEL, size);
        window.wait_ready();
        window.press("go\r");
        window.wait_for_words("first");
        window.wait_ready();
        window.press("more\r");
        window.wait_for_words("second");
        window.wait_ready();
        window.press("/diff\r");
        window.wait_for_words("2 files changed  +2 -1");
        window.press("/diff 2\r");
        window.wait_for_words("1 file changed  +1 -0");
        // The user's own change is not lost.
        env.write("project/a.txt", "one\nmine\nthree\n");
        window.press("/undo\r");
        window.wait_for_words("nothing was undone");
        window.wait_for_words("a.txt: it changed after the session did");
        assert!(env.path("project/b.txt").exists());
        window.press("/undo b.txt\r");
        window.wait_for_words("removed b.txt");
        assert!(!env.path("project/b.txt").exists());
        window.press("/undo 1 a.txt --force\r");
        window.wait_for_words("restored a.txt");
        assert_eq!(env.read("project/a.txt"), "one\ntwo\nthree\n");
        window.press("/undo 1 --force\r");
        window.wait_for_words("nothing to undo");
        window.wait_ready();
        if size != SMALL {
            assert_screen!(format!("undo_{name}"), window.full_text());
        }
    }
}

#[test]
fn model_is_told_about_undone_changes_even_by_another_process() {
    let env = env(TWO_TURNS);
    assert!(env.run(&["init"]).status.success());
    env.write("project/a.txt", "one\ntwo\nthree\n");
    let window = Window::open(&env, MODEL, WIDE);
    window.wait_ready();
    window.press("go\r");
    window.wait_for("first");
    window.wait_ready();
    window.press("/undo\r");
    window.wait_for("restored a.txt");
    window.press("/quit\r");
    assert_eq!(window.exit().0, 0);
    // The chat ends before the next prompt.
    let id = session(&env);
    let window = Window::open(&env, &[MODEL, &["--session", &id]].concat(), WIDE);
    window.wait_ready();
    window.press("more\r");
    window.wait_for("The user undid your changes");
    window.wait_for("second");
    window.wait_ready();
    window.press("/quit\r");
    assert_eq!(window.exit().0, 0);
    // Undone without the chat.
    let undone = env.run(&["session", "undo", &id]);
    assert!(undone.status.success(), "{undone:?}");
    let answer = env.run(&["prompt", "again", "--session", &id, MODEL[0], MODEL[1]]);
    let shown = env.run(&["session", "show", &id, "--full"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert_eq!(shown.matches("\n    - a.txt").count(), 1, "{shown}");
    assert_eq!(shown.matches("\n    - b.txt").count(), 1, "{shown}");
    assert!(answer.status.success(), "{answer:?}");
    let verified = env.run(&["session", "verify", &id]);
    assert!(verified.status.success(), "{verified:?}");
}

#[test]
fn undo_waits_for_the_agent() {
    let env = env(SLOW);
    let window = Window::open(&env, MODEL, WIDE);
    window.wait_ready();
    window.press("go\r");
    window.wait_for(BUSY);
    window.press("/undo\r");
    window.wait_for("the agent is working");
}
