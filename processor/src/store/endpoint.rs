//! Endpoints of webhooks that said that they are gone: nothing is sent there until a person says
//! otherwise.

use sqlx::{PgConnection, query_file, query_file_scalar};

use super::columns::clean;
use super::error::Result;

/// Characters of a url, as the column allows; requests have no longer ones.
const URL_CHARS_MAX: usize = 8192;

/// Disables endpoints of one effect; gives those that were not disabled yet.
pub async fn disable(
    tx: &mut PgConnection,
    connector_id: i32,
    effect: &str,
    urls: &[Box<str>],
) -> Result<Vec<String>> {
    let urls: Vec<String> = urls.iter().map(|url| clean(url, URL_CHARS_MAX)).collect();
    let rows = query_file_scalar!(
        "src/store/sql/endpoint_disable.sql",
        connector_id,
        effect,
        &urls as &[String],
    );
    Ok(rows.fetch_all(tx).await?)
}

/// Effect and url of every disabled endpoint of a connector.
pub async fn gone(
    connection: &mut PgConnection,
    connector_id: i32,
) -> Result<Vec<(String, String)>> {
    let rows = query_file!("src/store/sql/endpoint_gone.sql", connector_id);
    Ok(rows.fetch_all(connection).await?.into_iter().map(|row| (row.name, row.url)).collect())
}
