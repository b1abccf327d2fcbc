//! Whether some output is text, and how to show it when it is not. Decides nothing about what is kept.

use std::borrow::Cow;
use std::fmt::Write as _;

/// How much is looked at: a program that writes no NUL in its first 8 KiB is taken to write text.
pub const PROBE_BYTES: usize = 8 * 1024;

/// How much of it `preview` shows.
pub const PREVIEW_BYTES: usize = 128;

const UTF8_BOM: &[u8] = &[0xef, 0xbb, 0xbf];
const UTF16_LE_BOM: &[u8] = &[0xff, 0xfe];
const UTF16_BE_BOM: &[u8] = &[0xfe, 0xff];
const UTF32_LE_BOM: &[u8] = &[0xff, 0xfe, 0, 0];

/// A NUL in the first 8 KiB, unless a byte order mark says that this is UTF-16.
pub fn is_binary(bytes: &[u8]) -> bool {
    if utf16(bytes).is_some() {
        return false;
    }
    let probe = bytes.get(..PROBE_BYTES).unwrap_or(bytes);
    memchr::memchr(0, probe).is_some()
}

/// The output as text. A byte order mark is obeyed and left out; what is not valid becomes U+FFFD.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    if let Some((order, rest)) = utf16(bytes) {
        return Cow::Owned(decode_utf16(order, rest));
    }
    String::from_utf8_lossy(bytes.strip_prefix(UTF8_BOM).unwrap_or(bytes))
}

/// `binary, 12,345 bytes` and the first 128 bytes as `hexdump -C` prints them. `total` is the size of the whole, of which `bytes` may be only the beginning.
pub fn preview(bytes: &[u8], total: u64) -> String {
    let unit = if total == 1 { "byte" } else { "bytes" };
    let mut preview = format!("binary, {} {unit}\n", with_commas(total));
    let shown = bytes.get(..PREVIEW_BYTES).unwrap_or(bytes);
    for (row, line) in shown.chunks(16).enumerate() {
        preview.push_str(&hex_line(row * 16, line));
    }
    preview
}

#[derive(Clone, Copy)]
enum ByteOrder {
    Little,
    Big,
}

fn utf16(bytes: &[u8]) -> Option<(ByteOrder, &[u8])> {
    if bytes.starts_with(UTF32_LE_BOM) {
        return None;
    }
    let little = bytes.strip_prefix(UTF16_LE_BOM);
    let big = bytes.strip_prefix(UTF16_BE_BOM);
    little
        .map(|rest| (ByteOrder::Little, rest))
        .or(big.map(|rest| (ByteOrder::Big, rest)))
}

fn decode_utf16(order: ByteOrder, bytes: &[u8]) -> String {
    let (pairs, odd) = bytes.as_chunks::<2>();
    let units = pairs.iter().map(|pair| match order {
        ByteOrder::Little => u16::from_le_bytes(*pair),
        ByteOrder::Big => u16::from_be_bytes(*pair),
    });
    let mut text: String = char::decode_utf16(units)
        .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect();
    if !odd.is_empty() {
        text.push(char::REPLACEMENT_CHARACTER);
    }
    text
}

fn hex_line(offset: usize, bytes: &[u8]) -> String {
    let mut line = format!("{offset:08x} ");
    for at in 0..16 {
        if at % 8 == 0 {
            line.push(' ');
        }
        match bytes.get(at) {
            // Writing to a String cannot fail.
            Some(byte) => _ = write!(line, "{byte:02x} "),
            None => line.push_str("   "),
        }
    }
    line.push_str(" |");
    line.extend(bytes.iter().map(|byte| match byte {
        0x20..=0x7e => char::from(*byte),
        _ => '.',
    }));
    line.push_str("|\n");
    line
}

fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nul_in_the_first_8_kib_is_binary_and_a_later_one_is_not() {
        assert!(is_binary(b"ELF\0"));
        assert!(!is_binary(b""));
        assert!(!is_binary("gr\u{fc}\u{df}e".as_bytes()));
        assert!(!is_binary(&[0xff, 0x80, 0x81]));
        let mut late = vec![b'x'; PROBE_BYTES];
        late.push(0);
        assert!(!is_binary(&late));
        late[PROBE_BYTES - 1] = 0;
        assert!(is_binary(&late));
    }

    #[test]
    fn a_byte_order_mark_is_obeyed() {
        let little = [0xff, 0xfe, b'h', 0, b'i', 0, 0x3d, 0xd8, 0x00, 0xde];
        let big = [0xfe, 0xff, 0, b'h', 0, b'i'];
        assert!(!is_binary(&little) && !is_binary(&big));
        assert_eq!(text(&little), "hi\u{1f600}");
        assert_eq!(text(&big), "hi");
        assert_eq!(text(b"\xef\xbb\xbfhi"), "hi");
        assert!(
            is_binary(b"\xff\xfe\0\0h\0\0\0"),
            "UTF-32 is not shown as text"
        );
    }

    #[test]
    fn what_is_invalid_is_replaced_and_what_is_valid_is_borrowed() {
        assert_eq!(text(b"a\xffb"), "a\u{fffd}b");
        assert_eq!(
            text(&[0xff, 0xfe, b'h', 0, 0x00, 0xd8, 7]),
            "h\u{fffd}\u{fffd}"
        );
        assert!(matches!(text(b"plain"), Cow::Borrowed("plain")));
    }

    #[test]
    fn a_preview_reads_like_hexdump() {
        let bytes: Vec<u8> = (0..20).map(|byte| byte + 0x3a).collect();
        let expected = "binary, 12,345 bytes\n\
            00000000  3a 3b 3c 3d 3e 3f 40 41  42 43 44 45 46 47 48 49  |:;<=>?@ABCDEFGHI|\n\
            00000010  4a 4b 4c 4d                                       |JKLM|\n";
        assert_eq!(preview(&bytes, 12_345), expected);
        assert_eq!(
            preview(&[0; 4096], 1_000_000).lines().count(),
            1 + PREVIEW_BYTES / 16
        );
        assert_eq!(preview(&[], 0), "binary, 0 bytes\n");
    }
}
