//! Servers that want to know who calls: a real authorization server and a real MCP server,
//! on this machine.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use crate::support::World;
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

/// What the two servers know of each other.
#[derive(Debug, Default)]
struct Known {
    address: String,
    /// By code: the challenge and the scope.
    codes: HashMap<String, (String, String)>,
    /// By token: what it is for.
    tokens: HashMap<String, String>,
    refresh: HashMap<String, String>,
    given: usize,
    refreshed: usize,
    /// How long tokens last, in seconds.
    lasts: u64,
    refuses: bool,
}

type Shared = Arc<Mutex<Known>>;

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

async fn resource(State(known): State<Shared>) -> axum::Json<Value> {
    let address = known.lock().unwrap().address.clone();
    axum::Json(json!({
        "resource": format!("{address}/mcp"),
        "authorization_servers": [address],
        "scopes_supported": ["read"],
    }))
}

async fn metadata(State(known): State<Shared>) -> axum::Json<Value> {
    let address = known.lock().unwrap().address.clone();
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
    State(known): State<Shared>,
    Query(asked): Query<HashMap<String, String>>,
) -> Response {
    let mut known = known.lock().unwrap();
    assert_eq!(asked["code_challenge_method"], "S256");
    assert_eq!(asked["resource"], format!("{}/mcp", known.address));
    let back = &asked["redirect_uri"];
    let state = &asked["state"];
    let to = if known.refuses {
        format!("{back}?error=access_denied&state={state}")
    } else {
        known.given += 1;
        let code = format!("code-{}", known.given);
        let scope = asked.get("scope").cloned().unwrap_or_default();
        let challenge = asked["code_challenge"].clone();
        known.codes.insert(code.clone(), (challenge, scope));
        format!("{back}?code={code}&state={state}")
    };
    (StatusCode::FOUND, [(header::LOCATION, to)]).into_response()
}

async fn token(
    State(known): State<Shared>,
    Form(asked): Form<HashMap<String, String>>,
) -> Response {
    let mut known = known.lock().unwrap();
    let scope = if asked["grant_type"] == "refresh_token" {
        let Some(scope) = known.refresh.remove(&asked["refresh_token"]) else {
            let error = axum::Json(json!({ "error": "invalid_grant" }));
            return (StatusCode::BAD_REQUEST, error).into_response();
        };
        known.refreshed += 1;
        scope
    } else {
        // The code is of whoever asked for it.
        let (challenge, scope) = known.codes.remove(&asked["code"]).unwrap();
        assert_eq!(challenge, proof(&asked["code_verifier"]));
        scope
    };
    known.given += 1;
    let (access, refresh) = (
        format!("sesame-{}", known.given),
        format!("again-{}", known.given),
    );
    known.tokens.insert(access.clone(), scope.clone());
    known.refresh.insert(refresh.clone(), scope.clone());
    axum::Json(json!({
        "access_token": access,
        "refresh_token": refresh,
        "token_type": "Bearer",
        "expires_in": known.lasts,
        "scope": scope,
    }))
    .into_response()
}

/// The challenge that belongs to a verifier.
fn proof(verifier: &str) -> String {
    let hash = lillux::Hash::digest(verifier);
    base64ct::Base64UrlUnpadded::encode_string(hash.as_bytes())
}

/// Lets in who has a token, and to `admin` who has one for it.
async fn guard(State(known): State<Shared>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let value = parts.headers.get(header::AUTHORIZATION);
    let value = value.and_then(|value| value.to_str().ok());
    let token = value.and_then(|value| value.strip_prefix("Bearer "));
    let (address, scope) = {
        let known = known.lock().unwrap();
        let scope = token.and_then(|token| known.tokens.get(token).cloned());
        (known.address.clone(), scope)
    };
    let place = format!("{address}/.well-known/oauth-protected-resource");
    let Some(scope) = scope else {
        let challenge = format!("Bearer resource_metadata=\"{place}\", scope=\"read\"");
        let challenge = [(header::WWW_AUTHENTICATE, challenge)];
        let said = format!("who is {}?", value.unwrap_or("nobody"));
        return (StatusCode::UNAUTHORIZED, challenge, said).into_response();
    };
    let wants_more = String::from_utf8_lossy(&body).contains("\"admin\"");
    if wants_more && !scope.split(' ').any(|scope| scope == "write") {
        let challenge = format!(
            "Bearer error=\"insufficient_scope\", scope=\"write\", resource_metadata=\"{place}\""
        );
        let challenge = [(header::WWW_AUTHENTICATE, challenge)];
        return (StatusCode::FORBIDDEN, challenge).into_response();
    }
    next.run(Request::from_parts(parts, body.into())).await
}

async fn start(known: &Shared) -> String {
    let service = StreamableHttpService::new(
        || Ok(Echo),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let guarded = Router::new()
        .nest_service("/mcp", service)
        .layer(middleware::from_fn_with_state(Arc::clone(known), guard));
    let places = Router::new()
        .route("/.well-known/oauth-protected-resource", get(resource))
        .route("/.well-known/oauth-authorization-server", get(metadata))
        .route("/register", post(register))
        .route("/authorize", get(authorize))
        .route("/token", post(token))
        .with_state(Arc::clone(known));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    known.lock().unwrap().address.clone_from(&address);
    known.lock().unwrap().lasts = 3600;
    tokio::spawn(async move { axum::serve(listener, guarded.merge(places)).await });
    format!("{address}/mcp")
}

fn server(world: &World, url: &str) -> ServerSpec {
    ServerSpec {
        vault: Some(Vault::new(&world.path().join("user"), None)),
        ..world.configured("guarded", &json!({ "url": url }))
    }
}

/// A person with a browser that does as it is told.
fn browser(url: &str) {
    let url = url.to_owned();
    tokio::spawn(async move { reqwest::get(url).await.unwrap() });
}

async fn log_in(world: &World, server: &ServerSpec, scopes: &[&str]) -> Vec<String> {
    let ask = LoginRequest {
        scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        challenge: None,
    };
    let granted = world.pool.log_in(server, &ask, browser).await.unwrap();
    granted.scopes
}

#[tokio::test]
async fn who_has_logged_in_may_call_and_what_is_kept_is_sealed() {
    let (world, known) = (World::new(), Shared::default());
    let url = start(&known).await;
    std::fs::create_dir(world.path().join("user")).unwrap();
    let server = server(&world, &url);
    let error = world.fails(&server, "x").await;
    assert_eq!(error.code(), "login_required", "{error}");
    assert_eq!(error.hint().unwrap(), "rye mcp login guarded");
    assert_eq!(log_in(&world, &server, &[]).await, ["read"]);
    assert_eq!(world.text(&server, "x", json!({})).await, "x");
    // Another process finds what this one has kept, and nobody else can read it.
    let other = World::new();
    assert_eq!(other.text(&server, "y", json!({})).await, "y");
    let vault = world.path().join("user/.ai/vault");
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
    // At another address nobody gets it.
    let elsewhere = ServerSpec {
        vault: server.vault.clone(),
        ..world.configured("guarded", &json!({ "url": format!("{url}/") }))
    };
    let error = world.fails(&elsewhere, "x").await;
    assert_eq!(error.code(), "login_required", "{error}");
    assert!(Pool::log_out(&server).unwrap());
    assert!(!Pool::log_out(&server).unwrap());
    let error = World::new().fails(&server, "x").await;
    assert_eq!(error.code(), "login_required", "{error}");
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
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
async fn tokens_are_made_new_before_they_end_and_when_they_are_refused() {
    let (world, known) = (World::new(), Shared::default());
    let url = start(&known).await;
    std::fs::create_dir(world.path().join("user")).unwrap();
    let server = server(&world, &url);
    known.lock().unwrap().lasts = 1;
    log_in(&world, &server, &[]).await;
    known.lock().unwrap().lasts = 3600;
    assert_eq!(world.text(&server, "x", json!({})).await, "x");
    assert_eq!(known.lock().unwrap().refreshed, 1);
    // The server forgets its tokens, not who may have new ones.
    known.lock().unwrap().tokens.clear();
    assert_eq!(world.text(&server, "x", json!({})).await, "x");
    assert_eq!(known.lock().unwrap().refreshed, 2);
    known.lock().unwrap().tokens.clear();
    known.lock().unwrap().refresh.clear();
    let error = world.fails(&server, "x").await;
    assert_eq!(error.code(), "login_required", "{error}");
    assert!(!error.to_string().contains("sesame"), "{error}");
    assert!(!format!("{error:?}").contains("sesame"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_make_tokens_new_at_once_do_not_take_each_others() {
    let (world, known) = (World::new(), Shared::default());
    let url = start(&known).await;
    std::fs::create_dir(world.path().join("user")).unwrap();
    let server = server(&world, &url);
    known.lock().unwrap().lasts = 1;
    log_in(&world, &server, &[]).await;
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let server = server.clone();
        // Each with a pool of its own, as processes have.
        all.spawn(async move { World::new().text(&server, "x", json!({})).await });
    }
    assert_eq!(all.join_all().await, ["x"; 8]);
    assert!(known.lock().unwrap().refreshed >= 8);
}

#[tokio::test]
async fn a_call_that_needs_more_says_what_and_gets_it() {
    let (world, known) = (World::new(), Shared::default());
    let url = start(&known).await;
    std::fs::create_dir(world.path().join("user")).unwrap();
    let server = server(&world, &url);
    log_in(&world, &server, &[]).await;
    let error = world.fails(&server, "admin").await;
    assert_eq!(error.code(), "login_required", "{error}");
    let hint = error.hint().unwrap();
    assert_eq!(hint, "rye mcp login guarded --scope 'write'");
    assert_eq!(log_in(&world, &server, &["write"]).await, ["read", "write"]);
    assert_eq!(world.text(&server, "admin", json!({})).await, "admin");
}

#[tokio::test]
async fn a_login_that_is_refused_leaves_nothing() {
    let (world, known) = (World::new(), Shared::default());
    let url = start(&known).await;
    std::fs::create_dir(world.path().join("user")).unwrap();
    let server = server(&world, &url);
    known.lock().unwrap().refuses = true;
    let refused = world
        .pool
        .log_in(&server, &LoginRequest::default(), browser)
        .await;
    let error = refused.unwrap_err();
    assert_eq!(error.code(), "mcp_login", "{error}");
    assert!(error.to_string().contains("access_denied"), "{error}");
    assert!(!Pool::log_out(&server).unwrap());
    let own = ServerSpec {
        environment: BTreeMap::new(),
        ..world.configured("process", &json!({ "command": "true" }))
    };
    let error = Pool::log_out(&own).unwrap_err();
    assert_eq!(error.code(), "mcp_config", "{error}");
}
