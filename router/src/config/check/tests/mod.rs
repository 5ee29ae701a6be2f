//! The check, option by option and rule by rule.

mod catalogue;
mod guard;
mod properties;
mod rules;
mod secrets;
