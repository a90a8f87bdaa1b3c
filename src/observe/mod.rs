//! What the outside sees of confpin: metrics, readiness, log lines; and the signals by which it is told to end.

pub mod health;
pub mod labels;
pub mod logging;
pub mod metrics;
pub mod shutdown;
