//! The files of the web console. `cargo xtask console` tests the pages in a browser.

use crate::serve::env_with;
use crate::serve_support::{Server, client};

#[tokio::test]
async fn console_needs_no_token_and_runs_only_its_own_scripts() {
    let env = env_with("steps: []");
    let server = Server::start(&env);
    let page = client().get(&server.url).send().await.unwrap();
    assert_eq!(page.status(), 200);
    let policy = page.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("script-src 'self';"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    let html = page.text().await.unwrap();
    assert!(!html.contains("style=") && !html.contains("<style") && !html.contains("onclick"));

    // Every file that the page names exists, and is sent once.
    let names = html.split('"').filter(|it| it.starts_with("/console/"));
    let names: Vec<_> = names.collect();
    assert!(names.len() > 20, "{html}");
    for name in names {
        let url = format!("{}{name}", server.url);
        let file = client().get(&url).send().await.unwrap();
        assert_eq!(file.status(), 200, "{name}");
        let tag = file.headers()["etag"].clone();
        let again = client().get(&url).header("If-None-Match", tag).send();
        assert_eq!(again.await.unwrap().status(), 304, "{name}");
    }
    let unknown = client().get(format!("{}/console/../Cargo.toml", server.url));
    assert_eq!(unknown.send().await.unwrap().status(), 404);
}
