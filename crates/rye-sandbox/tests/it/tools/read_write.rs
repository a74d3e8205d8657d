//! `read` and `write`.

use rye_protocol::Part;
use serde_json::json;

use super::agent::{assert_calls, calls, sandboxes};

#[tokio::test]
async fn files_are_written_and_read() {
    for (sandbox, _dir) in sandboxes() {
        sandbox
            .write("crlf.txt", b"\xef\xbb\xbfa\r\nb\r\n")
            .await
            .unwrap();
        sandbox
            .write("latin.txt", b"many plain letters and one gr\xfcn")
            .await
            .unwrap();
        sandbox.write("empty", b"").await.unwrap();
        let write = |path: &str, content: &str| json!({ "path": path, "content": content });
        let read = |path: &str| json!({ "path": path });
        assert_calls(
            &sandbox,
            &[
                (
                    "write",
                    write("src/deep/main.rs", "one\ntwo\nthree\n"),
                    true,
                    "src/deep/main.rs: 3 lines, 14 bytes (created)",
                ),
                (
                    "write",
                    write("src/deep/main.rs", "1\n2\n3\n4"),
                    true,
                    "src/deep/main.rs: 4 lines, 7 bytes (overwritten; was 14 bytes)",
                ),
                (
                    "write",
                    write("src/lib.rs", "x"),
                    true,
                    "src/lib.rs: 1 line, 1 byte (created)",
                ),
                ("write", write("src", "x"), false, "src: is a directory"),
                (
                    "read",
                    read("src/deep/main.rs"),
                    true,
                    "1\t1\n2\t2\n3\t3\n4\t4",
                ),
                (
                    "read",
                    json!({ "path": "src/deep/main.rs", "offset": 2, "limit": 2 }),
                    true,
                    "2\t2\n3\t3\n[lines 2 to 3 of 4; continue with offset 4]",
                ),
                (
                    "read",
                    json!({ "path": "src/deep/main.rs", "offset": 9 }),
                    false,
                    "no line 9: the file has 4",
                ),
                (
                    "read",
                    json!({ "path": "src/lib.rs", "column": 2 }),
                    false,
                    "no column 2: line 1 has 1 bytes",
                ),
                ("read", read("empty"), true, "[the file is empty]"),
                (
                    "read",
                    read("crlf.txt"),
                    true,
                    "1\ta\n2\tb\n[CRLF line endings, which `edit` preserves]",
                ),
                (
                    "read",
                    read("latin.txt"),
                    true,
                    "1\tmany plain letters and one gr\u{fffd}n\n\
              [invalid UTF-8 is shown as \u{fffd}]",
                ),
            ],
        )
        .await;
    }
}

#[tokio::test]
async fn binary_files_directories_and_missing_files_are_described() {
    for (sandbox, _dir) in sandboxes() {
        sandbox.write("data.gz", b"\x1f\x8b\x08\0\0").await.unwrap();
        sandbox.write("src/deep/main.rs", b"").await.unwrap();
        sandbox.write("src/lib.rs", b"x").await.unwrap();
        sandbox.mkdir("empty_dir").await.unwrap();
        let read = |path: &str| json!({ "path": path });
        let rest = calls(
            &sandbox,
            &[
                ("read", read("data.gz")),
                ("read", read("src")),
                ("read", json!({ "path": "src", "offset": 1, "limit": 1 })),
                ("read", read("empty_dir")),
            ],
        )
        .await;
        let texts: Vec<_> = rest.iter().map(|it| it.text.as_str()).collect();
        assert!(texts[0].starts_with("[data.gz is not text (gzip): 5 bytes, sha256 "));
        assert_eq!(rest[0].data["binary"], true);
        assert_eq!(
            texts[1..],
            [
                "[src is a directory]\ndeep/\nlib.rs (1 bytes)",
                "[src is a directory]\ndeep/\n[entries 1 to 1 of 2; continue with offset 2]",
                "[empty_dir is an empty directory]",
            ]
        );
        assert_calls(
            &sandbox,
            &[
                (
                    "read",
                    read("src/lid.rs"),
                    false,
                    "there is no src/lid.rs; similar: src/lib.rs, src/deep/",
                ),
                (
                    "read",
                    read("main.rs"),
                    false,
                    "there is no main.rs; similar: src/deep/main.rs",
                ),
                (
                    "read",
                    read("src/none/what.txt"),
                    false,
                    "there is no src/none/what.txt; the nearest existing directory is src",
                ),
                (
                    "read",
                    read("blob:12"),
                    false,
                    "a hash has 64 hex characters, this has 2",
                ),
            ],
        )
        .await;
    }
}

#[tokio::test]
async fn images_are_attached() {
    // The smallest GIF: one pixel.
    let gif = b"GIF89a\x01\0\x01\0\0\0\0!\xf9\x04\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x01D\0;";
    let huge = [b"\x89PNG\r\n\x1a\n".as_slice(), &vec![0; 4_000_000]].concat();
    for (sandbox, _dir) in sandboxes() {
        sandbox.write("img/dot.gif", gif).await.unwrap();
        // Images are recognised by content, not by name.
        sandbox.write("img/huge.txt", &huge).await.unwrap();
        let read = |path: &str| ("read", json!({ "path": path }));
        let outcomes = calls(&sandbox, &[read("img/dot.gif"), read("img/huge.txt")]).await;
        assert_eq!(
            outcomes[0].text,
            "[img/dot.gif is an image: image/gif, 1 × 1, 36 bytes]"
        );
        let [
            Part::Attachment {
                name,
                mime_type,
                source,
            },
        ] = &outcomes[0].attachments[..]
        else {
            panic!("{:?}", outcomes[0]);
        };
        assert_eq!(
            (name.as_str(), mime_type.as_str()),
            ("dot.gif", "image/gif")
        );
        assert!(
            source.starts_with("data:image/gif;base64,R0lGODlhAQABAA"),
            "{source}"
        );
        assert!(outcomes[1].attachments.is_empty());
        assert!(
            outcomes[1].text.contains("too large to show"),
            "{}",
            outcomes[1].text
        );
    }
}
