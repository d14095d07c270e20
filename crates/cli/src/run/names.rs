//! Names of signals, and durations as people type them.

use std::time::Duration;

/// `SIGKILL` for 9.
pub fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        n => return format!("signal {n}"),
    };
    name.to_owned()
}

/// Reads `30s`, `1.5s`, `200ms`, `5m`, `2h`; a number alone is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    if text.starts_with('-') {
        return Err(format!("`{text}` is negative; try 30s or 5m"));
    }
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" => 60.0,
        "h" => 3600.0,
        word if !number.is_empty() && word.chars().all(char::is_alphabetic) => {
            return Err(format!("`{unit}` is no unit of time; use ms, s, m or h"))
        }
        _ => return Err(no_duration(text)),
    };
    let number: f64 = number.parse().map_err(|_| no_duration(text))?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| format!("`{text}` is too long"))
}

fn no_duration(text: &str) -> String {
    format!("`{text}` is no duration; try 30s or 5m")
}

/// As [`parse_duration`], for a limit: none at all is said by leaving it out.
pub fn parse_limit(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("a run needs some time; without the option it has no limit".into()),
        limit => Ok(limit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, ms) in
            [("30s", 30_000), ("1.5s", 1500), ("5m", 300_000), ("200ms", 200), ("2", 2000), ("0", 0)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "-1s", "1d", "1..2s", "1s2", "nan", "99999999999999999999999h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        for (text, says) in
            [("-1", "negative"), ("1e3", "no duration"), ("nan", "no duration"), ("3d", "`d` is no unit")]
        {
            assert!(parse_duration(text).is_err_and(|e| e.contains(says)), "{text}");
        }
        for text in ["0", "0s", "0.0h"] {
            assert!(parse_limit(text).is_err(), "{text}");
        }
        assert_eq!(parse_limit("1ms"), Ok(Duration::from_millis(1)));
    }
}
