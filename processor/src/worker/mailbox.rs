//! The way to a pipeline.
//!
//! What comes when the pipeline has ended is not lost: the claims in it go back, since nobody will
//! send them.

use std::time::Duration;

use tokio::sync::mpsc;

use super::Message;
use super::call::{Ended, How};
use super::outcomes::Outcomes;

/// Sends messages to the pipeline of one connector; clones share it.
#[derive(Clone, Debug)]
pub(super) struct Mailbox {
    pub(super) pipeline: mpsc::UnboundedSender<Message>,
    pub(super) ended: Outcomes,
}

impl Mailbox {
    pub(super) fn send(&self, message: Message) {
        if let Err(late) = self.pipeline.send(message) {
            for unsent in unsent(late.0) {
                self.ended.send(unsent);
            }
        }
    }
}

/// The claims of a message that nobody takes up, as they go back.
pub(super) fn unsent(message: Message) -> Vec<Ended> {
    let claimed = match message {
        Message::Claimed(claimed) => claimed,
        Message::Written { report, .. } => report.claimed,
        Message::Started(_)
        | Message::LetGo(_)
        | Message::Topics(_)
        | Message::Epochs(..)
        | Message::Kept(_) => Vec::new(),
    };
    let unsent = |held| Ended { held, how: How::Unsent, took: Duration::ZERO };
    claimed.into_iter().map(unsent).collect()
}

#[cfg(test)]
mod tests {
    use oncely_core::key::Key;

    use super::*;
    use crate::store::claim::{Claim, Recorded};
    use crate::worker::claims::Held;
    use crate::worker::report::Report;

    fn held(n: u8) -> Held {
        let key = Key::from_bytes([n; 16]);
        let claim = Claim {
            key,
            fence: n.into(),
            event: key,
            lane: key,
            version: 0,
            tenant: "t".into(),
            business_id: "b".into(),
            request: None,
            marks: None,
            after: Vec::new(),
            history: Recorded::default(),
        };
        Held::new(uuid::Uuid::nil(), 0, claim)
    }

    #[test]
    fn claims_that_come_after_the_end_go_back() {
        let (pipeline, mut messages) = mpsc::unbounded_channel();
        let (ended, mut settlers) = Outcomes::to(1);
        let mut outcomes = settlers.remove(0);
        let mailbox = Mailbox { pipeline, ended };
        mailbox.send(Message::Claimed(vec![held(1)]));
        messages.close();
        mailbox.send(Message::Claimed(vec![held(2), held(3)]));
        let report = Report { done: Vec::new(), claimed: vec![held(4)], ..Report::default() };
        mailbox.send(Message::Written { writer: 0, report });
        mailbox.send(Message::LetGo(vec![Key::from_bytes([5; 16])]));
        let mut back = Vec::new();
        while let Ok(Ended { held, how, .. }) = outcomes.try_recv() {
            assert!(matches!(how, How::Unsent));
            back.push(held.claim.fence);
        }
        assert_eq!(back, [2, 3, 4]);
        // What was sent in time lies there for whoever clears the box.
        assert!(matches!(messages.try_recv(), Ok(Message::Claimed(_))));
    }
}
