//! A realistic project with about forty items.

use super::fixture::Fixture;

/// Path, title or description, tags, parameters, body.
type Item = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

#[rustfmt::skip]
pub(super) const ITEMS: [Item; 42] = [
    ("tools/rye/bash/bash.py", "Run a shell command and give back its output", "shell, command", "command, timeout, working_dir", "subprocess run stdout stderr exit code"),
    ("tools/rye/file-system/read.py", "Read a file with line numbers", "file, text", "path, offset, limit", "open the file and number its lines"),
    ("tools/rye/file-system/write.py", "Write a file, making folders as needed", "file, text", "path, content", "open for writing, create parents"),
    ("tools/rye/file-system/edit_lines.py", "Change lines of a file by their ids", "file, text, patch", "path, changes", "apply edits to lines; read the file first"),
    ("tools/rye/file-system/glob.py", "Find files by a pattern", "file, find", "pattern, root", "walk folders and match names"),
    ("tools/rye/file-system/grep.py", "Search the content of files by regular expression", "search, regex", "pattern, path, ignore_case", "for each file, for each line, match"),
    ("tools/rye/web/fetch.py", "Fetch a web page as text or Markdown", "http, web, url", "url, format, timeout", "GET the page, convert HTML"),
    ("tools/rye/web/search.py", "Search the web", "http, web, search", "query, limit, provider", "call the search provider and list results"),
    ("tools/rye/web/browser.yaml", "Drive a headless browser: open, click, screenshot", "web, playwright", "url, script, viewport", "playwright chromium navigate screenshot"),
    ("tools/git/commit.py", "Commit staged changes with a message", "git, vcs", "message, amend", "git commit, refuses an empty message"),
    ("tools/git/status.py", "Show the state of the working tree", "git, vcs", "path", "git status --porcelain"),
    ("tools/git/diff.py", "Show what changed between two revisions", "git, vcs, patch", "from, to, path", "git diff with context lines"),
    ("tools/github/create_issue.py", "Create an issue on GitHub", "github, api, issue", "repository, title, body, labels", "POST to the REST api with a token"),
    ("tools/github/list_issues.py", "List the issues of a GitHub repository", "github, api, issue", "repository, state, labels", "GET with pages of a hundred"),
    ("tools/github/pull_request.py", "Open or update a pull request", "github, api, review", "repository, branch, title", "creates a pull request from a branch"),
    ("tools/db/sqlite_query.py", "Run a query against an SQLite database", "database, sql, sqlite", "database, sql, parameters", "opens the database read only unless told"),
    ("tools/db/postgres_query.py", "Run a query against PostgreSQL", "database, sql, postgres", "dsn, sql, parameters", "uses a pool of connections"),
    ("tools/db/migrate.py", "Apply schema migrations in order", "database, schema, migration", "folder, target", "each migration runs in a transaction"),
    ("tools/deploy/kubernetes.yaml", "Deploy an image to a Kubernetes cluster", "deploy, k8s, cluster", "image, namespace, replicas", "kubectl apply, then wait for the rollout"),
    ("tools/deploy/static_site.yaml", "Deploy a static site to a bucket", "deploy, s3, site", "folder, bucket", "sync files, then invalidate the cache"),
    ("tools/deploy/rollback.yaml", "Go back to the release before", "deploy, release", "namespace", "kubectl rollout undo"),
    ("tools/text/summarize.py", "Summarize a long text with a model", "llm, text, summary", "text, words, model", "splits the text and asks the model for each part"),
    ("tools/text/translate.py", "Translate text between languages", "llm, text, language", "text, from, to", "asks the model; keeps the Markdown"),
    ("tools/text/markdown_to_html.py", "Turn Markdown into HTML", "markdown, html, convert", "markdown, css", "pulldown parser with tables and footnotes"),
    ("tools/image/resize.py", "Make an image smaller or larger", "image, picture, scale", "path, width, height", "keeps the aspect ratio; pillow"),
    ("tools/image/screenshot.py", "Take a picture of the screen", "image, picture, screen", "display, region", "captures the display"),
    ("tools/mail/send.py", "Send an e-mail", "mail, smtp, message", "to, subject, body, attachments", "smtp over tls"),
    ("tools/cache/clear.py", "Delete everything in the cache", "cache, clean", "older_than", "removes entries of the cache folder"),
    ("tools/crypto/hash_file.py", "Compute the SHA-256 of a file", "hash, sha256, checksum", "path, algorithm", "reads in chunks"),
    ("tools/crypto/sign_item.py", "Sign an item with the user's key", "sign, ed25519, key", "item, key", "writes the signature line"),
    ("directives/review/code_review.md", "Review a change and say what to improve", "review, quality", "diff, focus", "Read the diff. Run the tests. Comment on each problem."),
    ("directives/release/cut_release.md", "Make a release: version, changelog, tag", "release, version, changelog", "level", "Bump the version, write the changelog, tag, deploy."),
    ("directives/onboarding/first_steps.md", "Show a newcomer around the project", "docs, start", "", "Read the README, run the tests, make a small change."),
    ("directives/bugs/triage.md", "Sort new issues by urgency", "issue, github, label", "repository", "List the issues, label each one, ask for what is missing."),
    ("directives/data/clean_table.md", "Clean a table of data: duplicates, types, gaps", "data, csv, table", "path", "Load the csv, drop duplicates, fix the types."),
    ("knowledge/python/async.md", "How asyncio works and when to use it", "python, async, concurrency", "", "The event loop runs tasks. await gives control back. Use a queue."),
    ("knowledge/python/packaging.md", "Packaging a Python project", "python, wheel, packaging", "", "pyproject.toml names the build backend; upload wheels to the index."),
    ("knowledge/kubernetes/probes.md", "Liveness and readiness probes", "k8s, health", "", "A probe that fails restarts the container; deploy with care in the cluster."),
    ("knowledge/kubernetes/networking.md", "Services, ingress and DNS in a cluster", "k8s, network, dns", "", "Each service has a name. Ingress routes http to services."),
    ("knowledge/security/secrets.md", "Where secrets belong", "security, vault, secret", "", "Never in the repository. Use the vault; rotate each key."),
    ("knowledge/security/signing.md", "How items are signed and verified", "security, signature, trust", "", "Ed25519 over the SHA-256 of the file; the key must be trusted."),
    ("knowledge/databases/indexes.md", "When an index helps a query", "database, sql, index", "", "A query that reads most rows does not need an index. Explain shows the plan."),
];

/// A fixture with all items in the project.
pub(super) fn fixture() -> Fixture {
    let fixture = Fixture::new();
    for (path, description, tags, parameters, body) in ITEMS {
        let text = format!(
            "# description: {description}\n# tags: {tags}\n# parameters: {parameters}\n{body}\n"
        );
        fixture.put(path, &text);
    }
    fixture
}
