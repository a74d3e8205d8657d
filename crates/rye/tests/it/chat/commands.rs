//! Slash commands and the greeting.

use crate::chat::window::Window;
use crate::chat::{MODEL, NARROW, PAGE, WIDE, assert_screen, env};
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
        for typed in ["/compact", "/undo", "/fork"] {
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
            ("/threads", "/thread KEY to switch"),
            ("/compact", "nothing to compact"),
            ("/undo", "no compaction to undo"),
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
        window.press("/undo\r");
        window.wait_for("compaction undone");
        assert_screen!(name, window.wait_ready());
    }
}
