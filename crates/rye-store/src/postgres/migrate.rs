//! The tables of the database.
//!
//! Each migration raises the version by one. Hosts of two adjacent versions can share a database:
//! a migration only adds, and what became unused is removed by the next one.

use rye_engine::store::StoreError;
use tokio_postgres::{Client, GenericClient};

use super::config::PostgresUrl;
use super::error::{DbError, DbResult};

/// All migrations, oldest first.
const MIGRATIONS: [&str; 1] = [include_str!("schema.sql")];

/// Key of the advisory lock of a migration.
const LOCK: i64 = 0x7279_6500_0000_0001;

/// Creates or upgrades the tables if necessary.
pub(super) async fn migrate(client: &mut Client, database: &PostgresUrl) -> DbResult<()> {
    let target = MIGRATIONS.len();
    // The next version understands the calls of this one.
    let is_usable = |current| current == target || current == target + 1;
    if is_usable(version(client).await?) {
        return Ok(());
    }
    let transaction = client.transaction().await?;
    transaction
        .execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK])
        .await?;
    let current = version(&transaction).await?;
    if is_usable(current) {
        return Ok(());
    }
    if current > target {
        let message = format!(
            "{database} was upgraded by a newer version of Rye (tables {current}, this version \
             knows {target}): upgrade Rye on this machine"
        );
        return Err(StoreError::Damaged(message).into());
    }
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(current) {
        if index == 0 {
            create_schema(&transaction).await?;
        }
        transaction.batch_execute(migration).await?;
        let version = i64::try_from(index + 1).unwrap_or(i64::MAX);
        transaction
            .execute("UPDATE rye.version SET version = $1", &[&version])
            .await?;
    }
    Ok(transaction.commit().await?)
}

/// Creates the schema, unless the administrator did.
async fn create_schema(client: &impl GenericClient) -> DbResult<()> {
    let exists = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'rye')";
    if !is_true(client, exists).await? {
        client.batch_execute("CREATE SCHEMA rye").await?;
    }
    let version = "CREATE TABLE rye.version (version bigint NOT NULL);
                   INSERT INTO rye.version VALUES (0);";
    Ok(client.batch_execute(version).await?)
}

async fn is_true(client: &impl GenericClient, condition: &str) -> DbResult<bool> {
    Ok(client.query_one(condition, &[]).await?.try_get(0)?)
}

/// The version of the tables; 0 if there are none.
async fn version(client: &impl GenericClient) -> DbResult<usize> {
    // Reads the catalogue itself: a function such as `to_regclass` may use a cached answer from before
    // the lock.
    let exists = "SELECT EXISTS (SELECT FROM pg_catalog.pg_tables
                  WHERE schemaname = 'rye' AND tablename = 'version')";
    if !is_true(client, exists).await? {
        return Ok(0);
    }
    let row = client
        .query_one("SELECT version FROM rye.version", &[])
        .await?;
    let version: i64 = row.try_get(0)?;
    usize::try_from(version)
        .map_err(|_| DbError::Unreadable(format!("the tables have the version {version}")))
}
