//! Services with an OAuth login: `oauth.yaml` of all spaces.

use std::collections::BTreeMap;

use reqwest::Url;
use rye_items::Spaces;
use rye_items::trust::IgnoredFile;
use rye_items::vault::SecretName;
use serde::Deserialize;

use crate::config;
use crate::policy_file::PolicyError;

/// The file with services, relative to a space's `.ai/`.
pub const OAUTH_FILE: &str = "config/agent/oauth.yaml";

/// Parameters that a login sets itself.
const RESERVED: [&str; 7] = [
    "client_id",
    "code_challenge",
    "code_challenge_method",
    "redirect_uri",
    "response_type",
    "scope",
    "state",
];

/// The services, by the name of their credential.
pub type OAuthServices = BTreeMap<String, OAuthService>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    services: OAuthServices,
}

/// How to log in to a service.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OAuthService {
    /// Page on which a person logs in with a browser on the same machine.
    #[serde(default)]
    pub authorize_url: Option<String>,
    /// Endpoint that issues device codes.
    #[serde(default)]
    pub device_url: Option<String>,
    /// Endpoint that issues tokens.
    pub token_url: String,
    /// Id of the registered client.
    pub client_id: String,
    /// Name of the vault secret with the client's secret, if it has one.
    #[serde(default)]
    pub client_secret: Option<String>,
    /// How the client authenticates.
    #[serde(default)]
    pub client_auth: ClientAuth,
    /// Scopes to request.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// Further parameters of the first request.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// Port of the redirect to this machine; any free port if there is none.
    #[serde(default)]
    pub redirect_port: Option<u16>,
}

/// How a client authenticates at the token endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuth {
    /// Id and secret are in the body.
    #[default]
    Body,
    /// Id and secret are in the header `Authorization`.
    Basic,
}

/// Loads the services of all spaces, and returns the files that were ignored. Services of the
/// project precede those of the user and the system.
pub fn load_oauth(spaces: &Spaces) -> Result<(OAuthServices, Vec<IgnoredFile>), PolicyError> {
    let (files, ignored) = config::load(spaces, OAUTH_FILE)?.into_accepted();
    let mut all = OAuthServices::new();
    // Most specific first, so the first one wins.
    for (space, file) in files {
        let invalid = |reason: String| PolicyError::Config {
            path: file.path.clone(),
            space,
            reason,
        };
        let parsed: Result<File, _> = serde_saphyr::from_str(&file.text);
        let parsed = parsed.map_err(|error| invalid(error.to_string()))?;
        for (name, service) in parsed.services {
            let checked = check(&name, &service);
            checked.map_err(|reason| invalid(format!("service {name}: {reason}")))?;
            all.entry(name).or_insert(service);
        }
    }
    Ok((all, ignored))
}

fn check(name: &str, service: &OAuthService) -> Result<(), String> {
    let names = [Some(name), service.client_secret.as_deref()];
    for name in names.into_iter().flatten() {
        if let Err(error) = name.parse::<SecretName>() {
            return Err(format!("not a valid name: {error}"));
        }
    }
    let urls = [
        ("authorize_url", service.authorize_url.as_ref()),
        ("device_url", service.device_url.as_ref()),
        ("token_url", Some(&service.token_url)),
    ];
    for (key, url) in urls {
        if let Some(url) = url {
            check_url(url).map_err(|why| format!("`{key}`: {why}"))?;
        }
    }
    if service.authorize_url.is_none() && service.device_url.is_none() {
        return Err("`authorize_url` or `device_url` is required".to_owned());
    }
    let reserved = service
        .parameters
        .keys()
        .find(|it| RESERVED.contains(&it.as_str()));
    match reserved {
        Some(reserved) => Err(format!("`parameters`: `{reserved}` is set by the login")),
        None => Ok(()),
    }
}

/// Tokens and codes must not be sent in plain text, except to this machine.
pub(super) fn check_url(url: &str) -> Result<Url, String> {
    let parsed = Url::parse(url).map_err(|error| format!("invalid URL: {error}"))?;
    let is_here = matches!(parsed.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    match parsed.scheme() {
        "https" => Ok(parsed),
        "http" if is_here => Ok(parsed),
        _ => Err("the URL must start with https://".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        let service: OAuthService = serde_saphyr::from_str(text).unwrap();
        check("github", &service).err().unwrap_or_default()
    }

    #[test]
    fn invalid_services_are_refused_with_the_reason() {
        let base = "token_url: https://a.test/t\nclient_id: x\n";
        let table = [
            ("authorize_url: https://a.test/a", ""),
            ("device_url: http://127.0.0.1:1/d", ""),
            ("", "`authorize_url` or `device_url` is required"),
            (
                "authorize_url: http://a.test/a",
                "`authorize_url`: the URL must start with https://",
            ),
            (
                "device_url: https://a.test/d\nparameters: { state: x }",
                "`parameters`: `state` is set by the login",
            ),
        ];
        for (more, expected) in table {
            assert_eq!(problem(&format!("{base}{more}\n")), expected, "{more}");
        }
        let service = serde_saphyr::from_str(&format!("{base}device_url: https://a.test/d\n"));
        assert!(check("a b", &service.unwrap()).is_err());
        let unknown = format!("{base}secret: y\n");
        assert!(serde_saphyr::from_str::<OAuthService>(&unknown).is_err());
    }
}
