//! Whether a provider is there: a circuit breaker for one effect.
//!
//! Reads: how calls ended, and the time, as milliseconds of any clock that only rises. Gives: how many calls
//! may be in flight. An outage of a provider is told from effects that fail one by one by failures without any
//! answer between them; then one call at a time finds out whether it is over, and the others keep their
//! attempts. Afterwards calls grow from one, one more for each answer, so that a provider that has just come
//! back is not met by everything that waited ("slow start", RFC 5681 section 3.1).

use super::retry::Retry;

/// Failures in a row, without an answer between them, that are an outage.
pub const OUTAGE_AFTER: u32 = 20;
/// The first wait before a call tries whether it is over; doubled after each that fails.
const PAUSE_MS: u64 = 500;
/// The longest wait between two such calls.
pub const PAUSE_MS_MAX: u64 = 30_000;

/// What a call said of its provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// It answered what was asked, whatever that was.
    Answered,
    /// It is there, and asks for time.
    Throttled,
    /// Nothing that was an answer: not reached, broken off, out of time, or an error of the server's own.
    Failed,
    /// It refuses our credentials or our configuration: that is mended by a person, not by time.
    Refused,
}

/// What the circuit did on a sign, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// Calls were going through until now.
    Off(Cause),
    /// The provider answers again.
    On(Cause),
}

/// Why calls do not go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Outage,
    Refusal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Calls go through.
    Closed { failures: u32 },
    /// One call at a time, from `next_ms` on.
    Open { cause: Cause, next_ms: u64, tries: u32 },
    /// Calls go through, so many at a time.
    Growing { calls: u32 },
}

/// The circuit of one effect.
#[derive(Clone, Copy, Debug)]
pub struct Circuit {
    state: State,
    /// Without it, only refusals open the circuit: the calls of one effect go to endpoints of many owners.
    tells_outages: bool,
    refusal_pause_ms: u64,
}

impl Circuit {
    /// `refusal_pause_ms`: how long after a refusal the next call tries.
    pub const fn new(tells_outages: bool, refusal_pause_ms: u64) -> Self {
        Self { state: State::Closed { failures: 0 }, tells_outages, refusal_pause_ms }
    }

    /// Calls that may be in flight now, of at most `limit`.
    pub fn calls(&self, limit: u32, now_ms: u64) -> u32 {
        match self.state {
            State::Closed { .. } => limit,
            State::Open { next_ms, .. } => u32::from(now_ms >= next_ms).min(limit),
            State::Growing { calls } => calls.min(limit),
        }
    }

    /// Whether calls do not go through, and why.
    pub const fn open(&self) -> Option<Cause> {
        match self.state {
            State::Open { cause, .. } => Some(cause),
            State::Closed { .. } | State::Growing { .. } => None,
        }
    }

    /// Takes in how a call ended. `draw` is uniform.
    pub fn ended(&mut self, sign: Sign, limit: u32, now_ms: u64, draw: u32) -> Option<Turned> {
        if let (
            State::Open { cause: Cause::Refusal, next_ms, .. },
            Sign::Failed | Sign::Throttled,
        ) = (&mut self.state, sign)
        {
            // Nothing was said of credentials. The call that tried was not answered, and the next one waits as well.
            if now_ms >= *next_ms {
                *next_ms = now_ms.saturating_add(self.refusal_pause_ms);
            }
            return None;
        }
        match sign {
            Sign::Answered => self.answered(limit),
            Sign::Throttled => self.throttled(),
            Sign::Failed if self.tells_outages => self.failed(now_ms, draw),
            Sign::Failed => None,
            Sign::Refused => {
                let next_ms = now_ms.saturating_add(self.refusal_pause_ms);
                let was = self.open();
                self.state = State::Open { cause: Cause::Refusal, next_ms, tries: 0 };
                (was != Some(Cause::Refusal)).then_some(Turned::Off(Cause::Refusal))
            }
        }
    }

    fn answered(&mut self, limit: u32) -> Option<Turned> {
        match self.state {
            State::Closed { failures: 0 } => None,
            State::Closed { .. } => {
                self.state = State::Closed { failures: 0 };
                None
            }
            State::Open { cause, .. } => {
                self.state = State::Growing { calls: 2 };
                Some(Turned::On(cause))
            }
            State::Growing { calls } => {
                let calls = calls.saturating_add(1);
                let grown = calls >= limit;
                self.state =
                    if grown { State::Closed { failures: 0 } } else { State::Growing { calls } };
                None
            }
        }
    }

    const fn throttled(&mut self) -> Option<Turned> {
        match self.state {
            State::Open { cause: Cause::Outage, .. } => {
                self.state = State::Growing { calls: 1 };
                Some(Turned::On(Cause::Outage))
            }
            State::Closed { .. } => {
                self.state = State::Closed { failures: 0 };
                None
            }
            // Nobody asked for more calls.
            State::Open { cause: Cause::Refusal, .. } | State::Growing { .. } => None,
        }
    }

    fn failed(&mut self, now_ms: u64, draw: u32) -> Option<Turned> {
        let opened = |tries: u32| State::Open {
            cause: Cause::Outage,
            next_ms: now_ms.saturating_add(pause_ms(tries, draw)),
            tries,
        };
        match self.state {
            State::Closed { failures } if failures.saturating_add(1) < OUTAGE_AFTER => {
                self.state = State::Closed { failures: failures.saturating_add(1) };
                None
            }
            State::Closed { .. } => {
                self.state = opened(0);
                Some(Turned::Off(Cause::Outage))
            }
            // Not back for long: what came of one call was the exception.
            State::Growing { .. } => {
                self.state = opened(1);
                Some(Turned::Off(Cause::Outage))
            }
            // What was in flight when it opened says nothing new; the call that tried does.
            State::Open { cause: Cause::Outage, next_ms, tries } if now_ms >= next_ms => {
                self.state = opened(tries.saturating_add(1));
                None
            }
            State::Open { .. } => None,
        }
    }
}

/// Full jitter, and never less than half: who tries is one of many processes that saw the same outage.
fn pause_ms(tries: u32, draw: u32) -> u64 {
    let ceiling = Retry::ceiling(PAUSE_MS, PAUSE_MS_MAX, tries.saturating_add(1));
    let half = ceiling / 2;
    half.saturating_add(half.saturating_mul(u64::from(draw)) >> 32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: u32 = 50;

    fn outage(circuit: &mut Circuit, now_ms: u64) -> Option<Turned> {
        let mut turned = None;
        for _ in 0..OUTAGE_AFTER {
            turned = circuit.ended(Sign::Failed, LIMIT, now_ms, 0);
        }
        turned
    }

    #[test]
    fn failures_in_a_row_are_an_outage_and_failures_among_answers_are_not() {
        let mut circuit = Circuit::new(true, 30_000);
        for _ in 0..1_000 {
            for _ in 1..OUTAGE_AFTER {
                assert_eq!(circuit.ended(Sign::Failed, LIMIT, 0, 0), None);
            }
            assert_eq!(circuit.ended(Sign::Answered, LIMIT, 0, 0), None);
            assert_eq!(circuit.calls(LIMIT, 0), LIMIT);
        }
        assert_eq!(outage(&mut circuit, 0), Some(Turned::Off(Cause::Outage)));
        assert_eq!(circuit.calls(LIMIT, 0), 0);
        assert_eq!(circuit.calls(LIMIT, PAUSE_MS), 1);
    }

    #[test]
    fn one_call_tries_and_the_waits_grow_to_their_bound() {
        let mut circuit = Circuit::new(true, 30_000);
        outage(&mut circuit, 0);
        let (mut now, mut last) = (0, 0);
        for _ in 0..20 {
            let State::Open { next_ms, .. } = circuit.state else { panic!("it is open") };
            let wait = next_ms - now;
            assert!(wait >= last && wait <= PAUSE_MS_MAX, "{wait}");
            // Stragglers of the time before change nothing.
            assert_eq!(circuit.ended(Sign::Failed, LIMIT, next_ms - 1, u32::MAX), None);
            assert_eq!(circuit.calls(LIMIT, next_ms - 1), 0);
            assert_eq!(circuit.calls(LIMIT, next_ms), 1);
            circuit.ended(Sign::Failed, LIMIT, next_ms, 0);
            (now, last) = (next_ms, wait);
        }
        assert!(last >= PAUSE_MS_MAX / 2);
    }

    #[test]
    fn a_provider_that_is_back_is_met_by_few_first() {
        let mut circuit = Circuit::new(true, 30_000);
        outage(&mut circuit, 0);
        assert_eq!(circuit.ended(Sign::Answered, LIMIT, 1_000, 0), Some(Turned::On(Cause::Outage)));
        let mut calls = Vec::new();
        while circuit.calls(LIMIT, 1_000) < LIMIT {
            calls.push(circuit.calls(LIMIT, 1_000));
            circuit.ended(Sign::Answered, LIMIT, 1_000, 0);
        }
        assert_eq!(calls, (2..LIMIT).collect::<Vec<_>>());
        // It goes away again while they grow: at once it is one call at a time.
        outage(&mut circuit, 2_000);
        circuit.ended(Sign::Answered, LIMIT, 9_000, 0);
        let turned = circuit.ended(Sign::Failed, LIMIT, 9_000, 0);
        assert_eq!(turned, Some(Turned::Off(Cause::Outage)));
    }

    #[test]
    fn a_refusal_waits_for_a_person_and_an_answer_ends_it() {
        for tells_outages in [false, true] {
            let mut circuit = Circuit::new(tells_outages, 30_000);
            let refused = circuit.ended(Sign::Refused, LIMIT, 0, 0);
            assert_eq!(refused, Some(Turned::Off(Cause::Refusal)));
            assert_eq!(circuit.ended(Sign::Refused, LIMIT, 10, 0), None, "said once");
            assert_eq!(circuit.calls(LIMIT, 30_009), 0);
            assert_eq!(circuit.calls(LIMIT, 30_010), 1);
            for (sign, at) in [(Sign::Failed, 30_010), (Sign::Throttled, 60_010)] {
                circuit.ended(sign, LIMIT, at, 0);
                assert_eq!(circuit.open(), Some(Cause::Refusal), "it says no word of credentials");
                assert_eq!(circuit.calls(LIMIT, at + 29_999), 0, "the next one waits as well");
                assert_eq!(circuit.calls(LIMIT, at + 30_000), 1);
                // Whatever was in flight before puts off nothing.
                circuit.ended(sign, LIMIT, at + 29_999, 0);
                assert_eq!(circuit.calls(LIMIT, at + 30_000), 1);
            }
            let back = circuit.ended(Sign::Answered, LIMIT, 30_010, 0);
            assert_eq!(back, Some(Turned::On(Cause::Refusal)));
        }
    }

    #[test]
    fn endpoints_of_many_owners_make_no_outage() {
        let mut circuit = Circuit::new(false, 30_000);
        for _ in 0..100 {
            assert_eq!(outage(&mut circuit, 0), None);
        }
        assert_eq!(circuit.calls(LIMIT, 0), LIMIT);
    }

    proptest! {
        /// Whatever is seen: never more than the limit, and there is always a time at which a call may try.
        #[test]
        fn it_never_shuts_for_good(
            signs in prop::collection::vec((0_usize..4, 0_u64..5_000, any::<u32>()), 0..200),
            limit in 1_u32..100,
        ) {
            let mut circuit = Circuit::new(true, 30_000);
            let mut now_ms = 0;
            for (sign, later, draw) in signs {
                now_ms += later;
                let signs = [Sign::Answered, Sign::Throttled, Sign::Failed, Sign::Refused];
                let sign = signs[sign];
                circuit.ended(sign, limit, now_ms, draw);
                prop_assert!(circuit.calls(limit, now_ms) <= limit);
                prop_assert!(circuit.calls(limit, now_ms + PAUSE_MS_MAX) >= 1);
            }
        }
    }
}
