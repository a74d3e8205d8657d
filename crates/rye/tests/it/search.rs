//! `rye search`: results, their order and their signature state.

use crate::support::{TestEnv, assert_transcript, json};

fn tool(description: &str) -> String {
    format!(
        "__version__ = \"1.0.0\"\n__tool_description__ = \"{description}\"\n__risk_level__ = \"low\"\n"
    )
}

#[test]
fn items_are_found_by_words_and_filtered() {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    env.run(&["init"]);
    env.write(
        "project/.ai/tools/text/count.py",
        &tool("Counts the words of a file"),
    );
    env.write("user/.ai/tools/text/count.py", &tool("An older one"));
    env.write("project/.ai/tools/broken.py", "__version__ = compute()\n");
    env.run(&["sign", "text/count"]);
    assert_transcript!(env.transcript(&[
        "search counts words --space project",
        "search cuonts --space project",
        "search --limit 2 --space project",
        "search --space project --space user",
        "search count --risk low --type tool",
        "search zzzzzz --json --type knowledge --space project --quiet",
        "search zzzzzz",
        "search x --limit 0",
        "search x --type thing",
        "search x --space nowhere",
    ]));
    let document = json(&env.run(&["search", "text/count", "--json"]));
    let hit = &document["hits"][0];
    assert_eq!(hit["item"], "tool:text/count");
    assert_eq!(hit["signature"]["state"], "verified");
    assert_eq!(hit["shadows"][0]["space"], "user");
}

#[test]
fn changed_file_is_found_by_the_next_search() {
    let env = TestEnv::new();
    env.write("project/.ai/tools/a.py", &tool("apples"));
    let found = |words: &str| {
        let document = json(&env.run(&["search", words, "--space", "project", "--json"]));
        document["total"].as_u64()
    };
    assert_eq!((found("apples"), found("pears")), (Some(1), Some(0)));
    env.write("project/.ai/tools/a.py", &tool("pears!"));
    assert_eq!((found("apples"), found("pears")), (Some(0), Some(1)));
}
