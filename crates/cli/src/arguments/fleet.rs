//! The grammar of the verbs about many machines: the fleet, its workers and the ledger.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use cofferdam_contract::request::Gpus;
use cofferdam_contract::units::parse_duration;

use super::HistoryArgs;
use super::chain::{BondArgs, PublicArgs, SettlingArgs};
use super::network::NetworkArgs;
use super::words;
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
        env = "COFFERDAM_NATS_CREDS",
        hide_env_values = true
    )]
    pub(crate) nats_creds: Option<PathBuf>,
    /// A file with the seed of an nkey.
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "NATS",
        global = true,
        conflicts_with = "nats_creds",
        env = "COFFERDAM_NATS_NKEY",
        hide_env_values = true
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
        help_heading = "NATS",
        long,
        value_name = "URL",
        env = "COFFERDAM_NATS",
        hide_env_values = true,
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
    after_long_help = "Examples:\n  cofferdam worker --nats nats://127.0.0.1:4222 --name w1\n  cofferdam worker --nats tls://nats.example.org --nats-creds w2.creds --name w2 --slots 4 --sign work\n\nWithout --sign, a key of its own is made at the first start and kept with the other keys: worker-NAME.\n\nExit code: 0 when it was asked to end and had finished, 125 when it could not begin."
)]
pub(crate) struct WorkerArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// What it is called; the name belongs to its key from then on.
    #[arg(help_heading = "Worker", long, value_name = "NAME", value_parser = execute::worker_id)]
    pub(crate) name: String,
    #[arg(help_heading = "Worker", help = words::SIGN, long, alias = "key", value_name = "KEY")]
    pub(crate) sign: Option<PathBuf>,
    /// How many payloads run at a time [default: one for each CPU].
    #[arg(help_heading = "Worker", long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) slots: Option<u32>,
    /// What a payload that asks for the network gets; without it, such a payload is left to others.
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// A payload that asks for more is left to others.
    #[arg(help = words::GPU, long, value_name = "N|all", help_heading = "Enforcement", value_parser = Gpus::read)]
    pub(crate) gpu: Option<Gpus>,
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
    #[command(
        after_long_help = "Examples:\n  cofferdam fleet init --nats nats://127.0.0.1:4222\n  cofferdam fleet init --heartbeat-timeout 10s --json"
    )]
    Init {
        /// How long after a start nobody asks for signs of life [default: 60s].
        #[arg(help_heading = "Fleet", long, value_name = "TIME", value_parser = time)]
        grace: Option<Duration>,
        /// How long a worker may be silent before another gets its work [default: 30s].
        #[arg(help_heading = "Fleet", long, value_name = "TIME", value_parser = time)]
        heartbeat_timeout: Option<Duration>,
        /// How often work is started before it is laid aside [default: 2].
        #[arg(help_heading = "Fleet", long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
        max_starts: Option<u32>,
        /// What offences lead to, as JSON; what it does not name keeps its default.
        #[arg(help_heading = "Fleet", long, value_name = "FILE")]
        rules: Option<PathBuf>,
        #[command(flatten)]
        public: PublicArgs,
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// Queues, workers and jobs in numbers.
    #[command(after_long_help = "Example:\n  cofferdam fleet status")]
    Status {
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// The workers, what they can do and how they are.
    #[command(after_long_help = "Example:\n  cofferdam fleet workers --json")]
    Workers {
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// Have a worker take nothing new.
    #[command(
        after_long_help = "Examples:\n  cofferdam fleet drain w1\n  cofferdam fleet drain w1 --undo"
    )]
    Drain {
        /// The worker.
        name: String,
        /// Have it take work again.
        #[arg(help_heading = "Worker", long)]
        undo: bool,
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// The jobs, or everything about one.
    #[command(
        after_long_help = "Examples:\n  cofferdam fleet jobs\n  cofferdam fleet jobs PAYLOAD-1790000000000-abcdefghi"
    )]
    Jobs {
        /// Only this one, with its history.
        job: Option<String>,
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// Have a job that has ended done again.
    #[command(
        after_long_help = "Example:\n  cofferdam fleet requeue PAYLOAD-1790000000000-abcdefghi"
    )]
    Requeue {
        /// Its id, as `fleet jobs` shows it.
        job: String,
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// Have a job that has not ended end now, without an answer.
    #[command(
        after_long_help = "Example:\n  cofferdam fleet cancel PAYLOAD-1790000000000-abcdefghi"
    )]
    Cancel {
        /// Its id, as `fleet jobs` shows it.
        job: String,
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// Remove everything about a job that has ended, but for what the ledger holds.
    #[command(
        after_long_help = "Example:\n  cofferdam fleet forget PAYLOAD-1790000000000-abcdefghi"
    )]
    Forget {
        /// Its id, as `fleet jobs` shows it.
        job: String,
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// Check, compare and decide for all jobs, for ever: what `submit --wait` does for its own. Any number may run.
    #[command(
        after_long_help = "Example:\n  cofferdam fleet coordinate --trusted workers.txt\n\nWithout --trusted, a worker is known by the key under which it was first seen."
    )]
    Coordinate {
        #[arg(help_heading = "Fleet", help = words::TRUSTED, long, value_name = "FILE")]
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
    #[command(after_long_help = "Example:\n  cofferdam ledger show --nats nats://127.0.0.1:4222")]
    Show {
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// What was held for and against one.
    #[command(after_long_help = "Example:\n  cofferdam ledger history w1")]
    History {
        /// The worker.
        worker: String,
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// End a quarantine. What led to it stays in the history.
    #[command(
        after_long_help = "Example:\n  cofferdam ledger lift w1 --reason 'its clock was wrong'"
    )]
    Lift {
        /// The worker.
        worker: String,
        /// Why, for the history.
        #[arg(
            help_heading = "Ledger",
            long,
            value_name = "TEXT",
            default_value = "lifted by hand"
        )]
        reason: String,
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
}

/// A payload for a fleet.
#[derive(Debug, Clone, Args)]
pub(crate) struct ToFleetArgs {
    #[arg(help = words::FLEET, long, value_name = "URL", help_heading = "Fleet", conflicts_with_all = ["project", "server"])]
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
    #[arg(help = words::TRUSTED, long, value_name = "FILE", help_heading = "Fleet", requires = "fleet")]
    pub(crate) trusted: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) way: NatsArgs,
}

/// The fleet that a daemon is the front door of.
#[derive(Debug, Clone, Args)]
pub(crate) struct FrontDoorArgs {
    #[arg(help = words::FLEET, long, value_name = "URL", help_heading = "Fleet")]
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
