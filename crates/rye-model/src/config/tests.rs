//! Merging and validation.

use super::*;

fn file(path: &str, text: &str) -> ConfigFile {
    ConfigFile {
        path: path.into(),
        text: text.to_owned(),
    }
}

const SYSTEM: &str = "\
default: anthropic/large
failover: [openai/other]
retry: { max_attempts: 4 }
providers:
  anthropic:
    api: anthropic
    api_key_env: ANTHROPIC_API_KEY
    models:
      large: { context_window: 200000, max_output: 64000, input: [text, image], thinking: effort, price: { input: 3, output: 15, cache_read: 0.3 } }
  openai:
    api: openai-responses
    api_key_env: OPENAI_API_KEY
    models: { other: {} }
";

#[test]
fn specific_file_overrides_general_one_field_by_field() {
    let project = "\
default: local/qwen3
providers:
  anthropic:
    base_url: https://proxy.example/v1
    models: { large: { effort: high, price: { output: 20 } } }
  local:
    api: openai-chat
    base_url: http://127.0.0.1:11434/v1
    models: { qwen3: { context_window: 32000, max_output: 4000, id: 'qwen3:8b' } }
";
    let files = [
        file("p", project),
        file("u", "# nothing\n"),
        file("s", SYSTEM),
    ];
    let config = Config::merge(&files).unwrap();
    assert_eq!(config.default.as_deref(), Some("local/qwen3"));
    assert_eq!(config.failover, ["openai/other"]);
    assert_eq!(config.retry.max_attempts, 4);
    assert_eq!(
        config.retry.initial_delay,
        RetryPolicy::default().initial_delay
    );
    let names: Vec<_> = config.names().collect();
    assert_eq!(names, ["anthropic/large", "local/qwen3", "openai/other"]);
    let (provider, model) = config.find("anthropic/large").unwrap();
    assert_eq!(provider.base_url, "https://proxy.example/v1");
    assert_eq!(provider.api_key_env.as_deref(), Some("ANTHROPIC_API_KEY"));
    assert_eq!((model.price.input, model.price.output), (3.0, 20.0));
    assert_eq!(model.effort, Some(Effort::High));
    assert!(model.info.images);
    let (provider, model) = config.find("local/qwen3").unwrap();
    assert_eq!(provider.api_key_env, None);
    assert_eq!(model.target("local/qwen3").id, "qwen3:8b");
    assert_eq!(model.info.max_output, 4000);
}

#[test]
fn model_must_be_allowed_by_all_files() {
    let files = [
        file("p", "allow: ['*']\n"),
        file("u", "allow: ['anthropic/*', 'local/*']\n"),
        file("s", SYSTEM),
    ];
    let config = Config::merge(&files).unwrap();
    assert_eq!(config.allows("anthropic/large"), Ok(()));
    let refused = config.allows("openai/other").unwrap_err();
    assert!(refused.contains("anthropic/*, local/*"), "{refused}");
}

#[test]
fn errors_contain_their_position() {
    for (text, expected) in [
        ("models: x\n", "f:1:1: unknown field `models`"),
        (
            "providers:\n  a: { api: openai }\n",
            "f:2:13: unknown variant `openai`",
        ),
        (
            "providers: { a: {} }\n",
            "f: provider `a`: missing `api`; one of anthropic, openai-responses",
        ),
        (
            "providers: { a: { api: openai-chat } }\n",
            "f: provider `a`: missing `base_url`",
        ),
        (
            "providers: { a: { api: gemini, base_url: x } }\n",
            "provider `a`: `base_url`",
        ),
        (
            "providers: { a: { api: gemini, models: { m: { max_output: 9, context_window: 9 } } } }\n",
            "model `a/m`: `max_output` is 9",
        ),
        (
            "providers: { a: { api: gemini, models: { m: { price: { input: -1 } } } } }\n",
            "`price`",
        ),
        ("providers: { 'a/b': { api: gemini } }\n", "`a/b`"),
    ] {
        let error = Config::merge(&[file("f", text)]).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
