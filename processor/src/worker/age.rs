//! How old events say that they are, by the database's clock.

use std::time::Duration;

use oncely_core::connector::Connector;
use oncely_core::decide::Input;

use crate::clock;
use crate::store::{PgConnection, StoreError, batch};

/// The events, with their age where one may be older than ids are remembered. This process's clock only says
/// when to ask, half of that early; the database's says how old they are.
pub(super) async fn aged<'a>(
    tx: &mut PgConnection,
    connector: &Connector,
    inputs: &[(usize, Input<'a>)],
) -> Result<Vec<Input<'a>>, StoreError> {
    let mut events: Vec<Input<'a>> = inputs.iter().map(|(_, input)| *input).collect();
    let timestamp = |input: &Input<'_>| {
        input.scope.meta.and_then(|meta| meta.timestamp_ms).filter(|timestamp| *timestamp > 0)
    };
    let suspect = Duration::from_millis(connector.retention.dedupe_ms / 2);
    let oldest = events.iter().filter_map(timestamp).min();
    if oldest.is_some_and(|at| clock::age_of(at) > suspect) {
        let now_ms = batch::now_ms(tx).await?;
        for input in &mut events {
            let age = timestamp(input).map(|at| now_ms.saturating_sub(at));
            input.age_ms = age.and_then(|age| u64::try_from(age).ok());
        }
    }
    Ok(events)
}
