//! Listening on a given port.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};

use crate::{RigError, wait};

/// How long a port that was just left may take until it can be bound again, in milliseconds.
const LISTEN_MS_MAX: u64 = 10_000;

/// Connections that may wait to be taken.
const BACKLOG: u32 = 4096;

/// Binds a port; one that was just left is free again in a moment.
pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, RigError> {
    let bound = Duration::from_millis(LISTEN_MS_MAX);
    let what = format!("port {} to be free", address.port());
    wait::until_some(&what, bound, || {
        let socket = TcpSocket::new_v4().ok()?;
        socket.set_reuseaddr(true).ok()?;
        socket.bind(address).ok()?;
        socket.listen(BACKLOG).ok()
    })
    .await
}
