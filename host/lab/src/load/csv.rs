// SPDX-License-Identifier: Apache-2.0

//! Comma-separated values with quotation marks (RFC 4180), as JMeter writes them.

/// The records of `text`. `None` if a quotation mark is left open, or something follows a closed one.
pub(crate) fn records(text: &str) -> Option<Vec<Vec<String>>> {
    let mut records = Vec::new();
    let mut record = Vec::new();
    let mut letters = text.chars().peekable();
    while letters.peek().is_some() {
        let mut field = String::new();
        if letters.next_if_eq(&'"').is_some() {
            loop {
                match letters.next()? {
                    '"' if letters.next_if_eq(&'"').is_some() => field.push('"'),
                    '"' => break,
                    letter => field.push(letter),
                }
            }
        } else {
            while let Some(letter) = letters.next_if(|letter| !matches!(letter, ',' | '\n')) {
                field.push(letter);
            }
            if matches!(letters.peek(), None | Some('\n')) && field.ends_with('\r') {
                field.pop();
            }
        }
        record.push(field);
        letters.next_if_eq(&'\r');
        match letters.next() {
            // The comma at the very end is followed by an empty field.
            Some(',') if letters.peek().is_none() => record.push(String::new()),
            Some(',') => continue,
            None | Some('\n') => {}
            Some(_) => return None,
        }
        records.push(std::mem::take(&mut record));
    }
    if !record.is_empty() {
        records.push(record);
    }
    Some(records)
}

#[cfg(test)]
mod tests {
    use super::records;

    fn shown(text: &str) -> Option<String> {
        let records = records(text)?;
        let lines: Vec<String> = records.iter().map(|record| record.join("|")).collect();
        Some(lines.join("/"))
    }

    #[test]
    fn fields() {
        assert_eq!(shown("a,b\nc,d\n").unwrap(), "a|b/c|d");
        assert_eq!(shown("a,,b").unwrap(), "a||b");
        assert_eq!(shown("a,\nb,c").unwrap(), "a|/b|c");
        assert_eq!(shown("a,").unwrap(), "a|");
        assert_eq!(shown("a,b\r\nc,\"d\"\r\n").unwrap(), "a|b/c|d");
        assert_eq!(shown("\"a,\"\"b\"\"\n\",c").unwrap(), "a,\"b\"\n|c");
        assert_eq!(shown("").unwrap(), "");
    }

    #[test]
    fn what_is_wrong() {
        assert_eq!(shown("\"a"), None);
        assert_eq!(shown("\"a\"b,c"), None);
    }
}
