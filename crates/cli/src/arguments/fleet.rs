//! The grammar of the verbs about many machines: the fleet, its workers and the ledger.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use cofferdam_contract::units::parse_duration;

use super::HistoryArgs;
use super::chain::{BondArgs, PublicArgs, SettlingArgs};
use super::network::NetworkArgs;
use crate::execute;

/// How to get to a NATS server.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct NatsArgs {
    /// A file of NATS credentials, as `nsc` writes it.
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "NATS",
        global = true,
        env = "COFFERDAM_NATS_CREDS"
    )]
    pub(crate) nats_creds: Option<PathBuf>,
    /// A file with the seed of an nkey.
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "NATS",
        global = true,
        conflicts_with = "nats_creds",
        env = "COFFERDAM_NATS_NKEY"
    )]
    pub(crate) nats_nkey: Option<PathBuf>,
    /// Use TLS, and believe the authorities of this file too.
    #[arg(long, value_name = "FILE", help_heading = "NATS", global = true)]
    pub(crate) nats_ca: Option<PathBuf>,
    /// A certificate of your own to show.
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "NATS",
        global = true,
        requires = "nats_key"
    )]
    pub(crate) nats_cert: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "NATS",
        global = true,
        requires = "nats_cert"
    )]
    pub(crate) nats_key: Option<PathBuf>,
}

/// The server, for verbs that need one.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerArgs {
    /// The NATS server; a user and a password may stand in it.
    #[arg(
        long,
        value_name = "URL",
        env = "COFFERDAM_NATS",
        default_value = "nats://127.0.0.1:4222",
        global = true
    )]
    pub(crate) nats: String,
    #[command(flatten)]
    pub(crate) way: NatsArgs,
}

/// Take work from a fleet, run it as `execute` does, and answer with signed envelopes. SIGTERM finishes what runs and takes nothing new.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  cofferdam worker --nats nats://127.0.0.1:4222 --name w1\n  cofferdam worker --nats tls://nats.example.org --nats-creds w2.creds --name w2 --slots 4 --key work\n\nWithout --key, a key of its own is made at the first start and kept with the other keys: worker-NAME.\n\nExit code: 0 when it was asked to end and had finished, 125 when it could not begin."
)]
pub(crate) struct WorkerArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// What it is called; the name belongs to its key from then on.
    #[arg(long, value_name = "NAME", value_parser = execute::worker_id)]
    pub(crate) name: String,
    /// Sign with this key: a name that `cofferdam keys list` shows, or a key file.
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<PathBuf>,
    /// How many payloads run at a time [default: one for each CPU].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) slots: Option<u32>,
    /// What a payload that asks for the network gets; without it, such a payload is left to others.
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    #[command(flatten)]
    pub(crate) bond: BondArgs,
    #[command(flatten)]
    pub(crate) history: HistoryArgs,
}

/// Look at a fleet and steer it.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true, after_long_help = FLEET_EXAMPLES)]
pub(crate) struct FleetArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(subcommand)]
    pub(crate) verb: FleetVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FleetVerb {
    /// Make the streams of a fleet, or change what holds for it. Queues that exist keep the time after which work is given to another.
    Init {
        /// How long after a start nobody asks for signs of life [default: 60s].
        #[arg(long, value_name = "TIME", value_parser = time)]
        grace: Option<Duration>,
        /// How long a worker may be silent before another gets its work [default: 30s].
        #[arg(long, value_name = "TIME", value_parser = time)]
        heartbeat_timeout: Option<Duration>,
        /// How often work is started before it is laid aside [default: 2].
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
        max_starts: Option<u32>,
        /// What offences lead to, as JSON; what it does not name keeps its default.
        #[arg(long, value_name = "FILE")]
        rules: Option<PathBuf>,
        #[command(flatten)]
        public: PublicArgs,
        /// Print the settings as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Queues, workers and jobs in numbers.
    Status {
        /// Print as JSON.
        #[arg(long)]
        json: bool,
    },
    /// The workers, what they can do and how they are.
    Workers {
        /// Print as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Have a worker take nothing new.
    Drain {
        name: String,
        /// Have it take work again.
        #[arg(long)]
        undo: bool,
    },
    /// The jobs, or everything about one.
    Jobs {
        /// Only this one, with its history.
        job: Option<String>,
        /// Print as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Have a job that has ended done again.
    Requeue { job: String },
    /// Have a job that has not ended end now, without an answer.
    Cancel { job: String },
    /// Remove everything about a job that has ended, but for what the ledger holds.
    Forget { job: String },
    /// Check, compare and decide for all jobs, for ever: what `submit --wait` does for its own. Any number may run.
    Coordinate {
        /// Only answers of these workers count: `NAME PUBLIC_KEY` on each line.
        #[arg(long, value_name = "FILE")]
        trusted: Option<PathBuf>,
        #[command(flatten)]
        settling: SettlingArgs,
    },
}

/// Who kept the rules, and who did not.
#[derive(Debug, Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_long_help = "Examples:\n  cofferdam ledger show --nats nats://127.0.0.1:4222\n  cofferdam ledger history w1\n  cofferdam ledger lift w1 --reason 'its clock was wrong'"
)]
pub(crate) struct LedgerArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(subcommand)]
    pub(crate) verb: LedgerVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LedgerVerb {
    /// How every worker stands.
    Show {
        /// Print as JSON.
        #[arg(long)]
        json: bool,
    },
    /// What was held for and against one.
    History {
        worker: String,
        /// Print as JSON.
        #[arg(long)]
        json: bool,
    },
    /// End a quarantine. What led to it stays in the history.
    Lift {
        worker: String,
        /// Why, for the history.
        #[arg(long, value_name = "TEXT", default_value = "lifted by hand")]
        reason: String,
    },
}

/// A payload for a fleet.
#[derive(Debug, Clone, Args)]
pub(crate) struct ToFleetArgs {
    /// Send a sealed payload to the fleet at this NATS server.
    #[arg(long, value_name = "URL", help_heading = "Fleet", conflicts_with_all = ["project", "server"])]
    pub(crate) fleet: Option<String>,
    /// How many workers run it; their outputs are compared, and more than half must agree.
    #[arg(long, value_name = "N", help_heading = "Fleet", default_value_t = 1, requires = "fleet", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) replicas: u32,
    /// How often one more worker is asked, to check the first: `5%` or `0.05`.
    #[arg(long, value_name = "RATE", help_heading = "Fleet", default_value = "0", requires = "fleet", value_parser = rate)]
    pub(crate) audit_rate: f64,
    /// Whose work it is; every tenant has its turn.
    #[arg(long, value_name = "NAME", help_heading = "Fleet", default_value = "default", requires = "fleet", value_parser = execute::worker_id)]
    pub(crate) tenant: String,
    /// Only answers of these workers count: `NAME PUBLIC_KEY` on each line. Without it, a worker is known by the key under which it was first seen.
    #[arg(long, value_name = "FILE", help_heading = "Fleet", requires = "fleet")]
    pub(crate) trusted: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) way: NatsArgs,
}

/// The fleet that a daemon is the front door of.
#[derive(Debug, Clone, Args)]
pub(crate) struct FrontDoorArgs {
    /// Run nothing here: put what is sent on the fleet at this NATS server, and answer with what comes back.
    #[arg(long, value_name = "URL", help_heading = "Fleet")]
    pub(crate) fleet: Option<String>,
    /// How many workers carry out each run; their outputs are compared, and more than half must agree.
    #[arg(long, value_name = "N", help_heading = "Fleet", default_value_t = 1, requires = "fleet", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) fleet_replicas: u32,
    /// How often one more worker is asked, to check the first: `5%` or `0.05`.
    #[arg(long, value_name = "RATE", help_heading = "Fleet", default_value = "0", requires = "fleet", value_parser = rate)]
    pub(crate) fleet_audit_rate: f64,
    /// Only answers of these workers count: `NAME PUBLIC_KEY` on each line. Without it, a worker is known by the key under which it was first seen.
    #[arg(long, value_name = "FILE", help_heading = "Fleet", requires = "fleet")]
    pub(crate) fleet_trusted: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) way: NatsArgs,
}

fn time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|bad| bad.to_string())?;
    let is_fit = time >= Duration::from_millis(300) && time <= Duration::from_secs(24 * 3600);
    is_fit
        .then_some(time)
        .ok_or_else(|| "write 300ms to 24h".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    let rate = number.trim().parse::<f64>().map(|number| number / unit);
    rate.ok()
        .filter(|rate| (0.0..=1.0).contains(rate))
        .ok_or_else(|| "write a part of the whole, such as 5% or 0.05".to_owned())
}

const FLEET_EXAMPLES: &str = "\
Examples:
  cofferdam fleet init --nats nats://127.0.0.1:4222
  cofferdam fleet status
  cofferdam fleet workers --json
  cofferdam fleet drain w1
  cofferdam fleet jobs PAYLOAD-1790000000000-abcdefghi
  cofferdam fleet requeue PAYLOAD-1790000000000-abcdefghi
  cofferdam fleet cancel PAYLOAD-1790000000000-abcdefghi
  cofferdam fleet forget PAYLOAD-1790000000000-abcdefghi
  cofferdam fleet coordinate --trusted workers.txt";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_part_of_the_whole() {
        assert_eq!(
            (rate("5%"), rate("0.25"), rate("100 %")),
            (Ok(0.05), Ok(0.25), Ok(1.0))
        );
        for bad in ["", "-1", "2", "101%", "many", "NaN"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
        assert!(time("200ms").is_err() && time("1s").is_ok());
    }
}
