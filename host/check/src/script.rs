// SPDX-License-Identifier: Apache-2.0
//! Reads shell scripts for two questions: do they start other processes, and which program do they become with `exec`?
//!
//! The grammar is that of the POSIX shell command language (XCU chapter 2) as far as these questions need it: words,
//! quotes, substitutions, operators, reserved words, functions, `case`, here-documents.

use std::collections::BTreeSet;

/// What a script does.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Script {
    /// Commands that need a process of their own.
    pub(crate) children: Vec<Child>,
    /// The words behind each `exec` that names a program.
    pub(crate) execs: Vec<Vec<String>>,
}

/// A command that needs a process of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) line: usize,
    pub(crate) what: String,
    /// It is run whatever happens before.
    pub(crate) certain: bool,
}

/// Commands of the shells themselves.
const BUILTINS: [&str; 62] = [
    ".",
    ":",
    "[",
    "alias",
    "bg",
    "bind",
    "break",
    "builtin",
    "caller",
    "cd",
    "command",
    "compgen",
    "complete",
    "continue",
    "declare",
    "dirs",
    "disown",
    "echo",
    "enable",
    "eval",
    "exit",
    "export",
    "false",
    "fc",
    "fg",
    "getopts",
    "hash",
    "help",
    "history",
    "jobs",
    "kill",
    "let",
    "local",
    "logout",
    "mapfile",
    "popd",
    "printf",
    "pushd",
    "pwd",
    "read",
    "readarray",
    "readonly",
    "return",
    "set",
    "shift",
    "shopt",
    "source",
    "suspend",
    "test",
    "times",
    "trap",
    "true",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "wait",
    "[[",
    "((",
    "exec",
];

/// Reserved words after which a command begins.
const BEFORE_COMMAND: [&str; 6] = ["then", "elif", "else", "do", "!", "time"];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word { text: String, substitutes: bool },
    Operator(&'static str),
}

/// Reads a script.
pub(crate) fn read(text: &str) -> Script {
    let tokens = tokens(text);
    let functions: BTreeSet<String> = tokens
        .windows(3)
        .filter_map(|w| match w {
            [
                (_, Token::Word { text, .. }),
                (_, Token::Operator("(")),
                (_, Token::Operator(")")),
            ] => Some(text.clone()),
            [
                (_, Token::Word { text, .. }),
                (_, Token::Word { text: name, .. }),
                _,
            ] if text == "function" => Some(name.clone()),
            _ => None,
        })
        .collect();
    Reader {
        tokens: &tokens,
        at: 0,
        depth: 0,
        after_condition: false,
        functions,
        script: Script::default(),
    }
    .read()
}

struct Reader<'a> {
    tokens: &'a [(usize, Token)],
    at: usize,
    /// Open compound commands and functions.
    depth: usize,
    /// The command follows `&&` or `||`.
    after_condition: bool,
    functions: BTreeSet<String>,
    script: Script,
}

impl Reader<'_> {
    fn read(mut self) -> Script {
        while let Some((line, token)) = self.tokens.get(self.at) {
            let line = *line;
            match token {
                Token::Operator(operator) => self.operator(line, operator),
                Token::Word { text, .. } => {
                    let text = text.clone();
                    self.command_word(line, &text);
                }
            }
        }
        self.script
    }

    fn child(&mut self, line: usize, what: impl Into<String>) {
        let certain = self.depth == 0 && !self.after_condition;
        self.script.children.push(Child {
            line,
            what: what.into(),
            certain,
        });
    }

    fn operator(&mut self, line: usize, operator: &str) {
        self.at += 1;
        match operator {
            "&&" | "||" => self.after_condition = true,
            "|" => self.child(line, "a pipeline"),
            "&" => self.child(line, "a command in the background"),
            "(" => {
                self.child(line, "a subshell");
                self.depth += 1;
            }
            ")" => self.depth = self.depth.saturating_sub(1),
            ";;" => {
                self.at -= 1;
                self.after_condition = false;
                self.skip_pattern();
            }
            _ => self.after_condition = false,
        }
    }

    /// A word where a command begins.
    fn command_word(&mut self, line: usize, word: &str) {
        match word {
            "if" | "while" | "until" | "{" => self.depth += 1,
            "fi" | "done" | "esac" | "}" => self.depth = self.depth.saturating_sub(1),
            "for" | "select" => {
                self.skip_until("do");
                self.depth += 1;
            }
            "case" => {
                self.skip_until("in");
                self.depth += 1;
                self.skip_pattern();
                return;
            }
            "function" => self.at += 1,
            word if BEFORE_COMMAND.contains(&word) => {}
            _ => return self.simple_command(line),
        }
        self.at += 1;
    }

    fn skip_until(&mut self, end: &str) {
        while let Some((_, token)) = self.tokens.get(self.at) {
            if matches!(token, Token::Word { text, .. } if text == end) {
                return;
            }
            self.at += 1;
        }
    }

    /// From behind `in` or `;;` to behind the `)` of the next pattern, or to `esac`.
    fn skip_pattern(&mut self) {
        self.at += 1;
        while let Some((_, token)) = self.tokens.get(self.at) {
            match token {
                Token::Word { text, .. } if text == "esac" => return,
                Token::Operator(")") => {
                    self.at += 1;
                    return;
                }
                _ => self.at += 1,
            }
        }
    }

    fn simple_command(&mut self, line: usize) {
        let mut words: Vec<String> = Vec::new();
        let mut skip_word = false;
        while let Some((_, token)) = self.tokens.get(self.at) {
            match token {
                Token::Word { text, substitutes } => {
                    if *substitutes {
                        let text = text.clone();
                        self.child(line, format!("a command substitution in {text}"));
                    }
                    if !std::mem::take(&mut skip_word) {
                        words.push(text.clone());
                    }
                }
                Token::Operator("<" | ">") => skip_word = true,
                Token::Operator(_) => break,
            }
            self.at += 1;
        }
        let mut rest = words.iter().skip_while(|w| is_assignment(w));
        let Some(name) = rest.next() else { return };
        // `name ( )` begins a function.
        if let Some((_, Token::Operator("("))) = self.tokens.get(self.at) {
            self.at += 2;
            return;
        }
        if name == "exec" {
            let program: Vec<String> = rest.filter(|w| *w != "-a").cloned().collect();
            if !program.is_empty() {
                self.script.execs.push(program);
            }
        } else if !BUILTINS.contains(&name.as_str()) && !self.functions.contains(name) {
            self.child(line, name.clone());
        }
    }
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && name
                .trim_end_matches('+')
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !name.starts_with(|c: char| c.is_ascii_digit())
    })
}

/// Words and operators with their lines.
fn tokens(text: &str) -> Vec<(usize, Token)> {
    let chars: Vec<char> = text.chars().collect();
    let mut out = Vec::new();
    let mut here_documents: Vec<String> = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < chars.len() {
        match chars[at] {
            '\n' => {
                out.push((line, Token::Operator("\n")));
                line += 1;
                at += 1;
                for end in here_documents.drain(..) {
                    while at < chars.len() {
                        let stop = (at..chars.len())
                            .find(|n| chars[*n] == '\n')
                            .unwrap_or(chars.len());
                        let content: String = chars[at..stop].iter().collect();
                        at = (stop + 1).min(chars.len());
                        line += 1;
                        if content.trim_start_matches('\t') == end {
                            break;
                        }
                    }
                }
            }
            c if c.is_whitespace() => at += 1,
            '#' => {
                while at < chars.len() && chars[at] != '\n' {
                    at += 1;
                }
            }
            '\\' if chars.get(at + 1) == Some(&'\n') => {
                at += 2;
                line += 1;
            }
            '<' if chars.get(at + 1) == Some(&'<') && chars.get(at + 2) != Some(&'<') => {
                at += 2;
                while matches!(chars.get(at), Some('-' | ' ')) {
                    at += 1;
                }
                let (word, _, next) = word(&chars, at);
                here_documents.push(word);
                at = next.max(at + 1);
            }
            _ => {
                if let Some((operator, len)) = operator(&chars, at) {
                    out.push((line, Token::Operator(operator)));
                    at += len;
                    continue;
                }
                let (text, substitutes, next) = word(&chars, at);
                // A number before a redirection is its descriptor.
                let is_descriptor = text.chars().all(|c| c.is_ascii_digit())
                    && matches!(chars.get(next), Some('<' | '>'));
                if !is_descriptor {
                    out.push((line, Token::Word { text, substitutes }));
                }
                line += chars[at..next].iter().filter(|c| **c == '\n').count();
                at = next.max(at + 1);
            }
        }
    }
    out
}

fn operator(chars: &[char], at: usize) -> Option<(&'static str, usize)> {
    let next = chars.get(at + 1).copied();
    Some(match (chars[at], next) {
        ('&', Some('&')) => ("&&", 2),
        ('|', Some('|')) => ("||", 2),
        (';', Some(';')) => (";;", 2),
        ('>', Some('&' | '>' | '|')) | ('<', Some('&' | '>')) => (">", 2),
        ('&', Some('>')) => (">", 2),
        ('<', Some('<')) => ("<", 3),
        ('>', _) => (">", 1),
        ('<', _) => ("<", 1),
        ('&', _) => ("&", 1),
        ('|', _) => ("|", 1),
        (';', _) => (";", 1),
        ('(', _) => ("(", 1),
        (')', _) => (")", 1),
        _ => return None,
    })
}

/// The word at `at`: its text without quotes, whether it holds a command substitution, and where it ends.
fn word(chars: &[char], mut at: usize) -> (String, bool, usize) {
    let mut text = String::new();
    let mut substitutes = false;
    let mut double = false;
    while at < chars.len() {
        let c = chars[at];
        match c {
            '\\' => {
                text.extend(chars.get(at + 1));
                at += 2;
                continue;
            }
            '\'' if !double => {
                at += 1;
                while at < chars.len() && chars[at] != '\'' {
                    text.push(chars[at]);
                    at += 1;
                }
            }
            '"' => double = !double,
            '`' => {
                substitutes = true;
                at += 1;
                while at < chars.len() && chars[at] != '`' {
                    at += 1;
                }
                text.push_str("`...`");
            }
            '$' if matches!(chars.get(at + 1), Some('(' | '{')) => {
                let open = chars[at + 1];
                let close = if open == '(' { ')' } else { '}' };
                let arithmetic = open == '(' && chars.get(at + 2) == Some(&'(');
                let (mut depth, start) = (0, at);
                while at < chars.len() {
                    if chars[at] == open {
                        depth += 1;
                    } else if chars[at] == close {
                        depth -= 1;
                        if depth == 0 {
                            break;
                        }
                    }
                    at += 1;
                }
                let end = (at + 1).min(chars.len());
                let inner: String = chars[start..end].iter().collect();
                substitutes |= open == '(' && !arithmetic
                    || open == '{' && (inner.contains("$(") || inner.contains('`'));
                text.push_str(&inner);
                at = end;
                continue;
            }
            c if !double && (c.is_whitespace() || "&|;()<>".contains(c)) => break,
            c => text.push(c),
        }
        at += 1;
    }
    (text, substitutes, at.min(chars.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn children(text: &str) -> Vec<(String, bool)> {
        read(text)
            .children
            .into_iter()
            .map(|c| (c.what, c.certain))
            .collect()
    }

    #[test]
    fn a_script_of_builtins_that_ends_in_exec_needs_no_child() {
        let script = read(
            "#!/bin/sh\nset -e\nif [ \"$1\" = serve ]; then\n  shift\n  export MODE=a\nfi\ncase \"$1\" in\n  -*) set -- prog \"$@\" ;;\n  *) : ;;\nesac\nusage() { echo \"usage\"; }\nexec \"$@\"\n",
        );
        assert_eq!(script.children, []);
        assert_eq!(script.execs, [vec!["$@".to_string()]]);
    }

    #[test]
    fn children_are_found_with_their_lines() {
        let script = read("#!/bin/sh\nmkdir -p /data\nif true; then chown a b; fi\nexec app\n");
        assert_eq!(
            script.children,
            [
                Child {
                    line: 2,
                    what: "mkdir".into(),
                    certain: true
                },
                Child {
                    line: 3,
                    what: "chown".into(),
                    certain: false
                },
            ]
        );
    }

    #[test]
    fn substitutions_pipelines_and_subshells_are_children() {
        assert_eq!(children("X=$(id -u)\n").len(), 1);
        assert_eq!(children("X=`date`\n").len(), 1);
        assert_eq!(children("echo a | cat\n").len(), 2);
        assert_eq!(children("( cd / )\n"), [("a subshell".to_string(), true)]);
        assert_eq!(children("X=$((1 + 2)); Y=${A:-b}\n"), []);
        assert_eq!(
            children("test -f /x && cat /x\n"),
            [("cat".to_string(), false)]
        );
        assert_eq!(children("echo hi 2>&1 >/dev/null\n"), []);
        assert_eq!(
            children("cat <<EOF\n$(not this)\nEOF\n"),
            [("cat".to_string(), true)]
        );
    }

    #[test]
    fn any_text_is_read_to_its_end() {
        for text in [
            "'",
            "\"$(",
            "`",
            "case",
            "case x in",
            "<<",
            "f(",
            "${",
            "\\",
            "if;;fi)",
        ] {
            let _ = read(text);
        }
    }
}
