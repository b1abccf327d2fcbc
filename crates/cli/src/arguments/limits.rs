//! The limits on the command line, the same for every verb that runs something.

use std::time::Duration;

use clap::Args;
use cofferdam_contract::io_rates::IoRates;
use cofferdam_contract::units::{Bytes, Cap, CpuShare};

use crate::config::spelling;

/// The limits, as flags. Each accepts `unlimited`.
#[derive(Debug, PartialEq, Args, Default)]
pub(crate) struct LimitArgs {
    /// Wall-clock time: `500ms`, `30s`, `5m` [default: 5m].
    #[arg(long, value_name = "TIME", help_heading = "Limits", value_parser = spelling::duration)]
    pub(crate) timeout: Option<Cap<Duration>>,
    /// CPU time of the whole process tree [default: 60s].
    #[arg(long, value_name = "TIME", help_heading = "Limits", value_parser = spelling::duration)]
    pub(crate) cpu_time: Option<Cap<Duration>>,
    /// Memory of the whole process tree, scratch files included; swap is off [default: 512m].
    #[arg(long, value_name = "SIZE", help_heading = "Limits", value_parser = spelling::bytes)]
    pub(crate) memory: Option<Cap<Bytes>>,
    /// Processes and threads alive at once [default: 100].
    #[arg(long, value_name = "N", help_heading = "Limits", value_parser = spelling::count)]
    pub(crate) pids: Option<Cap<u64>>,
    /// Scratch space, and what may be written to a writable workspace [default: 1g].
    #[arg(long, value_name = "SIZE", help_heading = "Limits", value_parser = spelling::bytes)]
    pub(crate) disk: Option<Cap<Bytes>>,
    /// Standard output and error together [default: 64m].
    #[arg(long, value_name = "SIZE", help_heading = "Limits", value_parser = spelling::bytes)]
    pub(crate) output_limit: Option<Cap<Bytes>>,
    /// Open files of each process [default: 1024].
    #[arg(long, value_name = "N", help_heading = "Limits", value_parser = spelling::count)]
    pub(crate) open_files: Option<Cap<u64>>,
    /// Share of the machine's CPUs, such as `0.5` or `2`; as many are visible inside [default: all].
    #[arg(long, value_name = "N", help_heading = "Limits", value_parser = spelling::cpus)]
    pub(crate) cpus: Option<Cap<CpuShare>>,
    /// Bytes read from disks in a second, such as `10m`; of the disks that hold the workspace and what is mounted [default: unlimited].
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub(crate) io_read_bps: Option<Bytes>,
    /// Bytes written to disks in a second. With control groups of version 1 only what is written past the page cache is held, and the record says `cgroup1-direct`.
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub(crate) io_write_bps: Option<Bytes>,
    /// Reads from disks in a second.
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) io_read_iops: Option<u64>,
    /// Writes to disks in a second.
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) io_write_iops: Option<u64>,
}

impl LimitArgs {
    /// The rates that were given, and the first flag that gave one.
    pub(crate) fn disk_io(&self) -> Option<(&'static str, IoRates)> {
        let rates = IoRates {
            read_bps: self.io_read_bps.map(Bytes::get),
            write_bps: self.io_write_bps.map(Bytes::get),
            read_iops: self.io_read_iops,
            write_iops: self.io_write_iops,
        };
        let first = [
            ("--io-read-bps", rates.read_bps),
            ("--io-write-bps", rates.write_bps),
            ("--io-read-iops", rates.read_iops),
            ("--io-write-iops", rates.write_iops),
        ];
        let first = first.into_iter().find(|(_, rate)| rate.is_some());
        first.map(|(name, _)| (name, rates))
    }
}
