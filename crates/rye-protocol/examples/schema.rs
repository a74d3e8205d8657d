//! Prints the JSON Schema of the protocol.

use std::io::{self, Write as _};

fn main() -> io::Result<()> {
    let text = serde_json::to_string_pretty(&rye_protocol::schema())?;
    writeln!(io::stdout(), "{text}")
}
