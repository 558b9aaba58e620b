//! The parameters of a run: as JSON, and as the arguments of a command that repeats the run.

use serde::{Serialize, Serializer};
use serde_json::Value;

/// Flags with their values, in order.
#[derive(Clone, Debug, Default)]
pub struct Parameters(Vec<(&'static str, Value)>);

impl Parameters {
    /// Adds a flag. As an argument it is left out if the value is `null` or `false`, and has no
    /// value if it is `true`.
    pub fn add(mut self, flag: &'static str, value: impl Serialize) -> Self {
        let value = serde_json::to_value(value).expect("values of flags have a JSON form");
        self.0.push((flag, value));
        self
    }

    /// The same parameters with another value for a flag that is among them.
    pub fn with(&self, flag: &str, value: impl Serialize) -> Self {
        let mut changed = self.clone();
        let of_flag = changed.0.iter_mut().find(|(known, _)| *known == flag);
        let (_, old) = of_flag.expect("the flag is there");
        *old = serde_json::to_value(value).expect("values of flags have a JSON form");
        changed
    }

    pub fn without(mut self, flags: &[&str]) -> Self {
        self.0.retain(|(flag, _)| !flags.contains(flag));
        self
    }

    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        for (flag, value) in &self.0 {
            if let Value::Null | Value::Bool(false) = value {
                continue;
            }
            arguments.push(format!("--{flag}"));
            if *value != Value::Bool(true) {
                arguments.push(text(value));
            }
        }
        arguments
    }
}

impl Serialize for Parameters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.0.iter();
        serializer.collect_map(fields.map(|(flag, value)| (flag.replace('-', "_"), value)))
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(","),
        Value::String(text) => text.clone(),
        // 3 rather than 3.0.
        Value::Number(number) if number.is_f64() => number.as_f64().unwrap_or_default().to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_and_json_say_the_same() {
        let parameters = Parameters::default()
            .add("locks", ["a", "b"])
            .add("seconds", 3.0)
            .add("seed", u64::MAX)
            .add("threads", None::<u64>)
            .add("without-membarrier", true)
            .add("quiet", false);
        let arguments = parameters.with("seconds", 0.5).arguments().join(" ");
        let expected = "--locks a,b --seconds 0.5 --seed 18446744073709551615 --without-membarrier";
        assert_eq!(arguments, expected);
        assert_eq!(parameters.arguments()[3], "3");
        let json = serde_json::to_value(&parameters).unwrap();
        assert_eq!(json["without_membarrier"], true);
        assert!(json["threads"].is_null());
        assert_eq!(json["locks"][1], "b");
    }
}
