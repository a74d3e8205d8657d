//! Reads the server name from the first message of a TLS client.

/// Type of a TLS record with handshake messages.
pub(super) const HANDSHAKE: u8 = 22;

/// Maximum size of the records with the message.
pub(super) const MAX_SIZE: usize = 64 * 1024;

const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

/// What the message says about the server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ClientHello {
    pub(super) server_name: Option<String>,
    /// Whether another message with another server name is hidden in it.
    pub(super) is_encrypted: bool,
}

/// Why the message cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadError {
    /// More bytes are needed.
    Incomplete,
    Malformed,
}

/// Parses the records at the start of a connection.
pub(super) fn parse(bytes: &[u8]) -> Result<ClientHello, ReadError> {
    let message = handshake_message(bytes)?;
    parse_body(&message).ok_or(ReadError::Malformed)
}

/// Joins the records that the first handshake message is split into; returns its body.
fn handshake_message(bytes: &[u8]) -> Result<Vec<u8>, ReadError> {
    let mut reader = Reader(bytes);
    let mut message = Vec::new();
    loop {
        if let [kind, a, b, c, body @ ..] = message.as_slice() {
            if *kind != CLIENT_HELLO {
                return Err(ReadError::Malformed);
            }
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if length > MAX_SIZE {
                return Err(ReadError::Malformed);
            }
            if let Some(body) = body.get(..length) {
                return Ok(body.to_vec());
            }
        }
        let kind = reader.byte().ok_or(ReadError::Incomplete)?;
        let major = reader.byte().ok_or(ReadError::Incomplete)?;
        reader.byte().ok_or(ReadError::Incomplete)?;
        if (kind, major) != (HANDSHAKE, 3) {
            return Err(ReadError::Malformed);
        }
        let fragment = reader.vec16().ok_or(ReadError::Incomplete)?;
        if fragment.is_empty() {
            return Err(ReadError::Malformed);
        }
        message.extend(fragment);
    }
}

fn parse_body(body: &[u8]) -> Option<ClientHello> {
    let mut reader = Reader(body);
    let mut hello = ClientHello::default();
    // Version and random.
    reader.take(2 + 32)?;
    let session = reader.byte()?;
    reader.take(session.into())?;
    let _ciphers = reader.vec16()?;
    let compression = reader.byte()?;
    reader.take(compression.into())?;
    let mut extensions = Reader(reader.vec16().unwrap_or_default());
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let data = extensions.vec16()?;
        match kind {
            SERVER_NAME if hello.server_name.is_some() => return None,
            SERVER_NAME => hello.server_name = Some(server_name(data)?),
            ENCRYPTED_CLIENT_HELLO => hello.is_encrypted = true,
            _ => {}
        }
    }
    Some(hello)
}

/// The only name of the extension's list.
fn server_name(data: &[u8]) -> Option<String> {
    const HOST_NAME: u8 = 0;
    let mut list = Reader(data);
    let mut names = Reader(list.vec16()?);
    let kind = names.byte()?;
    let name = names.vec16()?;
    let is_only = names.0.is_empty() && list.0.is_empty() && kind == HOST_NAME;
    let name = String::from_utf8(name.to_vec()).ok()?;
    is_only.then(|| name.to_ascii_lowercase())
}

struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    /// Bytes after their length in two bytes.
    fn vec16(&mut self) -> Option<&'b [u8]> {
        let length = self.u16()?;
        self.take(length.into())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use proptest::prelude::*;
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    /// The first message of a real client.
    fn real_hello(name: &str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    fn named(name: Option<&str>) -> ClientHello {
        ClientHello {
            server_name: name.map(str::to_owned),
            is_encrypted: false,
        }
    }

    /// A message with the given extensions, as one record.
    fn hello(extensions: &[(u16, &[u8])]) -> Vec<u8> {
        let sized = |bytes: &[u8]| {
            let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
            [&length, bytes].concat()
        };
        let all = extensions.iter();
        let all = all.map(|(kind, data)| [&kind.to_be_bytes()[..], &sized(data)].concat());
        let all = sized(&all.collect::<Vec<_>>().concat());
        let body = [&[3; 34][..], &[0], &sized(&[0, 1]), &[1, 0], &all].concat();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let message = [&[1], &length[1..], &body].concat();
        [&[HANDSHAKE, 3, 1][..], &sized(&message)].concat()
    }

    #[test]
    fn name_of_a_real_client_is_read() {
        let bytes = real_hello("Crates.io");
        assert_eq!(parse(&bytes), Ok(named(Some("crates.io"))));
        assert_eq!(parse(&real_hello("192.0.2.1")), Ok(named(None)));
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]), Err(ReadError::Incomplete), "{end}");
        }
    }

    #[test]
    fn message_may_be_split_into_records() {
        let bytes = real_hello("crates.io");
        let split = bytes[5..].chunks(7).flat_map(|chunk| {
            let length = u8::try_from(chunk.len()).unwrap();
            [&[HANDSHAKE, 3, 1, 0, length][..], chunk].concat()
        });
        assert_eq!(
            parse(&split.collect::<Vec<_>>()),
            Ok(named(Some("crates.io")))
        );
    }

    #[test]
    fn ambiguous_and_hidden_names_are_noticed() {
        let name = |text: &[u8]| {
            let length = u8::try_from(text.len()).unwrap();
            [&[0, length + 3, 0, 0, length][..], text].concat()
        };
        let (a, b) = (name(b"a.example"), name(b"b.example"));
        assert_eq!(parse(&hello(&[(0, &a)])), Ok(named(Some("a.example"))));
        assert_eq!(
            parse(&hello(&[(0, &a), (0, &b)])),
            Err(ReadError::Malformed)
        );
        let two = [&[0, 24][..], &a[2..], &b[2..]].concat();
        assert_eq!(parse(&hello(&[(0, &two)])), Err(ReadError::Malformed));
        let hidden = parse(&hello(&[(0, &a), (ENCRYPTED_CLIENT_HELLO, b"x")])).unwrap();
        assert!(hidden.is_encrypted);
    }

    proptest! {
        #[test]
        fn any_bytes_are_handled(mut bytes: Vec<u8>, at: prop::sample::Index, byte: u8) {
            let _ = parse(&bytes);
            bytes.splice(0..0, [HANDSHAKE, 3, 1]);
            let _ = parse(&bytes);
            let mut real = hello(&[(0, b"\0\x05\0\0\x02ab")]);
            let at = at.index(real.len());
            real[at] = byte;
            let _ = parse(&real);
        }
    }
}
