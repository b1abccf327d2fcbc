//! The grammar of the verbs about bonds on a chain.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use cofferdam_chain::{Address, B256, U256};
use cofferdam_contract::units::parse_duration;

use super::words;
use crate::execute;

/// Bonds on an EVM chain: the contract that holds them, and what was decided about workers.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true, after_long_help = EXAMPLES)]
pub(crate) struct ChainArgs {
    /// A node, by JSON-RPC over HTTP. Without it, the chain that lives in the data directory.
    #[arg(
        help_heading = "Chain",
        long,
        value_name = "URL",
        env = "COFFERDAM_CHAIN_RPC",
        hide_env_values = true,
        global = true
    )]
    pub(crate) rpc: Option<String>,
    #[arg(
        help_heading = "Chain",
        help = words::CONTRACT,
        long,
        value_name = "ADDRESS",
        env = "COFFERDAM_CHAIN_CONTRACT", hide_env_values = true,
        global = true
    )]
    pub(crate) contract: Option<Address>,
    /// A file with the key that signs, readable by you alone. The key itself may also stand in COFFERDAM_CHAIN_KEY; it is never an argument. On the chain of the data directory its owner signs where nobody is named.
    #[arg(
        help_heading = "Chain",
        long,
        value_name = "FILE",
        env = "COFFERDAM_CHAIN_KEY_FILE",
        hide_env_values = true,
        global = true
    )]
    pub(crate) key_file: Option<PathBuf>,
    #[arg(help_heading = "Chain", help = words::MAX_FEE, long, value_name = "AMOUNT", value_parser = fee, global = true)]
    pub(crate) max_fee: Option<u128>,
    #[arg(long, help = words::JSON, help_heading = "Output", global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) verb: ChainVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ChainVerb {
    /// Make a key in a new file and print its account.
    #[command(after_long_help = "Example:\n  cofferdam chain key owner.key")]
    Key {
        /// The file to write; it must not exist.
        file: PathBuf,
    },
    /// Put the contract on the chain. Whoever signs owns it.
    #[command(
        after_long_help = "Example:\n  cofferdam chain deploy --key-file owner.key --rpc http://127.0.0.1:8545"
    )]
    Deploy {
        /// Who gets the protocol's part of what is slashed [default: the owner].
        #[arg(help_heading = "Terms", long, value_name = "ADDRESS")]
        treasury: Option<Address>,
        /// The protocol's part of what is slashed; the rest is for those who found out.
        #[arg(help_heading = "Terms", long, value_name = "RATE", default_value = "50%", value_parser = share)]
        protocol_share: u16,
        /// How long a withdrawal must be announced before; longer than any job takes.
        #[arg(help_heading = "Terms", long, value_name = "TIME", default_value = "7d", value_parser = delay)]
        withdrawal_delay: u64,
        /// Who may settle from the beginning. Can be given more than once.
        #[arg(help_heading = "Terms", long, value_name = "ADDRESS")]
        settler: Vec<Address>,
    },
    /// Serve the chain of the data directory by JSON-RPC on this machine: to workers with a data directory of their own, and to other tools. It begins where there is none.
    #[command(
        after_long_help = "Examples:\n  cofferdam chain node\n  cofferdam chain node --listen 127.0.0.1:0 --json"
    )]
    Node {
        /// Where to listen, on this machine only; port 0 takes a free one and says which.
        #[arg(
            help_heading = "Chain",
            long,
            value_name = "ADDRESS:PORT",
            default_value = "127.0.0.1:8545"
        )]
        listen: SocketAddr,
    },
    /// Give money to an account.
    #[command(
        after_long_help = "Example:\n  cofferdam chain give 0x90F79bf6EB2c4f870365E785982E1f101E93b906 1ether"
    )]
    Give {
        /// Who gets it.
        account: Address,
        /// `0.5ether`, `20gwei`, `100wei`.
        #[arg(value_parser = amount)]
        amount: U256,
    },
    /// The contract and what waits to be settled, or how one account stands.
    #[command(
        after_long_help = "Examples:\n  cofferdam chain status\n  cofferdam chain status 0x90F79bf6EB2c4f870365E785982E1f101E93b906 --json"
    )]
    Status {
        /// Only this one; the contract without it.
        account: Option<Address>,
    },
    /// Add to the bond of the account that signs.
    #[command(
        after_long_help = "Example:\n  cofferdam chain stake 0.5ether --worker w1 --key-file w1.key"
    )]
    Stake {
        /// `0.5ether`, `20gwei`, `100wei`.
        #[arg(value_parser = amount)]
        amount: U256,
        /// The worker that it stands for: the name of one whose key is in this data directory, or its public key.
        #[arg(help_heading = "Bond", long, value_name = "NAME|KEY")]
        worker: String,
    },
    /// Say that so much is to leave; `--take` takes it when the delay has passed.
    #[command(
        after_long_help = "Examples:\n  cofferdam chain withdraw 0.1ether\n  cofferdam chain withdraw --take"
    )]
    Withdraw {
        /// `0.5ether`, `20gwei`, `100wei`.
        #[arg(value_parser = small_amount, required_unless_present_any = ["take", "cancel"], conflicts_with_all = ["take", "cancel"])]
        amount: Option<u128>,
        /// Take what was announced.
        #[arg(help_heading = "Bond", long, conflicts_with = "cancel")]
        take: bool,
        /// Leave it where it is after all.
        #[arg(help_heading = "Bond", long)]
        cancel: bool,
    },
    /// Take the share that the account that signs has in what was slashed of others.
    #[command(after_long_help = "Example:\n  cofferdam chain claim --key-file w1.key")]
    Claim,
    /// Let a job use the network; a settler may.
    #[command(after_long_help = "Example:\n  cofferdam chain permit payload.json --for 2h")]
    Permit {
        #[command(flatten)]
        job: JobArg,
        #[arg(help_heading = "Job", help = words::FOR, long = "for", value_name = "TIME", default_value = "1d", value_parser = delay)]
        time: u64,
        /// Take it back.
        #[arg(help_heading = "Job", long)]
        revoke: bool,
    },
    /// Bind a part of a worker's bond to a job; a settler may. When its time is over, everybody may release it.
    #[command(
        after_long_help = "Example:\n  cofferdam chain lock payload.json 0x90F79bf6EB2c4f870365E785982E1f101E93b906 0.1ether"
    )]
    Lock {
        #[command(flatten)]
        job: JobArg,
        /// The account whose bond it is.
        worker: Address,
        /// `0.5ether`, `20gwei`, `100wei`.
        #[arg(value_parser = small_amount)]
        amount: u128,
        #[arg(help_heading = "Job", help = words::FOR, long = "for", value_name = "TIME", default_value = "7d", value_parser = delay)]
        time: u64,
    },
    /// End a lock; a settler may at any time, everybody else when it has run out.
    #[command(
        after_long_help = "Example:\n  cofferdam chain release payload.json 0x90F79bf6EB2c4f870365E785982E1f101E93b906"
    )]
    Release {
        #[command(flatten)]
        job: JobArg,
        /// The account whose bond it is.
        worker: Address,
    },
    /// Say who may settle; the owner may.
    #[command(
        after_long_help = "Examples:\n  cofferdam chain settler 0x70997970C51812dc3A010C7d01b50e0d17dc79C8\n  cofferdam chain settler 0x70997970C51812dc3A010C7d01b50e0d17dc79C8 --remove"
    )]
    Settler {
        /// The account.
        account: Address,
        /// It may not any more.
        #[arg(help_heading = "Settlers", long)]
        remove: bool,
    },
    /// Let nothing move until `resume`; the owner may.
    #[command(after_long_help = "Example:\n  cofferdam chain pause --key-file owner.key")]
    Pause,
    /// Let things move again; the owner may.
    #[command(after_long_help = "Example:\n  cofferdam chain resume --key-file owner.key")]
    Resume,
    /// What was decided and how far it is, newest first.
    #[command(
        after_long_help = "Examples:\n  cofferdam chain settlements\n  cofferdam chain settlements --limit 10 --json"
    )]
    Settlements {
        #[arg(help_heading = "Settlements", help = words::LIMIT, long, value_name = "N", default_value_t = 50)]
        limit: u32,
        /// Try one again that was given up.
        #[arg(help_heading = "Settlements", long, value_name = "ID")]
        retry: Option<B256>,
    },
    /// Bring what was decided onto the chain, until all of it is certain. A node that is away is waited for.
    #[command(
        after_long_help = "Example:\n  cofferdam chain settle --confirmations 12 --within 10m"
    )]
    Settle {
        #[command(flatten)]
        how: SettleArgs,
        /// Give up waiting after this time; what is open stays so.
        #[arg(help_heading = "Settlements", long, value_name = "TIME", value_parser = time)]
        within: Option<Duration>,
    },
}

/// A job, by the digest of its payload.
#[derive(Debug, Clone, Args)]
pub(crate) struct JobArg {
    /// A file with the sealed payload, or its digest: `sha256:…`.
    #[arg(value_name = "PAYLOAD")]
    pub(crate) job: String,
}

/// How settlements are made.
#[derive(Debug, Clone, Args)]
pub(crate) struct SettleArgs {
    /// How many blocks make a settlement certain, its own included.
    #[arg(help_heading = "Chain", long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) confirmations: u64,
    /// After how long without a block more is offered for a transaction.
    #[arg(help_heading = "Chain", long, value_name = "TIME", default_value = "60s", value_parser = time)]
    pub(crate) bump_after: Duration,
}

/// How a process of a fleet with public enforcement gets to the chain.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ToChainArgs {
    /// On a fleet with public enforcement: a node, by JSON-RPC over HTTP. Without it, the chain of the data directory, if that is the fleet's.
    #[arg(
        long,
        value_name = "URL",
        help_heading = "Chain",
        env = "COFFERDAM_CHAIN_RPC",
        hide_env_values = true
    )]
    pub(crate) chain_rpc: Option<String>,
}

/// What a worker has at stake.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct BondArgs {
    #[command(flatten)]
    pub(crate) chain: ToChainArgs,
    /// On a fleet with public enforcement: the account whose bond stands for this worker.
    #[arg(long, value_name = "ADDRESS", help_heading = "Chain")]
    pub(crate) bond: Option<Address>,
}

/// What a coordinator settles with.
#[derive(Debug, Clone, Args)]
pub(crate) struct SettlingArgs {
    #[command(flatten)]
    pub(crate) chain: ToChainArgs,
    /// A file with the key that settles; or the key in COFFERDAM_CHAIN_KEY. On the chain of the data directory its owner settles where nobody is named.
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Chain",
        env = "COFFERDAM_CHAIN_KEY_FILE",
        hide_env_values = true
    )]
    pub(crate) chain_key_file: Option<PathBuf>,
    #[arg(help = words::MAX_FEE, long, value_name = "AMOUNT", help_heading = "Chain", value_parser = fee)]
    pub(crate) chain_max_fee: Option<u128>,
    #[command(flatten)]
    pub(crate) how: SettleArgs,
}

/// What happens in a fleet, played with servers of its own: the seven things that one wants to have seen before one trusts it.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  cofferdam demo\n  cofferdam demo --enforcement public\n  cofferdam demo --json\n\nNeeds nats-server (Debian: nats-server). Everything lives in a temporary directory and ends with it.\n\nExit code: 0 when everything went as it should, 1 when something did not, 125 when it could not begin."
)]
pub(crate) struct DemoArgs {
    /// Who enforces the rules: `local` by quarantine, `public` also by bonds on a chain.
    #[arg(long, value_enum, default_value = "local")]
    pub(crate) enforcement: EnforcementArg,
    #[arg(help = words::HEARTBEAT_TIMEOUT, long, value_name = "TIME", default_value = "4s", value_parser = time)]
    pub(crate) heartbeat_timeout: Duration,
    /// The program to use as nats-server.
    #[arg(long, value_name = "FILE", default_value = "nats-server")]
    pub(crate) nats_server: PathBuf,
    /// With public enforcement: have this program be the chain, which is anvil (npm: @foundry-rs/anvil), and not our own.
    #[arg(long, value_name = "FILE")]
    pub(crate) anvil: Option<PathBuf>,
    #[arg(long, help = words::JSON, help_heading = "Output")]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum EnforcementArg {
    /// Quarantine.
    Local,
    /// Quarantine, and bonds on a chain.
    Public,
}

/// What holds for a fleet whose rules are enforced on a chain.
#[derive(Debug, Clone, Args)]
pub(crate) struct PublicArgs {
    /// Who enforces the rules: `local` by quarantine, `public` also by bonds on a chain [default: as it is; `local` for a new fleet].
    #[arg(help_heading = "Chain", long, value_enum)]
    pub(crate) enforcement: Option<EnforcementArg>,
    #[arg(help_heading = "Chain", help = words::CONTRACT, long, value_name = "ADDRESS", requires = "chain_id", requires = "enforcement")]
    pub(crate) contract: Option<Address>,
    /// With `--enforcement public`: the number of the chain that the contract is on.
    #[arg(help_heading = "Chain", long, value_name = "N", requires = "contract")]
    pub(crate) chain_id: Option<u64>,
    /// With `--enforcement public`: answers of workers with less than this do not count.
    #[arg(help_heading = "Chain", long, value_name = "AMOUNT", default_value = "0.1ether", value_parser = small_amount, requires = "enforcement")]
    pub(crate) minimum_bond: u128,
    /// With `--enforcement public`: so much of a bond is locked for each job that a worker takes, and that is what the job can cost; `0wei` locks nothing [default: what --minimum-bond says].
    #[arg(help_heading = "Chain", long, value_name = "AMOUNT", value_parser = small_amount, requires = "enforcement")]
    pub(crate) job_bond: Option<u128>,
}

fn time(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|bad| bad.to_string())
}

fn delay(text: &str) -> Result<u64, String> {
    let time = match text.strip_suffix('d').map(str::parse::<u64>) {
        Some(Ok(days)) => Duration::from_secs(days.saturating_mul(24 * 3600)),
        Some(Err(_)) | None => time(text)?,
    };
    let is_fit = time <= Duration::from_secs(60 * 24 * 3600);
    is_fit
        .then_some(time.as_secs())
        .ok_or_else(|| "write at most 60d".to_owned())
}

fn share(text: &str) -> Result<u16, String> {
    let wrong = || "write a part of the whole, such as 50% or 12.5%".to_owned();
    let number = text.strip_suffix('%').ok_or_else(wrong)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if part.len() > 2 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let hundredths = format!("{part:0<2}").parse::<u16>().map_err(|_| wrong())?;
    let whole: u16 = whole.parse().map_err(|_| wrong())?;
    let points = whole
        .checked_mul(100)
        .and_then(|sum| sum.checked_add(hundredths));
    points.filter(|points| *points <= 10_000).ok_or_else(wrong)
}

/// A number with its unit, exactly: nobody guesses what `1` means.
pub(crate) fn amount(text: &str) -> Result<U256, String> {
    let wrong = || "write an amount with its unit: 0.5ether, 20gwei, 100wei".to_owned();
    let units = [("ether", 18), ("eth", 18), ("gwei", 9), ("wei", 0)];
    let found = units
        .iter()
        .find_map(|(unit, digits)| Some((text.strip_suffix(unit)?.trim(), *digits)));
    let (number, digits) = found.ok_or_else(wrong)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || part.len() > digits || !are_digits(whole) || !are_digits(part) {
        return Err(wrong());
    }
    let padded = format!("{whole}{part:0<digits$}");
    U256::from_str_radix(&padded, 10).map_err(|_| wrong())
}

fn small_amount(text: &str) -> Result<u128, String> {
    u128::try_from(amount(text)?).map_err(|_| "that is more than a bond can be".to_owned())
}

fn fee(text: &str) -> Result<u128, String> {
    u128::try_from(amount(text)?).map_err(|_| "that is more than a fee can be".to_owned())
}

/// Whether a text may be the name of a worker.
pub(crate) fn is_worker_name(text: &str) -> bool {
    execute::worker_id(text).is_ok()
}

const EXAMPLES: &str = "\
Examples:
  cofferdam chain deploy
  cofferdam chain node --listen 127.0.0.1:8545
  cofferdam chain key w1.key
  cofferdam chain give 0x90F79bf6EB2c4f870365E785982E1f101E93b906 2ether
  cofferdam chain stake 1ether --worker w1 --key-file w1.key
  cofferdam chain deploy --key-file owner.key --rpc http://127.0.0.1:8545 --settler 0x70997970C51812dc3A010C7d01b50e0d17dc79C8
  cofferdam chain stake 0.5ether --worker w1 --key-file w1.key --contract 0x5FbDB2315678afecb367f032d93F642f64180aa3
  cofferdam chain status 0x90F79bf6EB2c4f870365E785982E1f101E93b906 --json
  cofferdam chain withdraw 0.1ether ; cofferdam chain withdraw --take
  cofferdam chain permit payload.json --for 2h
  cofferdam chain settlements
  cofferdam chain settle --confirmations 12

docs/chain.md tells who may do what. Exit code: 0 when it is done, 125 when it could not be.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_has_a_unit_and_is_exact() {
        for (text, wei) in [
            ("0.5ether", 500_000_000_000_000_000_u128),
            ("1eth", 1_000_000_000_000_000_000),
            ("20gwei", 20_000_000_000),
            ("1.000000001gwei", 1_000_000_001),
            ("100wei", 100),
            ("0 wei", 0),
        ] {
            assert_eq!(amount(text), Ok(U256::from(wei)), "{text}");
        }
        for bad in [
            "",
            "1",
            "ether",
            "1.5wei",
            "-1ether",
            "1e3wei",
            ".5ether",
            "0x1wei",
            "1.0000000000000000001ether",
        ] {
            assert!(amount(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shares_and_delays_are_bounded() {
        assert_eq!(
            (share("50%"), share("12.5%"), share("100%"), share("0.01%")),
            (Ok(5_000), Ok(1_250), Ok(10_000), Ok(1))
        );
        for bad in ["50", "101%", "100.01%", "1.234%", "x%", "-1%", "%"] {
            assert!(share(bad).is_err(), "{bad}");
        }
        assert_eq!((delay("7d"), delay("90s")), (Ok(604_800), Ok(90)));
        assert!(delay("61d").is_err() && delay("soon").is_err());
    }
}
