//! The fields that all items share, and their types.

use insta::assert_snapshot;
use serde_json::json;

use super::{refusals, tool, values};
use crate::metadata::{EffectClass, Risk};

#[test]
fn every_shared_field_has_a_typed_accessor() {
    let metadata = tool(
        ".yaml",
        "\
version: '1.2.3'
tool_type: python
executor_id: a/b
category: c
description: d
name: n
title: t
tags: [x, y]
risk_level: critical
requires_approval: true
effect: at_most_once
sandbox: {network: false}
requires_env: [TOKEN]
timeout: 1.5
config_schema: {properties: {b: {}, a: {}}}
inputs: [{name: unused}]
",
    )
    .unwrap();
    assert_eq!(metadata.version(), Some("1.2.3"));
    assert_eq!(metadata.tool_type(), Some("python"));
    assert_eq!(metadata.executor_id(), Some("a/b"));
    assert_eq!(metadata.category(), Some("c"));
    assert_eq!(metadata.description(), Some("d"));
    assert_eq!(metadata.name(), Some("n"));
    assert_eq!(metadata.title(), Some("t"));
    assert_eq!(metadata.tags(), ["x", "y"]);
    assert_eq!(metadata.risk_level(), Some(Risk::Critical));
    assert_eq!(metadata.requires_approval(), Some(true));
    assert_eq!(metadata.effect(), Some(EffectClass::AtMostOnce));
    assert_eq!(metadata.sandbox(), Some(&json!({"network": false})));
    assert_eq!(metadata.requires_env(), ["TOKEN"]);
    assert_eq!(metadata.timeout(), Some(1.5));
    assert_eq!(metadata.parameter_names(), ["b", "a"]);
    assert!(Risk::Low < Risk::Critical);
}

#[test]
fn absent_fields_are_none() {
    let metadata = tool(".yaml", "executor_id: null\nversion:\n").unwrap();
    assert_eq!(
        values(&metadata),
        json!({"executor_id": null, "version": null})
    );
    assert_eq!(metadata.executor_id(), None);
    assert_eq!(metadata.version(), None);
    assert_eq!(metadata.tags(), Vec::<String>::new());
    assert_eq!(metadata.parameter_names(), Vec::<String>::new());
    let metadata = tool(".py", "__executor_id__ = None\n").unwrap();
    assert_eq!(metadata.executor_id(), None);
}

#[test]
fn inputs_are_the_parameters_without_a_schema() {
    for inputs in ["[{name: a}, b]", "{a: {type: string}, b: {}}"] {
        let metadata = tool(".yaml", &format!("inputs: {inputs}\n")).unwrap();
        assert_eq!(metadata.parameter_names(), ["a", "b"], "{inputs}");
    }
}

#[test]
fn wrong_types_are_reported_with_their_position() {
    assert_snapshot!(refusals(".yaml", &[
        "version: 1.0\n",
        "# rye:signed:x\nname: x\nversion: 2\n",
        "executor_id: [a]\n",
        "tags: python\n",
        "tags:\n  - a\n  - 1\n",
        "risk_level: extreme\n",
        "risk_level: 3\n",
        "effect: Pure\n",
        "requires_approval: yes\n",
        "requires_env: TOKEN\n",
        "timeout: 0\n",
        "timeout: -5\n",
        "timeout: 5s\n",
        "config: []\n",
        "config_schema: true\n",
        "config_resolve: [a]\n",
        "inputs: a\n",
        "timeout: x\ntags: 1\n",
    ]), @r#"
    1:10: `version` must be a string, not a number
      1 | version: 1.0
        |          ^
      hint: write it in quotes: "1.0"

    3:10: `version` must be a string, not a number
      3 | version: 2
        |          ^
      hint: write it in quotes: "2"

    1:14: `executor_id` must be a string, not a list
      1 | executor_id: [a]
        |              ^

    1:7: `tags` must be a list of strings, not a string
      1 | tags: python
        |       ^
      hint: write it as a list: ["python"]

    3:5: each of `tags` must be a string, not a number
      3 |   - 1
        |     ^
      hint: write it in quotes: "1"

    1:13: `risk_level` must be one of low, medium, high, critical, not `extreme`
      1 | risk_level: extreme
        |             ^

    1:13: `risk_level` must be one of low, medium, high, critical, not a number
      1 | risk_level: 3
        |             ^

    1:9: `effect` must be one of pure, idempotent, at_most_once, ask, not `Pure`
      1 | effect: Pure
        |         ^

    1:20: `requires_approval` must be true or false, not a string
      1 | requires_approval: yes
        |                    ^

    1:15: `requires_env` must be a list of strings, not a string
      1 | requires_env: TOKEN
        |               ^
      hint: write it as a list: ["TOKEN"]

    1:10: `timeout` must be more than 0 seconds
      1 | timeout: 0
        |          ^

    1:10: `timeout` must be more than 0 seconds
      1 | timeout: -5
        |          ^

    1:10: `timeout` must be a number of seconds, not a string
      1 | timeout: 5s
        |          ^

    1:9: `config` must be a mapping, not a list
      1 | config: []
        |         ^

    1:16: `config_schema` must be a mapping, not true
      1 | config_schema: true
        |                ^

    1:18: each of `config_resolve` must be a mapping, not a string
      1 | config_resolve: [a]
        |                  ^

    1:9: `inputs` must be a mapping or a list, not a string
      1 | inputs: a
        |         ^

    1:10: `timeout` must be a number of seconds, not a string
      1 | timeout: x
        |          ^
    "#);
    assert_snapshot!(refusals(".py", &[
        "CONFIG = {'a': 1,\n          'risk_level': 'none'}\n",
        "__timeout__ = True\n",
    ]), @r#"
    2:25: `risk_level` must be one of low, medium, high, critical, not `none`
      2 |           'risk_level': 'none'}
        |                         ^

    1:15: `timeout` must be a number of seconds, not true
      1 | __timeout__ = True
        |               ^
    "#);
}
