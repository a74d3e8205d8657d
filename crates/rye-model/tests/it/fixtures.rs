//! Recorded streams of real servers.

use crate::support::{ALL, ask, connected_model, hello_request, request};
use rye_protocol::{Message, Part, Role};
use rye_testkit::provider::{Reply, fixtures};
use serde_json::json;

#[tokio::test]
async fn peculiarities_of_all_servers_are_handled() {
    for (name, mock_api, events) in fixtures::ALL {
        let api = ALL.iter().find(|(_, other)| *other == mock_api).unwrap().0;
        let reply = Reply::stream(events).in_chunks_of(11);
        let (_wire, model) = connected_model(api, reply);
        let answer = ask(&model, hello_request()).await.1.unwrap();
        let texts = answer.parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            _ => None,
        });
        assert_eq!(texts.collect::<String>(), "I'll look both up.", "{name}");
        let calls = answer.parts.iter().filter_map(|part| match part {
            Part::ToolCall { tool, args, .. } => Some((tool.as_str(), args.clone())),
            _ => None,
        });
        let expected = [json!({ "place": "São Paulo" }), json!({})];
        let expected = expected.map(|args| ("weather", args));
        assert_eq!(calls.collect::<Vec<_>>(), expected, "{name}");
        let usage = answer.usage;
        assert_eq!(
            (usage.input_tokens, usage.output_tokens),
            (6155, 89),
            "{name}"
        );
        // The same provider accepts it in a history.
        let history = vec![
            Message::text(Role::User, "Weather?"),
            crate::support::assistant_message(&crate::support::name(api), answer.parts),
        ];
        let body = api.body(&request(history), &crate::support::target(api));
        let body = serde_json::from_slice(&body).unwrap();
        mock_api.check(&body).unwrap();
    }
}

#[tokio::test]
async fn reasoning_is_stored_with_its_signature() {
    let mut seals = Vec::new();
    for (_, mock_api, events) in fixtures::ALL {
        let api = ALL.iter().find(|(_, other)| *other == mock_api).unwrap().0;
        let (_wire, model) = connected_model(api, Reply::stream(events));
        let parts = ask(&model, hello_request()).await.1.unwrap().parts;
        let of = parts
            .into_iter()
            .filter(|part| matches!(part, Part::Thinking { .. }));
        seals.push((api, of.collect::<Vec<_>>()));
    }
    insta::assert_debug_snapshot!(seals);
}
