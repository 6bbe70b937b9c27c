//! Disabled endpoints of webhooks, and a person's word that they are there again.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, query_file_as};

use super::audit::{Change, record};
use crate::store::error::Result;

/// Which endpoints are asked for; `None` takes all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub connector: Option<String>,
    pub url: Option<String>,
}

/// An endpoint to which nothing is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointRow {
    pub connector: String,
    pub effect: String,
    pub url: String,
    pub disabled_at: DateTime<Utc>,
}

pub async fn list(connection: &mut PgConnection, filter: &Filter) -> Result<Vec<EndpointRow>> {
    let rows = query_file_as!(
        EndpointRow,
        "src/store/sql/admin_endpoints.sql",
        filter.connector,
        filter.url,
    );
    Ok(rows.fetch_all(connection).await?)
}

/// Enables endpoints, with an audit row each; gives those that were (or would be) enabled.
///
/// # Errors
/// As every query; then nothing was changed.
pub async fn enable(
    tx: &mut PgConnection,
    filter: &Filter,
    change: &Change,
) -> Result<Vec<EndpointRow>> {
    if change.dry_run {
        return list(tx, filter).await;
    }
    let rows = query_file_as!(
        EndpointRow,
        "src/store/sql/admin_endpoint_enable.sql",
        filter.connector,
        filter.url,
    );
    let rows = rows.fetch_all(&mut *tx).await?;
    for row in &rows {
        let detail = serde_json::json!({
            "connector": row.connector,
            "effect": row.effect,
            "url": row.url,
            "disabled_at": row.disabled_at.to_rfc3339(),
        });
        record(tx, None, "webhooks enable", change, &detail.to_string()).await?;
    }
    Ok(rows)
}
