//! Every promise of isolation, against programs that try to break it: as root with control groups, as root without, and as an ordinary user.

mod calls;
mod files;
mod identity;
mod network;
mod processes;
mod workspace;
