//! The state of a chain that lives in a data directory: accounts, their code and storage, and its blocks, all as bytes. A block and everything that it changes are written together, in one
//! transaction that is on the disk before anybody is told of it; any number of processes may use the file, and one at a time adds to it. Knows nothing of what a transaction means.

use std::time::Duration;

use rusqlite::{
    Connection, OptionalExtension as _, Row, TransactionBehavior, named_params, params,
};

use crate::data_dir::DataDir;
use crate::error::StoreError;
use crate::sqlite::{Durable, Format};

/// For whoever finds it damaged.
const ADVICE: &str = "restore a copy of it, or move it away and begin a new chain";
const BUSY: Duration = Duration::from_secs(20);
const FORMAT: Format<'_> = Format {
    // In the header of the file: `cofe`.
    application: 0x636f_6665,
    steps: &["
CREATE TABLE facts (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE accounts (
    address BLOB PRIMARY KEY,
    nonce INTEGER NOT NULL,
    balance BLOB NOT NULL,
    code BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE codes (
    hash BLOB PRIMARY KEY,
    code BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE storage (
    address BLOB NOT NULL,
    slot BLOB NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (address, slot)
) STRICT, WITHOUT ROWID;
CREATE TABLE blocks (
    number INTEGER PRIMARY KEY,
    seconds INTEGER NOT NULL,
    hash BLOB NOT NULL,
    parent BLOB NOT NULL,
    name BLOB,
    raw BLOB,
    receipt TEXT
) STRICT;
CREATE UNIQUE INDEX blocks_by_transaction ON blocks (name) WHERE name IS NOT NULL;
"],
};

/// The name of an account.
pub type Name = [u8; 20];
/// A number of 256 bits, or a hash.
pub type Word = [u8; 32];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountState {
    pub nonce: u64,
    pub balance: Word,
    /// The hash of its code.
    pub code: Word,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub number: u64,
    /// Since 1970.
    pub seconds: u64,
    pub hash: Word,
    pub parent: Word,
    /// The first block has none.
    pub included: Option<Included>,
}

/// The transaction of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Included {
    pub hash: Word,
    pub raw: Vec<u8>,
    /// What came of it, as text.
    pub receipt: String,
}

#[derive(Debug)]
pub struct ChainState {
    file: Durable,
}

/// The chain at one moment: whatever others add meanwhile is not seen.
#[derive(Debug)]
pub struct Moment<'a> {
    file: &'a Durable,
    connection: &'a Connection,
}

impl ChainState {
    /// Makes the file where there is none.
    pub fn open(dir: &DataDir) -> Result<Self, StoreError> {
        let file = Durable::open(dir, dir.chain(), &FORMAT, (BUSY, ADVICE))?;
        Ok(Self { file })
    }

    /// Looks, and changes nothing.
    pub fn look<T, E: From<StoreError>>(
        &self,
        look: impl FnOnce(&Moment<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let connection = self.file.connection();
        let transaction = connection.unchecked_transaction();
        let transaction = transaction.map_err(|error| self.file.sql(error))?;
        look(&Moment {
            file: &self.file,
            connection: &transaction,
        })
    }

    /// Changes it, alone. When this has returned well, neither a crash nor a power cut loses it; an error leaves everything as it was.
    pub fn change<T, E: From<StoreError>>(
        &self,
        change: impl FnOnce(&Moment<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut connection = self.file.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = transaction.map_err(|error| self.file.sql(error))?;
        let done = change(&Moment {
            file: &self.file,
            connection: &transaction,
        })?;
        transaction.commit().map_err(|error| self.file.sql(error))?;
        Ok(done)
    }
}

impl Moment<'_> {
    pub fn fact(&self, name: &str) -> Result<Option<String>, StoreError> {
        let sql = "SELECT value FROM facts WHERE name = ?1";
        self.one(sql, params![name], |row| row.get(0))
    }

    pub fn set_fact(&self, name: &str, value: &str) -> Result<(), StoreError> {
        let sql = "INSERT OR REPLACE INTO facts (name, value) VALUES (?1, ?2)";
        self.write(sql, params![name, value])
    }

    pub fn account(&self, name: &Name) -> Result<Option<AccountState>, StoreError> {
        let sql = "SELECT nonce, balance, code FROM accounts WHERE address = ?1";
        self.one(sql, params![name], |row| {
            Ok(AccountState {
                nonce: number(row, 0)?,
                balance: row.get(1)?,
                code: row.get(2)?,
            })
        })
    }

    pub fn set_account(&self, name: &Name, state: &AccountState) -> Result<(), StoreError> {
        let sql = "INSERT OR REPLACE INTO accounts (address, nonce, balance, code) VALUES (?1, ?2, ?3, ?4)";
        let nonce = self.small(state.nonce)?;
        self.write(sql, params![name, nonce, state.balance, state.code])
    }

    /// Removes it with its storage.
    pub fn remove_account(&self, name: &Name) -> Result<(), StoreError> {
        self.write("DELETE FROM accounts WHERE address = ?1", params![name])?;
        self.clear_storage(name)
    }

    pub fn clear_storage(&self, name: &Name) -> Result<(), StoreError> {
        self.write("DELETE FROM storage WHERE address = ?1", params![name])
    }

    pub fn code(&self, hash: &Word) -> Result<Option<Vec<u8>>, StoreError> {
        let sql = "SELECT code FROM codes WHERE hash = ?1";
        self.one(sql, params![hash], |row| row.get(0))
    }

    pub fn set_code(&self, hash: &Word, code: &[u8]) -> Result<(), StoreError> {
        let sql = "INSERT OR IGNORE INTO codes (hash, code) VALUES (?1, ?2)";
        self.write(sql, params![hash, code])
    }

    pub fn slot(&self, name: &Name, slot: &Word) -> Result<Option<Word>, StoreError> {
        let sql = "SELECT value FROM storage WHERE address = ?1 AND slot = ?2";
        self.one(sql, params![name, slot], |row| row.get(0))
    }

    /// A slot of zeros is as good as none.
    pub fn set_slot(&self, name: &Name, slot: &Word, value: &Word) -> Result<(), StoreError> {
        if *value == [0; 32] {
            let sql = "DELETE FROM storage WHERE address = ?1 AND slot = ?2";
            return self.write(sql, params![name, slot]);
        }
        let sql = "INSERT OR REPLACE INTO storage (address, slot, value) VALUES (?1, ?2, ?3)";
        self.write(sql, params![name, slot, value])
    }

    /// The last block.
    pub fn head(&self) -> Result<Option<Block>, StoreError> {
        let sql = format!("{BLOCK} ORDER BY number DESC LIMIT 1");
        self.one(&sql, [], block)
    }

    pub fn block(&self, number: u64) -> Result<Option<Block>, StoreError> {
        let Ok(number) = i64::try_from(number) else {
            return Ok(None);
        };
        let sql = format!("{BLOCK} WHERE number = ?1");
        self.one(&sql, params![number], block)
    }

    /// The block that has a transaction.
    pub fn block_with(&self, transaction: &Word) -> Result<Option<Block>, StoreError> {
        let sql = format!("{BLOCK} WHERE name = ?1");
        self.one(&sql, params![transaction], block)
    }

    /// Adds a block. One of this number is never there already.
    pub fn append(&self, block: &Block) -> Result<(), StoreError> {
        let sql = "INSERT INTO blocks (number, seconds, hash, parent, name, raw, receipt) VALUES (:number, :seconds, :hash, :parent, :name, :raw, :receipt)";
        let included = block.included.as_ref();
        self.write(
            sql,
            named_params! {
                ":number": self.small(block.number)?,
                ":seconds": self.small(block.seconds)?,
                ":hash": block.hash,
                ":parent": block.parent,
                ":name": included.map(|one| one.hash),
                ":raw": included.map(|one| one.raw.as_slice()),
                ":receipt": included.map(|one| one.receipt.as_str()),
            },
        )
    }

    fn one<T>(
        &self,
        sql: &str,
        values: impl rusqlite::Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        let statement = self.connection.prepare_cached(sql);
        let found = statement.and_then(|mut statement| statement.query_row(values, read));
        found.optional().map_err(|error| self.file.sql(error))
    }

    fn write(&self, sql: &str, values: impl rusqlite::Params) -> Result<(), StoreError> {
        let statement = self.connection.prepare_cached(sql);
        let written = statement.and_then(|mut statement| statement.execute(values));
        written.map(drop).map_err(|error| self.file.sql(error))
    }

    fn small(&self, number: u64) -> Result<i64, StoreError> {
        i64::try_from(number).map_err(|_| StoreError::Damaged {
            path: self.file.path().to_owned(),
            why: format!("{number} is larger than any number in it may be"),
        })
    }
}

const BLOCK: &str = "SELECT number, seconds, hash, parent, name, raw, receipt FROM blocks";

fn block(row: &Row<'_>) -> rusqlite::Result<Block> {
    let name: Option<Word> = row.get(4)?;
    let included = match name {
        Some(hash) => Some(Included {
            hash,
            raw: row.get(5)?,
            receipt: row.get(6)?,
        }),
        None => None,
    };
    Ok(Block {
        number: number(row, 0)?,
        seconds: number(row, 1)?,
        hash: row.get(2)?,
        parent: row.get(3)?,
        included,
    })
}

fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, value))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn next(head: &Block, name: u8) -> Block {
        Block {
            number: head.number + 1,
            seconds: 1_800_000_000,
            hash: [name; 32],
            parent: head.hash,
            included: Some(Included {
                hash: [name; 32],
                raw: vec![name; 3],
                receipt: format!("{{\"name\": {name}}}"),
            }),
        }
    }

    fn first() -> Block {
        Block {
            number: 0,
            seconds: 1,
            hash: [7; 32],
            parent: [0; 32],
            included: None,
        }
    }

    #[test]
    fn what_was_written_is_read_back_by_whoever_opens_it_and_what_failed_left_nothing() {
        let place = tempfile::tempdir().unwrap();
        let dir = DataDir::at(place.path().join("data"));
        let chain = ChainState::open(&dir).unwrap();
        let account = AccountState {
            nonce: 3,
            balance: [1; 32],
            code: [2; 32],
        };
        let second = next(&first(), 9);
        let written = chain.change(|moment| {
            moment.append(&first())?;
            moment.set_account(&[5; 20], &account)?;
            moment.set_slot(&[5; 20], &[1; 32], &[8; 32])?;
            moment.set_code(&[2; 32], b"code")?;
            moment.set_fact("chain", "1")?;
            moment.append(&second)
        });
        assert!(matches!(written, Ok::<(), StoreError>(())), "{written:?}");
        let failed: Result<(), StoreError> = chain.change(|moment| {
            moment.remove_account(&[5; 20])?;
            moment.append(&next(&second, 10))?;
            moment.append(&next(&second, 11))
        });
        assert!(failed.is_err(), "two blocks of one number");
        let mode = std::fs::metadata(dir.chain()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(chain);
        let again = ChainState::open(&dir).unwrap();
        let seen: Result<(), StoreError> = again.look(|moment| {
            assert_eq!(moment.head()?.as_ref(), Some(&second));
            assert_eq!(moment.block(0)?, Some(first()));
            assert_eq!(moment.block(2)?, None);
            assert_eq!(moment.block(u64::MAX)?, None);
            assert_eq!(moment.block_with(&[9; 32])?.as_ref(), Some(&second));
            assert_eq!(moment.account(&[5; 20])?, Some(account));
            assert_eq!(moment.account(&[6; 20])?, None);
            assert_eq!(moment.slot(&[5; 20], &[1; 32])?, Some([8; 32]));
            assert_eq!(moment.code(&[2; 32])?, Some(b"code".to_vec()));
            assert_eq!(moment.fact("chain")?.as_deref(), Some("1"));
            Ok(())
        });
        seen.unwrap();
        let zero: Result<Option<Word>, StoreError> = again.change(|moment| {
            moment.set_slot(&[5; 20], &[1; 32], &[0; 32])?;
            moment.slot(&[5; 20], &[1; 32])
        });
        assert_eq!(zero.unwrap(), None, "zero is as good as nothing");
    }

    #[test]
    fn a_file_that_is_no_chain_is_left_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        let dir = DataDir::at(place.path());
        std::fs::write(
            dir.chain(),
            "something else, and long enough to be looked at",
        )
        .unwrap();
        let refused = ChainState::open(&dir).unwrap_err().to_string();
        assert!(refused.contains("is damaged"), "{refused}");
        let kept = std::fs::read_to_string(dir.chain()).unwrap();
        assert!(kept.starts_with("something else"));
    }
}
