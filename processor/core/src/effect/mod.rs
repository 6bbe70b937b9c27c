//! Effects: what is owed, what was seen, and what follows from it.

pub mod circuit;
pub mod lookup;
pub mod marks;
pub mod next;
pub mod order;
pub mod outcome;
pub mod request;
pub mod retry;
pub mod status;
