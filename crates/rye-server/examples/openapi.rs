//! Prints the OpenAPI document of the HTTP server.

use std::io::{self, Write as _};

fn main() -> io::Result<()> {
    let text = serde_json::to_string_pretty(&rye_server::openapi())?;
    writeln!(io::stdout(), "{text}")
}
