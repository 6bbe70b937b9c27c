//! What the batch transaction loads and writes.
//!
//! Lock order, everywhere: entities, then effects, then inbox, ledger, payload, parked, repeat; keys
//! sorted inside each. A key that is taken is a lost race, and a value, not an error.

mod load;
mod records;
mod undone;
mod write;

pub(super) use load::load_open_named;
pub use load::{
    Stood, effect_statuses, load_effects, load_entities, load_inbox, load_ledger, load_open,
    lock_entities, now_ms, stood,
};
pub use records::{ParkedRecord, PayloadRecord, write_parked, write_payloads};
pub use undone::doubt_undone;
pub use write::{
    Chosen, Fenced, Written, write_compensations, write_effects, write_entities, write_inbox,
    write_lines, write_repeats,
};
