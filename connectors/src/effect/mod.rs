//! Effects: performing them, and what an answer means.
//!
//! - [`performer`]: the one door; an attempt goes in as a rendered request, and comes out classified
//! - [`http`], [`email`]: one module per kind; each has one pure function that gives the class
//! - [`llm`]: what every answer of a model is kept of, and what it used
//! - [`webhook`]: how calls are signed whose receiver must know them from forged ones
//! - [`egress`]: where calls may go when events name the host
//! - [`record`]: what is kept of an answer

pub mod egress;
pub mod email;
mod gate;
pub mod http;
pub mod llm;
pub mod performer;
pub mod record;
mod text;
pub mod webhook;
