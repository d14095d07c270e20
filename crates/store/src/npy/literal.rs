//! The small part of Python's literals that a .npy header is written in: strings, whole numbers, truth
//! values, tuples, lists and one dictionary. Input is hostile: one pass, bounded depth, no panic.

use std::ops::Range;

/// How deep tuples and lists may nest; structured element types need a few levels.
const MAX_DEPTH: usize = 16;

/// A literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Str(String),
    Int(u64),
    Bool(bool),
    /// A tuple or a list.
    Items(Vec<Value>),
}

/// Where parsing stopped and what would have been right there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopped {
    pub position: usize,
    pub expected: &'static str,
}

/// A key of a dictionary, its value, and where that stands in the text.
pub(crate) type Entry = (String, Value, Range<usize>);

/// Parses one value; nothing but white space may follow it.
pub(crate) fn single(bytes: &[u8]) -> Result<Value, Stopped> {
    let mut c = Cursor { bytes, at: 0 };
    let value = c.value(0)?;
    match c.peek() {
        None => Ok(value),
        Some(_) => Err(c.stop("nothing behind the value")),
    }
}

/// Parses a dictionary with string keys; nothing but white space may follow it.
pub(crate) fn dictionary(bytes: &[u8]) -> Result<Vec<Entry>, Stopped> {
    let mut c = Cursor { bytes, at: 0 };
    let mut entries = Vec::new();
    c.expect(b'{', "`{`")?;
    while !c.take(b'}') {
        let key = match c.peek() {
            Some(b'\'' | b'"') => c.string()?,
            _ => return Err(c.stop("a key in quotes or `}`")),
        };
        c.expect(b':', "`:`")?;
        c.peek();
        let begin = c.at;
        let value = c.value(0)?;
        entries.push((key, value, begin..c.at));
        if !c.take(b',') {
            c.expect(b'}', "`,` or `}`")?;
            break;
        }
    }
    match c.peek() {
        None => Ok(entries),
        Some(_) => Err(c.stop("the end of the header")),
    }
}

/// A place in the text. All methods but `stop` skip white space first.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.bytes[self.at..];
        self.at += rest.iter().take_while(|b| b.is_ascii_whitespace()).count();
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), Stopped> {
        match self.take(byte) {
            true => Ok(()),
            false => Err(self.stop(expected)),
        }
    }

    fn stop(&self, expected: &'static str) -> Stopped {
        Stopped { position: self.at, expected }
    }

    fn value(&mut self, depth: usize) -> Result<Value, Stopped> {
        match self.peek() {
            Some(b'\'' | b'"') => self.string().map(Value::Str),
            Some(b'0'..=b'9') => self.number().map(Value::Int),
            Some(b'(') => self.items(b')', depth),
            Some(b'[') => self.items(b']', depth),
            Some(b'T' | b'F') => self.truth(),
            _ => Err(self.stop("a string, a number, True, False, a tuple or a list")),
        }
    }

    fn items(&mut self, close: u8, depth: usize) -> Result<Value, Stopped> {
        if depth == MAX_DEPTH {
            return Err(self.stop("less nesting"));
        }
        self.at += 1;
        let mut items = Vec::new();
        let mut comma = true;
        while !self.take(close) {
            if !comma {
                return Err(self.stop("`,` or the end of the tuple or list"));
            }
            items.push(self.value(depth + 1)?);
            comma = self.take(b',');
        }
        // A single value in parentheses without a comma is no tuple.
        match (close, items.len(), comma) {
            (b')', 1, false) => Ok(items.remove(0)),
            _ => Ok(Value::Items(items)),
        }
    }

    fn truth(&mut self) -> Result<Value, Stopped> {
        for (word, value) in [(&b"True"[..], true), (b"False", false)] {
            if self.bytes[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(Value::Bool(value));
            }
        }
        Err(self.stop("True or False"))
    }

    /// Python 2 wrote long numbers with an `L` behind them.
    fn number(&mut self) -> Result<u64, Stopped> {
        let digits = self.bytes[self.at..].iter().take_while(|b| b.is_ascii_digit()).count();
        let text = std::str::from_utf8(&self.bytes[self.at..self.at + digits]).unwrap_or("");
        let number = text.parse().map_err(|_| self.stop("a number below 2^64"))?;
        self.at += digits;
        self.at += usize::from(self.bytes.get(self.at) == Some(&b'L'));
        Ok(number)
    }

    /// Bytes beyond ASCII occur only in the names of fields, which nobody here looks at.
    fn string(&mut self) -> Result<String, Stopped> {
        let quote = self.bytes[self.at];
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let Some(&byte) = self.bytes.get(self.at) else { return Err(self.stop("a closing quote")) };
            self.at += 1;
            match byte {
                b'\\' => {
                    let Some(&next) = self.bytes.get(self.at) else {
                        return Err(self.stop("a closing quote"));
                    };
                    text.extend([byte, next]);
                    self.at += 1;
                }
                _ if byte == quote => return Ok(String::from_utf8_lossy(&text).into_owned()),
                _ => text.push(byte),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_python_writes() {
        let text = b"{'descr': [('a', '<f4', (2,)), (\"b\", '|S3')], 'fortran_order': False, 'shape': (3L, 4), }  \n";
        let entries = dictionary(text).unwrap();
        assert_eq!(&text[entries[0].2.clone()], b"[('a', '<f4', (2,)), (\"b\", '|S3')]");
        let keys: Vec<&str> = entries.iter().map(|e| e.0.as_str()).collect();
        assert_eq!(keys, ["descr", "fortran_order", "shape"]);
        assert_eq!(entries[1].1, Value::Bool(false));
        assert_eq!(entries[2].1, Value::Items(vec![Value::Int(3), Value::Int(4)]));
        assert_eq!(dictionary(b"{}").unwrap(), []);
        assert_eq!(dictionary(b"{'a': ()}").unwrap()[0].1, Value::Items(vec![]));
        assert_eq!(dictionary(b"{'a': (7)}").unwrap()[0].1, Value::Int(7));
        assert_eq!(dictionary(b"{'a': (7,)}").unwrap()[0].1, Value::Items(vec![Value::Int(7)]));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let cases: &[(&[u8], usize, &str)] = &[
            (b"", 0, "`{`"),
            (b"{'a'", 4, "`:`"),
            (b"{'a': 1 'b'", 8, "`,` or `}`"),
            (b"{'a': -1}", 6, "a string, a number, True, False, a tuple or a list"),
            (b"{'a': 18446744073709551616}", 6, "a number below 2^64"),
            (b"{'a': (1 2)}", 9, "`,` or the end of the tuple or list"),
            (b"{'a': Trve}", 6, "True or False"),
            (b"{'a': 'x", 8, "a closing quote"),
            (b"{'a': 1} x", 9, "the end of the header"),
            (b"{a: 1}", 1, "a key in quotes or `}`"),
        ];
        for &(text, position, expected) in cases {
            assert_eq!(dictionary(text), Err(Stopped { position, expected }), "{}", text.escape_ascii());
        }
        let deep = format!("{{'a': {}", "(".repeat(100_000));
        assert_eq!(dictionary(deep.as_bytes()).unwrap_err().expected, "less nesting");
    }
}
