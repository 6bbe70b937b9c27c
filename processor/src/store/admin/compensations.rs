//! Which effects undo which, for people.

use oncely_core::key::Key;
use sqlx::{PgConnection, query_file};

use crate::store::columns::{key, uuids};
use crate::store::error::Result;

/// An effect and the one that it undoes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    pub effect: Side,
    pub undoes: Key,
    /// `None`: it was never owed, or is forgotten.
    pub undone: Option<Side>,
}

/// One of the two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    pub key: Key,
    pub name: String,
    pub business_id: String,
    pub status: String,
}

/// Pairs in which these effects are one of the two.
pub async fn of(connection: &mut PgConnection, effects: &[Key]) -> Result<Vec<Pair>> {
    let rows = query_file!("src/store/sql/admin_compensations.sql", &uuids(effects));
    let rows = rows.fetch_all(connection).await?.into_iter();
    Ok(rows
        .map(|row| Pair {
            effect: Side {
                key: key(row.effect),
                name: row.name,
                business_id: row.business_id,
                status: row.status,
            },
            undoes: key(row.undoes),
            undone: row.undone_name.map(|name| Side {
                key: key(row.undoes),
                name,
                business_id: row.undone_business_id.unwrap_or_default(),
                status: row.undone_status.unwrap_or_default(),
            }),
        })
        .collect())
}
