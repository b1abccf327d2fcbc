//! Every limit, against programs that try to pass it: as root with control groups, as root without, and as an ordinary user.

mod cpu_time;
mod cpus_and_files;
mod disk;
mod memory;
mod processes;
mod wall_time;
