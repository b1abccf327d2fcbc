//! Time that goes backwards. Waits are stored as moments, and a clock that is set back would make them long; so the outbox remembers the latest moment that it saw, and when now is before
//! that, everything it remembers moves back by as much. A clock that jumps ahead only makes things due, and gives nothing up by itself.

use rusqlite::Connection;

use super::schema::Fault;

/// Smaller steps are those of a clock that is being kept right, or no steps at all: who asks says what time it is and then waits for the database, while others who came later are
/// served.
const TOLERANCE_MS: i64 = 60_000;

/// Within a transaction that writes.
pub(super) fn tick(connection: &Connection, now: i64) -> Result<(), Fault> {
    let seen = latest(connection)?;
    if now + TOLERANCE_MS < seen {
        turn_back(connection, seen - now)?;
    }
    if now > seen || now + TOLERANCE_MS < seen {
        connection
            .prepare_cached("UPDATE totals SET clock = ?1")?
            .execute([now])?;
    }
    Ok(())
}

/// Whether the next look must write although nothing may be due.
pub(super) fn went_back(connection: &Connection, now: i64) -> Result<bool, Fault> {
    Ok(now + TOLERANCE_MS < latest(connection)?)
}

fn latest(connection: &Connection) -> Result<i64, Fault> {
    let mut statement = connection.prepare_cached("SELECT clock FROM totals")?;
    Ok(statement.query_row([], |row| row.get(0))?)
}

fn turn_back(connection: &Connection, by: i64) -> Result<(), Fault> {
    let messages = "UPDATE messages SET created = created - ?1, due = due - ?1, expires = expires - ?1, ended = ended - ?1";
    connection.execute(messages, [by])?;
    let peers = "UPDATE peers SET not_before = max(not_before - ?1, 0)";
    connection.execute(peers, [by])?;
    Ok(())
}
