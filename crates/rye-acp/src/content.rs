//! Prompts of an editor as prompts of the engine.

use std::fmt::Write as _;
use std::path::Path;

use agent_client_protocol::Error;
use agent_client_protocol::v1::schema::{ContentBlock, EmbeddedResourceResource};
use base64ct::{Base64, Encoding as _};
use rye_engine::attachment;
use rye_engine::protocol::Part;

use crate::failure::invalid;

/// The text and the images of a prompt.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct PromptContent {
    pub(crate) text: String,
    pub(crate) attachments: Vec<Part>,
}

impl PromptContent {
    /// Reads the blocks of a prompt. A resource is mentioned where it stands, and its text follows
    /// at the end.
    pub(crate) fn new(blocks: Vec<ContentBlock>, workspace: &Path) -> Result<Self, Error> {
        let mut content = Self::default();
        let mut resources = String::new();
        for block in blocks {
            match block {
                ContentBlock::Text(text) => content.text.push_str(&text.text),
                ContentBlock::ResourceLink(link) => {
                    content.text.push_str(&mention(&link.uri, workspace));
                }
                ContentBlock::Resource(embedded) => match embedded.resource {
                    EmbeddedResourceResource::TextResourceContents(text) => {
                        let name = mention(&text.uri, workspace);
                        content.text.push_str(&name);
                        let _ = write!(
                            resources,
                            "\n\n<resource uri=\"{}\">\n{}\n</resource>",
                            text.uri.replace('"', "%22"),
                            text.text.trim_end_matches('\n')
                        );
                    }
                    EmbeddedResourceResource::BlobResourceContents(blob) => {
                        let name = mention(&blob.uri, workspace);
                        content.text.push_str(&name);
                        content.attach(&name, &blob.blob)?;
                    }
                    _ => return Err(unsupported("this kind of resource")),
                },
                ContentBlock::Image(image) => {
                    let number = content.attachments.len() + 1;
                    let name = image
                        .uri
                        .map_or_else(|| format!("image {number}"), |uri| mention(&uri, workspace));
                    content.attach(&name, &image.data)?;
                }
                ContentBlock::Audio(_) => return Err(unsupported("audio")),
                _ => return Err(unsupported("this kind of content")),
            }
        }
        content.text.push_str(&resources);
        if content.text.trim().is_empty() && content.attachments.is_empty() {
            return Err(invalid("the prompt is empty"));
        }
        Ok(content)
    }

    fn attach(&mut self, name: &str, data: &str) -> Result<(), Error> {
        let bytes = Base64::decode_vec(data.trim());
        let bytes = bytes.map_err(|error| invalid(format!("{name} is not base64: {error}")))?;
        let part = attachment::image(name, &bytes).map_err(invalid)?;
        self.attachments.push(part);
        Ok(())
    }
}

fn unsupported(what: &str) -> Error {
    invalid(format!("a prompt cannot contain {what}"))
}

/// How the model finds a resource: the path of a file, relative to the workspace if it is inside,
/// or the address of anything else.
fn mention(uri: &str, workspace: &Path) -> String {
    let Some(path) = uri.strip_prefix("file://") else {
        return format!("<{uri}>");
    };
    // A selected range of lines, such as `#L10-20`.
    let (path, range) = path.split_once('#').unwrap_or((path, ""));
    let path = percent_encoding::percent_decode_str(path).decode_utf8_lossy();
    let path = Path::new(&*path);
    let path = path.strip_prefix(workspace).unwrap_or(path).display();
    if range.is_empty() {
        format!("`{path}`")
    } else {
        format!("`{path}` ({range})")
    }
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::{
        AudioContent, BlobResourceContents, EmbeddedResource, ImageContent, ResourceLink,
        TextContent, TextResourceContents,
    };

    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

    fn read(blocks: Vec<ContentBlock>) -> Result<PromptContent, Error> {
        PromptContent::new(blocks, Path::new("/work"))
    }

    fn text(text: &str) -> ContentBlock {
        ContentBlock::Text(TextContent::new(text))
    }

    fn text_resource(uri: &str, text: &str) -> ContentBlock {
        let contents = TextResourceContents::new(text, uri);
        let resource = EmbeddedResourceResource::TextResourceContents(contents);
        ContentBlock::Resource(EmbeddedResource::new(resource))
    }

    fn image(data: &[u8]) -> ContentBlock {
        ContentBlock::Image(ImageContent::new(Base64::encode_string(data), "image/png"))
    }

    #[test]
    fn resources_are_mentioned_in_place_and_follow_the_text() {
        let link = ResourceLink::new("a b.rs", "file:///work/src/a%20b.rs");
        let content = read(vec![
            text("compare "),
            ContentBlock::ResourceLink(link),
            text(" with "),
            text_resource("file:///etc/b.rs#L2-3", "two\nthree\n"),
            text(" and "),
            text_resource("https://example.org/x", "page"),
        ]);
        let expected = "compare `src/a b.rs` with `/etc/b.rs` (L2-3) and <https://example.org/x>\n\n\
            <resource uri=\"file:///etc/b.rs#L2-3\">\ntwo\nthree\n</resource>\n\n\
            <resource uri=\"https://example.org/x\">\npage\n</resource>";
        assert_eq!(content.unwrap().text, expected);
    }

    #[test]
    fn images_are_attached() {
        let blob = BlobResourceContents::new(Base64::encode_string(PNG), "file:///work/x.png");
        let blob = EmbeddedResourceResource::BlobResourceContents(blob);
        let blob = ContentBlock::Resource(EmbeddedResource::new(blob));
        let content = read(vec![text("look: "), image(PNG), blob]).unwrap();
        let names = content.attachments.iter().map(|part| match part {
            Part::Attachment {
                name, mime_type, ..
            } => (&**name, &**mime_type),
            other => panic!("{other:?}"),
        });
        let names: Vec<_> = names.collect();
        assert_eq!(names, [("image 1", "image/png"), ("`x.png`", "image/png")]);
        assert_eq!(content.text, "look: `x.png`");
    }

    #[test]
    fn unusable_content_is_refused_with_a_reason() {
        let not_base64 = ContentBlock::Image(ImageContent::new("%%%", "image/png"));
        let audio = ContentBlock::Audio(AudioContent::new("", "audio/wav"));
        for (blocks, reason) in [
            (vec![], "the prompt is empty"),
            (vec![text(" \n")], "the prompt is empty"),
            (vec![audio], "a prompt cannot contain audio"),
            (vec![not_base64], "image 1 is not base64"),
            (vec![image(b"GIF")], "image 1 is not a PNG"),
        ] {
            let error = read(blocks).unwrap_err();
            assert!(error.message.starts_with(reason), "{}", error.message);
        }
    }
}
