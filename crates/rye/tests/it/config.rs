//! `rye config`: values, their origins, and environment variables.

use crate::support::{TestEnv, assert_transcript, json};

#[test]
fn values_are_shown_with_their_origin() {
    let mut env = TestEnv::new();
    let first = env.transcript(&["config show", "config show --json"]);
    env.write(
        "user/.ai/config/rye.yaml",
        "# mine\nsearch:\n  limit: 7\ncache_dir: ~/cache\n",
    );
    env.set("RYE_DEBUG", "1");
    env.set("RYE_DEV_MODE", "1");
    env.set("NO_COLOR", "1");
    env.set("USER_SPACE", env.path("user").to_str().unwrap());
    let second = env.transcript(&["config show --project .."]);
    assert_transcript!(first + &second);
}

#[test]
fn user_space_needs_a_home() {
    let mut env = TestEnv::new();
    env.unset("HOME");
    assert_transcript!(env.transcript(&["config show", "vault list", "vault list --json"]));
}

#[test]
fn named_project_must_exist() {
    let mut env = TestEnv::new();
    let first = env.transcript(&["config show --project ../none"]);
    env.set("RYE_PROJECT", "/none");
    assert_transcript!(first + &env.transcript(&["verify hello", "search x --json"]));
}

#[test]
fn invalid_file_or_variable_is_reported_with_its_location() {
    let mut env = TestEnv::new();
    let mut transcript = String::new();
    for text in [
        "colour: never\n",
        "search:\n  limit: many\n",
        "dev_mode: true\n",
        "color: [\n",
    ] {
        env.write("user/.ai/config/rye.yaml", text);
        transcript += &env.transcript(&["config show", "config show --json"]);
    }
    std::fs::remove_file(env.path("user/.ai/config/rye.yaml")).unwrap();
    env.set("RYE_DEV_MODE", "maybe");
    transcript += &env.transcript(&["config show"]);
    env.unset("RYE_DEV_MODE");
    env.set("RYE_SYSTEM_SPACE", "/nowhere");
    transcript += &env.transcript(&["config show"]);
    assert_transcript!(transcript);
}

#[test]
fn project_file_counts_if_it_is_signed() {
    let env = TestEnv::new();
    env.write("project/.ai/config/rye.yaml", "search:\n  limit: 9\n");
    let mut transcript = env.transcript(&["config show", "config show --json --quiet"]);
    env.run(&["keys", "generate"]);
    transcript += &env.transcript(&["sign config:rye --quiet", "config show"]);
    let signed = env.read("project/.ai/config/rye.yaml");
    env.write("project/.ai/config/rye.yaml", &signed.replace('9', "8"));
    transcript += &env.transcript(&["config show"]);
    // A link out of the project is ignored.
    let file = env.path("project/.ai/config/rye.yaml");
    std::fs::remove_file(&file).ok();
    std::os::unix::fs::symlink("/etc/passwd", &file).ok();
    transcript += &env.transcript(&["config show"]);
    // The user's own file needs no signature.
    env.write("user/.ai/config/rye.yaml", "search:\n  limit: 5\n");
    transcript += &env.transcript(&["config show --quiet"]);
    assert_transcript!(transcript);
}

#[test]
fn unreadable_project_file_is_ignored() {
    let env = TestEnv::new();
    std::fs::create_dir_all(env.path("project/.ai/config/rye.yaml")).unwrap();
    assert_transcript!(env.transcript(&["search zzzzzz"]));
}

#[test]
fn variables_are_listed_by_direction() {
    let env = TestEnv::new();
    let printed = json(&env.run(&["config", "variables", "--json"]));
    let has = |list: &str, name: &str| {
        let all = printed[list].as_array().unwrap().iter();
        all.into_iter().any(|row| row["name"] == name)
    };
    assert!(
        has("read", "RYE_DEV_MODE") && has("read", "RYE_STATE_DIR"),
        "{printed}"
    );
    assert!(
        has("passed", "RYE_PYTHON") && has("passed", "NODE_PATH"),
        "{printed}"
    );
    assert!(!has("passed", "RYE_DEV_MODE"), "{printed}");
    let shown = env.transcript(&["config variables"]);
    assert!(
        shown.contains("RYE_DEBUG") && shown.contains("python/script"),
        "{shown}"
    );
}
