//! What is not text is shown as its size and a beginning of it.

use std::fmt::Write as _;

use crate::terminal::amount;

/// Text has no NUL near its beginning.
const LOOKED_AT: usize = 8 << 10;
const PREVIEW: usize = 128;
const PER_LINE: usize = 16;

pub(crate) fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().take(LOOKED_AT).any(|byte| *byte == 0)
}

/// The size, and the beginning as hexadecimal digits and letters.
pub(crate) fn preview(bytes: &[u8]) -> String {
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let mut text = format!("binary, {}; it begins with\n", amount::bytes(size));
    let beginning = bytes.get(..PREVIEW).unwrap_or(bytes);
    for (line, part) in beginning.chunks(PER_LINE).enumerate() {
        let _ = write!(text, "  {:08x} ", line * PER_LINE);
        for at in 0..PER_LINE {
            match part.get(at) {
                Some(byte) => {
                    let _ = write!(text, " {byte:02x}");
                }
                None => text.push_str("   "),
            }
        }
        let letters = part.iter().map(|byte| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '.',
        });
        let _ = writeln!(text, "  {}", letters.collect::<String>());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nul_makes_it_binary() {
        assert!(is_binary(b"ELF\0"));
        assert!(!is_binary("text é".as_bytes()));
        assert!(!is_binary(b""));
        let late = [vec![b'x'; LOOKED_AT], vec![0]].concat();
        assert!(!is_binary(&late));
    }

    #[test]
    fn a_preview_is_aligned_and_bounded() {
        let expected = "\
binary, 18 B; it begins with
  00000000  00 1b 5b 32 4a 61 61 61 61 61 61 61 61 61 61 61  ..[2Jaaaaaaaaaaa
  00000010  ff 7e                                            .~
";
        let mut bytes = b"\0\x1b[2J".to_vec();
        bytes.extend([b'a'; 11]);
        bytes.extend([0xff, b'~']);
        assert_eq!(preview(&bytes), expected);
        assert_eq!(preview(&vec![0; 1 << 20]).lines().count(), 9);
    }
}
