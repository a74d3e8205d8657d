//! OAuth login against a local authorization server and MCP server.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use crate::support::Fixture;
use axum::Router;
use axum::extract::{Form, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use base64ct::Encoding as _;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rye_items::vault::Vault;
use rye_mcp::client::{LoginRequest, Pool, ServerSpec};
use serde_json::{Value, json};

/// State of the authorization server, shared with the MCP server.
#[derive(Debug, Default)]
struct OAuthState {
    address: String,
    /// PKCE challenge and scope by authorization code.
    codes: HashMap<String, (String, String)>,
    /// Scope by access token.
    tokens: HashMap<String, String>,
    refresh: HashMap<String, String>,
    issued: usize,
    refreshed: usize,
    /// Lifetime of access tokens, in seconds.
    lifetime: u64,
    refuses_logins: bool,
}

type Shared = Arc<Mutex<OAuthState>>;

struct Echo;

impl ServerHandler for Echo {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text = request.name.to_string();
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

async fn resource(State(oauth_state): State<Shared>) -> axum::Json<Value> {
    let address = oauth_state.lock().unwrap().address.clone();
    axum::Json(json!({
        "resource": format!("{address}/mcp"),
        "authorization_servers": [address],
        "scopes_supported": ["read"],
    }))
}

async fn metadata(State(oauth_state): State<Shared>) -> axum::Json<Value> {
    let address = oauth_state.lock().unwrap().address.clone();
    axum::Json(json!({
        "issuer": address,
        "authorization_endpoint": format!("{address}/authorize"),
        "token_endpoint": format!("{address}/token"),
        "registration_endpoint": format!("{address}/register"),
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"],
    }))
}

async fn register(body: axum::Json<Value>) -> Response {
    let answer = json!({ "client_id": "client-1", "redirect_uris": body["redirect_uris"] });
    (StatusCode::CREATED, axum::Json(answer)).into_response()
}

async fn authorize(
    State(oauth_state): State<Shared>,
    Query(params): Query<HashMap<String, String>>,
) -> Response {
    let mut oauth_state = oauth_state.lock().unwrap();
    assert_eq!(params["code_challenge_method"], "S256");
    assert_eq!(params["resource"], format!("{}/mcp", oauth_state.address));
    let redirect_uri = &params["redirect_uri"];
    let state = &params["state"];
    let location = if oauth_state.refuses_logins {
        format!("{redirect_uri}?error=access_denied&state={state}")
    } else {
        oauth_state.issued += 1;
        let code = format!("code-{}", oauth_state.issued);
        let scope = params.get("scope").cloned().unwrap_or_default();
        let challenge = params["code_challenge"].clone();
        oauth_state.codes.insert(code.clone(), (challenge, scope));
        format!("{redirect_uri}?code={code}&state={state}")
    };
    (StatusCode::FOUND, [(header::LOCATION, location)]).into_response()
}

async fn token(
    State(oauth_state): State<Shared>,
    Form(params): Form<HashMap<String, String>>,
) -> Response {
    let mut oauth_state = oauth_state.lock().unwrap();
    let scope = if params["grant_type"] == "refresh_token" {
        let Some(scope) = oauth_state.refresh.remove(&params["refresh_token"]) else {
            let error = axum::Json(json!({ "error": "invalid_grant" }));
            return (StatusCode::BAD_REQUEST, error).into_response();
        };
        oauth_state.refreshed += 1;
        scope
    } else {
        // PKCE: only the client that requested the code can use it.
        let (challenge, scope) = oauth_state.codes.remove(&params["code"]).unwrap();
        assert_eq!(challenge, pkce_challenge(&params["code_verifier"]));
        scope
    };
    oauth_state.issued += 1;
    let (access, refresh) = (
        format!("sesame-{}", oauth_state.issued),
        format!("again-{}", oauth_state.issued),
    );
    oauth_state.tokens.insert(access.clone(), scope.clone());
    oauth_state.refresh.insert(refresh.clone(), scope.clone());
    axum::Json(json!({
        "access_token": access,
        "refresh_token": refresh,
        "token_type": "Bearer",
        "expires_in": oauth_state.lifetime,
        "scope": scope,
    }))
    .into_response()
}

/// The PKCE challenge of a verifier.
fn pkce_challenge(verifier: &str) -> String {
    let hash = lillux::Hash::digest(verifier);
    base64ct::Base64UrlUnpadded::encode_string(hash.as_bytes())
}

/// Requires a token, and the scope `write` for calls of `admin`.
async fn guard(State(oauth_state): State<Shared>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let value = parts.headers.get(header::AUTHORIZATION);
    let value = value.and_then(|value| value.to_str().ok());
    let token = value.and_then(|value| value.strip_prefix("Bearer "));
    let (address, scope) = {
        let oauth_state = oauth_state.lock().unwrap();
        let scope = token.and_then(|token| oauth_state.tokens.get(token).cloned());
        (oauth_state.address.clone(), scope)
    };
    let metadata_url = format!("{address}/.well-known/oauth-protected-resource");
    let Some(scope) = scope else {
        let challenge = format!("Bearer resource_metadata=\"{metadata_url}\", scope=\"read\"");
        let challenge = [(header::WWW_AUTHENTICATE, challenge)];
        let body = format!("unknown caller {}", value.unwrap_or("(none)"));
        return (StatusCode::UNAUTHORIZED, challenge, body).into_response();
    };
    let is_admin_call = String::from_utf8_lossy(&body).contains("\"admin\"");
    if is_admin_call && !scope.split(' ').any(|scope| scope == "write") {
        let challenge = format!(
            "Bearer error=\"insufficient_scope\", scope=\"write\", resource_metadata=\"{metadata_url}\""
        );
        let challenge = [(header::WWW_AUTHENTICATE, challenge)];
        return (StatusCode::FORBIDDEN, challenge).into_response();
    }
    next.run(Request::from_parts(parts, body.into())).await
}

async fn start(oauth_state: &Shared) -> String {
    let service = StreamableHttpService::new(
        || Ok(Echo),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let guarded =
        Router::new()
            .nest_service("/mcp", service)
            .layer(middleware::from_fn_with_state(
                Arc::clone(oauth_state),
                guard,
            ));
    let oauth_routes = Router::new()
        .route("/.well-known/oauth-protected-resource", get(resource))
        .route("/.well-known/oauth-authorization-server", get(metadata))
        .route("/register", post(register))
        .route("/authorize", get(authorize))
        .route("/token", post(token))
        .with_state(Arc::clone(oauth_state));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    oauth_state.lock().unwrap().address.clone_from(&address);
    oauth_state.lock().unwrap().lifetime = 3600;
    tokio::spawn(async move { axum::serve(listener, guarded.merge(oauth_routes)).await });
    format!("{address}/mcp")
}

fn server(fixture: &Fixture, url: &str) -> ServerSpec {
    ServerSpec {
        vault: Some(Vault::new(&fixture.path().join("user"), None)),
        ..fixture.configured("guarded", &json!({ "url": url }))
    }
}

/// A browser that follows the login URL.
fn browser(url: &str) {
    let url = url.to_owned();
    tokio::spawn(async move { reqwest::get(url).await.unwrap() });
}

async fn log_in(fixture: &Fixture, server: &ServerSpec, scopes: &[&str]) -> Vec<String> {
    let request = LoginRequest {
        scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        challenge: None,
    };
    let grant = fixture
        .pool
        .log_in(server, &request, browser)
        .await
        .unwrap();
    grant.scopes
}

#[tokio::test]
async fn login_allows_calls_and_tokens_are_sealed() {
    let (fixture, oauth_state) = (Fixture::new(), Shared::default());
    let url = start(&oauth_state).await;
    std::fs::create_dir(fixture.path().join("user")).unwrap();
    let server = server(&fixture, &url);
    let error = fixture.call_error(&server, "x").await;
    assert_eq!(error.code(), "login_required", "{error}");
    assert_eq!(error.hint().unwrap(), "rye mcp login guarded");
    assert_eq!(log_in(&fixture, &server, &[]).await, ["read"]);
    assert_eq!(fixture.text(&server, "x", json!({})).await, "x");
    // Another process finds the tokens, which are encrypted on disk.
    let other = Fixture::new();
    assert_eq!(other.text(&server, "y", json!({})).await, "y");
    let vault = fixture.path().join("user/.ai/vault");
    let files = walk(&vault);
    assert!(!files.is_empty(), "{}", vault.display());
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(
            !text.contains("sesame") && !text.contains("again-"),
            "{file:?}"
        );
    }
    // The tokens are not used for another URL.
    let other_url = ServerSpec {
        vault: server.vault.clone(),
        ..fixture.configured("guarded", &json!({ "url": format!("{url}/") }))
    };
    let error = fixture.call_error(&other_url, "x").await;
    assert_eq!(error.code(), "login_required", "{error}");
    assert!(Pool::log_out(&server).unwrap());
    assert!(!Pool::log_out(&server).unwrap());
    let error = Fixture::new().call_error(&server, "x").await;
    assert_eq!(error.code(), "login_required", "{error}");
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let nested = paths.flat_map(|path| {
        if path.is_dir() {
            walk(&path)
        } else {
            vec![path]
        }
    });
    nested.collect()
}

#[tokio::test]
async fn tokens_are_refreshed_on_expiry_and_on_rejection() {
    let (fixture, oauth_state) = (Fixture::new(), Shared::default());
    let url = start(&oauth_state).await;
    std::fs::create_dir(fixture.path().join("user")).unwrap();
    let server = server(&fixture, &url);
    oauth_state.lock().unwrap().lifetime = 1;
    log_in(&fixture, &server, &[]).await;
    oauth_state.lock().unwrap().lifetime = 3600;
    assert_eq!(fixture.text(&server, "x", json!({})).await, "x");
    assert_eq!(oauth_state.lock().unwrap().refreshed, 1);
    // The server revokes the access tokens, but not the refresh tokens.
    oauth_state.lock().unwrap().tokens.clear();
    assert_eq!(fixture.text(&server, "x", json!({})).await, "x");
    assert_eq!(oauth_state.lock().unwrap().refreshed, 2);
    oauth_state.lock().unwrap().tokens.clear();
    oauth_state.lock().unwrap().refresh.clear();
    let error = fixture.call_error(&server, "x").await;
    assert_eq!(error.code(), "login_required", "{error}");
    assert!(!error.to_string().contains("sesame"), "{error}");
    assert!(!format!("{error:?}").contains("sesame"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_refreshes_of_several_processes_succeed() {
    let (fixture, oauth_state) = (Fixture::new(), Shared::default());
    let url = start(&oauth_state).await;
    std::fs::create_dir(fixture.path().join("user")).unwrap();
    let server = server(&fixture, &url);
    oauth_state.lock().unwrap().lifetime = 1;
    log_in(&fixture, &server, &[]).await;
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let server = server.clone();
        // Each has its own pool, like separate processes.
        all.spawn(async move { Fixture::new().text(&server, "x", json!({})).await });
    }
    assert_eq!(all.join_all().await, ["x"; 8]);
    assert!(oauth_state.lock().unwrap().refreshed >= 8);
}

#[tokio::test]
async fn missing_scope_is_named_and_can_be_granted() {
    let (fixture, oauth_state) = (Fixture::new(), Shared::default());
    let url = start(&oauth_state).await;
    std::fs::create_dir(fixture.path().join("user")).unwrap();
    let server = server(&fixture, &url);
    log_in(&fixture, &server, &[]).await;
    let error = fixture.call_error(&server, "admin").await;
    assert_eq!(error.code(), "login_required", "{error}");
    let hint = error.hint().unwrap();
    assert_eq!(hint, "rye mcp login guarded --scope 'write'");
    assert_eq!(
        log_in(&fixture, &server, &["write"]).await,
        ["read", "write"]
    );
    assert_eq!(fixture.text(&server, "admin", json!({})).await, "admin");
}

#[tokio::test]
async fn refused_login_stores_nothing() {
    let (fixture, oauth_state) = (Fixture::new(), Shared::default());
    let url = start(&oauth_state).await;
    std::fs::create_dir(fixture.path().join("user")).unwrap();
    let server = server(&fixture, &url);
    oauth_state.lock().unwrap().refuses_logins = true;
    let refused = fixture
        .pool
        .log_in(&server, &LoginRequest::default(), browser)
        .await;
    let error = refused.unwrap_err();
    assert_eq!(error.code(), "mcp_login", "{error}");
    assert!(error.to_string().contains("access_denied"), "{error}");
    assert!(!Pool::log_out(&server).unwrap());
    let local = ServerSpec {
        environment: BTreeMap::new(),
        ..fixture.configured("process", &json!({ "command": "true" }))
    };
    let error = Pool::log_out(&local).unwrap_err();
    assert_eq!(error.code(), "mcp_config", "{error}");
}
