//! A PostgreSQL that fails over: an asynchronous standby which may lack what was committed last.

use oncely_rig::postgres::Cluster;
use oncely_rig::proxy::{Direction, Mode, Proxy};

use super::{BOUND, ClusterOf, World};

/// A standby of the story's own PostgreSQL. It receives through a proxy.
#[derive(Debug)]
pub struct Standby {
    cluster: Cluster,
    between: Proxy,
}

impl Standby {
    /// From now on it receives nothing: what is committed is lost when it takes over.
    pub fn falls_behind(&self) {
        self.between.set(Mode::Stall(Direction::ToClient));
    }
}

impl World {
    /// Starts a standby of the story's own PostgreSQL, and waits until it has everything.
    pub async fn standby(&self) -> Standby {
        let between = Proxy::start(self.postgres().address()).await.unwrap();
        let cluster = self.postgres().start_standby(Some(between.port()), &[]).await.unwrap();
        self.caught_up().await;
        Standby { cluster, between }
    }

    /// Waits until the standby has everything that is committed by now.
    pub async fn caught_up(&self) {
        self.postgres().wait_standby(BOUND).await.unwrap();
    }

    /// Kills the primary and lets the standby take over, where workers look for it from then on.
    pub async fn fail_over(&mut self, mut standby: Standby) {
        let port = self.postgres().port();
        self.own_postgres().kill().await.unwrap();
        standby.between.cut_all();
        standby.cluster.promote().await.unwrap();
        standby.cluster.move_to(port).await.unwrap();
        self.wires().clear();
        self.cluster = Some(ClusterOf::Own(Box::new(standby.cluster)));
    }

    /// The worker that began this partition last, by the logs.
    pub fn holder(&self, partition: i32) -> Option<usize> {
        let start = format!("partition starts partition={}-{partition} ", self.topic());
        let begun = |number: usize| {
            let log = self.workers[number].log();
            let line = log.lines().rfind(|line| line.contains(&start))?;
            Some((line.to_owned(), number))
        };
        (0..self.workers.len()).filter_map(begun).max().map(|(_, number)| number)
    }

    /// Waits until two workers have a partition each.
    pub async fn apart(&self) {
        let apart = async || {
            let holders = [0, 1].map(|partition| self.holder(partition));
            holders.iter().all(Option::is_some) && holders[0] != holders[1]
        };
        self.until("a partition for each", apart).await;
    }
}
