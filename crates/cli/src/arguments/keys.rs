//! The grammar of the verbs about trust: keys, receipts, and answers that are known already.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{HistoryArgs, words};

/// Keep the keys that results and bundles are signed with, and those of others that you trust.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true, after_long_help = KEYS_EXAMPLES)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    pub(crate) verb: KeysVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysVerb {
    /// Make a new Ed25519 key, readable by you alone, and print its public half.
    #[command(after_long_help = "Example:\n  cofferdam keys generate work")]
    Generate {
        /// What to call it.
        name: String,
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// List the keys: yours, and those of others.
    #[command(
        after_long_help = "Examples:\n  cofferdam keys list\n  cofferdam keys list --json | jq -r .keys[].name"
    )]
    List {
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// Print the public half of a key.
    #[command(
        after_long_help = "Examples:\n  cofferdam keys show work\n  cofferdam keys show work --pem"
    )]
    Show {
        /// What it is called.
        name: String,
        /// As PEM, for other programs.
        #[arg(long, conflicts_with = "json")]
        pem: bool,
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// Take a key from a file: a public one, to trust its owner, or a secret one (PEM), to sign with it.
    #[command(after_long_help = "Example:\n  cofferdam keys import alice alice.pub")]
    Import {
        /// What to call it.
        name: String,
        /// The file, readable by you alone if the key is a secret one.
        file: PathBuf,
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// Print the public half of a key as PEM; with --secret, write the whole key to a new file.
    #[command(
        after_long_help = "Examples:\n  cofferdam keys export work > work.pub\n  cofferdam keys export work --secret -o work.pem"
    )]
    Export {
        /// What it is called.
        name: String,
        /// Where it goes; nothing that is there is overwritten [default: standard output].
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// The secret half, for another machine of yours. Never printed: it needs --output.
        #[arg(long, requires = "output")]
        secret: bool,
    },
    /// Remove a key. What it has signed stays signed.
    #[command(after_long_help = "Example:\n  cofferdam keys remove alice")]
    Remove {
        /// What it is called.
        name: String,
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
}

/// Make or check a receipt: one signed line of less than 1 KB that says what a payload was answered with.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true, after_long_help = RECEIPT_EXAMPLES)]
pub(crate) struct ReceiptArgs {
    #[command(subcommand)]
    pub(crate) verb: ReceiptVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReceiptVerb {
    /// Print the receipt of a signed envelope, or sign one.
    #[command(
        after_long_help = "Example:\n  cofferdam receipt make payload.json envelope.json --sign work > receipt.txt"
    )]
    Make {
        /// The sealed payload, or `-` for standard input.
        payload: PathBuf,
        /// The envelope that answers it, or `-` for standard input.
        envelope: PathBuf,
        #[arg(help = words::SIGN, long, value_name = "KEY")]
        sign: Option<PathBuf>,
    },
    /// Check a receipt: its signature, who signed, and whether it is about this payload and this envelope. Exit code 0 when all fits, 1 when something does not.
    #[command(
        after_long_help = "Example:\n  cofferdam receipt check - --payload payload.json --key alice < receipt.txt"
    )]
    Check {
        /// The line itself, or `-` for standard input.
        receipt: String,
        /// It must be about this payload.
        #[arg(help_heading = "What it is about", long, value_name = "FILE")]
        payload: Option<PathBuf>,
        /// It must be about this envelope.
        #[arg(
            help_heading = "What it is about",
            long,
            value_name = "FILE",
            requires = "payload"
        )]
        envelope: Option<PathBuf>,
        #[command(flatten)]
        trust: TrustArgs,
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
}

/// Whose signatures count.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TrustArgs {
    /// It must be signed by this key: a name that `cofferdam keys list` shows, a public key, or a file with one. Any of several.
    #[arg(long, value_name = "KEY", help_heading = "Signatures")]
    pub(crate) key: Vec<String>,
    #[arg(help = words::TRUSTED, long, value_name = "FILE", help_heading = "Signatures")]
    pub(crate) trusted: Option<PathBuf>,
    /// It must be signed by a key that `cofferdam keys list` shows.
    #[arg(long, help_heading = "Signatures")]
    pub(crate) require_signature: bool,
}

/// What is done with answers that are known already.
#[derive(Debug, Clone, PartialEq, Default, Args)]
pub(crate) struct CacheArgs {
    /// Neither give a known answer nor keep this one.
    #[arg(long, help_heading = "Known answers")]
    pub(crate) no_cache: bool,
    /// Give and keep also answers of runs that a limit ended.
    #[arg(long, help_heading = "Known answers")]
    pub(crate) cache_limits: bool,
}

impl CacheArgs {
    /// Whoever wants nothing of a run to be kept means its answer too.
    pub(crate) fn beside(&self, history: &HistoryArgs) -> Self {
        Self {
            no_cache: self.no_cache || history.no_history,
            ..self.clone()
        }
    }
}

/// Look at the answers that are kept of pure runs, to be given again.
#[derive(Debug, Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_long_help = "Examples:\n  cofferdam run --pure -- python3 -c 'print(6 * 7)'\n  cofferdam results list\n  cofferdam results clear"
)]
pub(crate) struct ResultsArgs {
    #[command(subcommand)]
    pub(crate) verb: ResultsVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ResultsVerb {
    /// List them, last used first.
    #[command(after_long_help = "Example:\n  cofferdam results list")]
    List {
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// How many there are, how much they take, and how much they may.
    #[command(after_long_help = "Example:\n  cofferdam results stats --json")]
    Stats {
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// Remove all of them.
    #[command(after_long_help = "Example:\n  cofferdam results clear")]
    Clear {
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
}

const KEYS_EXAMPLES: &str = "\
Examples:
  cofferdam keys generate work
  cofferdam execute payload.json --sign work > envelope.json
  cofferdam keys export work > work.pub          # for others
  cofferdam keys import alice alice.pub          # trust alice
  cofferdam verify payload.json envelope.json --key alice";

const RECEIPT_EXAMPLES: &str = "\
Examples:
  cofferdam receipt make payload.json envelope.json --sign work > receipt.txt
  cofferdam receipt check - --payload payload.json --key alice < receipt.txt";
