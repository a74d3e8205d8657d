//! Conversions from library errors to [`Failure`]: exit code, error code, hint.

use std::path::Path;

use lillux::durable::WriteError;
use lillux::keys::KeyError;
use lillux::shell_word;
use rye_engine::DecideError;
use rye_engine::credential::CredentialError;
use rye_engine::sandbox::SandboxError;
use rye_engine::store::StoreError;
use rye_items::vault::VaultError;
use rye_items::{
    Excerpt, IdError, IntegrityError, IntegrityProblem, ItemError, LookupError, SignError, Space,
    SpaceError, UserKeyError,
};
use rye_mcp::client::ClientError;
use serde_json::json;

use crate::failure::{Failure, FailureKind};
use crate::sandbox::ConfinementError;
use crate::settings::SettingsError;
use crate::{
    CallGateError, CompactionError, HostError, LoginError, MetaToolsError, ModelsError, OAUTH_FILE,
    PolicyError,
};

/// Hint for a state directory that cannot be written.
pub(crate) const UNWRITABLE_STATE: &str = "export RYE_STATE_DIR=/path/to/writable/directory";

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        match error {
            SettingsError::Variable { name, .. } => {
                Self::usage(&error).hint(format!("unset {name}"))
            }
            SettingsError::NoUserSpace => {
                Self::usage(error).hint("export USER_SPACE=/path/to/home")
            }
            SettingsError::File(error) => {
                let line = error.excerpt.as_ref().map(|excerpt| excerpt.position.line);
                Self::new(FailureKind::Usage, "bad_config", &error.message)
                    .at(&error.path)
                    .excerpt(error.excerpt.as_ref())
                    .hint(edit(&error.path, line))
            }
            SettingsError::Space(error) => error.into(),
            SettingsError::Path(error) => error.into(),
        }
    }
}

impl From<SpaceError> for Failure {
    fn from(error: SpaceError) -> Self {
        let hint = error.hint();
        let path = error.path().to_string_lossy().into_owned();
        let failure = match error {
            SpaceError::Path(error) => error.into(),
            SpaceError::LeavesSpace(_) => Self::new(FailureKind::Integrity, "leaves_space", error),
            SpaceError::NoBundle(_) => Self::usage(error),
            SpaceError::TooLarge { .. } => Self::failed("too_large", error),
            SpaceError::ChangedWhileReading(_) => Self::failed("changing", error),
            _ => Self::failed("not_a_file", error),
        };
        failure.detail("path", path).maybe_hint(hint)
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        let hint = error.hint();
        let failure = match error {
            KeyError::Path(error) => error.into(),
            KeyError::Missing(_) => Self::failed("not_found", error),
            KeyError::InsecureFile { .. } | KeyError::InsecureDirectory { .. } => {
                Self::new(FailureKind::Permission, "permission", error)
            }
            KeyError::Exists(_) => Self::failed("exists", error),
            KeyError::Randomness(_) => Self::failed("no_randomness", error),
            _ => Self::failed("bad_key", error),
        };
        failure.maybe_hint(hint)
    }
}

impl From<VaultError> for Failure {
    fn from(error: VaultError) -> Self {
        let hint = error.hint();
        let integrity = error.is_integrity();
        let failure = match error {
            VaultError::Key(error) => error.into(),
            VaultError::Space(error) => error.into(),
            VaultError::Path(error) => error.into(),
            VaultError::Write(error) => error.into(),
            VaultError::NoSecret { .. } | VaultError::NoKey { .. } | VaultError::NoSpace(_) => {
                Self::failed("not_found", error)
            }
            VaultError::InBothSpaces(_) | VaultError::Empty(_) => Self::usage(error),
            VaultError::TooLarge(_) => Self::failed("too_large", error),
            _ if integrity => Self::new(FailureKind::Integrity, "bad_envelope", error),
            VaultError::Envelope { .. } => Self::failed("unsupported", error),
            _ => Self::failed("vault", error),
        };
        failure.maybe_hint(hint)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let exit = match error.code() {
            "timeout" => FailureKind::TimedOut,
            "mcp_drift" => FailureKind::Integrity,
            _ => FailureKind::Failed,
        };
        let failure = Self::new(exit, error.code(), &error).maybe_hint(error.hint());
        match error.diagnostics.stderr {
            stderr if stderr.is_empty() => failure,
            stderr => failure.detail("stderr", stderr),
        }
    }
}

impl From<IdError> for Failure {
    fn from(error: IdError) -> Self {
        let hint = error.hint();
        Self::new(FailureKind::Usage, "bad_id", error).hint(hint)
    }
}

impl From<LookupError> for Failure {
    fn from(error: LookupError) -> Self {
        let hint = error.hint();
        let failure = match error {
            LookupError::Space(error) => error.into(),
            LookupError::NotFound {
                ref searched,
                ref near,
                ..
            } => {
                let searched: Vec<_> = searched.iter().map(|path| path.to_string_lossy()).collect();
                Self::failed("not_found", &error)
                    .detail("searched", json!(searched))
                    .detail("near", json!(near))
            }
            LookupError::Duplicate { ref paths, .. } => {
                let paths: Vec<_> = paths.iter().map(|path| path.to_string_lossy()).collect();
                Self::failed("ambiguous", &error).detail("paths", json!(paths))
            }
            LookupError::Ambiguous { ref candidates, .. } => {
                Self::failed("ambiguous", &error).detail("candidates", json!(candidates))
            }
            _ => Self::failed("lookup", error),
        };
        failure.maybe_hint(hint)
    }
}

impl From<IntegrityError> for Failure {
    fn from(error: IntegrityError) -> Self {
        let failure = Self::new(FailureKind::Integrity, error.problem.code(), &error)
            .at(&error.path)
            .excerpt(error.excerpt.as_ref())
            .hint(error.hint())
            .detail("item", error.item.as_str());
        match &error.problem {
            IntegrityProblem::Changed { expected, found } => failure
                .detail("expected", expected.to_string())
                .detail("found", found.map(|hash| hash.to_string())),
            IntegrityProblem::Untrusted {
                fingerprint,
                trusted,
                ignored,
            } => {
                let trusted: Vec<_> = trusted
                    .iter()
                    .map(|key| json!({ "fingerprint": key.key.fingerprint(), "owner": key.owner }))
                    .collect();
                failure
                    .detail("fingerprint", json!(fingerprint))
                    .detail("trusted", trusted)
                    .detail("ignored", json!(ignored))
            }
            IntegrityProblem::Revoked(revocation) => {
                failure.detail("revocation", json!(revocation))
            }
            IntegrityProblem::BadSignature { fingerprint } => {
                failure.detail("fingerprint", json!(fingerprint))
            }
            IntegrityProblem::Moved {
                signed_for,
                expected,
            } => failure
                .detail("signed_for", signed_for.to_string())
                .detail("expected", expected.to_string()),
            IntegrityProblem::NoManifest(files) => {
                let file = |path: &String| json!({ "path": path, "state": "unsigned" });
                failure.detail("files", files.iter().map(file).collect::<Vec<_>>())
            }
            IntegrityProblem::Files(files) => {
                let files = files.iter();
                let files = files.map(|(path, it)| json!({ "path": path, "state": it.code() }));
                failure.detail("files", files.collect::<Vec<_>>())
            }
            IntegrityProblem::Line(_)
            | IntegrityProblem::Unbound
            | IntegrityProblem::Manifest(_) => failure,
        }
    }
}

impl From<ItemError> for Failure {
    fn from(error: ItemError) -> Self {
        match error {
            ItemError::Lookup(error) => error.into(),
            ItemError::Space(error) => error.into(),
            ItemError::Integrity(error) => (*error).into(),
            ItemError::Metadata { path, source } => {
                let command = edit(&path, Some(source.excerpt.position.line));
                let hint = match &source.hint {
                    Some(what) => format!("{what}; {command}"),
                    None => command,
                };
                Self::failed("bad_metadata", &source.message)
                    .at(path)
                    .excerpt(Some(&source.excerpt))
                    .hint(hint)
            }
            _ => Self::failed("item", error),
        }
    }
}

impl From<SignError> for Failure {
    fn from(error: SignError) -> Self {
        match error {
            SignError::Item(error) => error.into(),
            SignError::SystemSpace(ref item) => {
                let hint = format!("rye load {item} --to project");
                Self::new(FailureKind::Permission, "read_only", error).hint(hint)
            }
            SignError::ChangedSinceApproval(ref path) => {
                Self::failed("approval_void", &error).at(path)
            }
            SignError::KeyFile { ref path, .. } => {
                let path = path.clone();
                let hint = format!("rye keys trust {}", path.display());
                Self::new(FailureKind::Permission, "about_keys", error)
                    .at(path)
                    .hint(hint)
            }
            SignError::Provenance(_) => Self::usage(error),
            SignError::Write { source, .. } => source.into(),
            _ => Self::failed("sign", error),
        }
    }
}

impl From<UserKeyError> for Failure {
    fn from(error: UserKeyError) -> Self {
        let hint = error.hint();
        let failure = match error {
            UserKeyError::Key(error) => error.into(),
            UserKeyError::Path(error) => error.into(),
            UserKeyError::Write(error) => error.into(),
            UserKeyError::Missing(_) => Self::failed("no_key", error),
            UserKeyError::Exists(_) => Self::failed("exists", error),
            UserKeyError::NoKey { .. } => Self::failed("bad_key", error),
            _ => Self::failed("key", error),
        };
        failure.maybe_hint(hint)
    }
}

impl From<LoginError> for Failure {
    fn from(error: LoginError) -> Self {
        match error {
            LoginError::ClientSecret(error) => error.into(),
            LoginError::UnknownService(ref name, ref known) => {
                let hint =
                    format!("${{EDITOR:-vi}} ~/.ai/{OAUTH_FILE}  # add {name}: rye help vault");
                let failure = Self::failed("unknown_service", &error);
                failure.candidates(known.iter().cloned()).hint(hint)
            }
            error @ LoginError::NoSuchMethod { .. } => Self::usage(error),
            error => Self::failed("login", error),
        }
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Path(error) => error.into(),
            WriteError::Exists(_) => Self::failed("exists", error),
            WriteError::NotAFile(_) => Self::failed("not_a_file", error),
        }
    }
}

/// The command that opens a file in the user's editor at a line.
fn edit(path: &Path, line: Option<u32>) -> String {
    let line = line.map_or_else(String::new, |line| format!("+{line} "));
    format!("${{EDITOR:-vi}} {line}{}", shell_word(path))
}

impl From<rye_graph::RecordError> for Failure {
    fn from(error: rye_graph::RecordError) -> Self {
        use rye_graph::RecordError;
        let (code, hint) = (error.code(), error.hint());
        match error {
            RecordError::Store(error) => error.into(),
            RecordError::Write(error) => error.into(),
            RecordError::NotFound(_) => Self::failed("not_found", error).maybe_hint(hint),
            RecordError::Altered { .. }
            | RecordError::Unsigned(_)
            | RecordError::UntrustedKey { .. } => {
                Self::new(FailureKind::Integrity, "integrity", error).maybe_hint(hint)
            }
            _ => Self::failed(code, error).maybe_hint(hint),
        }
    }
}

impl From<SandboxError> for Failure {
    fn from(error: SandboxError) -> Self {
        let hint = match &error {
            SandboxError::Unavailable { hint, .. } => hint.clone(),
            _ => None,
        };
        let failure = Self::failed("sandbox", error);
        failure.hint(hint.unwrap_or_else(|| "rye sandbox check".to_owned()))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Sandbox(_, cause) => cause.clone().into(),
            StoreError::NotFound { .. } => Self::failed("not_found", error),
            StoreError::InUse { .. } => {
                Self::new(FailureKind::Permission, "in_use", error).hint("rye gate list")
            }
            StoreError::Fenced(_) => Self::failed("fenced", error),
            StoreError::Conflict { .. } => Self::failed("conflict", error),
            StoreError::Archived(_) => Self::failed("archived", error),
            StoreError::GateClosed(_) => Self::failed("gate_closed", error),
            StoreError::SingleCall(_) => Self::usage(error),
            StoreError::Setup(..) => Self::failed("setup", error),
            StoreError::Unavailable(_) => Self::failed("store", error).hint(UNWRITABLE_STATE),
            StoreError::SessionFailed { session, .. } => {
                let hint = format!("rye session resume {}", session.short());
                Self::failed("session_failed", error).hint(hint)
            }
            _ => Self::failed("unreadable", error),
        }
    }
}

impl From<PolicyError> for Failure {
    fn from(error: PolicyError) -> Self {
        match error {
            PolicyError::Space(error) => error.into(),
            PolicyError::Config {
                ref path, space, ..
            } => {
                let path = lillux::shell_word(path);
                let next = match space {
                    Space::User => "rye doctor".to_owned(),
                    _ => format!("rye sign {path}"),
                };
                let hint = format!("${{EDITOR:-vi}} {path} && {next}");
                Self::failed("approvals", error).hint(hint)
            }
        }
    }
}

impl From<CompactionError> for Failure {
    fn from(error: CompactionError) -> Self {
        match error {
            CompactionError::Space(error) => error.into(),
            other => Self::new(FailureKind::Usage, "bad_config", other),
        }
    }
}

impl From<MetaToolsError> for Failure {
    fn from(error: MetaToolsError) -> Self {
        match error {
            MetaToolsError::Space(error) => error.into(),
            MetaToolsError::Policy(error) => error.into(),
            MetaToolsError::Id(error) => error.into(),
        }
    }
}

impl From<ConfinementError> for Failure {
    fn from(error: ConfinementError) -> Self {
        SandboxError::from(error).into()
    }
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Store(error) => error.into(),
            other => Self::failed("host", other),
        }
    }
}

impl From<CallGateError> for Failure {
    fn from(error: CallGateError) -> Self {
        match error {
            CallGateError::Store(error) => error.into(),
            CallGateError::TooMany => Self::failed("too_many_gates", error).hint("rye gate list"),
        }
    }
}

impl From<DecideError> for Failure {
    fn from(error: DecideError) -> Self {
        match error {
            DecideError::Store(error) => error.into(),
            DecideError::InvalidAmount(ref gate) => {
                let hint = format!("rye gate approve {}", gate.short());
                Self::usage(error).hint(hint)
            }
            DecideError::InvalidArguments { .. } => {
                Self::new(FailureKind::Usage, "invalid_arguments", error)
            }
            DecideError::GateNotFound(_) => Self::failed("not_found", error).hint("rye gate list"),
            other => Self::usage(other),
        }
    }
}

impl From<ModelsError> for Failure {
    fn from(error: ModelsError) -> Self {
        match error {
            ModelsError::Space(error) => error.into(),
            ModelsError::Config(error) => {
                let line = error.position.map(|(line, _)| format!("+{line} "));
                let hint = format!(
                    "${{EDITOR:-vi}} {}{}",
                    line.unwrap_or_default(),
                    shell_word(&error.path)
                );
                let excerpt = error
                    .position
                    .and_then(|position| excerpt(&error.path, position));
                Self::new(FailureKind::Usage, "bad_config", &error.message)
                    .at(&error.path)
                    .excerpt(excerpt.as_ref())
                    .hint(hint)
            }
        }
    }
}

/// The source line at a line and column of a file, which begin at 1.
fn excerpt(path: &Path, (line, column): (u64, u64)) -> Option<Excerpt> {
    let text = std::fs::read_to_string(path).ok()?;
    let [before, column] = [line, column].map(|at| usize::try_from(at - 1).unwrap_or(usize::MAX));
    let mut lines = text.split_inclusive('\n');
    let start: usize = lines.by_ref().take(before).map(str::len).sum();
    let characters = lines.next().unwrap_or_default().chars().take(column);
    let offset = start + characters.map(char::len_utf8).sum::<usize>();
    Some(Excerpt::at_offset(text.as_bytes(), offset))
}

impl From<CredentialError> for Failure {
    fn from(error: CredentialError) -> Self {
        Self::failed("credentials", error)
    }
}
