//! A call of a tool as clients write it, read in one pass.
//!
//! What a message is can be told only when all of it is known, so in general it is read into
//! a tree first and then tried as one thing after the other. Nearly all messages are calls,
//! and of those a reader that takes nothing else makes half the work.

use std::fmt;
use std::marker::PhantomData;

use rmcp::model::{
    CallToolRequest, CallToolRequestMethod, CallToolRequestParams, ClientJsonRpcMessage,
    ClientRequest, JsonRpcRequest, JsonRpcVersion2_0, RequestId,
};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A call with these fields, each once, and no others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlainCall {
    jsonrpc: JsonRpcVersion2_0,
    id: RequestId,
    #[serde(rename = "method")]
    _method: CallToolRequestMethod,
    params: Object<CallToolRequestParams>,
}

/// What is written as an object. By itself a reader of fields also takes a list of them.
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

/// The call that a line is; none where it must be read in the general way.
pub(super) fn call(line: &[u8]) -> Option<ClientJsonRpcMessage> {
    let Object::<PlainCall>(call) = serde_json::from_slice(line).ok()?;
    let mut request = CallToolRequest::new(call.params.0);
    // What is said about a request is with the request, not with the tool.
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
    fn a_plain_call_says_what_it_says_in_general() {
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
            let plain = call(line.as_bytes()).expect(fields);
            let general: ClientJsonRpcMessage = serde_json::from_str(&line).unwrap();
            assert_eq!(format!("{plain:?}"), format!("{general:?}"));
            let written = |message| serde_json::to_string(message).unwrap();
            assert_eq!(written(&plain), written(&general));
        }
    }

    #[test]
    fn what_is_no_plain_call_is_read_in_general() {
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
            assert!(call(line(fields).as_bytes()).is_none(), "{fields}");
        }
        for line in [
            r#"{"jsonrpc":"1.0","id":1,"method":"tools/call","params":{"name":"x"}}"#,
            r#"["2.0",1,"tools/call",{"name":"x"}]"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}} {}"#,
        ] {
            assert!(call(line.as_bytes()).is_none(), "{line}");
        }
    }
}
