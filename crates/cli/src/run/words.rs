//! Words and operators of a pipeline text, by the shell's quoting rules and without any expansion.

use super::pipeline::PipelineError;

/// A piece of the text, with the byte where it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// A word, its quotes removed.
    Word(Word),
    /// `|`
    Pipe { at: usize },
    /// `<`
    Input { at: usize },
    /// `>`
    Output { at: usize },
}

/// One word after the removal of quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    pub text: String,
    /// Byte of its first character in the pipeline's text.
    pub at: usize,
    /// How many leading bytes of `text` stood there without quotes or backslashes. Only those can make a
    /// word an option or an assignment, as in the shell.
    pub bare: usize,
}

impl Word {
    /// True if no part of the word was quoted.
    pub fn is_bare(&self) -> bool {
        self.bare == self.text.len()
    }

    /// `NAME=value` with an unquoted name, as a pair.
    pub fn assignment(&self) -> Option<(&str, &str)> {
        let equals = self.text.find('=').filter(|&e| e < self.bare)?;
        let (name, value) = (&self.text[..equals], &self.text[equals + 1..]);
        is_name(name).then_some((name, value))
    }
}

fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Splits `text` into words and operators.
pub fn split(text: &str) -> Result<Vec<Token>, PipelineError> {
    let mut lexer = Lexer { text, at: 0, word: None, tokens: Vec::new() };
    while let Some(c) = lexer.next() {
        lexer.step(c)?;
    }
    lexer.end_word();
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    word: Option<Building>,
    tokens: Vec<Token>,
}

struct Building {
    text: String,
    at: usize,
    /// Length of `text` when the first quote was met.
    bare: Option<usize>,
}

impl Lexer<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.text[self.at..].chars().next()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    /// Where the character that `next` gave last starts.
    fn start_of(&self, c: char) -> usize {
        self.at - c.len_utf8()
    }

    fn word(&mut self, at: usize) -> &mut Building {
        self.word.get_or_insert_with(|| Building { text: String::new(), at, bare: None })
    }

    fn quoted(&mut self, at: usize) -> &mut Building {
        let word = self.word(at);
        let len = word.text.len();
        word.bare.get_or_insert(len);
        word
    }

    fn end_word(&mut self) {
        if let Some(Building { text, at, bare }) = self.word.take() {
            let bare = bare.unwrap_or(text.len());
            self.tokens.push(Token::Word(Word { text, at, bare }));
        }
    }

    fn step(&mut self, c: char) -> Result<(), PipelineError> {
        let at = self.start_of(c);
        match c {
            '\0' => return Err(PipelineError::Nul { at }),
            ' ' | '\t' | '\n' | '\r' => self.end_word(),
            '\'' => self.single_quotes(at)?,
            '"' => self.double_quotes(at)?,
            '\\' => self.backslash(at)?,
            '|' => self.pipe(at)?,
            '<' | '>' => self.redirect(c, at)?,
            ';' | '&' | '(' | ')' | '`' => {
                return Err(PipelineError::Operator { at, operator: c.to_string() })
            }
            c => self.word(at).text.push(c),
        }
        Ok(())
    }

    fn single_quotes(&mut self, at: usize) -> Result<(), PipelineError> {
        let rest = &self.text[at + 1..];
        let len = rest.find('\'').ok_or(PipelineError::UnclosedQuote { at, quote: '\'' })?;
        if let Some(nul) = rest[..len].find('\0') {
            return Err(PipelineError::Nul { at: at + 1 + nul });
        }
        self.quoted(at).text.push_str(&rest[..len]);
        self.at = at + 1 + len + 1;
        Ok(())
    }

    fn double_quotes(&mut self, at: usize) -> Result<(), PipelineError> {
        self.quoted(at);
        loop {
            let c = self.next().ok_or(PipelineError::UnclosedQuote { at, quote: '"' })?;
            let here = self.start_of(c);
            let keep = match (c, self.peek()) {
                ('"', _) => return Ok(()),
                ('\0', _) => return Err(PipelineError::Nul { at: here }),
                ('\\', Some(next @ ('"' | '\\' | '$' | '`'))) => {
                    self.next();
                    next
                }
                ('\\', Some('\n')) => {
                    self.next();
                    continue;
                }
                (c, _) => c,
            };
            self.quoted(here).text.push(keep);
        }
    }

    fn backslash(&mut self, at: usize) -> Result<(), PipelineError> {
        match self.next() {
            None => Err(PipelineError::TrailingBackslash { at }),
            Some('\0') => Err(PipelineError::Nul { at: at + 1 }),
            Some('\n') => Ok(()),
            Some(c) => {
                self.quoted(at).text.push(c);
                Ok(())
            }
        }
    }

    fn pipe(&mut self, at: usize) -> Result<(), PipelineError> {
        self.end_word();
        if let Some(c @ ('|' | '&')) = self.peek() {
            return Err(PipelineError::Operator { at, operator: format!("|{c}") });
        }
        self.tokens.push(Token::Pipe { at });
        Ok(())
    }

    fn redirect(&mut self, c: char, at: usize) -> Result<(), PipelineError> {
        if let Some(next @ ('<' | '>' | '&' | '|' | '(')) = self.peek() {
            return Err(PipelineError::Operator { at, operator: format!("{c}{next}") });
        }
        // `2>` in the shell is one thing, a redirection of that descriptor, and not a word before `>`.
        if let Some(word) = &self.word {
            if word.bare.is_none() && word.text.bytes().all(|b| b.is_ascii_digit()) {
                return Err(PipelineError::Operator { at: word.at, operator: format!("{}{c}", word.text) });
            }
        }
        self.end_word();
        self.tokens.push(if c == '<' { Token::Input { at } } else { Token::Output { at } });
        Ok(())
    }
}

/// `word` as the shell and [`split`] read it back: bare if nothing in it is special.
pub fn quote(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-./,:+@%".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    quote_always(word)
}

/// `word` in quotes even if nothing in it is special.
pub fn quote_always(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        split(text)
            .unwrap()
            .into_iter()
            .map(|t| match t {
                Token::Word(w) => w.text,
                Token::Pipe { .. } => "|".into(),
                Token::Input { .. } => "<".into(),
                Token::Output { .. } => ">".into(),
            })
            .collect()
    }

    #[test]
    fn quoting_is_the_shells() {
        assert_eq!(words(r#"a 'b c' "d 'e'" f\ g"#), ["a", "b c", "d 'e'", "f g"]);
        assert_eq!(words(r#"a"b"'c'\d"#), ["abcd"]);
        assert_eq!(words(r#""\a \" \\ \$x""#), [r#"\a " \ $x"#]);
        assert_eq!(words(r"'\'"), [r"\"]);
        assert_eq!(words("''"), [""]);
        assert_eq!(words("a \\\n b"), ["a", "b"]);
        assert_eq!(words("\"a\\\nb\""), ["ab"]);
        assert_eq!(words("a|b<c>d"), ["a", "|", "b", "<", "c", ">", "d"]);
    }

    #[test]
    fn nothing_is_expanded() {
        assert_eq!(words("$HOME ~ *.npy {a,b} # x"), ["$HOME", "~", "*.npy", "{a,b}", "#", "x"]);
    }

    #[test]
    fn what_the_shell_would_do_more_is_refused_with_its_place() {
        for (text, at, operator) in [
            ("a && b", 2, "&"),
            ("a; b", 1, ";"),
            ("a || b", 2, "||"),
            ("a >> b", 2, ">>"),
            ("a << b", 2, "<<"),
            ("é 2> b", 3, "2>"),
            ("a >&2", 2, ">&"),
            ("$(a)", 1, "("),
            ("`a`", 0, "`"),
        ] {
            assert_eq!(split(text), Err(PipelineError::Operator { at, operator: operator.into() }), "{text}");
        }
        assert_eq!(split("a 'b"), Err(PipelineError::UnclosedQuote { at: 2, quote: '\'' }));
        assert_eq!(split("a \"b"), Err(PipelineError::UnclosedQuote { at: 2, quote: '"' }));
        assert_eq!(split("a \\"), Err(PipelineError::TrailingBackslash { at: 2 }));
        assert_eq!(split("a '\0'"), Err(PipelineError::Nul { at: 3 }));
        assert_eq!(split("a \\\0"), Err(PipelineError::Nul { at: 3 }));
    }

    #[test]
    fn digits_before_a_redirection_count_only_when_they_touch_it() {
        assert_eq!(words("a 2 > b"), ["a", "2", ">", "b"]);
        assert_eq!(words("a '2'> b"), ["a", "2", ">", "b"]);
    }

    #[test]
    fn assignments_need_a_bare_name() {
        let assignment = |text: &str| match &split(text).unwrap()[0] {
            Token::Word(w) => w.assignment().map(|(n, v)| (n.to_owned(), v.to_owned())),
            _ => None,
        };
        assert_eq!(assignment("A_1='b c'"), Some(("A_1".into(), "b c".into())));
        assert_eq!(assignment("A="), Some(("A".into(), "".into())));
        for not in ["'A'=b", "A\\=b", "1A=b", "=b", "a-b=c", "'A=b'"] {
            assert_eq!(assignment(not), None, "{not}");
        }
    }

    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_quoted_is_split_into_the_same_words(
            list in prop::collection::vec("[^\0]{0,6}|[-n2|<>'\"\\\\ a=&\n$`]{0,6}", 1..5),
        ) {
            let bare = list.iter().map(|w| quote(w)).collect::<Vec<_>>().join(" ");
            prop_assert_eq!(words(&bare), list.clone());
            let quoted = list.iter().map(|w| quote_always(w)).collect::<Vec<_>>().join("\t");
            prop_assert_eq!(words(&quoted), list);
        }

        #[test]
        fn words_stand_where_they_say(text in "[-n2|<>'\"\\\\ a=é\n]{0,30}") {
            let tokens = split(&text).unwrap_or_default();
            let mut end = 0;
            for token in tokens {
                let (at, starts) = match &token {
                    Token::Word(word) => {
                        prop_assert!(word.text.is_char_boundary(word.bare) && word.bare <= word.text.len());
                        (word.at, !text[word.at..].starts_with(['|', '<', '>', ' ']))
                    }
                    Token::Pipe { at } => (*at, text[*at..].starts_with('|')),
                    Token::Input { at } => (*at, text[*at..].starts_with('<')),
                    Token::Output { at } => (*at, text[*at..].starts_with('>')),
                };
                prop_assert!(at >= end && starts, "{:?} in {:?}", token, text);
                end = at + 1;
            }
        }
    }
}
