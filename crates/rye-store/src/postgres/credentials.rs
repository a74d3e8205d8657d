//! Credentials in the PostgreSQL database, each sealed to the user's key.

use std::fmt;

use lillux::envelope::Secret;
use rye_engine::credential::{
    Credential, CredentialError, CredentialFuture, CredentialStore, Owner,
};
use zeroize::Zeroizing;

use super::error::DbResult;
use super::tasks::Tasks;
use crate::credentials::{KeyProvider, open_sealed, seal_for_key};

/// Credentials in a PostgreSQL database, each sealed to the user's key. The database is useless
/// without the key. Usable as long as the store that it comes from.
#[derive(Clone)]
pub struct PostgresCredentials {
    pub(super) tasks: Tasks,
    pub(super) key: KeyProvider,
}

impl fmt::Debug for PostgresCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresCredentials")
            .finish_non_exhaustive()
    }
}

impl PostgresCredentials {
    fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = DbResult<T>> + Send + 'static,
    ) -> CredentialFuture<'static, T> {
        let done = self.tasks.run(work);
        Box::pin(async move {
            done.await
                .map_err(|error| CredentialError(error.to_string()))
        })
    }
}

impl CredentialStore for PostgresCredentials {
    fn get<'a>(
        &'a self,
        owner: &'a Owner,
        service: &'a str,
    ) -> CredentialFuture<'a, Option<Credential>> {
        Box::pin(async move {
            let (db, name, service_name) = (self.tasks.db(), owner.to_string(), service.to_owned());
            let read = self.run(async move {
                let sql = "SELECT envelope FROM rye.credentials WHERE owner = $1 AND service = $2";
                let row = db.query_opt(sql, &[&name, &service_name]).await?;
                let sealed = row.map(|row| row.try_get::<_, String>(0)).transpose()?;
                Ok(sealed)
            });
            match read.await? {
                Some(sealed) => {
                    open_sealed(&self.key, &owner.to_string(), service, &sealed).map(Some)
                }
                None => Ok(None),
            }
        })
    }

    fn put<'a>(
        &'a self,
        owner: &'a Owner,
        service: &'a str,
        credential: &'a Credential,
    ) -> CredentialFuture<'a, ()> {
        Box::pin(async move {
            let text = serde_json::to_vec(credential).map(Zeroizing::new);
            let text = text.map_err(|error| CredentialError(error.to_string()))?;
            let (name, service) = (owner.to_string(), service.to_owned());
            let sealed = seal_for_key(&self.key, &name, &service, &Secret::new(text.to_vec()))?;
            let db = self.tasks.db();
            let write = self.run(async move {
                let sql = "INSERT INTO rye.credentials (owner, service, envelope)
                           VALUES ($1, $2, $3) ON CONFLICT (owner, service)
                           DO UPDATE SET envelope = $3, updated = clock_timestamp()";
                db.query(sql, &[&name, &service, &sealed]).await.map(drop)
            });
            write.await
        })
    }

    fn remove<'a>(&'a self, owner: &'a Owner, service: &'a str) -> CredentialFuture<'a, bool> {
        let (db, owner, service) = (self.tasks.db(), owner.to_string(), service.to_owned());
        self.run(async move {
            let sql =
                "DELETE FROM rye.credentials WHERE owner = $1 AND service = $2 RETURNING owner";
            Ok(db.query_opt(sql, &[&owner, &service]).await?.is_some())
        })
    }

    fn list(&self) -> CredentialFuture<'_, Vec<(Owner, String)>> {
        let db = self.tasks.db();
        self.run(async move {
            let sql = "SELECT owner, service FROM rye.credentials ORDER BY owner, service";
            let mut found = Vec::new();
            for row in db.query(sql, &[]).await? {
                let service: String = row.try_get(1)?;
                found.extend(Owner::parse(row.try_get(0)?).map(|owner| (owner, service)));
            }
            Ok(found)
        })
    }
}
