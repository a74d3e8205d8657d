//! Shared guides, for an engine that takes ownership of its guides.

use std::sync::Arc;

use rye_engine::BoxFuture;
use rye_engine::guides::{GuideFuture, Guides, Role, Skill};
use rye_engine::sandbox::Sandbox;

/// Delegates to shared guides.
pub(super) struct SharedGuides(pub(super) Arc<dyn Guides>);

impl Guides for SharedGuides {
    fn role<'a>(&'a self, name: &'a str, sandbox: &'a dyn Sandbox) -> GuideFuture<'a, Role> {
        self.0.role(name, sandbox)
    }

    fn skill<'a>(&'a self, name: &'a str, sandbox: &'a dyn Sandbox) -> GuideFuture<'a, Skill> {
        self.0.skill(name, sandbox)
    }

    fn skills<'a>(&'a self, sandbox: &'a dyn Sandbox) -> BoxFuture<'a, Vec<Skill>> {
        self.0.skills(sandbox)
    }

    fn rules<'a>(&'a self, sandbox: &'a dyn Sandbox) -> BoxFuture<'a, Option<String>> {
        self.0.rules(sandbox)
    }
}
