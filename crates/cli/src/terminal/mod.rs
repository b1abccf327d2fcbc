//! What a person sees: widths, colours, tables, times in words, a pager. Knows nothing of runs.

pub(crate) mod amount;
pub(crate) mod bar;
pub(crate) mod colour;
pub(crate) mod control;
pub(crate) mod counts_line;
pub(crate) mod foot;
pub(crate) mod output;
pub(crate) mod pager;
pub(crate) mod progress;
pub(crate) mod size;
pub(crate) mod table;
pub(crate) mod text;
pub(crate) mod time;
pub(crate) mod waiting;
