//! The check, option by option and rule by rule.

mod catalogue;
mod properties;
mod rules;
mod secrets;
