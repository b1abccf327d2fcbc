//! What people and scripts get wrong: one clear error with a stable code, the documented exit code, and nothing left behind.

mod exit_codes;
mod limits;
mod places;
mod programs;
