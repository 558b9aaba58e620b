//! Numbers for people: three significant digits and a unit.

/// A count per second: `1.23 M`, `45.6 k`.
pub fn rate(value: f64) -> String {
    match value {
        v if v >= 1e9 => format!("{} G", three_digits(v / 1e9)),
        v if v >= 1e6 => format!("{} M", three_digits(v / 1e6)),
        v if v >= 1e3 => format!("{} k", three_digits(v / 1e3)),
        v => three_digits(v),
    }
}

/// A time given in nanoseconds: `12.3 ns`, `4.56 us`.
pub fn time(ns: f64) -> String {
    match ns {
        v if v >= 999.5e6 => format!("{} s", three_digits(v / 1e9)),
        v if v >= 999.5e3 => format!("{} ms", three_digits(v / 1e6)),
        v if v >= 999.5 => format!("{} us", three_digits(v / 1e3)),
        v => format!("{} ns", three_digits(v)),
    }
}

/// Three significant digits, without an exponent.
pub fn three_digits(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v if v >= 0.000_5 => format!("{v:.2}"),
        v if v > 0.0 => format!("{v:.0e}"),
        _ => "0".to_owned(),
    }
}

/// A share, with two digits that are not zero.
pub fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent {
        p if p >= 9.95 => format!("{p:.0} %"),
        p if p >= 0.995 => format!("{p:.1} %"),
        0.0 => "0 %".to_owned(),
        p if p < 0.005 => "less than 0.01 %".to_owned(),
        p => format!("{p:.2} %"),
    }
}

/// A count: `815,796`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with what is counted: `1 lock`, `815,796 locks`.
pub fn counted(count: u64, one: &str, more: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        n => format!("{} {more}", grouped(n)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readable() {
        assert_eq!(rate(1_234_567.0), "1.23 M");
        assert_eq!(rate(45_600.0), "45.6 k");
        assert_eq!(rate(7.0), "7.00");
        assert_eq!(time(12.34), "12.3 ns");
        assert_eq!(time(4_560.0), "4.56 us");
        assert_eq!(time(999_600.0), "1.00 ms");
        assert_eq!(time(2.5e9), "2.50 s");
    }

    #[test]
    fn counts_and_shares() {
        assert_eq!(
            [grouped(0), grouped(999), grouped(1000), grouped(815_796)],
            ["0", "999", "1,000", "815,796"]
        );
        assert_eq!(percent(245.0 / 815_796.0), "0.03 %");
        assert_eq!(
            [percent(0.0), percent(0.0652), percent(0.5)],
            ["0 %", "6.5 %", "50 %"]
        );
    }
}
