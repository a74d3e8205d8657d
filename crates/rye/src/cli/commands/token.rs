//! `rye token`: access tokens of the HTTP server.

use rye_host::lookup::find_id;
use rye_server::{AccessToken, NewToken, Scope, with_tokens};
use serde_json::{Value, json};

use crate::cli::args::{CreateTokenArgs, RevokeTokenArgs, TokenCommand};
use crate::cli::context::Context;
use crate::cli::page::{DIM, Page};
use crate::cli::printer::{Outcome, Report};
use crate::cli::table::{Cell, Table};

pub(crate) fn run(command: &TokenCommand, context: &Context) -> Outcome {
    match command {
        TokenCommand::Create(args) => create(args, context),
        TokenCommand::List => list(context),
        TokenCommand::Revoke(args) => revoke(args, context),
        TokenCommand::Login(args) => {
            let link = rye_server::login_link(context, &args.url)?;
            Ok(Box::new(LoginLink(link)))
        }
    }
}

fn create(args: &CreateTokenArgs, context: &Context) -> Outcome {
    let project = context.settings.project().display().to_string();
    let new = NewToken {
        name: args.name.clone(),
        scopes: args.scopes.iter().copied().map(Scope::from).collect(),
        user: args.user.clone(),
        org: args.org.clone(),
        project: args.only_this_project.then_some(project),
        lifetime: args.expires_in,
        created_by: None,
    };
    let (token, secret) = with_tokens(context, async |tokens| Ok(tokens.create(new).await?))?;
    Ok(Box::new(CreatedToken { token, secret }))
}

fn list(context: &Context) -> Outcome {
    let all = with_tokens(context, async |tokens| Ok(tokens.list().await?))?;
    Ok(Box::new(List(all)))
}

fn revoke(args: &RevokeTokenArgs, context: &Context) -> Outcome {
    let revoked = with_tokens(context, async |tokens| {
        let all = tokens.list().await?;
        let ids = all.iter().map(|token| token.id.as_str());
        let id = find_id(ids, &args.id, "token", "rye token list")?.to_owned();
        tokens.revoke(&id).await?;
        Ok(id)
    })?;
    Ok(Box::new(RevokedToken(revoked)))
}

fn token_json(token: &AccessToken) -> Value {
    let scopes: Vec<_> = token.scopes.iter().map(|it| it.as_str()).collect();
    json!({
        "id": token.id,
        "kind": token.kind,
        "name": token.name,
        "scopes": scopes,
        "user": token.user,
        "org": token.org,
        "project": token.project,
        "created_at": token.created_at,
        "expires_at": token.expires_at,
    })
}

struct CreatedToken {
    token: AccessToken,
    secret: String,
}

impl Report for CreatedToken {
    fn json(&self) -> Value {
        json!({ "token": token_json(&self.token), "secret": self.secret })
    }

    fn show(&self, page: &mut Page) {
        page.line(&self.secret);
    }

    fn next_command(&self) -> Option<String> {
        Some(format!(
            "rye token revoke {} # when it is no longer needed",
            self.token.id
        ))
    }
}

struct List(Vec<AccessToken>);

impl Report for List {
    fn json(&self) -> Value {
        let tokens: Vec<_> = self.0.iter().map(token_json).collect();
        json!({ "tokens": tokens })
    }

    fn show(&self, page: &mut Page) {
        if self.0.is_empty() {
            page.line("no tokens");
            return;
        }
        let mut table = Table::new(["ID", "NAME", "SCOPES", "USER", "ORG"]);
        for token in &self.0 {
            let scopes: Vec<_> = token.scopes.iter().map(|it| it.as_str()).collect();
            let text = |bound: &Option<String>| bound.clone().unwrap_or_else(|| "-".to_owned());
            table.row([
                Cell::styled(DIM, &token.id),
                Cell::new(&token.name),
                Cell::new(scopes.join(",")),
                Cell::new(text(&token.user)),
                Cell::new(text(&token.org)),
            ]);
        }
        page.table(&table);
    }
}

struct RevokedToken(String);

impl Report for RevokedToken {
    fn json(&self) -> Value {
        json!({ "revoked": self.0 })
    }

    fn show(&self, page: &mut Page) {
        page.line(format_args!("revoked token {}", self.0));
    }
}

struct LoginLink(String);

impl Report for LoginLink {
    fn json(&self) -> Value {
        json!({ "login": self.0 })
    }

    fn show(&self, page: &mut Page) {
        page.line(&self.0);
    }
}
