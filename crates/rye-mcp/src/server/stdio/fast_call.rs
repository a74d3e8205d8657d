//! Fast path that parses `tools/call` requests in one pass.
//!
//! The SDK parses a message into a tree and then tries one message type after the other. Almost
//! all messages are tool calls; a parser for these alone takes half the time.

use std::fmt;
use std::marker::PhantomData;

use rmcp::model::{
    CallToolRequest, CallToolRequestMethod, CallToolRequestParams, ClientJsonRpcMessage,
    ClientRequest, JsonRpcRequest, JsonRpcVersion2_0, RequestId,
};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A `tools/call` request with exactly these fields.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallMessage {
    jsonrpc: JsonRpcVersion2_0,
    id: RequestId,
    #[serde(rename = "method")]
    _method: CallToolRequestMethod,
    params: Object<CallToolRequestParams>,
}

/// Accepts only JSON objects. A derived `Deserialize` also accepts arrays.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(fields)).map(Object)
            }
        }
        deserializer.deserialize_map(Fields(PhantomData))
    }
}

/// Parses a line as a tool call; `None` if the general parser must handle it.
pub(super) fn parse_call(line: &[u8]) -> Option<ClientJsonRpcMessage> {
    let Object::<CallMessage>(call) = serde_json::from_slice(line).ok()?;
    let mut request = CallToolRequest::new(call.params.0);
    // The SDK keeps `_meta` in the extensions of the request.
    if let Some(meta) = request.params.meta.take() {
        request.extensions.insert(meta);
    }
    Some(ClientJsonRpcMessage::Request(JsonRpcRequest {
        jsonrpc: call.jsonrpc,
        id: call.id,
        request: ClientRequest::CallToolRequest(request),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(fields: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0",{fields}}}"#)
    }

    #[test]
    fn fast_parse_matches_the_general_parser() {
        for fields in [
            r#""id":1,"method":"tools/call","params":{"name":"execute"}"#,
            r#""id":"a\"b","method":"tools/call","params":{"name":"x","arguments":{"é":[1,2.50,-3e9,18446744073709551615,null,{"a":"\u00e9"}]}}"#,
            r#""method":"tools/call","params":{"arguments":{},"name":"a\nb","other":1},"id":1.0"#,
            r#""id":1,"method":"tools/call","params":{"_meta":{"progressToken":7,"x":{}},"name":"x"}"#,
            r#""id":1,"method":"tools/call","params":{"_meta":{},"name":"x"}"#,
            r#""id":1,"method":"tools/call","params":{"_meta":null,"name":"x","arguments":null}"#,
            r#""id":1,"method":"tools/call","params":{"name":"x","requestState":"s","inputResponses":{"approval":{"action":"accept","content":{"approve":true}}}}"#,
        ] {
            let line = line(fields);
            let fast = parse_call(line.as_bytes()).expect(fields);
            let general: ClientJsonRpcMessage = serde_json::from_str(&line).unwrap();
            assert_eq!(format!("{fast:?}"), format!("{general:?}"));
            let to_json = |message| serde_json::to_string(message).unwrap();
            assert_eq!(to_json(&fast), to_json(&general));
        }
    }

    #[test]
    fn other_messages_are_left_to_the_general_parser() {
        for fields in [
            r#""id":1,"method":"ping""#,
            r#""id":1,"method":"tools/list","params":{}"#,
            r#""method":"tools/call","params":{"name":"x"}"#,
            r#""id":null,"method":"tools/call","params":{"name":"x"}"#,
            r#""id":1,"id":2,"method":"tools/call","params":{"name":"x"}"#,
            r#""id":1,"method":"tools/call","params":{"name":"x"},"result":{}"#,
            r#""id":1,"method":"tools/call","params":{"name":"x"},"error":{}"#,
            r#""id":1,"method":"tools/call","params":{"name":"x","name":"y"}"#,
            r#""id":1,"method":"tools/call","params":{"name":"x","arguments":[]}"#,
            r#""id":1,"method":"tools/call","params":[null,"x",null,null,null]"#,
            r#""id":1,"method":"tools/call""#,
            r#""id":1,"result":{}"#,
        ] {
            assert!(parse_call(line(fields).as_bytes()).is_none(), "{fields}");
        }
        for line in [
            r#"{"jsonrpc":"1.0","id":1,"method":"tools/call","params":{"name":"x"}}"#,
            r#"["2.0",1,"tools/call",{"name":"x"}]"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}} {}"#,
        ] {
            assert!(parse_call(line.as_bytes()).is_none(), "{line}");
        }
    }
}
