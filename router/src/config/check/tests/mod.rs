//! The check, option by option and rule by rule.

mod catalogue;
mod rules;
mod secrets;
