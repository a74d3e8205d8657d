//! Commands that the user runs, long pastes, and the commands about the session.

use crate::chat::window::Window;
use crate::chat::{LOCAL, MODEL, SIZES, env, wait_gate_grace};

#[test]
fn own_command_runs_in_the_workspace_and_its_output_goes_with_the_next_prompt() {
    for (_, size) in SIZES {
        let env = env("{ steps: [], after_last: { text: noted } }");
        let window = Window::open(&env, MODEL, size);
        window.wait_until("ready", |screen| screen.contains("ready"));
        window.press("!echo from the user; pwd; exit 3\r");
        window.wait_until("the end", |screen| screen.contains("exit code 3"));
        window.press("what now\r");
        window.wait_until("an answer", |screen| screen.contains("noted"));
        let text = window.full_text();
        assert!(text.contains("│ from the user"), "{text}");
        let id = crate::chat::session(&env);
        let shown = env.run(&["session", "export", &id, "--output", "out.jsonl"]);
        assert!(shown.status.success(), "{shown:?}");
        let text = env.read("project/out.jsonl");
        assert!(text.contains("I ran `echo from the user; pwd; exit 3` (exit code 3):"));
    }
}

#[test]
fn escape_ends_an_own_command() {
    let env = env("{ steps: [], after_last: { text: noted } }");
    let window = Window::open(&env, MODEL, (80, 24));
    window.wait_ready();
    window.press("!echo started; sleep 600\r");
    window.wait_for("! echo started");
    window.press("!true\r");
    window.wait_for("a command is still running");
    window.press("\x15\x1b");
    window.wait_for("killed");
}

#[test]
fn long_paste_is_shown_as_a_mark_and_sent_completely() {
    let env = env("{ steps: [], after_last: { text: noted } }");
    let window = Window::open(&env, MODEL, (80, 24));
    window.wait_ready();
    let lines: Vec<_> = (1..=40).map(|it| format!("pasted {it}")).collect();
    window.press(&format!("look: \x1b[200~{}\x1b[201~", lines.join("\r")));
    window.wait_for("› look: [pasted text 1: 40 lines]");
    window.press(" please\r");
    window.wait_for("noted");
    let id = crate::chat::session(&env);
    let shown = env.run(&["session", "export", &id, "--output", "out.jsonl"]);
    assert!(shown.status.success(), "{shown:?}");
    let text = env.read("project/out.jsonl");
    assert!(text.contains("look: pasted 1\\npasted 2\\n"), "{text}");
    assert!(text.contains("pasted 40 please"), "{text}");
}

#[test]
fn commands_about_the_session_answer_in_the_chat() {
    let script = "steps:\n  - tool_calls: [{ name: bash, args: { command: seq 3 } }]\n  - text: done\n\
                  after_last: { text: '<b>noted</b>' }\n";
    let env = env(script);
    assert!(env.run(&["init"]).status.success());
    env.write(
        "project/.ai/roles/reviewer.md",
        "---\ndescription: reads only\n---\nYou review.\n",
    );
    let window = Window::open(&env, &[MODEL, LOCAL].concat(), (100, 60));
    window.wait_ready();
    window.press("/permissions\r");
    window.wait_for("nothing is approved");
    window.press("go\r");
    window.wait_gate();
    wait_gate_grace();
    window.press("c");
    window.wait_for("done");
    window.wait_ready();
    window.press("/permissions\r");
    window.wait_for("✓ every `seq …`");
    window.press("/status\r");
    window.wait_for("local: not confined");
    window.press("/role\r");
    window.wait_for("▸ reviewer");
    window.press("\r");
    window.wait_for("using the role reviewer");
    window.press("/mcp\r");
    window.wait_for("› /mcp\n");
    window.press("/init\r");
    window.wait_for("› Write AGENTS.md for this project");
    window.wait_for("<b>noted</b>");
    window.wait_ready();
    window.press("/share page.html\r");
    window.wait_for("wrote ");
    let page = env.read("project/page.html");
    assert!(page.contains("&lt;b&gt;noted&lt;/b&gt;"), "{page}");
    assert!(page.contains("class=\"ok\""), "{page}");
    assert!(!page.contains("<b>noted"), "{page}");
    // Every link and script would need another file or run code.
    assert!(
        !page.contains("src=") && !page.contains("<script"),
        "{page}"
    );
}
